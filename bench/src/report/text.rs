//! Tables.

use super::figure;
use crate::archive::Compared;
use crate::driver::OWN;
use crate::measure::{Plan, Unit};
use crate::record::{Record, Row, Run};
use crate::sizes;
use crate::turns::{Placement, placements};

/// The head of the rows of one run.
#[must_use]
pub fn head(plan: &Plan, run: &Run) -> String {
    let unit = plan.pattern.unit();
    let mut text = format!("{}: {}; {}\n", plan.pattern.name(), plan.pattern.meaning(), unit.name());
    text += &whereabouts(run);
    for note in &run.notes {
        text += &format!("note: {note}\n");
    }
    text + &format!(
        "{:>9} {:>7} {:>6} {:>9} {:>9} {:>9} {:>9} {:>7}  floor\n",
        "size", "rounds", "window", "P50", "P99", "P99.9", "worst", "/ floor"
    )
}

/// One row of one run.
#[must_use]
pub fn row(row: &Row) -> String {
    let unit = row.unit;
    let figures = [row.figures.p50, row.figures.p99, row.figures.p999, row.figures.worst];
    let figures: String = figures.iter().map(|value| format!(" {:>9}", figure(*value, unit))).collect();
    let window = row.window.map_or("-".into(), |window| window.to_string());
    let (ratio, floor) = match (&row.floor, row.to_floor()) {
        (Some(floor), Some(ratio)) => (format!("{ratio:.2}"), format!("{} {}", figure(floor.value, unit), floor.name)),
        _ => ("-".into(), String::new()),
    };
    let line = format!("{:>9} {:>7} {window:>6}{figures} {ratio:>7}  {floor}", sizes::text(row.bytes), row.rounds);
    format!("{}\n", line.trim_end())
}

/// Where the ranks of a run were and what connected them.
fn whereabouts(run: &Run) -> String {
    let place = |index: usize| run.ranks.get(index).map(|place| format!("{} ({})", place.host, place.processors));
    let ends = match (place(0), place(run.ranks.len().saturating_sub(1))) {
        (Some(first), Some(last)) => format!("rank 0 on {first}, rank {} on {last}", run.ranks.len() - 1),
        _ => String::new(),
    };
    let transport = run.transport.map_or(String::new(), |transport| format!(", over {}", transport.name()));
    let line = run.cache_line_us.map_or(String::new(), |[before, after]| {
        format!("; a cache line between them {before:.3} us before, {after:.3} us after")
    });
    format!("{ends}{transport}{line}\n")
}

/// A whole record: one table for each placement of the cores, and the other libraries beside.
#[must_use]
pub fn record(record: &Record) -> String {
    if let [run] = record.runs.as_slice() {
        return head(&record.plan, run) + &run.rows.iter().map(row).collect::<String>();
    }
    let unit = record.plan.pattern.unit();
    let mut text = format!("{}: {}; {}\n", record.plan.pattern.name(), record.plan.pattern.meaning(), unit.name());
    let (placements, moved) = placements(&record.runs);
    for placement in &placements {
        text += &table(record, placement);
    }
    if moved > 0 {
        text += &format!(
            "\n{moved} of {} runs are left out: their cores moved nearer or farther meanwhile\n",
            record.runs.len()
        );
    }
    text + &remarks(record)
}

