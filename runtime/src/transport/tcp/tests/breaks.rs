//! Connections that break between ranks that live, and peers that do not.

use super::*;
use std::{
    net::Shutdown,
    sync::{Mutex, atomic::AtomicBool, atomic::Ordering},
    thread,
};

/// A small generator, so that a failure can be repeated from its seed.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Record `number`: kinds in turn, lengths from nothing to the largest, contents that follow from the number.
fn record(number: u64, sizes: Sizes) -> (Header, Vec<u8>) {
    const KINDS: [Kind; 6] =
        [Kind::Eager, Kind::Data, Kind::RequestToSend, Kind::ClearToSend, Kind::Discard, Kind::Abandon];
    let kind = KINDS[(number % 6) as usize];
    let mut chance = Chance(number + 1);
    let length = match (kind, chance.next() % 50) {
        (Kind::Eager, 0) => chance.next() as usize % (sizes.largest + 1),
        (Kind::Data, 0) => chance.next() as usize % (sizes.piece + 1),
        (Kind::Eager | Kind::Data, _) => chance.next() as usize % 64,
        _ => 0,
    };
    let payload: Vec<u8> = (0..length).map(|i| (number as usize + i * 7) as u8).collect();
    let header = Header { tag: number << 20, id: number, context: !number, ..Header::new(kind) };
    (Header { payload: payload.len() as u32, ..header }, payload)
}

/// What has arrived, in bytes: pieces may have come in parts, which are put together again.
fn assemble(kept: &Kept) -> Vec<(Header, Vec<u8>)> {
    let mut whole: Vec<(Header, Vec<u8>)> = Vec::new();
    for (_, header, payload) in &kept.records {
        let header = Header { confirmed: 0, ..*header };
        match whole.last_mut() {
            Some((last, bytes)) if header.kind == Kind::Data as u8 && last.id == header.id => {
                assert_eq!(header.tag, last.tag + bytes.len() as u64);
                bytes.extend_from_slice(payload);
            }
            _ => whole.push((header, payload.clone())),
        }
    }
    for (header, payload) in &mut whole {
        header.payload = payload.len() as u32;
    }
    whole
}

/// Both ranks send `count` records to each other while their connections break at random points.
fn exchange(lanes: usize, count: u64, seed: u64, break_one_in: u64) -> (Vec<Tcp>, Vec<Kept>) {
    let (mut ranks, mut kept) = (ranks_with(&[1, 1], lanes, |_| {}), kept(2));
    let sizes = ranks[0].sizes;
    let mut chance = Chance(seed);
    let mut sent = [0_u64; 2];
    let mut done_since = None;
    until_within(Duration::from_secs(240), &mut ranks, &mut kept, |ranks, kept| {
        for rank in 0..2 {
            for _ in 0..chance.next() % 40 {
                let (header, payload) = record(sent[rank], sizes);
                if sent[rank] == count
                    || !ranks[rank]
                        .push(1 - rank, &header, &payload, Tier::Bulk, chance.next().is_multiple_of(2))
                        .unwrap()
                {
                    break;
                }
                sent[rank] += 1;
            }
            if chance.next().is_multiple_of(break_one_in) && sent.iter().any(|sent| *sent < count) {
                ranks[rank].sever(chance.next());
            }
        }
        let all = kept.iter().all(|kept| kept.records.len() as u64 >= count) && sent == [count; 2];
        // Whatever is doubled would come now.
        all && done_since.get_or_insert_with(Instant::now).elapsed() > Duration::from_millis(100)
    });
    assert!(kept.iter().all(|kept| kept.departures.is_empty()), "seed {seed}");
    (ranks, kept)
}

#[test]
fn a_hundred_thousand_records_of_every_kind_survive_connections_that_break_at_random_points() {
    let (ranks, kept) = exchange(1, 100_000, 7, 400);
    let sizes = ranks[0].sizes;
    for (rank, kept) in ranks.iter().zip(&kept) {
        assert!(rank.resent.connections > 20 && rank.resent.bytes > 0, "{:?}", rank.resent);
        let whole = assemble(kept);
        assert_eq!(whole.len(), 100_000);
        for (number, got) in (0..).zip(&whole) {
            assert_eq!(*got, record(number, sizes));
        }
    }
}

