//! `spmd-device`: put and signal from inside CUDA kernels.
//!
//! A kernel includes `spmd_device.cuh` and gets one argument, [`context::KernelContext`]; everything it does to another
//! rank goes one of three ways ([`context::Way`]), chosen when the device is set up. This crate knows the runtime `spmd` by
//! its public interface, and loads the CUDA driver only when a program asks for a device.

pub mod context;
pub mod header;
#[cfg(all(test, not(loom)))]
mod host_compiler;
#[cfg(not(loom))]
pub mod mlx5;
#[cfg(not(loom))]
pub mod nic;
pub mod proxy;
