//! What a latency test sends and how its times are summed up.

use std::time::Duration;

/// Message sizes in bytes.
pub const SIZES: [usize; 8] = [1, 8, 64, 512, 4096, 32_768, 262_144, 1_048_576];

/// Round trips that count, by message size: fewer of what takes longer.
#[must_use]
pub fn rounds(bytes: usize) -> usize {
    match bytes {
        0..=4096 => 1000,
        4097..=65_536 => 200,
        _ => 20,
    }
}

/// Round trips before those that count.
pub const WARM_UP: usize = 20;

/// The bytes of message number `round`: each differs from the one before in every place.
#[must_use]
pub fn payload(bytes: usize, round: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_u32.wrapping_mul(u32::try_from(round % 65_521).unwrap_or(0) + 1);
    let mut next = || {
        // xorshift32: no zero state, period 2^32 - 1.
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_le_bytes()[1]
    };
    (0..bytes).map(|_| next()).collect()
}

/// Adds a message to a checksum (FNV-1a, 64 bits).
#[must_use]
pub fn checksum(before: u64, message: &[u8]) -> u64 {
    message.iter().fold(before, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3))
}

/// The start of a [`checksum`].
pub const CHECKSUM_START: u64 = 0xCBF2_9CE4_8422_2325;

/// The head of the table whose rows [`line()`] gives.
pub const HEAD: &str = "     bytes     P50 us     P99 us     max us  checksum";

/// One line of the table: half round trips of one message size, and the checksum over all messages received.
///
/// # Panics
/// No time was taken.
#[must_use]
pub fn line(bytes: usize, mut round_trips: Vec<Duration>, checksum: u64) -> String {
    round_trips.sort_unstable();
    let half = |index: usize| round_trips[index].as_secs_f64() * 1e6 / 2.0;
    let last = round_trips.len() - 1;
    let (median, high) = (half(last / 2), half(last * 99 / 100));
    format!("{bytes:>10} {median:>10.2} {high:>10.2} {:>10.2}  {checksum:016x}", half(last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_message_is_unlike_the_next() {
        for bytes in [64, 4096] {
            let (one, next) = (payload(bytes, 3), payload(bytes, 4));
            let same = one.iter().zip(&next).filter(|(a, b)| a == b).count();
            assert!(same < bytes / 8, "{same} of {bytes}");
        }
    }

    #[test]
    fn a_checksum_changes_with_any_byte_and_with_order() {
        let sum = |messages: &[&[u8]]| messages.iter().fold(CHECKSUM_START, |sum, message| checksum(sum, message));
        assert_ne!(sum(&[b"ab"]), sum(&[b"ba"]));
        assert_ne!(sum(&[b"ab", b"c"]), sum(&[b"c", b"ab"]));
        // The published value for this text.
        assert_eq!(sum(&[b"foobar"]), 0x8594_4171_F739_67E8);
    }

    #[test]
    fn a_line_shows_median_ninety_ninth_percentile_and_worst() {
        let times = (1..=200).map(|n| Duration::from_micros(2 * n)).collect();
        assert_eq!(line(8, times, 10), "         8     100.00     198.00     200.00  000000000000000a");
    }
}
