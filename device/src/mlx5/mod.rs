//! The GPU-rung doorbell for mlx5: what the host sets up so that a kernel itself writes entries and rings.
//!
//! Not run on hardware. Everything that the kernel does is run against the software NIC ([`crate::nic`]).

mod connect;
mod layout;
mod software;
#[cfg(test)]
mod tests;

pub(crate) use connect::DirectPeers;
pub use layout::QueueHandle;
pub use software::{Heap, SoftwareQueue};
