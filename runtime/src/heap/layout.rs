//! Which places of a symmetric heap are taken: the same on every rank, because every rank takes and gives back alike.
//!
//! Pure: numbers only.

use std::collections::BTreeMap;

/// Buffers begin at multiples of this: two cache lines, which processors fetch in pairs, so that a signal of one buffer
/// does not disturb its neighbour.
pub const ALIGN: usize = 128;

/// Which places of a memory of a fixed size are taken.
#[derive(Debug)]
pub struct Layout {
    capacity: usize,
    /// Where each buffer begins, and its bytes without padding.
    taken: BTreeMap<usize, usize>,
    /// Everything from here on has never been taken.
    touched: usize,
}

impl Layout {
    /// Nothing of `capacity` bytes is taken.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Layout { capacity, taken: BTreeMap::new(), touched: 0 }
    }

    /// The first gap that holds `bytes`; and how much of it was in use before and must be cleared.
    pub fn take(&mut self, bytes: usize) -> Option<(usize, usize)> {
        let padded = bytes.max(1).checked_next_multiple_of(ALIGN)?;
        let mut start = 0;
        for (&begin, &length) in &self.taken {
            if begin - start >= padded {
                break;
            }
            start = (begin + length.max(1)).next_multiple_of(ALIGN);
        }
        if self.capacity.checked_sub(start)? < padded {
            return None;
        }
        self.taken.insert(start, bytes);
        let used = self.touched.saturating_sub(start).min(bytes);
        self.touched = self.touched.max(start + padded);
        Some((start, used))
    }

    /// Whether exactly this buffer is taken.
    #[must_use]
    pub fn is_taken(&self, start: usize, bytes: usize) -> bool {
        self.taken.get(&start) == Some(&bytes)
    }

    /// The buffer that begins at `start` is free again.
    pub fn give_back(&mut self, start: usize) {
        self.taken.remove(&start);
    }

    /// Bytes that are not taken.
    #[must_use]
    pub fn left(&self) -> usize {
        let taken: usize = self.taken.values().map(|bytes| bytes.max(&1).next_multiple_of(ALIGN)).sum();
        self.capacity.saturating_sub(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_gap_is_used_again_and_only_what_was_used_is_cleared() {
        let mut layout = Layout::new(4096);
        assert_eq!(layout.take(100), Some((0, 0)));
        assert_eq!(layout.take(200), Some((128, 0)));
        layout.give_back(0);
        assert_eq!(layout.take(129), Some((384, 0)), "the gap is too small");
        assert_eq!(layout.take(128), Some((0, 128)));
        assert_eq!(layout.take(4096), None);
        assert_eq!(layout.take(usize::MAX), None);
        assert!(layout.is_taken(128, 200) && !layout.is_taken(128, 100));
    }

    proptest! {
        #[test]
        fn buffers_never_overlap_and_what_is_given_back_is_there_again(
            steps in proptest::collection::vec((0_usize..700, any::<prop::sample::Index>(), any::<bool>()), 1..60)
        ) {
            let mut layout = Layout::new(8192);
            let mut live: Vec<(usize, usize)> = Vec::new();
            for (bytes, which, frees) in steps {
                if frees && !live.is_empty() {
                    let (start, bytes) = live.swap_remove(which.index(live.len()));
                    prop_assert!(layout.is_taken(start, bytes));
                    layout.give_back(start);
                } else if let Some((start, _)) = layout.take(bytes) {
                    prop_assert!(start % ALIGN == 0 && start + bytes <= 8192);
                    let apart = |&(other, length): &(usize, usize)| other + length.max(1) <= start || start + bytes.max(1) <= other;
                    prop_assert!(live.iter().all(apart));
                    live.push((start, bytes));
                }
            }
            live.iter().for_each(|(start, _)| layout.give_back(*start));
            prop_assert_eq!(layout.left(), 8192);
            prop_assert_eq!(layout.take(8192).map(|(start, _)| start), Some(0));
        }
    }
}
