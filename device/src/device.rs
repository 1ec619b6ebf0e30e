//! A rank's GPU with its heap, and what a kernel gets.
//!
//! Sets everything up once, by what `choice` decides; after that the host takes no part in what kernels do.

#![expect(unsafe_code, reason = "clears a word of the GPU's memory")]

use crate::{
    agree::agree,
    alarm::Alarm,
    buffer::DeviceBuffer,
    check,
    choice::{Asked, Choice, Explanation, Facts, choose},
    collectives::{Group, State, groups},
    context::{CONTEXT_VERSION, KernelContext, NEAR, PeerEntry, Way},
    driver::{Gpu, failed},
    error::{Error, KernelError, Result},
    far::FarHeap,
    near::NearHeap,
    nvrtc::Nvrtc,
    sharing::Sharing,
    watch::Watch,
};
use cudarc::{
    driver::{CudaContext, CudaModule, CudaSlice, CudaStream, result},
    nvrtc::Ptx,
};
use spmd::{Communicator, Element, World, config::keys, heap::layout::Layout};
use spmd_collectives::Collectives;
use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// What to do when a GPU has no room for the heap.
const WAY_OUT: &str = "ask for less (`device.heap_bytes`), put fewer ranks on a GPU, or take a heap in the host's memory, which \
                       kernels of other ranks reach through the proxy (`device.way=proxy`)";

/// A rank's GPU, with a heap that the kernels of all ranks put into.
///
/// Creating it and [`alloc`](Device::alloc) are collective: all ranks call them in the same order with the same numbers.
/// Clones are the same device. It goes with the last clone and the last buffer, after kernels have ended; a rank's memory
/// stays for its peers as long as they have it mapped.
#[derive(Clone, Debug)]
pub struct Device {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    communicator: Communicator,
    gpu: Gpu,
    stream: Arc<CudaStream>,
    /// For copies between host and GPU, which wait for nothing else.
    copies: Arc<CudaStream>,
    context: KernelContext,
    alarm: Arc<Alarm>,
    layout: Mutex<Layout>,
    /// Bytes at the front of the heap that are not the program's.
    reserved: usize,
    collectives: State,
    explanation: Explanation,
    nvrtc: String,
    /// What a kernel that fails takes first; in the GPU's memory.
    claim: CudaSlice<u32>,
    _peers: CudaSlice<u64>,
    _copy: CudaSlice<u64>,
    /// Raises the alarm when a rank is lost.
    _watch: Watch,
    // After what uses it.
    heap: Heap,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // While a lost rank still ends kernels that wait for it: no part of this may go before they have ended.
        let _ = self.gpu.context.synchronize();
    }
}

/// Where the heap lies.
#[derive(Debug)]
enum Heap {
    /// On the GPUs, each mapped by all.
    Near(NearHeap),
    /// In the host's memory.
    Far(Box<FarHeap>),
}

