//! One-sided communication: ranks hand blocks round a ring by `put_signal`, share out work by an atomic counter, and send
//! straight out of their symmetric heap. Every block and every sum is checked.
//!
//!     rsrun -n 2 target/release/examples/one_sided

use spmd::prelude::*;
use spmd::{Compare, SignalOp, SymmetricHeap};
use spmd_collectives::prelude::*;
use std::time::{Duration, Instant};

const BLOCK: usize = 1000;
const ROUNDS: u64 = 200;
const TASKS: u64 = 1000;
const LARGE: usize = 1 << 20;
const LIMIT: Option<Duration> = Some(Duration::from_secs(60));

fn main() -> spmd::Result<()> {
    let world = World::init()?;
    let comm = world.communicator();
    let heap = SymmetricHeap::new(&comm, 8 << 20)?;
    ring(&comm, &heap)?;
    share_out(&comm, &heap)?;
    if comm.size() > 1 {
        bandwidth(&comm, &heap)?;
    }
    // Nobody drops the heap while others still use it.
    comm.barrier()?;
    Ok(())
}

/// Each rank puts a block to its right neighbour and raises a signal; two blocks take turns, and a second signal says that
/// a block may be overwritten.
fn ring(comm: &Communicator, heap: &SymmetricHeap) -> spmd::Result<()> {
    let (rank, size) = (comm.rank(), comm.size());
    let (right, left) = ((rank + 1) % size, (rank + size - 1) % size);
    let blocks = heap.alloc::<u64>(2 * BLOCK)?;
    // Word 0 counts blocks that have come, word 1 those that the right neighbour has used.
    let signals = heap.alloc::<u64>(2)?;
    for round in 1..=ROUNDS {
        let turn = if round % 2 == 0 { blocks.slice(..BLOCK) } else { blocks.slice(BLOCK..) };
        signals.wait_signal(1, Compare::AtLeast(round.saturating_sub(2)), LIMIT)?;
        turn.put_signal(&[round * 1000 + rank as u64; BLOCK], right, &signals, 0, SignalOp::Add(1))?;
        signals.wait_signal(0, Compare::AtLeast(round), LIMIT)?;
        assert!(turn.to_vec().iter().all(|value| *value == round * 1000 + left as u64), "round {round}: another block");
        signals.signal(1, SignalOp::Add(1), left)?;
    }
    comm.barrier()?;
    if rank == 0 {
        println!("{ROUNDS} rounds of blocks round {size} ranks");
    }
    heap.free(signals)?;
    heap.free(blocks)
}

/// Each rank takes the next task from a counter on rank 0 until none is left; every task is done exactly once.
fn share_out(comm: &Communicator, heap: &SymmetricHeap) -> spmd::Result<()> {
    let counters = heap.alloc::<u64>(2)?;
    loop {
        let task = counters.fetch_add(0, 1, 0)?;
        if task >= TASKS {
            break;
        }
        counters.add(1, task, 0)?;
    }
    heap.quiet()?;
    comm.barrier()?;
    let sum = counters.fetch(1, 0)?;
    assert_eq!(sum, TASKS * (TASKS - 1) / 2, "a task was done twice or not at all");
    if comm.rank() == 0 {
        println!("{TASKS} tasks shared out");
    }
    comm.barrier()?;
    heap.free(counters)
}

/// The last rank gets a large buffer of the first by message, by `get`, and by the first rank's `put`.
fn bandwidth(comm: &Communicator, heap: &SymmetricHeap) -> spmd::Result<()> {
    let last = comm.size() - 1;
    let buffer = heap.alloc::<u8>(LARGE)?;
    let mut received = vec![0_u8; LARGE];
    if comm.rank() == 0 {
        buffer.write(&vec![7; LARGE])?;
    }
    comm.barrier()?;
    for way in ["send out of the heap", "get", "put"] {
        let mut times = Vec::new();
        for _ in 0..300 {
            let begun = Instant::now();
            match (way, comm.rank()) {
                ("send out of the heap", 0) => comm.send_buffer(&buffer, last, 1)?,
                ("send out of the heap", rank) if rank == last => drop(comm.recv(&mut received, 0, 1)?),
                ("get", rank) if rank == last => buffer.get(&mut received, 0)?,
                ("put", rank) if rank == last => {
                    buffer.put(&received, 0)?;
                    heap.quiet()?;
                }
                _ => continue,
            }
            times.push(begun.elapsed().as_secs_f64());
        }
        comm.barrier()?;
        if comm.rank() == last {
            assert!(received.iter().all(|byte| *byte == 7), "{way}: damaged");
            times.sort_by(f64::total_cmp);
            println!("{way}: 1 MiB in {:.1} us", times[times.len() / 2] * 1e6);
        }
        comm.barrier()?;
    }
    heap.free(buffer)
}
