//! Two binary trees over the same ranks, each for half of the data: whoever is an inner node of one is a leaf of the other, so
//! that all links work both ways, in as many rounds as a tree is high.
//!
//! Sanders, Speck, Träff: Two-tree algorithms for full bandwidth broadcast, reduction and scan, 2009.

use super::broadcast;
use crate::compose::{Builder, Group};
use crate::schedule::{Side, Slice};
use std::ops::Range;

/// A position in a binary tree in which all of the left subtree is before a position and all of the right one behind it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Node {
    parent: Option<usize>,
    left: Option<usize>,
    right: Option<usize>,
}

/// The root of the positions in a range: left of it are one less than a power of two, so that all inner positions are odd
/// if the range begins at an even one.
fn root(range: &Range<usize>) -> Option<usize> {
    let length = range.len();
    (length > 0).then(|| range.start + (1 << length.ilog2()) - 1)
}

/// The place of a position in the tree of `size` positions.
fn node(position: usize, size: usize) -> Node {
    let (mut parent, mut range) = (None, 0..size);
    while let Some(middle) = root(&range) {
        let (left, right) = (range.start..middle, middle + 1..range.end);
        if middle == position {
            return Node { parent, left: root(&left), right: root(&right) };
        }
        parent = Some(middle);
        range = if position < middle { left } else { right };
    }
    Node::default()
}

/// This rank's place in one of the two trees, in ranks of the communicator; the second tree is the first one moved on by a
/// rank.
fn place(group: &Group<'_>, second: bool) -> (Node, bool) {
    let (size, shift) = (group.size(), usize::from(second));
    let own = (group.rank() + shift) % size;
    let rank_of = |position: usize| group.peer((position + size - shift) % size);
    let Node { parent, left, right } = node(own, size);
    let is_root = parent.is_none();
    (Node { parent: parent.map(rank_of), left: left.map(rank_of), right: right.map(rank_of) }, is_root)
}

/// All-reduce: each half is combined up its tree and sent down again, in segments of at most `segment` elements.
///
/// The second tree is not in rank order, so that the operator must commute. Cost with K segments of each half:
/// about `4 log2(p) (latency + overhead + (n / 2 K) (beta + gamma))` for the first, and two messages each way for the others.
pub fn all_reduce(b: &mut Builder, group: &Group<'_>, data: Slice, segment: usize) {
    if group.size() == 1 {
        return;
    }
    let first = data.length.div_ceil(2);
    let halves = [data.part(0, first), data.part(first, data.length - first)];
    let places = [place(group, false).0, place(group, true).0];
    let rooms: Vec<Slice> = (0..8).map(|_| b.scratch(segment.min(first))).collect();
    let pieces = halves.map(|half| broadcast::pieces(half, segment).collect::<Vec<Slice>>());
    for turn in 0..pieces[0].len().max(pieces[1].len()) {
        for half in 0..2 {
            let Some(&piece) = pieces[half].get(turn) else { continue };
            let Node { parent, left, right } = places[half];
            for (child, side, room) in [(left, Side::Left, 0), (right, Side::Right, 1)] {
                let Some(child) = child else { continue };
                // Two of each, so that the next one may come while one is combined.
                let room = rooms[4 * half + 2 * (turn % 2) + room].part(0, piece.length);
                b.receive(child, room);
                b.reduce(room, piece, side);
            }
            if let Some(parent) = parent {
                b.send(parent, piece);
                b.receive(parent, piece);
            }
            for child in [left, right].into_iter().flatten() {
                b.send(child, piece);
            }
        }
    }
}

/// Broadcast: the root gives each half to the root of its tree, where it is sent down in segments of at most `segment`
/// elements.
///
/// Cost with K segments of each half: `(log2(p) + 1) (latency + overhead + (n / 2 K) beta)` and two messages for each of the
/// other segments.
pub fn broadcast(b: &mut Builder, group: &Group<'_>, root: usize, data: Slice, segment: usize) {
    let (size, first) = (group.size(), data.length.div_ceil(2));
    if size == 1 {
        return;
    }
    let halves = [data.part(0, first), data.part(first, data.length - first)];
    let pieces = halves.map(|half| broadcast::pieces(half, segment).collect::<Vec<Slice>>());
    let is_source = group.rank() == root;
    for turn in 0..pieces[0].len().max(pieces[1].len()) {
        for (half, pieces) in pieces.iter().enumerate() {
            let Some(&piece) = pieces.get(turn) else { continue };
            let (Node { parent, left, right }, is_root) = place(group, half == 1);
            let top = (node_root(size) + size - half) % size;
            if is_source && top != root {
                b.send(group.peer(top), piece);
            }
            if is_root && !is_source {
                b.receive(group.peer(root), piece);
            }
            // The source has the data already; what its parent would send it is not sent.
            if let (Some(parent), false) = (parent, is_source) {
                b.receive(parent, piece);
            }
            for child in [left, right].into_iter().flatten().filter(|child| *child != group.peer(root)) {
                b.send(child, piece);
            }
        }
    }
}

/// The position of the tree's root.
fn node_root(size: usize) -> usize {
    root(&(0..size)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_holds_every_position_once_in_order_and_only_odd_ones_have_children() {
        for size in 1..70 {
            let mut seen = vec![0; size];
            for position in 0..size {
                let found = node(position, size);
                for child in [found.left, found.right].into_iter().flatten() {
                    assert_eq!(node(child, size).parent, Some(position));
                    seen[child] += 1;
                }
                assert!(
                    found.left.is_none_or(|left| left < position) && found.right.is_none_or(|right| right > position)
                );
                assert!(position % 2 == 1 || (found.left.is_none() && found.right.is_none()), "{position} of {size}");
            }
            seen[node_root(size)] += 1;
            assert!(seen.iter().all(|times| *times == 1), "{size}: {seen:?}");
        }
    }
}
