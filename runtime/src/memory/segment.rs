//! The memory that all ranks of one host share: one sealed memfd, so that nothing has a name, nothing stays behind in
//! `/dev/shm`, and nobody can shrink it under our feet.
//!
//! Layout, in bytes: a header of [`LINE`] (magic, ranks, ring size, memory taken for heaps, count of news); for every rank one [`LINE`] of flags; for every rank
//! one [`LINE`] that says what it is doing (apart from the flags, which peers look at with every message); for every rank
//! a set of bits (whole [`LINE`]s) that says who has ever used the lane to it; for every ordered pair (from, to) a lane:
//! one [`LINE`] with the consumer's positions, the cells, then the bytes.
//! Behind all that, from a whole page on, comes the memory of symmetric heaps (see `memory::heap`).
//! Pages are taken by the kernel when they are first touched, so lanes that nobody uses cost nothing, as long as nobody
//! looks into them either: hence the bits.

#![expect(unsafe_code, reason = "memory shared with other processes")]

use super::{
    Activity,
    heap::PAGE,
    index,
    lane::{CELL, CELL_WORDS, LaneMemory},
    stores::Stores,
};
use rustix::{
    fs::{
        FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate,
        memfd_create,
    },
    io::Errno,
    mm::{MapFlags, ProtFlags, mmap, munmap},
};
use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
};

/// Two cache lines: processors fetch lines in pairs, so neighbours at this distance do not disturb each other.
const LINE: usize = 128;
/// Cells of a lane.
const CELLS: usize = 64;
/// All rings of a segment together have at most this many bytes, unless that leaves less than [`RING_LEAST`] for one.
const RINGS_AT_MOST: usize = 256 << 20;
const RING_LEAST: usize = 256 << 10;
/// Bytes of a lane besides its ring of bytes.
const LANE: usize = LINE + CELLS * CELL;
const MAGIC: u64 = u64::from_le_bytes(*b"SPMDSEG4");

/// The shared memory of the ranks of one host, mapped into this process.
#[derive(Debug)]
pub struct Segment {
    base: NonNull<u8>,
    bytes: usize,
    ranks: usize,
    ring: usize,
    /// The memfd. Behind what is mapped here it has the memory of symmetric heaps.
    fd: OwnedFd,
}

// SAFETY: the mapping is valid in every thread until drop, and all access goes through atomics or through lanes, whose
// two ends are each owned by one `Producer` or `Consumer`.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

