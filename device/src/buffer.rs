//! Typed places in a device's heap.

#![expect(unsafe_code, reason = "copies between the host and a GPU")]

use crate::{
    device::Device,
    driver::failed,
    error::{Error, Result},
};
use cudarc::driver::{CudaSlice, result};
use spmd::{Element, heap::part};
use std::{
    fmt,
    marker::PhantomData,
    ops::{Range, RangeBounds},
    sync::Arc,
};

/// `len()` elements at the same offset of every rank's heap, or in this rank's own memory of its GPU. Clones and slices are
/// the same memory.
///
/// A kernel gets its address: `launch.arg(buffer.argument())`, a pointer to its elements. Peers write here at any time, so
/// elements are only copied in and out; the copies wait for nothing but themselves, so that streams that use the buffer
/// must be synchronized before.
pub struct DeviceBuffer<T> {
    device: Device,
    /// In bytes.
    offset: usize,
    /// In elements.
    length: usize,
    address: u64,
    /// Where it is not in the heap.
    local: Option<Arc<LocalMemory>>,
    element: PhantomData<fn() -> T>,
}

/// A rank's own memory; it goes after kernels have ended.
#[derive(Debug)]
struct LocalMemory(CudaSlice<u8>);

impl Drop for LocalMemory {
    fn drop(&mut self) {
        // Kernels get addresses, of which the driver's own order of frees knows nothing.
        let _ = self.0.context().synchronize();
    }
}

impl<T> Clone for DeviceBuffer<T> {
    fn clone(&self) -> Self {
        DeviceBuffer { device: self.device.clone(), local: self.local.clone(), ..*self }
    }
}

impl<T> fmt::Debug for DeviceBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceBuffer").field("offset", &self.offset).field("len", &self.length).finish_non_exhaustive()
    }
}

impl<T: Element> DeviceBuffer<T> {
    pub(crate) fn new(device: Device, offset: usize, length: usize) -> Self {
        let address = device.context().heap + offset as u64;
        DeviceBuffer { device, offset, length, address, local: None, element: PhantomData }
    }

    pub(crate) fn local(device: Device, memory: CudaSlice<u8>, address: u64, length: usize) -> Self {
        let local = Some(Arc::new(LocalMemory(memory)));
        DeviceBuffer { device, offset: 0, length, address, local, element: PhantomData }
    }

    /// The device in whose heap it is.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Whether it is this rank's own ([`Device::alloc_local`]) and not in the heap.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.local.is_some()
    }

    /// Where it begins in every rank's heap, in bytes; in the memory that was taken, where it is this rank's own.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// The number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether it has no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.length * size_of::<T>()
    }

    /// The address of its first element, as kernels see it.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.address
    }

    /// The same, as an argument of a kernel: a `T *`.
    #[must_use]
    pub fn argument(&self) -> &u64 {
        &self.address
    }

    /// A part of it, again a buffer.
    ///
    /// # Panics
    /// When the range is not within the buffer.
    #[must_use]
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Self {
        let Range { start, end } = part(range, self.length);
        let before = start * size_of::<T>();
        DeviceBuffer {
            offset: self.offset + before,
            length: end - start,
            address: self.address + before as u64,
            ..self.clone()
        }
    }

    /// Copies elements of the host to the front of this rank's own; complete when it returns.
    ///
    /// # Errors
    /// When there are more than the buffer has; when the driver fails.
    pub fn write(&self, data: &[T]) -> Result<()> {
        self.holds("DeviceBuffer::write", data.len())?;
        let stream = self.device.copies();
        let copied = self.device.gpu().bind().map(|()| {
            // Not the synchronous call: that returns when the bytes have left `data`, which is before they arrive.
            // SAFETY: the bytes are this rank's own part of the heap, which lives as long as `self.device`; `data` is borrowed
            // until the stream has been waited for.
            unsafe { result::memcpy_htod_async(self.address, data, stream.cu_stream()) }
        });
        copied?.and_then(|()| stream.synchronize()).map_err(failed("copying to the GPU"))
    }

    /// Copies the front of this rank's own elements to the host.
    ///
    /// # Errors
    /// When there are fewer; when the driver fails.
    pub fn read(&self, data: &mut [T]) -> Result<()> {
        self.holds("DeviceBuffer::read", data.len())?;
        self.device.gpu().bind()?;
        // SAFETY: as in `write`; any bytes are elements.
        unsafe { result::memcpy_dtoh_sync(data, self.address) }.map_err(failed("copying from the GPU"))
    }

    /// All of this rank's own elements.
    ///
    /// # Errors
    /// When the driver fails.
    pub fn to_vec(&self) -> Result<Vec<T>> {
        let mut data = vec![T::zeroed(); self.length];
        self.read(&mut data)?;
        Ok(data)
    }

    fn holds(&self, operation: &'static str, length: usize) -> Result<()> {
        if length <= self.length {
            return Ok(());
        }
        Err(Error::Heap { operation, reason: format!("{length} elements, but the buffer has {}", self.length) })
    }
}
