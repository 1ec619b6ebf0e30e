//! A heap in the host's memory that the GPU reads and writes, for peers that a proxy thread reaches over any transport, or
//! that kernels reach by a NIC's queue pairs.
//!
//! Puts the proxy's parts and the driver together; knows neither what is in a ring nor transports.

#![expect(unsafe_code, reason = "registers memory with the driver")]

use crate::{
    context::{PeerEntry, Way},
    device::address,
    driver::{Gpu, failed},
    error::Result,
    memory::Registered,
    mlx5::DirectPeers,
    proxy::{Carrier, Proxy, Ring},
};
use cudarc::driver::{CudaSlice, CudaStream, result};
use spmd::{Communicator, Placement, SymmetricHeap, World};
use std::sync::Arc;

/// Descriptors of a ring.
const ENTRIES: usize = 1024;

/// This rank's heap, the ring into which its kernels write, and the thread that carries that out.
#[derive(Debug)]
pub(crate) struct FarHeap {
    // Dropped in this order: the queues and the thread first, then what the GPU sees, then the memory.
    /// Queue pairs that kernels drive instead of the ring.
    direct: Option<DirectPeers>,
    proxy: Proxy,
    handle_address: u64,
    _handle: CudaSlice<u64>,
    _ring: Registered,
    /// After its registration: the proxy's own is dropped before.
    _ring_memory: Arc<Ring>,
    own: Registered,
    heap: SymmetricHeap,
}

impl FarHeap {
    /// A heap of `bytes` bytes on every rank. Collective.
    pub(crate) fn new(
        communicator: &Communicator,
        gpu: &Gpu,
        stream: &Arc<CudaStream>,
        bytes: usize,
        placement: &Placement,
    ) -> Result<Self> {
        let heap = SymmetricHeap::new(communicator, bytes)?;
        // SAFETY: the heap is dropped after the registration.
        let own = unsafe { Registered::new(gpu, heap.memory()) }?;
        let carrier = Carrier::new(heap.clone(), own.address()).fetch(fetch(gpu)?);
        let proxy = Proxy::start(carrier, ENTRIES, placement)?;
        let memory = proxy.ring().clone();
        // SAFETY: held until the registration has ended.
        let ring = unsafe { Registered::new(gpu, memory.memory()) }?;
        let handle = proxy.ring().handle_at(ring.address());
        let handle = stream
            .clone_htod(bytemuck::cast_slice(std::slice::from_ref(&handle)))
            .map_err(failed("copying the ring's handle to the GPU"))?;
        Ok(FarHeap {
            direct: None,
            proxy,
            handle_address: address(&handle, stream),
            _handle: handle,
            _ring: ring,
            _ring_memory: memory,
            own,
            heap,
        })
    }

    /// How each rank is reached: this one directly, the others through the ring or their queue pairs.
    pub(crate) fn peers(&self) -> Vec<PeerEntry> {
        let communicator = self.heap.communicator();
        let own = PeerEntry { base: self.own.address(), way: Way::Mapped as u32, ..PeerEntry::default() };
        let ring = PeerEntry { way: Way::Proxy as u32, ..PeerEntry::default() };
        let other = |rank: usize| self.direct.as_ref().map_or(ring, |direct| direct.peers()[rank]);
        (0..communicator.size()).map(|rank| if rank == communicator.rank() { own } else { other(rank) }).collect()
    }

    /// Where kernels see this rank's own heap.
    pub(crate) fn address(&self) -> u64 {
        self.own.address()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.heap.bytes()
    }

    /// Where kernels find the ring's handle; 0 when they do not use it.
    pub(crate) fn ring(&self) -> u64 {
        if self.direct.is_some() { 0 } else { self.handle_address }
    }

    /// The NIC whose queue pairs kernels drive, if they do.
    pub(crate) fn nic(&self) -> Option<String> {
        self.direct.as_ref().map(DirectPeers::nic)
    }

    /// Lets kernels drive a NIC's queue pairs instead of the ring; else why that is impossible, alike on all ranks.
    /// Collective.
    pub(crate) fn go_direct(
        &mut self,
        world: &World,
        gpu: &Gpu,
        stream: &Arc<CudaStream>,
    ) -> Result<std::result::Result<(), String>> {
        let direct = DirectPeers::new(world, &self.heap, gpu, stream)?;
        Ok(direct.map(|direct| self.direct = Some(direct)))
    }

    /// The proxy.
    pub(crate) fn proxy(&self) -> &Proxy {
        &self.proxy
    }
}

/// How the proxy reads what kernels put from outside the heap: by the GPU's copy engine, on a stream that waits for nothing.
fn fetch(gpu: &Gpu) -> Result<crate::proxy::Fetch> {
    let stream = gpu.context.new_stream().map_err(failed("making a stream"))?;
    Ok(Box::new(move |from, to| {
        let copied = stream.context().bind_to_thread().and_then(|()| {
            // SAFETY: the driver checks the address; `to` is ours until the copy is done, which is waited for.
            unsafe { result::memcpy_dtoh_async(to, from, stream.cu_stream()) }?;
            stream.synchronize()
        });
        copied.map_err(|error| failed("copying from the GPU")(error).to_string())
    }))
}
