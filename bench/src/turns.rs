//! Runs that may be compared with each other, and what comparing them gives. Pure.
//!
//! On a virtual machine the two cores of a run can be near to each other (they share a cache) or far, and that changes from
//! one minute to the next and outweighs every difference between libraries. The cache-line exchange that every run
//! measures tells: only runs with about the same one are put side by side.

use crate::measure::{Distribution, Unit, median};
use crate::record::{Row, Run};

/// Cache-line exchanges of one placement differ by less than this factor; near and far differ by about four.
const ALIKE: f64 = 1.6;

/// Runs whose cores were about as far from each other.
#[derive(Debug)]
pub struct Placement<'a> {
    /// Microseconds of the cache-line exchange, median of the runs; `None` where it was not measured.
    pub cache_line_us: Option<f64>,
    /// The runs, in the order in which they were made.
    pub runs: Vec<&'a Run>,
}

/// Sorts runs by how far their cores were from each other, nearest first. A run during which the cores moved is in none:
/// it belongs nowhere. The second result counts them.
#[must_use]
pub fn placements<'a>(runs: impl IntoIterator<Item = &'a Run>) -> (Vec<Placement<'a>>, usize) {
    let mut moved = 0;
    let mut without = Vec::new();
    let mut lines: Vec<(f64, usize, &Run)> = Vec::new();
    for (order, run) in runs.into_iter().enumerate() {
        match run.cache_line_us {
            None => without.push(run),
            Some([before, after]) if before.max(after) > ALIKE * before.min(after) => moved += 1,
            Some([before, after]) => lines.push((f64::midpoint(before, after), order, run)),
        }
    }
    lines.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut placements: Vec<Placement<'_>> = lines
        .chunk_by(|a, b| b.0 <= ALIKE * a.0)
        .map(|chunk| {
            let mut chunk = chunk.to_vec();
            let line = median(chunk.iter().map(|run| run.0).collect());
            chunk.sort_by_key(|run| run.1);
            Placement { cache_line_us: line, runs: chunk.into_iter().map(|run| run.2).collect() }
        })
        .collect();
    if !without.is_empty() {
        placements.push(Placement { cache_line_us: None, runs: without });
    }
    (placements, moved)
}

impl Placement<'_> {
    /// Libraries in it, in the order of their first run.
    #[must_use]
    pub fn libraries(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for run in &self.runs {
            if !names.contains(&run.library.as_str()) {
                names.push(&run.library);
            }
        }
        names
    }

    /// Every row of a library for a size, with its turn.
    pub fn rows<'b>(&'b self, library: &'b str, bytes: usize) -> impl Iterator<Item = (usize, &'b Row)> {
        let of_library = self.runs.iter().filter(move |run| run.library == library);
        of_library.flat_map(move |run| run.rows.iter().filter(move |row| row.bytes == bytes).map(|row| (run.turn, row)))
    }

    /// The medians of a library's figures over its turns.
    #[must_use]
    pub fn figures(&self, library: &str, bytes: usize) -> Option<Distribution> {
        let over_turns = |of: fn(&Row) -> f64| median(self.rows(library, bytes).map(|(_, row)| of(row)).collect());
        Some(Distribution {
            p50: over_turns(|row| row.figures.p50)?,
            p99: over_turns(|row| row.figures.p99)?,
            p999: over_turns(|row| row.figures.p999)?,
            worst: over_turns(|row| row.figures.worst)?,
        })
    }

    /// What `ours` costs in parts of `theirs`: each of our turns beside their nearest one.
    #[must_use]
    pub fn cost(&self, ours: &str, theirs: &str, bytes: usize) -> Option<Spread> {
        let pairs = self.rows(ours, bytes).filter_map(|(turn, own)| {
            let nearest = self.rows(theirs, bytes).min_by_key(|(other, _)| other.abs_diff(turn))?.1;
            Some(own.unit.cost(own.figures.p50, nearest.figures.p50))
        });
        Spread::of(pairs.collect())
    }
}

/// The median of some values, and how far they reach.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The smallest.
    pub low: f64,
    /// The largest.
    pub high: f64,
    /// How many there are.
    pub count: usize,
}

impl Spread {
    /// `None` of nothing.
    #[must_use]
    pub fn of(values: Vec<f64>) -> Option<Self> {
        let low = values.iter().copied().reduce(f64::min)?;
        let high = values.iter().copied().reduce(f64::max)?;
        let count = values.len();
        Some(Spread { median: median(values)?, low, high, count })
    }

