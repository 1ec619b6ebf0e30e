//! Records between the ranks of one host, through the lanes of their segment.
//!
//! A rank that sleeps says so in its flag; whoever changes something it may wait for (bytes arrived, room made) then
//! writes its eventfd. Flag and stamp are two words on two sides (Dekker's pattern), which takes a full fence on both: with
//! every message, which would wait until the receiver's core has given the cell away. Where the kernel lets it, the rank that
//! is about to sleep makes the others pass their fence (membarrier(2)), and messages go without. Ranks that share their
//! processors sleep so often that this would not pay.

use super::{
    Departure, Sink, Transport,
    record::{Header, Kind, Payload},
};
use crate::{
    error::{Context, Error, Result},
    memory::{
        MappedLane, Segment,
        lane::{Cell, Consumer, LaneMemory, Producer},
        peer::{self, Proof},
        stores::{Chooser, LONG, MEASURED, Sample, Side},
    },
    protocol::{Capabilities, Channels, DirectRead, Tier},
};
use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

/// With more ranks on a host none makes barriers: each of them interrupts all others, whatever they compute.
const BARRIERS: usize = 16;
/// The largest payload that travels within the cell.
const INLINE: usize = 32;
/// Pieces of a large message that a lane holds at least at once: enough to copy in and out at the same time.
const PIECES: usize = 8;
/// The largest piece: in the time of more, both sides would wait for each other.
const PIECE: usize = 32 << 10;
/// Polls between two looks at who has finished: that is one more cache line a peer.
const LOOK_EVERY: u32 = 64;
/// Records taken from one peer in one poll: others get their turn, and replies leave.
const BURST: usize = 64;

/// The rings to and from every other rank of this host.
#[derive(Debug)]
pub(crate) struct SharedMemory {
    segment: Arc<Segment>,
    /// This rank's place among the ranks of its host.
    local: usize,
    /// For every rank of the world its place on this host.
    local_of: Vec<Option<u32>>,
    /// For every place the rank of the world and its two lanes; none for ourselves.
    peers: Vec<Option<Peer>>,
    /// Places whose lane to us is in use. Others are not looked at: that alone would make the kernel find memory for
    /// them, and there are as many as pairs of ranks.
    active: Vec<usize>,
    /// Which of `active` is looked at first: one after the other, so that none has to wait for all others to be empty.
    first: usize,
    /// Those of `active`, as the segment says it: in words of 64 places.
    announced: Vec<u64>,
    wake: Vec<OwnedFd>,
    direct_read: DirectRead,
    /// Peers check it as long as they may read our memory.
    _proof: Proof,
    /// Bytes of a lane's ring, and of the largest payload.
    ring: usize,
    largest: usize,
    /// Polls since we last looked who has finished.
    since_look: u32,
    /// Sleeping ranks that were woken.
    wake_ups: u64,
}

/// What a rank is on its host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Own {
    /// Its place among the ranks there.
    pub(crate) place: usize,
    /// From which size on receivers are to copy messages out of the sender's memory.
    pub(crate) direct_read: DirectRead,
    /// It shares its processor with other ranks, and sleeps as soon as it waits.
    pub(crate) sleeps_often: bool,
}

/// Lanes are taken in hand when they are first used.
#[derive(Debug)]
struct Peer {
    rank: usize,
    out: Option<Producer<MappedLane>>,
    inn: Option<Consumer<MappedLane>>,
    stores: Chooser,
    /// Long payloads sent and received.
    long: [Long; 2],
    /// How long one of the last long payloads took us to write: goes out with the next one.
    written: Option<Sample>,
    departed: bool,
}

impl Peer {
    fn new(rank: usize) -> Self {
        Peer {
            rank,
            out: None,
            inn: None,
            stores: Chooser::default(),
            long: [Long::default(); 2],
            written: None,
            departed: false,
        }
    }
}

