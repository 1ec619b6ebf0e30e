//! The receiving half of the protocol: messages meet receives, and bytes land where they belong.

use super::{Core, Draining};
use crate::{
    element::{self, Signature},
    engine::{
        coverage::Coverage,
        direct::{Fetch, Offer},
        operation::{
            Arriving, Awaited, Buffers, Early, EarlyBody, Envelope, Expected, Landing, OperationId, Orphan, Receiving,
        },
    },
    error::{Error, Result},
    matching::{Pattern, Place, PutBack, Unexpected},
    transport::record::{Header, Kind, Payload},
};

/// A message that came before its receive, as it is taken from those that wait.
pub(crate) type Found = Unexpected<Early>;

/// A message that meets a receive.
#[derive(Clone, Copy)]
pub(super) struct Arrival {
    pub(super) envelope: Envelope,
    pub(super) signature: Signature,
    pub(super) place: Place,
}

impl Core {
    /// Begins a receive: takes a message that is there, or waits for one.
    pub(crate) fn start_receive(
        &mut self,
        context: u64,
        pattern: Pattern,
        expected: Expected,
        landing: Landing,
        buffers: &mut dyn Buffers,
    ) -> OperationId {
        let id = self.new_receive(context, expected, landing);
        match self.matcher.take(context, pattern) {
            Some(found) => self.meet(id, found, buffers),
            None => {
                let ticket = self.matcher.post(context, pattern, id);
                if let Some(receive) = self.receives.get_mut(id) {
                    receive.posted = Some(ticket);
                }
                self.ask_for_more(pattern.source);
            }
        }
        id
    }

    /// Receives a message that is there and whole into a lent room; `false` when one is there that is not whole. When none
    /// is there, the receive may be awaited.
    pub(crate) fn receive_or_await(&mut self, awaited: &mut Awaited, room: &mut [u8]) -> bool {
        let (context, pattern) = (awaited.context, awaited.pattern);
        match self.matcher.peek(context, pattern).map(|waiting| &waiting.message.body) {
            None => self.ask_for_more(pattern.source),
            Some(EarlyBody::Here(_)) => {
                if let Some(Found {
                    source, tag, message: Early { signature, body: EarlyBody::Here(bytes), .. }, ..
                }) = self.matcher.take(context, pattern)
                {
                    let envelope = Envelope { source, tag, bytes: bytes.len() };
                    let accepted = admit(self.rank, &awaited.expected, envelope, signature);
                    if accepted.is_ok() {
                        room[..bytes.len()].copy_from_slice(&bytes);
                    }
                    awaited.done = Some(accepted.map(|()| envelope));
                    self.peers[source].flow.waits_no_longer(bytes.len());
                    self.matched(source, bytes.len());
                    self.news += 1;
                }
            }
            Some(_) => return false,
        }
        true
    }

    /// A whole message goes to the receive that the calling thread waits for, if it is that one's; `true` then.
    pub(super) fn take_awaited(
        &mut self,
        envelope: Envelope,
        (context, signature): (u64, Signature),
        payload: &mut dyn Payload,
        buffers: &mut dyn Buffers,
    ) -> bool {
        let Some((awaited, room)) = buffers.awaited() else { return false };
        let Envelope { source, tag, bytes } = envelope;
        if awaited.done.is_some()
            || awaited.context != context
            || !awaited.pattern.admits(source, tag)
            || !self.matcher.is_next(context, awaited.pattern, (source, tag))
        {
            return false;
        }
        let accepted = admit(self.rank, &awaited.expected, envelope, signature);
        if accepted.is_ok() {
            payload.copy_to(&mut room[..bytes]);
        }
        awaited.done = Some(accepted.map(|()| envelope));
        self.news += 1;
        true
    }

    /// Begins a receive of a message that was found before.
    pub(crate) fn receive_found(
        &mut self,
        context: u64,
        found: Found,
        expected: Expected,
        landing: Landing,
        buffers: &mut dyn Buffers,
    ) -> OperationId {
        let id = self.new_receive(context, expected, landing);
        self.meet(id, found, buffers);
        id
    }

    fn new_receive(&mut self, context: u64, expected: Expected, landing: Landing) -> OperationId {
        let (id, receive) = self.receives.insert();
        receive.begin(context, expected, landing);
        id
    }

