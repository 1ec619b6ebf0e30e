//! A transport that behaves as badly as it may: for tests of the runtime and of programs (`--set faulty.seed=1`).
//!
//! Whatever it does is allowed by the contract of [`Transport`], and follows from the seed and from what the transport
//! below delivers when. It knows no messages, only which records may leave their order: pieces.

use super::{
    Departure, Sink, Transport,
    record::{Header, Kind, Payload},
};
use crate::{
    config::{Snapshot, keys},
    error::Result,
    explain::PortUsed,
    protocol::{Capabilities, Tier},
    statistics::DeviceStatistics,
};
use std::collections::VecDeque;

/// What goes wrong (`faulty.faults`).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    seed: u64,
    /// Whose transport it is: every rank has other luck.
    rank: usize,
    /// The size of the world.
    ranks: usize,
    /// Records are held back for some polls.
    delay: bool,
    /// A push is refused although there is room.
    refuse: bool,
    /// Pieces come in several parts.
    split: bool,
    /// Pieces leave their order.
    reorder: bool,
    /// Connections break.
    sever: bool,
    /// A peer is lost after this many records from it.
    lose_after: Option<u64>,
}

impl Faults {
    /// What the configuration asks for (`faulty.*`) from the transports of this rank of `ranks`; `None`: nothing.
    pub(crate) fn named(snapshot: &Snapshot, rank: usize, ranks: usize) -> Option<Self> {
        let words = snapshot.get(keys::FAULTY_FAULTS);
        let has = |word: &str| words.split(',').any(|other| other.trim() == word);
        let lose_after = snapshot.get(keys::FAULTY_LOSE_AFTER);
        let seed = snapshot.get(keys::FAULTY_SEED);
        (seed != 0).then(|| Faults {
            seed,
            rank,
            ranks,
            delay: has("delay"),
            refuse: has("refuse"),
            split: has("split"),
            reorder: has("reorder"),
            sever: has("sever"),
            lose_after: (lose_after > 0).then_some(lose_after),
        })
    }
}

/// The transport, with these faults if there are any.
pub(crate) fn maybe(faults: Option<Faults>, inner: Box<dyn Transport>) -> Box<dyn Transport> {
    match faults {
        None => inner,
        Some(faults) => Box::new(Faulty::new(inner, faults)),
    }
}

/// Of this many polls one breaks a connection.
const SEVER_ONE_IN: u64 = 2000;
/// A piece may overtake this many records.
const REACH: usize = 8;

/// A transport with faults.
pub(crate) struct Faulty {
    inner: Box<dyn Transport>,
    faults: Faults,
    dice: Dice,
    peers: Vec<Held>,
    /// A push was refused since the last poll: nobody may sleep over it.
    refused: bool,
}

/// What has come from a peer and is not delivered yet.
#[derive(Debug, Default)]
struct Held {
    events: VecDeque<Event>,
    /// Records that have come.
    records: u64,
    lost: bool,
}

#[derive(Debug)]
enum Event {
    Record(Header, Vec<u8>),
    Departed(Departure),
}

impl Event {
    fn is_piece(&self) -> bool {
        matches!(self, Event::Record(header, _) if header.kind == Kind::Data as u8)
    }
}

/// Numbers that look random and follow from a seed (Marsaglia, "Xorshift RNGs", 2003).
#[derive(Debug)]
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `limit`.
    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.roll() >> 33).unwrap_or(0) % limit.max(1)
    }

    fn one_in(&mut self, count: u64) -> bool {
        (self.roll() >> 33).is_multiple_of(count)
    }
}

impl Faulty {
    fn new(inner: Box<dyn Transport>, faults: Faults) -> Self {
        let mut dice = Dice(faults.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (faults.rank as u64 + 1) << 20 | 1);
        for _ in 0..8 {
            dice.roll();
        }
        Faulty { inner, faults, dice, peers: (0..faults.ranks).map(|_| Held::default()).collect(), refused: false }
    }

    /// The event of a peer that comes next: the first, or a piece from further back.
    fn next(&mut self, peer: usize) -> Option<Event> {
        let events = &mut self.peers[peer].events;
        let at = if self.faults.reorder { self.dice.below(events.len().min(REACH)) } else { 0 };
        let at = if events.get(at).is_some_and(Event::is_piece) { at } else { 0 };
        let mut event = events.remove(at)?;
        if self.faults.split
            && event.is_piece()
            && let Event::Record(header, bytes) = &mut event
            && bytes.len() > 1
            && self.dice.one_in(2)
        {
            let rest = bytes.split_off(1 + self.dice.below(bytes.len() - 1));
            let mut later = *header;
            later.shorten(bytes.len());
            header.payload -= later.payload;
            events.insert(at, Event::Record(later, rest));
        }
        Some(event)
    }