#[test]
fn with_several_lanes_only_pieces_leave_their_order() {
    let (ranks, kept) = exchange(4, 20_000, 11, 100);
    let sizes = ranks[0].sizes;
    for (rank, kept) in ranks.iter().zip(&kept) {
        assert!(rank.resent.connections > 8, "{:?}", rank.resent);
        assert_eq!(rank.slots[rank.first_of(1 - rank.settings.rank)..].iter().take(4).flatten().count(), 4);
        let mut pieces: Vec<Vec<u8>> = vec![Vec::new(); 20_000];
        let mut others = Vec::new();
        for (_, header, payload) in &kept.records {
            if header.kind == Kind::Data as u8 {
                let (expected, bytes) = record(header.id, sizes);
                let at = (header.tag - expected.tag) as usize;
                assert_eq!(*payload, bytes[at..at + payload.len()], "piece {}", header.id);
                pieces[header.id as usize].extend_from_slice(payload);
            } else {
                others.push(header.id);
            }
        }
        let expected = |number: &u64| number % 6 != 1;
        assert_eq!(others, (0..20_000).filter(expected).collect::<Vec<_>>(), "everything else keeps its order");
        for (number, bytes) in (0_u64..).zip(&pieces).filter(|(number, _)| !expected(number)) {
            assert_eq!(*bytes, record(number, sizes).1, "piece {number}");
        }
    }
}

/// Carries bytes between a rank and whoever dials it through this, until told to let go.
struct Middlebox {
    address: SocketAddr,
    streams: Arc<Mutex<Vec<TcpStream>>>,
    over: Arc<AtomicBool>,
}

impl Middlebox {
    fn before(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let streams = Arc::new(Mutex::new(Vec::new()));
        let over = Arc::new(AtomicBool::new(false));
        let (kept, ended) = (streams.clone(), over.clone());
        thread::spawn(move || {
            for dialer in listener.incoming() {
                if ended.load(Ordering::Relaxed) {
                    return;
                }
                let (dialer, acceptor) = (dialer.unwrap(), TcpStream::connect(target).unwrap());
                for stream in [&dialer, &acceptor] {
                    stream.set_nodelay(true).unwrap();
                }
                for (mut from, mut to) in [
                    (dialer.try_clone().unwrap(), acceptor.try_clone().unwrap()),
                    (acceptor.try_clone().unwrap(), dialer.try_clone().unwrap()),
                ] {
                    thread::spawn(move || {
                        let _ = std::io::copy(&mut from, &mut to);
                        let _ = to.shutdown(Shutdown::Both);
                    });
                }
                kept.lock().unwrap().extend([dialer, acceptor]);
            }
        });
        Middlebox { address, streams, over }
    }

