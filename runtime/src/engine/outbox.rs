//! What waits for room in a transport is handed over: in order where order matters, past what has no bytes at hand.

use super::{
    Engine, Route,
    core::Outgoing,
    direct,
    operation::{Buffers, OperationId, Sending, Source, Stage},
};
use crate::{
    error::Result,
    protocol::Tier,
    trace,
    transport::record::{Header, Kind},
};

impl Engine {
    /// Hands over what waits, peer by peer.
    pub(super) fn flush(&mut self, buffers: &mut dyn Buffers) -> Result<bool> {
        let mut moved = false;
        let mut at = 0;
        while at < self.core.busy.len() {
            let peer = self.core.busy[at];
            moved |= self.flush_peer(peer, buffers)?;
            if self.core.peers[peer].outgoing.is_empty() {
                self.core.busy.swap_remove(at);
                self.stalled[peer] = false;
            } else {
                at += 1;
                if !std::mem::replace(&mut self.stalled[peer], true) {
                    self.core.counters[peer].stalls += 1;
                }
            }
        }
        Ok(moved)
    }

    /// Hands over what waits for a peer, in order. What the bytes are not at hand for is left out; only the beginnings of
    /// messages must not overtake each other.
    fn flush_peer(&mut self, peer: usize, buffers: &mut dyn Buffers) -> Result<bool> {
        let (mut moved, mut at, mut first_waits) = (false, 0, false);
        while let Some(outgoing) = self.core.peers[peer].outgoing.remove(at) {
            let is_first = matches!(outgoing, Outgoing::First(_));
            let handed =
                if is_first && first_waits { Handed::NotAtHand } else { self.hand_over(peer, &outgoing, buffers)? };
            if matches!(handed, Handed::All) {
                moved = true;
                continue;
            }
            self.core.peers[peer].outgoing.insert(at, outgoing);
            match handed {
                Handed::Some => return Ok(true),
                Handed::All | Handed::NoRoom => break,
                Handed::NotAtHand => {
                    first_waits |= is_first;
                    at += 1;
                }
            }
        }
        Ok(moved)
    }

    fn hand_over(&mut self, peer: usize, outgoing: &Outgoing, buffers: &mut dyn Buffers) -> Result<Handed> {
        match outgoing {
            Outgoing::Record(header) => self.push_all(peer, header, &[], Tier::LowLatency),
            Outgoing::Parcel(header, payload) => self.push_all(peer, header, payload, Tier::Bulk),
            Outgoing::First(id) => self.hand_over_first(peer, *id, buffers),
            Outgoing::Pieces(id) => self.hand_over_pieces(peer, *id, buffers),
        }
    }

    /// A record that is at hand.
    fn push_all(&mut self, peer: usize, header: &Header, payload: &[u8], tier: Tier) -> Result<Handed> {
        Ok(Handed::all_or_none(self.transport(peer).push(peer, header, payload, tier, false)?))
    }

    fn hand_over_first(&mut self, peer: usize, id: OperationId, buffers: &mut dyn Buffers) -> Result<Handed> {
        let Route { transport, .. } = &mut self.routes.routes[self.routes.to[peer]];
        // Gone, or ended: its call has given up before it went out, or its communicator is revoked.
        let Some(send) = self.core.sends.get_mut(&id).filter(|send| send.done.is_none()) else {
            return Ok(Handed::All);
        };
        let (mut header, path, total) = (send.header, send.path, send.total());
        let recorder = self.recorder.as_deref().map(|recorder| (recorder, trace::now()));
        if header.kind == Kind::Eager as u8 {
            if let Some(bytes) = bytes_of(send, buffers) {
                header.payload = length_of(bytes);
                let handed = transport.push(peer, &header, bytes, path.tier(), false)?;
                if handed {
                    if let Some((recorder, began)) = recorder {
                        recorder.sent(began, peer, total, path);
                    }
                    self.core.finish_send(id, Ok(()));
                }
                return Ok(Handed::all_or_none(handed));
            }
            if !self.core.announce_instead(id) {
                return Ok(Handed::NotAtHand);
            }
            header.kind = Kind::RequestToSend as u8;
        }
        let Some(send) = self.core.sends.get(&id) else { return Ok(Handed::All) };
        let Ok(offer) = direct::offer(send, &**transport, buffers) else { return Ok(Handed::NotAtHand) };
        let offer = offer.map_or_else(Vec::new, |offer| offer.pack());
        header.payload = length_of(&offer);
        let handed = transport.push(peer, &header, &offer, Tier::LowLatency, false)?;
        if handed && let Some(send) = self.core.sends.get_mut(&id) {
            send.stage = Stage::Gone;
            if let Some((recorder, began)) = recorder {
                recorder.sent(began, peer, total, path);
            }
        }
        Ok(Handed::all_or_none(handed))
    }

    fn hand_over_pieces(&mut self, peer: usize, id: OperationId, buffers: &mut dyn Buffers) -> Result<Handed> {
        let Route { transport, limits, .. } = &mut self.routes.routes[self.routes.to[peer]];
        let Some(send) = self.core.sends.get_mut(&id).filter(|send| send.done.is_none()) else {
            return Ok(Handed::All);
        };
        let Some(receiver) = send.receiver else { return Ok(Handed::All) };
        let start = send.sent;
        let mut sent = start;
        let Some(bytes) = bytes_of(send, buffers) else { return Ok(Handed::NotAtHand) };
        while sent < bytes.len() {
            let piece = &bytes[sent..bytes.len().min(sent + limits.capabilities.piece)];
            let (at, payload) = (sent as u64, length_of(piece));
            let header = Header { id: receiver, tag: at, payload, ..Header::new(Kind::Data) };
            if !transport.push(peer, &header, piece, Tier::Bulk, false)? {
                break;
            }
            sent += piece.len();
        }
        let all = sent == bytes.len();
        send.sent = sent;
        if all {
            self.core.finish_send(id, Ok(()));
            return Ok(Handed::All);
        }
        Ok(if sent > start { Handed::Some } else { Handed::NoRoom })
    }
}

/// How much of something outgoing a transport has taken.
enum Handed {
    All,
    Some,
    NoRoom,
    /// The bytes belong to a call that is not the one that makes progress.
    NotAtHand,
}

impl Handed {
    fn all_or_none(all: bool) -> Self {
        if all { Handed::All } else { Handed::NoRoom }
    }
}

pub(super) fn bytes_of<'a>(send: &'a Sending, buffers: &'a dyn Buffers) -> Option<&'a [u8]> {
    match &send.source {
        Source::Owned(buffer) => Some(buffer.bytes()),
        Source::Lent(lent) => buffers.source(*lent),
        // Only ever announced.
        Source::Heap(_) => None,
    }
}

/// The length of a record's payload; transports keep records far below 4 GiB.
pub(super) fn length_of(piece: &[u8]) -> u32 {
    u32::try_from(piece.len()).expect("a piece is bounded by the transport's largest payload")
}
