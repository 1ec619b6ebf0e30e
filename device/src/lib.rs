//! `spmd-device`: put and signal from inside CUDA kernels.
//!
//! A kernel includes `spmd_device.cuh` and gets one argument, [`KernelContext`](context::KernelContext); everything it does
//! to another rank goes one of three ways ([`Way`](context::Way)), chosen when the [`Device`] is made. This crate knows the
//! runtime `spmd` by its public interface, and loads the CUDA driver only when a program asks for a device.
//!
//! ```no_run
//! use cudarc::driver::{LaunchConfig, PushKernelArg};
//! use spmd::prelude::*;
//! use spmd_device::{Device, Kernels};
//!
//! const SOURCE: &str = r#"
//! #include "spmd_device.cuh"
//! extern "C" __global__ void greet(spmd::context_t context, int *box, spmd::u64 *arrived) {
//!     const spmd::u32 right = (context.rank + 1) % context.size;
//!     int mine = context.rank;
//!     spmd::put_signal(context, box, &mine, sizeof mine, arrived, 1, spmd::SIGNAL_ADD, right);
//!     spmd::wait_signal(context, arrived, spmd::AT_LEAST, 1);
//! }
//! "#;
//!
//! fn main() -> spmd_device::Result<()> {
//!     let world = World::init()?;
//!     let device = Device::new(&world)?;
//!     let (letter, arrived) = (device.alloc::<i32>(1)?, device.alloc::<u64>(1)?);
//!     let greet = device.load(Kernels::Source(SOURCE))?.load_function("greet").expect("it is in the source");
//!     let mut launch = device.stream().launch_builder(&greet);
//!     launch.arg(device.context()).arg(letter.argument()).arg(arrived.argument());
//!     // SAFETY: the arguments are those of the kernel.
//!     unsafe { launch.launch(LaunchConfig::for_num_elems(1)) }.expect("the kernel starts");
//!     device.synchronize(device.stream())?;
//!     println!("rank {} got a letter from {}", world.rank(), letter.to_vec()?[0]);
//!     Ok(())
//! }
//! ```

mod buffer;
mod check;
mod choice;
mod collectives;
pub mod context;
mod device;
mod driver;
mod error;
mod exchange;
mod far;
pub mod header;
mod memory;
mod near;
mod nvrtc;

pub use buffer::DeviceBuffer;
pub use choice::{Choice, Explanation};
pub use collectives::{Algorithm, Operator, Reducible};
pub use device::{Device, Kernels};
pub use error::{Error, KernelError, Result};
pub use nvrtc::Nvrtc;
