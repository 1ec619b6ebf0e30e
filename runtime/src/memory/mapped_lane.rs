//! A lane that lies in the segment of a host.

#![expect(unsafe_code, reason = "memory shared with other processes")]

#[cfg(target_arch = "x86_64")]
use super::copy::{FETCHED, fetch, write_past_cache};
use super::{
    Segment,
    lane::{CELL, CELL_WORDS, LaneMemory},
    segment::LINE,
    stores::Stores,
};
use std::{
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// Cells of a lane.
pub(super) const CELLS: usize = 64;
/// Bytes of a lane besides its ring of bytes.
pub(super) const LANE: usize = LINE + CELLS * CELL;

/// One lane within a segment. Whoever holds it as a `Producer` or `Consumer` must be the only one at that end.
#[derive(Debug)]
pub(crate) struct MappedLane {
    /// Keeps the memory mapped.
    _segment: Arc<Segment>,
    base: NonNull<u8>,
    ring: usize,
}

// SAFETY: see `Segment`; the pointer stays valid as long as the segment is held.
unsafe impl Send for MappedLane {}

impl MappedLane {
    /// The lane at an address within a segment.
    ///
    /// # Safety
    /// [`LANE`] and `ring` bytes from `base` on must be a lane of this segment, as it lays them out.
    pub(super) unsafe fn new(segment: Arc<Segment>, base: NonNull<u8>, ring: usize) -> Self {
        MappedLane { _segment: segment, base, ring }
    }

    /// One of the consumer's two positions, or its advice.
    fn position(&self, index: usize) -> &AtomicU64 {
        debug_assert!(index < 3);
        // SAFETY: within the line of positions, aligned, and only ever accessed as an atomic.
        unsafe { self.base.cast::<AtomicU64>().add(index).as_ref() }
    }

    /// The first word of a cell.
    fn cell(&self, cell: usize) -> NonNull<u64> {
        assert!(cell < CELLS);
        // SAFETY: within the cells of the lane, which begin one line behind its base.
        unsafe { self.base.add(LINE + cell * CELL).cast() }
    }

    fn stamp_of(&self, cell: usize) -> &AtomicU64 {
        // SAFETY: aligned, and the first word of a cell is only ever accessed as an atomic.
        unsafe { self.cell(cell).cast::<AtomicU64>().as_ref() }
    }

    /// `length` bytes from `at` on in the ring of bytes.
    fn place(&self, at: usize, length: usize) -> NonNull<u8> {
        assert!(at <= self.ring && length <= self.ring - at);
        // SAFETY: within the bytes of the lane, as asserted.
        unsafe { self.base.add(LINE + CELLS * CELL + at) }
    }
}

impl LaneMemory for MappedLane {
    fn cell_capacity(&self) -> usize {
        CELLS
    }

    fn byte_capacity(&self) -> usize {
        self.ring
    }

    fn stamp(&self, cell: usize) -> u64 {
        self.stamp_of(cell).load(Ordering::Acquire)
    }

    fn set_stamp(&self, cell: usize, stamp: u64) {
        self.stamp_of(cell).store(stamp, Ordering::Release);
    }

    fn words(&self, cell: usize) -> [u64; CELL_WORDS - 1] {
        // SAFETY: within the cell, aligned. The consumer has seen the stamp of this lap, so the producer has written
        // these words and does not write them again before they are released. A peer that breaks this can garble the
        // copy, but plain words have no invalid value.
        unsafe { self.cell(cell).add(1).cast::<[u64; CELL_WORDS - 1]>().read() }
    }

    fn fetch(&self, cell: usize) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: no more than a hint, for an address within the lane.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(self.cell(cell).as_ptr().cast()) }
        }
    }

    fn set_words(&self, cell: usize, words: &[u64; CELL_WORDS - 1]) {
        // SAFETY: within the cell, aligned. The consumer has released it, so nobody else accesses these words until the
        // stamp is published.
        unsafe { self.cell(cell).add(1).cast::<[u64; CELL_WORDS - 1]>().write(*words) }
    }

    fn write(&self, at: usize, bytes: &[u8], stores: Stores) {
        let place = self.place(at, bytes.len());
        #[cfg(target_arch = "x86_64")]
        if stores == Stores::PastCache {
            // SAFETY: as below.
            return unsafe { write_past_cache(place, bytes) };
        }
        // SAFETY: within the lane. The consumer has released these bytes, so nobody else accesses them until the stamp of
        // their cell is published.
        unsafe { place.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) }
    }

    fn read(&self, at: usize, bytes: &mut [u8]) {
        let place = self.place(at, bytes.len());
        #[cfg(target_arch = "x86_64")]
        if FETCHED.contains(&bytes.len()) && is_x86_feature_detected!("avx") {
            // SAFETY: as below, and the processor has the instructions.
            return unsafe { fetch(place, bytes) };
        }
        // SAFETY: within the lane. The consumer has seen the stamp of the cell that these bytes belong to; see `words`.
        unsafe { place.copy_to_nonoverlapping(NonNull::from(&mut *bytes).cast(), bytes.len()) }
    }

    fn released(&self) -> (u64, u64) {
        (self.position(0).load(Ordering::Acquire), self.position(1).load(Ordering::Acquire))
    }

    fn set_released(&self, cells: u64, bytes: u64) {
        self.position(0).store(cells, Ordering::Release);
        self.position(1).store(bytes, Ordering::Release);
    }

    fn advice(&self) -> Stores {
        Stores::from_number(self.position(2).load(Ordering::Relaxed))
    }

    fn set_advice(&self, stores: Stores) {
        self.position(2).store(stores as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_every_length_and_place_come_out_as_they_went_in() {
        let fd = Segment::create(1, 64 << 10).unwrap();
        let segment = Arc::new(Segment::map(&fd).unwrap());
        let lane = segment.lane(0, 0);
        let lengths = [0, 1, 255, 4095, 4096, 4097, 4352, 5000, 8191, 8192, 9999, 32 << 10];
        for (turn, length) in (0_u8..).zip(lengths) {
            for shift in [0, 1, 63, 64, 777] {
                for stores in [Stores::PastCache, Stores::IntoCache] {
                    let sent: Vec<u8> =
                        (0..=u8::MAX).map(|at| at.wrapping_mul(31) ^ turn).cycle().take(length).collect();
                    lane.write(shift, &sent, stores);
                    let mut room = vec![0xee; length + 2];
                    lane.read(shift, &mut room[1..=length]);
                    assert_eq!(room[1..=length], sent, "{length} bytes at {shift}");
                    assert_eq!((room[0], room[length + 1]), (0xee, 0xee), "nothing beside them");
                }
            }
        }
    }
}