    /// Takes the oldest message that a pattern admits out of those that wait, for nobody else to receive.
    pub(crate) fn find(&mut self, context: u64, pattern: Pattern) -> Option<Found> {
        let found = self.matcher.take(context, pattern)?;
        if let EarlyBody::Arriving(orphan) = found.message.body
            && let Some(receive) = self.receives.get_mut(orphan)
        {
            receive.orphan = Some(Orphan::Found);
        }
        Some(found)
    }

    /// A message that was found is not received after all: it waits again at its place, or meets a receive that waits.
    pub(crate) fn put_back(&mut self, context: u64, mut found: Found, buffers: &mut dyn Buffers) {
        if let Some(by) = self.revocations.by(context) {
            return self.drop_found(found, Some(by));
        }
        let orphan = match found.message.body {
            EarlyBody::Arriving(orphan) => Some(orphan),
            _ => None,
        };
        if let Some(orphan) = orphan
            && let Some(done) = self.receives.get(orphan).map(|receive| receive.done.is_some())
            && done
            && let Some(receive) = self.receives.remove(orphan)
        {
            match receive.done {
                Some(Ok(_)) => found.message.body = EarlyBody::Whole(receive.landed(found.message.total)),
                // Its sender is lost, or gave it up.
                _ => return,
            }
        }
        self.news += 1;
        match self.matcher.put_back(context, found) {
            PutBack::Matched(id, found) => self.meet(id, found, buffers),
            PutBack::Waits(ticket) => {
                if let Some(receive) = orphan.and_then(|orphan| self.receives.get_mut(orphan)) {
                    receive.orphan = Some(Orphan::Waits(ticket));
                }
            }
        }
    }

    /// A message that came before its receive meets it.
    fn meet(&mut self, id: OperationId, found: Found, buffers: &mut dyn Buffers) {
        let Found { source, tag, place, message } = found;
        let envelope = Envelope { source, tag, bytes: message.total };
        let arrival = Arrival { envelope, signature: message.signature, place };
        match message.body {
            EarlyBody::Here(bytes) => {
                self.take_whole(id, arrival, &mut &bytes[..], buffers);
                self.peers[source].flow.waits_no_longer(bytes.len());
                self.matched(source, bytes.len());
            }
            EarlyBody::Whole(bytes) => {
                self.take_whole(id, arrival, &mut &bytes[..], buffers);
            }
            EarlyBody::AtSender(sender, offer) => {
                self.peers[source].flow.announcement_answered();
                self.answer(id, arrival, (sender, offer), buffers);
            }
            EarlyBody::Arriving(orphan) => self.inherit(id, orphan, arrival, buffers),
        }
    }

    /// A whole message meets its receive.
    pub(super) fn take_whole(
        &mut self,
        id: OperationId,
        Arrival { envelope, signature, place }: Arrival,
        payload: &mut dyn Payload,
        buffers: &mut dyn Buffers,
    ) {
        let rank = self.rank;
        let Some(receive) = self.receives.get_mut(id) else { return };
        receive.met = Some((signature, place));
        let result = accept(rank, receive, envelope, signature).map(|()| {
            land(receive, 0, payload, buffers);
            envelope
        });
        self.finish_receive(id, result, buffers);
    }

    /// An announced message meets its receive: asks for it, or lets the sender forget it.
    pub(super) fn answer(
        &mut self,
        id: OperationId,
        Arrival { envelope, signature, place }: Arrival,
        (sender, offer): (OperationId, Option<Offer>),
        buffers: &mut dyn Buffers,
    ) {
        let rank = self.rank;
        let Some(receive) = self.receives.get_mut(id) else { return };
        receive.met = Some((signature, place));
        let accepted = accept(rank, receive, envelope, signature);
        if accepted.is_ok() && envelope.bytes > 0 {
            let arriving = Arriving { envelope, coverage: Coverage::new(envelope.bytes), from: None };
            receive.arriving = Some(Box::new(arriving));
            if let Some(offer) = offer {
                self.fetches.push_back(Fetch { id, peer: envelope.source, sender, offer, done: 0 });
                return;
            }
            let context = receive.context;
            let reply = Header { id: sender, tag: id, context, ..Header::new(Kind::ClearToSend) };
            return self.reply(envelope.source, reply);
        }
        // Nothing of it is wanted, or there is nothing.
        self.reply(envelope.source, Header { id: sender, ..Header::new(Kind::Discard) });
        self.finish_receive(id, accepted.map(|()| envelope), buffers);
    }

