//! What a reduction does with two values: the built-in operators, user functions, and the loops over slices.
//!
//! Knows nothing of ranks or schedules: on which side an operand stands is all it is told.
//!
//! Rules of the built-in operators:
//!
//! - **Integers wrap.** [`Sum`] and [`Product`] of integers are modulo two to the number of bits, in debug builds too,
//!   so that the result does not depend on the order in which ranks are combined.
//! - **[`Min`] and [`Max`] of floats are `minimum` and `maximum` of IEEE 754-2019**: a NaN in any operand gives NaN
//!   (the canonical quiet one, `f32::NAN`, whatever the operand's payload), and −0 is less than +0. So the result does
//!   not depend on the order either. (`f32::min` is the other operation, `minimumNumber`, which drops NaN.)
//! - **`f16` and `bf16`** are combined as `f32` and rounded to nearest, ties to even, after each operation.
//! - **[`Sum`] and [`Product`] of floats round after each operation**, so their bits depend on the algorithm and the
//!   number of ranks; for one algorithm and one number of ranks they are the same from run to run and on every rank.
//!   Of a NaN result only that it is NaN is certain, not its payload.

mod half;
mod located;
mod numbers;

pub use located::{Located, LocatedF32, LocatedF64, LocatedI32, LocatedI64, MaxAt, MinAt};
pub use numbers::{Bits, Number, Ordered};

use crate::schedule::Side;
use pulp::NullaryFnOnce;
use std::fmt;

/// A binary, associative operator on values of type `T`, applied element by element.
pub trait Op<T: Copy> {
    /// `left op right`. When the operator does not commute, `left` comes from lower ranks than `right`.
    fn combine(&self, left: T, right: T) -> T;

    /// Whether `combine(a, b)` equals `combine(b, a)`, which lets more algorithms be used.
    fn is_commutative(&self) -> bool {
        true
    }

    /// Its name, by which ranks find out that they call with different operators: that of its type.
    fn name(&self) -> &'static str {
        std::any::type_name::<Self>()
    }

    /// Combines `operand`, standing on `side`, into `into`, element by element.
    ///
    /// The slices have the same length; elements beyond the shorter one are left alone.
    fn apply(&self, into: &mut [T], operand: &[T], side: Side) {
        let work = Combine { op: self, into, operand, side };
        // Choosing among processors costs more than it gains for a few elements.
        if work.into.len() < 32 { work.call() } else { pulp::Arch::new().dispatch(work) }
    }
}

/// The loop over two slices, compiled for several generations of processors: the same operations one by one, and so the
/// same bits, in wider vectors. All of it must be inlined, or it stays in the narrow ones.
struct Combine<'a, T, O: ?Sized> {
    op: &'a O,
    into: &'a mut [T],
    operand: &'a [T],
    side: Side,
}

impl<T: Copy, O: Op<T> + ?Sized> NullaryFnOnce for Combine<'_, T, O> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Combine { op, into, operand, side } = self;
        // Two plain loops rather than one with a choice inside, so that the compiler vectorises both.
        match side {
            Side::Left => into.iter_mut().zip(operand).for_each(
                #[inline(always)]
                |(into, &left)| *into = op.combine(left, *into),
            ),
            Side::Right => into.iter_mut().zip(operand).for_each(
                #[inline(always)]
                |(into, &right)| *into = op.combine(*into, right),
            ),
        }
    }
}

macro_rules! built_in {
    ($(#[$doc:meta])* $name:ident, $class:ident, $method:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct $name;

        impl<T: $class> Op<T> for $name {
            #[inline(always)]
            fn combine(&self, left: T, right: T) -> T {
                left.$method(right)
            }

            fn name(&self) -> &'static str {
                stringify!($name)
            }
        }
    };
}

built_in!(
    /// The sum: integers (wrapping), floats and complex numbers.
    Sum, Number, sum
);
built_in!(
    /// The product: integers (wrapping), floats and complex numbers.
    Product, Number, product
);
built_in!(
    /// The least value: integers and floats (NaN and signed zeros: IEEE 754-2019 `minimum`, see the module).
    Min, Ordered, minimum
);
built_in!(
    /// The greatest value: integers and floats (NaN and signed zeros: IEEE 754-2019 `maximum`, see the module).
    Max, Ordered, maximum
);
built_in!(
    /// The bits set in all values of integers.
    BitAnd, Bits, bit_and
);
built_in!(
    /// The bits set in any value of integers.
    BitOr, Bits, bit_or
);
built_in!(
    /// The bits set in an odd number of values of integers.
    BitXor, Bits, bit_xor
);

/// A user's operator; see [`custom`].
#[derive(Clone, Copy)]
pub struct Custom<F> {
    function: F,
    commutative: bool,
}

/// An operator out of a function of two values, which must be associative.
///
/// It is not assumed to commute: values are combined in the order of the ranks, by the algorithms that keep it. Say
/// [`Custom::commutative`] when the order does not matter, and all algorithms may be used.
///
/// ```
/// use spmd_collectives::operators::{Op, custom};
///
/// // Composition of the maps x -> a x + b, each a pair (a, b).
/// let compose = custom(|f: [i64; 2], g: [i64; 2]| [f[0] * g[0], f[0] * g[1] + f[1]]);
/// assert_eq!(compose.combine([2, 1], [3, 5]), [6, 11]);
/// assert!(!compose.is_commutative());
///
/// let gcd = custom(|mut a: u64, mut b: u64| {
///     while b != 0 {
///         (a, b) = (b, a % b);
///     }
///     a
/// });
/// assert!(gcd.commutative().is_commutative());
/// ```
pub fn custom<T: Copy, F: Fn(T, T) -> T>(function: F) -> Custom<F> {
    Custom { function, commutative: false }
}

