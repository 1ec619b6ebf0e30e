//! Reliable connections over libibverbs: devices, memory, queues. Everything that calls the library is in here.
//!
//! Knows no ranks and no records. What can be decided without a device (encodings, addresses, reclaim) is in modules
//! without `unsafe`. The library is loaded when it is first needed, so that programs start where it is missing.

mod address;
mod completions;
mod counters;
mod device;
pub(crate) mod direct;
mod error;
mod library;
mod memory;
mod queue_pair;
pub(crate) mod reclaim;
mod sys;
pub(crate) mod units;

pub(crate) use address::Gid;
pub(crate) use completions::{Completion, Completions, Outcome};
pub(crate) use counters::PortCounters;
pub(crate) use device::{Device, Wanted, has_device};
pub(crate) use error::VerbsError;
pub(crate) use memory::{Piece, Region, Remote, Shared};
pub(crate) use queue_pair::{Attributes, Endpoint, QueuePair, Shape, What, Work, is_transient};
