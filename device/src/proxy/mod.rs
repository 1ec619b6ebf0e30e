//! The proxy: a ring in memory of the host that many producers (blocks of a kernel, or threads) write requests into, and a
//! thread that carries them out over any transport of the runtime.
//!
//! For peers whose memory a device cannot reach. Does not know CUDA: whoever does registers the ring's pages and the heap
//! with the device and passes the addresses.

#[cfg(not(loom))]
mod carrier;
#[cfg(not(loom))]
mod layout;
#[cfg(not(loom))]
mod memory;
#[cfg(not(loom))]
mod producer;
mod ring;
#[cfg(not(loom))]
mod service;
#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(not(loom))]
pub use carrier::{Carrier, Fetch};
#[cfg(not(loom))]
pub use layout::{Block, Published, Request, RingHandle, STRIDE, Signal};
#[cfg(not(loom))]
pub use memory::Ring;
#[cfg(not(loom))]
pub use producer::{Producer, ProducerError};
#[cfg(not(loom))]
pub use service::{Counters, Proxy};