impl Segment {
    /// Makes the memory for `ranks` ranks with a ring of `ring` bytes (a power of two) for every ordered pair; of fewer
    /// bytes, down to 256 KiB, where there are so many pairs that all rings together were more than 256 MiB.
    ///
    /// # Errors
    /// When the kernel refuses the memory; `InvalidInput` when a number is out of range.
    pub fn create(ranks: usize, ring: usize) -> io::Result<OwnedFd> {
        let ring = ring_of(ranks, ring);
        let bytes = total_bytes(ranks, ring).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("{ranks} ranks with rings of {ring} bytes"))
        })?;
        let fd = memfd_create(c"spmd-segment", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&fd, bytes as u64)?;
        fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::SEAL)?;
        let segment = Segment::map_bytes(fd.try_clone()?, bytes, ranks, ring)?;
        segment.word(0).store(MAGIC, Ordering::Relaxed);
        segment.word(1).store(ranks as u64, Ordering::Relaxed);
        segment.word(3).store(bytes.next_multiple_of(PAGE) as u64, Ordering::Relaxed);
        segment.word(2).store(ring as u64, Ordering::Release);
        Ok(fd)
    }

    /// Maps a segment made by [`Segment::create`], by this or another process.
    ///
    /// # Errors
    /// When it cannot be mapped; `InvalidData` when it is no segment, not sealed, or of the wrong size.
    pub fn map(fd: impl AsFd) -> io::Result<Self> {
        let fd = fd.as_fd().try_clone_to_owned()?;
        let bad = |what: &str| io::Error::new(io::ErrorKind::InvalidData, format!("the shared segment {what}"));
        if !fcntl_get_seals(&fd)?.contains(SealFlags::SHRINK) {
            return Err(bad("is not sealed against shrinking"));
        }
        let bytes = usize::try_from(fstat(&fd)?.st_size).map_err(|_| bad("has a negative size"))?;
        if bytes < LINE {
            return Err(bad("is too small"));
        }
        let mut segment = Segment::map_bytes(fd, bytes, 0, 0)?;
        if segment.word(0).load(Ordering::Relaxed) != MAGIC {
            return Err(bad("does not begin with its magic number"));
        }
        segment.ring = index(segment.word(2).load(Ordering::Acquire));
        segment.ranks = index(segment.word(1).load(Ordering::Relaxed));
        if total_bytes(segment.ranks, segment.ring) != Some(bytes) {
            return Err(bad("has another size than its header says"));
        }
        Ok(segment)
    }

    fn map_bytes(fd: OwnedFd, bytes: usize, ranks: usize, ring: usize) -> io::Result<Self> {
        // SAFETY: a fresh mapping at an address of the kernel's choice; the file is sealed against shrinking, so that
        // no access within `bytes` can fault.
        let base = unsafe {
            mmap(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, fd.as_fd(), 0)?
        };
        let base = NonNull::new(base.cast::<u8>()).ok_or(Errno::FAULT)?;
        Ok(Segment { base, bytes, ranks, ring, fd })
    }

    /// Takes memory behind the lanes for a symmetric heap: where it begins in the memfd. It is zero.
    pub(crate) fn reserve(&self, bytes: usize) -> io::Result<u64> {
        let bytes = bytes.next_multiple_of(PAGE) as u64;
        let start = self.word(3).fetch_add(bytes, Ordering::Relaxed);
        let end = start.checked_add(bytes).ok_or(io::ErrorKind::OutOfMemory)?;
        // Others may be at the same: the length only grows, because the seal refuses a smaller one.
        while !self.holds(start, index(bytes))? {
            match ftruncate(&self.fd, end) {
                Ok(()) | Err(Errno::PERM) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(start)
    }

    /// Whether the memfd has `bytes` bytes from `offset` on.
    pub(crate) fn holds(&self, offset: u64, bytes: usize) -> io::Result<bool> {
        let length = u64::try_from(fstat(&self.fd)?.st_size).unwrap_or(0);
        Ok(offset.checked_add(bytes as u64).is_some_and(|end| end <= length))
    }

    /// Gives memory back that [`Segment::reserve`] took. The place in the memfd is not used again.
    pub(crate) fn give_back(&self, offset: u64, bytes: usize) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(fallocate(&self.fd, flags, offset, bytes as u64)?)
    }

    /// Pages of memory that the kernel holds for it.
    #[cfg(test)]
    pub(super) fn pages(&self) -> io::Result<u64> {
        Ok(u64::try_from(fstat(&self.fd)?.st_blocks).unwrap_or(0) * 512 / PAGE as u64)
    }

    /// The number of ranks that share it.
    #[must_use]
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// Word `index` of the header.
    fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < LINE / 8);
        // SAFETY: within the header, aligned, and only ever accessed as an atomic.
        unsafe { self.base.cast::<AtomicU64>().add(index).as_ref() }
    }

    fn flag(&self, rank: usize, index: usize) -> &AtomicU32 {
        assert!(rank < self.ranks && index < LINE / 8);
        // SAFETY: within the flags of a rank that exists, aligned, and only ever accessed as an atomic.
        unsafe { self.base.add(LINE * (1 + rank)).cast::<AtomicU32>().add(index).as_ref() }
    }

    /// Tells every rank that there is news of the rest of the job, which is to be had where the rank gets such news.
    pub fn tell_news(&self) {
        self.word(4).fetch_add(1, Ordering::Release);
    }

    /// How often there has been news. Nearly always the same, so that whoever looks has it at hand.
    #[inline]
    pub(crate) fn news(&self) -> u64 {
        self.word(4).load(Ordering::Acquire)
    }

    /// Whether `rank` is about to sleep or sleeps, and wants its eventfd written.
    pub(crate) fn sleeping(&self, rank: usize) -> &AtomicU32 {
        self.flag(rank, 0)
    }

    /// Whether `rank` makes all processes that have registered for it pass a memory barrier once it has said that it is
    /// about to sleep.
    pub(crate) fn makes_barriers(&self, rank: usize) -> &AtomicU32 {
        self.flag(rank, 2)
    }

    /// Whether `rank` has dropped its world.
    pub(crate) fn finished(&self, rank: usize) -> &AtomicU32 {
        self.flag(rank, 1)
    }

    /// A word of what `rank` shows to those who want to read its memory: beside the flags, in a line of its own.
    pub(super) fn card(&self, rank: usize, index: usize) -> &AtomicU64 {
        assert!(rank < self.ranks && index < LINE / 16);
        // SAFETY: within the second half of the flags of a rank that exists, aligned, and only accessed as an atomic.
        unsafe { self.base.add(LINE * (1 + rank) + LINE / 2).cast::<AtomicU64>().add(index).as_ref() }
    }

    /// What `rank` publishes for whoever asks where it is.
    fn activity_word(&self, rank: usize) -> &AtomicU64 {
        assert!(rank < self.ranks);
        // SAFETY: within the activity line of a rank that exists, aligned, and only ever accessed as an atomic.
        unsafe { self.base.add(LINE * (1 + self.ranks + rank)).cast::<AtomicU64>().as_ref() }
    }

    /// What the rank at place `rank` of this host is doing.
    #[must_use]
    pub fn activity(&self, rank: usize) -> Activity {
        Activity::unpack(self.activity_word(rank).load(Ordering::Relaxed))
    }

    /// Says what the rank at place `rank` is doing. One relaxed store.
    pub(crate) fn publish(&self, rank: usize, activity: Activity) {
        self.activity_word(rank).store(activity.pack(), Ordering::Relaxed);
    }

    /// Word `index` of the bits that say who has ever used the lane to `to`: rank `n` is bit `n % 64` of word `n / 64`.
    fn users(&self, to: usize, index: usize) -> &AtomicU64 {
        assert!(to < self.ranks && index < self.ranks.div_ceil(64));
        // SAFETY: within the bits of a rank that exists, aligned, and only ever accessed as an atomic.
        unsafe {
            self.base
                .add(users_start(self.ranks) + to * users_bytes(self.ranks))
                .cast::<AtomicU64>()
                .add(index)
                .as_ref()
        }
    }

    /// Says that `from` uses its lane to `to` from now on. Before the first record, so that whoever is told of the record
    /// finds the lane.
    pub(crate) fn announce(&self, from: usize, to: usize) {
        self.users(to, from / 64).fetch_or(1 << (from % 64), Ordering::Release);
    }

    /// Those of the ranks `64 * index ..` that have ever used their lane to `to`, as bits.
    pub(crate) fn announced(&self, to: usize, index: usize) -> u64 {
        self.users(to, index).load(Ordering::Acquire)
    }

    /// The lane from one rank to another.
    pub(crate) fn lane(self: &Arc<Self>, from: usize, to: usize) -> MappedLane {
        assert!(from < self.ranks && to < self.ranks);
        let start = lanes_start(self.ranks) + (from * self.ranks + to) * (LANE + self.ring);
        debug_assert!(start + LANE + self.ring <= self.bytes);
        // SAFETY: within the mapping, as computed by `total_bytes`.
        let base = unsafe { self.base.add(start) };
        MappedLane { _segment: self.clone(), base, ring: self.ring }
    }
}

