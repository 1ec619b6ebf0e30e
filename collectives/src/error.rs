//! What can go wrong in a collective call.

use crate::levels::LevelsError;
use crate::schedule::ScheduleError;
use crate::select::SelectionError;
use crate::table::TableError;
use spmd::memory::Operation;
use std::fmt;
use std::sync::Arc;

/// A result of a collective call.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of a collective call. It converts into [`spmd::Error`], so that a program needs one error type only.
///
/// After an error the ranks do not agree on what has been done: the communicator is of no more use, and the other ranks
/// get errors too once this rank revokes or shrinks it ([`Communicator::revoke`](spmd::Communicator::revoke),
/// [`Communicator::shrink`](spmd::Communicator::shrink)), or drops its `World`.
///
/// As with [`spmd::Error`], `{:?}` gives the message, too.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The root does not exist.
    #[error("rank {rank}: {collective} with root {root}, but the communicator has ranks 0 to {}", .size - 1)]
    NoSuchRoot {
        /// The calling rank.
        rank: usize,
        /// The collective.
        collective: Operation,
        /// The root asked for.
        root: usize,
        /// The communicator's size.
        size: usize,
    },
    /// A buffer does not have the length that the others demand.
    #[error(
        "rank {rank}: {collective} needs {expected} elements as its {buffer} ({expected_bytes} bytes), the one given \
         has {given}"
    )]
    Length {
        /// The calling rank.
        rank: usize,
        /// The collective.
        collective: Operation,
        /// Which buffer.
        buffer: &'static str,
        /// Elements that it should have.
        expected: usize,
        /// The same in bytes.
        expected_bytes: usize,
        /// Elements that it has.
        given: usize,
    },
    /// The input cannot be cut into one block for each rank.
    #[error("rank {rank}: {collective} among {size} ranks needs a multiple of {size} elements, the input has {given}")]
    NotDivisible {
        /// The calling rank.
        rank: usize,
        /// The collective.
        collective: Operation,
        /// The communicator's size.
        size: usize,
        /// Elements given.
        given: usize,
    },
    /// The counts do not fit the data.
    #[error(
        "rank {rank}: {collective} among {size} ranks needs {size} counts whose sum is the length of the data, {given} \
         elements; given: {counts} counts{}", .sum.map_or(String::from(", more than can be counted"), |sum| format!(" with sum {sum}"))
    )]
    Counts {
        /// The calling rank.
        rank: usize,
        /// The collective.
        collective: Operation,
        /// How many counts there are.
        counts: usize,
        /// The communicator's size.
        size: usize,
        /// Their sum, if it can be counted.
        sum: Option<usize>,
        /// Elements given.
        given: usize,
    },
    /// The root did not give a buffer that only the root needs.
    #[error("rank {rank}: the root of {collective} must give its {buffer}: pass Some(…) on rank {rank}")]
    MissingAtRoot {
        /// The calling rank, which is the root.
        rank: usize,
        /// The collective.
        collective: Operation,
        /// Which buffer.
        buffer: &'static str,
    },
    /// Ranks are in different calls; perhaps in an earlier one of the same communicator.
    #[error("{collective} on rank {rank}: {source}")]
    Mismatch {
        /// The calling rank.
        rank: usize,
        /// The collective on the calling rank.
        collective: Operation,
        /// Two ranks and their calls, the same on all ranks.
        source: spmd::Error,
    },
    /// The algorithm that the configuration forces cannot be used.
    #[error(transparent)]
    Selection(#[from] SelectionError),
    /// The tuning table cannot be read.
    #[error("collectives.table: {0}")]
    Table(#[from] TableError),
    /// There are no such groups as the configuration names.
    #[error(transparent)]
    Levels(#[from] LevelsError),
    /// No schedule could be made.
    #[error("rank {rank}: {collective} of {elements} elements: {source}")]
    Schedule {
        /// The calling rank.
        rank: usize,
        /// The collective.
        collective: Operation,
        /// Elements per rank.
        elements: usize,
        /// Why.
        source: ScheduleError,
    },
    /// A compressed sum cannot be as asked for.
    #[error("rank {rank}: compressed all_reduce: {reason}")]
    Compression {
        /// The calling rank.
        rank: usize,
        /// What is wrong, and the way out.
        reason: String,
    },
    /// The runtime could not move the data.
    #[error("{collective} ({algorithm}) of {bytes} bytes on rank {rank}: {source}")]
    Runtime {
        /// The calling rank.
        rank: usize,
        /// The collective.
        collective: Operation,
        /// The algorithm.
        algorithm: &'static str,
        /// Bytes per rank.
        bytes: usize,
        /// What happened; names the peer.
        source: spmd::Error,
    },
}

impl Error {
    /// The error of the runtime in a call.
    pub(crate) fn of_runtime(
        rank: usize,
        collective: Operation,
        algorithm: &'static str,
        bytes: usize,
        source: spmd::Error,
    ) -> Error {
        // What was found out here while the call was under way says all by itself.
        if let spmd::Error::Library(library) = &source
            && let Some(own) = library.downcast_ref::<Error>()
        {
            return own.clone();
        }
        match source {
            spmd::Error::CallMismatch { .. } => Error::Mismatch { rank, collective, source },
            source => Error::Runtime { rank, collective, algorithm, bytes, source },
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<Error> for spmd::Error {
    fn from(error: Error) -> spmd::Error {
        spmd::Error::Library(Arc::new(error))
    }
}
