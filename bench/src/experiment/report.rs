//! The table and the picture of the experiment.

use super::cases::{CASES, Case, PIPELINED};
use super::record::{Collective, Record};
use crate::port::Failure;
use crate::sizes;
use plotters::prelude::*;
use std::fmt::Write as _;

const SIZE: (u32, u32) = (900, 720);

/// The table as Markdown: milliseconds, and in brackets how many times as long as the pipelined two-hop algorithm.
#[must_use]
pub fn table(record: &Record) -> String {
    let sizes = record.sizes();
    let mut text = String::new();
    for collective in Collective::ALL {
        let of = || CASES.iter().filter(|case| case.collective == collective);
        let pipelined = |bytes| record.median(of().find(|case| case.name == PIPELINED)?, bytes);
        if !text.is_empty() {
            text.push('\n');
        }
        let _ = write!(text, "| `{}` |", collective.name());
        for &bytes in &sizes {
            let _ = write!(text, " {} |", sizes::text(bytes));
        }
        let _ = writeln!(text, "\n|---|{}", "---:|".repeat(sizes.len()));
        for case in of().filter(|case| sizes.iter().any(|bytes| record.row(case, *bytes).is_some())) {
            let _ = write!(text, "| {} |", case.name);
            for &bytes in &sizes {
                let _ = match (record.median(case, bytes), pipelined(bytes)) {
                    (None, _) => write!(text, " - |"),
                    (Some(time), Some(ours)) if case.name != PIPELINED => {
                        write!(text, " {:.0} ({:.2}) |", time * 1e3, time / ours)
                    }
                    (Some(time), _) => write!(text, " {:.0} |", time * 1e3),
                };
            }
            text.push('\n');
        }
    }
    text
}

/// Measured medians beside what the simulator says of them, in milliseconds, as Markdown, with the range of rounds that vary
/// much ([`Row::range`](super::record::Row::range)); and the worst of the differences.
#[must_use]
pub fn predictions(record: &Record) -> String {
    let sizes = record.sizes();
    let mut text = String::from("| predicted (measured) |");
    sizes.iter().for_each(|&bytes| text += &format!(" {} |", sizes::text(bytes)));
    let _ = writeln!(text, "\n|---|{}", "---:|".repeat(sizes.len()));
    let (mut worst, mut within, mut all) = (0.0_f64, 0, 0);
    for case in CASES {
        let rows: Vec<_> = sizes.iter().map(|&bytes| record.row(case, bytes)).collect();
        if rows.iter().flatten().all(|row| row.predicted.is_none()) {
            continue;
        }
        let _ = write!(text, "| {} |", case.title());
        for row in rows {
            let Some((row, predicted)) = row.and_then(|row| Some((row, row.predicted?))) else {
                text += " - |";
                continue;
            };
            let off = predicted / row.median - 1.0;
            (worst, all) = (worst.max(off.abs()), all + 1);
            within += usize::from(off.abs() <= 0.25);
            let _ = write!(text, " {:.0} ({:.0}, {:+.0} %", predicted * 1e3, row.median * 1e3, off * 1e2);
            if let Some((least, most)) = row.range() {
                let _ = write!(text, "; {:.0} to {:.0}", least * 1e3, most * 1e3);
            }
            text += ") |";
        }
        text.push('\n');
    }
    let _ = writeln!(text, "\n{within} of {all} within 25 %; the worst is {:.0} % off", worst * 1e2);
    text
}

