//! Carries a kernel's requests out by the one-sided calls of the runtime, over whatever transport reaches the peer.
//!
//! Every number in a request was written by a kernel and is checked here or below. Knows no ring.

use super::layout::{Block, Request, Signal};
use spmd::{Error, Pending, Result, SymmetricHeap};

/// Copies bytes from an address of the device that is not in the heap.
pub type Fetch = Box<dyn FnMut(u64, &mut [u8]) -> std::result::Result<(), String> + Send>;

/// The most bytes that are fetched at a time.
const FETCH: usize = 256 << 10;

/// A symmetric heap in memory of the host, and where the device sees it.
pub struct Carrier {
    heap: SymmetricHeap,
    /// The device's address of this rank's own part.
    base: u64,
    fetch: Option<Fetch>,
    staging: Vec<u8>,
}

impl std::fmt::Debug for Carrier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Carrier").field("heap", &self.heap).field("base", &self.base).finish_non_exhaustive()
    }
}

impl Carrier {
    /// For requests that speak of `heap`, whose own part the device sees at `base`.
    #[must_use]
    pub fn new(heap: SymmetricHeap, base: u64) -> Self {
        Carrier { heap, base, fetch: None, staging: Vec::new() }
    }

    /// For requests of kernels on the CPU, which see the heap where it is.
    #[must_use]
    pub fn on_host(heap: SymmetricHeap) -> Self {
        let base = heap.memory().cast::<u8>().as_ptr().addr() as u64;
        Carrier::new(heap, base)
    }

    /// How bytes are read that lie elsewhere on the device; without it they must lie in the heap.
    #[must_use]
    pub fn fetch(mut self, fetch: Fetch) -> Self {
        self.fetch = Some(fetch);
        self
    }

    /// Whether operations of others on this rank move only when it makes progress.
    pub(super) fn needs_progress(&self) -> bool {
        self.heap.needs_progress()
    }

    /// Lets what waits leave, and carries out what others have sent.
    pub(super) fn progress(&self) -> Result<()> {
        self.heap.progress()
    }

    /// Carries a request out. What it returns is still under way.
    pub(super) fn carry(&mut self, request: &Request) -> Result<Option<Pending>> {
        match request {
            Request::Put { block } => self.put(block).map(|()| None),
            Request::Signal { signal, peer } => self.signal(signal, *peer).map(|()| None),
            Request::PutSignal { block, signal } => {
                self.put(block)?;
                self.signal(signal, block.peer).map(|()| None)
            }
            Request::Get { block } => {
                let (peer, bytes) = (rank(block.peer), length(block.bytes)?);
                let destination = self.within(block.address, bytes);
                let destination = destination.ok_or_else(|| {
                    refuse(format!(
                        "{bytes} bytes are to be written to address {:#x}, which is outside the heap",
                        block.address
                    ))
                })?;
                self.heap.start_get(length(block.offset)?, destination, bytes, peer).map(Some)
            }
            Request::Quiet => self.heap.start_quiet().map(Some),
        }
    }

    fn put(&mut self, block: &Block) -> Result<()> {
        let (peer, offset, bytes) = (rank(block.peer), length(block.offset)?, length(block.bytes)?);
        if let Some(source) = self.within(block.address, bytes) {
            return self.heap.put_at(source, offset, bytes, peer);
        }
        let Some(fetch) = &mut self.fetch else {
            let reason = format!("{bytes} bytes at address {:#x}, which is outside the heap", block.address);
            return Err(refuse(reason));
        };
        for at in (0..bytes).step_by(FETCH) {
            self.staging.resize((bytes - at).min(FETCH), 0);
            let address = block.address + at as u64;
            fetch(address, &mut self.staging).map_err(|reason| {
                refuse(format!("{} bytes at address {address:#x} could not be read: {reason}", self.staging.len()))
            })?;
            self.heap.put_bytes_at(&self.staging, offset + at, peer)?;
        }
        Ok(())
    }

    fn signal(&self, signal: &Signal, peer: u32) -> Result<()> {
        self.heap.signal_at(length(signal.offset)?, signal.op, rank(peer))
    }

    /// Where an address of the device is in the heap, if all `bytes` are.
    fn within(&self, address: u64, bytes: usize) -> Option<usize> {
        let offset = usize::try_from(address.checked_sub(self.base)?).ok()?;
        offset.checked_add(bytes).is_some_and(|end| end <= self.heap.bytes()).then_some(offset)
    }
}

fn refuse(reason: String) -> Error {
    Error::Heap { operation: "a request of a kernel", reason }
}

fn rank(peer: u32) -> usize {
    usize::try_from(peer).unwrap_or(usize::MAX)
}

fn length(number: u64) -> Result<usize> {
    usize::try_from(number).map_err(|_| refuse(format!("an offset or length of {number} bytes")))
}