impl<F> Custom<F> {
    /// Declares that the order of the operands does not matter.
    #[must_use]
    pub fn commutative(mut self) -> Self {
        self.commutative = true;
        self
    }
}

impl<F> fmt::Debug for Custom<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Custom").field("commutative", &self.commutative).finish_non_exhaustive()
    }
}

impl<T: Copy, F: Fn(T, T) -> T> Op<T> for Custom<F> {
    fn combine(&self, left: T, right: T) -> T {
        (self.function)(left, right)
    }

    fn is_commutative(&self) -> bool {
        self.commutative
    }

    /// The function's path: closures of one function of a program share theirs.
    fn name(&self) -> &'static str {
        std::any::type_name::<F>()
    }
}

macro_rules! by_reference {
    ($($pointer:ty),*) => {$(
        impl<T: Copy, O: Op<T> + ?Sized> Op<T> for $pointer {
            fn combine(&self, left: T, right: T) -> T {
                (**self).combine(left, right)
            }

            fn is_commutative(&self) -> bool {
                (**self).is_commutative()
            }

            fn name(&self) -> &'static str {
                (**self).name()
            }

            fn apply(&self, into: &mut [T], operand: &[T], side: Side) {
                (**self).apply(into, operand, side);
            }
        }
    )*};
}

by_reference!(&O, Box<O>);

#[cfg(test)]
mod tests {
    use super::*;
    use num_complex::Complex;

    /// Every result of combining the values in some order and with some brackets (neighbours first or last).
    fn all_orders(values: &[f64], op: &dyn Op<f64>) -> Vec<u64> {
        if values.len() == 1 {
            return vec![values[0].to_bits()];
        }
        let mut results = Vec::new();
        for index in 0..values.len() {
            let mut rest = values.to_vec();
            let value = rest.remove(index);
            for other in all_orders(&rest, op) {
                results.push(op.combine(value, f64::from_bits(other)).to_bits());
                results.push(op.combine(f64::from_bits(other), value).to_bits());
            }
        }
        results
    }

    #[test]
    fn min_and_max_of_floats_do_not_depend_on_the_order() {
        let odd_nan = f64::from_bits(f64::NAN.to_bits() | 0x8000_0000_0000_1234);
        let infinity = f64::INFINITY;
        for (values, least, greatest) in [
            (&[1.0, f64::NAN, -0.0, 0.0, infinity][..], f64::NAN, f64::NAN),
            (&[1.0, odd_nan, -0.0, 0.0, -infinity], f64::NAN, f64::NAN),
            (&[odd_nan, odd_nan], f64::NAN, f64::NAN),
            (&[0.0, -0.0, 0.0], -0.0, 0.0),
            (&[1.0, -0.0, 0.0, infinity, -infinity], -infinity, infinity),
            (&[-1.0, -0.0, -2.5], -2.5, -0.0),
            (&[5e-324, 0.0, 2.0], 0.0, 2.0),
        ] {
            for bits in all_orders(values, &Min) {
                assert_eq!(bits, least.to_bits(), "minimum of {values:?}");
            }
            for bits in all_orders(values, &Max) {
                assert_eq!(bits, greatest.to_bits(), "maximum of {values:?}");
            }
        }
    }

    #[test]
    fn min_and_max_agree_with_plain_comparison_where_there_is_neither_nan_nor_zero() {
        let values = [-3.5f32, -1.0, 1e-40, 0.25, 7.0, f32::MAX, f32::MIN, f32::INFINITY];
        for a in values {
            for b in values {
                assert_eq!(Min.combine(a, b), if a < b { a } else { b });
                assert_eq!(Max.combine(a, b), if a > b { a } else { b });
            }
        }
        assert_eq!(Min.combine(i8::MIN, i8::MAX), i8::MIN);
        assert_eq!(Max.combine(u64::MIN, u64::MAX), u64::MAX);
    }

    #[test]
    fn integers_wrap() {
        assert_eq!(Sum.combine(u8::MAX, 2), 1);
        assert_eq!(Sum.combine(i32::MAX, 1), i32::MIN);
        assert_eq!(Product.combine(i64::MIN, -1), i64::MIN);
        assert_eq!(Product.combine(1u128 << 100, 1 << 100), 0);
    }

    #[test]
    fn complex_numbers_add_and_multiply() {
        let (a, b) = (Complex::new(1.0f32, 2.0), Complex::new(3.0, -1.0));
        assert_eq!(Sum.combine(a, b), Complex::new(4.0, 1.0));
        assert_eq!(Product.combine(a, b), Complex::new(5.0, 5.0));
    }

    #[test]
    fn bits_are_combined() {
        assert_eq!(BitAnd.combine(0b1100u8, 0b1010), 0b1000);
        assert_eq!(BitOr.combine(0b1100i16, 0b1010), 0b1110);
        assert_eq!(BitXor.combine(0b1100usize, 0b1010), 0b0110);
    }

    #[test]
    fn the_side_of_the_operand_is_kept() {
        let minus = custom(|a: i32, b: i32| a - b);
        let mut values = [10, 20, 30];
        minus.apply(&mut values, &[1, 2, 3], Side::Right);
        assert_eq!(values, [9, 18, 27]);
        minus.apply(&mut values, &[1, 2, 3], Side::Left);
        assert_eq!(values, [-8, -16, -24]);
    }
}
