//! Sets of ranks as users write them: `0,4-7`.

/// Ranges of ranks, first and last included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranges(pub Vec<(u32, u32)>);

/// The ranges in a text.
pub(super) fn parse(text: &str) -> Result<Ranges, String> {
    let wrong = |part: &str| format!("`{part}` is not a rank or a range of ranks: write for example 0,4-7");
    let number = |text: &str, part: &str| text.trim().parse::<u32>().map_err(|_| wrong(part));
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first, part)?, number(last, part)?);
        if first > last { Err(format!("`{part}`: the first rank is larger than the last")) } else { Ok((first, last)) }
    };
    text.split(',').map(range).collect::<Result<_, _>>().map(Ranges)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_and_ranges_are_understood_and_anything_else_is_named() {
        assert_eq!(parse("0, 4-7,9").unwrap().0, [(0, 0), (4, 7), (9, 9)]);
        for wrong in ["", "a", "1-", "-1", "1,,2", "1-2-3"] {
            assert!(parse(wrong).unwrap_err().contains("not a rank"), "{wrong}");
        }
        assert!(parse("7-4").unwrap_err().contains("larger"));
    }
}
