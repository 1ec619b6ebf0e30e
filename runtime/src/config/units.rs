//! Sizes, times and flags as people write them.
//!
//! Pure text: knows nothing of keys or ranges. What [`size`] and [`duration`] accept, [`format_size`] and
//! [`format_duration`] write.

use super::error::shown;
use std::time::Duration;

const SIZES: [(&str, u64); 4] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

const TIMES: [(&str, u64); 6] = [
    ("h", 3_600_000_000_000),
    ("min", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// A size in bytes: `65536`, `64KiB`, `64k`. Upper and lower case are the same; `KB` is refused, because half of its
/// users mean 1000 bytes and the other half 1024.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text);
    let count = whole(number)?;
    let factor = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "ki" | "kib" => 1 << 10,
        "m" | "mi" | "mib" => 1 << 20,
        "g" | "gi" | "gib" => 1 << 30,
        "t" | "ti" | "tib" => 1_u64 << 40,
        "kb" | "mb" | "gb" | "tb" => {
            let letter = &unit[..1];
            return Err(format!("`{unit}` may mean powers of 1000 or of 1024: write {letter}iB for powers of 1024"));
        }
        _ => return Err(format!("`{}` is no unit of size (KiB, MiB, GiB, TiB)", shown(unit))),
    };
    count.checked_mul(factor).ok_or_else(|| "the number is too large".to_string())
}

/// The size with the largest unit that divides it, for example `64KiB`; sizes below 1 KiB and odd ones as a number.
pub(super) fn format_size(bytes: u64) -> String {
    SIZES
        .iter()
        .find(|(_, factor)| bytes != 0 && bytes.is_multiple_of(*factor))
        .map_or_else(|| bytes.to_string(), |(unit, factor)| format!("{}{unit}", bytes / factor))
}

/// A time: a number, perhaps with a decimal fraction, and a unit: `5s`, `0.5s`, `200ms`, `50us`, `1min`, `1h`. Only
/// zero needs no unit.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = split(text);
    let (number, fraction) = number.split_once('.').unwrap_or((number, ""));
    let count = whole(number)?;
    let factor = match unit.to_ascii_lowercase().as_str() {
        "µs" | "μs" => 1_000,
        "" if count == 0 && fraction.is_empty() => 1,
        "" => return Err("a time needs a unit (us, ms, s, min, h), for example 200ms".into()),
        "m" => return Err("`m` may mean minutes or milliseconds: write min or ms".into()),
        other => TIMES
            .iter()
            .find(|(name, _)| *name == other)
            .map(|(_, factor)| *factor)
            .ok_or_else(|| format!("`{}` is no unit of time (ns, us, ms, s, min, h)", shown(unit)))?,
    };
    let mut nanoseconds = count.checked_mul(factor).ok_or("the number is too large")?;
    let mut place = factor;
    for digit in fraction.chars() {
        let digit =
            digit.to_digit(10).ok_or_else(|| format!("`{}.{}` is no number", shown(number), shown(fraction)))?;
        if digit != 0 && !place.is_multiple_of(10) {
            return Err("the fraction is finer than a nanosecond or has no end".into());
        }
        place /= 10;
        nanoseconds = nanoseconds.checked_add(u64::from(digit) * place).ok_or("the number is too large")?;
    }
    Ok(Duration::from_nanos(nanoseconds))
}

/// The time with the largest unit that divides it, for example `200ms`; zero is `0s`.
pub(super) fn format_duration(duration: Duration) -> String {
    let nanoseconds = duration.as_nanos();
    TIMES
        .iter()
        .find(|(_, factor)| nanoseconds != 0 && nanoseconds.is_multiple_of(u128::from(*factor)))
        .map_or_else(|| "0s".to_string(), |(unit, factor)| format!("{}{unit}", nanoseconds / u128::from(*factor)))
}

/// `true`/`false`, `1`/`0`, `yes`/`no`, `on`/`off`, in any case.
pub(super) fn flag(text: &str) -> Result<bool, String> {
    match text.trim().to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" => Ok(true),
        "false" | "0" | "no" | "off" => Ok(false),
        _ => Err("neither true nor false".into()),
    }
}

/// A whole number without sign, unit or separators.
pub(super) fn whole(text: &str) -> Result<u64, String> {
    let text = text.trim();
    if text.is_empty() {
        return Err("a number is missing".into());
    }
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("`{}` is no whole number of 0 or more", shown(text)));
    }
    text.parse().map_err(|_| "the number is too large".to_string())
}

/// The number at the front and the unit after it; without digits in front everything that is not a letter is the
/// number, so that the message is about the number.
fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text.find(char::is_alphabetic).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (number.trim_end(), unit)
}
