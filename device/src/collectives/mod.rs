//! Collectives among GPUs: one kernel on each rank, on a stream of the caller's.
//!
//! Knows the kernels of `kernels/collectives.cu`; which of them is right for a size is decided in `algorithm`, and what the
//! one in two hops needs in `hops` and `group`.

#![expect(unsafe_code, reason = "launches kernels")]

mod algorithm;
mod group;
mod hops;
#[cfg(test)]
mod tests;

pub use algorithm::Algorithm;
pub(crate) use group::{Group, groups};
pub(crate) use hops::Hops;

use crate::{
    buffer::DeviceBuffer,
    context::KernelContext,
    device::{Device, address},
    driver::failed,
    error::{Error, Result},
};
use cudarc::{
    driver::{CudaContext, CudaFunction, CudaSlice, CudaStream, LaunchConfig, PushKernelArg, result},
    nvrtc::Ptx,
};
use hops::{HopsArgument, HopsShape, THREADS};
use spmd::Element;
use spmd_collectives::groups::Groups;
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

/// Blocks that a kernel of one or two shots may have: each has a row of flags.
pub(crate) const MAX_BLOCKS: usize = 256;
/// All packets of one operation, in bytes of data.
const PACKET_DATA: usize = 2 << 20;
const PAGE: usize = 4096;
/// `NOBODY` of the kernels.
const NOBODY: u32 = u32::MAX;

/// What the collectives of a device keep.
#[derive(Debug)]
pub(crate) struct State {
    /// Where all ranks map each other.
    mapped: Option<Mapped>,
    two_hop: TwoHop,
    /// The most blocks of a kernel.
    most_blocks: u32,
    /// By the type's name: one-shot, two-shot, two-hop.
    kernels: Mutex<BTreeMap<&'static str, [CudaFunction; 3]>>,
}

/// What one-shot and two-shot keep: `collective_t` in the GPU's memory.
#[derive(Debug)]
struct Mapped {
    address: u64,
    /// Bytes that the one-shot algorithm can take.
    capacity: usize,
    _words: CudaSlice<u64>,
}

/// What two-hop gets.
#[derive(Debug)]
struct TwoHop {
    hops: Hops,
    /// Of the ranks that map each other.
    near: KernelContext,
    argument: HopsArgument,
    _group: Option<Group>,
    _talkers: CudaSlice<u32>,
    _steps: CudaSlice<u64>,
}

impl State {
    /// Bytes at the front of every heap that are the collectives', where all of `size` ranks map each other.
    pub(crate) fn mapped_bytes(size: usize) -> usize {
        let shots = Self::shots_bytes(size).max(size * crate::check::ROW_WORDS * 8);
        shots + Hops::new(Groups::together(size)).near_bytes().next_multiple_of(PAGE)
    }

    /// The same in the memory that all ranks reach in another way.
    pub(crate) fn far_bytes(hops: &Hops) -> usize {
        hops.far_bytes().next_multiple_of(PAGE)
    }

    fn shots_bytes(size: usize) -> usize {
        let packets = 2 * size * Self::capacity(size) / 8 * 16;
        (Self::flags_bytes(size) + packets).next_multiple_of(PAGE)
    }

    fn flags_bytes(size: usize) -> usize {
        (MAX_BLOCKS * size * 8).next_multiple_of(PAGE)
    }

    fn capacity(size: usize) -> usize {
        PACKET_DATA / size / 8 * 8
    }

    /// For ranks that all map each other, whose heap has zeros at its front. Says in the context where it is.
    pub(crate) fn mapped(
        stream: &Arc<CudaStream>,
        context: &mut KernelContext,
        size: usize,
        most_blocks: u32,
    ) -> Result<Self> {
        let (heap, capacity) = (context.heap, Self::capacity(size));
        // As `collective_t`: operations, blocks, flags, packets, capacity.
        let words = [0, 0, heap, heap + Self::flags_bytes(size) as u64, capacity as u64 / 8, 0, 0, 0];
        let words = stream.clone_htod(&words).map_err(failed("copying the state of collectives to the GPU"))?;
        let mapped = Mapped { address: address(&words, stream), capacity, _words: words };
        context.collective = mapped.address;
        let hops = Hops::new(Groups::together(size));
        let near = heap + Self::shots_bytes(size) as u64;
        let two_hop = TwoHop::new(stream, hops, *context, context.rank, [near, 0], None)?;
        Ok(State { mapped: Some(mapped), two_hop, most_blocks, kernels: Mutex::default() })
    }

