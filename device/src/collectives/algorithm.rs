//! Which algorithm an all-reduce among GPUs takes, and how many threads. Pure.

/// How ranks combine their data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// Every rank sends everything to every rank, data and mark in one store: one trip, but twice the bytes, each (ranks - 1)
    /// times.
    OneShot,
    /// Each rank combines its share where the ranks have it and writes the result to all: two meetings, the fewest bytes.
    TwoShot,
    /// For groups of ranks that map each other, such as those of a host, and for buffers outside the heap: data is combined
    /// within each group, then between the groups, and goes back the same way, through memory of the device's own, in pieces.
    TwoHop,
}

/// What two meetings of two-shot cost more than the one trip of one-shot, in nanoseconds, and what a link carries in a
/// nanosecond: both measured on two H200 (docs/device.md).
const MEETINGS_NS: f64 = 4500.0;
const BYTES_PER_NS: f64 = 360.0;

impl Algorithm {
    /// For `bytes` bytes on each of `size` ranks that map each other; one-shot takes up to `capacity`.
    ///
    /// One-shot sends 2 (size - 1) n bytes, two-shot moves 2 n (size - 1) / size each way.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    pub fn choose(size: usize, bytes: usize, capacity: usize) -> Self {
        let (n, others) = (bytes as f64, size as f64 - 1.0);
        let more = 2.0 * n * others * (1.0 - 1.0 / size as f64);
        if bytes <= capacity && more / BYTES_PER_NS <= MEETINGS_NS { Algorithm::OneShot } else { Algorithm::TwoShot }
    }

    /// Blocks, at most `most`, and threads of each, for one and two shots.
    pub(super) fn shape(self, size: usize, bytes: usize, most: u32) -> (u32, u32) {
        let blocks = |units: usize| u32::try_from(units).unwrap_or(u32::MAX).clamp(1, most);
        match self {
            // Few threads while each has one word; four words each once that would take more than half the processors.
            Algorithm::OneShot => {
                let words = bytes.div_ceil(8);
                match words {
                    0..=256 => (1, u32::try_from(words.next_multiple_of(32)).unwrap_or(256)),
                    257..=16_384 => (blocks(words.div_ceil(256)), 256),
                    _ => (blocks(words.div_ceil(4 * 512)), 512),
                }
            }
            Algorithm::TwoShot | Algorithm::TwoHop => (blocks((bytes / size).div_ceil(16 * 512)), 512),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_buffers_go_in_one_shot_and_the_more_ranks_the_smaller() {
        assert_eq!(Algorithm::choose(2, 8, 1 << 20), Algorithm::OneShot);
        assert_eq!(Algorithm::choose(2, 1 << 20, 1 << 20), Algorithm::OneShot);
        assert_eq!(Algorithm::choose(2, (1 << 20) + 8, 1 << 20), Algorithm::TwoShot);
        assert_eq!(Algorithm::choose(8, 64 << 10, 256 << 10), Algorithm::OneShot);
        assert_eq!(Algorithm::choose(8, 256 << 10, 256 << 10), Algorithm::TwoShot);
    }

    #[test]
    fn a_kernel_has_at_least_one_block_and_no_more_than_there_is_room_for() {
        for algorithm in [Algorithm::OneShot, Algorithm::TwoShot] {
            for bytes in [1, 8, 2048, 2056, 65536, 1 << 20, 1 << 28] {
                let (blocks, threads) = algorithm.shape(2, bytes, 132);
                assert!((1..=132).contains(&blocks) && (32..=512).contains(&threads), "{algorithm:?} {bytes}");
            }
        }
        assert_eq!(Algorithm::OneShot.shape(2, 8, 132), (1, 32));
        assert_eq!(Algorithm::OneShot.shape(2, 64 << 10, 132), (32, 256));
        assert_eq!(Algorithm::OneShot.shape(2, 1 << 20, 132), (64, 512));
        assert_eq!(Algorithm::TwoShot.shape(2, 1 << 28, 132), (132, 512));
    }
}
