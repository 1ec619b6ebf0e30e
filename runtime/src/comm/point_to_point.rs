//! Blocking sends and receives out of the caller's own slices, and the beginnings of non-blocking ones.

use super::{
    Communicator, RecvRequest, SendRequest, Source, Status, Tag,
    buffer::{LentPair, lend, lend_mut},
    check_tag, expected, narrow_rank,
};
use crate::{
    element::Element,
    engine::{
        Engine,
        operation::{Awaited, Expected, Landing, Lent, OperationId, Source as From_},
        vector::AnyVec,
    },
    error::Result,
    memory::Activity,
};

impl Communicator {
    /// Sends a slice to `dest`. Returns when `data` may be changed: a small message may still be under way then, a large
    /// one has been received (see the key `eager.limit`). When the receiver has too many messages waiting already (see
    /// `eager.window`), a small one is treated as a large one. A message to this rank itself never waits: it is copied and
    /// kept until it is received.
    ///
    /// # Errors
    /// When `dest` or `tag` (0 or more) does not exist, when `dest` is lost or has dropped its world.
    pub fn send<T: Element>(&self, data: &[T], dest: usize, tag: i32) -> Result<()> {
        let peer = self.peer(dest, "send")?;
        let header = self.header::<T>(data.len(), check_tag(tag, "send")?);
        let bytes = lend(data);
        let mut engine = self.runtime().lock();
        if engine.try_send(peer, header, &bytes, self.inner.hint.of_message(), false)? {
            return Ok(());
        }
        if dest == self.rank() {
            let copy = From_::Owned(AnyVec::new(data.to_vec()));
            let id = engine.start_send(peer, header, self.inner.hint.of_message(), copy)?;
            engine.abandon_send(id);
            return Ok(());
        }
        let call = engine.new_call();
        let id =
            engine.start_send(peer, header, self.inner.hint.of_message(), From_::Lent(Lent { call, number: 0 }))?;
        drop(engine);
        self.finish_send(id, peer, tag, &mut LentPair { call, source: &bytes, destination: &mut [], awaited: None })
    }

    /// Sends a slice to `dest` and returns when a receive has taken the message (a synchronous send). To this rank itself
    /// that takes another thread, or a receive that was begun before.
    ///
    /// # Errors
    /// As for [`Communicator::send`].
    pub fn ssend<T: Element>(&self, data: &[T], dest: usize, tag: i32) -> Result<()> {
        let peer = self.peer(dest, "ssend")?;
        let header = self.header::<T>(data.len(), check_tag(tag, "ssend")?);
        let bytes = lend(data);
        let mut engine = self.runtime().lock();
        let call = engine.new_call();
        let id = engine.start_synchronous_send(peer, header, From_::Lent(Lent { call, number: 0 }))?;
        drop(engine);
        self.finish_send(id, peer, tag, &mut LentPair { call, source: &bytes, destination: &mut [], awaited: None })
    }

    fn finish_send(&self, id: OperationId, peer: usize, tag: i32, lent: &mut LentPair<'_>) -> Result<()> {
        let to = Activity::Send { to: narrow_rank(peer), tag: tag.unsigned_abs() };
        let runtime = self.runtime();
        let sent = runtime.wait(to, lent, |engine, _| engine.take_send(id).map(|result| result.map(drop)));
        if sent.is_err() {
            runtime.lock().abandon_send(id);
        }
        sent
    }

