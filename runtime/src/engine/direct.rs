//! Large messages that their receiver copies itself: out of the sender's memory, or out of a symmetric heap that is
//! mapped here. One copy instead of two, and the sender need not take part.
//!
//! The announcement says where the bytes are. The receiver copies them in bounded steps and then tells the sender that it
//! is done; when anything is in the way, it asks for the pieces instead, as if nothing had been offered. A sender that
//! gives up while its bytes may be read raises its transport's count of withdrawals before it lets go of them: a receiver
//! that finds another count than was announced throws away what it has copied (as readers of a sequence lock do).

use super::{
    Engine, Route,
    core::{Core, Outgoing},
    operation::{Buffers, Landing, OperationId, Sending, Source},
};
use crate::{
    memory::heap::HeapMemory,
    transport::{
        HeapKey, Transport,
        record::{Header, Kind, Payload},
    },
};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Bytes copied at once, so that the kernel does not keep the processor for long; and in one round of progress, so that
/// other peers get their turn.
const STEP: usize = 256 << 10;
const ROUND: usize = 1 << 20;
/// Bytes on their way through private memory into a heap.
const STAGE: usize = 32 << 10;

/// Where the bytes of an announced message are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    /// The sender's count of withdrawals when it announced.
    withdrawals: u64,
    place: OfferedPlace,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OfferedPlace {
    /// At this address of the sender's process.
    Memory(u64),
    /// In a part of a heap: offset.
    Heap { key: HeapKey, part: u64, at: u64 },
}

impl Offer {
    pub(super) fn memory(bytes: &[u8], withdrawals: u64) -> Self {
        Offer { withdrawals, place: OfferedPlace::Memory(bytes.as_ptr().expose_provenance() as u64) }
    }

    fn heap(place: &HeapPlace, withdrawals: u64) -> Self {
        let (part, at) = (place.memory.own() as u64, place.at as u64);
        Offer { withdrawals, place: OfferedPlace::Heap { key: place.key, part, at } }
    }

    /// The payload of the announcement.
    pub(super) fn pack(&self) -> Vec<u8> {
        let words = match self.place {
            OfferedPlace::Memory(address) => vec![self.withdrawals, address],
            OfferedPlace::Heap { key: (context, number), part, at } => {
                vec![self.withdrawals, context, number, part, at]
            }
        };
        bytemuck::cast_slice(&words).to_vec()
    }

    /// The other way. `Err`: no peer announces that.
    pub(super) fn unpack(payload: &[u8]) -> Result<Option<Self>, ()> {
        let words: Vec<u64> = payload.as_chunks().0.iter().map(|word: &[u8; 8]| u64::from_ne_bytes(*word)).collect();
        match (payload.len(), words.as_slice()) {
            (0, _) => Ok(None),
            (16, &[withdrawals, address]) => Ok(Some(Offer { withdrawals, place: OfferedPlace::Memory(address) })),
            (40, &[withdrawals, context, number, part, at]) => {
                let place = OfferedPlace::Heap { key: (context, number), part, at };
                Ok(Some(Offer { withdrawals, place }))
            }
            _ => Err(()),
        }
    }
}

/// A place in this rank's part of a heap, to send from or to receive into.
#[derive(Clone, Debug)]
pub(crate) struct HeapPlace {
    pub(crate) memory: Arc<HeapMemory>,
    pub(crate) key: HeapKey,
    pub(crate) at: usize,
    pub(crate) bytes: usize,
}

impl HeapPlace {
    /// Takes what is there of a payload to `at` bytes behind the place. Returns how much.
    pub(super) fn take(&self, at: usize, payload: &mut dyn Payload) -> usize {
        let mut stage = [0; 4096];
        let mut done = 0;
        loop {
            let most = payload.len().min(stage.len());
            let copied = payload.copy_to(&mut stage[..most]);
            self.memory.write(self.memory.own(), self.at + at + done, &stage[..copied]);
            done += copied;
            if copied < most || payload.len() == 0 {
                return done;
            }
        }
    }

