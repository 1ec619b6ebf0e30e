use crate::config::units::{duration, flag, format_duration, format_size, size};
use std::time::Duration;

#[test]
fn sizes_are_numbers_or_numbers_with_a_binary_unit() {
    for (text, bytes) in [
        ("0", 0),
        ("65536", 65_536),
        ("64B", 64),
        ("64k", 65_536),
        ("64K", 65_536),
        ("64Ki", 65_536),
        ("64KiB", 65_536),
        ("64 kib", 65_536),
        (" 1MiB ", 1 << 20),
        ("2m", 2 << 20),
        ("3GiB", 3 << 30),
        ("1t", 1 << 40),
        ("18446744073709551615", u64::MAX),
    ] {
        assert_eq!(size(text), Ok(bytes), "{text:?}");
    }
}

#[test]
fn a_wrong_size_is_told_by_its_reason() {
    for (text, reason) in [
        ("", "a number is missing"),
        ("KiB", "a number is missing"),
        ("-5", "`-5` is no whole number of 0 or more"),
        ("1.5MiB", "`1.5` is no whole number of 0 or more"),
        ("1_000", "`1_000` is no whole number of 0 or more"),
        ("12x", "`x` is no unit of size (KiB, MiB, GiB, TiB)"),
        ("64KB", "`KB` may mean powers of 1000 or of 1024: write KiB for powers of 1024"),
        ("18446744073709551616", "the number is too large"),
        ("16777216TiB", "the number is too large"),
        ("1k\u{1b}[0m", "`k\\u{1b}[0m` is no unit of size (KiB, MiB, GiB, TiB)"),
    ] {
        assert_eq!(size(text), Err(reason.to_string()), "{text:?}");
    }
}

#[test]
fn sizes_are_written_with_the_largest_unit_that_divides_them() {
    for (bytes, text) in [
        (0, "0"),
        (1000, "1000"),
        (1024, "1KiB"),
        (1536, "1536"),
        (3 << 20, "3MiB"),
        (1 << 30, "1GiB"),
        (5 << 40, "5TiB"),
    ] {
        assert_eq!(format_size(bytes), text);
    }
}

#[test]
fn times_are_numbers_with_a_unit() {
    for (text, nanoseconds) in [
        ("0", 0),
        ("0s", 0),
        ("5s", 5_000_000_000),
        ("200ms", 200_000_000),
        ("50us", 50_000),
        ("50µs", 50_000),
        ("7ns", 7),
        ("1min", 60_000_000_000),
        ("2 h", 7_200_000_000_000),
        ("0.5s", 500_000_000),
        ("1.25MS", 1_250_000),
        ("1.5min", 90_000_000_000),
        ("0.000000001s", 1),
    ] {
        assert_eq!(duration(text), Ok(Duration::from_nanos(nanoseconds)), "{text:?}");
    }
}

#[test]
fn a_wrong_time_is_told_by_its_reason() {
    for (text, reason) in [
        ("5", "a time needs a unit (us, ms, s, min, h), for example 200ms"),
        ("0.0", "a time needs a unit (us, ms, s, min, h), for example 200ms"),
        ("5m", "`m` may mean minutes or milliseconds: write min or ms"),
        ("5 parsecs", "`parsecs` is no unit of time (ns, us, ms, s, min, h)"),
        ("s", "a number is missing"),
        ("-1s", "`-1` is no whole number of 0 or more"),
        ("1.2.3s", "`1.2.3` is no number"),
        ("0.5ns", "the fraction is finer than a nanosecond or has no end"),
        ("1.0000000001s", "the fraction is finer than a nanosecond or has no end"),
        ("5124096h", "the number is too large"),
    ] {
        assert_eq!(duration(text), Err(reason.to_string()), "{text:?}");
    }
}

#[test]
fn times_are_written_with_the_largest_unit_that_divides_them() {
    for (nanoseconds, text) in [
        (0, "0s"),
        (1, "1ns"),
        (50_000, "50us"),
        (1_500_000_000, "1500ms"),
        (90_000_000_000, "90s"),
        (600_000_000_000, "10min"),
        (3_600_000_000_000, "1h"),
    ] {
        assert_eq!(format_duration(Duration::from_nanos(nanoseconds)), text);
    }
}

#[test]
fn flags_have_four_spellings_for_each_value() {
    for text in ["true", "1", "yes", "on", " TRUE "] {
        assert_eq!(flag(text), Ok(true), "{text:?}");
    }
    for text in ["false", "0", "no", "off", "No"] {
        assert_eq!(flag(text), Ok(false), "{text:?}");
    }
    for text in ["", "2", "y", "truee"] {
        assert_eq!(flag(text), Err("neither true nor false".to_string()), "{text:?}");
    }
}