    /// A message that is arriving for a receive that was given up meets another one.
    fn inherit(&mut self, id: OperationId, orphan: OperationId, arrival: Arrival, buffers: &mut dyn Buffers) {
        let Arrival { envelope, signature, place } = arrival;
        if self.receives.get(orphan).is_some_and(|receive| receive.done.is_some())
            && let Some(receive) = self.receives.remove(orphan)
        {
            match receive.done {
                Some(Err(error)) => return self.finish_receive(id, Err(*error), buffers),
                _ => {
                    let bytes = receive.landed(envelope.bytes);
                    return self.take_whole(id, arrival, &mut &bytes[..], buffers);
                }
            }
        }
        let rank = self.rank;
        let Some(receive) = self.receives.get_mut(id) else { return };
        receive.met = Some((signature, place));
        let accepted = accept(rank, receive, envelope, signature);
        if accepted.is_ok() {
            let coverage = Coverage::new(envelope.bytes);
            receive.arriving = Some(Box::new(Arriving { envelope, coverage, from: Some(orphan) }));
        }
        if let Some(given_up) = self.receives.get_mut(orphan) {
            match &accepted {
                Ok(()) => given_up.orphan = Some(Orphan::Heir(id)),
                Err(_) => (given_up.landing, given_up.orphan) = (Landing::Nowhere, None),
            }
        }
        if let Err(error) = accepted {
            self.finish_receive(id, Err(error), buffers);
        }
    }

    /// A piece of a large message.
    pub(super) fn take_piece(
        &mut self,
        peer: usize,
        header: &Header,
        payload: &mut dyn Payload,
        buffers: &mut dyn Buffers,
    ) -> Result<()> {
        let corrupt = |what| Error::Corrupt { peer, what };
        if let Some(draining) = self.draining.get_mut(&header.id).filter(|draining| draining.peer == peer) {
            let late = || corrupt("a piece of a message after all that it had sent");
            draining.missing = draining.missing.checked_sub(skip(payload) as u64).ok_or_else(late)?;
            if draining.missing == 0 {
                self.draining.remove(&header.id);
            }
            return Ok(());
        }
        let receive = self.receives.get_mut(header.id);
        let receive = receive.ok_or_else(|| corrupt("a piece of a message that nobody asked for"))?;
        let Some(arriving) = receive.arriving.as_ref().filter(|arriving| arriving.is_asked_of(peer)) else {
            return Err(corrupt("a piece of a message that it did not announce"));
        };
        let at = arriving.coverage.check(header.tag, payload.len()).map_err(|bad| corrupt(bad.describe()))?;
        let landed = land(receive, at, payload, buffers);
        if landed > 0
            && let Some(arriving) = &mut receive.arriving
        {
            arriving.coverage.add(header.tag, landed).map_err(|bad| corrupt(bad.describe()))?;
            if arriving.coverage.is_complete() {
                let envelope = arriving.envelope;
                self.complete(header.id, envelope, buffers);
            }
        }
        Ok(())
    }

    /// A whole message begins to arrive: when a receive waits that can take it, it is that one's from now on, and comes
    /// in pieces under the name that is returned.
    pub(crate) fn begin(&mut self, peer: usize, header: &Header) -> Option<OperationId> {
        let total = usize::try_from(header.total).ok()?;
        if header.payload as usize != total {
            return None;
        }
        let (envelope, signature) =
            (Envelope { source: peer, tag: header.tag, bytes: total }, Signature(header.signature));
        let id = *self.matcher.waiting_for(header.context, peer, header.tag)?;
        let receive = self.receives.get_mut(id)?;
        // What it cannot take is told when the message is whole.
        accept(self.rank, receive, envelope, signature).ok()?;
        let ticket = receive.posted.take()?;
        receive.met = Some((signature, self.matcher.place()));
        receive.arriving = Some(Box::new(Arriving { envelope, coverage: Coverage::new(total), from: None }));
        self.matched(peer, total);
        self.matcher.withdraw(header.context, ticket)
    }

