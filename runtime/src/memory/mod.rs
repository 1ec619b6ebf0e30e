//! Memory that several processes share: the segment of a host and the lanes in it.
//!
//! Knows nothing of messages, ranks of other hosts or time.

mod activity;
pub(crate) mod lane;
pub mod stores;

pub use activity::{Activity, Operation};

/// A 64-bit number as an index: the runtime is for machines where that is the same.
#[expect(clippy::cast_possible_truncation, reason = "usize has 64 bits, as asserted")]
pub(crate) fn index(number: u64) -> usize {
    const { assert!(usize::BITS == 64, "spmd needs a 64-bit machine") }
    number as usize
}

mod copy;
#[cfg(not(loom))]
pub(crate) mod heap;
#[cfg(not(loom))]
mod mapped_lane;
#[cfg(not(loom))]
pub(crate) mod peer;
#[cfg(not(loom))]
mod segment;
#[cfg(not(loom))]
mod sleepers;

pub use copy::{copy_elements, copy_past_cache};
#[cfg(not(loom))]
pub(crate) use mapped_lane::MappedLane;
#[cfg(not(loom))]
pub use segment::Segment;
