//! Memory that a device reads and writes, registered as long as it exists: rings and landing places of our own, and a
//! rank's part of a symmetric heap.

#![expect(unsafe_code, reason = "memory that a device writes")]

use super::{
    device::Device,
    error::{Result, VerbsError},
    sys,
};
use crate::memory::heap::HeapMemory;
use std::{io, ptr::NonNull, sync::Arc};

/// Bytes of registered memory of this process, for one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(super) address: u64,
    pub(super) length: u32,
    pub(super) key: u32,
}

impl Piece {
    /// Of memory that is registered under this key.
    fn new(start: NonNull<u8>, whole: usize, key: u32, at: usize, length: usize) -> Self {
        assert!(at <= whole && length <= whole - at, "within the memory");
        let length = u32::try_from(length).expect("a request is far below 4 GiB");
        Piece { address: (start.as_ptr().addr() + at) as u64, length, key }
    }
}

/// Memory of a peer: an address and the key for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Remote {
    pub(crate) address: u64,
    pub(crate) key: u32,
}

impl Remote {
    /// So many bytes further on.
    pub(crate) fn plus(self, bytes: usize) -> Self {
        Remote { address: self.address + bytes as u64, ..self }
    }
}

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

    /// Zeroed memory that a peer fills by RDMA. `relaxed`: the host may carry the device's writes out in any order, which
    /// lets more of them be under way on PCIe; this process then looks at nothing that no completion has announced (a
    /// device writes completions in strict order behind what they announce).
    pub(crate) fn incoming(device: &Arc<Device>, length: usize, relaxed: bool) -> Result<Self> {
        let relaxed = if relaxed { sys::ACCESS_RELAXED_ORDERING } else { 0 };
        Self::new(device, length, sys::ACCESS_LOCAL_WRITE | sys::ACCESS_REMOTE_WRITE | relaxed)
    }

    /// Zeroed memory that this process fills and that the device fills with what it fetches from peers.
    pub(crate) fn landing(device: &Arc<Device>, length: usize) -> Result<Self> {
        Self::new(device, length, sys::ACCESS_LOCAL_WRITE)
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
        // SAFETY: pages that stay until the registration is gone.
        let mr = unsafe { register(device, start, length, access) };
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

    /// A part of it, for a request.
    pub(crate) fn piece(&self, at: usize, length: usize) -> Piece {
        // SAFETY: registered as long as the region exists.
        Piece::new(self.start, self.length, unsafe { self.mr.as_ref() }.lkey, at, length)
    }

    /// The key for requests of this side.
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

/// Registers memory of this process.
///
/// # Safety
/// The pages must stay until the registration is gone.
unsafe fn register(device: &Device, start: *mut std::ffi::c_void, length: usize, access: i32) -> *mut sys::Mr {
    let (library, domain) = (&device.library, device.pd.as_ptr());
    // SAFETY: a domain of this device; the pages stay, as the caller promises. The device knows them by their address.
    unsafe {
        if access & sys::ACCESS_RELAXED_ORDERING == 0 {
            (library.ibv_reg_mr)(domain, start, length, access)
        } else {
            (library.ibv_reg_mr_iova2)(domain, start, length, start.addr() as u64, access.cast_unsigned())
        }
    }
}

/// This rank's part of a symmetric heap, which peers read and write by RDMA.
#[derive(Debug)]
pub(crate) struct Shared {
    device: Arc<Device>,
    memory: Arc<HeapMemory>,
    mr: NonNull<sys::Mr>,
}

// SAFETY: the registration is used by nobody else, and the memory allows for others that write it.
unsafe impl Send for Shared {}

impl Shared {
    /// Registers the part.
    pub(crate) fn new(device: &Arc<Device>, memory: Arc<HeapMemory>) -> Result<Self> {
        let length = memory.part();
        let start = memory.address(memory.own(), 0..length).as_ptr().cast();
        let access = sys::ACCESS_LOCAL_WRITE | device.remote_access();
        // SAFETY: mapped as long as the memory exists, which is held until the registration is gone.
        let mr = unsafe { register(device, start, length, access) };
        let Some(mr) = NonNull::new(mr) else {
            let source = io::Error::last_os_error();
            return Err(VerbsError::MemoryLock { device: device.name(), bytes: length, limit: lock_limit(), source });
        };
        Ok(Shared { device: device.clone(), memory, mr })
    }

    fn start(&self) -> NonNull<u8> {
        self.memory.address(self.memory.own(), 0..self.memory.part())
    }

    /// What peers must know of it.
    pub(crate) fn remote(&self) -> Remote {
        // SAFETY: registered as long as this exists.
        Remote { address: self.start().as_ptr().addr() as u64, key: unsafe { self.mr.as_ref() }.rkey }
    }

    /// The key for requests of this side.
    pub(super) fn local_key(&self) -> u32 {
        // SAFETY: registered as long as this exists.
        unsafe { self.mr.as_ref() }.lkey
    }

    /// A part of it, for a request.
    pub(crate) fn piece(&self, at: usize, length: usize) -> Piece {
        // SAFETY: as above.
        Piece::new(self.start(), self.memory.part(), unsafe { self.mr.as_ref() }.lkey, at, length)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: the device forgets the memory before it is given up.
        unsafe { (self.device.library.ibv_dereg_mr)(self.mr.as_ptr()) };
    }
}

/// How much memory this process may lock, in words.
fn lock_limit() -> String {
    match rustix::process::getrlimit(rustix::process::Resource::Memlock).current {
        None => "any amount".into(),
        Some(bytes) => format!("{} KiB", bytes / 1024),
    }
}
