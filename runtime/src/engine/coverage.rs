//! Which bytes of a large message have come: its pieces may arrive in any order and over several channels.
//!
//! Pure: ranges in, a verdict out. It knows no buffers and no peers.

/// The ranges of one message that have come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Coverage {
    /// Bytes of the whole message.
    total: usize,
    /// Everything before this has come.
    front: usize,
    /// What has come beyond `front`: ranges in order that neither touch each other nor `front`. Empty while pieces come
    /// in their order.
    beyond: Vec<(usize, usize)>,
}

/// Why a piece cannot be right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadPiece {
    /// It has no bytes.
    Empty,
    /// It ends after the message.
    TooLong,
    /// Some of its bytes have come before.
    Repeated,
}

impl BadPiece {
    /// What is wrong, for an error message.
    pub(crate) fn describe(self) -> &'static str {
        match self {
            BadPiece::Empty => "an empty piece",
            BadPiece::TooLong => "a piece beyond the end of its message",
            BadPiece::Repeated => "a piece of a message that has come before",
        }
    }
}

impl Coverage {
    pub(crate) fn new(total: usize) -> Self {
        Coverage { total, front: 0, beyond: Vec::new() }
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.front == self.total
    }

    /// How many bytes have come.
    pub(crate) fn received(&self) -> usize {
        self.front + self.beyond.iter().map(|(start, end)| end - start).sum::<usize>()
    }

    /// Where a piece of `length` bytes from `offset` on begins, if it can be right.
    pub(crate) fn check(&self, offset: u64, length: usize) -> Result<usize, BadPiece> {
        if length == 0 {
            return Err(BadPiece::Empty);
        }
        let start = usize::try_from(offset).map_err(|_| BadPiece::TooLong)?;
        let end = start.checked_add(length).filter(|end| *end <= self.total).ok_or(BadPiece::TooLong)?;
        if start < self.front || self.beyond.get(self.after(start)).is_some_and(|(other, _)| *other < end) {
            return Err(BadPiece::Repeated);
        }
        Ok(start)
    }

    /// The first range that ends after a piece begins: the only one that may overlap first.
    fn after(&self, start: usize) -> usize {
        self.beyond.partition_point(|(_, end)| *end <= start)
    }

    /// `length` bytes from `offset` on have come. A piece that cannot be right changes nothing.
    pub(crate) fn add(&mut self, offset: u64, length: usize) -> Result<(), BadPiece> {
        let start = self.check(offset, length)?;
        let (end, at) = (start + length, self.after(start));
        if start == self.front {
            self.front = end;
            if let Some(&(next, next_end)) = self.beyond.first()
                && next == end
            {
                self.front = next_end;
                self.beyond.remove(0);
            }
            return Ok(());
        }
        let joins_before = at > 0 && self.beyond[at - 1].1 == start;
        let joins_after = self.beyond.get(at).is_some_and(|(other, _)| *other == end);
        match (joins_before, joins_after) {
            (true, true) => {
                self.beyond[at - 1].1 = self.beyond[at].1;
                self.beyond.remove(at);
            }
            (true, false) => self.beyond[at - 1].1 = end,
            (false, true) => self.beyond[at].0 = start,
            (false, false) => self.beyond.insert(at, (start, end)),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn pieces_in_their_order_cost_no_memory() {
        let mut coverage = Coverage::new(1000);
        for offset in (0..1000).step_by(100) {
            assert!(!coverage.is_complete());
            assert_eq!(coverage.add(offset, 100), Ok(()));
            assert!(coverage.beyond.is_empty());
        }
        assert!(coverage.is_complete());
    }

    #[test]
    fn a_message_of_more_than_four_gibibytes_is_counted_exactly() {
        let total = (1_usize << 32) + 8;
        for piece in [1 << 30, (1 << 31) + 5, usize::MAX >> 31] {
            let mut coverage = Coverage::new(total);
            let mut offset = 0;
            while offset < total {
                let length = piece.min(total - offset);
                assert!(!coverage.is_complete());
                assert_eq!(coverage.add(offset as u64, length), Ok(()));
                offset += length;
            }
            assert!(coverage.is_complete());
            assert_eq!(coverage.add(total as u64, 1), Err(BadPiece::TooLong));
        }
        assert_eq!(Coverage::new(total).add(u64::MAX, 1), Err(BadPiece::TooLong));
        assert_eq!(Coverage::new(total).add(u64::MAX, usize::MAX), Err(BadPiece::TooLong));
    }

    #[test]
    fn the_pieces_of_two_channels_leave_at_most_as_many_ranges_as_channels() {
        let mut coverage = Coverage::new(64);
        for step in 0..32 {
            // One channel carries the lower half, the other one the upper half.
            assert_eq!(coverage.add(32 + step, 1), Ok(()));
            assert_eq!(coverage.add(step, 1), Ok(()));
            assert!(coverage.beyond.len() <= 1);
        }
        assert!(coverage.is_complete());
    }

    proptest! {
        /// Against a list of bytes.
        #[test]
        fn coverage_agrees_with_a_map_of_every_byte(
            total in 0..60_usize,
            pieces in proptest::collection::vec((0..64_usize, 0..12_usize), 0..80),
        ) {
            let mut coverage = Coverage::new(total);
            let mut seen = vec![false; total];
            for (offset, length) in pieces {
                let expected = if length == 0 {
                    Err(BadPiece::Empty)
                } else if offset + length > total {
                    Err(BadPiece::TooLong)
                } else if seen[offset..offset + length].contains(&true) {
                    Err(BadPiece::Repeated)
                } else {
                    seen[offset..offset + length].fill(true);
                    Ok(())
                };
                prop_assert_eq!(coverage.add(offset as u64, length), expected);
                prop_assert_eq!(coverage.is_complete(), seen.iter().all(|byte| *byte));
                prop_assert_eq!(coverage.received(), seen.iter().filter(|byte| **byte).count());
            }
        }
    }
}
