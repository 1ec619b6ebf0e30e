//! Which entries are large enough to be sent: the k largest when the threshold is chosen, and those above it in the steps
//! after that. Pure.

use super::TopK;
use crate::operators::Number;
use half::{bf16, f16};
use spmd::element::Element;

/// Types of gradients: numbers of which one can be said to be larger than another, whatever their signs.
pub trait Gradient: Element + Number {
    /// Larger for larger absolute values; 0 for zeros alone. NaN is the largest, so that it is sent at once.
    #[must_use]
    fn magnitude(self) -> u64;
}

macro_rules! floats {
    ($($t:ty, $bits:ty);*) => {$(
        impl Gradient for $t {
            #[inline]
            fn magnitude(self) -> u64 {
                // Without its sign a float's bits are ordered as its value.
                u64::from(self.to_bits() & (<$bits>::MAX >> 1))
            }
        }
    )*};
}

floats!(f16, u16; bf16, u16; f32, u32; f64, u64);

macro_rules! integers {
    ($($t:ty)*) => {$(
        impl Gradient for $t {
            #[inline]
            fn magnitude(self) -> u64 {
                u64::from(self.unsigned_abs())
            }
        }
    )*};
}

integers!(i8 i16 i32 i64);

/// The threshold of one gradient.
#[derive(Debug)]
pub(super) struct Threshold {
    /// How many entries shall be sent.
    keep: usize,
    reuse: usize,
    /// The least magnitude that is sent; `None` before the first step.
    least: Option<u64>,
    /// Steps for which it has been used.
    age: usize,
    magnitudes: Vec<u64>,
}

impl Threshold {
    pub(super) fn new(length: usize, top_k: TopK) -> Result<Threshold, String> {
        let TopK { keep, reuse } = top_k;
        if !(keep > 0.0 && keep <= 1.0) {
            return Err(format!("the share to keep is {keep}: it must be above 0 and at most 1"));
        }
        #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        // At most `length`.
        let keep = (length as f64 * keep).ceil() as usize;
        Ok(Threshold { keep: keep.clamp(length.min(1), length), reuse, least: None, age: 0, magnitudes: Vec::new() })
    }

    /// The places of the entries to be sent, ascending. Zeros are never sent.
    pub(super) fn choose<T: Gradient>(&mut self, entries: &[T]) -> Vec<u32> {
        if let Some(least) = self.least.filter(|_| self.age < self.reuse) {
            let chosen = above(entries, least);
            if chosen.len() >= self.keep.div_ceil(2) && chosen.len() <= 2 * self.keep {
                self.age += 1;
                return chosen;
            }
        }
        let least = self.of_the_largest(entries);
        (self.least, self.age) = (Some(least), 1);
        above(entries, least)
    }

    /// The magnitude of the entry that is the last to be sent; at least 1.
    fn of_the_largest<T: Gradient>(&mut self, entries: &[T]) -> u64 {
        let Some(last) = self.keep.checked_sub(1) else { return 1 };
        self.magnitudes.clear();
        self.magnitudes.extend(entries.iter().map(|entry| entry.magnitude()));
        let (_, least, _) = self.magnitudes.select_nth_unstable_by(last, |a, b| b.cmp(a));
        (*least).max(1)
    }
}

fn above<T: Gradient>(entries: &[T], least: u64) -> Vec<u32> {
    (0u32..).zip(entries).filter(|(_, entry)| entry.magnitude() >= least).map(|(place, _)| place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn threshold(length: usize, keep: f64, reuse: usize) -> Threshold {
        Threshold::new(length, TopK { keep, reuse }).unwrap()
    }

    #[test]
    fn magnitudes_are_ordered_as_absolute_values() {
        for values in [&[0.0f32, -0.0], &[-1e-40, 1e-38], &[0.5, -1.0], &[3.0, f32::INFINITY], &[f32::MAX, f32::NAN]] {
            assert!(values[0].magnitude() <= values[1].magnitude(), "{values:?}");
        }
        assert_eq!((-0.0f64).magnitude(), 0);
        assert_eq!(i32::MIN.magnitude(), 1 << 31);
        assert!(f16::from_f32(-2.0).magnitude() > f16::from_f32(1.5).magnitude());
        assert!(bf16::from_f32(-2.0).magnitude() > bf16::from_f32(1.5).magnitude());
    }

    #[test]
    fn the_largest_are_chosen_whatever_their_signs_and_zeros_never() {
        let entries = [3, -90, 0, 7, 80, -1, 0, 2];
        assert_eq!(threshold(8, 0.25, 1).choose(&entries), [1, 4]);
        assert_eq!(threshold(8, 0.5, 1).choose(&entries), [0, 1, 3, 4]);
        assert_eq!(threshold(8, 1.0, 1).choose(&entries), [0, 1, 3, 4, 5, 7]);
        assert_eq!(threshold(8, 0.25, 1).choose(&[0i64; 8]), [0u32; 0]);
        assert_eq!(threshold(0, 0.25, 1).choose::<i32>(&[]), [0u32; 0]);
    }

    #[test]
    fn a_threshold_is_used_again_as_long_as_it_lets_about_as_much_through() {
        let mut threshold = threshold(10, 0.2, 3);
        assert_eq!(threshold.choose(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]), [8, 9]);
        // Still 9: three entries are above it, at most four may be.
        assert_eq!(threshold.choose(&[9, 2, 3, 4, 5, 6, 7, 8, 11, 10]), [0, 8, 9]);
        // Six would be: chosen anew, 14.
        assert_eq!(threshold.choose(&[9, 10, 11, 12, 13, 14, 15, 1, 1, 1]), [5, 6]);
        assert_eq!(threshold.choose(&[1, 1, 1, 1, 14, 1, 1, 1, 1, 1]), [4]);
        assert_eq!(threshold.choose(&[1, 1, 1, 1, 14, 1, 1, 1, 1, 20]), [4, 9]);
        // Used three times: chosen anew.
        assert_eq!(threshold.choose(&[1, 1, 1, 1, 14, 14, 1, 1, 1, 20]), [4, 5, 9]);
        assert_eq!(threshold.age, 1);
    }

    #[test]
    fn shares_outside_0_to_1_are_refused() {
        for keep in [0.0, -0.5, 1.1, f64::NAN] {
            let error = Threshold::new(10, TopK { keep, reuse: 1 }).unwrap_err();
            assert!(error.contains("above 0 and at most 1"), "{error}");
        }
        assert_eq!(threshold(1000, 0.0001, 1).keep, 1);
        assert_eq!(threshold(1000, 0.0101, 1).keep, 11);
    }
}
