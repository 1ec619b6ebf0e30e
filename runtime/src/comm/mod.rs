//! Communicators: groups of ranks that talk to each other without mixing with other groups.
//!
//! Ranks here are those of the communicator; everything below knows ranks of the world only.

mod agreement;
mod attributes;
mod buffer;
pub(crate) mod choices;
mod collective;
mod completion;
mod heap;
mod hint;
mod persistent;
mod point_to_point;
mod probe;
mod request;
mod revoke;
mod shrink;
mod split;

pub use collective::{Call, CollectiveRequest, Machine, Port, Room, State, Together};
pub use completion::Request;
pub use persistent::{PersistentRecv, PersistentSend, StartedRecv, StartedSend};
pub use probe::Message;
pub use request::{Cancelled, RecvRequest, SendRequest};

use crate::{
    bootstrap::{
        messages::Host,
        node::{Devices, SeenDevice},
    },
    config::Snapshot,
    element::Element,
    engine::{Runtime, operation::Expected},
    error::{Error, Result},
    matching::Pattern,
    memory::Segment,
    transport::record::{Header, Kind},
};
use attributes::Attributes;
use collective::Calls;
use hint::Hint;
pub(crate) use hint::Requested;
use std::{
    any::Any as AnyType,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

/// What all communicators of a rank share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) runtime: Runtime,
    pub(crate) snapshot: Snapshot,
    pub(crate) hosts: Vec<Host>,
    /// For every rank of the world its host.
    pub(crate) host_of: Vec<u32>,
    pub(crate) devices: Devices,
    /// The ranks that share memory with this one; none where there is nobody or that is not allowed.
    pub(crate) near: Option<Near>,
    /// What libraries say of their choices, where that is asked for as JSON.
    pub(crate) choices: OnceLock<choices::Choices>,
}

/// Who shares memory with this rank.
#[derive(Debug)]
pub(crate) struct Near {
    pub(crate) segment: Arc<Segment>,
    /// By place in the segment the rank in the world, in order.
    pub(crate) ranks: Vec<usize>,
}

impl Near {
    /// The place of a rank of the world in the segment, if it has one.
    pub(crate) fn place(&self, rank: usize) -> Option<usize> {
        self.ranks.binary_search(&rank).ok()
    }
}

/// Any source or any tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Any;

/// From whom to receive: a rank, or [`Any`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Any rank of the communicator.
    Any,
    /// This rank.
    Rank(usize),
}

impl From<usize> for Source {
    fn from(rank: usize) -> Self {
        Source::Rank(rank)
    }
}

impl From<Any> for Source {
    fn from(_: Any) -> Self {
        Source::Any
    }
}

/// Which tag to receive: a number, or [`Any`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tag {
    /// Any tag.
    Any,
    /// This one.
    Exactly(i32),
}

impl From<i32> for Tag {
    fn from(tag: i32) -> Self {
        Tag::Exactly(tag)
    }
}

impl From<Any> for Tag {
    fn from(_: Any) -> Self {
        Tag::Any
    }
}

/// A message that was received or found by a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// The sender's rank in the communicator.
    pub source: usize,
    /// The tag.
    pub tag: i32,
    /// The length in bytes. Elements of size zero count as one byte each.
    pub bytes: usize,
}

impl Status {
    /// The length in elements of type `T`.
    #[must_use]
    pub fn elements<T: Element>(&self) -> usize {
        self.bytes / buffer::width::<T>()
    }
}

/// A group of ranks with an own message space. Cheap to clone; clones are the same communicator.
#[derive(Clone, Debug)]
pub struct Communicator {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    shared: Arc<Shared>,
    /// For every rank of the communicator its rank in the world.
    members: Arc<[usize]>,
    /// This rank's place in `members`.
    rank: usize,
    /// Even; the context of point-to-point messages. The next number is that of collectives.
    context: u64,
    /// Communicators made from this one, so that all members name the next one alike.
    children: AtomicU64,
    calls: Arc<Calls>,
    /// Symmetric heaps made, so that all members name the next one alike.
    heaps: AtomicU64,
    /// Times it was shrunk.
    shrinks: AtomicU64,
    /// Its size hint, and what its children get.
    hint: Hint,
    attributes: Attributes,
}

impl Drop for Inner {
    fn drop(&mut self) {
        let mut engine = self.shared.runtime.lock();
        self.calls.last_look(&mut engine);
        engine.remove_group(self.context);
    }
}

impl Communicator {
    pub(crate) fn world(shared: Arc<Shared>, rank: usize, hint: Requested) -> Self {
        let members = (0..shared.host_of.len()).collect();
        Communicator::new(shared, members, rank, 2, hint)
    }