    /// The sender has given up after `sent` bytes, some of which may still be on their way.
    pub(super) fn lose_rest(
        &mut self,
        peer: usize,
        id: OperationId,
        (sent, loss): (u64, bool),
        buffers: &mut dyn Buffers,
    ) -> Result<()> {
        let corrupt = |what| Error::Corrupt { peer, what };
        let longer = || corrupt("a message longer than what it sent");
        if let Some(draining) = self.draining.get_mut(&id).filter(|draining| draining.peer == peer)
            && let Some(total) = draining.total.take()
        {
            let unsent = total.checked_sub(sent);
            draining.missing = unsent.and_then(|unsent| draining.missing.checked_sub(unsent)).ok_or_else(longer)?;
            if draining.missing == 0 {
                self.draining.remove(&id);
            }
            return Ok(());
        }
        let arriving = self.receives.get(id).and_then(|receive| receive.arriving.as_deref());
        let Some(arriving) = arriving.filter(|arriving| arriving.is_asked_of(peer)) else {
            return Err(corrupt("the end of a message that it did not announce"));
        };
        let received = arriving.coverage.received() as u64;
        let missing = sent.checked_sub(received).ok_or_else(longer)?;
        if missing > 0 {
            self.draining.insert(id, Draining { peer, missing, total: None });
        }
        self.finish_receive(id, Err(Error::GaveUp { peer, loss }), buffers);
        Ok(())
    }

    /// A receive is about to end although its message arrives: what still comes of it is for nobody.
    pub(in crate::engine) fn drain(&mut self, id: OperationId, by: usize) {
        if let Some(at) = self.fetches.iter().position(|fetch| fetch.id == id) {
            if let Some(fetch) = self.fetches.remove(at) {
                self.turn_down(fetch.peer, fetch.sender, Some(by));
            }
            return;
        }
        let Some(arriving) = self.receives.get(id).and_then(|receive| receive.arriving.as_deref()) else { return };
        // Of one that arrives in another receive that one takes the rest.
        if arriving.from.is_none() {
            let (peer, total) = (arriving.envelope.source, arriving.envelope.bytes as u64);
            let missing = total - arriving.coverage.received() as u64;
            self.draining.insert(id, Draining { peer, missing, total: Some(total) });
        }
    }

    /// All of a message that was announced is here.
    pub(crate) fn complete(&mut self, id: OperationId, envelope: Envelope, buffers: &mut dyn Buffers) {
        self.counters[envelope.source].received.rendezvous.add(envelope.bytes);
        self.finish_receive(id, Ok(envelope), buffers);
    }

    pub(crate) fn finish_receive(&mut self, id: OperationId, result: Result<Envelope>, buffers: &mut dyn Buffers) {
        self.news += 1;
        let Some(receive) = self.receives.get_mut(id).filter(|receive| receive.done.is_none()) else { return };
        receive.arriving = None;
        let context = receive.context;
        match receive.orphan.take() {
            None if receive.detached => drop(self.receives.remove(id)),
            None | Some(Orphan::Found) => receive.done = Some(result.map_err(Box::new)),
            Some(Orphan::Waits(ticket)) => {
                let Some(receive) = self.receives.remove(id) else { return };
                match result {
                    Ok(envelope) => {
                        if let Some(waiting) = self.matcher.waiting(context, ticket) {
                            waiting.message.body = EarlyBody::Whole(receive.landed(envelope.bytes));
                        }
                    }
                    Err(_) => self.matcher.discard_waiting(context, ticket),
                }
            }
            Some(Orphan::Heir(heir)) => {
                let Some(receive) = self.receives.remove(id) else { return };
                if let (Ok(envelope), Some(heir)) = (&result, self.receives.get_mut(heir)) {
                    let bytes = receive.landed(envelope.bytes);
                    land(heir, 0, &mut &bytes[..] as &mut dyn Payload, buffers);
                }
                self.finish_receive(heir, result, buffers);
            }
        }
    }

    /// Withdraws a receive that no message has met; `false` when one has.
    pub(crate) fn withdraw(&mut self, id: OperationId) -> bool {
        let Some(receive) = self.receives.get_mut(id) else { return false };
        let (context, posted) = (receive.context, receive.posted.take());
        posted.is_some_and(|ticket| self.matcher.withdraw(context, ticket).is_some())
    }

