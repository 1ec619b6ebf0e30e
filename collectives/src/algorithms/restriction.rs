//! Where algorithms may not be used, as data and in words.

use crate::groups::Groups;
use std::fmt;

/// Where an algorithm may not be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Restriction {
    /// It combines values in another order than that of the ranks.
    CommutativeOnly,
    /// It works for 1, 2, 4, 8, … ranks.
    PowerOfTwoSize,
    /// It needs several groups, and several ranks in one of them; or the same of groups of groups.
    TwoLevels,
    /// It combines values group by group, which is the order of the ranks where groups are runs of neighbours.
    CommutativeUnlessRuns,
    /// It works in memory that all ranks share: these must be on one host, and the call one that blocks.
    SharedMemory,
    /// It works in memory that the ranks of each group share: these must be on one host, and the call one that blocks.
    SharedGroups,
}

impl Restriction {
    /// Whether it allows a call among such groups with such an operator.
    #[must_use]
    pub fn allows(self, groups: &Groups, commutative: bool) -> bool {
        match self {
            Restriction::CommutativeOnly => commutative,
            Restriction::PowerOfTwoSize => groups.size().is_power_of_two(),
            Restriction::TwoLevels => groups.are_two_levels(),
            Restriction::CommutativeUnlessRuns => commutative || groups.keep_rank_order(),
            Restriction::SharedMemory => groups.all_share_memory(),
            Restriction::SharedGroups => groups.share_memory(),
        }
    }
}

impl fmt::Display for Restriction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Restriction::CommutativeOnly => "the operator must commute",
            Restriction::PowerOfTwoSize => "the number of ranks must be a power of two",
            Restriction::TwoLevels => "there must be several groups, and several ranks in one of them",
            Restriction::CommutativeUnlessRuns => "the operator must commute, or each group be a run of ranks",
            Restriction::SharedMemory => "all ranks must be on one host and may share memory",
            Restriction::SharedGroups => "the ranks of each group must be on one host and may share memory",
        })
    }
}