impl SharedMemory {
    /// The rings of a rank among `ranks` (the ranks of this host, by place) of a world of so many.
    pub(crate) fn new(segment: Arc<Segment>, own: Own, ranks: &[usize], world: usize, wake: Vec<OwnedFd>) -> Self {
        let Own { place: local, direct_read, sleeps_often } = own;
        if !sleeps_often && ranks.len() <= BARRIERS {
            segment.make_barriers(local);
        }
        let proof = Proof::publish(&segment, local);
        let mut local_of = vec![None; world];
        let mut peers = Vec::with_capacity(ranks.len());
        for (place, &rank) in ranks.iter().enumerate() {
            local_of[rank] = u32::try_from(place).ok();
            peers.push((place != local).then_some(Peer::new(rank)));
        }
        let ring = segment.lane(local, local).byte_capacity();
        let largest = PIECE.min(ring / PIECES);
        let announced = vec![0; ranks.len().div_ceil(64)];
        SharedMemory {
            segment,
            local,
            local_of,
            peers,
            active: Vec::new(),
            first: 0,
            announced,
            wake,
            direct_read,
            _proof: proof,
            ring,
            largest,
            since_look: 0,
            wake_ups: 0,
        }
    }

    /// Takes lanes in hand that peers have begun to use.
    fn find_active(&mut self) {
        for (index, known) in self.announced.iter_mut().enumerate() {
            let now = self.segment.announced(self.local, index);
            let mut new = now & !*known;
            if new == 0 {
                continue;
            }
            *known |= now;
            while new != 0 {
                let place = 64 * index + new.trailing_zeros() as usize;
                new &= new - 1;
                if let Some(Some(peer)) = self.peers.get_mut(place) {
                    peer.inn = Some(Consumer::new(self.segment.lane(place, self.local)));
                    self.active.push(place);
                }
            }
        }
    }

    /// Tells who has dropped its world; `true` when anybody has.
    fn find_departed(&mut self, sink: &mut dyn Sink) -> bool {
        let mut moved = false;
        for place in 0..self.peers.len() {
            let gone = self.peers[place].as_ref().is_some_and(|peer| !peer.departed)
                && self.segment.finished(place).load(Ordering::Acquire) != 0;
            if !gone {
                continue;
            }
            moved = true;
            // The flag was set after the last record was published: look once more.
            self.find_active();
            let Some(peer) = self.peers[place].as_mut() else { continue };
            if peer.inn.as_mut().is_none_or(|lane| lane.peek().is_none()) {
                peer.departed = true;
                sink.departed(peer.rank, Departure::Finished);
            }
        }
        moved
    }

    /// The eventfd that wakes this rank.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.wake[self.local].as_fd()
    }

    /// Wakes the rank at `place` if it sleeps.
    #[inline]
    fn wake(&mut self, place: usize) -> Result<()> {
        if self.segment.looks().sleeps(place) && self.segment.sleeping(place).swap(0, Ordering::AcqRel) != 0 {
            return self.ring_bell(place);
        }
        Ok(())
    }

    #[cold]
    fn ring_bell(&mut self, place: usize) -> Result<()> {
        self.wake_ups += 1;
        match rustix::io::write(&self.wake[place], &1_u64.to_ne_bytes()) {
            // The counter is full: it has been rung already.
            Ok(_) | Err(rustix::io::Errno::AGAIN) => Ok(()),
            Err(error) => Err(error).context(format!("waking rank at place {place} of this host")),
        }
    }
}

