//! Memory that the first and the last rank share while floors are measured: a memfd that one opens through the other's
//! `/proc` entry, so that it works under any launcher. Who may touch what, and when, is the business of `memory`.

#![expect(unsafe_code, reason = "memory shared with another process")]

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// Two cache lines: processors fetch lines in pairs.
const APART: usize = 128;
/// Lines for handing over, each [`APART`].
const LINES: usize = 4;
/// Lines of the stream, each of 64 bytes.
pub(super) const STREAM: usize = 1024;
const LINE: usize = 64;
const HEAD: usize = LINES * APART + STREAM * LINE;

/// Lines and two areas of bytes, one for each rank to fill.
#[derive(Debug)]
pub(super) struct Shared {
    base: NonNull<u8>,
    area: usize,
    file: OwnedFd,
}

impl Shared {
    /// Memory with two areas of `area` bytes, which costs only what is touched.
    pub(super) fn create(area: usize) -> io::Result<Self> {
        let file = memfd_create("rsbench", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, (HEAD + 2 * area) as u64)?;
        Self::map(file, area)
    }

    /// The memory that process `pid` of this host has as descriptor `fd`.
    pub(super) fn open(pid: u32, fd: i32, area: usize) -> io::Result<Self> {
        let file: File = OpenOptions::new().read(true).write(true).open(format!("/proc/{pid}/fd/{fd}"))?;
        if file.metadata()?.len() != (HEAD + 2 * area) as u64 {
            return Err(io::Error::other("the descriptor is another file"));
        }
        Self::map(file.into(), area)
    }

    fn map(file: OwnedFd, area: usize) -> io::Result<Self> {
        let bytes = HEAD + 2 * area;
        // SAFETY: a fresh mapping at an address of the kernel's choice aliases nothing of this process.
        let base = unsafe {
            mmap(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, file.as_fd(), 0)?
        };
        let base = NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))?;
        Ok(Shared { base, area, file })
    }

    /// The descriptor's number, for [`Shared::open`] in the other process.
    pub(super) fn descriptor(&self) -> i32 {
        self.file.as_raw_fd()
    }

    /// A line for handing over.
    pub(super) fn line(&self, index: usize) -> &AtomicU64 {
        self.word(index % LINES * APART)
    }

    /// A line of the stream.
    pub(super) fn stream(&self, index: usize) -> &AtomicU64 {
        self.word(LINES * APART + index % STREAM * LINE)
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: `offset` is a multiple of 64 within the head of a page-aligned mapping that lives as long as `self`;
        // the head is only ever accessed as atomics, in both processes.
        unsafe { self.base.add(offset).cast().as_ref() }
    }

    /// Fills the first `bytes` of an area. The caller must know that the other process does not touch it meanwhile: it
    /// hands areas over by lines.
    pub(super) fn fill(&self, area: usize, bytes: usize, value: u8) {
        let bytes = bytes.min(self.area);
        // SAFETY: within the mapping. A race with the other process would come from a wrong order of the rounds, and
        // could only tear bytes that nothing is derived from.
        unsafe { self.base.add(HEAD + area % 2 * self.area).write_bytes(value, bytes) }
    }

    /// Copies from an area, from `offset` on, as much as `to` takes; the same precaution as for [`Shared::fill`].
    pub(super) fn copy(&self, area: usize, offset: usize, to: &mut [u8]) {
        let bytes = to.len().min(self.area.saturating_sub(offset));
        // SAFETY: as for `fill`; `to` is memory of this process and cannot overlap the mapping.
        unsafe {
            let from = self.base.add(HEAD + area % 2 * self.area + offset.min(self.area));
            std::ptr::copy_nonoverlapping(from.as_ptr(), to.as_mut_ptr(), bytes);
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: the mapping was made in `map`, and every reference into it borrows `self`.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), HEAD + 2 * self.area) };
        debug_assert!(unmapped.is_ok());
    }
}
