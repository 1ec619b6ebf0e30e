//! A structure in memory of the host that kernels see: it outlives a kernel that the driver ends.

#![expect(unsafe_code, reason = "calls of the CUDA driver, and memory that a GPU writes")]

use crate::{
    driver::{Gpu, failed},
    error::Result,
};
use bytemuck::Pod;
use cudarc::driver::{result, sys};
use std::{marker::PhantomData, ptr::NonNull};

/// One `T`, zero at first.
#[derive(Debug)]
pub(crate) struct Pinned<T> {
    host: NonNull<T>,
    device: u64,
    gpu: Gpu,
    value: PhantomData<T>,
}

// SAFETY: plain bytes, copied in and out by volatile accesses.
unsafe impl<T: Pod> Send for Pinned<T> {}
// SAFETY: as above; fields that both sides write are single words.
unsafe impl<T: Pod> Sync for Pinned<T> {}

impl<T: Pod> Pinned<T> {
    pub(crate) fn new(gpu: &Gpu) -> Result<Self> {
        gpu.bind()?;
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        // SAFETY: no flag asks for memory that may not be written by both sides.
        let host = unsafe { result::malloc_host(size_of::<T>(), flags) }
            .map_err(failed("taking pinned memory of the host"))?;
        let host = NonNull::new(host.cast::<T>()).expect("the driver gives an address");
        // SAFETY: fresh memory of this size, aligned to a page.
        unsafe { host.write(T::zeroed()) };
        let mut device = 0;
        // SAFETY: the memory was taken with DEVICEMAP.
        unsafe { sys::cuMemHostGetDevicePointer_v2(&raw mut device, host.as_ptr().cast(), 0) }
            .result()
            .map_err(failed("asking where the GPU sees pinned memory"))?;
        Ok(Pinned { host, device, gpu: gpu.clone(), value: PhantomData })
    }

    /// Where kernels see it.
    pub(crate) fn address(&self) -> u64 {
        self.device
    }

    /// What it holds now.
    pub(crate) fn read(&self) -> T {
        // SAFETY: valid for reads as long as `self` lives; any bytes are a `T`.
        unsafe { self.host.read_volatile() }
    }

    pub(crate) fn write(&self, value: T) {
        // SAFETY: valid for writes as long as `self` lives.
        unsafe { self.host.write_volatile(value) }
    }

    /// Writes one `u32` at an offset.
    pub(crate) fn write_word(&self, offset: usize, value: u32) {
        assert!(offset + 4 <= size_of::<T>() && offset.is_multiple_of(4));
        // SAFETY: within the structure and aligned.
        unsafe { self.host.cast::<u8>().add(offset).cast::<u32>().write_volatile(value) }
    }
}

impl<T> Drop for Pinned<T> {
    fn drop(&mut self) {
        if self.gpu.bind().is_ok() {
            let _ = self.gpu.context.synchronize();
            // SAFETY: taken by us; no kernel runs any more.
            let freed = unsafe { result::free_host(self.host.as_ptr().cast()) };
            debug_assert!(freed.is_ok());
        }
    }
}
