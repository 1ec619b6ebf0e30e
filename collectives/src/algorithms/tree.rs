//! Binomial trees: positions of ranks counted from the root.

/// How many further positions belong to the subtree of position `v` in a binomial tree of `size` positions whose root
/// is 0, with itself: positions `v..v + extent`.
pub(super) fn subtree(v: usize, size: usize) -> usize {
    match v {
        0 => size,
        _ => (1 << v.trailing_zeros()).min(size - v),
    }
}

/// The children of position `v` in that tree, nearest (and smallest subtree) first.
pub(super) fn children(v: usize, size: usize) -> impl DoubleEndedIterator<Item = usize> {
    let bits = if v == 0 { size.next_power_of_two().trailing_zeros() } else { v.trailing_zeros() };
    (0..bits).map(move |bit| v + (1 << bit)).filter(move |&child| child < size)
}

/// The parent of position `v` in that tree; `None` for the root.
pub(super) fn parent(v: usize) -> Option<usize> {
    (v > 0).then(|| v & (v - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_binomial_tree_holds_every_position_once() {
        for size in 1..70 {
            let mut seen = vec![0; size];
            seen[0] += 1;
            for v in 0..size {
                let mut next = v + 1;
                for child in children(v, size) {
                    assert_eq!((parent(child), child), (Some(v), next));
                    seen[child] += 1;
                    next += subtree(child, size);
                }
                assert_eq!(next, v + subtree(v, size));
            }
            assert_eq!(seen, vec![1; size]);
        }
    }
}