    /// Both ends are closed, whatever is on its way.
    fn let_go(&self) {
        for stream in self.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Middlebox {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        self.let_go();
        let _ = TcpStream::connect(self.address);
    }
}

#[test]
fn what_a_middlebox_had_acknowledged_and_lost_is_sent_again() {
    let mut ranks = ranks_with(&[1, 1], 1, |_| {});
    let mut kept = kept(2);
    let boxes = [1, 0].map(|rank: usize| Middlebox::before(ranks[rank].settings.addresses[rank][0]));
    for (rank, other) in [(0, &boxes[0]), (1, &boxes[1])] {
        ranks[rank].settings.addresses[1 - rank] = vec![other.address];
    }
    let (mut sent, mut chance, mut cuts) = (0_u64, Chance(3), 0);
    until_within(Duration::from_secs(120), &mut ranks, &mut kept, |ranks, kept| {
        while sent < 20_000 {
            let payload = vec![sent as u8; (sent as usize * 37) % 900];
            if !ranks[0].push(1, &message(sent, &payload), &payload, Tier::Bulk, false).unwrap() {
                break;
            }
            sent += 1;
        }
        if cuts < 20 && kept[1].records.len() as u64 > cuts * 900 + chance.next() % 50 {
            boxes.iter().for_each(Middlebox::let_go);
            cuts += 1;
        }
        kept[1].records.len() == 20_000
    });
    assert!(ranks[0].resent.bytes > 0 && cuts == 20, "{:?}", ranks[0].resent);
    for (number, (_, header, payload)) in (0_u64..).zip(&kept[1].records) {
        assert_eq!(header.tag, number);
        assert!(payload.len() == (number as usize * 37) % 900 && payload.iter().all(|byte| *byte == number as u8));
    }
}

#[test]
fn a_peer_that_dies_is_lost_at_once_and_the_error_says_both_what_broke_and_why_it_stays_so() {
    let (mut ranks, mut kept) = (ranks(&[1, 1]), kept(2));
    let mut sent = false;
    until(&mut ranks, &mut kept, |ranks, kept| {
        sent = sent || ranks[0].push(1, &message(1, b"x"), b"x", Tier::Bulk, false).unwrap();
        kept[1].records.len() == 1
    });
    drop(ranks.remove(0));
    until(&mut ranks, &mut kept[1..], |_, kept| !kept[0].departures.is_empty());
    let (0, Departure::Lost(reason)) = &kept[1].departures[0] else { panic!("{:?}", kept[1].departures) };
    assert!(reason.contains("connection") && reason.contains("refused"), "{reason}");
}

#[test]
fn a_connection_that_cannot_be_replaced_is_given_up_in_time() {
    let mut ranks = ranks_with(&[1, 1], 1, |settings| settings.reconnect = Duration::from_millis(300));
    let mut kept = kept(2);
    let middlebox = Middlebox::before(ranks[1].settings.addresses[1][0]);
    ranks[0].settings.addresses[1] = vec![middlebox.address];
    // The other way round there is none: rank 1 finds nobody.
    ranks[1].settings.addresses[0] = vec!["127.0.0.1:1".parse().unwrap()];
    let mut sent = false;
    until(&mut ranks, &mut kept, |ranks, kept| {
        sent = sent || ranks[0].push(1, &message(1, b"x"), b"x", Tier::Bulk, false).unwrap();
        kept[1].records.len() == 1
    });
    // From now on whoever dials is taken in and sent away again.
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap();
    ranks[0].settings.addresses[1] = vec![nobody.local_addr().unwrap()];
    thread::spawn(move || nobody.incoming().for_each(drop));
    middlebox.let_go();
    until(&mut ranks[..1], &mut kept[..1], |_, kept| !kept[0].departures.is_empty());
    let (1, Departure::Lost(reason)) = &kept[0].departures[0] else { panic!("{:?}", kept[0].departures) };
    assert!(reason.contains("the connection"), "{reason}");
}

#[test]
fn without_reconnecting_a_broken_connection_is_a_lost_peer() {
    let (mut ranks, mut kept) = (ranks_with(&[1, 1], 1, |settings| settings.reconnect = Duration::ZERO), kept(2));
    let mut sent = false;
    until(&mut ranks, &mut kept, |ranks, kept| {
        sent = sent || ranks[0].push(1, &message(1, b"x"), b"x", Tier::Bulk, false).unwrap();
        kept[1].records.len() == 1
    });
    ranks[0].sever(1);
    until(&mut ranks, &mut kept, |_, kept| kept.iter().all(|kept| !kept.departures.is_empty()));
    assert!(kept.iter().all(|kept| matches!(&kept.departures[..], [(_, Departure::Lost(_))])));
}

#[test]
fn a_farewell_waits_for_the_pieces_on_the_other_lanes() {
    let (mut ranks, mut kept) = (ranks_with(&[1, 1], 3, |_| {}), kept(2));
    let mut sent = 0_u64;
    until(&mut ranks, &mut kept, |ranks, _| {
        while sent < 600 {
            let payload = [sent as u8; 1000];
            let header = Header { id: sent, payload: 1000, ..Header::new(Kind::Data) };
            if !ranks[0].push(1, &header, &payload, Tier::Bulk, false).unwrap() {
                return false;
            }
            sent += 1;
        }
        ranks[0].finish().unwrap()
    });
    until(&mut ranks, &mut kept, |_, kept| !kept[1].departures.is_empty());
    assert_eq!(kept[1].departures, [(0, Departure::Finished)]);
    let bytes: usize = kept[1].records.iter().map(|(_, _, payload)| payload.len()).sum();
    assert_eq!(bytes, 600_000);
}
