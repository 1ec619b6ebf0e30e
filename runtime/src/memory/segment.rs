//! The memory that all ranks of one host share: one sealed memfd, so that nothing has a name, nothing stays behind in
//! `/dev/shm`, and nobody can shrink it under our feet.
//!
//! Layout, in bytes: a header of [`LINE`] (magic, ranks, ring size); for every rank one [`LINE`] of flags; for every rank
//! one [`LINE`] that says what it is doing (apart from the flags, which peers look at with every message); for every
//! ordered pair (from, to) a ring: one [`LINE`] with the consumer's position, one with the producer's, then the bytes.
//! Pages are taken by the kernel when they are first touched, so rings that nobody uses cost nothing.

#![expect(unsafe_code, reason = "memory shared with other processes")]

use super::{Activity, index, ring::RingMemory};
use rustix::{
    fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create},
    io::Errno,
    mm::{MapFlags, ProtFlags, mmap, munmap},
};
use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
};

/// Two cache lines: processors fetch lines in pairs, so neighbours at this distance do not disturb each other.
const LINE: usize = 128;
const MAGIC: u64 = u64::from_le_bytes(*b"SPMDSEG1");

/// The shared memory of the ranks of one host, mapped into this process.
#[derive(Debug)]
pub struct Segment {
    base: NonNull<u8>,
    bytes: usize,
    ranks: usize,
    ring: usize,
}

// SAFETY: the mapping is valid in every thread until drop, and all access goes through atomics or through rings, whose
// two ends are each owned by one `Producer` or `Consumer`.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

impl Segment {
    /// Makes the memory for `ranks` ranks with a ring of `ring` bytes (a power of two) for every ordered pair.
    ///
    /// # Errors
    /// When the kernel refuses the memory; `InvalidInput` when a number is out of range.
    pub fn create(ranks: usize, ring: usize) -> io::Result<OwnedFd> {
        let bytes = total_bytes(ranks, ring).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("{ranks} ranks with rings of {ring} bytes"))
        })?;
        let fd = memfd_create(c"spmd-segment", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&fd, bytes as u64)?;
        fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let segment = Segment::map_bytes(fd.as_fd(), bytes, ranks, ring)?;
        segment.word(0).store(MAGIC, Ordering::Relaxed);
        segment.word(1).store(ranks as u64, Ordering::Relaxed);
        segment.word(2).store(ring as u64, Ordering::Release);
        Ok(fd)
    }

    /// Maps a segment made by [`Segment::create`], by this or another process.
    ///
    /// # Errors
    /// When it cannot be mapped; `InvalidData` when it is no segment, not sealed, or of the wrong size.
    pub fn map(fd: impl AsFd) -> io::Result<Self> {
        let fd = fd.as_fd();
        let bad = |what: &str| io::Error::new(io::ErrorKind::InvalidData, format!("the shared segment {what}"));
        if !fcntl_get_seals(fd)?.contains(SealFlags::SHRINK) {
            return Err(bad("is not sealed against shrinking"));
        }
        let bytes = usize::try_from(fstat(fd)?.st_size).map_err(|_| bad("has a negative size"))?;
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

    fn map_bytes(fd: impl AsFd, bytes: usize, ranks: usize, ring: usize) -> io::Result<Self> {
        // SAFETY: a fresh mapping at an address of the kernel's choice; the file is sealed against shrinking, so that
        // no access within `bytes` can fault.
        let base = unsafe {
            mmap(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, fd.as_fd(), 0)?
        };
        let base = NonNull::new(base.cast::<u8>()).ok_or(Errno::FAULT)?;
        Ok(Segment { base, bytes, ranks, ring })
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
        assert!(rank < self.ranks && index < LINE / 4);
        // SAFETY: within the flags of a rank that exists, aligned, and only ever accessed as an atomic.
        unsafe { self.base.add(LINE * (1 + rank)).cast::<AtomicU32>().add(index).as_ref() }
    }

    /// Whether `rank` is about to sleep or sleeps, and wants its eventfd written.
    pub(crate) fn sleeping(&self, rank: usize) -> &AtomicU32 {
        self.flag(rank, 0)
    }

    /// Whether `rank` has dropped its world.
    pub(crate) fn finished(&self, rank: usize) -> &AtomicU32 {
        self.flag(rank, 1)
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

    /// The ring that carries bytes from one rank to another.
    pub(crate) fn ring(self: &Arc<Self>, from: usize, to: usize) -> MappedRing {
        assert!(from < self.ranks && to < self.ranks);
        let start = LINE * (1 + 2 * self.ranks) + (from * self.ranks + to) * (2 * LINE + self.ring);
        debug_assert!(start + 2 * LINE + self.ring <= self.bytes);
        // SAFETY: within the mapping, as computed by `total_bytes`.
        let base = unsafe { self.base.add(start) };
        MappedRing { segment: self.clone(), base, capacity: self.ring }
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: mapped by us with this length; rings hold an `Arc` of the segment, so none is left.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok());
    }
}

