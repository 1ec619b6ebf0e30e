//! The mathematics of the examples: data, model, grid, statistics. No communication: the programs beside this folder
//! add it, over `spmd` or over MPI, so that both compute the same.

pub mod digits;
pub mod heat;
pub mod latency;
pub mod softmax;

use std::ops::Range;

/// The share of `total` items that falls to `rank` of `size`: contiguous, in rank order, sizes differing by one at most.
///
/// # Panics
/// `size` is zero.
#[must_use]
pub fn share(total: usize, rank: usize, size: usize) -> Range<usize> {
    total * rank / size..total * (rank + 1) / size
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn shares_cover_everything_once_and_differ_by_one_at_most() {
        for total in [0, 1, 7, 96, 1438] {
            for size in [1, 2, 3, 8, 96, 200] {
                let shares: Vec<_> = (0..size).map(|rank| share(total, rank, size)).collect();
                assert_eq!(shares.iter().flat_map(Clone::clone).collect::<Vec<_>>(), (0..total).collect::<Vec<_>>());
                let lengths = shares.iter().map(ExactSizeIterator::len);
                assert!(lengths.clone().max().unwrap_or(0) - lengths.min().unwrap_or(0) <= 1, "{total} over {size}");
            }
        }
    }
}
