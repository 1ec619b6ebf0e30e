//! The kernels of the collectives, as they are, in threads of the host: a block is one thread. What ranks of a group map is
//! memory of this process; between groups go real proxies over real transports.

#![expect(unsafe_code, reason = "functions of C++, and memory that several threads write to")]
#![expect(clippy::cast_precision_loss, reason = "small numbers")]

use super::{
    Hops, State,
    hops::{HopsArgument, HopsShape},
};
use crate::{
    context::{CONTEXT_VERSION, ErrorRecord, KernelContext, NEAR, PeerEntry, Way},
    host_compiler::{self, Compiled},
    proxy::{Carrier, Proxy},
};
use spmd::{SymmetricHeap, World, local::Cluster};
use spmd_collectives::{Collectives as _, groups::Groups};
use std::sync::{Arc, Barrier};

const SOURCE: &str = include_str!("../../tests/host/collectives.cpp");
const NOBODY: u32 = u32::MAX;
const SUM: u32 = 0;
const MAX: u32 = 3;
/// Nothing here takes that long, on any machine; the clock of the host counts nanoseconds.
const LIMIT: u64 = 120_000_000_000;

fn compiled() -> Option<Arc<Compiled>> {
    host_compiler::library(SOURCE).map(Arc::new)
}

/// Memory that other ranks write to while a rank looks at it: only its address is used, but before and after.
struct Memory(Vec<u128>);

impl Memory {
    fn new(bytes: usize) -> Self {
        Memory(vec![0; bytes.div_ceil(16)])
    }

    fn address(&self) -> u64 {
        self.0.as_ptr().addr() as u64
    }
}

/// A context with what it points to.
struct Kernel {
    context: Box<KernelContext>,
    error: Box<ErrorRecord>,
    _peers: Vec<PeerEntry>,
}

impl Kernel {
    fn new(rank: usize, heap: u64, bytes: usize, bases: &[u64], ring: u64) -> Self {
        let error = Box::new(ErrorRecord::default());
        let peer = |base: &u64| match *base {
            0 => PeerEntry { way: Way::Proxy as u32, ..PeerEntry::default() },
            base => PeerEntry { base, way: Way::Mapped as u32, ..PeerEntry::default() },
        };
        let peers: Vec<PeerEntry> = bases.iter().map(peer).collect();
        let mut context = Box::new(KernelContext {
            version: CONTEXT_VERSION,
            rank: u32::try_from(rank).unwrap(),
            size: u32::try_from(bases.len()).unwrap(),
            heap,
            heap_bytes: bytes as u64,
            peers: peers.as_ptr().addr() as u64,
            ring,
            error: std::ptr::from_ref(&*error).addr() as u64,
            cycle_limit: LIMIT,
            ..KernelContext::default()
        });
        for (near, base) in context.near.iter_mut().zip(&bases[..bases.len().min(NEAR)]) {
            *near = *base;
        }
        context.copy = std::ptr::from_ref(&*context).addr() as u64;
        Kernel { context, error, _peers: peers }
    }

    fn assert_fine(&self) {
        assert_eq!(self.error.code, 0, "{:?}", self.error);
    }
}

/// An address that a kernel gets, and threads may pass on.
#[derive(Clone, Copy)]
struct Pointer(*mut f32);
// SAFETY: passed on to kernels, whose blocks never touch the same elements.
unsafe impl Send for Pointer {}
// SAFETY: as above.
unsafe impl Sync for Pointer {}

/// Runs the blocks of a kernel, each a thread.
fn run(blocks: u32, block: impl Fn(u32) + Sync) {
    std::thread::scope(|scope| {
        for number in 1..blocks {
            let block = &block;
            scope.spawn(move || block(number));
        }
        block(0);
    });
}

fn value(rank: usize, index: usize, round: usize) -> f32 {
    ((index * (rank + 2) + round * 7 + rank) % 2039) as f32 - 1000.0
}

/// What all ranks have together: the host's own arithmetic.
fn combined(size: usize, index: usize, round: usize, op: u32) -> f32 {
    let values = (0..size).map(|rank| value(rank, index, round));
    if op == SUM { values.sum() } else { values.fold(f32::MIN, f32::max) }
}

type RunTwoHop = unsafe extern "C" fn(
    *const KernelContext,
    *const KernelContext,
    *const HopsArgument,
    u32,
    u32,
    *mut f32,
    u64,
    u64,
    u64,
    u32,
    u32,
    u32,
);

/// One collective: how many elements, where the buffer begins, the operator, and who gets the result.
type Case = (usize, usize, u32, Option<usize>);