impl AsFd for Segment {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: mapped by us with this length; lanes hold an `Arc` of the segment, so none is left.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok());
    }
}

/// The bytes of one ring, where `wanted` are asked for.
fn ring_of(ranks: usize, wanted: usize) -> usize {
    let share = RINGS_AT_MOST / ranks.saturating_mul(ranks).max(1);
    // The largest power of two that is not more.
    let share = 1 << share.max(1).ilog2();
    wanted.min(share.max(RING_LEAST))
}

/// The size of a segment, if the numbers make sense.
fn total_bytes(ranks: usize, ring: usize) -> Option<usize> {
    if ranks == 0 || !ring.is_power_of_two() || ring < LINE {
        return None;
    }
    // So many ranks that the sums above cannot overflow.
    if ranks > 1 << 24 {
        return None;
    }
    let lanes = ranks.checked_mul(ranks)?.checked_mul(ring.checked_add(LANE)?)?;
    let bytes = lanes.checked_add(lanes_start(ranks))?;
    (bytes <= isize::MAX as usize).then_some(bytes)
}

/// Where the bits begin that say which lanes are used.
fn users_start(ranks: usize) -> usize {
    LINE * (1 + 2 * ranks)
}

/// Bytes of these bits for one receiver.
fn users_bytes(ranks: usize) -> usize {
    (ranks.div_ceil(64) * 8).next_multiple_of(LINE)
}

