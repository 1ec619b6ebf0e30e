//! The heat equation on a rectangular plate, row by row: a rank holds some rows and needs one more on each side.

/// Columns of the plate.
pub const COLUMNS: usize = 128;
/// Rows of the plate.
pub const ROWS: usize = 192;
/// Steps in time.
pub const STEPS: usize = 100;

/// Part of the temperature difference to the neighbours that flows in one step; below 1/4 the scheme is stable.
const FLOW: f64 = 0.2;

/// One row of temperatures.
pub type Row = Vec<f64>;

/// The plate at time zero: cold with a hot rectangle off its centre.
#[must_use]
pub fn initial_row(row: usize) -> Row {
    let hot = |column: &usize| (ROWS / 4..ROWS / 2).contains(&row) && (COLUMNS / 3..COLUMNS / 2).contains(column);
    (0..COLUMNS).map(|column| if hot(&column) { 100.0 } else { 0.0 }).collect()
}

/// The edge of the plate, above its first and below its last row, which is kept cold.
#[must_use]
pub fn cold_edge() -> Row {
    vec![0.0; COLUMNS]
}

/// The rows one step later; `above` and `below` are the neighbouring rows.
///
/// Each cell is computed from its four neighbours in one order, wherever the plate is cut: the same bits come out.
#[must_use]
pub fn step(rows: &[Row], above: &Row, below: &Row) -> Vec<Row> {
    let next_row = |(index, row): (usize, &Row)| {
        let up = if index == 0 { above } else { &rows[index - 1] };
        let down = rows.get(index + 1).unwrap_or(below);
        (0..COLUMNS)
            .map(|column| {
                let left = if column == 0 { 0.0 } else { row[column - 1] };
                let right = row.get(column + 1).copied().unwrap_or(0.0);
                row[column] + FLOW * (up[column] + down[column] + left + right - 4.0 * row[column])
            })
            .collect()
    };
    rows.iter().enumerate().map(next_row).collect()
}

/// The whole plate after [`STEPS`] steps, computed alone.
#[must_use]
pub fn serial() -> Vec<Row> {
    let mut rows: Vec<Row> = (0..ROWS).map(initial_row).collect();
    for _ in 0..STEPS {
        rows = step(&rows, &cold_edge(), &cold_edge());
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heat_spreads_and_never_exceeds_what_was_there() {
        let before: f64 = (0..ROWS).flat_map(initial_row).sum();
        let after: Vec<f64> = serial().concat();
        assert!(after.iter().all(|cell| (0.0..=100.0).contains(cell)));
        assert!(after.iter().filter(|cell| **cell > 0.0).count() > ROWS * COLUMNS / 8);
        // Some of it leaves through the cold edges, none is made.
        let total: f64 = after.iter().sum();
        assert!(total <= before * (1.0 + 1e-12) && total > before / 2.0, "{before} {total}");
    }

    #[test]
    fn a_plate_cut_in_two_gives_the_same_bits() {
        let mut top: Vec<Row> = (0..70).map(initial_row).collect();
        let mut bottom: Vec<Row> = (70..ROWS).map(initial_row).collect();
        for _ in 0..STEPS {
            let (last, first) = (top[top.len() - 1].clone(), bottom[0].clone());
            top = step(&top, &cold_edge(), &first);
            bottom = step(&bottom, &last, &cold_edge());
        }
        let bits = |rows: Vec<Row>| rows.concat().into_iter().map(f64::to_bits).collect::<Vec<_>>();
        assert!(bits([top, bottom].concat()) == bits(serial()));
    }
}
