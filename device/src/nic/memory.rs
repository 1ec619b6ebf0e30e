//! Memory that the software NIC may touch: what was registered, under keys, and nothing else.
//!
//! Others read and write it at the same time, so it is only ever accessed by atomics. Knows no queues.

#![expect(unsafe_code, reason = "memory shared with kernels and threads")]

use std::{
    any::Any,
    ptr::NonNull,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU8, AtomicU64, Ordering, fence},
    },
};

/// What a key allows to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Only its own side uses it.
    Local,
    /// Peers may write to it and change words of it.
    Remote,
}

/// A range of memory, and what keeps it there.
#[derive(Clone, Debug)]
pub struct Memory {
    start: NonNull<u8>,
    bytes: usize,
    _owner: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the owner keeps it mapped, and it is only accessed by atomics.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

// `Arc<dyn Any>` has no Debug of its own beyond its name, which is what is wanted here.
impl Memory {
    /// `bytes` bytes at `start`, aligned to 8.
    ///
    /// # Safety
    /// They must be readable and writable for as long as `owner` lives, and be accessed by others only with atomics, by a
    /// device, or by copies that allow for changes meanwhile.
    ///
    /// # Panics
    /// When `start` is not aligned to 8.
    #[must_use]
    pub unsafe fn new(start: NonNull<u8>, bytes: usize, owner: Arc<dyn Any + Send + Sync>) -> Self {
        assert!(start.addr().get().is_multiple_of(8), "memory for the software NIC is aligned to 8 bytes");
        Memory { start, bytes, _owner: owner }
    }

    /// Zeroed memory of its own: `bytes`, rounded up to a multiple of 4096, aligned to 4096.
    #[must_use]
    pub fn zeroed(bytes: usize) -> Self {
        #[repr(C, align(4096))]
        struct Page([AtomicU64; 512]);
        let pages: Arc<[Page]> =
            (0..bytes.div_ceil(4096)).map(|_| Page(std::array::from_fn(|_| AtomicU64::new(0)))).collect();
        let start = NonNull::from(&pages[..]).cast();
        let bytes = pages.len() * 4096;
        Memory { start, bytes, _owner: Arc::new(pages) }
    }

    /// Where it begins.
    #[must_use]
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// How long it is.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// A part of it.
    ///
    /// # Panics
    /// When the part is not within it, or not aligned to 8.
    #[must_use]
    pub fn part(&self, at: usize, bytes: usize) -> Self {
        assert!(at.is_multiple_of(8) && at.checked_add(bytes).is_some_and(|end| end <= self.bytes));
        // SAFETY: within the range, as asserted.
        Memory { start: unsafe { self.start.add(at) }, bytes, _owner: self._owner.clone() }
    }

    fn byte(&self, at: usize) -> &AtomicU8 {
        assert!(at < self.bytes);
        // SAFETY: within the range; only ever accessed as an atomic by us.
        unsafe { self.start.add(at).cast().as_ref() }
    }

    /// The word at `at`.
    ///
    /// # Panics
    /// When it is not within the range, or not aligned.
    #[must_use]
    pub fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at.checked_add(8).is_some_and(|end| end <= self.bytes));
        // SAFETY: within the range and aligned, as its start is; only ever accessed as an atomic by us.
        unsafe { self.start.add(at).cast().as_ref() }
    }

    /// The half word at `at`.
    ///
    /// # Panics
    /// When it is not within the range, or not aligned.
    #[must_use]
    pub fn half(&self, at: usize) -> &std::sync::atomic::AtomicU32 {
        assert!(at.is_multiple_of(4) && at.checked_add(4).is_some_and(|end| end <= self.bytes));
        // SAFETY: as for `word`.
        unsafe { self.start.add(at).cast().as_ref() }
    }

    /// Copies bytes out.
    ///
    /// # Panics
    /// When they are not within the range.
    pub fn read(&self, at: usize, bytes: &mut [u8]) {
        assert!(at.checked_add(bytes.len()).is_some_and(|end| end <= self.bytes));
        let mut done = 0;
        while done < bytes.len() {
            if (at + done).is_multiple_of(8) && bytes.len() - done >= 8 {
                let word = self.word(at + done).load(Ordering::Relaxed);
                bytes[done..done + 8].copy_from_slice(&word.to_ne_bytes());
                done += 8;
            } else {
                bytes[done] = self.byte(at + done).load(Ordering::Relaxed);
                done += 1;
            }
        }
        fence(Ordering::Acquire);
    }

    /// Copies bytes in, after everything that was written before; aligned words of 8 bytes are never torn.
    ///
    /// # Panics
    /// When they are not within the range.
    pub fn write(&self, at: usize, bytes: &[u8]) {
        assert!(at.checked_add(bytes.len()).is_some_and(|end| end <= self.bytes));
        fence(Ordering::Release);
        let mut done = 0;
        while done < bytes.len() {
            if (at + done).is_multiple_of(8) && bytes.len() - done >= 8 {
                let word = u64::from_ne_bytes(bytes[done..done + 8].try_into().expect("eight bytes"));
                self.word(at + done).store(word, Ordering::Relaxed);
                done += 8;
            } else {
                self.byte(at + done).store(bytes[done], Ordering::Relaxed);
                done += 1;
            }
        }
    }
}

