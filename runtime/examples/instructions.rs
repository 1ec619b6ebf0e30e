//! How many instructions a message of 8 bytes takes: windows of them over shared memory, with the phases of sender and
//! receiver apart, so that nobody waits within the library and a count means something.
//!
//! ```text
//! cargo build --release -p spmd --example instructions
//! valgrind --tool=callgrind --callgrind-out-file=count target/release/examples/instructions
//! callgrind_annotate --inclusive=yes --threshold=100 count | grep 'instructions::phase_[a-z_]* \['
//! ```
//!
//! Each phase has seen 40 windows of 64 messages: divide by 2,560.

use spmd::{Communicator, RecvRequest, SendRequest};
use std::sync::Barrier;

const ROUNDS: usize = 40;
const WINDOW: usize = 64;

#[inline(never)]
fn phase_irecv(comm: &Communicator, free: &mut Vec<Vec<u64>>, begun: &mut Vec<RecvRequest<u64>>) -> spmd::Result<()> {
    for _ in 0..WINDOW {
        begun.push(comm.irecv(free.pop().unwrap_or_default(), 0, 1)?);
    }
    Ok(())
}

#[inline(never)]
fn phase_isend(comm: &Communicator, free: &mut Vec<Vec<u64>>, begun: &mut Vec<SendRequest<u64>>) -> spmd::Result<()> {
    for _ in 0..WINDOW {
        begun.push(comm.isend(free.pop().unwrap_or_default(), 1, 1)?);
    }
    Ok(())
}

#[inline(never)]
fn phase_send_wait(free: &mut Vec<Vec<u64>>, begun: &mut Vec<SendRequest<u64>>) -> spmd::Result<()> {
    for request in begun.drain(..) {
        free.push(request.wait()?);
    }
    Ok(())
}

/// One look takes all that has come.
#[inline(never)]
fn phase_progress(comm: &Communicator, first: &RecvRequest<u64>) -> spmd::Result<()> {
    comm.test_any(&[first]).map(drop)
}

#[inline(never)]
fn phase_take(free: &mut Vec<Vec<u64>>, begun: &mut Vec<RecvRequest<u64>>) -> spmd::Result<()> {
    for request in begun.drain(..) {
        free.push(request.wait()?.0);
    }
    Ok(())
}

#[inline(never)]
fn phase_send(comm: &Communicator, data: &[u64]) -> spmd::Result<()> {
    (0..WINDOW).try_for_each(|_| comm.send(data, 1, 2))
}

#[inline(never)]
fn phase_recv(comm: &Communicator, data: &mut [u64]) -> spmd::Result<()> {
    (0..WINDOW).try_for_each(|_| comm.recv(data, 0, 2).map(drop))
}

fn main() -> spmd::Result<()> {
    let barrier = Barrier::new(2);
    let ranks = spmd::local::run(2, |world| {
        let comm = world.communicator();
        let is_sender = comm.rank() == 0;
        let mut free: Vec<Vec<u64>> = (0..WINDOW).map(|_| vec![0]).collect();
        let (mut sends, mut receives) = (Vec::with_capacity(WINDOW), Vec::with_capacity(WINDOW));
        let mut one = [7_u64];
        for _ in 0..ROUNDS {
            if !is_sender {
                phase_irecv(&comm, &mut free, &mut receives)?;
            }
            barrier.wait();
            if is_sender {
                phase_isend(&comm, &mut free, &mut sends)?;
                phase_send_wait(&mut free, &mut sends)?;
            }
            barrier.wait();
            if !is_sender {
                phase_progress(&comm, &receives[0])?;
                phase_take(&mut free, &mut receives)?;
            }
            barrier.wait();
            if is_sender {
                phase_send(&comm, &one)?;
            }
            barrier.wait();
            if !is_sender {
                phase_recv(&comm, &mut one)?;
            }
            barrier.wait();
        }
        Ok(())
    });
    ranks.into_iter().collect()
}
