//! A rank's part in two hops of which the inner one goes through memory: who leads, which share, and what leaders exchange.
//!
//! Pure: what carries it out and what stands for it in the simulator are made of this. Knows no memory and no communicator.

use super::hops::Division;
use crate::algorithms::{Collective, Parameters, Shape, in_segments};
use crate::groups::Groups;
use crate::schedule::{Schedule, ScheduleError};
use crate::select::{AUTO, Request, select};
use crate::table::Table;

#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) division: Division,
    /// This rank's place in its group.
    pub(crate) position: usize,
    /// Of a leader: the leaders of its share in all groups, as ranks of the communicator.
    pub(crate) peers: Option<Vec<usize>>,
}

impl Part {
    /// `most`: elements that a chunk has at most.
    pub(crate) fn new(collective: Collective, shape: &Shape<'_>, most: usize) -> Part {
        let Shape { rank, root, groups, parameters, .. } = *shape;
        let (group, rooted) = (groups.of(rank), collective.is_rooted());
        let place = |rank: usize| groups.members(group).iter().position(|member| *member == rank);
        let leaders = match collective {
            Collective::AllReduce => {
                let number = parameters.leaders.clamp(1, groups.widths().0.max(1));
                (0..number).map(|turn| groups.lead(group, turn)).collect()
            }
            // The root itself in its own group.
            _ => vec![place(root).filter(|_| rooted).unwrap_or_else(|| groups.lead(group, 0))],
        };
        let position = place(rank).unwrap_or_else(|| unreachable!("a rank is a member of its group"));
        let turn = leaders.iter().position(|leader| *leader == position);
        let leader = |turn: usize, group: usize| match rooted && groups.of(root) == group {
            true => root,
            false => groups.members(group)[groups.lead(group, turn)],
        };
        let peers = turn.map(|turn| (0..groups.count()).map(|group| leader(turn, group)).collect());
        Part { division: Division { leaders, chunk: parameters.chunk.min(most).max(1) }, position, peers }
    }

    /// Elements of this rank's share in a chunk of so many.
    pub(crate) fn share(&self, chunk: usize) -> usize {
        self.division.share(self.position, chunk).len()
    }
}

/// The operation and the values of a call, as far as they decide how leaders exchange.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exchanged {
    pub(crate) collective: Collective,
    pub(crate) element_bytes: usize,
    pub(crate) commutative: bool,
}

impl Exchanged {
    /// What leaders do with so many elements: the cheapest that one rank a host would do, rings and chains in the segments of
    /// the call.
    pub(crate) fn schedule(self, shape: &Shape<'_>, elements: usize, table: &Table) -> Result<Schedule, ScheduleError> {
        let Exchanged { collective, element_bytes, commutative } = self;
        let Shape { rank, root, groups, .. } = *shape;
        // Hosts are ranks here, and racks, where there are any, their groups.
        let hosts = groups.above().cloned().unwrap_or_else(|| Groups::apart(groups.count()));
        let request = Request { collective, groups: &hosts, elements, element_bytes, commutative };
        let table = Table { rules: Vec::new(), ..table.clone() };
        let choice =
            select(&request, AUTO, &table).unwrap_or_else(|error| unreachable!("one is always legal: {error}"));
        let (algorithm, parameters) = match in_segments(collective, choice.algorithm) {
            Some(algorithm) => (algorithm, Parameters { segment: shape.parameters.segment, ..choice.parameters }),
            None => (choice.algorithm, choice.parameters),
        };
        algorithm.schedule(&Shape {
            rank: groups.of(rank),
            size: groups.count(),
            root: if collective.is_rooted() { groups.of(root) } else { 0 },
            elements,
            groups: &hosts,
            parameters,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithms::Algorithm;
    use crate::schedule::Action;

    fn shape(groups: &Groups, rank: usize, root: usize, parameters: Parameters) -> Shape<'_> {
        Shape { rank, size: groups.size(), root, elements: 100, groups, parameters }
    }

    #[test]
    fn those_lead_that_lead_in_messages_and_the_root_in_its_own_group() {
        // The last member of each group leads first, then the one before it.
        let groups = Groups::every(8, 4).led_by(|members| members.iter().map(|rank| 8 - rank).collect());
        let parameters = Parameters { leaders: 2, ..Parameters::WHOLE };
        let of = |collective, rank, root| {
            let part = Part::new(collective, &shape(&groups, rank, root, parameters), 1000);
            (part.division.leaders.clone(), part.peers.clone(), part.share(100))
        };
        assert_eq!(of(Collective::AllReduce, 3, 0), (vec![3, 2], Some(vec![3, 7]), 50));
        assert_eq!(of(Collective::AllReduce, 6, 0), (vec![3, 2], Some(vec![2, 6]), 50));
        assert_eq!(of(Collective::AllReduce, 0, 0), (vec![3, 2], None, 0));
        assert_eq!(of(Collective::Reduce, 1, 1), (vec![1], Some(vec![1, 7]), 100));
        assert_eq!(of(Collective::Broadcast, 7, 1), (vec![3], Some(vec![1, 7]), 100));
        assert_eq!(of(Collective::Barrier, 3, 0), (vec![3], Some(vec![3, 7]), 100));
        // The shares of a chunk are in the order in which they lead, and make it up.
        let part = Part::new(Collective::AllReduce, &shape(&groups, 3, 0, parameters), 1000);
        assert_eq!([2, 3].map(|position| part.division.share(position, 7)), [4..7, 0..4]);
    }

    #[test]
    fn leaders_send_the_blocks_of_a_ring_in_the_segments_of_the_call() {
        let groups = Groups::every(6, 2).with_memory();
        let exchanged = Exchanged { collective: Collective::AllReduce, element_bytes: 4, commutative: true };
        let longest = |segment: usize| {
            let shape = shape(&groups, 0, 0, Parameters { segment, ..Parameters::WHOLE });
            let schedule = exchanged.schedule(&shape, 30_000, &Table::default()).unwrap();
            let sent = schedule.steps().iter().filter_map(|step| match step.action {
                Action::Send { from, .. } => Some(from.length),
                _ => None,
            });
            sent.max().unwrap()
        };
        assert_eq!(
            [usize::MAX, 10_000, 4_000, 1].map(|segment| longest(segment.max(2_000))),
            [10_000, 10_000, 4_000, 2_000]
        );
        let rows: &[Algorithm] = Collective::AllReduce.algorithms();
        let cut: Vec<&str> =
            rows.iter().filter_map(|row| in_segments(Collective::AllReduce, row)).map(|row| row.name).collect();
        assert_eq!(cut, ["segmented_ring", "segmented_ring"]);
    }
}
