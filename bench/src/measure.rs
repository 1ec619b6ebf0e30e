//! What is measured and what samples come to: plans, rounds, percentiles. Pure; knows no library that is measured and no
//! clock.

use serde::{Deserialize, Serialize};

/// What the ranks do with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    /// A message goes from the first rank to the last and back.
    Latency,
    /// Windows of messages from the first rank to the last, each answered once.
    Bandwidth,
    /// The same in both directions at once.
    Bibw,
    /// The same as bandwidth, in messages, between the two halves of the ranks.
    Rate,
    /// Windows from all other ranks to the first one.
    Incast,
    /// A message goes round all ranks.
    Ring,
    /// All ranks wait for each other.
    Barrier,
    /// The values of all ranks are added up, and all get the sums.
    #[serde(rename = "all_reduce")]
    AllReduce,
    /// Windows of puts from the first rank into memory of the last.
    Put,
    /// What a rank's memory comes to after every rank has exchanged a message with every other.
    Memory,
}

impl Pattern {
    /// Its name on the command line and in files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Pattern::Latency => "latency",
            Pattern::Bandwidth => "bandwidth",
            Pattern::Bibw => "bibw",
            Pattern::Rate => "rate",
            Pattern::Incast => "incast",
            Pattern::Ring => "ring",
            Pattern::Barrier => "barrier",
            Pattern::AllReduce => "all_reduce",
            Pattern::Put => "put",
            Pattern::Memory => "memory",
        }
    }

    /// What its figures are in.
    #[must_use]
    pub fn unit(self) -> Unit {
        match self {
            Pattern::Latency | Pattern::Ring | Pattern::Barrier | Pattern::AllReduce => Unit::Microseconds,
            Pattern::Bandwidth | Pattern::Bibw | Pattern::Incast | Pattern::Put => Unit::MegabytesPerSecond,
            Pattern::Rate => Unit::MillionsPerSecond,
            Pattern::Memory => Unit::Megabytes,
        }
    }

    /// What its figures mean, for the head of a table.
    #[must_use]
    pub fn meaning(self) -> &'static str {
        match self {
            Pattern::Latency => "half the round trip of a message between the first and the last rank",
            Pattern::Bandwidth => "windows of messages from the first to the last rank, each answered once",
            Pattern::Bibw => "windows of messages in both directions at once, both directions added up",
            Pattern::Rate => "messages from the first half of the ranks to the second, all pairs added up",
            Pattern::Incast => "windows of messages from all other ranks to the first, added up",
            Pattern::Ring => "a message goes round all ranks; time a hop",
            Pattern::Barrier => "a barrier of all ranks; the rank that took longest",
            Pattern::AllReduce => "f32 values of all ranks added up on all ranks; the rank that took longest",
            Pattern::Put => "windows of puts from the first rank into memory of the last, until they are there",
            Pattern::Memory => {
                "memory of a rank after every rank has exchanged a message with every other; over the ranks"
            }
        }
    }
}

/// What figures are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unit {
    /// Microseconds.
    #[serde(rename = "us")]
    Microseconds,
    /// 10^6 bytes a second.
    #[serde(rename = "MB/s")]
    MegabytesPerSecond,
    /// 10^6 messages a second.
    #[serde(rename = "M/s")]
    MillionsPerSecond,
    /// 10^6 bytes.
    #[serde(rename = "MB")]
    Megabytes,
}

impl Unit {
    /// As it is written.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Unit::Microseconds => "us",
            Unit::MegabytesPerSecond => "MB/s",
            Unit::MillionsPerSecond => "M/s",
            Unit::Megabytes => "MB",
        }
    }

    /// Whether a larger figure is the better one.
    #[must_use]
    pub fn more_is_better(self) -> bool {
        !matches!(self, Unit::Microseconds | Unit::Megabytes)
    }

    /// How many times as much `ours` costs as `theirs`: above 1 it is the worse one, whatever the unit.
    #[must_use]
    pub fn cost(self, ours: f64, theirs: f64) -> f64 {
        if self.more_is_better() { theirs / ours } else { ours / theirs }
    }
}

