//! Memory that several processes share: the segment of a host and the rings in it.
//!
//! Knows nothing of messages, ranks of other hosts or time.

pub(crate) mod ring;
#[cfg(not(loom))]
mod segment;

#[cfg(not(loom))]
pub(crate) use segment::MappedRing;
#[cfg(not(loom))]
pub use segment::Segment;
