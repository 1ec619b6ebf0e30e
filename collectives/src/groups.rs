//! Which ranks of a communicator belong together: those of a host, of a rack, or every k of them.
//!
//! Knows nothing of hosts or networks; what a group stands for is the business of whoever makes the division.

use std::collections::HashMap;
use std::hash::Hash;

/// A division of the ranks `0..size` of a communicator into groups: each rank is in exactly one, no group is empty.
///
/// Groups are in the order of their first ranks, members in ascending order, so that all ranks see the same division.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Groups {
    members: Vec<Vec<usize>>,
    of: Vec<usize>,
    share_memory: bool,
}

impl Groups {
    /// Puts ranks with equal labels together; `labels` has one for every rank, in order.
    pub fn by_label<L: Eq + Hash>(labels: impl IntoIterator<Item = L>) -> Groups {
        let mut index = HashMap::new();
        let mut groups = Groups { members: Vec::new(), of: Vec::new(), share_memory: false };
        for (rank, label) in labels.into_iter().enumerate() {
            let group = *index.entry(label).or_insert(groups.members.len());
            if group == groups.members.len() {
                groups.members.push(Vec::new());
            }
            groups.members[group].push(rank);
            groups.of.push(group);
        }
        groups
    }

    /// All ranks in one group.
    #[must_use]
    pub fn together(size: usize) -> Groups {
        Groups::by_label((0..size).map(|_| ()))
    }

    /// Every rank a group of its own.
    #[must_use]
    pub fn apart(size: usize) -> Groups {
        Groups::by_label(0..size)
    }

    /// Every `width` neighbouring ranks a group; the last one may be smaller.
    #[must_use]
    pub fn every(size: usize, width: usize) -> Groups {
        Groups::by_label((0..size).map(|rank| rank / width.max(1)))
    }

    /// The same, where the ranks of each group have memory in common that they may work in.
    #[must_use]
    pub fn with_memory(self) -> Groups {
        Groups { share_memory: true, ..self }
    }

    /// Whether the ranks of each group have memory in common that they may work in.
    #[must_use]
    pub fn share_memory(&self) -> bool {
        self.share_memory
    }

    /// The number of ranks.
    #[must_use]
    pub fn size(&self) -> usize {
        self.of.len()
    }

    /// The number of groups.
    #[must_use]
    pub fn count(&self) -> usize {
        self.members.len()
    }

    /// The group of a rank.
    ///
    /// # Panics
    /// When there is no such rank.
    #[must_use]
    pub fn of(&self, rank: usize) -> usize {
        self.of[rank]
    }

    /// The ranks of a group, in ascending order.
    ///
    /// # Panics
    /// When there is no such group.
    #[must_use]
    pub fn members(&self, group: usize) -> &[usize] {
        &self.members[group]
    }

    /// The ranks of the smallest and of the largest group.
    #[must_use]
    pub fn widths(&self) -> (usize, usize) {
        let widths = || self.members.iter().map(Vec::len);
        (widths().min().unwrap_or(0), widths().max().unwrap_or(0))
    }

    /// Whether there is anything to gain from two hops: several groups, and several ranks in one of them.
    #[must_use]
    pub fn are_two_levels(&self) -> bool {
        1 < self.count() && self.count() < self.size()
    }

    /// Whether each group is a run of neighbouring ranks, so that combining group by group keeps the order of the ranks.
    #[must_use]
    pub fn keep_rank_order(&self) -> bool {
        self.of.is_sorted()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_with_equal_labels_are_together_in_the_order_of_the_first_ones() {
        let groups = Groups::by_label(["b", "a", "b", "c", "a"]);
        assert_eq!((groups.size(), groups.count(), groups.widths()), (5, 3, (1, 2)));
        assert_eq!([0, 1, 2].map(|group| groups.members(group).to_vec()), [vec![0, 2], vec![1, 4], vec![3]]);
        assert_eq!(groups.of(4), 1);
        assert!(groups.are_two_levels() && !groups.keep_rank_order());
    }

    #[test]
    fn neighbours_keep_the_order_of_the_ranks() {
        let groups = Groups::every(7, 3);
        assert_eq!((groups.count(), groups.widths()), (3, (1, 3)));
        assert!(groups.are_two_levels() && groups.keep_rank_order());
    }

    #[test]
    fn one_group_and_groups_of_one_are_a_single_level() {
        assert!(!Groups::together(4).are_two_levels());
        assert!(!Groups::apart(4).are_two_levels());
        assert!(!Groups::apart(1).are_two_levels());
    }
}
