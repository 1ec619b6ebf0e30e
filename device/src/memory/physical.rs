//! Memory of a GPU as an object of its own (CUDA's virtual memory management): it can be passed to another process as a
//! file descriptor and mapped there.

#![expect(unsafe_code, reason = "calls of the CUDA driver")]

use crate::{
    driver::{Gpu, failed},
    error::{Error, Result},
};
use cudarc::driver::{DriverError, result, sys};
use std::{
    ffi::c_void,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
    sync::Arc,
};

const DESCRIPTOR: sys::CUmemAllocationHandleType =
    sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

/// Memory of a GPU, not mapped anywhere by itself. It goes when the last process has let go of it.
#[derive(Debug)]
pub(crate) struct Physical {
    handle: sys::CUmemGenericAllocationHandle,
    bytes: usize,
    gpu: Gpu,
}

impl Physical {
    /// At least `bytes` bytes of the GPU's memory.
    pub(crate) fn new(gpu: &Gpu, bytes: usize) -> Result<Self> {
        gpu.bind()?;
        let properties = properties(gpu)?;
        let mut granule = 0;
        let option = sys::CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_RECOMMENDED;
        // SAFETY: both pointers are to our own variables.
        unsafe { sys::cuMemGetAllocationGranularity(&raw mut granule, &raw const properties, option) }
            .result()
            .map_err(failed("asking for the GPU's page size"))?;
        let (free, total) = result::mem_get_info().map_err(failed("asking for the GPU's free memory"))?;
        let full = || Error::Memory { what: "a heap that other GPUs map", wanted: bytes, free, total };
        // What is free changes until the driver has it; more than there is need not be asked for.
        let rounded = bytes.max(1).checked_next_multiple_of(granule.max(1)).filter(|rounded| *rounded <= total);
        let rounded = rounded.ok_or_else(full)?;
        let mut handle = 0;
        // SAFETY: both pointers are to our own variables.
        unsafe { sys::cuMemCreate(&raw mut handle, rounded, &raw const properties, 0) }.result().map_err(|error| {
            match error {
                DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY) => full(),
                error => failed(format!("taking {rounded} bytes of the GPU's memory"))(error),
            }
        })?;
        Ok(Physical { handle, bytes: rounded, gpu: gpu.clone() })
    }

    /// Its bytes, a multiple of the GPU's page size.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// A descriptor for other processes.
    pub(crate) fn export(&self) -> Result<OwnedFd> {
        self.gpu.bind()?;
        let mut descriptor = -1_i32;
        // SAFETY: for this type of handle the driver writes an `int`.
        unsafe { sys::cuMemExportToShareableHandle((&raw mut descriptor).cast(), self.handle, DESCRIPTOR, 0) }
            .result()
            .map_err(failed("making a file descriptor of the GPU's memory"))?;
        // SAFETY: the driver has just opened it for us.
        Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
    }

    /// The memory of another process, of `bytes` bytes, by its descriptor.
    pub(crate) fn import(gpu: &Gpu, descriptor: BorrowedFd<'_>, bytes: usize) -> Result<Self> {
        gpu.bind()?;
        let mut handle = 0;
        let number = usize::try_from(descriptor.as_raw_fd()).unwrap_or(usize::MAX);
        let number: *mut c_void = std::ptr::without_provenance_mut(number);
        // SAFETY: for this type of handle the descriptor itself stands where the pointer would.
        unsafe { sys::cuMemImportFromShareableHandle(&raw mut handle, number, DESCRIPTOR) }
            .result()
            .map_err(failed("taking over a peer's memory by its descriptor"))?;
        Ok(Physical { handle, bytes, gpu: gpu.clone() })
    }
}

impl Drop for Physical {
    fn drop(&mut self) {
        // SAFETY: the handle is ours, and mappings keep the memory themselves.
        let released = self.gpu.bind().map(|()| unsafe { sys::cuMemRelease(self.handle) });
        debug_assert!(released.is_ok());
    }
}

/// Memory that the GPU reads and writes at an address.
#[derive(Debug)]
pub(crate) struct Mapping {
    address: u64,
    physical: Arc<Physical>,
    gpu: Gpu,
}

impl Mapping {
    /// Maps all of it for this GPU.
    pub(crate) fn new(gpu: &Gpu, physical: Arc<Physical>) -> Result<Self> {
        gpu.bind()?;
        let bytes = physical.bytes;
        let mut address = 0;
        // SAFETY: the pointer is to our own variable; the address is of the driver's choice.
        unsafe { sys::cuMemAddressReserve(&raw mut address, bytes, 0, 0, 0) }
            .result()
            .map_err(failed(format!("reserving {bytes} addresses of the GPU")))?;
        // SAFETY: the range was reserved just now, and is given back below when it cannot be used.
        let mapped = unsafe { sys::cuMemMap(address, bytes, 0, physical.handle, 0) }.result();
        if let Err(error) = mapped {
            free(address, bytes);
            return Err(failed("mapping memory of a GPU")(error));
        }
        let mapping = Mapping { address, physical, gpu: gpu.clone() };
        let access = sys::CUmemAccessDesc {
            location: location(gpu),
            flags: sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        // SAFETY: the range is mapped; dropping `mapping` unmaps it.
        unsafe { sys::cuMemSetAccess(address, bytes, &raw const access, 1) }
            .result()
            .map_err(failed("allowing the GPU to use mapped memory"))?;
        Ok(mapping)
    }

    pub(crate) fn address(&self) -> u64 {
        self.address
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.gpu.bind().is_ok() {
            // A kernel may still be using it.
            let _ = self.gpu.context.synchronize();
            // SAFETY: the range is mapped by us, and nothing of this process uses it any more.
            let unmapped = unsafe { sys::cuMemUnmap(self.address, self.physical.bytes) }.result();
            debug_assert!(unmapped.is_ok());
            free(self.address, self.physical.bytes);
        }
    }
}

fn free(address: u64, bytes: usize) {
    // SAFETY: the range was reserved by us and nothing is mapped there.
    let freed = unsafe { sys::cuMemAddressFree(address, bytes) }.result();
    debug_assert!(freed.is_ok());
}

fn location(gpu: &Gpu) -> sys::CUmemLocation {
    sys::CUmemLocation {
        type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
        id: i32::try_from(gpu.context.ordinal()).unwrap_or(0),
    }
}

fn properties(gpu: &Gpu) -> Result<sys::CUmemAllocationProp> {
    let rdma = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED;
    let rdma = gpu.attribute(rdma).is_ok_and(|supported| supported != 0);
    Ok(sys::CUmemAllocationProp {
        type_: sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: DESCRIPTOR,
        location: location(gpu),
        win32HandleMetaData: std::ptr::null_mut(),
        allocFlags: sys::CUmemAllocationProp_st__bindgen_ty_1 {
            compressionType: 0,
            // A NIC may read and write it, where both support that.
            gpuDirectRDMACapable: u8::from(rdma),
            usage: 0,
            reserved: [0; 4],
        },
    })
}
