//! The sending half of the protocol: messages go out whole or announced, in order, as the peer's credit allows.

use super::{Core, Outgoing};
use crate::{
    engine::{
        operation::{OperationId, Sending, Source, Stage},
        vector::AnyVec,
    },
    error::Result,
    protocol::Path,
    transport::record::{Header, Kind},
};

impl Core {
    /// Begins a send that takes this way when the receiver keeps up.
    pub(crate) fn start_send(&mut self, peer: usize, mut header: Header, path: Path, source: Source) -> OperationId {
        let id = self.new_id();
        header.id = id;
        let send = Sending {
            peer,
            header,
            path,
            stage: Stage::Held,
            source,
            sent: 0,
            receiver: None,
            done: None,
            detached: false,
        };
        self.sends.insert(id, send);
        self.peers[peer].held.push_back(id);
        self.release(peer);
        id
    }

    /// Lets go what the peer's credit allows, in order.
    pub(in crate::engine) fn release(&mut self, peer: usize) {
        while let Some(&id) = self.peers[peer].held.front() {
            if let Some(send) = self.sends.get_mut(&id).filter(|send| send.done.is_none()) {
                let flow = &mut self.peers[peer].flow;
                if send.path.is_eager() && flow.try_send(send.total()) {
                    send.header.kind = Kind::Eager as u8;
                } else if flow.try_announce() {
                    send.header.kind = Kind::RequestToSend as u8;
                } else {
                    return;
                }
                send.stage = Stage::Queued;
                self.enqueue(peer, Outgoing::First(id));
            }
            self.peers[peer].held.pop_front();
        }
    }

    /// The bytes of a small message are not at hand and others must not wait for them: it is announced instead; `false`
    /// when that is not allowed now.
    pub(crate) fn announce_instead(&mut self, id: OperationId) -> bool {
        let Some(send) = self.sends.get_mut(&id) else { return false };
        let flow = &mut self.peers[send.peer].flow;
        let may = flow.try_announce();
        if may {
            flow.take_back(send.total());
            send.header.kind = Kind::RequestToSend as u8;
        }
        may
    }

    /// The receive `receiver` of the message space `space` is ready for a message that was announced.
    pub(super) fn clear_to_send(&mut self, peer: usize, id: OperationId, (receiver, space): (OperationId, u64)) {
        self.release(peer);
        match self.sends.get_mut(&id) {
            Some(send) if send.peer == peer && send.receiver.is_none() && send.done.is_none() => {
                if let Source::Heap(place) = &send.source {
                    // The receiver does not reach it: a copy travels in pieces.
                    send.source = Source::Owned(AnyVec::new(place.copied()));
                }
                send.receiver = Some(receiver);
                self.enqueue(peer, Outgoing::Pieces(id));
            }
            _ => self.tell_of_end(peer, receiver, space, 0),
        }
    }

    /// Tells a receive that no more than these bytes of its message come, and whether this rank knows of a loss that may be
    /// why: then the receiver's call has failed by that loss, too, and not only by what has happened here.
    fn tell_of_end(&mut self, peer: usize, receiver: OperationId, space: u64, sent: usize) {
        let total = u64::from(self.knows_of_loss(space));
        self.reply(peer, Header { id: receiver, tag: sent as u64, total, ..Header::new(Kind::Abandon) });
    }

    pub(crate) fn finish_send(&mut self, id: OperationId, result: Result<()>) {
        self.news += 1;
        let Some(send) = self.sends.get_mut(&id).filter(|send| send.done.is_none()) else { return };
        if send.detached {
            self.sends.remove(&id);
        } else {
            send.done = Some(result);
        }
    }

    /// Nobody will wait for this send. Its bytes must stay until they are sent when it owns them; lent ones are gone.
    pub(crate) fn abandon_send(&mut self, id: OperationId) {
        let Some(send) = self.sends.get_mut(&id) else { return };
        if send.done.is_none() && matches!(send.source, Source::Owned(_)) {
            send.detached = true;
            return;
        }
        self.stop_send(id);
        let Some(send) = self.sends.remove(&id) else { return };
        self.release(send.peer);
    }

    /// A send will not go on: gives back what it has reserved, and tells a receiver that waits for the rest.
    pub(in crate::engine) fn stop_send(&mut self, id: OperationId) {
        let Some(send) = self.sends.get(&id).filter(|send| send.done.is_none()) else { return };
        let flow = &mut self.peers[send.peer].flow;
        match (send.stage, send.receiver) {
            (Stage::Queued, _) if send.header.kind == Kind::Eager as u8 => flow.take_back(send.total()),
            // It was counted when it was queued.
            (Stage::Queued, _) => drop(flow.answered()),
            (Stage::Gone, Some(receiver)) => {
                let (peer, space, sent) = (send.peer, send.header.context, send.sent);
                self.tell_of_end(peer, receiver, space, sent);
            }
            // When the receiver asks for it, it will hear that nothing comes.
            (Stage::Gone, None) | (Stage::Held, _) => {}
        }
    }
}
