//! Collectives among GPUs that map each other's memory: one kernel on each rank, on a stream of the caller's.
//!
//! Knows the kernels of `kernels/collectives.cu`; which of them is right for a size is decided in `algorithm`.

#![expect(unsafe_code, reason = "launches kernels")]

mod algorithm;

pub use algorithm::Algorithm;

use crate::{
    buffer::DeviceBuffer,
    device::{Device, address},
    driver::failed,
    error::{Error, Result},
};
use cudarc::{
    driver::{CudaContext, CudaFunction, CudaSlice, CudaStream, LaunchConfig, PushKernelArg},
    nvrtc::Ptx,
};
use spmd::Element;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

/// What a reduction does with two values. Integers wrap; `Min` and `Max` of floats are those of IEEE 754-2019 (a NaN gives a
/// NaN); `f16` and `bf16` are combined as `f32` and rounded after each operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Operator {
    /// The sum.
    Sum = 0,
    /// The product.
    Product = 1,
    /// The least.
    Min = 2,
    /// The greatest.
    Max = 3,
}

/// A type that the collectives of a device combine: numbers of 16, 32 and 64 bits.
pub trait Reducible: Element + sealed::Sealed {}

mod sealed {
    pub trait Sealed {
        /// As in the names of the kernels.
        const NAME: &'static str;
        /// The kernels for this type.
        const PTX: &'static str;
    }
}

macro_rules! reducible {
    ($($type:ty, $name:literal);*) => {$(
        impl sealed::Sealed for $type {
            const NAME: &'static str = $name;
            const PTX: &'static str = include_str!(concat!("../../kernels/ptx/", $name, ".ptx"));
        }
        impl Reducible for $type {}
    )*};
}
reducible!(half::f16, "f16"; half::bf16, "bf16"; f32, "f32"; f64, "f64"; i32, "i32"; u32, "u32"; i64, "i64"; u64, "u64");

/// Blocks that a kernel may have: each has a row of flags.
const MAX_BLOCKS: usize = 256;
/// All packets of one operation, in bytes of data.
const PACKET_DATA: usize = 2 << 20;
const PAGE: usize = 4096;
/// `NOBODY` of the kernels.
const NOBODY: u32 = u32::MAX;

/// What the collectives of a device keep: `collective_t` in the GPU's memory, and the kernels that have been loaded.
#[derive(Debug)]
pub(crate) struct State {
    address: u64,
    /// Bytes that the one-shot algorithm can take.
    capacity: usize,
    kernels: Mutex<BTreeMap<&'static str, [CudaFunction; 2]>>,
    _words: CudaSlice<u64>,
}

impl State {
    /// Bytes at the front of every heap that are the collectives'.
    pub(crate) fn reserved_bytes(size: usize) -> usize {
        let packets = 2 * size * Self::capacity(size) / 8 * 16;
        (Self::flags_bytes(size) + packets).max(size * crate::check::ROW_WORDS * 8).next_multiple_of(PAGE)
    }

    fn flags_bytes(size: usize) -> usize {
        (MAX_BLOCKS * size * 8).next_multiple_of(PAGE)
    }

    fn capacity(size: usize) -> usize {
        PACKET_DATA / size / 8 * 8
    }

    /// For a heap at `heap` whose front is zero.
    pub(crate) fn new(stream: &Arc<CudaStream>, heap: u64, size: usize) -> Result<Self> {
        let capacity = Self::capacity(size);
        // As `collective_t`: operations, blocks, flags, packets, capacity.
        let words = [0, 0, heap, heap + Self::flags_bytes(size) as u64, capacity as u64 / 8, 0, 0, 0];
        let words = stream.clone_htod(&words).map_err(failed("copying the state of collectives to the GPU"))?;
        Ok(State { address: address(&words, stream), capacity, kernels: Mutex::default(), _words: words })
    }

    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    /// The kernels for a type: one-shot and two-shot. The driver compiles them when they are asked for first.
    fn kernels<T: Reducible>(&self, context: &Arc<CudaContext>) -> Result<[CudaFunction; 2]> {
        let mut kernels = self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = kernels.get(T::NAME) {
            return Ok(found.clone());
        }
        let what = || format!("loading the collectives for {}", T::NAME);
        let module = context.load_module(Ptx::from_src(T::PTX)).map_err(failed(what()))?;
        let function = |kind: &str| module.load_function(&format!("spmd_{kind}_{}", T::NAME)).map_err(failed(what()));
        let loaded = [function("one_shot")?, function("two_shot")?];
        kernels.insert(T::NAME, loaded.clone());
        Ok(loaded)
    }
}