    fn deliver(&mut self, sink: &mut dyn Sink) -> Result<bool> {
        let mut any = false;
        for peer in 0..self.peers.len() {
            if self.peers[peer].events.is_empty() {
                continue;
            }
            any = true;
            let count = match self.faults.delay {
                true if self.dice.one_in(2) => 0,
                true => 1 + self.dice.below(REACH),
                false => usize::MAX,
            };
            for _ in 0..count {
                match self.next(peer) {
                    Some(Event::Record(header, bytes)) => sink.record(peer, &header, &mut &bytes[..])?,
                    Some(Event::Departed(departure)) => sink.departed(peer, departure),
                    None => break,
                }
            }
        }
        Ok(any)
    }
}

impl Transport for Faulty {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn counters(&self, tell: &mut dyn FnMut(&'static str, u64)) {
        self.inner.counters(tell);
    }

    fn link_counters(&self, peer: usize, tell: &mut dyn FnMut(&'static str, u64)) {
        self.inner.link_counters(peer, tell);
    }

    fn device(&self) -> Option<DeviceStatistics> {
        self.inner.device()
    }

    fn port(&self) -> Option<PortUsed> {
        self.inner.port()
    }

    fn fallen_back(&self, peer: usize) -> Option<&str> {
        self.inner.fallen_back(peer)
    }

    fn push(&mut self, peer: usize, header: &Header, payload: &[u8], tier: Tier, later: bool) -> Result<bool> {
        if self.peers[peer].lost {
            return Ok(false);
        }
        if self.faults.refuse && self.dice.one_in(4) {
            self.refused = true;
            return Ok(false);
        }
        self.inner.push(peer, header, payload, tier, later)
    }

    fn poll(&mut self, sink: &mut dyn Sink) -> Result<bool> {
        let mut moved = std::mem::take(&mut self.refused);
        if self.faults.sever && self.dice.one_in(SEVER_ONE_IN) {
            self.inner.sever(self.dice.roll() >> 20);
        }
        let mut collector = Collector { peers: &mut self.peers, lose_after: self.faults.lose_after, lost: Vec::new() };
        moved |= self.inner.poll(&mut collector)?;
        for peer in collector.lost {
            self.inner.forget(peer);
        }
        moved |= self.deliver(sink)?;
        Ok(moved)
    }

    fn arm(&mut self) {
        self.inner.arm();
    }

    fn disarm(&mut self) {
        self.inner.disarm();
    }

    fn read_memory(&mut self, peer: usize, address: u64, out: &mut [u8]) -> bool {
        // Another way to refuse: the message has to come in pieces.
        !(self.faults.refuse && self.dice.one_in(4)) && self.inner.read_memory(peer, address, out)
    }

    fn withdrawals(&self) -> u64 {
        self.inner.withdrawals()
    }

    fn withdrawals_of(&self, peer: usize) -> u64 {
        self.inner.withdrawals_of(peer)
    }

    fn withdraw(&mut self) {
        self.inner.withdraw();
    }

    fn nudge(&mut self, peer: usize) -> Result<()> {
        self.inner.nudge(peer)
    }

    fn peer_finished(&mut self, peer: usize) {
        self.inner.peer_finished(peer);
    }

    fn forget(&mut self, peer: usize) {
        self.peers[peer].events.clear();
        self.inner.forget(peer);
    }

    fn sever(&mut self, choice: u64) {
        self.inner.sever(choice);
    }

    fn finish(&mut self) -> Result<bool> {
        self.inner.finish()
    }
}

/// Takes everything that the transport below has.
struct Collector<'a> {
    peers: &'a mut [Held],
    lose_after: Option<u64>,
    lost: Vec<usize>,
}

impl Sink for Collector<'_> {
    fn record(&mut self, peer: usize, header: &Header, payload: &mut dyn Payload) -> Result<()> {
        let mut bytes = vec![0; payload.len()];
        let here = payload.copy_to(&mut bytes);
        bytes.truncate(here);
        let held = &mut self.peers[peer];
        if held.lost || (here == 0 && header.payload > 0) {
            return Ok(());
        }
        let payload = u32::try_from(here).expect("no longer than announced");
        held.events.push_back(Event::Record(Header { payload, ..*header }, bytes));
        held.records += 1;
        if self.lose_after.is_some_and(|limit| held.records >= limit) {
            held.lost = true;
            let reason = format!("it was to fail after {} records (faulty.lose_after)", held.records);
            held.events.push_back(Event::Departed(Departure::Lost(reason)));
            self.lost.push(peer);
        }
        Ok(())
    }

