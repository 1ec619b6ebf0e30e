//! Queue pairs from this rank to all others, and what the GPU needs to drive them.
//!
//! Not run on hardware: no machine with an mlx5 NIC was there. Puts the runtime's queue pairs and the driver together;
//! knows no entries.

#![expect(unsafe_code, reason = "registers memory with the driver")]

use super::layout::QueueHandle;
use crate::{
    agree::agree,
    context::{PeerEntry, Way},
    device::address,
    driver::{Gpu, failed},
    error::{Error, Result},
    memory::Registered,
};
use cudarc::driver::{CudaSlice, CudaStream};
use spmd::{
    SymmetricHeap, World,
    direct::{DirectNic, DirectQueue, Offer, QueueMemory},
};
use spmd_collectives::Collectives;
use std::{
    ops::Range,
    ptr::NonNull,
    sync::{Arc, Mutex},
};

/// Requests that may be under way to one peer.
const DEPTH: u32 = 1024;
const PAGE: usize = 4096;

/// The queues of this rank.
#[derive(Debug)]
pub(crate) struct DirectPeers {
    // Dropped in this order: what the GPU sees, then the queues, then the NIC.
    peers: Vec<PeerEntry>,
    _handles: CudaSlice<u64>,
    _pages: Vec<(Range<usize>, Registered)>,
    // Kept, and used by no thread of the host.
    _queues: Mutex<Vec<DirectQueue>>,
    name: String,
    _nic: Mutex<DirectNic>,
}

impl DirectPeers {
    /// Queue pairs between all ranks, over the heap. The inner error is a reason that holds for all ranks alike. Collective.
    pub(crate) fn new(
        world: &World,
        heap: &SymmetricHeap,
        gpu: &Gpu,
        stream: &Arc<CudaStream>,
    ) -> Result<std::result::Result<Self, String>> {
        let comm = heap.communicator();
        let refused = |reason| Error::Way { way: "mlx5".into(), reason };
        let nic = match agree(comm, DirectNic::open(world, heap).map_err(refused))? {
            Ok(nic) => nic,
            Err(refused) => return Ok(Err(refused.reason)),
        };
        let queues = (0..comm.size()).map(|_| nic.queue(DEPTH, random()?).map_err(refused)).collect::<Result<Vec<_>>>();
        let mut queues = match agree(comm, queues)? {
            Ok(queues) => queues,
            Err(refused) => return Ok(Err(refused.reason)),
        };
        // Row by row what each rank offers to each other one.
        let own: Vec<u64> = queues.iter().flat_map(DirectQueue::offer).collect();
        let offers = comm.all_gather(&own)?;
        let connected: Result<Vec<(u64, u32)>> = queues
            .iter_mut()
            .enumerate()
            .map(|(peer, queue)| queue.connect(&offer(&offers, comm.size(), peer, comm.rank())).map_err(refused))
            .collect();
        let targets = match agree(comm, connected)? {
            Ok(targets) => targets,
            Err(refused) => return Ok(Err(refused.reason)),
        };
        let memory: Vec<QueueMemory> = queues.iter().map(DirectQueue::memory).collect();
        let pages = match agree(comm, register(gpu, &memory))? {
            Ok(pages) => pages,
            Err(refused) => return Ok(Err(refused.reason)),
        };
        let handles: Vec<QueueHandle> = memory
            .iter()
            .zip(&targets)
            .map(|(memory, target)| handle(memory, *target, |at| seen(&pages, at)))
            .collect();
        let handles = stream
            .clone_htod(bytemuck::cast_slice::<QueueHandle, u64>(&handles))
            .map_err(failed("copying the handles of queue pairs to the GPU"))?;
        let start = address(&handles, stream);
        let entry = |rank: usize| {
            let queue = start + (rank * size_of::<QueueHandle>()) as u64;
            PeerEntry { queue, way: Way::Mlx5 as u32, ..PeerEntry::default() }
        };
        let peers = (0..comm.size()).map(entry).collect();
        let (name, queues, nic) = (nic.name(), Mutex::new(queues), Mutex::new(nic));
        Ok(Ok(DirectPeers { peers, _handles: handles, _pages: pages, _queues: queues, name, _nic: nic }))
    }

    /// How each rank is reached; the own one could be as well, by a queue pair with itself.
    pub(crate) fn peers(&self) -> &[PeerEntry] {
        &self.peers
    }

    /// The NIC's name and port.
    pub(crate) fn nic(&self) -> String {
        self.name.clone()
    }
}

/// A first packet number that nobody can guess.
fn random() -> Result<u32> {
    let mut bytes = [0; 4];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|errno| Error::System { what: "drawing a packet number", error: errno.into() })?;
    Ok(u32::from_ne_bytes(bytes))
}

/// What rank `from` offers to rank `to`.
fn offer(offers: &[u64], size: usize, from: usize, to: usize) -> Offer {
    let words = size_of::<Offer>() / 8;
    offers[(from * size + to) * words..][..words].try_into().expect("every rank has gathered as many words")
}

/// Pages of the host, and pages of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pages {
    range: Range<usize>,
    is_register: bool,
}

