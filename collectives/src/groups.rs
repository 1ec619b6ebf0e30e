//! Which ranks of a communicator belong together: those of a host, of a rack, or every k of them; and which of these groups
//! belong together in larger ones.
//!
//! Knows nothing of hosts or networks; what a group stands for is the business of whoever makes the division.

use std::collections::HashMap;
use std::hash::Hash;

/// A division of the ranks `0..size` of a communicator into groups: each rank is in exactly one, no group is empty. The
/// groups themselves may be divided into larger ones in the same way, and these again ([`Groups::within`]).
///
/// Groups are in the order of their first ranks, members in ascending order, so that all ranks see the same division.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Groups {
    members: Vec<Vec<usize>>,
    of: Vec<usize>,
    /// Whether the members of each group may work in memory that they have in common.
    share_memory: bool,
    /// Whether all ranks may work in memory that they have in common.
    all_share_memory: bool,
    /// What joins the members of a group.
    link: Link,
    /// The positions of each group's members in the order in which they lead; `None`: that of the members.
    leads: Option<Vec<Vec<usize>>>,
    /// The division of these groups, whose numbers are the "ranks" of it.
    above: Option<Box<Groups>>,
}

/// What joins ranks, by how far they are from each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Link {
    /// They are together, as those of a host.
    Inside,
    /// They are in different groups, as hosts at one switch.
    Between,
    /// They are in different groups of groups, as racks.
    Across,
}

impl Link {
    /// What joins groups whose members are joined by this.
    #[must_use]
    pub fn outward(self) -> Link {
        match self {
            Link::Inside => Link::Between,
            Link::Between | Link::Across => Link::Across,
        }
    }
}

/// Levels that do not nest: these ranks are together on one level, and apart on the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "ranks {} and {} are in one group, but not in one of the larger groups around it: levels go from the inner to the outer",
    .0,
    .1
)]
pub struct Split(pub usize, pub usize);

