//! The tree that tiny data of ranks with a processor each goes up and down. Pure.
//!
//! Rank 0 is its root; the other ranks form groups of neighbours, whose first ones are below it and lead the others. So
//! whoever combines itself, then what its children say, one after the other, keeps the order of ranks.

use std::iter::StepBy;
use std::ops::Range;

/// As many more children of one rank cost about as much time as one more level: a rank's reads of its children's lines
/// overlap, and so do its children's of its own, but levels come one after another. An estimate.
const LEVEL: usize = 8;

/// A rank's place.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    /// `None` for the root.
    pub(super) parent: Option<usize>,
    children: StepBy<Range<usize>>,
}

impl Tree {
    pub(super) fn new(rank: usize, size: usize) -> Self {
        let cost = |width: &usize| {
            let below_root = size.saturating_sub(1).div_ceil(*width);
            below_root + (width - 1) + if *width > 1 { LEVEL } else { 0 }
        };
        Self::of_width(rank, size, (1..size).min_by_key(cost).unwrap_or(1))
    }

    /// With groups of so many ranks.
    pub(super) fn of_width(rank: usize, size: usize, width: usize) -> Self {
        let Some(before) = rank.checked_sub(1) else {
            return Tree { parent: None, children: (1..size).step_by(width) };
        };
        let leader = 1 + before / width * width;
        match leader == rank {
            true => Tree { parent: Some(0), children: (rank + 1..size.min(rank + width)).step_by(1) },
            false => Tree { parent: Some(leader), children: (0..0).step_by(1) },
        }
    }

    /// In ascending order.
    pub(super) fn children(&self) -> impl ExactSizeIterator<Item = usize> + use<> {
        self.children.clone()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// The ranks below one, itself first, as a rank combines them.
    fn below(rank: usize, tree: &impl Fn(usize) -> Tree) -> Vec<usize> {
        let children = tree(rank).children().flat_map(|child| below(child, tree));
        std::iter::once(rank).chain(children).collect()
    }

    #[test]
    fn all_ranks_are_combined_in_their_order_and_parents_know_their_children() {
        for size in 1..70 {
            for width in 0..size.max(2) {
                // 0: the width that is chosen.
                let tree = |rank| if width == 0 { Tree::new(rank, size) } else { Tree::of_width(rank, size, width) };
                assert!(below(0, &tree).into_iter().eq(0..size), "{size} ranks by {width}");
                for rank in 0..size {
                    assert!(tree(rank).children().all(|child| tree(child).parent == Some(rank)), "{size} by {width}");
                }
            }
        }
    }

    #[test]
    fn few_ranks_have_one_level_and_many_have_two() {
        let children = |rank, size| Tree::new(rank, size).children().collect::<Vec<_>>();
        assert_eq!(children(0, 8), [1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(children(0, 32), [1, 5, 9, 13, 17, 21, 25, 29]);
        assert_eq!(children(5, 32), [6, 7, 8]);
        assert_eq!(children(31, 32), [0; 0]);
    }
}
