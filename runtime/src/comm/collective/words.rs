//! What ranks say to each other about their collective calls, as bytes.
//!
//! Knows nothing of who says it and what follows from it. Bytes of another rank of the job are decoded: whatever they are,
//! the result is a word or nothing.

use crate::element::Signature;

/// Bytes of a description that are sent: a word must be short enough to travel whole on every transport.
const LONGEST: usize = 200;
/// Ranks that are named in a statement.
const NAMED: usize = 16;

/// Something said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// What a rank's call of that number is.
    Statement(Statement),
    /// Two calls of that number do not fit together.
    Verdict(Verdict),
}

/// A rank's call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Statement {
    pub(super) number: u64,
    pub(super) fingerprint: Signature,
    /// Ranks of the world for whose messages the rank waits: some of them.
    pub(super) waits_for: Vec<u32>,
    pub(super) call: String,
}

/// Two ranks whose calls of that number do not fit together. Ranks are those of the world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) number: u64,
    pub(super) first: (u32, String),
    pub(super) second: (u32, String),
}

impl Word {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(64);
        match self {
            Word::Statement(Statement { number, fingerprint, waits_for, call }) => {
                bytes.push(b's');
                bytes.extend(number.to_le_bytes());
                bytes.extend(fingerprint.0.to_le_bytes());
                let named = &waits_for[..waits_for.len().min(NAMED)];
                bytes.push(u8::try_from(named.len()).unwrap_or(u8::MAX));
                named.iter().for_each(|rank| bytes.extend(rank.to_le_bytes()));
                push_text(&mut bytes, call);
            }
            Word::Verdict(Verdict { number, first, second }) => {
                bytes.push(b'v');
                bytes.extend(number.to_le_bytes());
                for (rank, call) in [first, second] {
                    bytes.extend(rank.to_le_bytes());
                    push_text(&mut bytes, call);
                }
            }
        }
        bytes
    }

    /// A word; `None` when the bytes are none.
    pub(super) fn decode(bytes: &[u8]) -> Option<Word> {
        let mut rest = bytes;
        let kind = take::<1>(&mut rest)?;
        let number = u64::from_le_bytes(take(&mut rest)?);
        let word = match kind {
            [b's'] => {
                let fingerprint = Signature(u32::from_le_bytes(take(&mut rest)?));
                let [named] = take::<1>(&mut rest)?;
                let waits_for = (0..named).map(|_| take(&mut rest).map(u32::from_le_bytes)).collect::<Option<_>>()?;
                Word::Statement(Statement { number, fingerprint, waits_for, call: take_text(&mut rest)? })
            }
            [b'v'] => {
                let mut side = || Some((u32::from_le_bytes(take(&mut rest)?), take_text(&mut rest)?));
                let (first, second) = (side()?, side()?);
                Word::Verdict(Verdict { number, first, second })
            }
            _ => return None,
        };
        rest.is_empty().then_some(word)
    }
}

fn push_text(bytes: &mut Vec<u8>, text: &str) {
    let mut end = text.len().min(LONGEST);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    bytes.push(u8::try_from(end).unwrap_or(u8::MAX));
    bytes.extend(&text.as_bytes()[..end]);
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(*taken)
}

/// Text that may be shown in a terminal.
fn take_text(rest: &mut &[u8]) -> Option<String> {
    let [length] = take::<1>(rest)?;
    let (taken, after) = rest.split_at_checked(length.into())?;
    *rest = after;
    let text = std::str::from_utf8(taken).ok()?;
    Some(text.chars().filter(|character| !character.is_control()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn words() -> [Word; 3] {
        let call = String::from("broadcast (binomial) of 3 u8 with root 1");
        let statement = |waits_for| Statement { number: 7, fingerprint: Signature(9), waits_for, call: call.clone() };
        let verdict = Verdict { number: u64::MAX, first: (0, call.clone()), second: (95, String::new()) };
        [Word::Statement(statement(vec![])), Word::Statement(statement(vec![1, 70_000])), Word::Verdict(verdict)]
    }

    #[test]
    fn a_word_survives_its_bytes() {
        for word in words() {
            assert_eq!(Word::decode(&word.encode()), Some(word));
        }
    }

    #[test]
    fn what_is_cut_or_too_long_is_no_word() {
        for word in words() {
            let mut bytes = word.encode();
            for end in 0..bytes.len() {
                assert_eq!(Word::decode(&bytes[..end]), None, "{word:?} cut to {end} bytes");
            }
            bytes.push(0);
            assert_eq!(Word::decode(&bytes), None, "{word:?} and one byte more");
        }
    }

    #[test]
    fn long_texts_are_cut_between_characters_and_many_ranks_left_out() {
        let call = "ä".repeat(300);
        let word = Statement { number: 1, fingerprint: Signature(2), waits_for: (0..100).collect(), call };
        let bytes = Word::Statement(word).encode();
        assert!(bytes.len() < 512, "{} bytes", bytes.len());
        let Some(Word::Statement(read)) = Word::decode(&bytes) else { panic!("no statement") };
        assert_eq!((read.call, read.waits_for.len()), ("ä".repeat(LONGEST / 2), NAMED));
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        let word = Verdict { number: 0, first: (0, "a\u{1b}[31m\nb".into()), second: (1, String::new()) };
        let Some(Word::Verdict(read)) = Word::decode(&Word::Verdict(word).encode()) else { panic!("no verdict") };
        assert_eq!(read.first.1, "a[31mb");
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_word_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            let _ = Word::decode(&bytes);
        }
    }
}
