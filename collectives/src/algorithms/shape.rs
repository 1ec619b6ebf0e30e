//! What an algorithm is told: the call as one rank sees it.

use super::two_hop::TwoHop;
use super::{Algorithm, Collective, Restriction};
use crate::compose::{Builder, Group};
use crate::groups::Groups;
use crate::schedule::ScheduleError;

/// One rank's view of a call: all that an algorithm is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape<'a> {
    /// The rank that calls.
    pub rank: usize,
    /// The number of ranks.
    pub size: usize,
    /// The root; 0 where there is none.
    pub root: usize,
    /// Elements per rank: see [`Collective`](super::Collective).
    pub elements: usize,
    /// Which ranks belong together, for the algorithms in two hops; others ignore it.
    pub groups: &'a Groups,
    /// What else there is to choose.
    pub parameters: Parameters,
}

/// What an algorithm can be told besides the call: each ignores what it has no use for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Parameters {
    /// The most elements of one message of the algorithms that cut the data for a pipeline; in two hops of a message
    /// between the groups.
    pub segment: usize,
    /// The most elements that a group combines at once in algorithms in two hops.
    pub chunk: usize,
    /// How many ranks of each group lead, each its share of the data, in algorithms that can have several.
    pub leaders: usize,
    /// The most ranks out of whose data one rank combines at once inside a group: fewer than a binomial tree has where
    /// the memory of a host would not keep up, see [`guard`](crate::guard).
    pub fan_in: usize,
}

impl Parameters {
    /// The data in one piece, one leader, and trees as they are.
    pub const WHOLE: Parameters = Parameters { segment: usize::MAX, chunk: usize::MAX, leaders: 1, fan_in: usize::MAX };

    /// The same with as many leaders as there will be: of an all-reduce in two hops as many as the smallest group has ranks at
    /// most, else one.
    #[must_use]
    pub fn led(self, collective: Collective, algorithm: &Algorithm, groups: &Groups) -> Parameters {
        let has_several =
            collective == Collective::AllReduce && algorithm.restrictions.contains(&Restriction::TwoLevels);
        let most = if has_several { groups.widths().0.max(1) } else { 1 };
        Parameters { leaders: self.leaders.clamp(1, most), ..self }
    }
}

impl Shape<'_> {
    pub(super) fn group(&self) -> Group<'static> {
        Group::all(self.rank, self.size)
    }

    pub(super) fn two_hop(&self) -> TwoHop<'_> {
        TwoHop::new(self.groups, self.group(), self.parameters)
    }

    /// A builder with the buffers of a collective that works on the output alone.
    pub(super) fn in_place(&self) -> Builder {
        Builder::new(self.rank, self.size, 0, self.elements)
    }

    /// Elements of all ranks together.
    pub(super) fn total(&self) -> Result<usize, ScheduleError> {
        self.elements.checked_mul(self.size).ok_or(ScheduleError::TooLarge)
    }

    pub(super) fn is_root(&self) -> bool {
        self.rank == self.root
    }

    pub(super) fn checked(&self) -> Result<(), ScheduleError> {
        let worst = self.rank.max(self.root);
        if worst >= self.size {
            return Err(ScheduleError::Rank { rank: worst, size: self.size });
        }
        if self.groups.size() != self.size {
            return Err(ScheduleError::Groups { ranks: self.groups.size(), size: self.size });
        }
        Ok(())
    }
}
