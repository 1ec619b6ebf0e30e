//! A picture of a record: P50 by size, both axes logarithmic, one line a library and one for the floor.

use crate::driver::OWN;
use crate::port::Failure;
use crate::record::Record;
use crate::sizes;
use crate::turns::placements;
use plotters::prelude::*;

const SIZE: (u32, u32) = (900, 560);

/// Draws the record as SVG; of several placements of the cores the one with most runs.
///
/// # Errors
/// There is nothing to draw: no size above zero, or no run.
pub fn svg(record: &Record) -> Result<String, Failure> {
    let unit = record.plan.pattern.unit();
    let (placements, _) = placements(&record.runs);
    let placement = placements.iter().max_by_key(|placement| placement.runs.len()).ok_or("no run to draw")?;
    let mut lines: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
    for library in placement.libraries() {
        let point = |bytes: &usize| Some((*bytes as f64, placement.figures(library, *bytes)?.p50));
        lines.push((
            library.to_owned(),
            record.plan.sizes.iter().filter(|bytes| **bytes > 0).filter_map(point).collect(),
        ));
    }
    let floor = |bytes: &usize| {
        let floors = placement.rows(OWN, *bytes).filter_map(|(_, row)| Some(row.floor.as_ref()?.value));
        Some((*bytes as f64, crate::measure::median(floors.collect())?))
    };
    lines.push(("floor".into(), record.plan.sizes.iter().filter(|bytes| **bytes > 0).filter_map(floor).collect()));
    lines.retain(|line| !line.1.is_empty());
    let points = || lines.iter().flat_map(|line| &line.1);
    let range = |of: fn(&(f64, f64)) -> f64| {
        let low = points().map(of).reduce(f64::min)?;
        let high = points().map(of).reduce(f64::max)?;
        // Some room, also where there is a single value.
        Some(low / 1.5..high * 1.5)
    };
    let (x, y) = range(|point| point.0).zip(range(|point| point.1)).ok_or("no size above zero to draw")?;

    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let title = match placement.cache_line_us {
            Some(line) => format!("{}, cache line {line:.3} us", record.plan.pattern.name()),
            None => record.plan.pattern.name().to_owned(),
        };
        let mut chart = ChartBuilder::on(&area)
            .caption(title, ("sans-serif", 20))
            .margin(16)
            .x_label_area_size(44)
            .y_label_area_size(72)
            .build_cartesian_2d(x.log_scale().base(2.0), y.log_scale())?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "sizes are small whole numbers")]
        let size = |value: &f64| sizes::text(value.round() as usize);
        chart
            .configure_mesh()
            .light_line_style(WHITE)
            .x_desc("bytes of a message")
            .y_desc(format!("P50, {}", unit.name()))
            .x_label_formatter(&size)
            .draw()?;
        for (index, (name, line)) in lines.iter().enumerate() {
            let style = if name == "floor" { BLACK.mix(0.4) } else { Palette99::pick(index).mix(1.0) }.stroke_width(2);
            chart
                .draw_series(LineSeries::new(line.iter().copied(), style))?
                .label(name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], style));
        }
        chart.configure_series_labels().background_style(WHITE.mix(0.8)).border_style(BLACK.mix(0.3)).draw()?;
        area.present()?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::samples;

    #[test]
    fn every_library_and_the_floor_has_a_line_with_its_name() {
        let mut record = samples::record(&[("rsrun", 0.05, 0.2), ("mpich", 0.05, 0.4)]);
        for run in &mut record.runs {
            let mut larger = run.rows[0].clone();
            larger.bytes = 1 << 20;
            larger.figures.p50 = 70.0;
            run.rows.push(larger);
        }
        record.plan.sizes = vec![0, 8, 1 << 20];
        let svg = svg(&record).expect("it can be drawn");
        assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"));
        for text in ["rsrun", "mpich", "floor", "latency, cache line 0.050 us", "KiB"] {
            assert!(svg.contains(text), "{text}");
        }
        assert!(svg.matches("<polyline").count() >= 3, "{svg}");
    }

    #[test]
    fn without_a_size_above_zero_there_is_nothing_to_draw() {
        let mut record = samples::record(&[("rsrun", 0.05, 0.2)]);
        record.plan.sizes = vec![0];
        assert_eq!(svg(&record).expect_err("nothing").to_string(), "no size above zero to draw");
    }
}
