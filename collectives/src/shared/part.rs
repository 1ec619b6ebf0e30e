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
        let (members, rooted) = (groups.members(groups.of(rank)), collective.is_rooted());
        let place = |rank: usize| members.iter().position(|member| *member == rank);
        let leaders = match collective {
            Collective::AllReduce => 0..parameters.leaders.clamp(1, groups.widths().0.max(1)),
            // The root itself in its own group.
            _ => place(root).filter(|_| rooted).map_or(0..1, |root| root..root + 1),
        };
        let position = place(rank).unwrap_or_else(|| unreachable!("a rank is a member of its group"));
        let leader = |group: usize| match rooted && groups.of(root) == group {
            true => root,
            false => groups.members(group)[position - leaders.start],
        };
        let peers = leaders.contains(&position).then(|| (0..groups.count()).map(leader).collect());
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