impl Groups {
    /// Puts ranks with equal labels together; `labels` has one for every rank, in order.
    pub fn by_label<L: Eq + Hash>(labels: impl IntoIterator<Item = L>) -> Groups {
        let mut index = HashMap::new();
        let mut groups = Groups {
            members: Vec::new(),
            of: Vec::new(),
            share_memory: false,
            all_share_memory: false,
            link: Link::Inside,
            leads: None,
            above: None,
        };
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

    /// The same, where all ranks have memory in common that they may work in.
    #[must_use]
    pub fn with_memory_of_all(self) -> Groups {
        Groups { all_share_memory: true, ..self }
    }

    /// Whether all ranks have memory in common that they may work in.
    #[must_use]
    pub fn all_share_memory(&self) -> bool {
        self.all_share_memory
    }

    /// Puts the outermost groups into larger ones, whose members are joined by `link`: those whose ranks have equal labels;
    /// `labels` has one for every rank, in order. One larger group of all is no level: nothing changes then.
    ///
    /// # Errors
    /// [`Split`] when ranks of one group have different labels.
    ///
    /// ```
    /// use spmd_collectives::groups::{Groups, Link};
    ///
    /// // Hosts of two ranks, racks of two hosts.
    /// let groups = Groups::every(8, 2).within((0..8).map(|rank| rank / 4), Link::Between).unwrap();
    /// assert_eq!(groups.counts(), [4, 2]);
    /// assert!(Groups::every(8, 2).within((0..8).map(|rank| rank / 3), Link::Between).is_err());
    /// ```
    pub fn within<L: Eq + Hash>(mut self, labels: impl IntoIterator<Item = L>, link: Link) -> Result<Groups, Split> {
        let labels = Groups::by_label(labels).of;
        let mut of_groups: Vec<usize> = Vec::with_capacity(self.count());
        for members in &self.members {
            let label = labels.get(members[0]).copied();
            if let Some(other) = members.iter().find(|member| labels.get(**member).copied() != label) {
                return Err(Split(members[0], *other));
            }
            of_groups.extend(label);
        }
        let above = match self.above.take() {
            None => Ok(Groups { link, ..Groups::by_label(of_groups) }),
            Some(above) => above.within(of_groups, link),
        };
        let first = |group: usize| self.members[group][0];
        let above = above.map_err(|Split(one, other)| Split(first(one), first(other)))?;
        self.above = (above.count() > 1).then(|| Box::new(above));
        Ok(self)
    }

    /// The division of the groups into larger ones, if there is one: its ranks are the numbers of these groups.
    #[must_use]
    pub fn above(&self) -> Option<&Groups> {
        self.above.as_deref()
    }

    /// This division and those above it, from the inner to the outer.
    pub fn levels(&self) -> impl Iterator<Item = &Groups> {
        std::iter::successors(Some(self), |groups| groups.above())
    }

    /// The number of groups of each level, from the inner to the outer.
    #[must_use]
    pub fn counts(&self) -> Vec<usize> {
        self.levels().map(Groups::count).collect()
    }

    /// What joins the members of a group.
    #[must_use]
    pub fn link(&self) -> Link {
        self.link
    }

    /// For each rank a number that ranks have in common which such links, or nearer ones, join.
    #[must_use]
    pub fn joined_by(&self, link: Link) -> Vec<usize> {
        let mut of: Vec<usize> = (0..self.size()).collect();
        for groups in self.levels().take_while(|groups| groups.link <= link) {
            of.iter_mut().for_each(|group| *group = groups.of[*group]);
        }
        if self.outermost_link() <= link { vec![0; self.size()] } else { of }
    }

    /// What joins the outermost groups, or all ranks where these are in one.
    #[must_use]
    pub fn outermost_link(&self) -> Link {
        match self.levels().last() {
            Some(outermost) if outermost.count() > 1 => outermost.link.outward(),
            _ => self.link,
        }
    }

    /// Has the members of each group lead in the order of what `order` gives for them (smaller first), and of their ranks
    /// where that is the same. All ranks must see the same.
    #[must_use]
    pub fn led_by<K: Ord>(self, order: impl Fn(&[usize]) -> Vec<K>) -> Groups {
        let of = |members: &Vec<usize>| {
            let keys = order(members);
            let mut positions: Vec<usize> = (0..members.len()).collect();
            positions.sort_by(|one, other| keys.get(*one).cmp(&keys.get(*other)));
            positions
        };
        let leads: Vec<Vec<usize>> = self.members.iter().map(of).collect();
        let leads = Some(leads).filter(|leads| leads.iter().any(|positions| !positions.is_sorted()));
        Groups { leads, ..self }
    }

    /// The position in a group of the member that leads it, or of one of several in turn; counted from 0.
    ///
    /// # Panics
    /// When there is no such group, or it has no so many members.
    #[must_use]
    pub fn lead(&self, group: usize, turn: usize) -> usize {
        self.leads.as_ref().map_or(turn, |leads| leads[group][turn])
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

    /// Whether there is anything to gain from two hops: several groups, and several ranks in one of them, on some level.
    #[must_use]
    pub fn are_two_levels(&self) -> bool {
        self.levels().any(|groups| 1 < groups.count() && groups.count() < groups.size())
    }

    /// Whether each group is a run of neighbouring ranks, on every level, so that combining group by group keeps the order of
    /// the ranks.
    #[must_use]
    pub fn keep_rank_order(&self) -> bool {
        self.levels().all(|groups| groups.of.is_sorted())
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
    fn groups_of_groups_are_counted_from_the_inner_to_the_outer() {
        let groups = Groups::every(12, 2).within((0..12).map(|rank| rank / 4), Link::Between).unwrap();
        let groups = groups.within((0..12).map(|rank| rank < 8), Link::Across).unwrap();
        assert_eq!(groups.counts(), [6, 3, 2]);
        assert_eq!(groups.levels().map(Groups::link).collect::<Vec<_>>(), [Link::Inside, Link::Between, Link::Across]);
        assert_eq!(groups.above().unwrap().members(1), [2, 3]);
        assert!(groups.are_two_levels() && groups.keep_rank_order());
        // Hosts are runs of ranks, racks are no runs of hosts.
        let dealt = Groups::every(8, 2).within((0..8).map(|rank| rank / 2 % 2), Link::Between).unwrap();
        assert!(dealt.are_two_levels() && !dealt.keep_rank_order());
        assert_eq!(Groups::every(8, 2).within([0; 8], Link::Between), Ok(Groups::every(8, 2)));
        let alone = Groups::apart(4).within([0, 0, 1, 1], Link::Between).unwrap();
        assert!(alone.are_two_levels());
    }

    #[test]
    fn a_group_of_which_parts_are_in_different_larger_ones_is_refused() {
        let split = Groups::every(8, 2).within((0..8).map(|rank| rank / 3), Link::Between).unwrap_err();
        assert_eq!(split, Split(2, 3));
        let racks = Groups::every(8, 2).within((0..8).map(|rank| rank / 4), Link::Between).unwrap();
        // Each host has one label, the second rack has two.
        assert_eq!(racks.within([0, 0, 0, 0, 0, 0, 1, 1], Link::Across).unwrap_err(), Split(4, 6));
    }

    #[test]
    fn what_joins_the_outermost_groups_is_not_counted_where_there_is_one() {
        let racks = |hosts: usize| {
            Groups::every(8, 2).within((0..8).map(move |rank| rank / (2 * hosts)), Link::Between).unwrap()
        };
        assert_eq!([racks(2), racks(4)].map(|groups| groups.outermost_link()), [Link::Across, Link::Between]);
        assert_eq!(racks(2).joined_by(Link::Inside), [0, 0, 1, 1, 2, 2, 3, 3]);
        assert_eq!(racks(2).joined_by(Link::Between), [0, 0, 0, 0, 1, 1, 1, 1]);
        assert_eq!(racks(2).joined_by(Link::Across), [0; 8]);
        assert_eq!(Groups::every(4, 2).joined_by(Link::Between), [0; 4]);
        assert_eq!(Groups::together(3).outermost_link(), Link::Inside);
        assert_eq!(Groups::apart(3).outermost_link(), Link::Between);
    }

    #[test]
    fn one_group_and_groups_of_one_are_a_single_level() {
        assert!(!Groups::together(4).are_two_levels());
        assert!(!Groups::apart(4).are_two_levels());
        assert!(!Groups::apart(1).are_two_levels());
    }
}
