//! The protocol of one rank: what arriving records do to its operations and which records answer them.
//!
//! No I/O and no clock: records in, records out. Small messages travel whole (eager); larger ones are announced, and
//! move when the receiver has room for them (rendezvous).

use super::{
    coverage::Coverage,
    direct::{Fetch, Offer},
    one_sided::OneSided,
    operation::{
        Buffers, Early, EarlyBody, Envelope, Expected, Landing, OperationId, Plain, Receiving, Sending, Source,
    },
};
use crate::{
    element::{self, Signature},
    error::{Error, Result},
    matching::{Matcher, Pattern},
    protocol::Path,
    statistics::PeerCounters,
    transport::record::{Header, Kind, Payload},
};
use rustc_hash::FxHashMap;
use std::{cell::RefCell, collections::VecDeque};

/// What waits for room in a transport, per peer, in order.
#[derive(Debug)]
pub(crate) enum Outgoing {
    /// A record without payload.
    Record(Header),
    /// The first record of a send: the whole message, or its announcement.
    First(OperationId),
    /// The pieces of a large message whose receiver is ready.
    Pieces(OperationId),
    /// A record with its payload.
    Parcel(Header, Vec<u8>),
}

pub(crate) struct Core {
    pub(crate) rank: usize,
    next_operation: OperationId,
    pub(crate) matcher: Matcher<OperationId, Early>,
    pub(crate) sends: FxHashMap<OperationId, Sending>,
    pub(crate) receives: FxHashMap<OperationId, Receiving>,
    /// Receives whose sender gave up, with the peer and the bytes that it had sent before and that have not come yet.
    draining: FxHashMap<OperationId, (usize, u64)>,
    pub(crate) outgoing: Vec<VecDeque<Outgoing>>,
    pub(crate) one_sided: OneSided,
    /// Messages that are being copied out of their senders' memory.
    pub(super) fetches: VecDeque<Fetch>,
    /// Peers with something outgoing.
    pub(crate) busy: Vec<usize>,
    /// What has been sent to and received from every peer.
    pub(crate) counters: Vec<PeerCounters>,
    /// Counts everything that may end a wait, so that a waiting call looks only when there is news.
    pub(crate) news: u64,
    /// The world is being dropped.
    leaving: bool,
}

impl Core {
    pub(crate) fn new(rank: usize, size: usize) -> Self {
        Core {
            rank,
            next_operation: 1,
            matcher: Matcher::default(),
            sends: FxHashMap::default(),
            receives: FxHashMap::default(),
            draining: FxHashMap::default(),
            outgoing: (0..size).map(|_| VecDeque::new()).collect(),
            one_sided: OneSided::default(),
            fetches: VecDeque::new(),
            busy: Vec::new(),
            counters: vec![PeerCounters::default(); size],
            news: 0,
            leaving: false,
        }
    }

    pub(crate) fn new_id(&mut self) -> OperationId {
        self.next_operation += 1;
        self.next_operation
    }

    pub(crate) fn enqueue(&mut self, peer: usize, outgoing: Outgoing) {
        if self.outgoing[peer].is_empty() {
            self.busy.push(peer);
        }
        self.outgoing[peer].push_back(outgoing);
    }

    /// Begins a send that takes this way.
    pub(crate) fn start_send(&mut self, peer: usize, mut header: Header, path: Path, source: Source) -> OperationId {
        let id = self.new_id();
        header.id = id;
        header.kind = if path.is_eager() { Kind::Eager } else { Kind::RequestToSend } as u8;
        let send = Sending { peer, header, path, source, sent: 0, receiver: None, done: None, detached: false };
        self.sends.insert(id, send);
        self.enqueue(peer, Outgoing::First(id));
        id
    }

    /// Begins a receive: takes a message that is there, or waits for one.
    pub(crate) fn start_receive(
        &mut self,
        context: u64,
        pattern: Pattern,
        expected: Expected,
        landing: Landing,
        buffers: &mut dyn Buffers,
    ) -> OperationId {
        let id = self.new_id();
        let receive = Receiving {
            context,
            expected,
            landing,
            aside: Vec::new(),
            arriving: None,
            done: None,
            detached: false,
            posted: None,
        };
        self.receives.insert(id, receive);
        match self.matcher.take(context, pattern) {
            None => {
                let ticket = self.matcher.post(context, pattern, id);
                if let Some(receive) = self.receives.get_mut(&id) {
                    receive.posted = Some(ticket);
                }
            }
            Some(early) => {
                let envelope = Envelope { source: early.source, tag: early.tag, bytes: early.message.total };
                let signature = early.message.signature;
                match early.message.body {
                    EarlyBody::Here(bytes) => {
                        self.take_eager(id, envelope, signature, &mut &bytes[..] as &mut dyn Payload, buffers);
                    }
                    EarlyBody::AtSender(sender, offer) => self.answer(id, envelope, signature, (sender, offer)),
                }
            }
        }
        id
    }