    /// What a difference between two series of turns is worth.
    #[must_use]
    pub fn remark(&self, other: &Self, unit: Unit) -> Remark {
        if self.count < 2 || other.count < 2 {
            return Remark::OneTurn;
        }
        if self.low <= other.high && other.low <= self.high {
            return Remark::Overlap;
        }
        if unit.cost(other.median, self.median) > 1.0 { Remark::Worse } else { Remark::Better }
    }
}

/// What a difference between two series of turns is worth: with a handful of turns their ranges tell more honestly than
/// a test that assumes a distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Remark {
    /// Every turn of the second is better than every turn of the first.
    Better,
    /// Every turn of the second is worse than every turn of the first.
    Worse,
    /// The ranges overlap: no difference is shown.
    Overlap,
    /// A single turn says nothing about how much turns differ.
    OneTurn,
}

impl Remark {
    /// For people.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Remark::Better => "better in every turn",
            Remark::Worse => "worse in every turn",
            Remark::Overlap => "turns overlap",
            Remark::OneTurn => "one turn: cannot tell",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::samples::record;
    use proptest::prelude::*;

    #[test]
    fn near_and_far_runs_are_apart_and_each_peer_run_is_beside_its_neighbour() {
        let record = record(&[
            ("rsrun", 0.05, 0.2),
            ("mpich", 0.06, 0.1),
            ("rsrun", 0.24, 0.4),
            ("mpich", 0.25, 0.8),
            ("rsrun", 0.05, 0.3),
            ("mpich", 0.25, 0.9),
        ]);
        let (placements, moved) = placements(&record.runs);
        assert_eq!((placements.len(), moved), (2, 0));
        let [near, far] = &placements[..] else { unreachable!() };
        assert_eq!(near.runs.len(), 3);
        // Turns 0 and 2 of rsrun are both beside turn 0 of mpich, the only near one.
        assert_eq!(near.cost("rsrun", "mpich", 8), Spread::of(vec![2.0, 0.3 / 0.1]));
        assert_eq!(far.cost("rsrun", "mpich", 8), Spread::of(vec![0.5]));
        assert_eq!(far.cost("rsrun", "intel", 8), None);
        assert_eq!(near.libraries(), ["rsrun", "mpich"]);
    }

    #[test]
    fn a_run_in_which_the_cores_moved_is_left_out_and_one_without_a_floor_is_kept_apart() {
        let mut record = record(&[("rsrun", 0.05, 0.2), ("rsrun", 0.05, 0.2), ("rsrun", 0.05, 0.2)]);
        record.runs[0].cache_line_us = Some([0.05, 0.25]);
        record.runs[1].cache_line_us = None;
        let (placements, moved) = placements(&record.runs);
        let lines: Vec<_> = placements.iter().map(|placement| placement.cache_line_us.is_some()).collect();
        assert_eq!((lines, moved), (vec![true, false], 1));
    }

    #[test]
    fn only_ranges_that_do_not_touch_show_a_difference() {
        let spread = |values: &[f64]| Spread::of(values.to_vec()).expect("there are values");
        let (a, b) = (spread(&[1.0, 1.1, 1.2]), spread(&[1.3, 1.4]));
        assert_eq!(a.remark(&b, Unit::Microseconds), Remark::Worse);
        assert_eq!(a.remark(&b, Unit::MegabytesPerSecond), Remark::Better);
        assert_eq!(b.remark(&a, Unit::Microseconds), Remark::Better);
        assert_eq!(a.remark(&spread(&[1.2, 2.0]), Unit::Microseconds), Remark::Overlap);
        assert_eq!(a.remark(&spread(&[9.0]), Unit::Microseconds), Remark::OneTurn);
    }

    proptest! {
        #[test]
        fn every_run_is_in_one_placement_or_moved(lines in prop::collection::vec((0.01..1.0_f64, 0.01..1.0_f64), 0..20)) {
            let mut all = record(&vec![("rsrun", 0.1, 0.2); lines.len()]);
            for (run, (before, after)) in all.runs.iter_mut().zip(&lines) {
                run.cache_line_us = Some([*before, *after]);
            }
            let (placements, moved) = placements(&all.runs);
            prop_assert_eq!(placements.iter().map(|placement| placement.runs.len()).sum::<usize>() + moved, lines.len());
            let centres: Vec<f64> = placements.iter().filter_map(|placement| placement.cache_line_us).collect();
            prop_assert!(centres.is_sorted());
        }
    }
}
