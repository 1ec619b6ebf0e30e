//! Several hosts on one machine: what `cargo xtask demo`, `cargo xtask lab` and the cluster tests run on.
//!
//! Only the hosts live here. The lab knows nothing of ranks, agents or messages: whatever starts over SSH can use it.

pub mod error;
pub mod netns;
pub mod process;

pub use error::{LabError, Result};
