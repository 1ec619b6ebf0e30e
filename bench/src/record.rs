//! What a run leaves: plain data, the same in the archive, in `--json` and between a measuring rank and the driver.

use crate::floors::Floor;
use crate::measure::{Distribution, Plan, Transport, Unit};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The number of this format; one is raised when a field changes its meaning or goes.
pub const SCHEMA: u32 = 1;

/// One call of `rsbench`: what was asked for, where, and every run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Seconds since 1970, when it began.
    pub time: u64,
    /// The command line.
    pub command: Vec<String>,
    /// The revision of the working copy that the program was built in, where there is one.
    pub revision: Option<String>,
    /// The host it was called on.
    pub machine: Machine,
    /// What was measured.
    pub plan: Plan,
    /// Every run of every library, in the order in which they were made.
    pub runs: Vec<Run>,
}

/// A host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Its name.
    pub host: String,
    /// The kernel's release.
    pub kernel: String,
    /// The processor's model.
    pub processor: String,
    /// Processors in use, as the kernel lists them.
    pub processors: String,
    /// For each last-level cache the processors that share it.
    pub caches: Vec<String>,
    /// For each NUMA domain its processors.
    pub domains: Vec<String>,
}

/// One run of one library.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The name by which it was asked for; `rsrun` is this project.
    pub library: String,
    /// What the library calls itself.
    pub version: String,
    /// Its number among the runs of this library, from 0.
    pub turn: usize,
    /// Where each rank was.
    pub ranks: Vec<Place>,
    /// What connected the first and the last rank, as far as known.
    pub transport: Option<Transport>,
    /// Microseconds to hand over a cache line between the first and the last rank, before and after.
    pub cache_line_us: Option<[f64; 2]>,
    /// Settings of the library that are not its defaults.
    pub settings: BTreeMap<String, String>,
    /// What a reader should know, such as why a floor is missing.
    pub notes: Vec<String>,
    /// One row a size.
    pub rows: Vec<Row>,
}

/// Where a rank ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The host's name.
    pub host: String,
    /// The processors it could use, as a list with ranges.
    pub processors: String,
}

/// One size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Bytes of a message.
    pub bytes: usize,
    /// Messages of a window, where there are windows.
    pub window: Option<usize>,
    /// Rounds before those that count.
    pub warm_up: usize,
    /// Rounds that count.
    pub rounds: usize,
    /// What the figures are in.
    pub unit: Unit,
    /// The figures.
    #[serde(flatten)]
    pub figures: Distribution,
    /// What the machine itself can do.
    pub floor: Option<Floor>,
}

impl Row {
    /// The median in parts of the floor: the smaller, the better, whatever the unit.
    #[must_use]
    pub fn to_floor(&self) -> Option<f64> {
        self.floor.as_ref().map(|floor| self.unit.cost(self.figures.p50, floor.value))
    }
}

#[cfg(test)]
pub(crate) mod samples {
    //! Records for tests.

    use super::*;
    use crate::measure::Pattern;

    /// A record of latency with these medians at 8 bytes, one a turn: library, cache line, median.
    pub(crate) fn record(runs: &[(&str, f64, f64)]) -> Record {
        let mut turns: BTreeMap<&str, usize> = BTreeMap::new();
        let runs = runs.iter().map(|(library, line, p50)| {
            let turn = turns.entry(library).and_modify(|turn| *turn += 1).or_insert(0);
            run(library, *turn, *line, *p50)
        });
        Record {
            schema: SCHEMA,
            time: 1_790_000_000,
            command: vec!["rsbench".into(), "latency".into()],
            revision: Some("0123abcd".into()),
            machine: Machine {
                host: "a".into(),
                kernel: "6.1".into(),
                processor: "P".into(),
                processors: "0-1".into(),
                caches: vec!["0-1".into()],
                domains: vec!["0-1".into()],
            },
            plan: plan(),
            runs: runs.collect(),
        }
    }

    pub(crate) fn plan() -> Plan {
        Plan {
            pattern: Pattern::Latency,
            sizes: vec![8],
            rounds: 1000,
            warm_up: 100,
            seconds: 0.5,
            window: 64,
            check: false,
            transport: None,
        }
    }

    fn run(library: &str, turn: usize, line: f64, p50: f64) -> Run {
        let place = |processors: &str| Place { host: "a".into(), processors: processors.into() };
        Run {
            library: library.into(),
            version: "1".into(),
            turn,
            ranks: vec![place("0"), place("1")],
            transport: Some(Transport::Shm),
            cache_line_us: Some([line, line]),
            settings: BTreeMap::new(),
            notes: vec![],
            rows: vec![Row {
                bytes: 8,
                window: None,
                warm_up: 100,
                rounds: 1000,
                unit: Unit::Microseconds,
                figures: Distribution { p50, p99: 2.0 * p50, p999: 3.0 * p50, worst: 4.0 * p50 },
                floor: Some(Floor { name: "cache line".into(), value: line }),
            }],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::samples::record;
    use super::*;

    #[test]
    fn a_record_survives_being_written_and_read() {
        let before = record(&[("rsrun", 0.05, 0.2), ("openmpi", 0.25, 0.4)]);
        let text = serde_json::to_string(&before).expect("it can be written");
        assert_eq!(serde_json::from_str::<Record>(&text).expect("it can be read"), before);
        // Names that others rely on.
        for name in
            ["\"schema\":1", "\"p99.9\":", "\"unit\":\"us\"", "\"pattern\":\"latency\"", "\"transport\":\"shm\""]
        {
            assert!(text.contains(name), "{name} in {text}");
        }
    }

    #[test]
    fn a_row_in_parts_of_its_floor_is_above_one_when_it_is_slower() {
        let mut row = record(&[("rsrun", 0.05, 0.2)]).runs.remove(0).rows.remove(0);
        assert_eq!(row.to_floor(), Some(4.0));
        row.unit = Unit::MegabytesPerSecond;
        assert_eq!(row.to_floor(), Some(0.25));
        row.floor = None;
        assert_eq!(row.to_floor(), None);
    }
}