impl Transport for SharedMemory {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            name: "shm",
            inline: INLINE,
            eager: self.largest,
            piece: self.largest,
            channels: Channels::One { why: "shared memory moves every size over one lane, without system calls" },
            direct_read: self.direct_read,
            slow_poll: false,
            gathers: false,
        }
    }

    fn push(&mut self, peer: usize, header: &Header, payload: &[u8], _tier: Tier, _later: bool) -> Result<bool> {
        let Some(place) = self.local_of[peer].map(|place| place as usize) else { return Ok(false) };
        let Some(to) = self.peers[place].as_mut() else { return Ok(false) };
        let (mut cell, bytes) = pack(header, payload);
        let out = to.out.get_or_insert_with(|| {
            self.segment.announce(self.local, place);
            Producer::new(self.segment.lane(self.local, place))
        });
        if bytes.len() < LONG {
            if !out.push(&cell, bytes) {
                return Ok(false);
            }
        } else {
            cell.words[WRITTEN] = to.written.map_or(0, Sample::pack);
            let begun = to.long[0].is_measured(bytes.len(), self.ring).then(Instant::now);
            if !out.push(&cell, bytes) {
                return Ok(false);
            }
            to.written = begun.map(|begun| Sample::new(out.stores(), bytes.len(), begun.elapsed()));
        }
        self.wake(place)?;
        Ok(true)
    }

    fn poll(&mut self, sink: &mut dyn Sink) -> Result<bool> {
        let mut moved = false;
        self.find_active();
        let (first, mut served) = (self.first, false);
        for at in (first..self.active.len()).chain(0..first) {
            let place = self.active[at];
            let Some(Peer { rank, inn: Some(lane), stores, long, .. }) = self.peers[place].as_mut() else { continue };
            let (mut taken, mut released) = (0, false);
            while taken < BURST
                && !served
                && let Some(cell) = lane.peek()
            {
                let bytes = payload_of(&cell);
                if bytes < LONG {
                    released |= receive(*rank, lane, &cell, sink)?;
                } else {
                    if let Some(written) = Sample::unpack(cell.words[WRITTEN]) {
                        stores.sample(Side::Write, written);
                    }
                    let begun = long[1].is_measured(bytes, lane.capacity()).then(|| (lane.stores(), Instant::now()));
                    released |= receive(*rank, lane, &cell, sink)?;
                    if let Some((kind, begun)) = begun {
                        stores.sample(Side::Read, Sample::new(kind, bytes, begun.elapsed()));
                        lane.advise(stores.advice(kind, bytes));
                    }
                }
                taken += 1;
                served = sink.is_served();
            }
            if taken > 0 {
                moved = true;
                lane.publish();
                if released {
                    // It may sleep because its lane was full.
                    self.wake(place)?;
                }
            }
            if served {
                self.first = (at + 1) % self.active.len();
                break;
            }
        }
        self.since_look += 1;
        if self.since_look >= LOOK_EVERY {
            self.since_look = 0;
            moved |= self.find_departed(sink);
        }
        Ok(moved)
    }

    fn counters(&self, tell: &mut dyn FnMut(&'static str, u64)) {
        tell("wake-ups", self.wake_ups);
    }

    fn read_memory(&mut self, peer: usize, address: u64, out: &mut [u8]) -> bool {
        self.local_of[peer].is_some_and(|place| peer::read(&self.segment, place as usize, address, out))
    }

    fn withdrawals(&self) -> u64 {
        peer::withdrawals(&self.segment, self.local)
    }

    fn withdrawals_of(&self, peer: usize) -> u64 {
        self.local_of[peer].map_or(0, |place| peer::withdrawals(&self.segment, place as usize))
    }

    fn withdraw(&mut self) {
        peer::withdraw(&self.segment, self.local);
    }

    fn nudge(&mut self, peer: usize) -> Result<()> {
        match self.local_of[peer] {
            Some(place) => self.wake(place as usize),
            None => Ok(()),
        }
    }

    fn peer_finished(&mut self, _: usize) {
        // The next poll looks who it is.
        self.since_look = LOOK_EVERY;
    }

    fn arm(&mut self) {
        self.since_look = LOOK_EVERY;
        self.segment.arm(self.local);
    }

    fn disarm(&mut self) {
        self.segment.sleeping(self.local).store(0, Ordering::Relaxed);
        // Reset the counter, or the next sleep would end at once. Nothing to read is fine.
        let _ = rustix::io::read(&self.wake[self.local], &mut [0_u8; 8]);
    }

    fn finish(&mut self) -> Result<bool> {
        self.segment.finished(self.local).store(1, Ordering::Release);
        let local = self.local;
        for place in (0..self.peers.len()).filter(|place| *place != local) {
            self.wake(place)?;
        }
        Ok(true)
    }
}

/// A record as a cell: kind and inline length in the flags, then signature and payload length, context, tag, and either
/// the payload or the total and the id. What is inline needs neither: it is a whole message.
fn pack<'a>(header: &Header, payload: &'a [u8]) -> (Cell, &'a [u8]) {
    let mut words =
        [u64::from(header.signature) | u64::from(header.payload) << 32, header.context, header.tag, 0, 0, 0, 0];
    let inline = header.kind == Kind::Eager as u8 && payload.len() <= INLINE;
    if inline {
        bytemuck::bytes_of_mut(&mut words)[3 * 8..3 * 8 + payload.len()].copy_from_slice(payload);
        return (Cell { flags: u32::from(header.kind) | IS_INLINE, words }, &[]);
    }
    words[3] = header.total;
    words[4] = header.id;
    (Cell { flags: u32::from(header.kind), words }, payload)
}

/// The word of a cell with a long payload that says how long an earlier one took to write.
const WRITTEN: usize = 5;

/// Counts long payloads in one direction.
#[derive(Clone, Copy, Debug, Default)]
struct Long {
    payloads: u32,
    bytes: usize,
}