/// Where the lanes begin.
fn lanes_start(ranks: usize) -> usize {
    users_start(ranks) + ranks * users_bytes(ranks)
}

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

/// Lengths that are read with [`fetch`]. Below, the C library's copy is as fast.
#[cfg(target_arch = "x86_64")]
const FETCHED: std::ops::RangeInclusive<usize> = 4097..=16 << 10;

/// Copies what another processor has just written: asks for lines well before it needs them, and only for lines of these
/// bytes, since the producer is about to write what follows.
///
/// The C library copies such lengths with a string instruction, which fetches lines out of another cache at half the speed:
/// 8 KiB between near cores took 2.5 us with it and 1.2 us with this, between far ones 3.6 and 2.0.
///
/// # Safety
/// `bytes.len()` bytes from `place` on must have been published to the caller; the processor must have AVX.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
unsafe fn fetch(place: NonNull<u8>, bytes: &mut [u8]) {
    use std::arch::x86_64::{__m256i, _MM_HINT_T0, _mm_prefetch, _mm256_loadu_si256, _mm256_storeu_si256};
    const BLOCK: usize = 256;
    const AHEAD: usize = 1024;
    const PARTS: usize = BLOCK / size_of::<__m256i>();
    let length = bytes.len();
    let (body, tail) = bytes.as_chunks_mut::<BLOCK>();
    let done = length - tail.len();
    for (number, block) in body.iter_mut().enumerate() {
        let at = number * BLOCK;
        // SAFETY: within the published bytes; loads and stores need no alignment, and each block has `PARTS` parts.
        unsafe {
            let from = place.add(at);
            if at + AHEAD + BLOCK <= length {
                for line in 0..BLOCK / 64 {
                    _mm_prefetch::<_MM_HINT_T0>(from.as_ptr().add(AHEAD + line * 64).cast());
                }
            }
            let from = from.cast::<__m256i>().as_ptr();
            let to = block.as_mut_ptr().cast::<__m256i>();
            // All loads before the first store, so that as many lines as possible are under way.
            let parts: [__m256i; PARTS] = std::array::from_fn(|part| _mm256_loadu_si256(from.add(part)));
            for (part, value) in parts.into_iter().enumerate() {
                _mm256_storeu_si256(to.add(part), value);
            }
        }
    }
    // SAFETY: the rest of the published bytes.
    unsafe { place.add(done).copy_to_nonoverlapping(NonNull::from(&mut *tail).cast(), tail.len()) }
}