/// The pages that queues lie in, each once: parts of several queues may share one, and what is registered twice is refused.
fn pages(memory: &[QueueMemory]) -> Vec<Pages> {
    let mut all: Vec<Pages> = Vec::new();
    for queue in memory {
        let parts = [
            (queue.entries, false),
            (queue.completions, false),
            (NonNull::slice_from_raw_parts(queue.send_record, 4), false),
            (NonNull::slice_from_raw_parts(queue.consumer_record, 4), false),
            (NonNull::slice_from_raw_parts(queue.doorbell, 8), true),
        ];
        for (part, is_register) in parts {
            let start = part.cast::<u8>().as_ptr().addr();
            let range = start / PAGE * PAGE..(start + part.len()).next_multiple_of(PAGE);
            all.push(Pages { range, is_register });
        }
    }
    all.sort_by_key(|pages| pages.range.start);
    let mut merged: Vec<Pages> = Vec::new();
    for next in all {
        match merged.last_mut() {
            Some(last) if next.range.start < last.range.end => {
                last.range.end = last.range.end.max(next.range.end);
                last.is_register |= next.is_register;
            }
            _ => merged.push(next),
        }
    }
    merged
}

fn register(gpu: &Gpu, memory: &[QueueMemory]) -> Result<Vec<(Range<usize>, Registered)>> {
    let register = |pages: Pages| {
        let start = NonNull::new(std::ptr::with_exposed_provenance_mut::<u8>(pages.range.start));
        let start = start.expect("nothing lies in the first page");
        let slice = NonNull::slice_from_raw_parts(start, pages.range.len());
        // SAFETY: pages of queue pairs, which are dropped after the registrations.
        let registered =
            unsafe { if pages.is_register { Registered::of_device(gpu, slice) } else { Registered::new(gpu, slice) } };
        let registered = registered.map_err(|error| match pages.is_register {
            false => error,
            true => Error::Way {
                way: "mlx5".into(),
                reason: format!(
                    "the GPU may not write the NIC's doorbell ({error}): load NVIDIA's driver with \
                     NVreg_RegistryDwords=\"PeerMappingOverride=1;\""
                ),
            },
        })?;
        Ok((pages.range, registered))
    };
    pages(memory).into_iter().map(register).collect()
}

/// Where the GPU sees an address of this process.
fn seen(pages: &[(Range<usize>, Registered)], at: usize) -> u64 {
    let (range, registered) = pages.iter().find(|(range, _)| range.contains(&at)).expect("every part is registered");
    registered.address() + (at - range.start) as u64
}

fn handle(memory: &QueueMemory, (remote_base, remote_key): (u64, u32), seen: impl Fn(usize) -> u64) -> QueueHandle {
    let at = |part: NonNull<u8>| seen(part.as_ptr().expose_provenance());
    let units = |part: NonNull<[u8]>| (part.len() / 64) as u64;
    let completion_count = units(memory.completions);
    QueueHandle {
        blocks: at(memory.entries.cast()),
        block_count: units(memory.entries),
        send_record: at(memory.send_record),
        doorbell: at(memory.doorbell),
        completions: at(memory.completions.cast()),
        completion_count,
        consumer_record: at(memory.consumer_record),
        local_base: memory.heap.0,
        local_key: memory.heap.1,
        remote_base,
        remote_key,
        result: memory.results.0,
        result_key: memory.results.1,
        number: memory.number,
        // Signals that set need 8; the header cuts what is in an entry to whole blocks.
        inline_bytes: memory.inline_bytes.max(8),
        ..QueueHandle::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(entries: usize, records: usize, doorbell: usize) -> QueueMemory {
        let at = |address| NonNull::new(std::ptr::without_provenance_mut::<u8>(address)).unwrap();
        QueueMemory {
            entries: NonNull::slice_from_raw_parts(at(entries), 8192),
            send_record: at(records + 4),
            doorbell: at(doorbell),
            completions: NonNull::slice_from_raw_parts(at(entries + 0x10000), 16384),
            consumer_record: at(records + 64),
            number: 5,
            heap: (0x100, 1),
            results: (0x200, 2),
            inline_bytes: 92,
        }
    }

    #[test]
    fn pages_that_queues_share_are_registered_once() {
        let queues = [memory(0x100040, 0x200000, 0x300800), memory(0x140000, 0x200080, 0x300a00)];
        let plain = |range| Pages { range, is_register: false };
        let expected = [
            plain(0x100000..0x103000),
            plain(0x110000..0x115000),
            plain(0x140000..0x142000),
            plain(0x150000..0x154000),
            plain(0x200000..0x201000),
            Pages { range: 0x300000..0x301000, is_register: true },
        ];
        assert_eq!(pages(&queues), expected);
    }

    #[test]
    fn a_handle_says_where_the_gpu_sees_each_part() {
        let found = handle(&memory(0x100040, 0x200000, 0x300800), (0x700, 9), |at| at as u64 + (1 << 40));
        let seen = |at: u64| at + (1 << 40);
        assert_eq!((found.blocks, found.block_count), (seen(0x100040), 128));
        assert_eq!((found.completions, found.completion_count), (seen(0x110040), 256));
        assert_eq!((found.send_record, found.consumer_record), (seen(0x200004), seen(0x200040)));
        assert_eq!((found.doorbell, found.number, found.inline_bytes), (seen(0x300800), 5, 92));
        assert_eq!((found.local_base, found.local_key, found.remote_base, found.remote_key), (0x100, 1, 0x700, 9));
        assert_eq!((found.result, found.result_key), (0x200, 2));
    }

    #[test]
    fn offers_are_read_by_row_and_column() {
        let size = 3;
        let offers: Vec<u64> = (0..size * size * 8).map(|word| word as u64).collect();
        assert_eq!(offer(&offers, size, 1, 2), std::array::from_fn(|i| ((size + 2) * 8 + i) as u64));
    }
}
