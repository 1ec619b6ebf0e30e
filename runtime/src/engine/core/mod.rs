//! The protocol of one rank: what arriving records do to its operations and which records answer them.
//!
//! No I/O and no clock: records in, records out. Small messages travel whole (eager) as long as the receiver keeps up;
//! others are announced, and move when the receiver has room for them (rendezvous).

mod receiving;
mod sending;

use receiving::Arrival;
pub(crate) use receiving::Found;

use super::{
    departures::Group,
    direct::{Fetch, Offer},
    flow::{Flow, Overdrawn},
    one_sided::OneSided,
    operation::{Buffers, Early, EarlyBody, Envelope, OperationId, Receiving, Sending},
    revoked::{Dropped, REVOKED, Revocations},
    table::Table,
};
use crate::{
    element::Signature,
    error::{Error, Result},
    matching::{Matcher, Pattern},
    statistics::PeerCounters,
    transport::record::{Header, Kind, Payload},
};
use rustc_hash::FxHashMap;
use std::{cell::RefCell, collections::VecDeque};

/// What waits for room in a transport.
#[derive(Debug)]
pub(crate) enum Outgoing {
    /// A record without payload.
    Record(Header),
    /// The first record of a send: the whole message, or its announcement. These stay in order.
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
    pub(crate) receives: Table<Receiving>,
    /// Receives that are over before their message is.
    draining: FxHashMap<OperationId, Draining>,
    pub(crate) peers: Vec<Peer>,
    pub(crate) one_sided: OneSided,
    /// Messages that are being copied out of their senders' memory.
    pub(in crate::engine) fetches: VecDeque<Fetch>,
    /// Peers with something outgoing.
    pub(crate) busy: Vec<usize>,
    /// Peers that may announce nothing more until something is matched or asked for.
    stuck: Vec<usize>,
    window: usize,
    /// What has been sent to and received from every peer.
    pub(crate) counters: Vec<PeerCounters>,
    /// The world is being dropped.
    leaving: bool,
    /// By the context of its point-to-point messages, who is in a communicator.
    pub(in crate::engine) groups: FxHashMap<u64, Group>,
    pub(in crate::engine) revocations: Revocations,
    pub(in crate::engine) dropped: Dropped,
    /// Sends of communicators that are revoked have been ended while their receivers may be reading their bytes.
    pub(in crate::engine) withdraws: bool,
    /// Counts everything that may end a wait, so that a waiting call looks only when there is news.
    pub(crate) news: u64,
}

/// A message that still comes for a receive that is over: its sender gave up, or its communicator is revoked.
#[derive(Debug)]
struct Draining {
    peer: usize,
    /// Bytes that have not come yet.
    missing: u64,
    /// Bytes of the whole message, as long as its sender may still give up.
    total: Option<u64>,
}

/// What is on its way to a peer and how much may be.
#[derive(Debug)]
pub(crate) struct Peer {
    /// In order, as far as order matters.
    pub(crate) outgoing: VecDeque<Outgoing>,
    /// Sends that neither the window nor the number of announcements lets go yet, in order.
    pub(crate) held: VecDeque<OperationId>,
    pub(crate) flow: Flow,
    /// Nothing reaches it any more.
    gone: bool,
    /// It is leaving: it has turned a message away because of that.
    pub(in crate::engine) leaves: bool,
}

impl Peer {
    fn new(window: usize) -> Self {
        Peer { outgoing: VecDeque::new(), held: VecDeque::new(), flow: Flow::new(window), gone: false, leaves: false }
    }

    /// Whether nothing reaches it any more.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone
    }

    /// Whether a call may have failed because it is gone, or is about to be.
    pub(in crate::engine) fn is_missed(&self) -> bool {
        self.gone || self.leaves
    }

    /// Whether nothing waits that a new message must not overtake.
    pub(crate) fn is_clear(&self) -> bool {
        self.outgoing.is_empty() && self.held.is_empty()
    }
}

impl Core {
    /// `window`: what eager messages from one rank to another may cost at once (`eager.window`).
    pub(crate) fn new(rank: usize, size: usize, window: usize) -> Self {
        Core {
            rank,
            next_operation: 1,
            matcher: Matcher::default(),
            sends: FxHashMap::default(),
            receives: Table::default(),
            draining: FxHashMap::default(),
            peers: (0..size).map(|_| Peer::new(window)).collect(),
            one_sided: OneSided::default(),
            fetches: VecDeque::new(),
            busy: Vec::new(),
            stuck: Vec::new(),
            window,
            counters: vec![PeerCounters::default(); size],
            leaving: false,
            groups: FxHashMap::default(),
            revocations: Revocations::default(),
            dropped: Dropped::default(),
            withdraws: false,
            news: 0,
        }
    }

