//! What can be wrong with schedules that each look right.

use crate::algorithms::Collective;
use crate::schedule::{Action, Buffer, ScheduleError};

/// Why the schedules of all ranks together do not fulfil their task.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// A rank's schedule could not be built.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// Not one schedule for each rank.
    #[error("{schedules} schedules for {size} ranks")]
    Count {
        /// Schedules given.
        schedules: usize,
        /// Ranks of the task.
        size: usize,
    },
    /// A schedule stands at another rank's place.
    #[error("the schedule of rank {rank} is for rank {given} of {size}")]
    Place {
        /// Its place.
        rank: usize,
        /// The rank it was built for.
        given: usize,
        /// The size it was built for.
        size: usize,
    },
    /// A buffer is not as long as the collective says.
    #[error("rank {rank}: {collective} has {expected} elements of {buffer}, the schedule {found}")]
    BufferLength {
        /// The rank.
        rank: usize,
        /// The collective.
        collective: Collective,
        /// The buffer.
        buffer: Buffer,
        /// What the collective says.
        expected: usize,
        /// What the schedule says.
        found: usize,
    },
    /// Two steps that may run at the same time, one of which writes what the other one touches.
    #[error("rank {rank}: step {first} and step {second} touch the same elements in no order")]
    Race {
        /// The rank.
        rank: usize,
        /// One step.
        first: usize,
        /// The other.
        second: usize,
    },
    /// Both ends of a message disagree on its length.
    #[error("message {label} from rank {source_rank} to rank {destination}: {sent} elements sent, {received} received")]
    MessageLength {
        /// The sender.
        source_rank: usize,
        /// The receiver.
        destination: usize,
        /// The message's number.
        label: u32,
        /// Elements sent.
        sent: usize,
        /// Elements to be received.
        received: usize,
    },
    /// A step is ready and its other end never is.
    #[error("rank {rank} waits for ever in step {step} ({action})")]
    Deadlock {
        /// The rank.
        rank: usize,
        /// The first step that is not complete.
        step: usize,
        /// What it does.
        action: Action,
    },
    /// A message that nobody receives, which only an eager sender can leave behind.
    #[error("message {label} from rank {source_rank} to rank {destination} is never received")]
    Unreceived {
        /// The sender.
        source_rank: usize,
        /// The receiver.
        destination: usize,
        /// The message's number.
        label: u32,
    },
    /// A step reads what was never written.
    #[error("rank {rank}: step {step} ({action}) reads elements that were never written")]
    Undefined {
        /// The rank.
        rank: usize,
        /// The step.
        step: usize,
        /// What it does.
        action: Action,
    },
    /// A step combines different elements, or the same contribution twice.
    #[error("rank {rank}: step {step} ({action}) combines {what}")]
    WrongOperands {
        /// The rank.
        rank: usize,
        /// The step.
        step: usize,
        /// What it does.
        action: Action,
        /// What is wrong with the operands.
        what: &'static str,
    },
    /// A rank does not end with what the collective promises.
    #[error("rank {rank}: element {element} of the output {what}")]
    WrongResult {
        /// The rank.
        rank: usize,
        /// The element of its output.
        element: usize,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A rank leaves a barrier too early.
    #[error("rank {rank} leaves the barrier without knowing that rank {missing} has entered")]
    LeavesEarly {
        /// The rank.
        rank: usize,
        /// The other rank.
        missing: usize,
    },
}
