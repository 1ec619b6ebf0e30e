//! `spmd`: the runtime of rsrun, an MPI-style SPMD runtime for RDMA clusters.
//!
//! One program, many ranks: `rsrun -n 96 -hostfile hosts ./app` starts it everywhere, [`World::init`] joins, and every
//! rank talks to every other through a [`Communicator`]. Without `rsrun` a program is a world of size 1;
//! [`local::run`] makes threads of one process into ranks.
//!
//! ```
//! use spmd::prelude::*;
//!
//! fn main() -> spmd::Result<()> {
//!     let world = World::init()?;
//!     let comm = world.communicator();
//!     println!("rank {} of {}", comm.rank(), comm.size());
//!     Ok(())
//! }
//! ```

// Under loom only the lanes and what they need are built.
#![cfg_attr(loom, allow(dead_code, reason = "its users are left out"))]

// The derive macro names this crate by its public name, also within it.
extern crate self as spmd;

pub mod bootstrap;
#[cfg(not(loom))]
pub mod comm;
pub mod config;
pub mod element;
#[cfg(not(loom))]
mod engine;
mod error;
#[cfg(not(loom))]
pub mod explain;
#[cfg(not(loom))]
pub mod heap;
#[cfg(not(loom))]
mod hint;
#[cfg(not(loom))]
pub mod local;
#[cfg(not(loom))]
mod matching;
pub mod memory;
pub mod protocol;
pub mod statistics;
pub mod trace;
#[cfg(not(loom))]
mod transport;

/// Decoders of what peers send, for the fuzz targets (`fuzz/targets`).
#[cfg(fuzzing)]
pub mod fuzzing {
    pub use crate::{engine::one_sided::fuzz as one_sided_record, transport::verbs::fuzz as rdma_agreement};
}

#[cfg(not(loom))]
mod verbs;
#[cfg(not(loom))]
mod world;

pub use bootstrap::node::Placement;
#[cfg(not(loom))]
pub use comm::{
    Any, Cancelled, CollectiveRequest, Communicator, Message, PersistentRecv, PersistentSend, RecvRequest, Request,
    SendRequest, Source, StartedRecv, StartedSend, Status, Tag,
};
pub use element::Element;
pub use error::{Error, LinkError, Result, SystemError};
#[cfg(not(loom))]
pub use heap::{Compare, HeapBuffer, Pending, SignalOp, SymmetricHeap};
/// Queue pairs of an mlx5 NIC whose requests a GPU writes itself.
#[cfg(not(loom))]
pub mod direct {
    pub use crate::verbs::direct::{DirectNic, DirectQueue, Offer, QueueMemory};
}
#[cfg(not(loom))]
pub use hint::{HintApplies, HintOn, SizeHint, size_hint_for_gradients};
pub use spmd_derive::Element;
#[cfg(not(loom))]
pub use world::{Builder, World};

/// What most programs need: `use spmd::prelude::*;`.
#[cfg(not(loom))]
pub mod prelude {
    pub use crate::{Any, Communicator, Element, Error, RecvRequest, SendRequest, Source, Status, Tag, World};
}