    pub(crate) fn new_id(&mut self) -> OperationId {
        self.next_operation += 1;
        self.next_operation
    }

    pub(crate) fn enqueue(&mut self, peer: usize, outgoing: Outgoing) {
        if self.peers[peer].gone {
            return;
        }
        if self.peers[peer].outgoing.is_empty() {
            self.busy.push(peer);
        }
        self.peers[peer].outgoing.push_back(outgoing);
    }

    pub(in crate::engine) fn reply(&mut self, peer: usize, header: Header) {
        self.enqueue(peer, Outgoing::Record(header));
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
        let overdrawn = |Overdrawn| corrupt("more than its credit allows");
        let total = usize::try_from(header.total).map_err(|_| corrupt("a length beyond this machine"))?;
        let signature = Signature(header.signature);
        let envelope = Envelope { source: peer, tag: header.tag, bytes: total };
        let kind = Kind::from_byte(header.kind).ok_or_else(|| corrupt("unknown kind"))?;
        match kind {
            Kind::Eager => return self.whole(peer, header, payload, buffers),
            Kind::RequestToSend if let Some(by) = self.revocations.by(header.context) => {
                self.comes_too_late(peer, header, by);
            }
            Kind::RequestToSend if self.dropped.contains(header.context) => self.turn_down(peer, header.id, None),
            Kind::RequestToSend
                if self.leaving && self.matcher.waiting_for(header.context, peer, header.tag).is_none() =>
            {
                self.reply(peer, turn_away(header.id));
            }
            Kind::RequestToSend => {
                let mut bytes = vec![0; payload.len()];
                payload.copy_to(&mut bytes);
                let offer = Offer::unpack(&bytes).map_err(|()| corrupt("an announcement of another length"))?;
                let early = || Early { signature, total, body: EarlyBody::AtSender(header.id, offer) };
                match self.matcher.arrive(header.context, peer, header.tag, early) {
                    Some((id, place)) => {
                        self.answer(id, Arrival { envelope, signature, place }, (header.id, offer), buffers);
                    }
                    None => {
                        if self.peers[peer].flow.announcement_waits().map_err(overdrawn)? {
                            self.is_stuck(peer);
                        }
                    }
                }
            }
            Kind::ClearToSend => {
                self.peers[peer].flow.answered().map_err(overdrawn)?;
                self.clear_to_send(peer, header.id, (header.tag, header.context));
            }
            Kind::Discard => {
                self.peers[peer].flow.answered().map_err(overdrawn)?;
                self.release(peer);
                let result = match header.tag {
                    REVOKED => Err(Error::Revoked { by: total }),
                    _ => Ok(()),
                };
                self.finish_send(header.id, result);
            }
            Kind::Credit => {
                self.peers[peer].flow.returned(header.total).map_err(overdrawn)?;
                self.peers[peer].flow.allowed(header.id);
                self.release(peer);
            }
            Kind::Data => self.take_piece(peer, header, payload, buffers)?,
            Kind::Revoke => self.hear_revoked(peer, header, buffers)?,
            Kind::Abandon => self.lose_rest(peer, header.id, (header.tag, header.total != 0), buffers)?,
            Kind::Put | Kind::Update | Kind::Get | Kind::Answer => {
                let mut parcels = Vec::new();
                self.one_sided.record(peer, header, payload, &mut |header, payload| {
                    parcels.push(Outgoing::Parcel(header, payload));
                })?;
                parcels.into_iter().for_each(|parcel| self.enqueue(peer, parcel));
                self.news += 1;
            }
            Kind::Bye | Kind::Confirm | Kind::Agree => return Err(corrupt("a word between transports")),
        }
        Ok(())
    }

