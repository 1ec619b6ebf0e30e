//! What may be sent: fixed-size values without padding, each type with a signature that both sides compare.

use bytemuck::Pod;
use half::{bf16, f16};
use num_complex::Complex;
use std::fmt;

/// Identifies an element type on the wire: equal for types with the same fields in the same order.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Signature(pub u32);

impl fmt::Debug for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Signature({:08x})", self.0)
    }
}

impl Signature {
    /// The signature of a name, for primitive types.
    #[must_use]
    pub const fn of_name(name: &str) -> Self {
        let mut signature = Signature(0x811c_9dc5);
        let bytes = name.as_bytes();
        let mut i = 0;
        while i < bytes.len() {
            signature = signature.byte(bytes[i]);
            i += 1;
        }
        signature
    }

    /// Appends the signature of a field.
    #[must_use]
    pub const fn with(self, field: Signature) -> Self {
        let bytes = field.0.to_le_bytes();
        self.byte(bytes[0]).byte(bytes[1]).byte(bytes[2]).byte(bytes[3])
    }

    /// The signature of a number of elements.
    const fn of_length(length: usize) -> Self {
        let mut signature = Signature::of_name("length");
        let bytes = length.to_le_bytes();
        let mut i = 0;
        while i < bytes.len() {
            signature = signature.byte(bytes[i]);
            i += 1;
        }
        signature
    }

    /// One step of the 32-bit FNV-1a hash (Fowler, Noll, Vo).
    const fn byte(self, byte: u8) -> Self {
        Signature((self.0 ^ byte as u32).wrapping_mul(0x0100_0193))
    }
}

/// A type whose values can be sent, received and reduced: every bit pattern is a value and there is no padding.
///
/// Implemented for the integers, `f32`, `f64`, `half::f16` and `half::bf16`, complex numbers and arrays of elements. For structs of elements
/// use `#[derive(Element)]`; the trait cannot be implemented by hand.
///
/// ```
/// use spmd::Element;
///
/// #[derive(Clone, Copy, Element)]
/// #[repr(C)]
/// struct Particle {
///     position: [f64; 3],
///     mass: f64,
/// }
/// assert_ne!(Particle::signature(), <[f64; 4]>::signature());
/// ```
pub trait Element: Pod + Send + Sync + private::Sealed {
    /// The type's signature: sender and receiver compare it.
    fn signature() -> Signature;
}

/// What the derive macro needs and nobody else should use.
#[doc(hidden)]
pub mod private {
    pub use bytemuck;

    /// Only the derive macro implements this.
    pub trait Sealed {}
}

macro_rules! primitive {
    ($($type:ty),*) => {$(
        impl private::Sealed for $type {}
        impl Element for $type {
            fn signature() -> Signature {
                const SIGNATURE: Signature = Signature::of_name(stringify!($type));
                SIGNATURE
            }
        }
    )*};
}

/// Calls a macro with every type that is an element by itself.
macro_rules! with_primitives {
    ($macro:ident) => {
        $macro!(
            u8,
            i8,
            u16,
            i16,
            u32,
            i32,
            u64,
            i64,
            u128,
            i128,
            usize,
            isize,
            f16,
            bf16,
            f32,
            f64,
            Complex<f32>,
            Complex<f64>
        );
    };
}

with_primitives!(primitive);

impl<T: Element, const N: usize> private::Sealed for [T; N] {}
impl<T: Element, const N: usize> Element for [T; N] {
    fn signature() -> Signature {
        Signature::of_name("array").with(Signature::of_length(N)).with(T::signature())
    }
}

/// The name of a signature where it is a primitive type's, else its number: for error messages.
pub(crate) fn describe(signature: Signature) -> String {
    macro_rules! known {
        ($($type:ty),*) => {$(
            if signature == <$type>::signature() {
                return stringify!($type).replace(" ", "");
            }
        )*};
    }
    with_primitives!(known);
    format!("type {:08x}", signature.0)
}

/// The bytes of a slice of elements.
pub fn as_bytes<T: Element>(elements: &[T]) -> &[u8] {
    bytemuck::cast_slice(elements)
}

/// The bytes of a slice of elements, to be written.
pub fn as_bytes_mut<T: Element>(elements: &mut [T]) -> &mut [u8] {
    bytemuck::cast_slice_mut(elements)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_primitive_has_a_signature_of_its_own() {
        let mut all = vec![<[f64; 2]>::signature(), <[f64; 3]>::signature()];
        macro_rules! add {
            ($($type:ty),*) => {
                all.extend([$(<$type>::signature()),*]);
            };
        }
        with_primitives!(add);
        for (i, a) in all.iter().enumerate() {
            assert!(all[i + 1..].iter().all(|b| b != a), "{i}");
        }
    }

    #[test]
    fn a_mismatch_is_described_by_the_type_s_name() {
        assert_eq!(describe(f64::signature()), "f64");
        assert_eq!(describe(Complex::<f32>::signature()), "Complex<f32>");
    }
}