/// Every rank's part in `cases`, one after the other: the counters and the rows go on from each to the next.
fn two_hop(
    world: &World,
    groups: &Groups,
    memories: &[Memory],
    compiled: &Compiled,
    cases: &[Case],
) -> spmd::Result<()> {
    let comm = world.communicator();
    let (rank, size) = (comm.rank(), comm.size());
    let hops = Hops::new(groups.clone());
    let members = groups.members(groups.of(rank));
    let bases: Vec<u64> = members.iter().map(|rank| memories[*rank].address()).collect();
    let own = members.iter().position(|member| *member == rank).unwrap();
    let near = Kernel::new(own, memories[rank].address(), hops.near_bytes(), &bases, 0);
    let heap = SymmetricHeap::new(&comm, hops.far_bytes().max(4096))?;
    let proxy = Proxy::start(Carrier::on_host(heap.clone()), 64, world.placement())?;
    let address = heap.memory().cast::<u8>().as_ptr().addr() as u64;
    let bases: Vec<u64> = (0..size).map(|peer| if peer == rank { address } else { 0 }).collect();
    let ring = proxy.ring().host_handle().as_ptr().addr() as u64;
    let far = Kernel::new(rank, address, heap.bytes(), &bases, ring);
    let (talkers, steps) = (hops.talkers(), vec![0_u64; Hops::counters()]);
    let addresses = [talkers.as_ptr().addr() as u64, steps.as_ptr().addr() as u64, memories[rank].address(), address];
    let argument = hops.argument(rank, addresses);
    // SAFETY: as tests/host/collectives.cpp declares it; the library outlives the calls.
    let kernel: RunTwoHop = unsafe { compiled.function("run_two_hop") };
    comm.barrier().unwrap();
    for (round, &(length, offset, op, root)) in cases.iter().enumerate() {
        let mut buffer = vec![f32::NAN; offset + length + 4];
        for (index, element) in buffer[offset..offset + length].iter_mut().enumerate() {
            *element = value(rank, index, round);
        }
        let start = Pointer(buffer[offset..].as_mut_ptr());
        let HopsShape { blocks, piece, slice } = hops.shape(length * 4, root.is_some(), 132);
        let (group, member) = root.map_or((NOBODY, NOBODY), |root| {
            let group = groups.of(root);
            let member = groups.members(group).iter().position(|rank| *rank == root).unwrap();
            (u32::try_from(group).unwrap(), u32::try_from(member).unwrap())
        });
        run(blocks, |block| {
            let Pointer(start) = { start };
            let (near, far) = (std::ptr::from_ref(&*near.context), std::ptr::from_ref(&*far.context));
            let bytes = length as u64 * 4;
            // SAFETY: the buffer has so many elements, and everything the contexts point to lives as long as they do.
            unsafe {
                kernel(near, far, &raw const argument, block, blocks, start, bytes, piece, slice, op, group, member)
            }
        });
        near.assert_fine();
        far.assert_fine();
        let receives = root.is_none_or(|root| root == rank);
        for (index, found) in buffer[offset..offset + length].iter().enumerate() {
            let wanted = if receives { combined(size, index, round, op) } else { value(rank, index, round) };
            assert!(*found == wanted, "rank {rank}, case {round}, element {index}: {found}, not {wanted}");
        }
        let around = buffer[..offset].iter().chain(&buffer[offset + length..]);
        assert!(around.copied().all(f32::is_nan), "rank {rank}, case {round}: what is around the buffer is touched");
    }
    comm.barrier().unwrap();
    proxy.stop()?;
    comm.barrier().unwrap();
    Ok(())
}

fn on_groups(name: &str, cluster: Cluster, groups: &Groups, cases: &[Case]) {
    let Some(compiled) = compiled() else { return };
    let bytes = Hops::new(groups.clone()).near_bytes();
    let memories: Vec<Memory> = (0..groups.size()).map(|_| Memory::new(bytes)).collect();
    let run = |world: &World| two_hop(world, groups, &memories, &compiled, cases);
    for (rank, result) in cluster.run(run).expect(name).into_iter().enumerate() {
        result.unwrap_or_else(|error| panic!("{name}, rank {rank}: {error}"));
    }
}

#[test]
fn two_hops_give_every_rank_what_all_have_together_over_every_transport() {
    let cases: Vec<Case> = [1, 2, 3, 5, 31, 1000, 4099, 30_011]
        .into_iter()
        .enumerate()
        .flat_map(|(at, length)| {
            [(length, at % 4, SUM, None), (length, at % 3, MAX, None), (length, 1, SUM, Some(at % 4))]
        })
        .collect();
    let groups = Groups::every(4, 2);
    on_groups("shm", Cluster::new(4), &groups, &cases);
    on_groups("tcp", Cluster::new(4).set("transport.allow", "tcp"), &groups, &cases);
    on_groups("two hosts", Cluster::new(4).hosts(2), &groups, &cases);
}

#[test]
fn groups_may_differ_in_size_be_one_rank_each_or_one_for_all() {
    let cases: Vec<Case> = [1, 7, 999, 20_003]
        .into_iter()
        .flat_map(|length| [(length, 0, SUM, None), (length, 3, MAX, Some(2))])
        .collect();
    on_groups("3 + 2", Cluster::new(5), &Groups::by_label([0, 1, 0, 1, 0]), &cases);
    on_groups("alone", Cluster::new(3), &Groups::apart(3), &cases);
    on_groups("together", Cluster::new(3), &Groups::together(3), &cases);
    on_groups("beyond the table of the near", Cluster::new(10), &Groups::every(10, 9), &cases[..4]);
}