/// What connects the two ranks that are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// Memory of the host.
    Shm,
    /// Sockets.
    Tcp,
}

impl Transport {
    /// Its name on the command line and in files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Transport::Shm => "shm",
            Transport::Tcp => "tcp",
        }
    }
}

/// Bytes under way in a window at most, so that windows of large messages do not fill the memory.
const WINDOW_BYTES: usize = 128 << 20;

/// What a run measures; the same for every library.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// What the ranks do.
    pub pattern: Pattern,
    /// Sizes of messages in bytes.
    pub sizes: Vec<usize>,
    /// Measured rounds of a size at most.
    pub rounds: usize,
    /// Unmeasured rounds before them at most.
    pub warm_up: usize,
    /// Seconds for a size; what takes longer gets fewer rounds.
    pub seconds: f64,
    /// Messages of a window at most.
    pub window: usize,
    /// Every message is compared, not only those of the first round.
    pub check: bool,
    /// What connects the ranks, where it is known beforehand.
    pub transport: Option<Transport>,
}

/// Rounds of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rounds {
    /// Unmeasured ones.
    pub warm_up: usize,
    /// Measured ones.
    pub measured: usize,
}

impl Plan {
    /// Messages of a window of messages of this size.
    #[must_use]
    pub fn window_of(&self, bytes: usize) -> usize {
        self.window.min((WINDOW_BYTES / bytes.max(1)).max(2))
    }

    /// Rounds of a size of which one round takes about so many seconds: as many as asked for, fewer of what would take
    /// longer than [`Plan::seconds`], but three at least.
    #[must_use]
    pub fn rounds_of(&self, seconds_a_round: f64) -> Rounds {
        // A whole number far below 2^53, or clamped.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "as above")]
        let possible = (self.seconds / seconds_a_round.max(1e-9)).min(1e12) as usize;
        let measured = possible.max(3).min(self.rounds);
        // In the proportion that was asked for, and one at least if any was.
        let share = self.warm_up * measured / self.rounds.max(1);
        Rounds { warm_up: share.max(self.warm_up.min(1)), measured }
    }
}

/// The distribution of some samples, the good end first: for rates P99 is what 99% of the rounds reach.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    /// The median.
    pub p50: f64,
    /// 99% are as good or better.
    pub p99: f64,
    /// 99.9% are as good or better.
    #[serde(rename = "p99.9")]
    pub p999: f64,
    /// The largest time, the smallest rate.
    pub worst: f64,
}

impl Distribution {
    /// `None` without samples.
    #[must_use]
    pub fn of(mut samples: Vec<f64>, unit: Unit) -> Option<Self> {
        samples.sort_by(f64::total_cmp);
        if unit.more_is_better() {
            samples.reverse();
        }
        let worst = *samples.last()?;
        // The nearest rank (Hyndman and Fan 1996, definition 1): a value that was measured, not one between two.
        let at = |thousandths: usize| samples[(samples.len() * thousandths).div_ceil(1000).max(1) - 1];
        Some(Distribution { p50: at(500), p99: at(990), p999: at(999), worst })
    }
}