/// The size of a segment, if the numbers make sense.
fn total_bytes(ranks: usize, ring: usize) -> Option<usize> {
    if ranks == 0 || !ring.is_power_of_two() || ring < LINE {
        return None;
    }
    let rings = ranks.checked_mul(ranks)?.checked_mul(ring.checked_add(2 * LINE)?)?;
    let bytes = rings.checked_add(LINE * (1 + 2 * ranks))?;
    (bytes <= isize::MAX as usize).then_some(bytes)
}

/// One ring within a segment. Whoever holds it as a `Producer` or `Consumer` must be the only one at that end.
#[derive(Debug)]
pub(crate) struct MappedRing {
    segment: Arc<Segment>,
    base: NonNull<u8>,
    capacity: usize,
}

// SAFETY: see `Segment`; the pointer stays valid as long as the segment is held.
unsafe impl Send for MappedRing {}

impl MappedRing {
    fn position(&self, line: usize) -> &AtomicU64 {
        debug_assert!(line < 2 && self.segment.ring == self.capacity);
        // SAFETY: within the two position lines of the ring, aligned, and only ever accessed as an atomic.
        unsafe { self.base.add(line * LINE).cast::<AtomicU64>().as_ref() }
    }
}

impl RingMemory for MappedRing {
    fn capacity(&self) -> usize {
        self.capacity
    }

    fn head(&self) -> u64 {
        self.position(0).load(Ordering::Acquire)
    }

    fn set_head(&self, position: u64) {
        self.position(0).store(position, Ordering::Release);
    }

    fn tail(&self) -> u64 {
        self.position(1).load(Ordering::Acquire)
    }

    fn set_tail(&self, position: u64) {
        self.position(1).store(position, Ordering::Release);
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        assert!(at <= self.capacity && bytes.len() <= self.capacity - at);
        // SAFETY: within the ring's bytes. The producer has made sure that the consumer has released them, so nobody
        // else accesses them until the tail is published.
        unsafe { self.base.add(2 * LINE + at).copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) }
    }

    fn read(&self, at: usize, bytes: &mut [u8]) {
        assert!(at <= self.capacity && bytes.len() <= self.capacity - at);
        // SAFETY: within the ring's bytes. The consumer has seen that the producer published them, and the producer
        // does not write them again before the head is published. A peer that breaks this can garble the copy, but
        // plain bytes have no invalid value.
        unsafe { self.base.add(2 * LINE + at).copy_to_nonoverlapping(NonNull::from(&mut *bytes).cast(), bytes.len()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::ring::{Consumer, Producer};

    #[test]
    fn two_mappings_of_one_segment_see_the_same_rings() {
        let fd = Segment::create(3, 4096).unwrap();
        let (a, b) = (Arc::new(Segment::map(&fd).unwrap()), Arc::new(Segment::map(&fd).unwrap()));
        let mut producers: Vec<_> = (0..9_usize).map(|pair| Producer::new(a.ring(pair / 3, pair % 3))).collect();
        for (pair, producer) in (0_u8..).zip(&mut producers) {
            assert!(producer.push(&[&[pair; 4096]]));
        }
        for pair in 0..9_u8 {
            let mut consumer = Consumer::new(b.ring(usize::from(pair / 3), usize::from(pair % 3)));
            let mut bytes = [0; 4096];
            assert_eq!(consumer.available(), 4096);
            consumer.peek(0, &mut bytes);
            assert_eq!(bytes, [pair; 4096]);
        }
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
    fn a_segment_cannot_be_shrunk() {
        let fd = Segment::create(1, 4096).unwrap();
        assert_eq!(ftruncate(&fd, 10).unwrap_err(), Errno::PERM);
    }
}
