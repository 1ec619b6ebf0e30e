//! Collective operations for programs on [`spmd`]: broadcast, reduce, all-reduce, gather, scatter and the like.
//!
//! ```
//! use spmd::prelude::*;
//! use spmd_collectives::prelude::*;
//!
//! fn main() -> spmd::Result<()> {
//!     let world = World::init()?; // size 1 when started without a launcher
//!     let comm = world.communicator();
//!     let mut gradient = vec![0.25f32; 1000];
//!     comm.all_reduce(&mut gradient, Sum)?;
//!     Ok(())
//! }
//! ```
//!
//! [`Collectives`] has the operations, [`NonBlockingCollectives`] and [`PersistentCollectives`] those that are waited for
//! later, [`compress`] sums of gradients that send less, [`operators`] what a reduction combines values with. Below that a collective is
//! data: an algorithm ([`algorithms`]) is a pure function that gives each rank its [`schedule`], [`check`] proves
//! schedules, [`price`] costs them on a model of a network, [`simulate`] on hosts, racks and their links, [`select`] chooses, and algorithms are written with
//! [`compose`].

// Under loom only the protocols in shared memory are built, and what they need.
#![cfg_attr(loom, allow(dead_code, reason = "its users are left out"))]

#[cfg(not(loom))]
pub mod algorithms;
#[cfg(not(loom))]
mod call;
#[cfg(not(loom))]
pub mod check;
#[cfg(not(loom))]
mod collectives;
pub mod compose;
#[cfg(not(loom))]
pub mod compress;
#[cfg(not(loom))]
mod error;
#[cfg(not(loom))]
mod execute;
#[cfg(not(loom))]
pub mod explain;
#[cfg(not(loom))]
pub mod groups;
#[cfg(not(loom))]
pub mod guard;
#[cfg(not(loom))]
pub mod leaders;
#[cfg(not(loom))]
pub mod levels;
pub mod operators;
#[cfg(not(loom))]
mod owned;
#[cfg(not(loom))]
mod plan;
#[cfg(not(loom))]
pub mod price;
pub mod schedule;
#[cfg(not(loom))]
pub mod select;
mod shared;
#[cfg(not(loom))]
pub mod simulate;
#[cfg(not(loom))]
pub mod table;
#[cfg(not(loom))]
pub mod tune;
#[cfg(not(loom))]
mod varied;

#[cfg(not(loom))]
pub use collectives::Collectives;
#[cfg(not(loom))]
pub use error::{Error, Result};
#[cfg(not(loom))]
pub use owned::{Blocks, NonBlockingCollectives, PersistentCollective, PersistentCollectives};
#[cfg(not(loom))]
pub use spmd::comm::CollectiveRequest;

/// What most programs need: `use spmd_collectives::prelude::*;`.
#[cfg(not(loom))]
pub mod prelude {
    pub use crate::collectives::Collectives;
    pub use crate::operators::{BitAnd, BitOr, BitXor, Max, MaxAt, Min, MinAt, Op, Product, Sum, custom};
    pub use crate::owned::{NonBlockingCollectives, PersistentCollectives};
}