    /// A copy of the bytes that are there.
    pub(super) fn copied(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.bytes];
        self.memory.read(self.memory.own(), self.at, &mut bytes);
        bytes
    }
}

/// An offered message that is being copied.
#[derive(Debug)]
pub(super) struct Fetch {
    /// The receive.
    pub(super) id: OperationId,
    pub(super) peer: usize,
    /// The sender's name for the message.
    pub(super) sender: OperationId,
    pub(super) offer: Offer,
    /// Bytes copied so far.
    pub(super) done: usize,
}

enum Copied {
    Some(usize),
    /// The landing is not lent now.
    NotNow,
    Refused,
}

/// The offer of a send whose announcement goes out now, if it makes one. `Err`: its bytes are not lent now.
pub(super) fn offer(send: &Sending, transport: &dyn Transport, buffers: &dyn Buffers) -> Result<Option<Offer>, ()> {
    match &send.source {
        Source::Heap(place) => Ok(Some(Offer::heap(place, transport.withdrawals()))),
        _ if send.path != crate::protocol::Path::DirectRead => Ok(None),
        _ => super::outbox::bytes_of(send, buffers)
            .map(|bytes| Some(Offer::memory(bytes, transport.withdrawals())))
            .ok_or(()),
    }
}

impl Engine {
    /// Copies what has been offered, a bounded amount; `true` when anything moved.
    pub(super) fn fetch(&mut self, buffers: &mut dyn Buffers) -> bool {
        let (mut moved, mut left) = (false, ROUND);
        for _ in 0..self.core.fetches.len() {
            let Some(mut fetch) = self.core.fetches.pop_front() else { break };
            let Route { transport, .. } = &mut self.routes.routes[self.routes.to[fetch.peer]];
            let mut refused = false;
            let complete = loop {
                let Core { receives, one_sided, .. } = &mut self.core;
                // Gone: its peer is lost.
                let Some(receive) = receives.get_mut(fetch.id) else { break None };
                let Some(arriving) = receive.arriving.as_ref() else { break None };
                let envelope = arriving.envelope;
                let total = envelope.bytes;
                if fetch.done == total || matches!(receive.landing, Landing::Nowhere) {
                    break Some(envelope);
                }
                if left == 0 {
                    break None;
                }
                let bytes = (total - fetch.done).min(STEP).min(left);
                match copy(&fetch, bytes, &mut receive.landing, one_sided.heaps(), &mut **transport, buffers) {
                    Copied::Some(bytes) => {
                        fetch.done += bytes;
                        left -= bytes;
                        moved = true;
                    }
                    Copied::NotNow => break None,
                    Copied::Refused => {
                        refused = true;
                        break None;
                    }
                }
            };
            let is_nowhere =
                self.core.receives.get(fetch.id).is_none_or(|receive| matches!(receive.landing, Landing::Nowhere));
            let valid = is_nowhere || transport.withdrawals_of(fetch.peer) == fetch.offer.withdrawals;
            match complete {
                Some(envelope) if valid => {
                    moved = true;
                    let done = Header { id: fetch.sender, ..Header::new(Kind::Discard) };
                    self.core.enqueue(fetch.peer, Outgoing::Record(done));
                    self.core.complete(fetch.id, envelope, buffers);
                }
                Some(_) => refused = true,
                None if !refused
                    && self.core.receives.get(fetch.id).is_some_and(|receive| receive.arriving.is_some()) =>
                {
                    self.core.fetches.push_back(fetch);
                    continue;
                }
                None => {}
            }
            if refused {
                moved = true;
                let context = self.core.receives.get(fetch.id).map_or(0, |receive| receive.context);
                let ask = Header { id: fetch.sender, tag: fetch.id, context, ..Header::new(Kind::ClearToSend) };
                self.core.enqueue(fetch.peer, Outgoing::Record(ask));
            }
        }
        moved
    }