    /// For ranks of several groups, or ranks that do not map each other. `far` is the context of all ranks, whose heap has
    /// zeros at its front.
    pub(crate) fn grouped(
        stream: &Arc<CudaStream>,
        far: &KernelContext,
        group: Group,
        hops: Hops,
        most_blocks: u32,
    ) -> Result<Self> {
        let near = group.context;
        let two_hop = TwoHop::new(stream, hops, near, far.rank, [near.heap, far.heap], Some(group))?;
        Ok(State { mapped: None, two_hop, most_blocks, kernels: Mutex::default() })
    }

    /// How collectives go, for people.
    pub(crate) fn explain(&self) -> String {
        let TwoHop { hops, _group, .. } = &self.two_hop;
        if self.mapped.is_some() {
            return "one_shot and two_shot; two_hop for large buffers outside the heap".into();
        }
        let sizes = (0..hops.groups().count()).map(|group| hops.groups().members(group).len());
        let (least, most) = (sizes.clone().min().unwrap_or(1), sizes.max().unwrap_or(1));
        let ranks = match (least, most) {
            (1, 1) => "1 rank".to_string(),
            _ if least == most => format!("{least} ranks that map each other"),
            _ => format!("{least} to {most} ranks that map each other"),
        };
        let apart = _group.as_ref().and_then(|group| group.apart.as_ref());
        let apart = apart.map_or(String::new(), |why| format!(" (ranks of a host do not: {why})"));
        format!("two_hop: {} groups of {ranks}{apart}", hops.groups().count())
    }

    /// The kernels for a type. The driver compiles them when they are asked for first.
    fn kernels<T: Reducible>(&self, context: &Arc<CudaContext>) -> Result<[CudaFunction; 3]> {
        let mut kernels = self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = kernels.get(T::NAME) {
            return Ok(found.clone());
        }
        let what = || format!("loading the collectives for {}", T::NAME);
        let module = context.load_module(Ptx::from_src(T::PTX)).map_err(failed(what()))?;
        let function = |kind: &str| module.load_function(&format!("spmd_{kind}_{}", T::NAME)).map_err(failed(what()));
        let loaded = [function("one_shot")?, function("two_shot")?, function("two_hop")?];
        kernels.insert(T::NAME, loaded.clone());
        Ok(loaded)
    }

    /// The algorithm for a buffer: the one that is asked for, if it can take it.
    fn algorithm(
        &self,
        size: usize,
        asked: Option<Algorithm>,
        bytes: usize,
        is_local: bool,
    ) -> std::result::Result<Algorithm, String> {
        let Some(mapped) = &self.mapped else {
            return match asked {
                None | Some(Algorithm::TwoHop) => Ok(Algorithm::TwoHop),
                Some(_) => Err("the ranks' GPUs do not all map each other: only two_hop is possible".into()),
            };
        };
        match asked.unwrap_or_else(|| Algorithm::choose(size, bytes, mapped.capacity)) {
            Algorithm::OneShot if bytes > mapped.capacity => {
                Err(format!("one_shot takes at most {} bytes, not {bytes}", mapped.capacity))
            }
            // It reads the buffer where the other ranks have theirs.
            Algorithm::TwoShot if is_local && asked.is_some() => {
                Err("two_shot is for buffers of the heap (Device::alloc), and this one is the rank's own".into())
            }
            Algorithm::TwoShot if is_local => Ok(Algorithm::TwoHop),
            algorithm => Ok(algorithm),
        }
    }
}

impl TwoHop {
    /// For rank `rank` of all; `memory` is where its signals and pieces are in both heaps.
    fn new(
        stream: &Arc<CudaStream>,
        hops: Hops,
        near: KernelContext,
        rank: u32,
        memory: [u64; 2],
        group: Option<Group>,
    ) -> Result<Self> {
        let what = "copying the state of collectives to the GPU";
        let talkers = stream.clone_htod(&hops.talkers()).map_err(failed(what))?;
        let steps = stream.alloc_zeros::<u64>(Hops::counters()).map_err(failed(what))?;
        let rank = usize::try_from(rank).unwrap_or(usize::MAX);
        let addresses = [address(&talkers, stream), address(&steps, stream), memory[0], memory[1]];
        // SAFETY: the memory is this rank's own part of the heap, and nobody uses it before all ranks are set up.
        unsafe { result::memset_d8_async(memory[0], 0, hops.near_bytes(), stream.cu_stream()) }
            .map_err(failed("clearing the front of the heap"))?;
        let argument = hops.argument(rank, addresses);
        Ok(TwoHop { hops, near, argument, _group: group, _talkers: talkers, _steps: steps })
    }

    /// Where the result goes: a group, and the number of a rank in it.
    fn root(&self, root: Option<usize>) -> [u32; 2] {
        let number = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
        root.map_or([NOBODY; 2], |root| {
            let group = self.hops.groups().of(root);
            let member = self.hops.groups().members(group).iter().position(|rank| *rank == root);
            [number(group), number(member.unwrap_or(usize::MAX))]
        })
    }
}