/// The middle one, or the mean of the middle two; `None` of nothing.
#[must_use]
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let upper = *values.get(values.len() / 2)?;
    let lower = values[(values.len() - 1) / 2];
    Some(lower + (upper - lower) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::samples::plan;
    use proptest::prelude::*;

    #[test]
    fn percentiles_are_measured_values_and_the_worst_is_the_far_end() {
        let samples: Vec<f64> = (1..=1000).rev().map(f64::from).collect();
        let time = Distribution::of(samples.clone(), Unit::Microseconds);
        assert_eq!(time, Some(Distribution { p50: 500.0, p99: 990.0, p999: 999.0, worst: 1000.0 }));
        let rate = Distribution::of(samples, Unit::MegabytesPerSecond);
        assert_eq!(rate, Some(Distribution { p50: 501.0, p99: 11.0, p999: 2.0, worst: 1.0 }));
        let one = Distribution::of(vec![3.0], Unit::Microseconds);
        assert_eq!(one, Some(Distribution { p50: 3.0, p99: 3.0, p999: 3.0, worst: 3.0 }));
        assert_eq!(Distribution::of(vec![], Unit::Microseconds), None);
    }

    #[test]
    fn a_median_of_an_even_number_lies_in_the_middle() {
        assert_eq!(median(vec![4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median(vec![9.0, 1.0, 5.0]), Some(5.0));
        assert_eq!(median(vec![]), None);
    }

    #[test]
    fn cost_is_above_one_for_the_worse_whatever_the_unit() {
        assert!(Unit::Microseconds.cost(2.0, 1.0) > 1.0);
        assert!(Unit::MegabytesPerSecond.cost(1.0, 2.0) > 1.0);
    }

    #[test]
    fn what_takes_long_gets_fewer_rounds_and_three_at_least() {
        assert_eq!(plan().rounds_of(1e-6), Rounds { warm_up: 100, measured: 1000 });
        assert_eq!(plan().rounds_of(5e-3), Rounds { warm_up: 10, measured: 100 });
        assert_eq!(plan().rounds_of(30.0), Rounds { warm_up: 1, measured: 3 });
        assert_eq!(Plan { rounds: 1, warm_up: 0, ..plan() }.rounds_of(30.0), Rounds { warm_up: 0, measured: 1 });
    }

    #[test]
    fn a_window_of_large_messages_is_small() {
        assert_eq!(plan().window_of(0), 64);
        assert_eq!(plan().window_of(1 << 20), 64);
        assert_eq!(plan().window_of(16 << 20), 8);
        assert_eq!(plan().window_of(1 << 30), 2);
        assert_eq!(Plan { window: 1, ..plan() }.window_of(1 << 30), 1);
    }

    proptest! {
        #[test]
        fn percentiles_are_samples_in_order_that_hold_back_their_share(
            samples in prop::collection::vec(0.0..1e9_f64, 1..300),
            unit in prop_oneof![Just(Unit::Microseconds), Just(Unit::MegabytesPerSecond)],
        ) {
            let figures = Distribution::of(samples.clone(), unit).expect("there are samples");
            let all = [figures.p50, figures.p99, figures.p999, figures.worst];
            for (figure, share) in all.into_iter().zip([0.5, 0.99, 0.999, 1.0]) {
                prop_assert!(samples.contains(&figure));
                let as_good = samples.iter().filter(|sample| unit.cost(**sample + 1.0, figure + 1.0) <= 1.0).count();
                prop_assert!(as_good as f64 >= share * samples.len() as f64);
            }
            prop_assert!(all.windows(2).all(|pair| unit.cost(pair[0] + 1.0, pair[1] + 1.0) <= 1.0));
        }

        #[test]
        fn percentiles_do_not_depend_on_the_order_of_samples(mut samples in prop::collection::vec(0.0..1e9_f64, 1..100)) {
            let before = Distribution::of(samples.clone(), Unit::Microseconds);
            samples.reverse();
            prop_assert_eq!(before, Distribution::of(samples, Unit::Microseconds));
        }

        #[test]
        fn rounds_never_exceed_what_was_asked_for(rounds in 1..10_000_usize, warm_up in 0..10_000_usize, each in 0.0..10.0_f64) {
            let asked = Plan { rounds, warm_up, ..plan() };
            let got = asked.rounds_of(each);
            prop_assert!(got.measured <= rounds && got.measured >= rounds.min(3));
            prop_assert!(got.warm_up <= warm_up && (got.warm_up > 0) == (warm_up > 0));
        }
    }
}
