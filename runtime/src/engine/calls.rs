//! What calls ask of the engine: to begin sends and receives, to look for messages, and to take or give up what they have
//! begun.

use super::{
    Engine, Received, Route,
    core::Found,
    operation::{Awaited, Buffers, EarlyBody, Envelope, Expected, Landing, NoBuffers, OperationId, Source},
    outbox::length_of,
    vector::AnyVec,
};
use crate::{
    error::{Error, Result},
    matching::Pattern,
    protocol::{Path, Tier},
    trace,
    transport::record::{Header, Kind},
};

impl Engine {
    /// A fresh name for a call that lends buffers.
    pub(crate) fn new_call(&mut self) -> u64 {
        self.calls += 1;
        self.calls
    }

    /// Sends at once if that takes no waiting and no bookkeeping.
    ///
    /// `hint`: the size hint of its communicator. `later`: it need not leave before the next progress.
    pub(crate) fn try_send(
        &mut self,
        peer: usize,
        mut header: Header,
        bytes: &[u8],
        hint: usize,
        later: bool,
    ) -> Result<bool> {
        if self.is_troubled() {
            self.check_open(header.context)?;
            self.check(peer, "a send to it")?;
        }
        let Route { transport, limits, .. } = &mut self.routes.routes[self.routes.to[peer]];
        let path = limits.path(bytes.len(), hint);
        let state = &mut self.core.peers[peer];
        if !path.is_eager() || !state.is_clear() || !state.flow.try_send(bytes.len()) {
            return Ok(false);
        }
        header.kind = Kind::Eager as u8;
        header.payload = length_of(bytes);
        self.unflushed |= later && limits.capabilities.gathers;
        let began = self.recorder.as_ref().map(|_| trace::now());
        let sent = transport.push(peer, &header, bytes, path.tier(), later)?;
        if sent {
            if let (Some(recorder), Some(began)) = (&self.recorder, began) {
                recorder.sent(began, peer, bytes.len(), path);
            }
            self.core.counters[peer].sent[path.index()].add(bytes.len());
            self.tell_sleeper(peer == self.core.rank);
        } else {
            self.core.peers[peer].flow.take_back(bytes.len());
        }
        Ok(sent)
    }

    pub(crate) fn start_send(
        &mut self,
        peer: usize,
        header: Header,
        hint: usize,
        source: Source,
    ) -> Result<OperationId> {
        self.check_open(header.context)?;
        self.check(peer, "a send to it")?;
        let total = usize::try_from(header.total).unwrap_or(usize::MAX);
        let path = match &source {
            Source::Heap(_) => Path::DirectRead,
            _ => self.limits(peer).path(total, hint),
        };
        self.core.counters[peer].sent[path.index()].add(total);
        Ok(self.core.start_send(peer, header, path, source))
    }

    /// A send that is over only when its receive is there.
    pub(crate) fn start_synchronous_send(
        &mut self,
        peer: usize,
        header: Header,
        source: Source,
    ) -> Result<OperationId> {
        self.check_open(header.context)?;
        self.check(peer, "a send to it")?;
        let total = usize::try_from(header.total).unwrap_or(usize::MAX);
        self.core.counters[peer].sent[Path::Pieces.index()].add(total);
        Ok(self.core.start_send(peer, header, Path::Pieces, source))
    }

    /// Sends a short message whole, whatever the configuration says, and lets nobody wait for it: the receiver need not
    /// want it.
    pub(crate) fn send_whole(&mut self, peer: usize, header: Header, bytes: AnyVec) -> Result<()> {
        self.check_open(header.context)?;
        self.check(peer, "a send to it")?;
        let path = Path::Eager(Tier::LowLatency);
        self.core.counters[peer].sent[path.index()].add(bytes.bytes().len());
        let id = self.core.start_send(peer, header, path, Source::Owned(bytes));
        self.core.abandon_send(id);
        Ok(())
    }

    pub(crate) fn start_receive(
        &mut self,
        context: u64,
        pattern: Pattern,
        expected: Expected,
        landing: Landing,
        buffers: &mut dyn Buffers,
    ) -> Result<OperationId> {
        if let Some(fatal) = &self.fatal {
            return Err(fatal.clone());
        }
        self.check_open(context)?;
        let id = self.core.start_receive(context, pattern, expected, landing, buffers);
        if let Some(source) = pattern.source
            && self.is_troubled()
            && let Err(error) = self.check(source, "a receive from it")
            && self.core.receives.get(id).is_some_and(|receive| receive.done.is_none() && receive.arriving.is_none())
        {
            self.core.abandon_receive(id, buffers);
            return Err(error);
        }
        self.doubtful_wildcards |= self.counted > 0 && pattern.source.is_none();
        Ok(id)
    }

