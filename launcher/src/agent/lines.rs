//! A rank's output cut into whole lines.
//!
//! Pure. Lines of several ranks are mixed later on, so only whole ones may leave; a line that grows too long leaves in
//! pieces, and the last one without its end leaves when the stream ends, or when somebody waits for it.

/// The longest piece of a line that is held back, in bytes.
const MAX_LINE: usize = 1 << 20;

/// The part of a stream that is not a whole line yet.
#[derive(Debug, Default)]
pub(super) struct Lines {
    held: Vec<u8>,
    /// What left last did not end a line.
    open: bool,
}

impl Lines {
    /// Adds bytes as they came; the whole lines that are complete now, if any.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        match bytes.iter().rposition(|b| *b == b'\n') {
            Some(end) => {
                let mut whole = std::mem::take(&mut self.held);
                whole.extend_from_slice(&bytes[..=end]);
                self.held.extend_from_slice(&bytes[end + 1..]);
                self.open = false;
                Some(whole)
            }
            None => {
                self.held.extend_from_slice(bytes);
                if self.held.len() < MAX_LINE { None } else { self.piece() }
            }
        }
    }

    /// Whether a line is held back.
    pub(super) fn holds(&self) -> bool {
        !self.held.is_empty()
    }

    /// The line without its end as far as it has come, if there is one.
    pub(super) fn piece(&mut self) -> Option<Vec<u8>> {
        let piece = Some(std::mem::take(&mut self.held)).filter(|rest| !rest.is_empty());
        self.open |= piece.is_some();
        piece
    }

    /// At the end of the stream: the rest of a line without its end, perhaps empty, if there is such a line.
    pub(super) fn finish(&mut self) -> Option<Vec<u8>> {
        let rest = std::mem::take(&mut self.held);
        let cut = std::mem::take(&mut self.open) || !rest.is_empty();
        cut.then_some(rest)
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

    #[test]
    fn a_line_that_somebody_waits_for_leaves_and_its_end_is_still_known() {
        let mut lines = Lines::default();
        assert_eq!(lines.push(b"name? "), None);
        assert!(lines.holds());
        assert_eq!(lines.piece().unwrap(), b"name? ");
        assert!(!lines.holds());
        assert_eq!(lines.piece(), None);
        assert_eq!(lines.finish().unwrap(), b"", "the line never ended");
        assert_eq!(lines.push(b"a"), None);
        lines.piece();
        assert_eq!(lines.push(b"\n").unwrap(), b"\n");
        assert_eq!(lines.finish(), None);
    }

    proptest! {
        #[test]
        fn no_byte_is_lost_added_or_held_back_without_bound(
            lengths in proptest::collection::vec((0_usize..500_000, proptest::option::of(0_usize..500_000)), 0..8)
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
