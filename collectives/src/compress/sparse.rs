//! Lists of entries as bytes: all places, then all values. Pure.

use super::threshold::Gradient;
use spmd::element::{as_bytes, as_bytes_mut};

/// Bytes of one entry of a list.
const fn width<T>() -> usize {
    size_of::<u32>() + size_of::<T>()
}

/// Whether all leaders' lists together are larger than everything: lists go once round the ring of the leaders, everything
/// goes twice (the reduction, and the result).
pub(super) fn is_larger_than_dense<T>(entries: usize, length: usize) -> bool {
    entries.saturating_mul(width::<T>()) >= length.saturating_mul(2 * size_of::<T>())
}

/// Takes the entries at these places out, as a list: nothing of them is left.
pub(super) fn take<T: Gradient>(entries: &mut [T], places: &[u32]) -> Vec<u8> {
    let mut list = Vec::with_capacity(places.len() * width::<T>());
    list.extend_from_slice(as_bytes(places));
    for &place in places {
        let value = std::mem::replace(&mut entries[place as usize], T::zeroed());
        list.extend_from_slice(as_bytes(&[value]));
    }
    list
}

/// Adds the entries of a list that has come from another rank.
pub(super) fn add<T: Gradient>(total: &mut [T], list: &[u8]) -> Result<(), String> {
    if !list.len().is_multiple_of(width::<T>()) {
        return Err(format!("{} bytes are no list", list.len()));
    }
    let (places, values) = list.split_at(list.len() / width::<T>() * size_of::<u32>());
    let length = total.len();
    for (place, bytes) in places.chunks_exact(size_of::<u32>()).zip(values.chunks_exact(size_of::<T>())) {
        let (mut at, mut value) = ([0u32], [T::zeroed()]);
        as_bytes_mut(&mut at).copy_from_slice(place);
        as_bytes_mut(&mut value).copy_from_slice(bytes);
        let at = at[0] as usize;
        let sum = total.get_mut(at).ok_or_else(|| format!("place {at} of {length}"))?;
        *sum = sum.sum(value[0]);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_out_of_one_is_added_to_another() {
        let mut from = [5i16, -3, 0, 7];
        let list = take(&mut from, &[0, 3]);
        assert_eq!((from, list.len()), ([0, -3, 0, 0], 12));
        let mut total = [1i16; 4];
        add(&mut total, &list).unwrap();
        assert_eq!(total, [6, 1, 1, 8]);
        add(&mut total, &[]).unwrap();
        assert_eq!(total, [6, 1, 1, 8]);
    }

    #[test]
    fn a_list_of_a_longer_gradient_is_refused() {
        let list = take(&mut [1.5f64; 9], &[8]);
        assert_eq!(add(&mut [0.0f64; 8], &list).unwrap_err(), "place 8 of 8");
        assert!(add(&mut [0.0f64; 8], &list[1..]).unwrap_err().contains("11 bytes are no list"));
    }

    #[test]
    fn lists_are_larger_than_everything_from_a_share_on_that_depends_on_the_type() {
        // 12 bytes an entry against 16 an element, 8 against 8, 6 against 4.
        assert!(!is_larger_than_dense::<f64>(133, 100) && is_larger_than_dense::<f64>(134, 100));
        assert!(!is_larger_than_dense::<f32>(99, 100) && is_larger_than_dense::<f32>(100, 100));
        assert!(!is_larger_than_dense::<half::bf16>(66, 100) && is_larger_than_dense::<half::bf16>(67, 100));
    }
}