    /// Receives a message that is there and whole, or lets the receive be awaited; `false` when it must be begun in the
    /// usual way: a message is there that has more to it, something is wrong, or a transport may bring the message that
    /// asks beforehand where messages go.
    pub(crate) fn receive_or_await(&mut self, awaited: &mut Awaited, room: &mut [u8]) -> bool {
        let asks = |route: &Route| route.limits.capabilities.slow_poll;
        let may_ask = match awaited.pattern.source {
            Some(source) => asks(&self.routes.routes[self.routes.to[source]]),
            None => self.routes.routes.iter().any(asks),
        };
        !may_ask && !self.is_troubled() && self.core.receive_or_await(awaited, room)
    }

    pub(crate) fn probe(&mut self, context: u64, pattern: Pattern) -> Result<Option<Envelope>> {
        self.check_open(context)?;
        if let Some(found) = self.core.matcher.peek(context, pattern) {
            return Ok(Some(Envelope { source: found.source, tag: found.tag, bytes: found.message.total }));
        }
        self.core.ask_for_more(pattern.source);
        match pattern.source {
            Some(source) => self.check(source, "a probe for it")?,
            None if self.counted > 0 => self.wildcard_error(context, "a probe for any rank").map_or(Ok(()), Err)?,
            None => {}
        }
        Ok(None)
    }

    /// Source and tag of the messages of a context that no receive has met, the oldest nearly first.
    pub(crate) fn early(&self, context: u64) -> impl Iterator<Item = (usize, u64)> {
        self.core.matcher.waiting_in(context)
    }

    /// As a probe, and takes the message for nobody else to receive.
    pub(crate) fn find(&mut self, context: u64, pattern: Pattern) -> Result<Option<Found>> {
        if self.probe(context, pattern)?.is_none() {
            return Ok(None);
        }
        Ok(self.core.find(context, pattern))
    }

    /// A message that was found is not received after all.
    pub(crate) fn put_back(&mut self, context: u64, found: Found) {
        self.core.put_back(context, found, &mut NoBuffers);
        self.tell_sleeper(true);
    }

    /// Begins a receive of a message that was found.
    pub(crate) fn receive_found(
        &mut self,
        context: u64,
        found: Found,
        expected: Expected,
        landing: Landing,
        buffers: &mut dyn Buffers,
    ) -> Result<OperationId> {
        if let Some(by) = self.core.revocations.by(context) {
            self.core.drop_found(found, Some(by));
            return Err(Error::Revoked { by });
        }
        match &self.fatal {
            Some(fatal) => return Err(fatal.clone()),
            // It will not come any more.
            None if matches!(found.message.body, EarlyBody::AtSender(..)) => {
                self.check(found.source, "a receive from it")?;
            }
            None => {}
        }
        Ok(self.core.receive_found(context, found, expected, landing, buffers))
    }

    /// Withdraws a receive that no message has met, and gives its buffer back.
    pub(crate) fn cancel_receive(&mut self, id: OperationId) -> Option<AnyVec> {
        if !self.core.withdraw(id) {
            return None;
        }
        match self.core.receives.remove(id)?.landing {
            Landing::Owned(buffer) | Landing::Growing(buffer) => Some(buffer),
            Landing::Lent(_) | Landing::Heap(_) | Landing::Nowhere => None,
        }
    }

    /// Whether a send is over, well or badly.
    pub(crate) fn is_send_done(&self, id: OperationId) -> bool {
        self.core.sends.get(&id).is_none_or(|send| send.done.is_some())
    }

    /// Whether a receive is over, well or badly.
    pub(crate) fn is_receive_done(&self, id: OperationId) -> bool {
        self.core.receives.get(id).is_none_or(|receive| receive.done.is_some())
    }

    /// The outcome of a send that is done, with the buffer if the send owned it.
    pub(crate) fn take_send(&mut self, id: OperationId) -> Option<Result<Option<AnyVec>>> {
        let result = self.core.sends.get_mut(&id)?.done.take()?;
        let send = self.core.sends.remove(&id)?;
        Some(result.map(|()| match send.source {
            Source::Owned(buffer) => Some(buffer),
            Source::Lent(_) | Source::Heap(_) => None,
        }))
    }

    /// The outcome of a receive that is done, with the buffer if the receive owned it.
    pub(crate) fn take_receive(&mut self, id: OperationId, buffers: &mut dyn Buffers) -> Option<Result<Received>> {
        let receive = self.core.receives.get_mut(id)?;
        receive.settle(buffers);
        let result = receive.done.take()?;
        let landing = std::mem::take(&mut receive.landing);
        self.core.receives.free(id);
        Some(match result {
            Ok(envelope) => Ok(match landing {
                Landing::Owned(buffer) | Landing::Growing(buffer) => (envelope, Some(buffer)),
                Landing::Lent(_) | Landing::Heap(_) | Landing::Nowhere => (envelope, None),
            }),
            Err(error) => Err(*error),
        })
    }

    pub(crate) fn abandon_send(&mut self, id: OperationId) {
        self.withdraw(id);
        self.core.abandon_send(id);
    }

    pub(crate) fn abandon_receive(&mut self, id: OperationId) {
        self.core.abandon_receive(id, &mut NoBuffers);
    }
}