fn table(record: &Record, placement: &Placement<'_>) -> String {
    let unit = record.plan.pattern.unit();
    let mut libraries = placement.libraries();
    // Ours first, whoever began.
    libraries.sort_by_key(|name| *name != OWN);
    let turns = |library: &str| placement.runs.iter().filter(|run| run.library == library).count();
    let line =
        placement.cache_line_us.map_or("no cache line measured".into(), |line| format!("cache line {line:.3} us"));
    let counts: Vec<String> = libraries.iter().map(|name| format!("{name} {}", turns(name))).collect();
    let mut text = format!("\n{line}; turns: {}\n", counts.join(", "));
    let others: Vec<&str> = libraries.iter().copied().filter(|name| *name != OWN).collect();
    let has_own = libraries.contains(&OWN);
    if has_own {
        text += &format!("{:>9} {:>9} {:>9} {:>9} {:>9} {:>7}", "size", OWN, "P99", "P99.9", "worst", "/ floor");
    } else {
        text += &format!("{:>9}", "size");
    }
    for name in &others {
        text += &format!("  {name:>9} {:>6}", if has_own { "ours/" } else { "" });
    }
    if has_own && !others.is_empty() {
        text += &format!("  {:>15}", "ours/best (spread)");
    }
    text.push('\n');
    for &bytes in &record.plan.sizes {
        let mut cells = format!("{:>9}", sizes::text(bytes));
        let own = placement.figures(OWN, bytes);
        if let Some(own) = own {
            let to_floor: Vec<f64> = placement.rows(OWN, bytes).filter_map(|(_, row)| row.to_floor()).collect();
            let to_floor = crate::measure::median(to_floor).map_or("-".into(), |ratio| format!("{ratio:.2}"));
            for value in [own.p50, own.p99, own.p999, own.worst] {
                cells += &format!(" {:>9}", figure(value, unit));
            }
            cells += &format!(" {to_floor:>7}");
        }
        let mut costs = Vec::new();
        for name in &others {
            let Some(theirs) = placement.figures(name, bytes) else {
                cells += &format!("  {:>9} {:>6}", "-", "");
                continue;
            };
            let cost = placement.cost(OWN, name, bytes);
            let ratio = cost.map_or(String::new(), |cost| format!("{:.2}", shown(cost.median, unit)));
            cells += &format!("  {:>9} {ratio:>6}", figure(theirs.p50, unit));
            costs.extend(cost);
        }
        // The best peer is the one beside which we look worst.
        if let Some(worst) = costs.into_iter().max_by(|a, b| a.median.total_cmp(&b.median)) {
            let (low, high) = (shown(worst.low, unit), shown(worst.high, unit));
            let ratio = shown(worst.median, unit);
            cells += &format!("  {ratio:>6.2} ({:.2}..{:.2})", low.min(high), low.max(high));
        }
        text += &format!("{}\n", cells.trim_end());
    }
    text
}

/// A cost as the quotient of two figures in the table: ours by theirs.
fn shown(cost: f64, unit: Unit) -> f64 {
    if unit.more_is_better() { 1.0 / cost } else { cost }
}

/// What a reader must know to trust the tables: versions, places, rounds, notes.
fn remarks(record: &Record) -> String {
    let unit = record.plan.pattern.unit();
    let better =
        if unit.more_is_better() { "above 1 ours is the better one" } else { "below 1 ours is the better one" };
    let mut text = format!(
        "\nP50 of each library, medians over turns; ours/: our P50 by theirs, each turn beside their nearest ({better});\n/ floor: above 1 by how much more it takes than the machine itself\n"
    );
    let fewer = |row: &Row| row.rounds < record.plan.rounds;
    let few: Vec<&Row> = record.runs.iter().flat_map(|run| &run.rows).filter(|row| fewer(row)).collect();
    if let (Some(size), Some(rounds)) = (few.iter().map(|row| row.bytes).min(), few.iter().map(|row| row.rounds).min())
    {
        text += &format!(
            "fewer than {} rounds from {} on, {rounds} at least: {} s a size (--seconds)\n",
            record.plan.rounds,
            sizes::text(size),
            record.plan.seconds
        );
    }
    let own_places = record.runs.iter().find(|run| run.library == OWN).map(|run| &run.ranks);
    let mut said = Vec::new();
    for run in &record.runs {
        let places: Vec<&str> = run.ranks.iter().take(4).map(|place| place.processors.as_str()).collect();
        let more = if run.ranks.len() > 4 { " …" } else { "" };
        let mut lines = vec![format!("{}: {}; processors {}{more}", run.library, run.version, places.join(" "))];
        if own_places.is_some_and(|own| *own != run.ranks) {
            lines.push(format!("note: {} did not run on the same processors as {OWN}", run.library));
        }
        lines.extend(run.notes.iter().map(|note| format!("note: {}: {note}", run.library)));
        for line in lines {
            if !said.contains(&line) {
                text += &format!("{line}\n");
                said.push(line);
            }
        }
    }
    text
}

