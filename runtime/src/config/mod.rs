//! One resolved configuration for the whole job.
//!
//! The launcher resolves every key once (default < system file < user file < job file < environment of the launcher <
//! command line) into a [`Snapshot`]; agents and ranks only read what they were given. Nothing here knows how the
//! snapshot travels.

pub mod keys;
mod snapshot;

pub use keys::{Key, KeySpec};
pub use snapshot::{Entry, Snapshot, Source, Value};
