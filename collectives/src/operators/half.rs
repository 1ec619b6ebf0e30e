//! 16-bit floats: computed in `f32` and rounded back to nearest, ties to even.
//!
//! The conversions are written without branches, so that loops over slices become vector instructions on every
//! processor; those of the crate `half` are made for single values.

use super::numbers::{Number, Ordered, sealed};
use half::{bf16, f16};

/// `bf16` is the upper half of an `f32`.
#[inline(always)]
fn widen_bf16(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

#[inline(always)]
#[allow(clippy::cast_possible_truncation)] // After the shift 16 bits are left.
fn narrow_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1));
    // The carry of rounding could turn a NaN into an infinity.
    let bits = if value.is_nan() { 0x7fc0_0000 } else { rounded };
    (bits >> 16) as u16
}

/// The exponent is moved by a multiplication with 2^112, which subnormal numbers need.
#[inline(always)]
fn widen_f16(bits: u16) -> f32 {
    let bits = u32::from(bits);
    let (sign, magnitude) = ((bits & 0x8000) << 16, (bits & 0x7fff) << 13);
    let finite = (f32::from_bits(magnitude) * f32::from_bits((127 + 112) << 23)).to_bits();
    let magnitude = if magnitude < 0x7c00 << 13 { finite } else { magnitude | 0x7f80_0000 };
    f32::from_bits(sign | magnitude)
}

/// After F. Giesen's `float_to_half_fast3_rtne`: normal results by integer rounding, subnormal ones by the rounding of an
/// addition.
#[inline(always)]
#[allow(clippy::cast_possible_truncation)] // Sign and magnitude are in the lower 16 bits.
fn narrow_f16(value: f32) -> u16 {
    const INFINITY: u32 = 0x7f80_0000;
    /// The smallest `f32` that is too large: 65,536.
    const TOO_LARGE: u32 = (127 + 16) << 23;
    /// The smallest normal `f16`, 2^-14.
    const NORMAL: u32 = (127 - 14) << 23;
    /// Added to a number below that, it leaves a subnormal's bits at the end of the mantissa.
    const SUBNORMAL: u32 = (127 - 1) << 23;
    let bits = value.to_bits();
    let (sign, magnitude) = (bits >> 16 & 0x8000, bits & 0x7fff_ffff);
    let odd = magnitude >> 13 & 1;
    let normal = magnitude.wrapping_sub((127 - 15) << 23).wrapping_add(0xfff + odd) >> 13;
    let subnormal = (f32::from_bits(magnitude) + f32::from_bits(SUBNORMAL)).to_bits().wrapping_sub(SUBNORMAL);
    let large = if magnitude > INFINITY { 0x7e00 } else { 0x7c00 };
    let finite = if magnitude < NORMAL { subnormal } else { normal };
    (sign | if magnitude < TOO_LARGE { finite } else { large }) as u16
}

macro_rules! halves {
    ($($t:ident, $widen:ident, $narrow:ident;)*) => {$(
        impl sealed::Sealed for $t {}

        impl Number for $t {
            #[inline(always)]
            fn sum(self, other: Self) -> Self {
                $t::from_bits($narrow($widen(self.to_bits()) + $widen(other.to_bits())))
            }
            #[inline(always)]
            fn product(self, other: Self) -> Self {
                $t::from_bits($narrow($widen(self.to_bits()) * $widen(other.to_bits())))
            }
        }

        impl Ordered for $t {
            #[inline(always)]
            fn minimum(self, other: Self) -> Self {
                $t::from_bits($narrow(Ordered::minimum($widen(self.to_bits()), $widen(other.to_bits()))))
            }
            #[inline(always)]
            fn maximum(self, other: Self) -> Self {
                $t::from_bits($narrow(Ordered::maximum($widen(self.to_bits()), $widen(other.to_bits()))))
            }
            #[inline]
            fn same(self, other: Self) -> bool {
                self.to_bits() == other.to_bits() || self.is_nan() && other.is_nan()
            }
        }
    )*};
}

halves! {
    f16, widen_f16, narrow_f16;
    bf16, widen_bf16, narrow_bf16;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every value of 16 bits, and of 32 bits those around each of them and between.
    fn every_rounding(check: impl Fn(f32)) {
        for bits in 0..=u16::MAX {
            for wide in [f16::from_bits(bits).to_f32(), bf16::from_bits(bits).to_f32()] {
                for near in -3i32..=3 {
                    check(f32::from_bits(wide.to_bits().wrapping_add_signed(near)));
                    // Half-way to the next one of either kind, and just beside it.
                    check(f32::from_bits(wide.to_bits().wrapping_add_signed((1 << 12) + near)));
                    check(f32::from_bits(wide.to_bits().wrapping_add_signed((1 << 15) + near)));
                }
            }
        }
    }

    #[test]
    fn all_65536_values_widen_as_in_the_crate_half() {
        for bits in 0..=u16::MAX {
            let (found, expected) = (widen_f16(bits), f16::from_bits(bits).to_f32());
            assert!(found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan(), "f16 {bits:04x}");
            let (found, expected) = (widen_bf16(bits), bf16::from_bits(bits).to_f32());
            assert!(found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan(), "bf16 {bits:04x}");
        }
    }

    #[test]
    fn values_are_rounded_to_nearest_ties_to_even_as_in_the_crate_half() {
        every_rounding(|value| {
            let (found, expected) = (f16::from_bits(narrow_f16(value)), f16::from_f32(value));
            assert!(found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan(), "f16 of {value:e}");
            let (found, expected) = (bf16::from_bits(narrow_bf16(value)), bf16::from_f32(value));
            assert!(found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan(), "bf16 of {value:e}");
        });
    }

    #[test]
    fn results_are_those_of_f32_rounded() {
        let values = [0.0, -0.0, 1.0, -1.5, 0.1, 3.0e-5, -6.0e-8, 65504.0, -60000.0, f32::INFINITY, f32::NAN];
        for a in values.map(f16::from_f32) {
            for b in values.map(f16::from_f32) {
                let expected = [a.to_f32() + b.to_f32(), a.to_f32() * b.to_f32()].map(f16::from_f32);
                for (found, expected) in [a.sum(b), a.product(b)].into_iter().zip(expected) {
                    assert!(found == expected || found.is_nan() && expected.is_nan(), "{a} and {b}");
                }
                assert_eq!(a.minimum(b).is_nan(), a.is_nan() || b.is_nan());
            }
        }
        let (minus, plus) = (bf16::from_f32(-0.0), bf16::from_f32(0.0));
        assert_eq!(plus.minimum(minus).to_bits(), minus.to_bits());
        assert_eq!(minus.maximum(plus).to_bits(), plus.to_bits());
    }
}