#[test]
fn rows_are_used_again_and_again_by_operations_of_different_sizes() {
    // Several steps of every block, with more and fewer blocks in turn.
    let cases: Vec<Case> = (0..40).map(|at| ([1_500_000, 100, 70_000, 9][at % 4], at % 2, SUM, None)).collect();
    on_groups("long", Cluster::new(2), &Groups::apart(2), &cases[..9]);
    let cases: Vec<Case> =
        (0..40).map(|at| ([20_000, 100, 70_000, 9][at % 4], at % 2, SUM, (at % 3 == 0).then_some(at % 4))).collect();
    on_groups("often", Cluster::new(4), &Groups::every(4, 2), &cases);
}

#[test]
fn many_groups_combine_slices_in_turn_with_operations_that_do_not() {
    // Slices of several steps, whole pieces, and `reduce`, which has no slices, over the same rows.
    let lengths = [400_000, 100, 30_000, 130_001, 9, 400_003];
    let cases: Vec<Case> = (0..12).map(|at| (lengths[at % 6], at % 3, SUM, (at % 4 == 3).then_some(at % 3))).collect();
    on_groups("three", Cluster::new(3), &Groups::apart(3), &cases);
    on_groups("three of two", Cluster::new(6), &Groups::every(6, 2), &cases[..6]);
    on_groups("five over tcp", Cluster::new(5).set("transport.allow", "tcp"), &Groups::apart(5), &cases[..5]);
}

/// One-shot or two-shot among `size` ranks, each a thread with its blocks.
fn shots(size: usize, blocks: u32, cases: &[Case], is_one_shot: bool) {
    type OneShot = unsafe extern "C" fn(*const KernelContext, u32, u32, *mut f32, *const f32, u64, u32, u32);
    type TwoShot = unsafe extern "C" fn(*const KernelContext, u32, u32, *mut f32, u64, u32, u32);
    let Some(compiled) = compiled() else { return };
    let front = State::shots_bytes(size);
    let most = cases.iter().map(|(length, ..)| length * 4 + 64).max().unwrap();
    let memories: Vec<Memory> = (0..size).map(|_| Memory::new(front + most)).collect();
    let bases: Vec<u64> = memories.iter().map(Memory::address).collect();
    let meeting = Barrier::new(size);
    let rank_main = |rank: usize| {
        let base = bases[rank];
        let state: [u64; 8] =
            [0, 0, base, base + State::flags_bytes(size) as u64, State::capacity(size) as u64 / 8, 0, 0, 0];
        let mut kernel = Kernel::new(rank, base, front + most, &bases, 0);
        kernel.context.collective = state.as_ptr().addr() as u64;
        for (round, &(length, offset, op, root)) in cases.iter().enumerate() {
            let at = usize::try_from(base).unwrap() + front + 4 * offset;
            let start = Pointer(std::ptr::with_exposed_provenance_mut(at));
            for index in 0..length {
                // SAFETY: within this rank's own memory, which nobody else touches between collectives.
                unsafe { start.0.add(index).write(value(rank, index, round)) };
            }
            meeting.wait();
            let root_number = root.map_or(NOBODY, |root| u32::try_from(root).unwrap());
            run(blocks, |block| {
                let Pointer(start) = { start };
                let (context, bytes) = (std::ptr::from_ref(&*kernel.context), length as u64 * 4);
                // SAFETY: as tests/host/collectives.cpp declares them; the buffer has so many elements.
                unsafe {
                    if is_one_shot {
                        let kernel: OneShot = compiled.function("run_one_shot");
                        kernel(context, block, blocks, start, start, bytes, op, root_number);
                    } else {
                        let kernel: TwoShot = compiled.function("run_two_shot");
                        kernel(context, block, blocks, start, bytes, op, root_number);
                    }
                }
            });
            kernel.assert_fine();
            let receives = root.is_none_or(|root| root == rank);
            for index in 0..length {
                // SAFETY: as above.
                let found = unsafe { start.0.add(index).read() };
                let wanted = if receives { combined(size, index, round, op) } else { value(rank, index, round) };
                assert!(found == wanted, "rank {rank}, case {round}, element {index}: {found}, not {wanted}");
            }
            meeting.wait();
        }
    };
    std::thread::scope(|scope| {
        for rank in 0..size {
            let rank_main = &rank_main;
            scope.spawn(move || rank_main(rank));
        }
    });
}

#[test]
fn one_shot_and_two_shot_give_every_rank_what_all_have_together() {
    let cases: Vec<Case> = [1, 2, 3, 17, 1000, 4099]
        .into_iter()
        .enumerate()
        .flat_map(|(at, length)| {
            [(length, at % 4, SUM, None), (length, at % 3, MAX, None), (length, 1, SUM, Some(at % 2))]
        })
        .collect();
    for is_one_shot in [true, false] {
        shots(2, 1, &cases, is_one_shot);
        shots(3, 2, &cases[..9], is_one_shot);
        shots(9, 1, &cases[6..9], is_one_shot);
    }
}