/// What one side has registered.
#[derive(Debug, Default)]
pub struct Regions {
    regions: Mutex<Vec<Region>>,
}

#[derive(Debug)]
struct Region {
    address: u64,
    memory: Memory,
    access: Access,
}

/// Keys are far from zero and from each other, so that a wrong one is no one's.
const FIRST_KEY: u32 = 0x0100_0100;
const KEY_STEP: u32 = 0x0001_0100;

impl Regions {
    /// Registers memory that entries name by `address` and what follows; its key, for both sides.
    ///
    /// # Panics
    /// After 2^16 registrations.
    pub fn register(&self, address: u64, memory: Memory, access: Access) -> u32 {
        let mut regions = self.regions.lock().unwrap_or_else(PoisonError::into_inner);
        let number = u32::try_from(regions.len()).ok().filter(|number| *number < 1 << 15).expect("few registrations");
        regions.push(Region { address, memory, access });
        FIRST_KEY + number * KEY_STEP
    }

    /// The memory of a range, and where in it that begins, if the key covers all of it.
    pub(crate) fn find(&self, key: u32, address: u64, bytes: u64, wanted: Access) -> Option<(Memory, usize)> {
        let number = key.checked_sub(FIRST_KEY).filter(|distance| distance.is_multiple_of(KEY_STEP))? / KEY_STEP;
        let regions = self.regions.lock().unwrap_or_else(PoisonError::into_inner);
        let region = regions.get(usize::try_from(number).ok()?)?;
        let at = address.checked_sub(region.address)?;
        let fits = at.checked_add(bytes).is_some_and(|end| end <= region.memory.bytes as u64);
        let allowed = wanted == Access::Local || region.access == Access::Remote;
        (fits && allowed).then(|| (region.memory.clone(), usize::try_from(at).expect("within memory")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_out_as_they_went_in_at_every_offset_and_length() {
        let memory = Memory::zeroed(4096);
        for at in 0..17 {
            for length in 0..40 {
                let bytes: Vec<u8> = (0..length).map(|i| u8::try_from(i * 3 + at + 1).unwrap()).collect();
                memory.write(at, &bytes);
                let mut found = vec![0; length + 1];
                memory.read(at, &mut found);
                assert_eq!((&found[..length], found[length]), (&bytes[..], 0));
                memory.write(at, &vec![0; length]);
            }
        }
    }

    #[test]
    fn a_key_covers_its_range_and_what_it_allows() {
        let regions = Regions::default();
        let local = regions.register(0x1000, Memory::zeroed(4096), Access::Local);
        let remote = regions.register(0x8000, Memory::zeroed(4096), Access::Remote);
        assert!(regions.find(local, 0x1000, 4096, Access::Local).is_some());
        assert!(regions.find(local, 0x1000, 1, Access::Remote).is_none());
        assert!(regions.find(remote, 0x8fff, 1, Access::Remote).is_some());
        for (key, address, bytes) in [
            (remote, 0x7fff, 2),
            (remote, 0x8fff, 2),
            (remote, 0x8000, u64::MAX),
            (remote, u64::MAX, 2),
            (remote + 1, 0x8000, 1),
            (local, 0x8000, 1),
            (0, 0x8000, 1),
        ] {
            assert!(regions.find(key, address, bytes, Access::Remote).is_none(), "{key:#x} {address:#x} {bytes}");
        }
    }
}
