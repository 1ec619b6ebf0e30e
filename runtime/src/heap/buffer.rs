//! Buffers of a symmetric heap: the same place on every rank; and what moves bytes between them.

use super::{Inner, Reach, SymmetricHeap};
use crate::{
    element::{self, Element},
    engine::{direct::HeapPlace, one_sided::GET},
    error::{Error, Result},
};
use std::{
    fmt,
    marker::PhantomData,
    ops::{Bound, Range, RangeBounds},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// The elements of a buffer of `length` that a range names.
///
/// # Panics
/// When they are not within `0..length`.
#[must_use]
pub fn part(range: impl RangeBounds<usize>, length: usize) -> Range<usize> {
    // A bound beyond all numbers is beyond the buffer, too.
    let start = match range.start_bound() {
        Bound::Included(start) => Some(*start),
        Bound::Excluded(start) => start.checked_add(1),
        Bound::Unbounded => Some(0),
    };
    let end = match range.end_bound() {
        Bound::Included(end) => end.checked_add(1),
        Bound::Excluded(end) => Some(*end),
        Bound::Unbounded => Some(length),
    };
    match (start, end) {
        (Some(start), Some(end)) if start <= end && end <= length => start..end,
        _ => {
            let (start, end) = (range.start_bound(), range.end_bound());
            panic!("elements from {start:?} to {end:?} of a buffer of {length}")
        }
    }
}

/// A place in a symmetric heap: `len()` elements at the same offset of every rank's memory. Clones and slices are the same
/// memory.
///
/// Other ranks may write here at any time, so there are no plain references to the elements: they are copied in and out.
/// [`HeapBuffer::as_slice`] and [`HeapBuffer::as_mut_slice`] are for programs that can promise that nobody does.
///
/// After [`SymmetricHeap::free`] every operation on a clone or slice that is left is an error; only [`HeapBuffer::to_vec`] and
/// the `unsafe` ones still see the memory, whosever it is now.
pub struct HeapBuffer<T> {
    taken: Arc<Taken>,
    /// In bytes.
    offset: usize,
    /// In elements.
    length: usize,
    element: PhantomData<fn() -> T>,
}

/// What [`SymmetricHeap::alloc`] took: what all clones and slices of a buffer are part of.
struct Taken {
    heap: Arc<Inner>,
    is_freed: AtomicBool,
    /// In bytes.
    offset: usize,
    bytes: usize,
}

impl<T> Clone for HeapBuffer<T> {
    fn clone(&self) -> Self {
        HeapBuffer { taken: self.taken.clone(), ..*self }
    }
}

impl<T> fmt::Debug for HeapBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeapBuffer").field("offset", &self.offset).field("len", &self.length).finish_non_exhaustive()
    }
}

impl<T: Element> HeapBuffer<T> {
    pub(super) fn new(heap: Arc<Inner>, offset: usize, length: usize) -> Self {
        let taken = Taken { heap, is_freed: AtomicBool::new(false), offset, bytes: length * size_of::<T>() };
        HeapBuffer { taken: Arc::new(taken), offset, length, element: PhantomData }
    }

    pub(super) fn heap(&self) -> &Arc<Inner> {
        &self.taken.heap
    }

    /// It is given back: whatever clones and slices are left are of no use.
    pub(super) fn set_freed(&self) {
        self.taken.is_freed.store(true, Ordering::Relaxed);
    }

    /// Whether it has been given back.
    pub(super) fn is_freed(&self) -> bool {
        self.taken.is_freed.load(Ordering::Relaxed)
    }

    /// An error if it has been given back.
    #[inline]
    pub(crate) fn check(&self, operation: &'static str) -> Result<()> {
        if self.is_freed() { Err(self.freed(operation)) } else { Ok(()) }
    }

    #[cold]
    fn freed(&self, operation: &'static str) -> Error {
        let Taken { offset, bytes, .. } = *self.taken;
        let reason = format!(
            "the buffer of {bytes} bytes at offset {offset} has been given back by SymmetricHeap::free: this is a clone or slice \
             from before, and its memory may be another buffer's: drop those with it"
        );
        Error::Heap { operation, reason }
    }

