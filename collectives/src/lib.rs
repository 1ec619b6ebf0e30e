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

pub mod algorithms;
mod call;
pub mod check;
mod collectives;
pub mod compose;
pub mod compress;
mod error;
mod execute;
pub mod explain;
pub mod groups;
pub mod guard;
pub mod leaders;
pub mod levels;
pub mod operators;
mod owned;
mod plan;
pub mod price;
pub mod schedule;
pub mod select;
mod shared;
pub mod simulate;
pub mod table;
pub mod tune;
mod varied;

pub use collectives::Collectives;
pub use error::{Error, Result};
pub use owned::{NonBlockingCollectives, PersistentCollective, PersistentCollectives};
pub use spmd::comm::CollectiveRequest;

/// What most programs need: `use spmd_collectives::prelude::*;`.
pub mod prelude {
    pub use crate::collectives::Collectives;
    pub use crate::operators::{BitAnd, BitOr, BitXor, Max, MaxAt, Min, MinAt, Op, Product, Sum, custom};
    pub use crate::owned::{NonBlockingCollectives, PersistentCollectives};
}
