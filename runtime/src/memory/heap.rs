//! The memory of a symmetric heap as one host sees it: a part of the same size for every rank of the heap on this host,
//! mapped into all of them.
//!
//! It lies behind the lanes in the segment's memfd, which every rank of the host holds already: nothing is passed on,
//! nothing has a name, and what the last rank gives back is memory again. Other ranks write here at any time, so nobody
//! gets a reference into it: bytes are copied in and out, words are atomics. Knows no ranks, only numbers of parts.

#![expect(unsafe_code, reason = "memory shared with other processes")]

use super::{Segment, copy::copy};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use std::{
    io,
    ops::Range,
    os::fd::AsFd,
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
};

/// Parts are whole pages; the first page of a heap says how many processes hold it.
pub(crate) const PAGE: usize = 4096;

/// The parts of one heap on this host.
#[derive(Debug)]
pub(crate) struct HeapMemory {
    base: NonNull<u8>,
    mapped: usize,
    /// Where the first part begins.
    start: usize,
    /// Bytes of a part.
    part: usize,
    parts: usize,
    /// This rank's part.
    own: usize,
    /// Where it lies in the memory of the host; none when it belongs to this process alone.
    within: Option<(Arc<Segment>, u64)>,
}

// SAFETY: the mapping is valid in every thread until drop; all access is by copies that allow for others, and atomics.
unsafe impl Send for HeapMemory {}
// SAFETY: as above.
unsafe impl Sync for HeapMemory {}

/// What an atomic operation does with a word; all return what was there before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Update {
    Fetch,
    Set(u64),
    Add(u64),
    /// The value to be found, and the one to put there then.
    CompareSwap(u64, u64),
}

/// The length of a word that is updated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Width {
    Four,
    Eight,
}

impl Width {
    pub(crate) fn bytes(self) -> usize {
        match self {
            Width::Four => 4,
            Width::Eight => 8,
        }
    }
}

/// Bytes of the segment's memory that `parts` parts need.
pub(crate) fn reserved_bytes(part: usize, parts: usize) -> Option<usize> {
    part.checked_mul(parts)?.checked_add(PAGE).filter(|bytes| *bytes <= isize::MAX as usize)
}

impl HeapMemory {
    /// Memory of this process alone: one part.
    pub(crate) fn private(part: usize) -> io::Result<Self> {
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let base = unsafe {
            mmap_anonymous(std::ptr::null_mut(), part, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)?
        };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(HeapMemory { base, mapped: part, start: 0, part, parts: 1, own: 0, within: None })
    }

    /// The memory at `offset` of the segment, as [`Segment::reserve`] gave it for [`reserved_bytes`].
    pub(crate) fn shared(
        segment: Arc<Segment>,
        offset: u64,
        part: usize,
        parts: usize,
        own: usize,
    ) -> io::Result<Self> {
        assert!(own < parts && part.is_multiple_of(PAGE));
        let mapped = reserved_bytes(part, parts).ok_or(io::ErrorKind::OutOfMemory)?;
        if !segment.holds(offset, mapped)? {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the heap lies beyond the end of the segment"));
        }
        // SAFETY: a fresh mapping at an address of the kernel's choice; the file is sealed against shrinking and as long
        // as was just seen, so that no access within it can fault.
        let base = unsafe {
            mmap(
                std::ptr::null_mut(),
                mapped,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                segment.as_fd(),
                offset,
            )?
        };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let memory = HeapMemory { base, mapped, start: PAGE, part, parts, own, within: Some((segment, offset)) };
        memory.holders().fetch_add(1, Ordering::Relaxed);
        Ok(memory)
    }

    /// This rank's part.
    pub(crate) fn own(&self) -> usize {
        self.own
    }

    /// Bytes of a part.
    pub(crate) fn part(&self) -> usize {
        self.part
    }

    /// Whether the range exists.
    pub(crate) fn has(&self, part: usize, at: usize, bytes: usize) -> bool {
        part < self.parts && at.checked_add(bytes).is_some_and(|end| end <= self.part)
    }

    fn holders(&self) -> &AtomicU64 {
        debug_assert!(self.start >= 8);
        // SAFETY: the first word of the first page, which is no part; aligned, and only ever accessed as an atomic.
        unsafe { self.base.cast().as_ref() }
    }

    /// The address of a range of a part.
    ///
    /// # Panics
    /// When the part or the range does not exist.
    #[inline]
    pub(crate) fn address(&self, part: usize, range: Range<usize>) -> NonNull<u8> {
        assert!(part < self.parts && range.start <= range.end && range.end <= self.part);
        // SAFETY: within the mapping, as asserted.
        unsafe { self.base.add(self.start + part * self.part + range.start) }
    }

    /// Copies bytes into a part.
    pub(crate) fn write(&self, part: usize, at: usize, bytes: &[u8]) {
        let to = self.address(part, at..at + bytes.len());
        // SAFETY: the range is mapped as long as we are, and `bytes` is no part of it: nobody gets a reference to that
        // without having promised that nobody writes there.
        unsafe { copy(bytes.as_ptr(), to.as_ptr(), bytes.len()) }
    }

    /// Copies bytes out of a part.
    pub(crate) fn read(&self, part: usize, at: usize, bytes: &mut [u8]) {
        let from = self.address(part, at..at + bytes.len());
        // SAFETY: as for `write`.
        unsafe { copy(from.as_ptr(), bytes.as_mut_ptr(), bytes.len()) }
    }

