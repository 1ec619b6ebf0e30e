//! Several hosts on one machine: what `cargo xtask demo`, `cargo xtask lab` and the cluster tests run on.
//!
//! Hosts, processes and time limits live here, nothing of ranks, agents or messages: whatever starts over SSH can use it.

pub mod error;
pub mod folder;
pub mod netns;
pub mod process;
pub mod programs;
mod sys;
pub mod vm;

pub use error::{LabError, Result};