impl Device {
    /// Combines the elements of all ranks, one by one, and gives every rank the result, in place: enqueues one kernel on
    /// `stream` and returns. Collective: every rank enqueues the same collectives in the same order, on streams that do not
    /// run two of them at once. May be captured into a graph. All ranks get the same bits.
    ///
    /// A rank that never comes ends the kernel with an error after `device.wait_limit`; see [`Device::synchronize`].
    ///
    /// # Errors
    /// When the heap is not on GPUs that map each other; when the driver fails.
    pub fn all_reduce<T: Reducible>(&self, buffer: &DeviceBuffer<T>, op: Operator, stream: &CudaStream) -> Result<()> {
        self.combine(buffer, op, NOBODY, None, stream)
    }

    /// As [`all_reduce`](Device::all_reduce), with an algorithm of the caller's choice.
    ///
    /// # Errors
    /// As there; when the buffer is too large for [`Algorithm::OneShot`].
    pub fn all_reduce_by<T: Reducible>(
        &self,
        algorithm: Algorithm,
        buffer: &DeviceBuffer<T>,
        op: Operator,
        stream: &CudaStream,
    ) -> Result<()> {
        self.combine(buffer, op, NOBODY, Some(algorithm), stream)
    }

    /// As [`all_reduce`](Device::all_reduce), but only rank `root` gets the result; the elements of other ranks stay.
    ///
    /// # Errors
    /// As there; when there is no such rank.
    pub fn reduce<T: Reducible>(
        &self,
        buffer: &DeviceBuffer<T>,
        op: Operator,
        root: usize,
        stream: &CudaStream,
    ) -> Result<()> {
        let size = self.communicator().size();
        let number = u32::try_from(root).ok().filter(|_| root < size);
        let number = number.ok_or(spmd::Error::NoSuchRank { operation: "reduce", rank: root, last: size - 1 })?;
        self.combine(buffer, op, number, None, stream)
    }

    fn combine<T: Reducible>(
        &self,
        buffer: &DeviceBuffer<T>,
        op: Operator,
        root: u32,
        asked: Option<Algorithm>,
        stream: &CudaStream,
    ) -> Result<()> {
        let (size, bytes) = (self.communicator().size(), buffer.bytes());
        if size == 1 || bytes == 0 {
            return Ok(());
        }
        let refuse = |reason: String| Error::Heap { operation: "all_reduce", reason };
        let state = self.collectives().ok_or_else(|| {
            refuse(format!(
                "the ranks' GPUs do not map each other (the way is {}): {}",
                self.choice().way,
                self.choice().why
            ))
        })?;
        let algorithm = asked.unwrap_or_else(|| Algorithm::choose(size, bytes, state.capacity));
        if algorithm == Algorithm::OneShot && bytes > state.capacity {
            return Err(refuse(format!("one_shot takes at most {} bytes, not {bytes}", state.capacity)));
        }
        let [one_shot, two_shot] = state.kernels::<T>(self.cuda())?;
        let processors = self.gpu().processors()?;
        let (blocks, threads) =
            algorithm.shape(size, bytes, processors.min(u32::try_from(MAX_BLOCKS).unwrap_or(u32::MAX)));
        let launch = LaunchConfig { grid_dim: (blocks, 1, 1), block_dim: (threads, 1, 1), shared_mem_bytes: 0 };
        let (bytes, op) = (bytes as u64, op as u32);
        let launched = match algorithm {
            Algorithm::OneShot => {
                let mut builder = stream.launch_builder(&one_shot);
                builder
                    .arg(self.context())
                    .arg(buffer.argument())
                    .arg(buffer.argument())
                    .arg(&bytes)
                    .arg(&op)
                    .arg(&root);
                // SAFETY: the arguments are those of kernels/collectives.cu; the buffer is in the heap.
                unsafe { builder.launch(launch) }
            }
            Algorithm::TwoShot => {
                let mut builder = stream.launch_builder(&two_shot);
                builder.arg(self.context()).arg(buffer.argument()).arg(&bytes).arg(&op).arg(&root);
                // SAFETY: as above.
                unsafe { builder.launch(launch) }
            }
        };
        launched.map(drop).map_err(failed("launching a collective"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_packets_and_the_check_fit_into_the_front_of_the_heap() {
        for size in 1..=64 {
            let packets = State::flags_bytes(size) + 2 * size * (State::capacity(size) / 8) * 16;
            assert!(State::reserved_bytes(size) >= packets, "{size} ranks");
            assert!(State::reserved_bytes(size) >= size * crate::check::ROW_WORDS * 8, "{size} ranks");
            assert!(State::reserved_bytes(size) < 16 << 20, "{size} ranks");
        }
    }
}
