//! What a list of steps must not be.

use super::{Action, Slice};

/// Why a list of steps is not a schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleError {
    /// The rank is not one of the communicator.
    #[error("rank {rank} is not one of a communicator of {size}")]
    Rank {
        /// The rank.
        rank: usize,
        /// The communicator's size.
        size: usize,
    },
    /// The groups are those of another communicator.
    #[error("the groups have {ranks} ranks, the communicator has {size}")]
    Groups {
        /// Ranks in the groups.
        ranks: usize,
        /// The communicator's size.
        size: usize,
    },
    /// A slice is larger than its buffer.
    #[error("step {step}: {slice} lies outside the {available} elements of the {}", slice.buffer)]
    OutOfBounds {
        /// The step.
        step: usize,
        /// The slice.
        slice: Slice,
        /// Elements of its buffer.
        available: usize,
    },
    /// The caller's input would change.
    #[error("step {step} ({action}) writes the input, which belongs to the caller")]
    WritesInput {
        /// The step.
        step: usize,
        /// What it would do.
        action: Action,
    },
    /// A message to a rank that does not exist, or to the rank itself.
    #[error("step {step}: rank {rank} of {size} cannot exchange a message with rank {peer}")]
    Peer {
        /// The step.
        step: usize,
        /// The peer.
        peer: usize,
        /// The schedule's rank.
        rank: usize,
        /// The communicator's size.
        size: usize,
    },
    /// Two slices of one step have different lengths.
    #[error("step {step} ({action}) combines slices of different lengths")]
    Lengths {
        /// The step.
        step: usize,
        /// What it would do.
        action: Action,
    },
    /// Two slices of one step have elements in common.
    #[error("step {step} ({action}) reads and writes the same elements")]
    Overlap {
        /// The step.
        step: usize,
        /// What it would do.
        action: Action,
    },
    /// A dependency that does not point backwards: what keeps the order free of circles.
    #[error("step {step} waits for step {dependency}, which does not come before it")]
    Dependency {
        /// The step.
        step: usize,
        /// The dependency.
        dependency: u32,
    },
    /// The algorithm works in memory that ranks share: what it does there is no list of messages.
    #[error("it works in memory that ranks share, and has no schedule")]
    InMemory,
    /// More steps, dependencies or elements than can be counted.
    #[error("the schedule has more steps, dependencies or elements than can be counted")]
    TooLarge,
}