impl Long {
    /// Counts one more; whether it is one that is measured. Those of the first lap are not: what takes long there is
    /// that the kernel finds memory for the ring.
    fn is_measured(&mut self, bytes: usize, ring: usize) -> bool {
        self.payloads = self.payloads.wrapping_add(1);
        if self.bytes < ring {
            self.bytes += bytes;
            return false;
        }
        self.payloads.is_multiple_of(MEASURED)
    }
}

/// Bytes of payload of the record in a cell.
fn payload_of(cell: &Cell) -> usize {
    (cell.words[0] >> 32) as usize
}

/// Set in a cell's flags when the payload is in the cell.
const IS_INLINE: u32 = 1 << 8;

/// The header in a cell; `None` when no correct peer writes such a cell.
fn unpack(cell: &Cell) -> Option<Header> {
    let [first, context, tag, total, id, ..] = cell.words;
    let kind = Kind::from_byte(u8::try_from(cell.flags & !IS_INLINE).ok()?)?;
    let payload = u32::try_from(first >> 32).ok()?;
    let signature = u32::try_from(first & u64::from(u32::MAX)).ok()?;
    let header = Header { signature, context, tag, payload, ..Header::new(kind) };
    if cell.flags & IS_INLINE == 0 {
        return Some(Header { total, id, ..header });
    }
    (kind == Kind::Eager && payload as usize <= INLINE).then_some(Header { total: u64::from(payload), ..header })
}

/// Takes one record out of the lane from `peer`; `true` when that made room that the peer may wait for.
fn receive(peer: usize, lane: &mut Consumer<MappedLane>, cell: &Cell, sink: &mut dyn Sink) -> Result<bool> {
    let corrupt = |what| Error::Corrupt { peer, what };
    let header = unpack(cell).ok_or_else(|| corrupt("a cell that is no record"))?;
    let length = header.payload as usize;
    if cell.flags & IS_INLINE != 0 {
        let mut payload = &bytemuck::bytes_of(&cell.words)[3 * 8..3 * 8 + length];
        sink.record(peer, &header, &mut payload as &mut dyn Payload)?;
        return Ok(lane.release(0));
    }
    if length > lane.capacity() {
        return Err(corrupt("a length beyond the lane"));
    }
    let mut payload = InLane { lane: &*lane, at: 0, left: length };
    sink.record(peer, &header, &mut payload)?;
    Ok(lane.release(length))
}

/// A payload that still lies in the lane.
struct InLane<'a, M> {
    lane: &'a Consumer<M>,
    at: usize,
    left: usize,
}

impl<M: LaneMemory> Payload for InLane<'_, M> {
    fn len(&self) -> usize {
        self.left
    }

    fn copy_to(&mut self, out: &mut [u8]) -> usize {
        self.lane.read(self.at, out);
        self.at += out.len();
        self.left -= out.len();
        out.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_record_survives_its_cell() {
        let payload: Vec<u8> = (0..100).collect();
        for kind in [
            Kind::Eager,
            Kind::RequestToSend,
            Kind::ClearToSend,
            Kind::Discard,
            Kind::Data,
            Kind::Abandon,
            Kind::Credit,
            Kind::Revoke,
        ] {
            for length in [0, 1, INLINE - 1, INLINE, INLINE + 1, 100] {
                let total = if kind == Kind::Eager { length as u64 } else { u64::MAX - 1 };
                let header = Header {
                    signature: 0xdead_beef,
                    context: u64::MAX - 2,
                    tag: u64::MAX - 3,
                    total,
                    id: 7,
                    payload: u32::try_from(length).unwrap(),
                    ..Header::new(kind)
                };
                let (cell, bytes) = pack(&header, &payload[..length]);
                let inline = kind == Kind::Eager && length <= INLINE;
                assert_eq!(bytes.len(), if inline { 0 } else { length });
                let id = if inline { 0 } else { 7 };
                assert_eq!(unpack(&cell), Some(Header { id, ..header }));
            }
        }
    }

    #[test]
    fn cells_that_no_peer_writes_are_refused() {
        let words = [0; 7];
        for flags in [0, 99, IS_INLINE, IS_INLINE | Kind::Data as u32, 1 << 20 | Kind::Eager as u32] {
            assert_eq!(unpack(&Cell { flags, words }), None, "{flags:x}");
        }
        let too_long =
            Cell { flags: Kind::Eager as u32 | IS_INLINE, words: [(INLINE as u64 + 1) << 32, 0, 0, 0, 0, 0, 0] };
        assert_eq!(unpack(&too_long), None);
    }
}
