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
    mapped_lane::{LANE, MappedLane},
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
pub(super) const LINE: usize = 128;
/// All rings of a segment together have at most this many bytes, unless that leaves less than [`RING_LEAST`] for one.
const RINGS_AT_MOST: usize = 256 << 20;
const RING_LEAST: usize = 256 << 10;
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
        // SAFETY: within the mapping, as computed by `total_bytes`, and laid out as a lane.
        unsafe { MappedLane::new(self.clone(), self.base.add(start), self.ring) }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::lane::{CELL_WORDS, Cell, Consumer, Producer};

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
