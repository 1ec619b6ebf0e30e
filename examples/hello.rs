//! Every rank says who and where it is.
//!
//!     rsrun -n 4 target/release/examples/hello

use spmd::prelude::*;
use spmd_collectives::prelude::*;

fn main() -> spmd::Result<()> {
    let world = World::init()?;
    let comm = world.communicator();
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    println!("rank {} of {} on {}, process {}", comm.rank(), comm.size(), name.trim(), std::process::id());

    let mut present = [1_u64];
    comm.all_reduce(&mut present, Sum)?;
    assert_eq!(present, [comm.size() as u64], "every rank is there, once");
    Ok(())
}
