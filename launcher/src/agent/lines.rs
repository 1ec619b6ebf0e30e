//! A rank's output cut into whole lines.
//!
//! Pure. Lines of several ranks are mixed later on, so only whole ones may leave; a line that grows too long leaves in
//! pieces, and the last one without its end leaves when the stream ends.

/// The longest piece of a line that is held back, in bytes.
const MAX_LINE: usize = 64 << 10;

/// The part of a stream that is not a whole line yet.
#[derive(Debug, Default)]
pub(super) struct Lines {
    held: Vec<u8>,
}

impl Lines {
    /// Adds bytes as they came; the whole lines that are complete now, if any.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        match bytes.iter().rposition(|b| *b == b'\n') {
            Some(end) => {
                let mut whole = std::mem::take(&mut self.held);
                whole.extend_from_slice(&bytes[..=end]);
                self.held.extend_from_slice(&bytes[end + 1..]);
                Some(whole)
            }
            None => {
                self.held.extend_from_slice(bytes);
                (self.held.len() >= MAX_LINE).then(|| std::mem::take(&mut self.held))
            }
        }
    }

    /// The last line without its end, if there is one.
    pub(super) fn finish(&mut self) -> Option<Vec<u8>> {
        Some(std::mem::take(&mut self.held)).filter(|rest| !rest.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_whole_lines_leave_until_the_end() {
        let mut lines = Lines::default();
        assert_eq!(lines.push(b"a"), None);
        assert_eq!(lines.push(b"b\nc\nd").unwrap(), b"ab\nc\n");
        assert_eq!(lines.push(b"").as_deref(), None);
        assert_eq!(lines.finish().unwrap(), b"d");
        assert_eq!(lines.finish(), None);
    }

    proptest! {
        #[test]
        fn no_byte_is_lost_added_or_held_back_without_bound(
            lengths in proptest::collection::vec((0_usize..50_000, proptest::option::of(0_usize..50_000)), 0..8)
        ) {
            let pieces: Vec<Vec<u8>> = lengths
                .iter()
                .map(|(length, end)| (0..*length).map(|i| if Some(i) == *end { b'\n' } else { b'x' }).collect())
                .collect();
            let mut lines = Lines::default();
            let mut out = Vec::new();
            for piece in &pieces {
                out.extend(lines.push(piece).unwrap_or_default());
                prop_assert!(lines.held.len() < MAX_LINE);
            }
            out.extend(lines.finish().unwrap_or_default());
            prop_assert_eq!(out, pieces.concat());
        }
    }
}
