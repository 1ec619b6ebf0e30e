//! A rank dies while another one waits in a way that the runtime does not see, as a kernel does: the watch of a device tells it.
//! Without a GPU.
//!
//!     rsrun --on-failure continue -n 3 target/debug/examples/loss_on_host
//!
//! The last rank kills itself. Each of the others prints why its wait has ended, and after how long.

use spmd::prelude::*;
use spmd_collectives::prelude::*;
use spmd_device::Watch;
use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

fn main() -> spmd::Result<()> {
    let world = World::init()?;
    let comm = world.communicator();
    // What a kernel sees, and what the host then finds.
    let (stop, reason) = (Arc::new(AtomicU32::new(0)), Arc::new(OnceLock::new()));
    let (stopping, saying) = (stop.clone(), reason.clone());
    let watch = Watch::start(comm.duplicate()?, move |error| {
        saying.set(error).expect("the alarm is raised once");
        stopping.store(1, Ordering::Release);
    })?;
    comm.barrier()?;
    if comm.rank() == comm.size() - 1 {
        std::thread::sleep(Duration::from_millis(200));
        std::process::abort();
    }
    let begun = Instant::now();
    // Looks at nothing but the word.
    while stop.load(Ordering::Acquire) == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let error = reason.get().expect("it is said before");
    println!(
        "rank {}: a loss: {}, after {:.3} s: {error}",
        comm.rank(),
        error.is_loss(),
        begun.elapsed().as_secs_f64()
    );
    drop(watch);
    Ok(())
}