/// Two records side by side.
#[must_use]
pub fn compared(rows: &[Compared]) -> String {
    let mut text = format!(
        "{:<10} {:>9} {:>10} {:>22} {:>22} {:>6}  {}\n",
        "library", "size", "cache line", "A (turns)", "B (turns)", "cost", "B beside A"
    );
    for row in rows {
        let cell = |[median, low, high]: [f64; 3]| {
            let figure = |value| figure(value, row.unit);
            if low < high { format!("{} ({}..{})", figure(median), figure(low), figure(high)) } else { figure(median) }
        };
        let line = row.cache_line_us.map_or("-".into(), |line| format!("{line:.3} us"));
        text += &format!(
            "{:<10} {:>9} {line:>10} {:>22} {:>22} {:>6.2}  {}\n",
            row.library,
            sizes::text(row.bytes),
            cell(row.a),
            cell(row.b),
            row.cost,
            row.remark.text()
        );
    }
    let unit = rows.first().map_or("", |row| row.unit.name());
    text + &format!("P50 in {unit}; cost: what B costs in parts of A, above 1 it is worse, whatever the unit\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::samples;

    #[test]
    fn one_run_is_a_table_with_its_floor_beside_each_row() {
        let text = record(&samples::record(&[("rsrun", 0.05, 0.2)]));
        assert!(text.contains("rank 0 on a (0), rank 1 on a (1), over shm"), "{text}");
        assert!(
            text.ends_with("8 B    1000      -     0.200     0.400     0.600     0.800    4.00  0.050 cache line\n"),
            "{text}"
        );
    }

    #[test]
    fn several_libraries_stand_side_by_side_with_ratios_by_placement() {
        let text = record(&samples::record(&[
            ("mpich", 0.05, 0.4),
            ("rsrun", 0.05, 0.2),
            ("rsrun", 0.25, 0.5),
            ("mpich", 0.25, 0.4),
            ("intel", 0.25, 0.25),
        ]));
        assert!(text.contains("cache line 0.050 us; turns: rsrun 1, mpich 1\n"), "{text}");
        let rows: Vec<&str> = text.lines().filter(|line| line.trim_start().starts_with("8 B")).collect();
        assert!(rows[0].ends_with("0.400   0.50    0.50 (0.50..0.50)"), "{text}");
        assert!(rows[1].ends_with("0.400   1.25      0.250   2.00    2.00 (2.00..2.00)"), "{text}");
    }

    #[test]
    fn a_library_on_other_processors_is_named() {
        let mut both = samples::record(&[("rsrun", 0.05, 0.2), ("mpich", 0.05, 0.4)]);
        assert!(!record(&both).contains("did not run on the same processors"));
        both.runs[1].ranks[1].processors = "0-1".into();
        assert!(record(&both).contains("note: mpich did not run on the same processors as rsrun\n"));
    }

    #[test]
    fn fewer_rounds_than_asked_for_are_said() {
        let mut few = samples::record(&[("rsrun", 0.05, 0.2), ("mpich", 0.05, 0.4)]);
        few.runs[0].rows[0].rounds = 37;
        assert!(record(&few).contains("fewer than 1000 rounds from 8 B on, 37 at least: 0.5 s a size"));
    }

    #[test]
    fn comparing_shows_both_medians_their_turns_and_what_the_difference_is_worth() {
        let a = samples::record(&[("rsrun", 0.05, 0.20), ("rsrun", 0.05, 0.22)]);
        let b = samples::record(&[("rsrun", 0.05, 0.42), ("rsrun", 0.05, 0.42)]);
        let text = compared(&crate::archive::compare(&a, &b).expect("comparable"));
        let row = text.lines().nth(1).expect("a row");
        assert!(row.contains("0.210 (0.200..0.220)") && row.ends_with("0.420   2.00  worse in every turn"), "{text}");
    }
}