    /// Copies bytes from one part to another, or to another place of the same; `false` when the ranges overlap.
    pub(crate) fn transfer(&self, from: (usize, usize), to: (usize, usize), bytes: usize) -> bool {
        let source = self.address(from.0, from.1..from.1 + bytes);
        let destination = self.address(to.0, to.1..to.1 + bytes);
        if from.0 == to.0 && from.1 < to.1 + bytes && to.1 < from.1 + bytes {
            return false;
        }
        // SAFETY: both are mapped as long as we are, and apart.
        unsafe { copy(source.as_ptr(), destination.as_ptr(), bytes) }
        true
    }

    /// Updates a word atomically, with Acquire and Release; returns what was there before.
    ///
    /// # Panics
    /// When it does not exist or is not aligned.
    pub(crate) fn update(&self, part: usize, at: usize, width: Width, update: Update) -> u64 {
        let address = self.address(part, at..at + width.bytes());
        assert!(at.is_multiple_of(width.bytes()), "a word that is not aligned");
        match width {
            // SAFETY: mapped as long as we are and aligned, because parts are; others access it as an atomic or copy it.
            Width::Eight => update_word(unsafe { address.cast::<AtomicU64>().as_ref() }, update),
            // SAFETY: as above.
            Width::Four => u64::from(update_half(unsafe { address.cast::<AtomicU32>().as_ref() }, update)),
        }
    }
}

fn update_word(word: &AtomicU64, update: Update) -> u64 {
    match update {
        Update::Fetch => word.load(Ordering::Acquire),
        Update::Set(value) => word.swap(value, Ordering::AcqRel),
        Update::Add(value) => word.fetch_add(value, Ordering::AcqRel),
        Update::CompareSwap(old, new) => {
            word.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire).unwrap_or_else(|found| found)
        }
    }
}

/// The same for half a word: only the low half of every operand counts.
#[expect(clippy::cast_possible_truncation, reason = "the low half counts")]
fn update_half(word: &AtomicU32, update: Update) -> u32 {
    match update {
        Update::Fetch => word.load(Ordering::Acquire),
        Update::Set(value) => word.swap(value as u32, Ordering::AcqRel),
        Update::Add(value) => word.fetch_add(value as u32, Ordering::AcqRel),
        Update::CompareSwap(old, new) => word
            .compare_exchange(old as u32, new as u32, Ordering::AcqRel, Ordering::Acquire)
            .unwrap_or_else(|found| found),
    }
}

impl Drop for HeapMemory {
    fn drop(&mut self) {
        if let Some((segment, offset)) = &self.within
            && self.holders().fetch_sub(1, Ordering::AcqRel) == 1
        {
            // The last one: nobody maps it any more or will. What cannot be given back goes with the segment.
            let _ = segment.give_back(*offset, self.mapped);
        }
        // SAFETY: mapped by us with this length, and nothing borrows from it.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.mapped) };
        debug_assert!(unmapped.is_ok());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two() -> (HeapMemory, HeapMemory, Arc<Segment>) {
        let segment = Arc::new(Segment::map(Segment::create(2, 4096).unwrap()).unwrap());
        let offset = segment.reserve(reserved_bytes(PAGE, 2).unwrap()).unwrap();
        let map = |own| HeapMemory::shared(segment.clone(), offset, PAGE, 2, own).unwrap();
        (map(0), map(1), segment.clone())
    }

    #[test]
    fn what_one_rank_writes_into_the_part_of_another_is_there() {
        let (a, b, _) = two();
        a.write(1, 100, b"hello");
        let mut found = [0; 5];
        b.read(b.own(), 100, &mut found);
        assert_eq!(&found, b"hello");
        b.read(0, 100, &mut found);
        assert_eq!(found, [0; 5], "the other part is untouched");
        assert!(b.transfer((1, 100), (0, PAGE - 5), 5));
        assert!(!b.transfer((1, 100), (1, 104), 5), "overlapping ranges");
        a.read(a.own(), PAGE - 5, &mut found);
        assert_eq!(&found, b"hello");
    }

    #[test]
    fn every_update_returns_what_was_there_before() {
        let (a, b, _) = two();
        for width in [Width::Four, Width::Eight] {
            let update = |memory: &HeapMemory, update| memory.update(1, 64, width, update);
            assert_eq!(update(&a, Update::Set(7)), 0);
            assert_eq!(update(&b, Update::Add(u64::MAX)), 7);
            assert_eq!(update(&a, Update::CompareSwap(5, 9)), 6, "another value: unchanged");
            assert_eq!(update(&a, Update::CompareSwap(6, 9)), 6);
            assert_eq!(update(&b, Update::Fetch), 9);
            update(&b, Update::Set(0));
        }
    }

    #[test]
    fn the_last_one_gives_the_memory_back() {
        let (a, b, segment) = two();
        a.write(0, 0, &[1; PAGE]);
        a.write(1, 0, &[1; PAGE]);
        drop(a);
        let mut byte = [0];
        b.read(0, 0, &mut byte);
        assert_eq!(byte, [1], "somebody still holds it");
        let before = segment.pages().unwrap();
        drop(b);
        assert!(segment.pages().unwrap() <= before - 2);
    }

    #[test]
    fn a_private_part_works_alike() {
        let memory = HeapMemory::private(PAGE).unwrap();
        memory.write(0, 8, &[3; 8]);
        assert_eq!(memory.update(0, 8, Width::Eight, Update::Add(1)), u64::from_ne_bytes([3; 8]));
    }

    #[test]
    #[should_panic(expected = "range.end <= self.part")]
    fn nothing_is_written_beyond_the_end() {
        HeapMemory::private(PAGE).unwrap().write(0, PAGE - 1, &[0; 2]);
    }
}