    /// A whole message has arrived: [`Core::record`] for what nearly all records are.
    pub(crate) fn whole(
        &mut self,
        peer: usize,
        header: &Header,
        payload: &mut dyn Payload,
        buffers: &mut dyn Buffers,
    ) -> Result<()> {
        let (context, tag, signature, total) = (header.context, header.tag, Signature(header.signature), payload.len());
        if header.total != total as u64 {
            let what = "an eager message of another length than announced";
            return Err(Error::Corrupt { peer, what });
        }
        if let Some(by) = self.revocations.by(context) {
            self.comes_too_late(peer, header, by);
            return Ok(());
        }
        self.counters[peer].received.eager.add(total);
        let envelope = Envelope { source: peer, tag, bytes: total };
        if self.take_awaited(envelope, (context, signature), payload, buffers) {
            self.matched(peer, total);
            return Ok(());
        }
        let mut here = || {
            let mut bytes = vec![0; total];
            payload.copy_to(&mut bytes);
            Early { signature, total, body: EarlyBody::Here(bytes) }
        };
        match self.matcher.arrive(context, peer, tag, &mut here) {
            Some((id, place)) => {
                self.take_whole(id, Arrival { envelope, signature, place }, payload, buffers);
                self.matched(peer, total);
                Ok(())
            }
            None => {
                let what = "more than its credit allows";
                self.peers[peer].flow.waits(total).map_err(|Overdrawn| Error::Corrupt { peer, what })?;
                if self.dropped.contains(context)
                    && let Some(found) = self.matcher.take(context, Pattern { source: Some(peer), tag: Some(tag) })
                {
                    self.drop_found(found, None);
                }
                Ok(())
            }
        }
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
            self.peers[peer].flow.announcement_answered();
            self.reply(peer, turn_away(sender));
        }
    }

    /// A peer that leaves, or has dropped the communicator, does not want a message that was announced to it.
    pub(crate) fn turned_away(&mut self, peer: usize, id: OperationId, error: Error) -> Result<()> {
        let overdrawn = |Overdrawn| Error::Corrupt { peer, what: "an answer to nothing" };
        self.peers[peer].flow.answered().map_err(overdrawn)?;
        self.release(peer);
        self.finish_send(id, Err(error));
        Ok(())
    }

    /// An eager message has met its receive: the sender learns of it now and then.
    #[inline]
    pub(in crate::engine) fn matched(&mut self, peer: usize, bytes: usize) {
        if let Some(cost) = self.peers[peer].flow.matched(bytes) {
            self.reply(peer, Header { total: cost, ..Header::new(Kind::Credit) });
        }
    }

    /// A peer has announced as much as it may. If a receive waits for something else, that may be what the peer keeps back.
    fn is_stuck(&mut self, peer: usize) {
        self.stuck.push(peer);
        if self.matcher.is_anything_posted_for(peer) {
            self.ask_for_more(Some(peer));
        }
    }

    /// A receive or probe has found nothing: whoever may send it shall announce what it keeps back.
    #[inline]
    pub(crate) fn ask_for_more(&mut self, source: Option<usize>) {
        if !self.stuck.is_empty() {
            self.ask_the_stuck(source);
        }
    }

    #[cold]
    fn ask_the_stuck(&mut self, source: Option<usize>) {
        let (asked, stuck): (Vec<usize>, Vec<usize>) =
            self.stuck.drain(..).partition(|peer| source.is_none_or(|source| source == *peer));
        self.stuck = stuck;
        for peer in asked {
            if self.peers[peer].flow.is_stuck() {
                let more = self.peers[peer].flow.grant();
                self.reply(peer, Header { id: more, ..Header::new(Kind::Credit) });
            }
        }
    }

    /// Whether nothing is still to come for receives that are over.
    #[cfg(test)]
    pub(crate) fn is_drained(&self) -> bool {
        self.draining.is_empty()
    }

    /// Nothing more comes from or reaches `peer`: everything that waits for it ends with this error.
    pub(crate) fn fail_peer(&mut self, peer: usize, error: &Error, buffers: &mut dyn Buffers) {
        let mut receives = self.matcher.take_waiting_for(peer);
        let arriving = self.receives.iter().filter(|(_, receive)| receive.is_arriving_from(peer));
        receives.extend(arriving.map(|(id, _)| id));
        for id in receives {
            self.finish_receive(id, Err(error.clone()), buffers);
        }
        // What it has only announced will never come.
        self.matcher.discard(|early| early.source == peer && matches!(early.message.body, EarlyBody::AtSender(..)));
        let pending = |send: &Sending| send.peer == peer && send.done.is_none();
        let sends: Vec<_> = self.sends.iter().filter(|(_, send)| pending(send)).map(|(id, _)| *id).collect();
        for id in sends {
            self.finish_send(id, Err(error.clone()));
        }
        self.draining.retain(|_, draining| draining.peer != peer);
        self.fetches.retain(|fetch| fetch.peer != peer);
        self.peers[peer] = Peer { gone: true, ..Peer::new(self.window) };
        self.busy.retain(|busy| *busy != peer);
        self.stuck.retain(|stuck| *stuck != peer);
        self.no_longer_awaits(peer, None);
        self.news += 1;
    }
}

/// The tag of a [`Kind::Discard`] that a rank sends because it leaves.
pub(super) const LEFT: u64 = 1;

/// Tells the sender of an announced message that nobody will receive it any more.
fn turn_away(sender: OperationId) -> Header {
    Header { id: sender, tag: LEFT, ..Header::new(Kind::Discard) }
}
