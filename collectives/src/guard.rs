//! The guard of aggregators: what a leader combines for its group passes through the memory of its host, and where that is
//! slower than the link that the result leaves by, the group's tree is made narrower and leaders fewer.
//!
//! A leader that adds up the data of f others, one after the other, moves 4 f bytes of memory for each byte of result: f are
//! written as they come in, and each is read with the sum, which is written. So that A leaders of a host keep up with its
//! link, which carries each byte `k` times (once for a reduce, 2 (N - 1) / N times for an all-reduce of N groups), at a share
//! of 0.65 of what memory carries: `4 f A / (0.65 B_memory) <= k / B_link`. Knows no schedules.

use crate::algorithms::{Collective, Parameters};
use crate::groups::Groups;
use crate::table::Table;
use std::fmt;

/// The share of memory bandwidth that aggregation may take.
const SHARE: f64 = 0.65;
/// Bytes of memory for a byte of one of the others.
const TRAFFIC: f64 = 4.0;

/// Why parameters are not those that were asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limited {
    /// Leaders that were asked for, and those that are left.
    pub leaders: (usize, usize),
    /// The most ranks that one combines the data of.
    pub fan_in: usize,
    /// Bytes a second that memory carries, and a link.
    pub rates: (f64, f64),
}

impl fmt::Display for Limited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (memory, link) = (self.rates.0 / 1e9, self.rates.1 / 1e9);
        let Limited { leaders: (asked, left), fan_in, .. } = self;
        write!(
            f,
            "memory of {memory:.3} GB/s a host for a link of {link:.3} GB/s lets a leader combine {fan_in} at once"
        )?;
        if left < asked { write!(f, ", and {left} of {asked} leaders") } else { Ok(()) }
    }
}

/// Limits fan-in and leaders of a collective in two hops by what the table knows of memory and links.
#[must_use]
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)] // Small numbers.
pub fn guard(
    collective: Collective,
    groups: &Groups,
    table: &Table,
    asked: Parameters,
) -> (Parameters, Option<Limited>) {
    let Some(memory) = table.memory.filter(|_| groups.are_two_levels()) else { return (asked, None) };
    let (count, width) = (groups.count() as f64, groups.widths().1);
    let times = match collective {
        Collective::AllReduce => 2.0 * (count - 1.0) / count,
        Collective::Reduce => 1.0,
        _ => return (asked, None),
    };
    let link = 1.0 / table.network.between.per_byte.max(f64::MIN_POSITIVE);
    let most = |leaders: usize| (SHARE * memory * times / (link * TRAFFIC * leaders as f64)).floor() as usize;
    // Several leaders each combine the data of all others of the group.
    let wanted = asked.leaders.clamp(1, groups.widths().0.max(1));
    let leaders = (2..=wanted).rev().find(|leaders| most(*leaders) + 1 >= width).unwrap_or(1);
    let fan_in = if leaders == 1 { most(1).max(1) } else { width - 1 };
    let binomial = width.next_power_of_two().trailing_zeros() as usize;
    if leaders == wanted && (leaders > 1 || fan_in >= binomial) {
        return (asked, None);
    }
    let limited = Limited { leaders: (wanted, leaders), fan_in, rates: (memory, link) };
    (Parameters { leaders, fan_in: fan_in.min(asked.fan_in), ..asked }, Some(limited))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithms::Shape;
    use crate::price::{Model, Network};
    use crate::schedule::{Action, Schedule};

    /// Links of 1 GB/s, 4 hosts of 8 ranks.
    fn table(memory: f64) -> Table {
        let between = Model { per_byte: 1e-9, ..Model::ASSUMED };
        Table { network: Network { between, ..Network::ASSUMED }, memory: Some(memory), rules: Vec::new() }
    }

    fn guarded(memory: f64, leaders: usize) -> (Parameters, Option<Limited>) {
        let asked = Parameters { leaders, ..Parameters::WHOLE };
        guard(Collective::AllReduce, &Groups::every(32, 8), &table(memory), asked)
    }

    /// Ranks that rank 0 receives from within its group in a two-hop all-reduce.
    fn children_of_the_leader(parameters: Parameters) -> usize {
        let groups = Groups::every(32, 8);
        let two_hop = Collective::AllReduce.algorithms().iter().find(|row| row.name == "two_hop").unwrap();
        let shape = Shape { rank: 0, size: 32, root: 0, elements: 8, groups: &groups, parameters };
        let schedule: Schedule = two_hop.schedule(&shape).unwrap();
        let inside =
            schedule.steps().iter().filter(|step| matches!(step.action, Action::Receive { peer, .. } if peer < 8));
        inside.count()
    }

    #[test]
    fn plenty_of_memory_limits_nothing() {
        for leaders in [1, 2, 8] {
            assert_eq!(guarded(1e12, leaders), (Parameters { leaders, ..Parameters::WHOLE }, None));
        }
        let unknown = Table { memory: None, ..table(1.0) };
        let asked = Parameters { leaders: 4, ..Parameters::WHOLE };
        assert_eq!(guard(Collective::Reduce, &Groups::every(32, 8), &unknown, asked), (asked, None));
    }

    #[test]
    fn a_forced_small_bandwidth_makes_the_tree_narrower_down_to_a_chain() {
        // 0.65 * B * 1.5 / 4 to the next lower number: 10 GB/s for 2.
        let (two, why) = guarded(1e10, 1);
        assert_eq!((two.fan_in, children_of_the_leader(two)), (2, 2));
        let text = why.unwrap().to_string();
        assert!(
            text.contains("memory of 10.000 GB/s a host for a link of 1.000 GB/s lets a leader combine 2"),
            "{text}"
        );
        let (chain, _) = guarded(1e9, 1);
        assert_eq!((chain.fan_in, children_of_the_leader(chain)), (1, 1));
        assert_eq!(children_of_the_leader(Parameters::WHOLE), 3);
    }

    #[test]
    fn leaders_that_memory_does_not_feed_are_not_taken() {
        let (fewer, why) = guarded(6e10, 8);
        // Each of two leaders may combine 7 others out of 57.5 GB/s, three would need more.
        assert_eq!((fewer.leaders, fewer.fan_in), (2, 7));
        assert!(why.unwrap().to_string().ends_with("and 2 of 8 leaders"));
        assert_eq!(guarded(1e10, 8).0.leaders, 1);
    }
}
