//! What can go wrong in a call of the runtime. Every message names ranks, operation and bytes, and the way out.

use std::{fmt, io};

/// A result of the runtime.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of the runtime. Cheap to clone, so that every operation that one event ends can report it.
///
/// `{:?}` gives the message, too: it is what a `main` that returns an error prints, and what `unwrap` says.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// `World::init` could not find or understand what the launcher handed over.
    #[error("World::init: {reason}")]
    Bootstrap {
        /// What is wrong, and the way out.
        reason: String,
    },
    /// The launcher refused the job: ranks do not agree.
    #[error("World::init was refused on every rank: {reason}")]
    Refused {
        /// Which ranks differ in what.
        reason: String,
    },
    /// A configuration value set in code is unknown or out of range.
    #[error("{reason}")]
    Setting {
        /// Which value and what is allowed.
        reason: String,
    },
    /// Ranks called a collective setting with different values.
    #[error("{operation}: rank {rank} says {value}, rank 0 says {first}: every rank must give the same value")]
    Disagreement {
        /// The operation.
        operation: &'static str,
        /// The first rank of the communicator that differs from its rank 0.
        rank: usize,
        /// What it said.
        value: u64,
        /// What rank 0 said.
        first: u64,
    },
    /// A rank that does not exist in the communicator.
    #[error("rank {rank} is not in this communicator, which has ranks 0 to {last} (in {operation})")]
    NoSuchRank {
        /// The operation.
        operation: &'static str,
        /// The rank asked for.
        rank: usize,
        /// The last rank of the communicator.
        last: usize,
    },
    /// A tag outside `0..=i32::MAX`.
    #[error("tag {tag} is not allowed: tags are 0 to {max} (in {operation})", max = i32::MAX)]
    BadTag {
        /// The operation.
        operation: &'static str,
        /// The tag asked for.
        tag: i32,
    },
    /// The message is longer than the buffer. The message is gone; the next one is intact.
    #[error(
        "rank {rank}: the message of {sent} bytes from rank {source_rank} (tag {tag}) does not fit into the buffer of \
         {room} bytes: receive into a larger buffer, or with recv_vec"
    )]
    Truncated {
        /// The receiving rank in the world.
        rank: usize,
        /// The sending rank in the world.
        source_rank: usize,
        /// The message's tag.
        tag: u64,
        /// Bytes sent.
        sent: usize,
        /// Bytes the buffer holds.
        room: usize,
    },
    /// Sender and receiver disagree on the element type. The message is gone; the next one is intact.
    #[error(
        "rank {rank}: rank {source_rank} sent {sent} elements (tag {tag}) where {expected} elements are received: use the same type on \
         both sides"
    )]
    TypeMismatch {
        /// The receiving rank in the world.
        rank: usize,
        /// The sending rank in the world.
        source_rank: usize,
        /// The message's tag.
        tag: u64,
        /// The sender's element type.
        sent: String,
        /// The receiver's element type.
        expected: String,
    },
    /// A step of a collective got a message of another length: ranks called it with different lengths.
    #[error(
        "rank {rank}: rank {source_rank} sent {sent} bytes where {expected} bytes are expected: every rank must call the collective with \
         the same length"
    )]
    LengthMismatch {
        /// The receiving rank in the world.
        rank: usize,
        /// The sending rank in the world.
        source_rank: usize,
        /// Bytes sent.
        sent: usize,
        /// Bytes expected.
        expected: usize,
    },
    /// Ranks are in collective calls that do not fit together: the same error on all of them.
    #[error(
        "as collective {number} of a communicator rank {rank} calls {call}, but rank {other_rank} calls {other}: all ranks must call \
         the same collectives in the same order, with the same element type, length, root and operator"
    )]
    CallMismatch {
        /// The how many-th collective of the communicator, from 1.
        number: u64,
        /// A rank in the world.
        rank: usize,
        /// Its call.
        call: String,
        /// A rank in the world that differs from it.
        other_rank: usize,
        /// The call of that one.
        other: String,
    },
    /// A collective has waited for longer than `collectives.timeout`.
    #[error("{call}, collective {number} of a communicator, has waited {} s; {} not in it", waited.as_secs(), ranks(missing))]
    CollectiveTimeout {
        /// The call.
        call: String,
        /// The how many-th collective of the communicator, from 1.
        number: u64,
        /// How long nothing has come.
        waited: std::time::Duration,
        /// Ranks in the world that are waited for and have not said that they are in it.
        missing: Vec<u32>,
    },
    /// The connection to a peer broke or could not be made.
    #[error("rank {peer} on host {host} is lost: {reason}")]
    PeerLost {
        /// The peer's rank in the world.
        peer: usize,
        /// Its host.
        host: String,
        /// What happened.
        reason: String,
    },
    /// The RDMA connection to a peer failed.
    #[error("rank {peer} on host {host} is lost: {error}")]
    Link {
        /// The peer's rank in the world.
        peer: usize,
        /// Its host.
        host: String,
        /// What the device says.
        error: std::sync::Arc<LinkError>,
    },
    /// The peer has dropped its `World`: what is waited for will never come.
    #[error(
        "rank {peer} on host {host} has dropped its World, so {operation} cannot complete: a send or receive is missing there"
    )]
    PeerFinished {
        /// The peer's rank in the world.
        peer: usize,
        /// Its host.
        host: String,
        /// What was waited for.
        operation: &'static str,
    },
    /// This rank has dropped its [`World`](crate::World), and calls through a communicator or a heap that it has kept.
    #[error(
        "rank {rank} has dropped its World and can neither send nor receive any more: keep the World until the last call, and drop \
         communicators, requests and heaps before it"
    )]
    WorldDropped {
        /// This rank.
        rank: usize,
    },
    /// The peer has dropped the communicator without receiving this message, which waited for its receive there.
    #[error(
        "rank {peer} on host {host} has dropped the communicator without receiving the message: a receive is missing there, or the \
         communicator is dropped too soon"
    )]
    CommunicatorDropped {
        /// The peer's rank in the world.
        peer: usize,
        /// Its host.
        host: String,
    },
    /// Every other rank of the communicator has dropped its `World`: what is waited for will never come.
    #[error(
        "every other rank of the communicator has dropped its World, so {operation} cannot complete: a send is missing there"
    )]
    NobodyLeft {
        /// What was waited for.
        operation: &'static str,
    },
    /// The communicator has been revoked ([`Communicator::revoke`](crate::Communicator::revoke)), or shrunk, by a rank that
    /// has heard of a loss: nothing goes through it any more, on any rank.
    #[error(
        "rank {by} has revoked the communicator, so that nothing goes through it any more: call shrink and go on with what that gives"
    )]
    Revoked {
        /// The rank in the world that has done so, or one of several.
        by: usize,
    },
    /// A symmetric heap was used wrongly, or differently on different ranks.
    #[error("symmetric heap: {reason} (in {operation})")]
    Heap {
        /// The operation.
        operation: &'static str,
        /// What is wrong, and the way out.
        reason: String,
    },
    /// A signal has not come in time.
    #[error("rank {rank}: signal {index} is {found} after {waited:?}, waited for {wanted}: nobody has raised it")]
    SignalTimeout {
        /// The waiting rank in the communicator.
        rank: usize,
        /// Which word of the buffer.
        index: usize,
        /// What was waited for.
        wanted: String,
        /// What it is.
        found: u64,
        /// How long it was waited for.
        waited: std::time::Duration,
    },
    /// The peer announced a message and will not send (the rest of) it: the call that sent it has ended there by an error. That
    /// may be a loss or a call that does not fit, of which this rank has not heard yet, or the peer's own affair, as a time-out.
    #[error(
        "rank {peer} gave up a message to this rank that was under way: the call that sent it has failed there, and its error says why"
    )]
    GaveUp {
        /// The peer's rank in the world.
        peer: usize,
        /// The peer knew of a member of the communicator that is lost or has left.
        loss: bool,
    },
    /// Another rank or thread of this job has failed.
    #[error("the job is ending: {reason}")]
    Aborted {
        /// Why.
        reason: String,
    },
    /// A system call failed.
    #[error("{what}: {error}")]
    System {
        /// What was tried.
        what: String,
        /// The system's answer.
        error: SystemError,
    },
    /// A library above the runtime, such as the collectives, reports an error of its own.
    #[error("{0}")]
    Library(std::sync::Arc<dyn std::error::Error + Send + Sync>),
    /// A peer sent bytes that no correct peer sends.
    #[error("rank {peer} sent a record that cannot be right ({what}): memory corruption or a version mix")]
    Corrupt {
        /// The peer's rank in the world.
        peer: usize,
        /// What is wrong with it.
        what: &'static str,
    },
}

