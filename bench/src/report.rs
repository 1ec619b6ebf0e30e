//! Figures as a table or as JSON lines.

use crate::{floor::Floor, measure::Plan};
use serde_json::json;
use spmd::prelude::*;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Microseconds,
    MegabytesPerSecond,
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Unit::Microseconds => "us",
            Unit::MegabytesPerSecond => "MB/s",
        }
    }
}

/// The distribution of some samples, the good end first: for bandwidth P99 is what 99% of the windows reach.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Distribution {
    p50: f64,
    p99: f64,
    p999: f64,
    worst: f64,
}

impl Distribution {
    /// `None` without samples.
    fn of(mut samples: Vec<f64>, unit: Unit) -> Option<Self> {
        samples.sort_by(f64::total_cmp);
        if unit == Unit::MegabytesPerSecond {
            samples.reverse();
        }
        let worst = *samples.last()?;
        // The nearest rank (Hyndman and Fan 1996, definition 1): a value that was measured, not one between two.
        let at = |percent_of_1000: usize| {
            let rank = (samples.len() * percent_of_1000).div_ceil(1000).max(1);
            samples[rank - 1]
        };
        Some(Distribution { p50: at(500), p99: at(990), p999: at(999), worst })
    }
}

pub(crate) fn header(json: bool, comm: &Communicator, floor: &Floor, unit: Unit) {
    let last = comm.size() - 1;
    let (from, to) = (&comm.hosts()[comm.host_of(0)].name, &comm.hosts()[comm.host_of(last)].name);
    if json {
        println!("{}", json!({ "floor": floor, "ranks": [0, last], "hosts": [from, to] }));
        return;
    }
    println!("rank 0 on {from} and rank {last} on {to}, {}", unit.name());
    println!(
        "floor on {from}: cache line {:.3} us, memcpy {:.0} MB/s, bare socket {:.2} us",
        floor.cache_line_us, floor.memcpy_mb_s, floor.tcp_us
    );
    println!("{:>10} {:>10} {:>10} {:>10} {:>10} {:>8}  floor", "bytes", "P50", "P99", "P99.9", "worst", "P50/floor");
}

pub(crate) fn row(json: bool, comm: &Communicator, floor: &Floor, unit: Unit, plan: &Plan, samples: Vec<f64>) {
    let Some(figures) = Distribution::of(samples, unit) else { return };
    let (name, value) = floor_for(comm, floor, unit);
    let ratio = figures.p50 / value;
    if json {
        let row = json!({
            "bytes": plan.bytes, "rounds": plan.rounds, "unit": unit.name(), "p50": figures.p50, "p99": figures.p99,
            "p99.9": figures.p999, "worst": figures.worst, "floor": name, "ratio": ratio,
        });
        println!("{row}");
        return;
    }
    let digits = if unit == Unit::Microseconds { 2 } else { 0 };
    println!(
        "{:>10} {:>10.digits$} {:>10.digits$} {:>10.digits$} {:>10.digits$} {ratio:>8.2}  {name}",
        plan.bytes, figures.p50, figures.p99, figures.p999, figures.worst
    );
}

/// The floor that fits: by what connects the two ranks and what is measured.
fn floor_for(comm: &Communicator, floor: &Floor, unit: Unit) -> (&'static str, f64) {
    let shared = comm.host_of(0) == comm.host_of(comm.size() - 1)
        && comm.snapshot().get(spmd::config::keys::TRANSPORT_ALLOW).contains("shm");
    match unit {
        Unit::MegabytesPerSecond => ("memcpy", floor.memcpy_mb_s),
        Unit::Microseconds if shared => ("cache line", floor.cache_line_us),
        Unit::Microseconds => ("bare socket", floor.tcp_us),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_measured_values_and_the_worst_is_the_far_end() {
        let samples: Vec<f64> = (1..=1000).rev().map(f64::from).collect();
        let time = Distribution::of(samples.clone(), Unit::Microseconds).unwrap();
        assert_eq!(time, Distribution { p50: 500.0, p99: 990.0, p999: 999.0, worst: 1000.0 });
        let rate = Distribution::of(samples, Unit::MegabytesPerSecond).unwrap();
        assert_eq!(rate, Distribution { p50: 501.0, p99: 11.0, p999: 2.0, worst: 1.0 });
        let one = Distribution::of(vec![3.0], Unit::Microseconds).unwrap();
        assert_eq!(one, Distribution { p50: 3.0, p99: 3.0, p999: 3.0, worst: 3.0 });
        assert_eq!(Distribution::of(vec![], Unit::Microseconds), None);
    }
}