    /// Never: it would overtake what is held.
    fn begin(&mut self, _: usize, _: &Header) -> Result<Option<u64>> {
        Ok(None)
    }

    fn departed(&mut self, peer: usize, departure: Departure) {
        let held = &mut self.peers[peer];
        if !held.lost {
            held.events.push_back(Event::Departed(departure));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::loopback::Loopback, *};
    use proptest::prelude::*;

    #[derive(Default)]
    struct Kept {
        records: Vec<(Header, Vec<u8>)>,
        departed: Vec<Departure>,
    }

    impl Sink for Kept {
        fn record(&mut self, _: usize, header: &Header, payload: &mut dyn Payload) -> Result<()> {
            let mut bytes = vec![0; payload.len()];
            assert_eq!(payload.copy_to(&mut bytes), header.payload as usize);
            self.records.push((*header, bytes));
            Ok(())
        }

        fn begin(&mut self, _: usize, _: &Header) -> Result<Option<u64>> {
            Ok(None)
        }

        fn departed(&mut self, _: usize, departure: Departure) {
            self.departed.push(departure);
        }
    }

    fn none() -> Faults {
        Faults { seed: 1, ranks: 1, ..Faults::default() }
    }

    fn all(seed: u64) -> Faults {
        Faults { seed, delay: true, refuse: true, split: true, reorder: true, sever: true, ..none() }
    }

    /// Sends records of these lengths, every second one a piece; what arrives, and how often a push was refused.
    fn run(faults: Faults, lengths: &[usize]) -> (Kept, u32) {
        let mut faulty = Faulty::new(Box::new(Loopback::new(0)), faults);
        let (mut kept, mut refused) = (Kept::default(), 0);
        for (number, &length) in (0_u64..).zip(lengths) {
            let kind = if number % 2 == 0 { Kind::Eager } else { Kind::Data };
            let payload = u32::try_from(length).unwrap();
            let header = Header { id: number, payload, ..Header::new(kind) };
            while !faulty.push(0, &header, &vec![7; length], Tier::Bulk, false).unwrap() {
                refused += 1;
                if !faulty.poll(&mut kept).unwrap() {
                    assert!(faulty.peers[0].lost, "a refused push ends no wait");
                    return (kept, refused);
                }
            }
        }
        while faulty.poll(&mut kept).unwrap() {}
        (kept, refused)
    }

    proptest! {
        #[test]
        fn nothing_is_lost_or_doubled_and_only_pieces_leave_their_order(
            seed in 1_u64.., lengths in proptest::collection::vec(1..50_usize, 1..60),
        ) {
            let (kept, _) = run(all(seed), &lengths);
            let whole = kept.records.iter().filter(|(header, _)| header.kind == Kind::Eager as u8);
            let whole: Vec<u64> = whole.map(|(header, _)| header.id).collect();
            prop_assert_eq!(whole, (0..lengths.len() as u64).step_by(2).collect::<Vec<_>>());
            for (number, length) in lengths.iter().enumerate() {
                let mut parts: Vec<_> = kept.records.iter().filter(|(header, _)| header.id == number as u64).collect();
                parts.sort_by_key(|(header, _)| header.tag);
                let mut end = 0;
                for (header, bytes) in parts {
                    prop_assert_eq!(header.tag, end);
                    end += bytes.len() as u64;
                }
                prop_assert_eq!(end, *length as u64);
            }
        }
    }

    #[test]
    fn every_fault_happens_and_the_same_seed_does_the_same() {
        let lengths = [40; 200];
        let (kept, refused) = run(all(1), &lengths);
        assert!(refused > 20);
        assert!(kept.records.len() > 220, "pieces were split");
        let offsets: Vec<(u64, u64)> = kept.records.iter().map(|(header, _)| (header.id, header.tag)).collect();
        assert!(!offsets.is_sorted(), "pieces were reordered");
        let ids = |kept: &Kept| kept.records.iter().map(|(header, _)| (header.id, header.tag)).collect::<Vec<_>>();
        assert_eq!(ids(&run(all(1), &lengths).0), ids(&kept));
        assert_ne!(ids(&run(all(2), &lengths).0), ids(&kept));
        assert_eq!(run(none(), &lengths).0.records.len(), 200);
    }

    #[test]
    fn a_peer_fails_after_so_many_records() {
        let (kept, _) = run(Faults { lose_after: Some(5), ..all(1) }, &[1; 20]);
        assert_eq!(kept.records.len(), 5);
        let [Departure::Lost(reason)] = &kept.departed[..] else { panic!("{:?}", kept.departed) };
        assert!(reason.contains("faulty.lose_after"), "{reason}");
    }
}
