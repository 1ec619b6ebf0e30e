//! Tables in Markdown, their place in a page, and a picture.

use super::record::{Record, Table};
use crate::port::Failure;
use plotters::prelude::*;
use std::fmt::Write as _;

/// The columns of perftest's programs begin so; what stands beside them is also given in parts of theirs.
const PERFTEST: &str = "ib_";

/// All tables of a record, each with its title. A cell has the median of the turns, the least and the most of them where
/// they differ, and where perftest has a column the ratio to it: the median over the turns, each beside its own turn.
#[must_use]
pub fn tables(record: &Record) -> String {
    let mut text = String::new();
    for table in &record.tables {
        let columns = table.columns();
        let reference = columns.iter().copied().find(|column| column.starts_with(PERFTEST));
        let note = match reference {
            Some(reference) => format!(" (least..most), × {reference}"),
            None if turns(table) > 1 => " (least..most)".to_owned(),
            None => String::new(),
        };
        let _ = write!(text, "{}, medians of {} turns{note}:\n\n| {} |", table.title, turns(table), table.rows);
        for column in &columns {
            let _ = write!(text, " {column} |");
        }
        let _ = writeln!(text, "\n|---|{}", "---:|".repeat(columns.len()));
        for row in table.row_names() {
            let _ = write!(text, "| {row} |");
            for column in &columns {
                let ratio = reference.filter(|to| to != column).and_then(|to| table.ratio(row, column, to));
                let ratio = ratio.map_or(String::new(), |ratio| format!(", {ratio:.2} ×"));
                let _ = match (table.median(row, column), table.range(row, column)) {
                    (Some(value), Some((least, most))) if number(least) != number(most) => {
                        write!(text, " {} ({}..{}){ratio} |", number(value), number(least), number(most))
                    }
                    (Some(value), _) => write!(text, " {}{ratio} |", number(value)),
                    (None, _) => write!(text, " - |"),
                };
            }
            text.push('\n');
        }
        text.push('\n');
    }
    for left_out in &record.left_out {
        let _ = writeln!(text, "Left out: {}\n", left_out.trim());
    }
    text
}

fn turns(table: &Table) -> u32 {
    table.samples.iter().map(|sample| sample.turn + 1).max().unwrap_or(0)
}

/// Three digits that count.
fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// The page with the tables in place of what was between its two marks for this experiment.
///
/// # Errors
/// The page has no such marks.
pub fn into_page(page: &str, record: &Record) -> Result<String, Failure> {
    let (begin, end) = (format!("<!-- {} -->\n", record.experiment), format!("<!-- end of {} -->", record.experiment));
    let missing = || format!("the page has no '{}' and '{end}'", begin.trim_end());
    let (before, rest) = page.split_once(&begin).ok_or_else(missing)?;
    let (_, after) = rest.split_once(&end).ok_or_else(missing)?;
    Ok(format!("{before}{begin}\n{}{end}{after}", tables(record)))
}

const WIDTH: u32 = 900;
const PANEL: u32 = 320;

/// One panel a table: rows along the horizontal axis, a line a column, values on a logarithmic axis.
///
/// # Errors
/// There is nothing to draw.
pub fn svg(record: &Record) -> Result<String, Failure> {
    let drawn: Vec<&Table> = record.tables.iter().filter(|table| table.row_names().len() > 1).collect();
    if drawn.is_empty() {
        return Err("no table of two rows to draw".into());
    }
    let panels = u32::try_from(drawn.len())?;
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, (WIDTH, PANEL * panels)).into_drawing_area();
        area.fill(&WHITE)?;
        for (panel, table) in area.split_evenly((drawn.len(), 1)).iter().zip(drawn) {
            draw(panel, table)?;
        }
        area.present()?;
    }
    Ok(text)
}

fn draw(panel: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>, table: &Table) -> Result<(), Failure> {
    let rows = table.row_names();
    let line = |column: &str| -> Vec<(f64, f64)> {
        let point = |(place, row): (usize, &&str)| Some((place as f64, table.median(row, column)?));
        // Zero has no place on this axis.
        rows.iter().enumerate().filter_map(point).filter(|point| point.1 > 0.0).collect()
    };
    let lines: Vec<(&str, Vec<(f64, f64)>)> = table.columns().into_iter().map(|name| (name, line(name))).collect();
    let values = || lines.iter().flat_map(|(_, line)| line.iter().map(|point| point.1));
    let (Some(low), Some(high)) = (values().reduce(f64::min), values().reduce(f64::max)) else { return Ok(()) };
    // Room on the right for the names.
    let mut chart = ChartBuilder::on(panel)
        .caption(&table.title, ("sans-serif", 16))
        .margin(10)
        .x_label_area_size(36)
        .y_label_area_size(64)
        .build_cartesian_2d(-0.2..rows.len() as f64 * 1.35, (low / 1.3..high * 1.5).log_scale())?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "places of rows")]
    let name = |place: &f64| {
        let near = (place - place.round()).abs() < 0.01 && *place > -0.01;
        rows.get(place.round() as usize).filter(|_| near).map(|row| (*row).to_owned()).unwrap_or_default()
    };
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .x_desc(&table.rows)
        .x_labels(rows.len() * 2)
        .x_label_formatter(&name)
        .draw()?;
    for (index, (name, line)) in lines.iter().enumerate() {
        let style = Palette99::pick(index).mix(1.0).stroke_width(2);
        chart
            .draw_series(LineSeries::new(line.iter().copied(), style))?
            .label(*name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], style));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::MiddleRight)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        let mut record = Record::new("loss");
        for turn in 0..2 {
            record.add(("bandwidth, MB/s", "loss"), "0%", "ours", turn, 71.94);
            record.add(("bandwidth, MB/s", "loss"), "1%", "ours", turn, 21.0);
            let value = if turn == 0 { 100.0 } else { 109.2 };
            record.add(("bandwidth, MB/s", "loss"), "1%", "ib_write_bw", turn, value);
        }
        record
    }

    #[test]
    fn a_table_has_a_row_a_name_and_a_dash_where_nothing_was_measured() {
        let expected = "\
bandwidth, MB/s, medians of 2 turns (least..most), × ib_write_bw:

| loss | ours | ib_write_bw |
|---|---:|---:|
| 0% | 71.9 | - |
| 1% | 21.0, 0.20 × | 105 (100..109) |

";
        assert_eq!(tables(&record()), expected);
    }

    #[test]
    fn only_what_is_between_the_marks_of_the_experiment_changes() {
        let page = "before\n<!-- loss -->\nold\n<!-- end of loss -->\nafter\n";
        let new = into_page(page, &record()).expect("it has marks");
        assert!(
            new.starts_with("before\n<!-- loss -->\n\nbandwidth") && new.ends_with("\n<!-- end of loss -->\nafter\n")
        );
        assert!(!new.contains("old"));
        assert_eq!(into_page(&new, &record()).expect("again"), new);
        assert!(into_page("no marks", &record()).expect_err("none").to_string().contains("<!-- loss -->"));
    }

    #[test]
    fn every_column_is_a_line_with_its_name() {
        let svg = svg(&record()).expect("it can be drawn");
        assert!(svg.starts_with("<svg ") && svg.contains("ib_write_bw") && svg.contains("<polyline"));
        assert!(super::svg(&Record::new("loss")).is_err());
    }
}
