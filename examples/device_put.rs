//! Kernels put data into each other's memory and signal it: blocks of data go round the ring of ranks, and nothing but
//! kernels takes part. Every word is checked.
//!
//!     rsrun -n 2 target/release/examples/device_put
//!
//! Needs a GPU for each rank (or one for all), and nothing but its driver: the kernel was compiled ahead.

#![expect(unsafe_code, reason = "launches a kernel")]

use spmd::prelude::*;
use spmd_collectives::prelude::*;
use spmd_device::cudarc::driver::{LaunchConfig, PushKernelArg};
use spmd_device::{Device, Kernels};
use std::time::Instant;

const BLOCKS: u32 = 16;
const WORDS: usize = 4096;
const ROUNDS: u64 = 500;

fn main() -> spmd_device::Result<()> {
    let world = World::init()?;
    let comm = world.communicator();
    let device = Device::new(&world)?;
    // The same kernel from its source: Kernels::Source(include_str!("device_put.cu")), where NVRTC is installed.
    let module = device.load(Kernels::Ptx(include_str!("device_put.ptx")))?;
    let ring = module.load_function("ring").expect("the kernel is in the file");

    let blocks = BLOCKS as usize;
    let (slots, source) = (device.alloc::<i32>(blocks * 2 * WORDS)?, device.alloc::<i32>(blocks * 2 * WORDS)?);
    let (arrived, taken) = (device.alloc::<u64>(blocks)?, device.alloc::<u64>(blocks)?);
    let wrong = device.alloc::<u64>(1)?;
    let words = WORDS as u64;
    let mut launch = device.stream().launch_builder(&ring);
    launch.arg(device.context()).arg(slots.argument()).arg(source.argument()).arg(&words);
    launch.arg(arrived.argument()).arg(taken.argument()).arg(&ROUNDS).arg(wrong.argument());
    let shape = LaunchConfig { grid_dim: (BLOCKS, 1, 1), block_dim: (256, 1, 1), shared_mem_bytes: 0 };
    let begun = Instant::now();
    // SAFETY: the arguments are those of the kernel.
    unsafe { launch.launch(shape) }.expect("the kernel starts");
    // A wait that takes too long, or a rank or offset that does not exist, would be an error here.
    device.synchronize(device.stream())?;
    let seconds = begun.elapsed().as_secs_f64();

    let mut errors = wrong.to_vec()?;
    comm.all_reduce(&mut errors, Sum)?;
    assert_eq!(errors[0], 0, "words that are not what the left neighbour put");
    if comm.rank() == 0 {
        print!("{}", device.explain());
        let bytes = u64::from(BLOCKS) * words * 4 * ROUNDS;
        println!("{ROUNDS} rounds of {BLOCKS} blocks round {} ranks: every word right", comm.size());
        println!("{bytes} bytes from each rank in {seconds:.3} s");
    }
    Ok(())
}
