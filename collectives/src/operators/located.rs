//! The least or greatest value together with where it was found (MPI's MINLOC and MAXLOC).

use super::{Max, Min, Op, Ordered};
use spmd::Element;
use std::cmp::Ordering;

/// A value and the place that it came from: what [`MinAt`] and [`MaxAt`] combine.
///
/// Implemented for the four structs here; a program may implement it for an [`Element`] of its own.
pub trait Located: Copy {
    /// What is compared.
    type Value: Ordered + PartialOrd;
    /// The value.
    fn value(&self) -> Self::Value;
    /// Its place, for example the rank that found it.
    fn place(&self) -> u64;
}

macro_rules! located {
    ($($(#[$doc:meta])* $name:ident, $value:ty, $place:ty;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Element)]
        #[repr(C)]
        pub struct $name {
            /// The value.
            pub value: $value,
            /// Its place, for example the rank that found it.
            pub place: $place,
        }

        impl Located for $name {
            type Value = $value;
            fn value(&self) -> $value {
                self.value
            }
            fn place(&self) -> u64 {
                u64::from(self.place)
            }
        }
    )*};
}

located! {
    /// A number of single precision and its place.
    LocatedF32, f32, u32;
    /// A number of double precision and its place.
    LocatedF64, f64, u64;
    /// An integer of 32 bits and its place.
    LocatedI32, i32, u32;
    /// An integer of 64 bits and its place.
    LocatedI64, i64, u64;
}

/// The least value and its place; of equal ones the lowest place. A NaN wins over every number, and of zeros −0 over +0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct MinAt;

/// The greatest value and its place; of equal ones the lowest place. A NaN wins over every number, and of zeros +0 over
/// −0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct MaxAt;

/// Which of two has the value that `wins` gives for both.
fn better<L: Located>(left: L, right: L, wins: impl Fn(L::Value, L::Value) -> L::Value) -> L {
    let (a, b) = (left.value(), right.value());
    let winner = wins(a, b);
    match (a.same(winner), b.same(winner)) {
        (true, false) => left,
        (false, true) => right,
        _ => match left.place().cmp(&right.place()) {
            Ordering::Greater => right,
            _ => left,
        },
    }
}

impl<L: Located> Op<L> for MinAt {
    fn combine(&self, left: L, right: L) -> L {
        better(left, right, |a, b| Min.combine(a, b))
    }

    fn name(&self) -> &'static str {
        "MinAt"
    }
}

impl<L: Located> Op<L> for MaxAt {
    fn combine(&self, left: L, right: L) -> L {
        better(left, right, |a, b| Max.combine(a, b))
    }

    fn name(&self) -> &'static str {
        "MaxAt"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(value: f64, place: u64) -> LocatedF64 {
        LocatedF64 { value, place }
    }

    #[test]
    fn the_place_of_the_least_and_of_the_greatest_value_is_kept() {
        assert_eq!(MinAt.combine(at(2.0, 0), at(1.0, 7)), at(1.0, 7));
        assert_eq!(MaxAt.combine(at(2.0, 3), at(1.0, 7)), at(2.0, 3));
        let (a, b) = (LocatedI32 { value: -4, place: 9 }, LocatedI32 { value: -4, place: 2 });
        assert_eq!((MinAt.combine(a, b), MaxAt.combine(a, b)), (b, b), "the lowest place of equal values");
    }

    #[test]
    fn the_result_does_not_depend_on_the_order_even_with_nan_and_signed_zeros() {
        let values = [at(f64::NAN, 4), at(0.0, 1), at(-0.0, 3), at(f64::NAN, 2), at(-0.0, 0), at(1.0, 5)];
        let same = |a: LocatedF64, b: LocatedF64| a.value.to_bits() == b.value.to_bits() && a.place == b.place;
        for a in values {
            for b in values {
                assert!(same(MinAt.combine(a, b), MinAt.combine(b, a)), "{a:?} {b:?}");
                for c in values {
                    for op in [&MinAt as &dyn Op<LocatedF64>, &MaxAt] {
                        let (left, right) = (op.combine(op.combine(a, b), c), op.combine(a, op.combine(b, c)));
                        assert!(same(left, right), "{a:?} {b:?} {c:?}: {left:?} {right:?}");
                    }
                }
            }
        }
        assert_eq!(MinAt.combine(at(f64::NAN, 4), at(-1.0, 0)).place, 4);
        assert_eq!(MinAt.combine(at(0.0, 0), at(-0.0, 9)).place, 9);
        assert_eq!(MaxAt.combine(at(-0.0, 0), at(0.0, 9)).place, 9);
    }
}
