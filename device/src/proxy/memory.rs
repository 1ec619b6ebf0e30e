//! The memory of a ring: pages of this process that a GPU can be given, too.
//!
//! What the host publishes lies in the first page, the producers' counters of the CPU in the second, descriptors behind. A
//! GPU keeps its counters in memory of its own. Knows no requests.

#![expect(unsafe_code, reason = "memory shared with kernels")]

use super::{
    layout::{Published, RingHandle, STRIDE, WORDS},
    ring::RingMemory,
};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::{
    io,
    mem::offset_of,
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

const PAGE: usize = 4096;
/// Where the producers' counters of the CPU are.
const HANDLE: usize = PAGE;
/// Where descriptors begin.
const ENTRIES: usize = 2 * PAGE;

/// A ring in this process's memory.
#[derive(Debug)]
pub struct Ring {
    base: NonNull<u8>,
    mapped: usize,
    capacity: u64,
}

// SAFETY: the mapping is valid in every thread until drop; all access is by atomics.
unsafe impl Send for Ring {}
// SAFETY: as above.
unsafe impl Sync for Ring {}

impl Ring {
    /// A ring with room for `entries` descriptors, rounded up to a power of two.
    ///
    /// # Errors
    /// When there is no memory, or `entries` is 0 or more than 2^24.
    pub fn new(entries: usize) -> io::Result<Self> {
        if !(1..=1 << 24).contains(&entries) {
            let text = format!("a ring of {entries} descriptors: 1 to 16777216 are possible");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let capacity = entries.next_power_of_two();
        let mapped = (ENTRIES + capacity * STRIDE).next_multiple_of(PAGE);
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let base = unsafe {
            mmap_anonymous(std::ptr::null_mut(), mapped, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)?
        };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let ring = Ring { base, mapped, capacity: capacity as u64 };
        let handle = ring.handle_at(base.as_ptr().addr() as u64);
        let fields = [
            (offset_of!(RingHandle, entries), handle.entries),
            (offset_of!(RingHandle, published), handle.published),
            (offset_of!(RingHandle, capacity), handle.capacity),
        ];
        for (offset, value) in fields {
            ring.word_at(HANDLE + offset).store(value, Ordering::Release);
        }
        Ok(ring)
    }

    /// All of its pages, to be registered with a device.
    #[must_use]
    pub fn memory(&self) -> NonNull<[u8]> {
        NonNull::slice_from_raw_parts(self.base, self.mapped)
    }

    /// What a kernel needs, for a fresh ring whose pages a device sees at `base`. It is to lie in the device's memory.
    #[must_use]
    pub fn handle_at(&self, base: u64) -> RingHandle {
        RingHandle { entries: base + ENTRIES as u64, published: base, capacity: self.capacity, ..RingHandle::default() }
    }

    /// The address of the handle for producers on the CPU, which share it.
    #[must_use]
    pub fn host_handle(&self) -> NonNull<RingHandle> {
        // SAFETY: within the mapping.
        unsafe { self.base.add(HANDLE) }.cast()
    }

    fn word_at(&self, at: usize) -> &AtomicU64 {
        debug_assert!(at.is_multiple_of(8) && at + 8 <= self.mapped);
        // SAFETY: within the mapping and aligned; only ever accessed as an atomic.
        unsafe { self.base.add(at).cast().as_ref() }
    }

    fn handle_word(&self, offset: usize) -> &AtomicU64 {
        self.word_at(HANDLE + offset)
    }

    pub(super) fn taken_word(&self) -> &AtomicU64 {
        self.word_at(offset_of!(Published, taken))
    }

    pub(super) fn completed_word(&self) -> &AtomicU64 {
        self.word_at(offset_of!(Published, completed))
    }

    pub(super) fn error_word(&self) -> &AtomicU64 {
        self.word_at(offset_of!(Published, error))
    }

    pub(super) fn failed_word(&self) -> &AtomicU64 {
        self.handle_word(offset_of!(RingHandle, failed))
    }
}

impl RingMemory for Arc<Ring> {
    const WORDS: usize = WORDS;

    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn word(&self, place: usize, word: usize) -> u64 {
        self.word_at(ENTRIES + place * STRIDE + word * 8).load(Ordering::Acquire)
    }

    fn set_word(&self, place: usize, word: usize, value: u64) {
        self.word_at(ENTRIES + place * STRIDE + word * 8).store(value, Ordering::Release);
    }

    fn reserve(&self) -> u64 {
        self.handle_word(offset_of!(RingHandle, head)).fetch_add(1, Ordering::Relaxed)
    }

    fn seen(&self) -> u64 {
        self.handle_word(offset_of!(RingHandle, seen)).load(Ordering::Acquire)
    }

    fn set_seen(&self, taken: u64) {
        self.handle_word(offset_of!(RingHandle, seen)).store(taken, Ordering::Release);
    }

    fn taken(&self) -> u64 {
        self.taken_word().load(Ordering::Acquire)
    }

    fn set_taken(&self, taken: u64) {
        self.taken_word().store(taken, Ordering::Release);
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: mapped by us with this length, and nothing borrows from it.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.mapped) };
        debug_assert!(unmapped.is_ok());
    }
}
