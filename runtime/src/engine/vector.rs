//! A vector of elements of some type, for those who only know bytes: an operation owns it while it is under way.
//!
//! It is kept as a vector of the unsigned words that are aligned as its elements are: the same memory, so that neither
//! beginning nor ending an operation allocates anything.

use crate::element::{Element, as_bytes};
use bytemuck::allocation::{pod_collect_to_vec, try_cast_vec};

#[derive(Debug)]
pub(crate) struct AnyVec {
    words: Words,
    /// Bytes of an element. Elements without any count as one each, so that a message tells how many it has.
    width: usize,
}

/// The same memory, by alignment.
#[derive(Debug)]
enum Words {
    One(Vec<u8>),
    Two(Vec<u16>),
    Four(Vec<u32>),
    Eight(Vec<u64>),
    Sixteen(Vec<u128>),
}

/// Does the same with the vector of any width.
macro_rules! with_words {
    ($words:expr, $vector:ident => $result:expr) => {
        match $words {
            Words::One($vector) => $result,
            Words::Two($vector) => $result,
            Words::Four($vector) => $result,
            Words::Eight($vector) => $result,
            Words::Sixteen($vector) => $result,
        }
    };
}

impl Default for AnyVec {
    fn default() -> Self {
        AnyVec::new(Vec::<u8>::new())
    }
}

impl AnyVec {
    #[inline]
    pub(crate) fn new<T: Element>(elements: Vec<T>) -> Self {
        if size_of::<T>() == 0 {
            return AnyVec { words: Words::One(vec![0; elements.len()]), width: 1 };
        }
        let words = match align_of::<T>() {
            1 => try_cast_vec(elements).map(Words::One),
            2 => try_cast_vec(elements).map(Words::Two),
            4 => try_cast_vec(elements).map(Words::Four),
            8 => try_cast_vec(elements).map(Words::Eight),
            16 => try_cast_vec(elements).map(Words::Sixteen),
            // No word is aligned so.
            _ => Ok(Words::One(as_bytes(&elements).to_vec())),
        };
        // A capacity that is no whole number of words: there is none as long as elements are made of words.
        let words = words.unwrap_or_else(|(_, elements)| Words::One(as_bytes(&elements).to_vec()));
        AnyVec { words, width: size_of::<T>() }
    }

    /// The vector that it was made of, or one as long as it was made since.
    #[inline]
    pub(crate) fn into_elements<T: Element>(self) -> Vec<T> {
        if size_of::<T>() == 0 {
            return vec![T::zeroed(); self.bytes().len()];
        }
        // One that has grown may have room for a part of an element, and is copied then.
        with_words!(self.words, words => try_cast_vec(words).unwrap_or_else(|(_, words)| pod_collect_to_vec(&words)))
    }

    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        with_words!(&self.words, words => bytemuck::cast_slice(words))
    }

    #[inline]
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        with_words!(&mut self.words, words => bytemuck::cast_slice_mut(words))
    }

    /// Makes it exactly this long, with zeros at the end; `false` when that is no whole number of elements.
    pub(crate) fn resize(&mut self, bytes: usize) -> bool {
        if !bytes.is_multiple_of(self.width) {
            return false;
        }
        with_words!(&mut self.words, words => resize(words, bytes));
        true
    }
}

fn resize<W: Default + Clone>(words: &mut Vec<W>, bytes: usize) {
    let wanted = bytes / size_of::<W>();
    words.reserve_exact(wanted.saturating_sub(words.len()));
    words.resize(wanted, W::default());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
    #[repr(C, align(32))]
    struct Wide([u64; 4]);

    impl crate::element::private::Sealed for Wide {}
    impl Element for Wide {
        fn signature() -> crate::element::Signature {
            crate::element::Signature::of_name("Wide")
        }
    }

    /// Goes in, comes out as it was, and is `wanted` elements long after it was made so.
    fn survives<T: Element + PartialEq + std::fmt::Debug>(elements: Vec<T>, moves: bool, wanted: usize) {
        let (address, before) = (elements.as_ptr(), elements.clone());
        let vector = AnyVec::new(elements);
        assert_eq!(vector.bytes(), as_bytes(&before));
        let back = vector.into_elements::<T>();
        assert_eq!(back, before);
        assert!(moves || back.as_ptr() == address, "copied");

        let mut vector = AnyVec::new(back);
        let width = size_of::<T>();
        assert!(width == 1 || !vector.resize(wanted * width + 1));
        assert!(vector.resize(wanted * width));
        assert_eq!(vector.bytes().len(), wanted * width);
        vector.bytes_mut().fill(7);
        let longer = vector.into_elements::<T>();
        assert_eq!((longer.len(), as_bytes(&longer)), (wanted, &vec![7; wanted * width][..]));
    }

    #[test]
    fn elements_of_every_alignment_go_in_and_come_out_without_a_copy() {
        survives(vec![1_u8, 2, 3], false, 1000);
        survives(vec![-1_i16, 5], false, 1);
        survives(vec![1.5_f32; 100], false, 3);
        survives(vec![[1.0_f32, 2.0, 3.0]; 5], false, 77);
        survives(vec![u64::MAX, 4], false, 0);
        survives(vec![[1_u64, 2, 3]; 9], false, 10);
        survives(vec![i128::MIN; 2], false, 5);
        survives(vec![Wide([1, 2, 3, 4]); 3], true, 6);
        let mut with_room = Vec::with_capacity(10);
        with_room.push([7_u16; 5]);
        survives(with_room, false, 4);
    }

    #[test]
    fn elements_without_bytes_are_counted() {
        let mut vector = AnyVec::new(vec![[0_u64; 0]; 5]);
        assert_eq!(vector.bytes().len(), 5);
        assert!(vector.resize(9));
        assert_eq!(vector.into_elements::<[u64; 0]>().len(), 9);
    }
}
