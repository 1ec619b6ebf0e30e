//! Communicators: groups of ranks that talk to each other without mixing with other groups.
//!
//! Ranks here are those of the communicator; everything below knows ranks of the world only.

mod agreement;
mod buffer;
mod exchange;
mod heap;
mod hint;
mod request;
mod shrink;
mod split;

pub use exchange::{Buffers, Exchange};
pub use request::{RecvRequest, SendRequest};

use crate::{
    bootstrap::messages::Host,
    config::Snapshot,
    element::{self, Element},
    engine::{
        Runtime,
        operation::{Expected, Landing, Lent, Source as From_},
    },
    error::{Error, Result},
    matching::Pattern,
    memory::{Activity, Operation, Segment},
    transport::record::{Header, Kind},
};
use buffer::{Growing, LentPair};
use hint::Hint;
pub(crate) use hint::Requested;
use rustc_hash::FxHashMap;
use std::{
    any::{Any as AnyType, TypeId},
    sync::{
        Arc, PoisonError, RwLock,
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
    /// The ranks that share memory with this one; none where there is nobody or that is not allowed.
    pub(crate) near: Option<Near>,
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
    /// The length in bytes.
    pub bytes: usize,
}

impl Status {
    /// The length in elements of type `T`.
    #[must_use]
    pub fn elements<T: Element>(&self) -> usize {
        self.bytes.checked_div(size_of::<T>()).unwrap_or(0)
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
    /// Collective operations begun.
    exchanges: AtomicU64,
    /// Symmetric heaps made, so that all members name the next one alike.
    heaps: AtomicU64,
    /// Times it was shrunk.
    shrinks: AtomicU64,
    /// Its size hint, and what its children get.
    hint: Hint,
    attributes: RwLock<FxHashMap<TypeId, Arc<dyn AnyType + Send + Sync>>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shared.runtime.lock().remove_group(self.context);
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
        let (children, exchanges, heaps, shrinks) = (0.into(), 0.into(), 0.into(), 0.into());
        let (hint, attributes) = (Hint::new(hint), RwLock::default());
        let inner = Inner { shared, members, rank, context, children, exchanges, heaps, shrinks, hint, attributes };
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

    /// The configuration of the job, the same on every rank.
    #[must_use]
    pub fn snapshot(&self) -> &Snapshot {
        &self.inner.shared.snapshot
    }

    /// Sends a slice to `dest`. Returns when `data` may be changed: a small message may still be under way then, a large
    /// one has been received (see the key `eager.limit`).
    ///
    /// # Errors
    /// When `dest` or `tag` (0 or more) does not exist, when `dest` is lost or has dropped its world.
    pub fn send<T: Element>(&self, data: &[T], dest: usize, tag: i32) -> Result<()> {
        let peer = self.peer(dest, "send")?;
        let header = self.header::<T>(data.len(), check_tag(tag, "send")?);
        let bytes = element::as_bytes(data);
        let runtime = self.runtime();
        let mut engine = runtime.lock();
        if engine.try_send(peer, header, bytes, self.inner.hint.of_message(), false)? {
            return Ok(());
        }
        let call = engine.new_call();
        let id =
            engine.start_send(peer, header, self.inner.hint.of_message(), From_::Lent(Lent { call, number: 0 }))?;
        drop(engine);
        let mut lent = LentPair { call, source: bytes, destination: &mut [] };
        let to = Activity::Send { to: narrow_rank(peer), tag: tag.unsigned_abs() };
        let sent = runtime.wait(to, &mut lent, |engine, _| engine.take_send(id).map(|result| result.map(drop)));
        if sent.is_err() {
            runtime.lock().abandon_send(id);
        }
        sent
    }

    /// Receives a message into the front of `buffer`. `source` is a rank or [`Any`], `tag` a number or [`Any`].
    ///
    /// # Errors
    /// [`Error::Truncated`] when the message is longer than `buffer`, [`Error::TypeMismatch`] when it was sent as another
    /// type (in both cases the message is gone and the next one is intact); when the source does not exist, is lost, or
    /// has dropped its world.
    pub fn recv<T: Element>(&self, buffer: &mut [T], source: impl Into<Source>, tag: impl Into<Tag>) -> Result<Status> {
        let pattern = self.pattern(source.into(), tag.into(), "recv")?;
        let mut lent = LentPair { call: 0, source: &[], destination: element::as_bytes_mut(buffer) };
        let expected = expected::<T>(lent.destination.len(), false);
        let runtime = self.runtime();
        let mut engine = runtime.lock();
        lent.call = engine.new_call();
        let landing = Landing::Lent(Lent { call: lent.call, number: 0 });
        let id = engine.start_receive(self.inner.context, pattern, expected, landing, &mut lent)?;
        drop(engine);
        let (from, tag) = Self::shown(pattern);
        let activity = Activity::Receive { from, tag };
        let received = runtime.wait(activity, &mut lent, |engine, lent| engine.take_receive(id, lent));
        match received {
            Ok((envelope, _)) => Ok(self.status(&envelope)),
            Err(error) => {
                runtime.lock().abandon_receive(id);
                Err(error)
            }
        }
    }

    /// Receives a message of any length.
    ///
    /// # Errors
    /// As for [`Communicator::recv`].
    pub fn recv_vec<T: Element>(&self, source: impl Into<Source>, tag: impl Into<Tag>) -> Result<(Vec<T>, Status)> {
        let pattern = self.pattern(source.into(), tag.into(), "recv_vec")?;
        self.start_receive(Growing::<T>::default(), pattern, true)?.wait()
    }

    /// Sends one message and receives another, in any order: exchanges between neighbours cannot deadlock.
    ///
    /// # Errors
    /// As for [`Communicator::send`] and [`Communicator::recv`].
    pub fn send_receive<T: Element, U: Element>(
        &self,
        data: &[T],
        dest: usize,
        send_tag: i32,
        buffer: &mut [U],
        source: impl Into<Source>,
        recv_tag: impl Into<Tag>,
    ) -> Result<Status> {
        let peer = self.peer(dest, "send_receive")?;
        let header = self.header::<T>(data.len(), check_tag(send_tag, "send_receive")?);
        let pattern = self.pattern(source.into(), recv_tag.into(), "send_receive")?;
        let runtime = self.runtime();
        let mut lent =
            LentPair { call: 0, source: element::as_bytes(data), destination: element::as_bytes_mut(buffer) };
        let expected = expected::<U>(lent.destination.len(), false);
        let mut engine = runtime.lock();
        lent.call = engine.new_call();
        let name = Lent { call: lent.call, number: 0 };
        let receive = engine.start_receive(self.inner.context, pattern, expected, Landing::Lent(name), &mut lent)?;
        let send = match engine.try_send(peer, header, lent.source, self.inner.hint.of_message(), false) {
            Ok(true) => Ok(None),
            Ok(false) => engine.start_send(peer, header, self.inner.hint.of_message(), From_::Lent(name)).map(Some),
            Err(error) => Err(error),
        };
        drop(engine);
        let send = send.inspect_err(|_| runtime.lock().abandon_receive(receive))?;
        let sent = match send {
            None => Ok(()),
            Some(id) => {
                let to = Activity::Send { to: narrow_rank(peer), tag: send_tag.unsigned_abs() };
                runtime.wait(to, &mut lent, |engine, _| engine.take_send(id).map(|result| result.map(drop)))
            }
        };
        let (from, tag) = Self::shown(pattern);
        let activity = Activity::Receive { from, tag };
        let received =
            sent.and_then(|()| runtime.wait(activity, &mut lent, |engine, lent| engine.take_receive(receive, lent)));
        match received {
            Ok((envelope, _)) => Ok(self.status(&envelope)),
            Err(error) => {
                let mut engine = runtime.lock();
                engine.abandon_receive(receive);
                if let Some(send) = send {
                    engine.abandon_send(send);
                }
                Err(error)
            }
        }
    }

    /// Begins to send; the buffer comes back from [`SendRequest::wait`].
    ///
    /// Large messages make progress in every call of this rank, not only in `wait`. A request that is dropped still
    /// sends.
    ///
    /// # Errors
    /// As for [`Communicator::send`].
    pub fn isend<T: Element>(&self, data: Vec<T>, dest: usize, tag: i32) -> Result<SendRequest<T>> {
        let peer = self.peer(dest, "isend")?;
        let header = self.header::<T>(data.len(), check_tag(tag, "isend")?);
        self.start_send(data, peer, header)
    }

    /// Begins to receive at most `buffer.len()` elements; buffer and status come from [`RecvRequest::wait`].
    ///
    /// A request that is dropped no longer receives: its message waits for another receive.
    ///
    /// # Errors
    /// As for [`Communicator::recv`].
    pub fn irecv<T: Element>(
        &self,
        buffer: Vec<T>,
        source: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<RecvRequest<T>> {
        let pattern = self.pattern(source.into(), tag.into(), "irecv")?;
        self.start_receive(Growing(buffer), pattern, false)
    }

    /// Waits until a message is there that a receive with these arguments would take, and leaves it there.
    ///
    /// # Errors
    /// As for [`Communicator::recv`].
    pub fn probe(&self, source: impl Into<Source>, tag: impl Into<Tag>) -> Result<Status> {
        let pattern = self.pattern(source.into(), tag.into(), "probe")?;
        let context = self.inner.context;
        let (from, tag) = Self::shown(pattern);
        let activity = Activity::Probe { from, tag };
        self.runtime().poke()?;
        self.runtime()
            .wait(activity, &mut crate::engine::operation::NoBuffers, |engine, _| {
                engine.probe(context, pattern).transpose()
            })
            .map(|envelope| self.status(&envelope))
    }

    /// As [`Communicator::probe`], without waiting.
    ///
    /// # Errors
    /// As for [`Communicator::recv`].
    pub fn iprobe(&self, source: impl Into<Source>, tag: impl Into<Tag>) -> Result<Option<Status>> {
        let pattern = self.pattern(source.into(), tag.into(), "iprobe")?;
        self.runtime().poke()?;
        let found = self.runtime().lock().probe(self.inner.context, pattern)?;
        Ok(found.map(|envelope| self.status(&envelope)))
    }

    /// What a library keeps with a communicator, by its type: made by `make` when it is asked for first, the same for
    /// all clones, dropped with the last one (the attributes of MPI 4.1, section 7.7). It is local to this rank.
    pub fn attribute<T: AnyType + Send + Sync>(&self, make: impl FnOnce() -> T) -> Arc<T> {
        let key = TypeId::of::<T>();
        let kept = self.inner.attributes.read().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        let kept = kept.unwrap_or_else(|| {
            // Made outside the lock: `make` may use the communicator. Of two that are made at once the first stays.
            let made = Arc::new(make());
            let mut attributes = self.inner.attributes.write().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(attributes.entry(key).or_insert(made))
        });
        kept.downcast().unwrap_or_else(|_| unreachable!("attributes are kept by their own type"))
    }

    /// Begins a collective operation: several sends and receives at once out of borrowed buffers. Every rank of the
    /// communicator must begin its exchanges in the same order.
    #[must_use]
    pub fn exchange(&self) -> Exchange<'_> {
        self.exchange_of(Operation::Exchange)
    }

    /// As [`Communicator::exchange`]; `operation` is what the launcher's report calls it.
    #[must_use]
    pub fn exchange_of(&self, operation: Operation) -> Exchange<'_> {
        self.begin(operation, self.inner.hint.of_message())
    }

    fn begin(&self, operation: Operation, hint: usize) -> Exchange<'_> {
        let number = self.inner.exchanges.fetch_add(1, Ordering::Relaxed);
        Exchange::new(self, operation, number, hint)
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
        self.inner.members.get(rank).copied().ok_or(Error::NoSuchRank { operation, rank, last })
    }

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
            total: (elements * size_of::<T>()) as u64,
            signature: T::signature().0,
            ..Header::new(Kind::Eager)
        }
    }

    fn status(&self, envelope: &crate::engine::operation::Envelope) -> Status {
        // Members are in rank order of the parent, not sorted: searched, which for the world's communicator is direct.
        let source = match self.inner.members.get(envelope.source) {
            Some(member) if *member == envelope.source => envelope.source,
            _ => self.inner.members.iter().position(|member| *member == envelope.source).unwrap_or(usize::MAX),
        };
        let tag = i32::try_from(envelope.tag).unwrap_or(i32::MAX);
        Status { source, tag, bytes: envelope.bytes }
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