    /// Receives a message into the front of `buffer`. `source` is a rank or [`Any`](super::Any), `tag` a number or `Any`.
    ///
    /// # Errors
    /// [`Error::Truncated`](crate::Error::Truncated) when the message is longer than `buffer`,
    /// [`Error::TypeMismatch`](crate::Error::TypeMismatch) when it was sent as another type (in both cases the message is
    /// gone and the next one is intact); when the source does not exist, is lost, or has dropped its world. With any
    /// source: when every other rank of the communicator has dropped its world
    /// ([`Error::NobodyLeft`](crate::Error::NobodyLeft)), and once for each of its ranks that is lost.
    pub fn recv<T: Element>(&self, buffer: &mut [T], source: impl Into<Source>, tag: impl Into<Tag>) -> Result<Status> {
        let pattern = self.pattern(source.into(), tag.into(), "recv")?;
        let (from, tag) = Self::shown(pattern);
        let (context, mut marks) = (self.inner.context, Vec::new());
        let destination = lend_mut(buffer, &mut marks);
        let expected = expected::<T>(destination.len(), false);
        let awaited = Some(Awaited { context, pattern, expected, done: None });
        let mut lent = LentPair { call: 0, source: &[], destination, awaited };
        let runtime = self.runtime();
        // First it waits without being in any table, which is all that a small message needs. Whatever else happens, it is
        // begun like any other receive, and the rest is as usual.
        let (mut is_new, mut begun) = (true, None);
        let received = runtime.wait(Activity::Receive { from, tag }, &mut lent, |engine, lent| {
            if let Some(awaited) = &mut lent.awaited {
                let may_wait = std::mem::take(&mut is_new) && engine.receive_or_await(awaited, lent.destination);
                if let Some(done) = awaited.done.take() {
                    return Some(done);
                }
                if may_wait {
                    return None;
                }
                lent.awaited = None;
                lent.call = engine.new_call();
                let landing = Landing::Lent(Lent { call: lent.call, number: 0 });
                match engine.start_receive(context, pattern, expected, landing, lent) {
                    Ok(id) => begun = Some(id),
                    Err(error) => return Some(Err(error)),
                }
            }
            let received = engine.take_receive(begun?, lent)?;
            Some(received.map(|(envelope, _)| envelope))
        });
        match received {
            Ok(envelope) => Ok(self.status(&envelope)),
            Err(error) => {
                if let Some(id) = begun {
                    runtime.lock().abandon_receive(id);
                }
                Err(error)
            }
        }
    }

    /// A receive into a borrowed slice that `start` begins.
    pub(super) fn receive_into<T: Element>(
        &self,
        buffer: &mut [T],
        activity: Activity,
        start: impl FnOnce(&mut Engine, Expected, Landing, &mut LentPair<'_>) -> Result<OperationId>,
    ) -> Result<Status> {
        let mut marks = Vec::new();
        let mut lent = LentPair { call: 0, source: &[], destination: lend_mut(buffer, &mut marks), awaited: None };
        let expected = expected::<T>(lent.destination.len(), false);
        let runtime = self.runtime();
        let mut engine = runtime.lock();
        lent.call = engine.new_call();
        let landing = Landing::Lent(Lent { call: lent.call, number: 0 });
        let id = start(&mut engine, expected, landing, &mut lent)?;
        drop(engine);
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
        self.start_receive(Vec::<T>::new(), pattern, true)?.wait()
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
        let (bytes, mut marks) = (lend(data), Vec::new());
        let mut lent = LentPair { call: 0, source: &bytes, destination: lend_mut(buffer, &mut marks), awaited: None };
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

    /// As [`Communicator::isend`], but the request completes only when a receive has taken the message.
    ///
    /// # Errors
    /// As for [`Communicator::send`].
    pub fn issend<T: Element>(&self, data: Vec<T>, dest: usize, tag: i32) -> Result<SendRequest<T>> {
        let peer = self.peer(dest, "issend")?;
        let header = self.header::<T>(data.len(), check_tag(tag, "issend")?);
        self.start_synchronous_send(data, peer, header)
    }

    /// Begins to receive at most `buffer.len()` elements; buffer and status come from [`RecvRequest::wait`].
    ///
    /// A request that is dropped gives its message to the next receive, at its old place, whether it is still to come, is
    /// arriving, or has arrived, unless it did not fit ([`RecvRequest`]).
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
        self.start_receive(buffer, pattern, false)
    }
}
