//! Symbols for values: which ranks' contributions an element is made of, combined how.

use std::collections::HashMap;

/// An expression over the contributions of ranks; equal numbers stand for equal expressions.
pub(super) type Tree = u32;

/// What an element holds: element `element` of the contributions that `tree` combines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Value {
    pub(super) tree: Tree,
    pub(super) element: usize,
}

impl Value {
    /// Never written.
    pub(super) const UNDEFINED: Value = Value { tree: 0, element: 0 };

    /// Element `element` of what rank `rank` contributes.
    pub(super) fn of(rank: usize, element: usize) -> Value {
        Value { tree: Tree::try_from(rank + 1).unwrap_or(Tree::MAX), element }
    }

    pub(super) fn is_undefined(self) -> bool {
        self.tree == 0
    }
}

/// The expressions that have come up.
pub(super) struct Symbols {
    /// Words of each set of ranks.
    words: usize,
    /// The ranks in each tree, `words` words a tree.
    members: Vec<u64>,
    /// For trees that combine neighbouring ranks in order: the first one and the one after the last.
    spans: Vec<Option<(usize, usize)>>,
    pairs: HashMap<(Tree, Tree), Tree>,
    size: usize,
}

impl Symbols {
    pub(super) fn new(size: usize) -> Symbols {
        let words = size.div_ceil(64);
        let mut members = vec![0; words * (size + 1)];
        let mut spans = vec![None];
        for rank in 0..size {
            members[(rank + 1) * words + rank / 64] |= 1 << (rank % 64);
            spans.push(Some((rank, rank + 1)));
        }
        Symbols { words, members, spans, pairs: HashMap::new(), size }
    }

    /// `left op right`, or what is wrong with it.
    pub(super) fn combine(&mut self, left: Value, right: Value) -> Result<Value, &'static str> {
        if left.element != right.element {
            return Err("different elements");
        }
        let element = left.element;
        if let Some(&tree) = self.pairs.get(&(left.tree, right.tree)) {
            return Ok(Value { tree, element });
        }
        let tree = Tree::try_from(self.spans.len()).map_err(|_| "too many expressions to check")?;
        let (left_members, right_members) = (self.members(left.tree), self.members(right.tree));
        if left_members.iter().zip(right_members).any(|(left, right)| left & right != 0) {
            return Err("the contribution of a rank twice");
        }
        let union: Vec<u64> = left_members.iter().zip(right_members).map(|(left, right)| left | right).collect();
        self.members.extend(union);
        self.spans.push(match (self.spans[left.tree as usize], self.spans[right.tree as usize]) {
            (Some((first, middle)), Some((next, end))) if middle == next => Some((first, end)),
            _ => None,
        });
        self.pairs.insert((left.tree, right.tree), tree);
        Ok(Value { tree, element })
    }

    /// Whether the tree has the contribution of every rank.
    pub(super) fn is_complete(&self, tree: Tree) -> bool {
        self.members(tree).iter().map(|word| word.count_ones() as usize).sum::<usize>() == self.size
    }

    /// Whether the tree combines the first `count` ranks, and no others, in their order.
    pub(super) fn is_in_rank_order(&self, tree: Tree, count: usize) -> bool {
        self.spans[tree as usize] == Some((0, count))
    }

    fn members(&self, tree: Tree) -> &[u64] {
        let first = tree as usize * self.words;
        &self.members[first..first + self.words]
    }
}
