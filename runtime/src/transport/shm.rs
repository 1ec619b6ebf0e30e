//! Records between the ranks of one host, through the rings of their segment.
//!
//! A rank that sleeps says so in its flag; whoever changes something it may wait for (bytes arrived, room made) then
//! writes its eventfd. Flag and ring position are two words on two sides (Dekker's pattern), hence the full fences.

use super::{
    Departure, Sink, Transport,
    record::{HEADER, Header, Kind, Payload},
};
use crate::{
    error::{Context, Error, Result},
    memory::{
        MappedRing, Segment,
        ring::{Consumer, Producer, RingMemory},
    },
};
use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc,
        atomic::{Ordering, fence},
    },
};

/// Records are padded to this, so that headers stay aligned in the ring.
const ALIGN: usize = 8;
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
    /// For every place the rank of the world, its two rings and its eventfd; none for ourselves.
    peers: Vec<Option<Peer>>,
    /// Places whose ring to us is in use. Others are not looked at: that alone would make the kernel find memory for
    /// them, and there are as many as pairs of ranks.
    active: Vec<usize>,
    /// Those of `active`, as the segment says it: in words of 64 places.
    announced: Vec<u64>,
    wake: Vec<OwnedFd>,
    largest: usize,
}

/// Rings are taken in hand when they are first used.
#[derive(Debug)]
struct Peer {
    rank: usize,
    out: Option<Producer<MappedRing>>,
    inn: Option<Consumer<MappedRing>>,
    departed: bool,
}

impl SharedMemory {
    /// The rings of the rank at place `local` among `ranks` (the ranks of this host, by place).
    pub(crate) fn new(segment: Arc<Segment>, local: usize, ranks: &[usize], world: usize, wake: Vec<OwnedFd>) -> Self {
        let mut local_of = vec![None; world];
        let mut peers = Vec::with_capacity(ranks.len());
        for (place, &rank) in ranks.iter().enumerate() {
            local_of[rank] = u32::try_from(place).ok();
            peers.push((place != local).then_some(Peer { rank, out: None, inn: None, departed: false }));
        }
        let largest = (segment.ring(local, local).capacity() / 4).saturating_sub(HEADER) & !(ALIGN - 1);
        let announced = vec![0; ranks.len().div_ceil(64)];
        SharedMemory { segment, local, local_of, peers, active: Vec::new(), announced, wake, largest }
    }

    /// Takes rings in hand that peers have begun to use.
    fn find_active(&mut self) {
        for (index, known) in self.announced.iter_mut().enumerate() {
            let now = self.segment.announced(self.local, index);
            let mut new = now & !*known;
            *known |= now;
            while new != 0 {
                let place = 64 * index + new.trailing_zeros() as usize;
                new &= new - 1;
                if let Some(Some(peer)) = self.peers.get_mut(place) {
                    peer.inn = Some(Consumer::new(self.segment.ring(place, self.local)));
                    self.active.push(place);
                }
            }
        }
    }

    /// The eventfd that wakes this rank.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.wake[self.local].as_fd()
    }

    /// Wakes the rank at `place` if it sleeps.
    fn wake(&self, place: usize) -> Result<()> {
        fence(Ordering::SeqCst);
        let sleeping = self.segment.sleeping(place);
        if sleeping.load(Ordering::Relaxed) != 0 && sleeping.swap(0, Ordering::AcqRel) != 0 {
            self.ring_bell(place)?;
        }
        Ok(())
    }

    fn ring_bell(&self, place: usize) -> Result<()> {
        match rustix::io::write(&self.wake[place], &1_u64.to_ne_bytes()) {
            // The counter is full: it has been rung already.
            Ok(_) | Err(rustix::io::Errno::AGAIN) => Ok(()),
            Err(error) => Err(error).context(format!("waking rank at place {place} of this host")),
        }
    }
}

impl Transport for SharedMemory {
    fn push(&mut self, peer: usize, header: &Header, payload: &[u8]) -> Result<bool> {
        let Some(place) = self.local_of[peer].map(|place| place as usize) else { return Ok(false) };
        let Some(to) = self.peers[place].as_mut() else { return Ok(false) };
        let padding = payload.len().wrapping_neg() % ALIGN;
        let out = to.out.get_or_insert_with(|| {
            self.segment.announce(self.local, place);
            Producer::new(self.segment.ring(self.local, place))
        });
        if !out.push(&[bytemuck::bytes_of(header), payload, &[0; ALIGN][..padding]]) {
            return Ok(false);
        }
        self.wake(place)?;
        Ok(true)
    }

    fn largest_payload(&self) -> usize {
        self.largest
    }

    fn poll(&mut self, sink: &mut dyn Sink) -> Result<bool> {
        let mut moved = false;
        self.find_active();
        for at in 0..self.active.len() {
            let place = self.active[at];
            let Some(peer) = self.peers[place].as_mut() else { continue };
            let rank = peer.rank;
            let Some(ring) = peer.inn.as_mut() else { continue };
            let mut taken = 0;
            while taken < BURST && ring.available() > 0 {
                receive(rank, ring, sink)?;
                taken += 1;
            }
            if taken > 0 {
                moved = true;
                // It may sleep because its ring was full.
                self.wake(place)?;
            }
        }
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
            if peer.inn.as_mut().is_none_or(|ring| ring.available() == 0) {
                peer.departed = true;
                sink.departed(peer.rank, Departure::Finished);
            }
        }
        Ok(moved)
    }

    fn arm(&mut self) {
        self.segment.sleeping(self.local).store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    fn disarm(&mut self) {
        self.segment.sleeping(self.local).store(0, Ordering::Relaxed);
        // Reset the counter, or the next sleep would end at once. Nothing to read is fine.
        let _ = rustix::io::read(&self.wake[self.local], &mut [0_u8; 8]);
    }

    fn finish(&mut self) -> Result<bool> {
        self.segment.finished(self.local).store(1, Ordering::Release);
        for place in (0..self.peers.len()).filter(|place| *place != self.local) {
            self.wake(place)?;
        }
        Ok(true)
    }
}

/// Takes one record out of the ring from rank `peer`.
fn receive(peer: usize, ring: &mut Consumer<MappedRing>, sink: &mut dyn Sink) -> Result<()> {
    let corrupt = |what| Error::Corrupt { peer, what };
    let available = ring.available();
    if available < HEADER {
        return Err(corrupt("half a header"));
    }
    let mut bytes = [0; HEADER];
    ring.peek(0, &mut bytes);
    let header = Header::from_bytes(&bytes);
    let length = (header.payload as usize).next_multiple_of(ALIGN);
    if Kind::from_byte(header.kind).is_none() || available - HEADER < length {
        return Err(corrupt("unknown kind or length"));
    }
    let mut payload = InRing { ring: &*ring, at: HEADER, left: header.payload as usize };
    let delivered = sink.record(peer, &header, &mut payload);
    ring.release(HEADER + length);
    delivered
}

/// A payload that still lies in the ring.
struct InRing<'a, M> {
    ring: &'a Consumer<M>,
    at: usize,
    left: usize,
}

impl<M: RingMemory> Payload for InRing<'_, M> {
    fn len(&self) -> usize {
        self.left
    }

    fn copy_to(&mut self, out: &mut [u8]) {
        self.ring.peek(self.at, out);
        self.at += out.len();
        self.left -= out.len();
    }
}
