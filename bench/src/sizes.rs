//! Sizes of messages as they are written on the command line and in tables. Pure.

/// Sizes are up to this many bytes.
const LARGEST: usize = 1 << 30;

/// All powers of two up to 64 MiB, and 0.
#[must_use]
pub fn all() -> Vec<usize> {
    std::iter::once(0).chain((0..=26).map(|power| 1 << power)).collect()
}

/// Sizes separated by commas: `8`, `64K`, `1M`, and `8..64K` for the powers of two in between.
///
/// # Errors
/// What is wrong with which word.
pub fn parse(text: &str) -> Result<Vec<usize>, String> {
    let mut sizes = Vec::new();
    for word in text.split(',') {
        let Some((from, to)) = word.split_once("..") else {
            sizes.push(one(word)?);
            continue;
        };
        let (from, to) = (one(from)?, one(to)?);
        if from > to {
            return Err(format!("{word}: the first size is the larger one"));
        }
        sizes.extend(
            all().into_iter().chain([1 << 27, 1 << 28, 1 << 29, 1 << 30]).filter(|size| (from..=to).contains(size)),
        );
    }
    if sizes.is_empty() {
        return Err(format!("{text}: no power of two lies there"));
    }
    Ok(sizes)
}

fn one(word: &str) -> Result<usize, String> {
    let word = word.trim();
    let digits = word.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let scale = match &word[digits.len()..] {
        "" | "B" => Some(1),
        "K" | "KiB" => Some(1 << 10),
        "M" | "MiB" => Some(1 << 20),
        "G" | "GiB" => Some(1 << 30),
        _ => None,
    };
    let size = scale.and_then(|scale: usize| digits.parse::<usize>().ok()?.checked_mul(scale));
    match size {
        Some(size) if size <= LARGEST => Ok(size),
        Some(_) => Err(format!("{word}: at most 1G")),
        None => {
            Err(format!("'{word}' is no size: write for example 8, 64K, 1M, or 8..64K for the powers of two between"))
        }
    }
}

/// A size for people: `64 KiB`.
#[must_use]
pub fn text(bytes: usize) -> String {
    for (scale, name) in [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")] {
        if bytes >= scale && bytes.is_multiple_of(scale) {
            return format!("{} {name}", bytes / scale);
        }
    }
    format!("{bytes} B")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_units_and_ranges() {
        assert_eq!(parse("8,64K, 1M"), Ok(vec![8, 65536, 1 << 20]));
        assert_eq!(parse("0..8"), Ok(vec![0, 1, 2, 4, 8]));
        assert_eq!(parse("1KiB..4KiB"), Ok(vec![1024, 2048, 4096]));
        assert_eq!(all().last(), Some(&(64 << 20)));
    }

    #[test]
    fn what_is_no_size_is_named() {
        for (text, reason) in [
            ("8,x", "'x' is no size"),
            ("", "'' is no size"),
            ("8k", "'8k' is no size"),
            ("-1", "'-1' is no size"),
            ("2G", "at most 1G"),
            ("64K..8", "the first size is the larger one"),
            ("5..7", "no power of two"),
            ("99999999999999999999", "is no size"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn sizes_are_shown_in_the_largest_unit_that_divides_them() {
        assert_eq!(
            [text(0), text(1023), text(1024), text(1536), text(1 << 26)],
            ["0 B", "1023 B", "1 KiB", "1536 B", "64 MiB"]
        );
    }
}