/// Medians by size, both axes logarithmic, one panel a collective, as SVG.
///
/// # Errors
/// There is nothing to draw.
pub fn svg(record: &Record) -> Result<String, Failure> {
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let panels = area.split_evenly((2, 1));
        for (panel, collective) in panels.iter().zip(Collective::ALL) {
            let cases = CASES.iter().filter(|case| case.collective == collective);
            let lines: Vec<(&Case, Vec<(f64, f64)>)> = cases
                .map(|case| {
                    let point = |bytes: usize| Some((bytes as f64, record.median(case, bytes)? * 1e3));
                    (case, record.sizes().into_iter().filter_map(point).collect())
                })
                .filter(|(_, points): &(&Case, Vec<_>)| !points.is_empty())
                .collect();
            let points = || lines.iter().flat_map(|(_, points)| points.iter().copied());
            let range = |of: fn((f64, f64)) -> f64, room: f64| {
                let low = points().map(of).reduce(f64::min)?;
                Some(low / 1.3..points().map(of).reduce(f64::max)? * room)
            };
            // Room on the right for the names.
            let Some((x, y)) = range(|point| point.0, 12.0).zip(range(|point| point.1, 1.5)) else { continue };
            let mut chart = ChartBuilder::on(panel)
                .caption(collective.name(), ("sans-serif", 18))
                .margin(10)
                .x_label_area_size(36)
                .y_label_area_size(64)
                .build_cartesian_2d(x.log_scale().base(2.0), y.log_scale())?;
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "sizes are whole numbers")]
            let size = |value: &f64| sizes::text(value.round() as usize);
            chart
                .configure_mesh()
                .light_line_style(WHITE)
                .x_desc("bytes of a rank")
                .y_desc("median, ms")
                .x_label_formatter(&size)
                .draw()?;
            for (index, (case, points)) in lines.iter().enumerate() {
                let width = if case.name == PIPELINED { 4 } else { 2 };
                let style = Palette99::pick(index).mix(1.0).stroke_width(width);
                chart
                    .draw_series(LineSeries::new(points.iter().copied(), style))?
                    .label(case.name)
                    .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], style));
            }
            chart
                .configure_series_labels()
                .position(SeriesLabelPosition::MiddleRight)
                .background_style(WHITE.mix(0.8))
                .border_style(BLACK.mix(0.3))
                .draw()?;
        }
        area.present()?;
    }
    if !text.contains("<polyline") {
        return Err("no measurement to draw: two sizes at least are needed".into());
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        let mut record = Record::default();
        for (index, case) in CASES.iter().enumerate() {
            for bytes in [1 << 10, 1 << 20] {
                record.add(case, bytes, (index + 1) as f64);
            }
        }
        record
    }

    #[test]
    fn the_table_holds_every_case_against_the_pipelined_one() {
        let mut record = record();
        let text = table(&record);
        // The fourth case takes 4 s, the first 1 s.
        assert!(text.contains("| two hops, pipelined | 4000 | 4000 |"), "{text}");
        assert!(text.contains("| flat, linear | 1000 (0.25) | 1000 (0.25) |"), "{text}");
        record.add(&CASES[1], 8 << 20, 2.0);
        let text = table(&record);
        assert!(text.contains("| flat, linear | 1000 (0.25) | 1000 (0.25) | - |"), "{text}");
        assert!(text.contains("| flat, binomial | 2000 (0.50) | 2000 (0.50) | 2000 |"), "{text}");
    }

    #[test]
    fn predictions_stand_beside_what_was_measured_with_the_worst_of_them() {
        let mut record = record();
        (record.rows[0].predicted, record.rows[1].predicted) = (Some(1.2), Some(0.5));
        let text = predictions(&record);
        assert!(text.contains("| reduce: flat, linear | 1200 (1000, +20 %) | 500 (1000, -50 %) |"), "{text}");
        assert!(text.contains("1 of 2 within 25 %; the worst is 50 % off"), "{text}");
        record.add(&CASES[0], 1 << 10, 0.5);
        record.add(&CASES[0], 1 << 10, 1.0);
        let text = predictions(&record);
        assert!(text.contains("| reduce: flat, linear | 1200 (1000, +20 %; 500 to 1000) |"), "{text}");
    }

    #[test]
    fn the_picture_has_a_panel_a_collective_and_a_line_a_case() {
        let svg = svg(&record()).expect("it can be drawn");
        assert!(svg.matches("<polyline").count() >= CASES.len());
        for text in ["reduce", "all_reduce", "flat, linear", "Open MPI, han"] {
            assert!(svg.contains(text), "{text}");
        }
        assert!(super::svg(&Record::default()).is_err());
    }
}