impl Error {
    /// Whether it says that ranks are lost or have left, or that another rank has found that and revoked the communicator or
    /// given up what it was sending: those that are left can go on with what
    /// [`Communicator::shrink`](crate::Communicator::shrink) gives. A message that its sender gave up for another reason, as a
    /// time-out, is none: all are still there, and nobody else would shrink. Looks into errors of libraries, too.
    #[must_use]
    pub fn is_loss(&self) -> bool {
        match self {
            Error::PeerLost { .. }
            | Error::Link { .. }
            | Error::PeerFinished { .. }
            | Error::NobodyLeft { .. }
            | Error::GaveUp { loss: true, .. }
            | Error::Revoked { .. } => true,
            Error::Library(error) => {
                let first: &(dyn std::error::Error + 'static) = &**error;
                std::iter::successors(Some(first), |error| error.source())
                    .any(|error| error.downcast_ref::<Error>().is_some_and(Error::is_loss))
            }
            _ => false,
        }
    }
}

/// Ranks as the subject of a sentence, the first of many.
pub(crate) fn ranks(ranks: &[u32]) -> String {
    const SHOWN: usize = 16;
    let shown: Vec<String> = ranks.iter().take(SHOWN).map(u32::to_string).collect();
    let (noun, verb) = if ranks.len() == 1 { ("rank", "is") } else { ("ranks", "are") };
    match ranks.len() {
        0 => String::from("it is not known which ranks are"),
        many if many > SHOWN => format!("{noun} {} and {} more {verb}", shown.join(", "), many - SHOWN),
        _ => format!("{noun} {} {verb}", shown.join(", ")),
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What a network device says of a connection that it has given up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub struct LinkError {
    /// Device and port of this rank, as `mlx5_0:1`.
    pub device: String,
    /// What was asked of the device, or what it says of it.
    pub reason: String,
    /// The status of the failed request (`ibv_wc_status`); 0 when none has failed.
    pub status: i32,
    /// The vendor's own code for it.
    pub vendor_code: u32,
    /// After how long the device gives up a peer that does not answer, as its settings have it; `None`: never.
    pub gives_up_after: Option<std::time::Duration>,
    /// What the port has counted since the rank opened it, by the driver's names.
    pub counters: Vec<(String, u64)>,
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LinkError { device, reason, status, vendor_code, gives_up_after, counters } = self;
        write!(f, "RDMA over {device} failed: {reason}")?;
        if *status != 0 {
            write!(f, " (status {status}, vendor code {vendor_code:#x})")?;
        }
        match gives_up_after {
            Some(time) => {
                write!(f, "; it gives up a silent peer after {time:?} or more (verbs.timeout, verbs.retries)")?
            }
            None => write!(f, "; it waits for a silent peer for ever (verbs.timeout, verbs.retries)")?,
        }
        let mut separator = "; the port has counted ";
        for (name, count) in counters.iter().filter(|(_, count)| *count > 0) {
            write!(f, "{separator}{name} {count}")?;
            separator = ", ";
        }
        Ok(())
    }
}

/// An `io::Error` that can be cloned: its kind, number and text.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{text}")]
pub struct SystemError {
    /// The kind.
    pub kind: io::ErrorKind,
    /// The `errno`, if there is one.
    pub number: Option<i32>,
    text: String,
}

impl From<io::Error> for SystemError {
    fn from(error: io::Error) -> Self {
        SystemError { kind: error.kind(), number: error.raw_os_error(), text: error.to_string() }
    }
}

impl From<rustix::io::Errno> for SystemError {
    fn from(error: rustix::io::Errno) -> Self {
        io::Error::from(error).into()
    }
}

/// Names what was tried when a system call fails.
pub(crate) trait Context<T> {
    fn context(self, what: impl Into<String>) -> Result<T>;
}

impl<T, E: Into<SystemError>> Context<T> for std::result::Result<T, E> {
    fn context(self, what: impl Into<String>) -> Result<T> {
        self.map_err(|error| Error::System { what: what.into(), error: error.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_link_names_peer_device_codes_bound_and_what_was_counted() {
        let link = LinkError {
            device: "mlx5_0:1".into(),
            reason: "transport retry counter exceeded".into(),
            status: 12,
            vendor_code: 0x81,
            gives_up_after: Some(std::time::Duration::from_millis(537)),
            counters: vec![("local_ack_timeout_err".into(), 8), ("rnr_nak_retry_err".into(), 0)],
        };
        let error = Error::Link { peer: 3, host: "b".into(), error: link.into() };
        assert_eq!(
            error.to_string(),
            "rank 3 on host b is lost: RDMA over mlx5_0:1 failed: transport retry counter exceeded (status 12, vendor code 0x81); \
             it gives up a silent peer after 537ms or more (verbs.timeout, verbs.retries); the port has counted \
             local_ack_timeout_err 8"
        );
    }

    #[test]
    fn a_main_that_returns_an_error_prints_the_message() {
        let error = Error::NoSuchRank { operation: "send", rank: 9, last: 3 };
        assert_eq!(format!("{error:?}"), "rank 9 is not in this communicator, which has ranks 0 to 3 (in send)");
        let shown = format!("{:?}", Err::<(), _>(error.clone()));
        assert_eq!(shown, format!("Err({error})"));
    }
}
