//! k-nomial trees: flatter than binomial ones, for networks on which a rank can have several messages under way.
//!
//! Positions are numbers to the base k: a position's parent has its last digit that is not 0 cleared. Subtrees are runs of
//! positions, as in the binomial tree, which is the one for k = 2.

/// Children of position `v` in the tree of `size` positions whose root is 0, nearest (and smallest subtree) first.
pub(super) fn children(v: usize, size: usize, radix: usize) -> Vec<usize> {
    let mut all = Vec::new();
    let mut power = 1;
    while power < size && v.is_multiple_of(power * radix) {
        all.extend((1..radix).map(|digit| v + digit * power).take_while(|child| *child < size));
        power *= radix;
    }
    all
}

/// The parent of position `v`; `None` for the root.
pub(super) fn parent(v: usize, radix: usize) -> Option<usize> {
    if v == 0 {
        return None;
    }
    let mut power = 1;
    while v.is_multiple_of(power * radix) {
        power *= radix;
    }
    Some(v - v / power % radix * power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_position_but_the_root_has_one_parent_whose_child_it_is() {
        for radix in 2..6 {
            for size in 1..80 {
                let mut seen = vec![0; size];
                for v in 0..size {
                    for child in children(v, size, radix) {
                        assert_eq!(parent(child, radix), Some(v), "{child} of {size} to the base {radix}");
                        seen[child] += 1;
                    }
                }
                assert!(
                    seen[0] == 0 && seen[1..].iter().all(|times| *times == 1),
                    "{size} to the base {radix}: {seen:?}"
                );
            }
        }
    }

    #[test]
    fn to_the_base_two_it_is_the_binomial_tree() {
        for size in 1..40 {
            for v in 0..size {
                assert_eq!(children(v, size, 2), super::super::children(v, size).collect::<Vec<usize>>());
                assert_eq!(parent(v, 2), super::super::parent(v));
            }
        }
    }
}