/// Copies with stores that go to memory instead of into this processor's cache (Intel SDM volume 1, section 10.4.6.2).
///
/// The other rank would have to fetch each line out of this processor's cache, which is several times slower than reading
/// memory when the two do not share a cache (see `memory::stores`).
///
/// # Safety
/// `bytes.len()` bytes from `place` on must belong to the caller.
#[cfg(target_arch = "x86_64")]
unsafe fn write_past_cache(place: NonNull<u8>, bytes: &[u8]) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
    let before = place.as_ptr().align_offset(size_of::<__m128i>()).min(bytes.len());
    let (head, rest) = bytes.split_at(before);
    let (body, tail) = rest.as_chunks::<64>();
    // SAFETY: the three parts lie one behind the other within the caller's bytes; the middle one is aligned as the stores
    // demand, the loads need no alignment. SSE2 is part of x86_64.
    unsafe {
        place.copy_from_nonoverlapping(NonNull::from(head).cast(), head.len());
        let mut to = place.add(before).cast::<__m128i>();
        for block in body {
            let from = block.as_ptr().cast::<__m128i>();
            for part in 0..4 {
                _mm_stream_si128(to.as_ptr().add(part), _mm_loadu_si128(from.add(part)));
            }
            to = to.add(4);
        }
        to.cast::<u8>().copy_from_nonoverlapping(NonNull::from(tail).cast(), tail.len());
        // These stores are not ordered by the Release of the stamp that follows.
        _mm_sfence();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::lane::{Cell, Consumer, Producer};

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

    #[test]
    fn two_mappings_of_one_segment_see_the_same_lanes() {
        let fd = Segment::create(3, 4096).unwrap();
        let (a, b) = (Arc::new(Segment::map(&fd).unwrap()), Arc::new(Segment::map(&fd).unwrap()));
        let mut producers: Vec<_> = (0..9_usize).map(|pair| Producer::new(a.lane(pair / 3, pair % 3))).collect();
        let cell = |pair: u8| Cell { flags: u32::from(pair), words: [u64::from(pair); CELL_WORDS - 1] };
        for (pair, producer) in (0_u8..).zip(&mut producers) {
            assert!(producer.push(&cell(pair), &[pair; 4096]));
        }
        for pair in 0..9_u8 {
            let mut consumer = Consumer::new(b.lane(usize::from(pair / 3), usize::from(pair % 3)));
            let mut bytes = [0; 4096];
            assert_eq!(consumer.peek(), Some(cell(pair)));
            consumer.read(0, &mut bytes);
            assert_eq!(bytes, [pair; 4096]);
        }
        assert_eq!(b.announced(2, 0), 0);
        a.announce(1, 2);
        assert_eq!((b.announced(2, 0), b.announced(1, 0)), (0b10, 0));
        a.finished(2).store(1, Ordering::Release);
        assert_eq!(b.finished(2).load(Ordering::Acquire), 1);
        assert_eq!(b.sleeping(2).load(Ordering::Acquire), 0);
        assert_eq!(b.activity(2), Activity::Outside);
        a.publish(2, Activity::Send { to: 1, tag: 7 });
        assert_eq!((b.activity(1), b.activity(2)), (Activity::Outside, Activity::Send { to: 1, tag: 7 }));
    }

    #[test]
    fn what_is_no_segment_is_refused() {
        let unsealed = memfd_create(c"no-segment", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&unsealed, 4096).unwrap();
        assert!(Segment::map(&unsealed).unwrap_err().to_string().contains("not sealed"));
        fcntl_add_seals(&unsealed, SealFlags::SHRINK).unwrap();
        assert!(Segment::map(&unsealed).unwrap_err().to_string().contains("magic"));
        assert!(Segment::create(0, 4096).is_err());
        assert!(Segment::create(2, 5000).is_err());
        assert!(Segment::create(usize::MAX, 4096).is_err());
    }

    #[test]
    fn rings_shrink_where_there_are_many_ranks() {
        let (kib, mib) = (1 << 10, 1 << 20);
        assert_eq!(ring_of(2, 4 * mib), 4 * mib);
        assert_eq!(ring_of(8, 4 * mib), 4 * mib);
        assert_eq!(ring_of(9, 4 * mib), 2 * mib);
        assert_eq!(ring_of(96, 4 * mib), 256 * kib);
        assert_eq!(ring_of(usize::MAX, 4 * mib), 256 * kib);
        assert_eq!(ring_of(96, 4 * kib), 4 * kib);
    }

    #[test]
    fn a_segment_cannot_be_shrunk() {
        let fd = Segment::create(1, 4096).unwrap();
        assert_eq!(ftruncate(&fd, 10).unwrap_err(), Errno::PERM);
    }
}