    /// A record has arrived.
    pub(crate) fn record(
        &mut self,
        peer: usize,
        header: &Header,
        payload: &mut dyn Payload,
        buffers: &mut dyn Buffers,
    ) -> Result<()> {
        let corrupt = |what| Error::Corrupt { peer, what };
        let total = usize::try_from(header.total).map_err(|_| corrupt("a length beyond this machine"))?;
        let signature = Signature(header.signature);
        let envelope = Envelope { source: peer, tag: header.tag, bytes: total };
        match Kind::from_byte(header.kind).ok_or(corrupt("unknown kind"))? {
            Kind::Eager => {
                if payload.len() != total {
                    return Err(corrupt("an eager message of another length than announced"));
                }
                self.counters[peer].received.eager.add(total);
                let here = |payload: &mut dyn Payload| {
                    let mut bytes = vec![0; total];
                    payload.copy_to(&mut bytes);
                    Early { signature, total, body: EarlyBody::Here(bytes) }
                };
                if let Some(id) = self.matcher.arrive(header.context, peer, header.tag, || here(payload)) {
                    self.take_eager(id, envelope, signature, payload, buffers);
                }
            }
            Kind::RequestToSend
                if self.leaving && self.matcher.waiting_for(header.context, peer, header.tag).is_none() =>
            {
                self.enqueue(peer, turned_away(header.id));
            }
            Kind::RequestToSend => {
                let mut bytes = vec![0; payload.len()];
                payload.copy_to(&mut bytes);
                let offer = Offer::unpack(&bytes).map_err(|()| corrupt("an announcement of another length"))?;
                let sender = (header.id, offer);
                let waiting = || Early { signature, total, body: EarlyBody::AtSender(header.id, offer) };
                if let Some(id) = self.matcher.arrive(header.context, peer, header.tag, waiting) {
                    self.answer(id, envelope, signature, sender);
                }
            }
            Kind::ClearToSend => match self.sends.get_mut(&header.id) {
                Some(send) if send.peer == peer => {
                    if let Source::Heap(place) = &send.source {
                        // The receiver does not reach it: a copy travels in pieces.
                        send.source = Source::Owned(Box::new(Plain(place.copied())));
                    }
                    send.receiver = Some(header.tag);
                    self.enqueue(peer, Outgoing::Pieces(header.id));
                }
                _ => self.enqueue(peer, Outgoing::Record(Header { id: header.tag, ..Header::new(Kind::Abandon) })),
            },
            Kind::Discard => self.finish_send(header.id, Ok(())),
            Kind::Data => self.take_piece(peer, header, payload, buffers)?,
            Kind::Abandon => self.lose_rest(peer, header.id, header.tag)?,
            Kind::Put | Kind::Update | Kind::Get | Kind::Answer => {
                let outgoing = &mut self.outgoing[peer];
                let idle = outgoing.is_empty();
                self.one_sided.record(peer, header, payload, &mut |header, payload| {
                    outgoing.push_back(Outgoing::Parcel(header, payload));
                })?;
                if idle && !outgoing.is_empty() {
                    self.busy.push(peer);
                }
                self.news += 1;
            }
            Kind::Bye | Kind::Confirm | Kind::Agree => return Err(corrupt("a word between transports")),
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
        let envelope = Envelope { source: peer, tag: header.tag, bytes: total };
        let id = *self.matcher.waiting_for(header.context, peer, header.tag)?;
        let receive = self.receives.get_mut(&id)?;
        // What it cannot take is told when the message is whole.
        accept(self.rank, receive, envelope, Signature(header.signature)).ok()?;
        receive.arriving = Some((envelope, Coverage::new(total)));
        self.matcher.withdraw(header.context, receive.posted.take()?)
    }

    /// This rank receives nothing more: senders that wait for it need not. Two ranks that leave would else wait for each
    /// other.
    pub(crate) fn leave(&mut self) {
        self.leaving = true;
        let announced = RefCell::new(Vec::new());
        self.matcher.discard(|waiting| {
            let EarlyBody::AtSender(sender, _) = &waiting.message.body else { return false };
            announced.borrow_mut().push((waiting.source, *sender));
            true
        });
        for (peer, sender) in announced.into_inner() {
            self.enqueue(peer, turned_away(sender));
        }
    }

    /// A whole message meets its receive.
    fn take_eager(
        &mut self,
        id: OperationId,
        envelope: Envelope,
        signature: Signature,
        payload: &mut dyn Payload,
        buffers: &mut dyn Buffers,
    ) {
        let rank = self.rank;
        let Some(receive) = self.receives.get_mut(&id) else { return };
        let result = accept(rank, receive, envelope, signature).map(|()| {
            land(receive, 0, payload, buffers);
            envelope
        });
        self.finish_receive(id, result);
    }

    /// An announced message meets its receive: asks for it, or lets the sender forget it.
    fn answer(
        &mut self,
        id: OperationId,
        envelope: Envelope,
        signature: Signature,
        (sender, offer): (OperationId, Option<Offer>),
    ) {
        let rank = self.rank;
        let Some(receive) = self.receives.get_mut(&id) else { return };
        match accept(rank, receive, envelope, signature) {
            Ok(()) => {
                receive.arriving = Some((envelope, Coverage::new(envelope.bytes)));
                if let Some(offer) = offer {
                    self.fetches.push_back(Fetch { id, peer: envelope.source, sender, offer, done: 0 });
                    return;
                }
                let reply = Header { id: sender, tag: id, ..Header::new(Kind::ClearToSend) };
                self.enqueue(envelope.source, Outgoing::Record(reply));
            }
            Err(error) => {
                let reply = Header { id: sender, ..Header::new(Kind::Discard) };
                self.enqueue(envelope.source, Outgoing::Record(reply));
                self.finish_receive(id, Err(error));
            }
        }
    }

    /// A piece of a large message.
    fn take_piece(
        &mut self,
        peer: usize,
        header: &Header,
        payload: &mut dyn Payload,
        buffers: &mut dyn Buffers,
    ) -> Result<()> {
        let corrupt = |what| Error::Corrupt { peer, what };
        if let Some((_, missing)) = self.draining.get_mut(&header.id).filter(|(source, _)| *source == peer) {
            let late = corrupt("a piece of a message after all that it had sent");
            *missing = missing.checked_sub(skip(payload) as u64).ok_or(late)?;
            if *missing == 0 {
                self.draining.remove(&header.id);
            }
            return Ok(());
        }
        let receive = self.receives.get_mut(&header.id).ok_or(corrupt("a piece of a message that nobody asked for"))?;
        let Some((_, coverage)) = receive.arriving.as_ref().filter(|(envelope, _)| envelope.source == peer) else {
            return Err(corrupt("a piece of a message that it did not announce"));
        };
        let at = coverage.check(header.tag, payload.len()).map_err(|bad| corrupt(bad.describe()))?;
        let landed = land(receive, at, payload, buffers);
        if landed > 0
            && let Some((envelope, coverage)) = &mut receive.arriving
        {
            coverage.add(header.tag, landed).map_err(|bad| corrupt(bad.describe()))?;
            if coverage.is_complete() {
                let envelope = *envelope;
                self.complete(header.id, envelope);
            }
        }
        Ok(())
    }

    /// The sender has given up after `sent` bytes, some of which may still be on their way.
    fn lose_rest(&mut self, peer: usize, id: OperationId, sent: u64) -> Result<()> {
        let corrupt = |what| Error::Corrupt { peer, what };
        let Some(receive) = self.receives.get(&id).filter(|receive| receive.is_arriving_from(peer)) else {
            return Err(corrupt("the end of a message that it did not announce"));
        };
        let received = receive.arriving.as_ref().map_or(0, |(_, coverage)| coverage.received()) as u64;
        let missing = sent.checked_sub(received).ok_or(corrupt("a message longer than what it sent"))?;
        if missing > 0 {
            self.draining.insert(id, (peer, missing));
        }
        let reason = format!("rank {peer} gave up sending a message that was under way");
        self.finish_receive(id, Err(Error::Aborted { reason }));
        Ok(())
    }

    pub(crate) fn finish_send(&mut self, id: OperationId, result: Result<()>) {
        self.news += 1;
        let Some(send) = self.sends.get_mut(&id) else { return };
        if send.detached {
            self.sends.remove(&id);
        } else {
            send.done = Some(result);
        }
    }

    /// All of a message that was announced is here.
    pub(crate) fn complete(&mut self, id: OperationId, envelope: Envelope) {
        self.counters[envelope.source].received.rendezvous.add(envelope.bytes);
        self.finish_receive(id, Ok(envelope));
    }

    pub(crate) fn finish_receive(&mut self, id: OperationId, result: Result<Envelope>) {
        self.news += 1;
        let Some(receive) = self.receives.get_mut(&id) else { return };
        if receive.detached {
            self.receives.remove(&id);
        } else {
            receive.arriving = None;
            receive.done = Some(result);
        }
    }

    /// Nobody will wait for this send. Its bytes must stay until they are sent when it owns them; lent ones are gone.
    pub(crate) fn abandon_send(&mut self, id: OperationId) {
        let Some(send) = self.sends.get_mut(&id) else { return };
        if send.done.is_none() && matches!(send.source, Source::Owned(_)) {
            send.detached = true;
            return;
        }
        let (peer, sent, receiver) = (send.peer, send.sent as u64, send.receiver.filter(|_| send.done.is_none()));
        self.sends.remove(&id);
        if let Some(receiver) = receiver {
            self.enqueue(peer, Outgoing::Record(Header { id: receiver, tag: sent, ..Header::new(Kind::Abandon) }));
        }
    }

    /// Nobody will wait for this receive: withdrawn, or, when its message is arriving, finished into nowhere.
    pub(crate) fn abandon_receive(&mut self, id: OperationId) {
        let Some(receive) = self.receives.get_mut(&id) else { return };
        if receive.arriving.is_some() {
            receive.landing = Landing::Nowhere;
            receive.detached = true;
            return;
        }
        if let Some(ticket) = receive.posted {
            self.matcher.withdraw(receive.context, ticket);
        }
        self.receives.remove(&id);
    }

    /// Nothing more comes from or reaches `peer`: everything that waits for it ends with this error.
    pub(crate) fn fail_peer(&mut self, peer: usize, error: &Error) {
        let mut receives = self.matcher.take_waiting_for(peer);
        let arriving = self.receives.iter().filter(|(_, receive)| receive.is_arriving_from(peer));
        receives.extend(arriving.map(|(id, _)| *id));
        for id in receives {
            self.finish_receive(id, Err(error.clone()));
        }
        let pending = |send: &Sending| send.peer == peer && send.done.is_none();
        let sends: Vec<_> = self.sends.iter().filter(|(_, send)| pending(send)).map(|(id, _)| *id).collect();
        for id in sends {
            self.finish_send(id, Err(error.clone()));
        }
        self.draining.retain(|_, (source, _)| *source != peer);
        self.fetches.retain(|fetch| fetch.peer != peer);
        self.outgoing[peer].clear();
        self.busy.retain(|busy| *busy != peer);
        self.news += 1;
    }
}

/// The tag of a [`Kind::Discard`] that a rank sends because it leaves.
pub(super) const LEFT: u64 = 1;

/// Tells the sender of an announced message that nobody will receive it any more.
fn turned_away(sender: OperationId) -> Outgoing {
    Outgoing::Record(Header { id: sender, tag: LEFT, ..Header::new(Kind::Discard) })
}

/// Whether a receive takes a message; makes room where it may grow.
fn accept(rank: usize, receive: &mut Receiving, envelope: Envelope, signature: Signature) -> Result<()> {
    let expected = receive.expected;
    let (source_rank, tag, sent) = (envelope.source, envelope.tag, envelope.bytes);
    if matches!(receive.landing, Landing::Nowhere) {
        return Ok(());
    }
    if signature != expected.signature {
        let wanted = expected.element.map_or_else(|| element::describe(expected.signature), str::to_string);
        return Err(Error::TypeMismatch {
            rank,
            source_rank,
            tag,
            sent: element::describe(signature),
            expected: wanted,
        });
    }
    if expected.exact && sent != expected.room {
        return Err(Error::LengthMismatch { rank, source_rank, sent, expected: expected.room });
    }
    let fits = match &mut receive.landing {
        Landing::Growing(buffer) => buffer.resize(sent),
        _ => sent <= expected.room,
    };
    if fits { Ok(()) } else { Err(Error::Truncated { rank, source_rank, tag, sent, room: expected.room }) }
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