    /// Where it begins in every rank's memory, in bytes.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// The number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether it has no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    pub(crate) fn bytes(&self) -> usize {
        self.length * size_of::<T>()
    }

    /// Its place in this rank's part.
    pub(crate) fn place(&self) -> HeapPlace {
        let Inner { memory, key, .. } = &**self.heap();
        HeapPlace { memory: memory.clone(), key: *key, at: self.offset, bytes: self.bytes() }
    }

    /// Whether this rank of the world has the memory of this rank mapped.
    pub(crate) fn is_mapped_at(&self, peer: usize) -> bool {
        let communicator = &self.heap().communicator;
        let mapped = |(rank, reach): (usize, &Reach)| {
            matches!(reach, Reach::Mapped { .. }) && communicator.world_rank(rank) == peer
        };
        self.heap().reach.iter().enumerate().any(mapped)
    }

    /// The heap that it is part of.
    #[must_use]
    pub fn owner(&self) -> SymmetricHeap {
        SymmetricHeap { inner: self.heap().clone() }
    }

    /// A part of it.
    ///
    /// # Panics
    /// When the range is not within `0..len()`.
    #[must_use]
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Self {
        let Range { start, end } = part(range, self.length);
        HeapBuffer {
            taken: self.taken.clone(),
            offset: self.offset + start * size_of::<T>(),
            length: end - start,
            element: PhantomData,
        }
    }

    /// The bytes of `elements` elements at the front, if it has so many.
    fn front(&self, elements: usize, operation: &'static str) -> Result<usize> {
        self.check(operation)?;
        if elements > self.length {
            let reason = format!("{elements} elements where the buffer has {}", self.length);
            return Err(Error::Heap { operation, reason });
        }
        Ok(elements * size_of::<T>())
    }

    /// Copies elements into the front of this rank's own memory.
    ///
    /// # Errors
    /// When it has not so many elements.
    pub fn write(&self, data: &[T]) -> Result<()> {
        self.front(data.len(), "HeapBuffer::write")?;
        self.heap().memory.write(self.heap().memory.own(), self.offset, element::as_bytes(data));
        Ok(())
    }

    /// Copies elements out of the front of this rank's own memory.
    ///
    /// # Errors
    /// When it has not so many elements.
    pub fn read(&self, data: &mut [T]) -> Result<()> {
        self.front(data.len(), "HeapBuffer::read")?;
        self.heap().memory.read(self.heap().memory.own(), self.offset, element::as_bytes_mut(data));
        Ok(())
    }

    /// All elements of this rank's own memory.
    #[must_use]
    pub fn to_vec(&self) -> Vec<T> {
        let mut all = vec![T::zeroed(); self.length];
        self.heap().memory.read(self.heap().memory.own(), self.offset, element::as_bytes_mut(&mut all));
        all
    }

    /// This rank's own elements, in place.
    ///
    /// # Safety
    /// For the lifetime of the result nobody may write here: no other rank by one-sided operations, no thread of this rank
    /// by [`HeapBuffer::write`], [`HeapBuffer::as_mut_slice`] or an operation on itself.
    #[must_use]
    #[expect(unsafe_code, reason = "memory that other ranks write to")]
    pub unsafe fn as_slice(&self) -> &[T] {
        let address = self.heap().memory.address(self.heap().memory.own(), self.offset..self.offset + self.bytes());
        // SAFETY: mapped as long as `self` holds the heap; aligned, because buffers begin at multiples of 128 bytes and
        // elements at multiples of their size; any bytes are a value of an `Element`; nobody writes, as promised.
        unsafe { std::slice::from_raw_parts(address.as_ptr().cast(), self.length) }
    }

    /// This rank's own elements, in place, to be changed.
    ///
    /// # Safety
    /// For the lifetime of the result nobody else may access them: no other rank by one-sided operations, no thread of
    /// this rank in any way.
    #[must_use]
    #[expect(unsafe_code, clippy::mut_from_ref, reason = "memory that other ranks write to; exclusive by promise")]
    pub unsafe fn as_mut_slice(&self) -> &mut [T] {
        let address = self.heap().memory.address(self.heap().memory.own(), self.offset..self.offset + self.bytes());
        // SAFETY: as for `as_slice`; nobody else accesses them, as promised.
        unsafe { std::slice::from_raw_parts_mut(address.as_ptr().cast(), self.length) }
    }

    /// Copies elements into the front of this buffer in the memory of `rank`. Returns when `data` may be changed; for when
    /// the elements are visible there see [`SymmetricHeap`], "Order".
    ///
    /// # Errors
    /// When there is no such rank, the buffer has not so many elements, or the rank is lost.
    pub fn put(&self, data: &[T], rank: usize) -> Result<()> {
        self.front(data.len(), "HeapBuffer::put")?;
        let bytes = element::as_bytes(data);
        self.heap().counters().puts.add(bytes.len());
        match self.heap().reach(rank, "HeapBuffer::put")? {
            Reach::Mapped { part } => {
                self.heap().memory.write(part, self.offset, bytes);
                self.heap().has_changed(rank);
                Ok(())
            }
            Reach::Records => self.heap().put_bytes(bytes, self.offset, rank),
        }
    }

    /// Copies elements out of the front of this buffer in the memory of `rank`.
    ///
    /// # Errors
    /// When there is no such rank, the buffer has not so many elements, or the rank is lost.
    pub fn get(&self, data: &mut [T], rank: usize) -> Result<()> {
        self.front(data.len(), "HeapBuffer::get")?;
        let bytes = element::as_bytes_mut(data);
        self.heap().counters().gets.add(bytes.len());
        match self.heap().reach(rank, "HeapBuffer::get")? {
            Reach::Mapped { part } => self.heap().memory.read(part, self.offset, bytes),
            Reach::Records if self.heap().get_direct(bytes, rank, self.offset)? => {}
            Reach::Records => {
                let communicator = &self.heap().communicator;
                let peer = communicator.world_rank(rank);
                let mut at = self.offset;
                for piece in bytes.chunks_mut(GET) {
                    let request = communicator.runtime().lock().get(peer, self.heap().key, at, piece.len())?;
                    piece.copy_from_slice(&self.heap().answer(request)?);
                    at += piece.len();
                }
            }
        }
        Ok(())
    }

    /// Copies this rank's own elements into the same buffer of `rank`: the same as a [`put`](Self::put) of them, without a
    /// copy in between.
    ///
    /// # Errors
    /// When there is no such rank, or the rank is lost.
    pub fn put_own(&self, rank: usize) -> Result<()> {
        self.check("HeapBuffer::put_own")?;
        self.heap().counters().puts.add(self.bytes());
        match self.heap().reach(rank, "HeapBuffer::put_own")? {
            Reach::Mapped { part } if part == self.heap().memory.own() => Ok(()),
            Reach::Mapped { part } => {
                let own = self.heap().memory.own();
                // Parts never overlap.
                self.heap().memory.transfer((own, self.offset), (part, self.offset), self.bytes());
                self.heap().has_changed(rank);
                Ok(())
            }
            Reach::Records if self.heap().put_own_direct(rank, self.offset, self.bytes())? => Ok(()),
            Reach::Records => self.heap().put_bytes(element::as_bytes(&self.to_vec()), self.offset, rank),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::catch_unwind;

    #[test]
    fn a_range_of_any_kind_names_the_elements_it_would_of_a_slice() {
        assert_eq!(part(.., 5), 0..5);
        assert_eq!(part(2.., 5), 2..5);
        assert_eq!(part(..=3, 5), 0..4);
        assert_eq!(part((Bound::Excluded(1), Bound::Included(4)), 5), 2..5);
        assert_eq!(part(5..5, 5), 5..5);
        assert_eq!(part(..0, 0), 0..0);
    }

    #[test]
    #[expect(clippy::reversed_empty_ranges, reason = "that is what is refused")]
    fn a_range_that_is_not_within_the_buffer_is_refused_also_at_the_end_of_all_numbers() {
        assert!(catch_unwind(|| part(..6, 5)).is_err());
        assert!(catch_unwind(|| part(3..2, 5)).is_err());
        assert!(catch_unwind(|| part(6.., 5)).is_err());
        for length in [5, usize::MAX] {
            assert!(catch_unwind(|| part(..=usize::MAX, length)).is_err());
            assert!(catch_unwind(|| part((Bound::Excluded(usize::MAX), Bound::Unbounded), length)).is_err());
        }
    }
}
