//! The command in front of a program (`--wrap`): which ranks get it, and its words.
//!
//! Pure.

/// Whether `rank` gets the command; no ranges mean all ranks.
pub(super) fn applies(ranges: &[(u32, u32)], rank: u32) -> bool {
    ranges.is_empty() || ranges.iter().any(|(first, last)| (*first..=*last).contains(&rank))
}

/// A word with `%r` (rank), `%n` (number of ranks) and `%%` filled in; anything else stays as it is.
pub(super) fn fill(word: &[u8], rank: u32, size: usize) -> Vec<u8> {
    let mut filled = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        let value = match (byte, after.first()) {
            (b'%', Some(b'r')) => rank.to_string(),
            (b'%', Some(b'n')) => size.to_string(),
            (b'%', Some(b'%')) => "%".to_string(),
            _ => {
                filled.push(byte);
                continue;
            }
        };
        filled.extend_from_slice(value.as_bytes());
        rest = &after[1..];
    }
    filled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_in_words_are_filled_and_other_bytes_stay() {
        for (word, filled) in
            [("perf.%r", "perf.7"), ("%r%n", "712"), ("100%%", "100%"), ("%%r", "%r"), ("%x %", "%x %"), ("", "")]
        {
            assert_eq!(fill(word.as_bytes(), 7, 12), filled.as_bytes(), "{word}");
        }
        assert_eq!(fill(b"\xff%r", 1, 2), b"\xff1");
    }

    #[test]
    fn chosen_ranks_are_within_a_range() {
        assert!(applies(&[], 3) && applies(&[(0, 0), (2, 4)], 4) && applies(&[(0, 0)], 0));
        assert!(!applies(&[(0, 0), (2, 4)], 1));
    }
}
