//! Memory of the host that a GPU reads and writes: registered with the driver for as long as it is used.

#![expect(unsafe_code, reason = "calls of the CUDA driver")]

use crate::{
    driver::{Gpu, failed},
    error::Result,
};
use cudarc::driver::sys;
use std::ptr::NonNull;

/// A registration; dropping it ends it, so that it must go before the memory does.
#[derive(Debug)]
pub(crate) struct Registered {
    host: NonNull<u8>,
    device: u64,
    gpu: Gpu,
}

// SAFETY: an address that is only passed to the driver.
unsafe impl Send for Registered {}
// SAFETY: as above.
unsafe impl Sync for Registered {}

impl Registered {
    /// Registers whole pages.
    ///
    /// # Safety
    /// The memory stays mapped until this is dropped.
    pub(crate) unsafe fn new(gpu: &Gpu, memory: NonNull<[u8]>) -> Result<Self> {
        // SAFETY: as the caller promises.
        unsafe { Self::with(gpu, memory, 0) }
    }

    /// Registers whole pages of another device on the bus, such as the doorbells of a NIC.
    ///
    /// # Safety
    /// As for [`Registered::new`].
    pub(crate) unsafe fn of_device(gpu: &Gpu, memory: NonNull<[u8]>) -> Result<Self> {
        // SAFETY: as the caller promises.
        unsafe { Self::with(gpu, memory, sys::CU_MEMHOSTREGISTER_IOMEMORY) }
    }

    unsafe fn with(gpu: &Gpu, memory: NonNull<[u8]>, more: u32) -> Result<Self> {
        gpu.bind()?;
        let host = memory.cast::<u8>();
        let flags = sys::CU_MEMHOSTREGISTER_PORTABLE | sys::CU_MEMHOSTREGISTER_DEVICEMAP | more;
        // SAFETY: the caller promises that the memory is there.
        unsafe { sys::cuMemHostRegister_v2(host.as_ptr().cast(), memory.len(), flags) }
            .result()
            .map_err(failed(format!("registering {} bytes of the host's memory with the GPU", memory.len())))?;
        let mut registered = Registered { host, device: 0, gpu: gpu.clone() };
        // SAFETY: registered just now with DEVICEMAP.
        unsafe { sys::cuMemHostGetDevicePointer_v2(&raw mut registered.device, host.as_ptr().cast(), 0) }
            .result()
            .map_err(failed("asking where the GPU sees registered memory"))?;
        Ok(registered)
    }

    /// Where kernels see its first byte.
    pub(crate) fn address(&self) -> u64 {
        self.device
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        if self.gpu.bind().is_ok() {
            let _ = self.gpu.context.synchronize();
            // SAFETY: registered by us; no kernel runs any more.
            let ended = unsafe { sys::cuMemHostUnregister(self.host.as_ptr().cast()) }.result();
            debug_assert!(ended.is_ok());
        }
    }
}