    fn new(shared: Arc<Shared>, members: Vec<usize>, rank: usize, context: u64, hint: Requested) -> Self {
        let members: Arc<[usize]> = members.into();
        shared.runtime.lock().add_group(context, members.clone());
        let calls = Arc::new(Calls::new(context, members.clone(), rank, &shared.snapshot));
        let (children, heaps, shrinks) = (0.into(), 0.into(), 0.into());
        let (hint, attributes) = (Hint::new(hint), Attributes::default());
        let inner = Inner { shared, members, rank, context, children, calls, heaps, shrinks, hint, attributes };
        Communicator { inner: Arc::new(inner) }
    }

    /// This process's rank, `0..size()`.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.inner.rank
    }

    /// The number of ranks.
    #[must_use]
    pub fn size(&self) -> usize {
        self.inner.members.len()
    }

    /// The rank in the world of a rank of this communicator.
    ///
    /// # Panics
    /// When `rank` is not below [`Communicator::size`].
    #[must_use]
    pub fn world_rank(&self, rank: usize) -> usize {
        self.inner.members[rank]
    }

    /// All hosts of the job.
    #[must_use]
    pub fn hosts(&self) -> &[Host] {
        &self.inner.shared.hosts
    }

    /// The host of a rank, as an index into [`Communicator::hosts`].
    ///
    /// # Panics
    /// When `rank` is not below [`Communicator::size`].
    #[must_use]
    pub fn host_of(&self, rank: usize) -> usize {
        self.inner.shared.host_of[self.inner.members[rank]] as usize
    }

    /// The network device of a rank, where the launcher has chosen one: every rank knows those of all.
    ///
    /// # Panics
    /// When `rank` is not below [`Communicator::size`].
    #[must_use]
    pub fn device_of(&self, rank: usize) -> Option<&SeenDevice> {
        self.inner.shared.devices.get(self.inner.members[rank])
    }

    /// The configuration of the job, the same on every rank.
    #[must_use]
    pub fn snapshot(&self) -> &Snapshot {
        &self.inner.shared.snapshot
    }

    /// What a library keeps with a communicator, by its type: made by `make` when it is asked for first, the same for
    /// all clones, dropped with the last one (the attributes of MPI 4.1, section 7.7). It is local to this rank.
    pub fn attribute<T: AnyType + Send + Sync>(&self, make: impl FnOnce() -> T) -> &T {
        self.inner.attributes.get_or_make(make)
    }

    /// A pattern as the launcher's report shows it: from whom, with which tag.
    fn shown(pattern: Pattern) -> (Option<u32>, Option<u32>) {
        (pattern.source.map(narrow_rank), pattern.tag.and_then(|tag| u32::try_from(tag).ok()))
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        &self.inner.shared.runtime
    }

    pub(crate) fn context(&self) -> u64 {
        self.inner.context
    }

    pub(crate) fn near(&self) -> Option<&Near> {
        self.inner.shared.near.as_ref()
    }

    /// The number of the next symmetric heap.
    pub(crate) fn next_heap(&self) -> u64 {
        self.inner.heaps.fetch_add(1, Ordering::Relaxed)
    }

    /// The rank in the world of a rank of this communicator, if it exists.
    fn peer(&self, rank: usize, operation: &'static str) -> Result<usize> {
        let last = self.size() - 1;
        self.inner.members.get(rank).copied().ok_or_else(|| Error::NoSuchRank { operation, rank, last })
    }

    #[inline]
    fn pattern(&self, source: Source, tag: Tag, operation: &'static str) -> Result<Pattern> {
        Ok(Pattern {
            source: match source {
                Source::Any => None,
                Source::Rank(rank) => Some(self.peer(rank, operation)?),
            },
            tag: match tag {
                Tag::Any => None,
                Tag::Exactly(tag) => Some(check_tag(tag, operation)?),
            },
        })
    }

    fn header<T: Element>(&self, elements: usize, tag: u64) -> Header {
        Header {
            context: self.inner.context,
            tag,
            total: (elements * buffer::width::<T>()) as u64,
            signature: T::signature().0,
            ..Header::new(Kind::Eager)
        }
    }

    #[inline]
    fn status(&self, envelope: &crate::engine::operation::Envelope) -> Status {
        // Members are in rank order of the parent, not sorted: searched, which for the world's communicator is direct.
        let source = match self.inner.members.get(envelope.source) {
            Some(member) if *member == envelope.source => envelope.source,
            _ => self.find_member(envelope.source),
        };
        let tag = i32::try_from(envelope.tag).unwrap_or(i32::MAX);
        Status { source, tag, bytes: envelope.bytes }
    }

    fn find_member(&self, peer: usize) -> usize {
        self.inner.members.iter().position(|member| *member == peer).unwrap_or(usize::MAX)
    }
}

/// The launcher numbers ranks in 32 bits.
fn narrow_rank(rank: usize) -> u32 {
    u32::try_from(rank).unwrap_or(u32::MAX)
}

fn check_tag(tag: i32, operation: &'static str) -> Result<u64> {
    u64::try_from(tag).map_err(|_| Error::BadTag { operation, tag })
}

fn expected<T: Element>(room: usize, exact: bool) -> Expected {
    Expected { signature: T::signature(), element: Some(std::any::type_name::<T>()), room, exact }
}
