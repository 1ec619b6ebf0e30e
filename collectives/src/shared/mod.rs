//! Collectives in memory that ranks of one host share: no messages between them, each rank's part lies where the others read
//! it.
//!
//! What is done there is in [`protocol`], [`memory`], [`tree`] and [`hops`], which know no communicator, so that loom checks them; in
//! [`host`] (all ranks on one host) and [`grouped`] (two hops, the inner one in memory) they meet the runtime. Mismatches
//! are found by comparing fingerprints, and by the runtime where ranks wait for long.

#[cfg(not(loom))]
mod grouped;
mod hops;
#[cfg(not(loom))]
mod host;
mod memory;
#[cfg(not(loom))]
mod part;
mod protocol;
#[cfg(not(loom))]
#[expect(unsafe_code, reason = "memory shared with other processes")]
mod room;
mod tree;

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(not(loom))]
pub(crate) use crate::algorithms::{IN_TWO_HOPS, SHARED as NAME};
#[cfg(not(loom))]
pub(crate) use grouped::{Grouped, HopPlan, chunk_bytes};
#[cfg(not(loom))]
pub(crate) use host::{Shared, has};
#[cfg(not(loom))]
pub(crate) use part::{Exchanged, Part};