    /// Nobody will wait for this receive. Its message is another one's, at its old place, whether it is still to come, is
    /// arriving, or has come whole; only what went into a lent buffer, which is gone, is lost.
    pub(crate) fn abandon_receive(&mut self, id: OperationId, buffers: &mut dyn Buffers) {
        self.withdraw(id);
        let Some(receive) = self.receives.get_mut(id) else { return };
        let keeps = matches!(receive.landing, Landing::Owned(_) | Landing::Growing(_));
        let (context, met) = (receive.context, receive.met);
        let (envelope, body) = match (&receive.arriving, &receive.done) {
            (Some(arriving), _) => {
                let envelope = arriving.envelope;
                let orphan = arriving.from;
                if orphan.is_some() {
                    self.receives.remove(id);
                } else {
                    receive.detached = true;
                    if !keeps {
                        receive.landing = Landing::Nowhere;
                        return;
                    }
                }
                (envelope, EarlyBody::Arriving(orphan.unwrap_or(id)))
            }
            (None, Some(Ok(envelope))) if keeps => (*envelope, EarlyBody::Whole(receive.landed(envelope.bytes))),
            (None, _) => {
                self.receives.remove(id);
                return;
            }
        };
        if matches!(body, EarlyBody::Whole(_)) {
            self.receives.remove(id);
        }
        let Some((signature, place)) = met else { return };
        let Envelope { source, tag, bytes: total } = envelope;
        let message = Early { signature, total, body };
        self.put_back(context, Unexpected { source, tag, place, message }, buffers);
    }
}

/// Whether a receive takes a message; makes room where it may grow.
fn accept(rank: usize, receive: &mut Receiving, envelope: Envelope, signature: Signature) -> Result<()> {
    match &mut receive.landing {
        Landing::Nowhere => Ok(()),
        Landing::Growing(buffer) => {
            let grown = signature == receive.expected.signature && buffer.resize(envelope.bytes);
            let room = if grown { envelope.bytes } else { receive.expected.room };
            admit(rank, &Expected { room, ..receive.expected }, envelope, signature)
        }
        _ => admit(rank, &receive.expected, envelope, signature),
    }
}

/// Whether a message is what is expected.
#[inline]
fn admit(rank: usize, expected: &Expected, envelope: Envelope, signature: Signature) -> Result<()> {
    let sent = envelope.bytes;
    let as_long = if expected.exact { sent == expected.room } else { sent <= expected.room };
    if signature == expected.signature && as_long { Ok(()) } else { Err(refuse(rank, expected, envelope, signature)) }
}

/// Why a message is not what is expected.
#[cold]
fn refuse(rank: usize, expected: &Expected, envelope: Envelope, signature: Signature) -> Error {
    let Envelope { source: source_rank, tag, bytes: sent } = envelope;
    if signature != expected.signature {
        let wanted = expected.element.map_or_else(|| element::describe(expected.signature), str::to_string);
        return Error::TypeMismatch { rank, source_rank, tag, sent: element::describe(signature), expected: wanted };
    }
    if expected.exact {
        return Error::LengthMismatch { rank, source_rank, sent, expected: expected.room };
    }
    Error::Truncated { rank, source_rank, tag, sent, room: expected.room }
}

/// Copies what is there of a payload to where the receive wants it, or aside when that is not lent now. Returns how much.
fn land(receive: &mut Receiving, at: usize, payload: &mut dyn Payload, buffers: &mut dyn Buffers) -> usize {
    let length = payload.len();
    receive.settle(buffers);
    match &mut receive.landing {
        Landing::Owned(buffer) | Landing::Growing(buffer) => payload.copy_to(&mut buffer.bytes_mut()[at..at + length]),
        Landing::Lent(lent) => match buffers.destination(*lent) {
            Some(room) => payload.copy_to(&mut room[at..at + length]),
            None => receive.keep_aside(at, payload),
        },
        Landing::Heap(place) => place.take(at, payload),
        Landing::Nowhere => skip(payload),
    }
}

/// Takes what is there of a payload that nobody wants. Returns how much.
fn skip(payload: &mut dyn Payload) -> usize {
    let mut nowhere = [0; 4096];
    let before = payload.len();
    loop {
        let most = payload.len().min(nowhere.len());
        if payload.copy_to(&mut nowhere[..most]) < most || payload.len() == 0 {
            return before - payload.len();
        }
    }
}
