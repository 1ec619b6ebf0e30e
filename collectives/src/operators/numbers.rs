//! The element types of the built-in operators and what each operator does with them.

use num_complex::Complex;

pub(super) mod sealed {
    pub trait Sealed {}
}

/// Types that can be added and multiplied: integers (wrapping), floats, complex numbers.
pub trait Number: Copy + sealed::Sealed {
    /// The sum.
    #[must_use]
    fn sum(self, other: Self) -> Self;
    /// The product.
    #[must_use]
    fn product(self, other: Self) -> Self;
}

/// Types in order: integers and floats.
pub trait Ordered: Copy + sealed::Sealed {
    /// The smaller one.
    #[must_use]
    fn minimum(self, other: Self) -> Self;
    /// The greater one.
    #[must_use]
    fn maximum(self, other: Self) -> Self;
    /// Whether both are the same value: zeros of different sign are not, NaNs are.
    #[must_use]
    fn same(self, other: Self) -> bool;
}

/// Types that are a row of bits: integers.
pub trait Bits: Copy + sealed::Sealed {
    /// Bits set in both.
    #[must_use]
    fn bit_and(self, other: Self) -> Self;
    /// Bits set in either.
    #[must_use]
    fn bit_or(self, other: Self) -> Self;
    /// Bits set in one but not both.
    #[must_use]
    fn bit_xor(self, other: Self) -> Self;
}

macro_rules! integers {
    ($($t:ty)*) => {$(
        impl sealed::Sealed for $t {}

        impl Number for $t {
            #[inline]
            fn sum(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            #[inline]
            fn product(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
        }

        impl Ordered for $t {
            #[inline]
            fn minimum(self, other: Self) -> Self {
                self.min(other)
            }
            #[inline]
            fn maximum(self, other: Self) -> Self {
                self.max(other)
            }
            #[inline]
            fn same(self, other: Self) -> bool {
                self == other
            }
        }

        impl Bits for $t {
            #[inline]
            fn bit_and(self, other: Self) -> Self {
                self & other
            }
            #[inline]
            fn bit_or(self, other: Self) -> Self {
                self | other
            }
            #[inline]
            fn bit_xor(self, other: Self) -> Self {
                self ^ other
            }
        }
    )*};
}

integers!(u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize);

macro_rules! floats {
    ($($t:ty)*) => {$(
        impl sealed::Sealed for $t {}

        impl Number for $t {
            #[inline]
            fn sum(self, other: Self) -> Self {
                self + other
            }
            #[inline]
            fn product(self, other: Self) -> Self {
                self * other
            }
        }

        // Choices between values rather than branches, so that the loops over slices vectorise.
        impl Ordered for $t {
            #[inline]
            fn minimum(self, other: Self) -> Self {
                let less = if self < other { self } else { other };
                // Equal values differ in their sign at most, and then they are zeros: either sign bit gives −0.
                let less = if self == other { Self::from_bits(self.to_bits() | other.to_bits()) } else { less };
                if self.is_nan() | other.is_nan() { Self::NAN } else { less }
            }
            #[inline]
            fn maximum(self, other: Self) -> Self {
                let greater = if self > other { self } else { other };
                let greater = if self == other { Self::from_bits(self.to_bits() & other.to_bits()) } else { greater };
                if self.is_nan() | other.is_nan() { Self::NAN } else { greater }
            }
            #[inline]
            fn same(self, other: Self) -> bool {
                self.to_bits() == other.to_bits() || self.is_nan() && other.is_nan()
            }
        }

        impl sealed::Sealed for Complex<$t> {}

        impl Number for Complex<$t> {
            #[inline]
            fn sum(self, other: Self) -> Self {
                self + other
            }
            #[inline]
            fn product(self, other: Self) -> Self {
                self * other
            }
        }
    )*};
}

floats!(f32 f64);
