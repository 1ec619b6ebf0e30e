//! `spmd-device`: put and signal from inside CUDA kernels.
//!
//! A kernel includes `spmd_device.cuh` and gets one argument, [`KernelContext`](context::KernelContext); everything it does
//! to another rank goes one of three ways ([`Way`](context::Way)), chosen when the [`Device`] is made. This crate knows the
//! runtime `spmd` by its public interface, and loads the CUDA driver only when a program asks for a device.
//!
//! ```no_run
//! use spmd_device::cudarc::driver::{LaunchConfig, PushKernelArg};
//! use spmd::prelude::*;
//! use spmd_device::{Device, Kernels};
//!
//! const SOURCE: &str = r#"
//! #include "spmd_device.cuh"
//! extern "C" __global__ void greet(spmd::context_t context, int *box, const int *letter, spmd::u64 *arrived) {
//!     const spmd::u32 right = (context.rank + 1) % context.size;
//!     spmd::put_signal(context, box, letter, sizeof *letter, arrived, 1, spmd::SIGNAL_ADD, right);
//!     spmd::wait_signal(context, arrived, spmd::AT_LEAST, 1);
//! }
//! "#;
//!
//! fn main() -> spmd_device::Result<()> {
//!     let world = World::init()?;
//!     let device = Device::new(&world)?;
//!     let (inbox, letter, arrived) = (device.alloc::<i32>(1)?, device.alloc::<i32>(1)?, device.alloc::<u64>(1)?);
//!     letter.write(&[world.rank() as i32])?;
//!     let greet = device.load(Kernels::Source(SOURCE))?.load_function("greet").expect("it is in the source");
//!     let mut launch = device.stream().launch_builder(&greet);
//!     launch.arg(device.context()).arg(inbox.argument()).arg(letter.argument()).arg(arrived.argument());
//!     // SAFETY: the arguments are those of the kernel.
//!     unsafe { launch.launch(LaunchConfig::for_num_elems(1)) }.expect("the kernel starts");
//!     device.synchronize(device.stream())?;
//!     println!("rank {} got a letter from {}", world.rank(), inbox.to_vec()?[0]);
//!     Ok(())
//! }
//! ```

// Under loom only the ring is built.
#[cfg(not(loom))]
mod agree;
#[cfg(not(loom))]
mod alarm;
#[cfg(not(loom))]
mod buffer;
#[cfg(not(loom))]
mod check;
#[cfg(not(loom))]
mod choice;
#[cfg(not(loom))]
mod collectives;
#[cfg(not(loom))]
pub mod context;
#[cfg(not(loom))]
mod device;
#[cfg(not(loom))]
mod driver;
#[cfg(not(loom))]
mod error;
#[cfg(not(loom))]
mod exchange;
#[cfg(not(loom))]
mod far;
pub mod header;
#[cfg(all(test, not(loom)))]
mod host_compiler;
#[cfg(not(loom))]
mod memory;
#[cfg(not(loom))]
pub mod mlx5;
#[cfg(not(loom))]
mod near;
#[cfg(not(loom))]
pub mod nic;
#[cfg(not(loom))]
mod nvrtc;
pub mod proxy;
#[cfg(not(loom))]
mod sharing;
#[cfg(all(test, not(loom)))]
mod waits;
#[cfg(not(loom))]
mod watch;

/// The bindings of the CUDA driver that this crate uses: contexts, streams and graphs of a program are those.
#[cfg(not(loom))]
pub use cudarc;

#[cfg(not(loom))]
pub use buffer::DeviceBuffer;
#[cfg(not(loom))]
pub use choice::{Choice, Explanation};
#[cfg(not(loom))]
pub use collectives::{Algorithm, Operator, Reducible};
#[cfg(not(loom))]
pub use device::{Device, Kernels};
#[cfg(not(loom))]
pub use error::{Error, KernelError, Result};
#[cfg(not(loom))]
pub use nvrtc::Nvrtc;
#[cfg(not(loom))]
pub use watch::Watch;
