//! Memory that a device reads and writes: ours from beginning to end, registered as long as it exists.

#![expect(unsafe_code, reason = "memory that a device writes")]

use super::{
    device::Device,
    error::{Result, VerbsError},
    sys,
};
use std::{io, ptr::NonNull, sync::Arc};

/// Pages of this process that a device may use. Only ever accessed through raw pointers: the device writes when it wants.
#[derive(Debug)]
pub(crate) struct Region {
    device: Arc<Device>,
    start: NonNull<u8>,
    length: usize,
    mr: NonNull<sys::Mr>,
}

// SAFETY: the pages belong to the region alone.
unsafe impl Send for Region {}

impl Region {
    /// Zeroed memory that this process fills and the device reads.
    pub(crate) fn outgoing(device: &Arc<Device>, length: usize) -> Result<Self> {
        Self::new(device, length, 0)
    }

    /// Zeroed memory that a peer fills by RDMA.
    pub(crate) fn incoming(device: &Arc<Device>, length: usize) -> Result<Self> {
        Self::new(device, length, sys::ACCESS_LOCAL_WRITE | sys::ACCESS_REMOTE_WRITE)
    }

    fn new(device: &Arc<Device>, length: usize, access: i32) -> Result<Self> {
        use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
        let failed = |source: io::Error| VerbsError::MemoryLock {
            device: device.name(),
            bytes: length,
            limit: lock_limit(),
            source,
        };
        // SAFETY: a new mapping somewhere.
        let start = unsafe {
            mmap_anonymous(std::ptr::null_mut(), length, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        };
        let start = start.map_err(|error| failed(error.into()))?;
        // SAFETY: a domain of this device, pages that stay until the registration is gone.
        let mr = unsafe { (device.library.ibv_reg_mr)(device.pd.as_ptr(), start, length, access) };
        let (Some(mr), Some(start)) = (NonNull::new(mr), NonNull::new(start.cast())) else {
            let error = failed(io::Error::last_os_error());
            // SAFETY: just mapped, and nobody knows of it.
            let _ = unsafe { rustix::mm::munmap(start, length) };
            return Err(error);
        };
        Ok(Self { device: device.clone(), start, length, mr })
    }

    /// The address that the device knows it by.
    pub(crate) fn address(&self) -> u64 {
        self.start.as_ptr().addr() as u64
    }

    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// The key for this process's own requests.
    pub(super) fn local_key(&self) -> u32 {
        // SAFETY: registered as long as the region exists.
        unsafe { self.mr.as_ref() }.lkey
    }

    /// The key for the peer's requests.
    pub(crate) fn remote_key(&self) -> u32 {
        // SAFETY: as above.
        unsafe { self.mr.as_ref() }.rkey
    }

    /// Copies bytes in.
    ///
    /// # Panics
    /// They do not fit.
    pub(crate) fn write(&mut self, at: usize, bytes: &[u8]) {
        assert!(at <= self.length && bytes.len() <= self.length - at, "within the region");
        // SAFETY: within the mapping, which no reference points into.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.as_ptr().add(at), bytes.len()) };
    }

    /// Copies bytes out. What a peer writes meanwhile may be seen in part: callers read what a completion has announced.
    ///
    /// # Panics
    /// They are not all within the region.
    pub(crate) fn read(&self, at: usize, bytes: &mut [u8]) {
        assert!(at <= self.length && bytes.len() <= self.length - at, "within the region");
        // SAFETY: within the mapping, which no reference points into.
        unsafe { std::ptr::copy_nonoverlapping(self.start.as_ptr().add(at), bytes.as_mut_ptr(), bytes.len()) };
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: nothing of this process names the memory any more; the device forgets it first.
        unsafe {
            (self.device.library.ibv_dereg_mr)(self.mr.as_ptr());
            let _ = rustix::mm::munmap(self.start.as_ptr().cast(), self.length);
        }
    }
}

/// How much memory this process may lock, in words.
fn lock_limit() -> String {
    match rustix::process::getrlimit(rustix::process::Resource::Memlock).current {
        None => "any amount".into(),
        Some(bytes) => format!("{} KiB", bytes / 1024),
    }
}