    /// Before a send whose bytes may be read by its receiver is given up.
    pub(super) fn withdraw(&mut self, id: OperationId) {
        let Some(send) = self.core.sends.get(&id) else { return };
        let offered = send.path == crate::protocol::Path::DirectRead || matches!(send.source, Source::Heap(_));
        if offered && send.done.is_none() && !matches!(send.source, Source::Owned(_)) {
            let peer = send.peer;
            self.transport(peer).withdraw();
        }
    }

    /// Before everything is given up.
    pub(crate) fn withdraw_all(&mut self) {
        self.routes.routes.iter_mut().for_each(|route| route.transport.withdraw());
    }
}

/// Copies the next bytes of an offered message, at most so many.
fn copy(
    fetch: &Fetch,
    bytes: usize,
    landing: &mut Landing,
    heaps: &FxHashMap<HeapKey, Arc<HeapMemory>>,
    transport: &mut dyn Transport,
    buffers: &mut dyn Buffers,
) -> Copied {
    let range = fetch.done..fetch.done + bytes;
    let mut into = |out: &mut [u8]| read(fetch, heaps, transport, out);
    let room = match landing {
        Landing::Owned(buffer) | Landing::Growing(buffer) => &mut buffer.bytes_mut()[range],
        Landing::Lent(lent) => match buffers.destination(*lent) {
            Some(room) => &mut room[range],
            None => return Copied::NotNow,
        },
        Landing::Heap(place) => {
            let to = place.at + fetch.done;
            if let OfferedPlace::Heap { key, part, at } = fetch.offer.place
                && key == place.key
            {
                let (part, at) = (crate::memory::index(part), crate::memory::index(at));
                let Some(from) = at.checked_add(fetch.done).filter(|from| place.memory.has(part, *from, bytes)) else {
                    return Copied::Refused;
                };
                return if place.memory.transfer((part, from), (place.memory.own(), to), bytes) {
                    Copied::Some(bytes)
                } else {
                    Copied::Refused
                };
            }
            let mut stage = vec![0; bytes.min(STAGE)];
            if !into(&mut stage) {
                return Copied::Refused;
            }
            place.memory.write(place.memory.own(), to, &stage);
            return Copied::Some(stage.len());
        }
        Landing::Nowhere => return Copied::Some(bytes),
    };
    if into(room) { Copied::Some(bytes) } else { Copied::Refused }
}

/// Fills `out` from where the fetch is; `false` when that cannot be read.
fn read(
    fetch: &Fetch,
    heaps: &FxHashMap<HeapKey, Arc<HeapMemory>>,
    transport: &mut dyn Transport,
    out: &mut [u8],
) -> bool {
    match fetch.offer.place {
        OfferedPlace::Memory(address) => {
            let from = address.checked_add(fetch.done as u64);
            from.is_some_and(|from| transport.read_memory(fetch.peer, from, out))
        }
        OfferedPlace::Heap { key, part, at } => {
            let (part, from) = (crate::memory::index(part), crate::memory::index(at).checked_add(fetch.done));
            match (heaps.get(&key), from) {
                (Some(heap), Some(from)) if heap.has(part, from, out.len()) => {
                    heap.read(part, from, out);
                    true
                }
                _ => false,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_offer_survives_its_announcement_and_others_are_refused() {
        let heap = OfferedPlace::Heap { key: (1, 2), part: 3, at: 4 };
        for place in [OfferedPlace::Memory(u64::MAX), heap] {
            let offer = Offer { withdrawals: 9, place };
            assert_eq!(Offer::unpack(&offer.pack()), Ok(Some(offer)));
        }
        assert_eq!(Offer::unpack(&[]), Ok(None));
        for length in [1, 8, 15, 17, 24, 39, 41, 48] {
            assert_eq!(Offer::unpack(&vec![0; length]), Err(()), "{length}");
        }
    }
}