/// Kernels to load.
#[derive(Clone, Copy, Debug)]
pub enum Kernels<'a> {
    /// CUDA C++, compiled now by NVRTC; it may include `spmd_device.cuh`.
    Source(&'a str),
    /// PTX, compiled now by the driver.
    Ptx(&'a str),
    /// A cubin for this GPU.
    Cubin(&'a [u8]),
}

impl Device {
    /// Opens the GPU of this rank and makes a heap of `device.heap_bytes` bytes. Collective over the world.
    ///
    /// # Errors
    /// When a rank has no GPU or its GPU no room for the heap, or the way that `device.way` asks for is impossible: on all
    /// ranks.
    pub fn new(world: &World) -> Result<Self> {
        Self::over(world, &world.communicator())
    }

    /// The same for the ranks of any communicator of this world, which are those that kernels then count: a part of all ranks,
    /// or those that are left after a loss ([`Communicator::shrink`]). Collective over them. A rank may have several, each with
    /// a heap of its own, all on the same GPU.
    ///
    /// # Errors
    /// As for [`Device::new`].
    pub fn over(world: &World, ranks: &Communicator) -> Result<Self> {
        let communicator = ranks.duplicate()?;
        // Whoever gives up the ranks gives up what their kernels wait for.
        communicator.serve(ranks);
        let snapshot = world.snapshot();
        let bytes = usize::try_from(snapshot.get(keys::DEVICE_HEAP_BYTES)).unwrap_or(usize::MAX);
        let (rank, size) = (communicator.rank(), communicator.size());
        // By its place in the world, so that a rank has one GPU whatever communicator asks.
        let all = world.communicator();
        let host = all.host_of(all.rank());
        let place = (0..all.rank()).filter(|other| all.host_of(*other) == host).count();
        // A rank without a GPU must not leave the others waiting.
        let gpu = agree(&communicator, Gpu::open(world.placement().gpu.as_ref(), place))?;
        let gpu = gpu.map_err(|refused| refused.error(|reason| Error::Heap { operation: "Device::new", reason }))?;
        let stream = gpu.context.new_stream().map_err(failed("making a stream"))?;
        let alarm = Arc::new(Alarm::new(&gpu)?);
        let claim = stream.alloc_zeros::<u32>(1).map_err(failed("taking memory of the GPU"))?;
        // Its own copy is filled in once everything is known.
        let mut copy =
            stream.alloc_zeros::<u64>(size_of::<KernelContext>() / 8).map_err(failed("taking memory of the GPU"))?;
        let mut context = KernelContext {
            claim: address(&claim, &stream),
            copy: address(&copy, &stream),
            version: CONTEXT_VERSION,
            rank: narrow(rank),
            size: narrow(size),
            error: alarm.address(),
            cycle_limit: cycles(snapshot.get(keys::DEVICE_WAIT_LIMIT), gpu.clock_rate()?),
            ..KernelContext::default()
        };
        let hosts = (0..size).map(|rank| communicator.host_of(rank)).collect::<std::collections::BTreeSet<_>>().len();
        let asked = Asked::parse(&snapshot.get(keys::DEVICE_WAY));
        let reserved = State::mapped_bytes(size);
        let sharing = Sharing::new(&communicator, &gpu)?;
        let (most_blocks, shared) = (sharing.most_blocks(), sharing.warning());
        let tries = hosts == 1 && matches!(asked, Asked::Auto | Asked::Exactly(Way::Mapped));
        let (mut near, mut mapped) = (None, None);
        if tries {
            match NearHeap::new(&communicator, &gpu, bytes.saturating_add(reserved), WAY_OUT)? {
                Err(reason) => mapped = Some(Err(reason)),
                Ok(heap) => {
                    let peers = set_peers(
                        &mut context,
                        &mut copy,
                        &stream,
                        &mapped_peers(&heap, size),
                        heap.own(),
                        heap.bytes(),
                    )?;
                    mapped = Some(check::arrives(&communicator, &gpu, &stream, &context)?);
                    near = Some((heap, peers));
                }
            }
        }
        // A NIC's memory is that of the host, as the proxy's is, which takes its place when it is refused.
        let (mut far, mut mlx5) = (None, Err("not run on hardware yet: only when asked for (device.way=mlx5)".into()));
        let make_far = || {
            let is_asked = matches!(asked, Asked::Exactly(Way::Proxy | Way::Mlx5));
            let (group, hops) = Group::new(&communicator, &gpu, &stream, &context, groups(&communicator, is_asked))?;
            let bytes = bytes.saturating_add(State::far_bytes(&hops));
            let heap = FarHeap::new(&communicator, &gpu, &stream, bytes, world.placement());
            // Not every host has as much memory as the heap takes, or lets as much be pinned.
            let heap = agree(&communicator, heap)?;
            let heap =
                heap.map_err(|refused| refused.error(|reason| Error::Heap { operation: "Device::new", reason }))?;
            Ok::<_, Error>((heap, group, hops))
        };
        if asked == Asked::Exactly(Way::Mlx5) {
            let (mut heap, group, hops) = make_far()?;
            mlx5 = heap.go_direct(world, &gpu, &stream)?;
            far = Some((heap, group, hops));
        }
        let facts = Facts { asked, ranks: size, hosts, mapped, mlx5 };
        let choice = choose(&facts).map_err(|reason| Error::Way { way: snapshot.get(keys::DEVICE_WAY), reason })?;
        for warning in [&choice.warning, &shared].into_iter().flatten().filter(|_| rank == 0) {
            eprintln!("device: {warning}");
        }
        let (heap, peers, reserved, collectives) = match near.filter(|_| choice.way == Way::Mapped) {
            Some((heap, peers)) => {
                let state = State::mapped(&stream, &mut context, size, most_blocks)?;
                put_copy(&context, &mut copy, &stream)?;
                (Heap::Near(heap), peers, reserved, state)
            }
            None => {
                let (far, group, hops) = match far {
                    Some(far) => far,
                    None => make_far()?,
                };
                context.ring = far.ring();
                let peers = set_peers(&mut context, &mut copy, &stream, &far.peers(), far.address(), far.bytes())?;
                let reserved = State::far_bytes(&hops);
                let state = State::grouped(&stream, &context, group, hops, most_blocks)?;
                (Heap::Far(Box::new(far)), peers, reserved, state)
            }
        };
        stream.synchronize().map_err(failed("setting up the GPU"))?;
        let what = match &heap {
            Heap::Near(heap) => {
                format!("{} bytes of the GPU's memory, {reserved} of them for collectives", heap.bytes())
            }
            Heap::Far(heap) => {
                let by = heap.proxy().processor().map_or("the kernel's choice".into(), |number| number.to_string());
                let by = heap.nic().map_or(format!("proxy on processor {by}"), |nic| format!("NIC {nic}"));
                format!("{} bytes of the host's memory, registered with the GPU; {by}", heap.bytes())
            }
        };
        let explanation = Explanation {
            rank,
            size,
            gpu: gpu.name.clone(),
            gpu_why: gpu.why.clone(),
            heap: what,
            choice,
            collectives: collectives.explain(),
            warning: shared,
        };
        if rank == 0 && snapshot.get(keys::REPORT_EXPLAIN) == "text" {
            eprint!("{explanation}");
        }
        let whole = usize::try_from(context.heap_bytes).unwrap_or(usize::MAX);
        let told = alarm.clone();
        let watch = Watch::start(communicator.clone(), move |error| told.lose(error))?;
        let inner = Inner {
            nvrtc: snapshot.get(keys::DEVICE_NVRTC),
            layout: Mutex::new(Layout::new(whole - reserved)),
            copies: gpu.context.new_stream().map_err(failed("making a stream"))?,
            communicator,
            gpu,
            stream,
            context,
            alarm,
            reserved,
            collectives,
            explanation,
            claim,
            _peers: peers,
            _copy: copy,
            _watch: watch,
            heap,
        };
        // Nobody puts before everybody is set up.
        inner.communicator.barrier()?;
        Ok(Device { inner: Arc::new(inner) })
    }

    /// Takes a buffer of `length` elements out of the heap, at the same offset on every rank, all bytes zero. Collective.
    ///
    /// # Errors
    /// When ranks ask for different lengths or types, or when the heap is too full; nothing is taken then.
    pub fn alloc<T: Element>(&self, length: usize) -> Result<DeviceBuffer<T>> {
        let operation = "Device::alloc";
        let inner = &*self.inner;
        let bytes = length.checked_mul(size_of::<T>());
        let call = [u64::from(T::signature().0), bytes.map_or(u64::MAX, |bytes| bytes as u64)];
        let calls = inner.communicator.all_gather(&call)?;
        if let Some(other) = calls.chunks(2).position(|other| other != call) {
            let theirs = calls[2 * other + 1];
            let reason = format!(
                "rank {} asks for {} bytes, rank {other} for {theirs} bytes, or of another type: every rank must ask for \
                 the same",
                inner.communicator.rank(),
                call[1]
            );
            return Err(Error::Heap { operation, reason });
        }
        let mut layout = inner.layout.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((offset, used)) = bytes.and_then(|bytes| layout.take(bytes)) else {
            let reason = format!(
                "{length} elements of {} bytes do not fit: {} bytes are left, not necessarily in one piece. The heap's \
                 size is `device.heap_bytes`",
                size_of::<T>(),
                layout.left()
            );
            return Err(Error::Heap { operation, reason });
        };
        drop(layout);
        let buffer = DeviceBuffer::new(self.clone(), inner.reserved + offset, length);
        if used > 0 {
            let zeros = vec![T::zeroed(); length];
            buffer.write(&zeros)?;
        }
        // Nobody puts into it before it is zero everywhere.
        inner.communicator.barrier()?;
        Ok(buffer)
    }

    /// Takes a buffer of `length` elements out of the GPU's own memory, all bytes zero: this rank's own, which no other rank's
    /// kernels reach. For what kernels keep to themselves and for collectives; where the heap is in memory of the host (another
    /// way than `mapped`), it is the place for data that is not to leave the GPU but for its sums. Not collective; the
    /// memory goes with the last clone of the buffer.
    ///
    /// # Errors
    /// When the GPU has not so much memory left.
    pub fn alloc_local<T: Element>(&self, length: usize) -> Result<DeviceBuffer<T>> {
        let what = || failed(format!("taking {length} elements of {} bytes of the GPU's memory", size_of::<T>()));
        let bytes = length.checked_mul(size_of::<T>()).filter(|bytes| isize::try_from(*bytes).is_ok());
        let bytes = bytes.ok_or_else(|| Error::Heap {
            operation: "Device::alloc_local",
            reason: format!("{length} elements of {} bytes are more than there are addresses", size_of::<T>()),
        })?;
        let memory = self.inner.copies.alloc_zeros::<u8>(bytes.max(1)).map_err(what())?;
        self.inner.copies.synchronize().map_err(what())?;
        let address = address(&memory, &self.inner.copies);
        Ok(DeviceBuffer::local(self.clone(), memory, address, length))
    }

    /// Gives a buffer of the heap back. Collective; after it nobody may access the buffer, and kernels that did must have ended on all
    /// ranks.
    ///
    /// # Errors
    /// When it is a part of a buffer, has been given back, or is the rank's own.
    pub fn free<T: Element>(&self, buffer: DeviceBuffer<T>) -> Result<()> {
        let inner = &*self.inner;
        inner.communicator.barrier()?;
        let mut layout = inner.layout.lock().unwrap_or_else(PoisonError::into_inner);
        let offset = buffer.offset().wrapping_sub(inner.reserved);
        let is_own = Arc::ptr_eq(&buffer.device().inner, &self.inner) && !buffer.is_local();
        if !is_own || !layout.is_taken(offset, buffer.bytes()) {
            let reason = "the buffer is part of one, has been given back, or is not of this heap".into();
            return Err(Error::Heap { operation: "Device::free", reason });
        }
        layout.give_back(offset);
        Ok(())
    }

    /// The one argument of a kernel that communicates: `launch.arg(device.context())`, a `spmd::context_t` by value. It
    /// may be captured into graphs and stays the same for the device's life.
    #[must_use]
    pub fn context(&self) -> &KernelContext {
        &self.inner.context
    }

    /// Loads kernels for this GPU.
    ///
    /// # Errors
    /// With the compiler's messages; when NVRTC is not there.
    pub fn load(&self, kernels: Kernels<'_>) -> Result<Arc<CudaModule>> {
        let image = match kernels {
            Kernels::Ptx(text) => Ptx::from_src(text),
            Kernels::Cubin(bytes) => Ptx::from_binary(bytes.to_vec()),
            Kernels::Source(source) => {
                let path = Some(self.inner.nvrtc.as_str()).filter(|path| !path.is_empty()).map(Path::new);
                let (major, minor) = self.cuda().compute_capability().map_err(failed("asking for the architecture"))?;
                Ptx::from_binary(Nvrtc::open(path)?.compile(source, &format!("sm_{major}{minor}"), &[])?)
            }
        };
        self.cuda().load_module(image).map_err(failed("loading kernels"))
    }

    /// The CUDA context, for everything else that `cudarc` does with it.
    #[must_use]
    pub fn cuda(&self) -> &Arc<CudaContext> {
        &self.inner.gpu.context
    }

    /// A stream of this device's own.
    #[must_use]
    pub fn stream(&self) -> &Arc<CudaStream> {
        &self.inner.stream
    }

    /// The ranks whose heaps these are: a duplicate of the communicator that the device was made for.
    #[must_use]
    pub fn communicator(&self) -> &Communicator {
        &self.inner.communicator
    }

    /// Waits for a stream, then [`check`](Device::check)s.
    ///
    /// A rank that is lost, or a communicator that is revoked, ends within a few hundredths of a second every kernel that waits
    /// for anything, whoever it is from, and every one that waits later: the error says which rank
    /// ([`Error::is_loss`]). Kernels that do not wait, or whose signal is there, end as always. What is left then is a new
    /// device for the ranks that are left ([`Device::over`]).
    ///
    /// # Errors
    /// When a kernel failed.
    pub fn synchronize(&self, stream: &CudaStream) -> Result<()> {
        let done = stream.synchronize().map_err(failed("waiting for a stream"));
        // What a kernel has recorded says more than that it was ended.
        self.check().and(done)
    }

    /// Whether a kernel of this rank has found something wrong since the last call: the first error.
    ///
    /// # Errors
    /// That.
    pub fn check(&self) -> Result<()> {
        let Some(record) = self.inner.alarm.take() else { return Ok(()) };
        self.inner.gpu.bind()?;
        let claim = address(&self.inner.claim, &self.inner.stream);
        // SAFETY: the word is ours; only kernels that fail write it.
        unsafe { result::memset_d8_async(claim, 0, size_of::<u32>(), self.inner.copies.cu_stream()) }
            .and_then(|()| self.inner.copies.synchronize())
            .map_err(failed("clearing an error"))?;
        // The kernel, or the proxy, may have been faster than the watch.
        let loss = self.loss().or_else(|| self.inner.communicator.check_members().err());
        let lost = loss.as_ref().is_some_and(spmd::Error::is_loss);
        let mut error = KernelError { rank: self.inner.context.rank, record, reason: None, lost };
        error.reason = match &self.inner.heap {
            _ if error.is_ended_wait() => loss.map(|loss| loss.to_string()),
            Heap::Far(far) => far.proxy().failure().map(str::to_owned),
            Heap::Near(_) => None,
        };
        Err(Error::Kernel(error))
    }

    /// Asks kernels of this rank that wait to end (`true`), or lets kernels wait again, if no rank is lost.
    pub fn stop(&self, stop: bool) {
        self.inner.alarm.ask(stop);
    }

    /// Why the ranks are not all there any more, if so.
    pub(crate) fn loss(&self) -> Option<spmd::Error> {
        self.inner.alarm.loss()
    }

    /// Which way this rank's kernels take to the others, and why. With `--explain` rank 0 prints it.
    #[must_use]
    pub fn explain(&self) -> &Explanation {
        &self.inner.explanation
    }

    /// Which way leads to the other ranks, and why.
    #[must_use]
    pub fn choice(&self) -> &Choice {
        &self.inner.explanation.choice
    }

    pub(crate) fn gpu(&self) -> &Gpu {
        &self.inner.gpu
    }

    pub(crate) fn copies(&self) -> &Arc<CudaStream> {
        &self.inner.copies
    }

    pub(crate) fn collectives(&self) -> &State {
        &self.inner.collectives
    }
}

/// Says in the context where the heap is and how each rank is reached, and gives the table of that, on the GPU.
pub(crate) fn set_peers(
    context: &mut KernelContext,
    copy: &mut CudaSlice<u64>,
    stream: &Arc<CudaStream>,
    peers: &[PeerEntry],
    heap: u64,
    bytes: usize,
) -> Result<CudaSlice<u64>> {
    let table = stream.clone_htod(bytemuck::cast_slice::<_, u64>(peers));
    let table = table.map_err(failed("copying the table of peers to the GPU"))?;
    context.heap = heap;
    context.heap_bytes = bytes as u64;
    context.peers = address(&table, stream);
    context.near = [0; NEAR];
    for (near, peer) in context.near.iter_mut().zip(peers) {
        *near = if peer.way == Way::Mapped as u32 { peer.base } else { 0 };
    }
    put_copy(context, copy, stream)?;
    Ok(table)
}

/// Writes the copy of the context that lies on the GPU.
fn put_copy(context: &KernelContext, copy: &mut CudaSlice<u64>, stream: &Arc<CudaStream>) -> Result<()> {
    let words = bytemuck::cast_slice::<_, u64>(std::slice::from_ref(context));
    stream.memcpy_htod(words, copy).map_err(failed("copying the context to the GPU"))?;
    stream.synchronize().map_err(failed("copying the context to the GPU"))
}

fn mapped_peers(heap: &NearHeap, size: usize) -> Vec<PeerEntry> {
    let entry = |rank| PeerEntry { base: heap.address(rank), way: Way::Mapped as u32, ..PeerEntry::default() };
    (0..size).map(entry).collect()
}

/// Where a slice is on the GPU.
pub(crate) fn address<T>(slice: &CudaSlice<T>, stream: &CudaStream) -> u64 {
    use cudarc::driver::DevicePtr;
    slice.device_ptr(stream).0
}

fn narrow(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// A limit in cycles; 0: none.
fn cycles(limit: Duration, rate: u64) -> u64 {
    let cycles = limit.as_nanos().saturating_mul(u128::from(rate)) / 1_000_000_000;
    u64::try_from(cycles).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_in_cycles_is_the_time_times_the_clock() {
        assert_eq!(cycles(Duration::from_millis(500), 1_980_000_000), 990_000_000);
        assert_eq!(cycles(Duration::ZERO, 1_980_000_000), 0);
        assert_eq!(cycles(Duration::MAX, u64::MAX), u64::MAX);
    }

    #[test]
    fn without_a_gpu_every_rank_gets_an_error_and_none_waits() {
        if crate::driver::present().is_ok() {
            return;
        }
        let errors = spmd::local::run(3, |world| Device::new(world).expect_err("there is no driver").to_string());
        assert!(errors.iter().all(|error| error.contains("libcuda.so.1")), "{errors:?}");
    }
}