impl Device {
    /// Combines the elements of all ranks, one by one, and gives every rank the result, in place: enqueues one kernel on
    /// `stream` and returns. Collective: every rank enqueues the same collectives in the same order, on streams that do not
    /// run two of them at once. May be captured into a graph. All ranks get the same bits.
    ///
    /// The buffer is one of the heap ([`Device::alloc`]) on every rank or the rank's own ([`Device::alloc_local`]) on every
    /// rank. Where the GPUs of all ranks do not map each other, as on several hosts, data goes in two hops: within the groups of
    /// ranks that do, and between them by the device's way.
    ///
    /// A rank that never comes ends the kernel with an error after `device.wait_limit`, one that is lost at once; see
    /// [`Device::synchronize`].
    ///
    /// # Errors
    /// When a rank is known to be lost, or the driver fails.
    pub fn all_reduce<T: Reducible>(&self, buffer: &DeviceBuffer<T>, op: Operator, stream: &CudaStream) -> Result<()> {
        self.combine("all_reduce", buffer, op, None, None, stream)
    }

    /// As [`all_reduce`](Device::all_reduce), with an algorithm of the caller's choice.
    ///
    /// # Errors
    /// As there; when the algorithm cannot take such a buffer, or is not for these ranks.
    pub fn all_reduce_by<T: Reducible>(
        &self,
        algorithm: Algorithm,
        buffer: &DeviceBuffer<T>,
        op: Operator,
        stream: &CudaStream,
    ) -> Result<()> {
        self.combine("all_reduce", buffer, op, None, Some(algorithm), stream)
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
        if root >= size {
            return Err(spmd::Error::NoSuchRank { operation: "reduce", rank: root, last: size - 1 }.into());
        }
        self.combine("reduce", buffer, op, Some(root), None, stream)
    }

    fn combine<T: Reducible>(
        &self,
        operation: &'static str,
        buffer: &DeviceBuffer<T>,
        op: Operator,
        root: Option<usize>,
        asked: Option<Algorithm>,
        stream: &CudaStream,
    ) -> Result<()> {
        let (size, bytes) = (self.communicator().size(), buffer.bytes());
        // Better than a kernel that ends with it.
        if let Some(loss) = self.loss() {
            return Err(loss.into());
        }
        if size == 1 || bytes == 0 {
            return Ok(());
        }
        let state = self.collectives();
        let algorithm = state.algorithm(size, asked, bytes, buffer.is_local());
        let algorithm = algorithm.map_err(|reason| Error::Heap { operation, reason })?;
        let [one_shot, two_shot, two_hop] = state.kernels::<T>(self.cuda())?;
        let launch = |(blocks, threads)| LaunchConfig {
            grid_dim: (blocks, 1, 1),
            block_dim: (threads, 1, 1),
            shared_mem_bytes: 0,
        };
        let number = root.map_or(NOBODY, |root| u32::try_from(root).unwrap_or(NOBODY));
        let most = state.most_blocks;
        let (all, op) = (bytes as u64, op as u32);
        let launched = match algorithm {
            Algorithm::OneShot => {
                let shape = launch(algorithm.shape(size, bytes, most));
                let mut builder = stream.launch_builder(&one_shot);
                builder
                    .arg(self.context())
                    .arg(buffer.argument())
                    .arg(buffer.argument())
                    .arg(&all)
                    .arg(&op)
                    .arg(&number);
                // SAFETY: the arguments are those of kernels/collectives.cu; the buffer is memory that the GPU reaches.
                unsafe { builder.launch(shape) }
            }
            Algorithm::TwoShot => {
                let shape = launch(algorithm.shape(size, bytes, most));
                let mut builder = stream.launch_builder(&two_shot);
                builder.arg(self.context()).arg(buffer.argument()).arg(&all).arg(&op).arg(&number);
                // SAFETY: as above; the buffer is in the heap.
                unsafe { builder.launch(shape) }
            }
            Algorithm::TwoHop => {
                let TwoHop { hops, near, argument, .. } = &state.two_hop;
                let HopsShape { blocks, piece, slice } = hops.shape(bytes, root.is_some(), most);
                let [group, member] = state.two_hop.root(root);
                let mut builder = stream.launch_builder(&two_hop);
                builder.arg(near).arg(self.context()).arg(argument).arg(buffer.argument()).arg(&all).arg(&piece);
                builder.arg(&slice).arg(&op).arg(&group).arg(&member);
                // SAFETY: the arguments are those of kernels/collectives.cu; the buffer is memory that the GPU reaches.
                unsafe { builder.launch(launch((blocks, THREADS))) }
            }
        };
        launched.map(drop).map_err(failed("launching a collective"))
    }
}
