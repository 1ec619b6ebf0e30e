//! Two transports on loopback, and strangers that talk to them.

mod breaks;

use super::{
    handshake::{self, Claim},
    *,
};
use crate::transport::{
    Departure,
    record::{HEADER, Payload},
};
use std::{
    io::{Read, Write},
    net::TcpStream,
};

/// Keeps what arrives.
#[derive(Default)]
struct Kept {
    records: Vec<(usize, Header, Vec<u8>)>,
    departures: Vec<(usize, Departure)>,
}

impl Sink for Kept {
    fn record(&mut self, peer: usize, header: &Header, payload: &mut dyn Payload) -> Result<()> {
        let mut bytes = vec![0; payload.len()];
        let copied = payload.copy_to(&mut bytes);
        bytes.truncate(copied);
        // Of a piece nothing more may have come.
        if copied > 0 || header.payload == 0 {
            self.records.push((peer, *header, bytes));
        }
        Ok(())
    }

    fn begin(&mut self, _: usize, _: &Header) -> Result<Option<u64>> {
        Ok(None)
    }

    fn departed(&mut self, peer: usize, departure: Departure) {
        self.departures.push((peer, departure));
    }
}

/// Transports of as many ranks as there are keys, each with its own key: the same in a job.
fn ranks(keys: &[u8]) -> Vec<Tcp> {
    ranks_with(keys, 1, |_| {})
}

/// As [`ranks`], with this many lanes a link and settings changed.
fn ranks_with(keys: &[u8], lanes: usize, change: impl Fn(&mut Settings)) -> Vec<Tcp> {
    let loopback = [IpAddr::from([127, 0, 0, 1])];
    let listeners: Vec<_> = keys.iter().map(|_| listen(&loopback).unwrap()).collect();
    let addresses: Vec<_> = listeners.iter().map(|(_, addresses)| addresses.clone()).collect();
    let make = |(rank, (listener, _)): (usize, (TcpListener, Vec<SocketAddr>))| {
        let poller = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC).unwrap());
        let mut settings = Settings {
            rank,
            key: JobKey([keys[rank]; 32]),
            addresses: addresses.clone(),
            lanes,
            connect_timeout: Duration::from_secs(10),
            reconnect: Duration::from_secs(60),
            silence: Duration::from_secs(60),
            // Small, and yet large enough that some records go past the read buffer.
            buffer: 16 << 10,
            window: 128 << 10,
            first_token: 16,
        };
        change(&mut settings);
        Tcp::new(settings, listener, poller).unwrap()
    };
    listeners.into_iter().enumerate().map(make).collect()
}

/// Polls all of them until `done`, at most as long as a hung test may take.
fn until(ranks: &mut [Tcp], kept: &mut [Kept], done: impl FnMut(&mut [Tcp], &[Kept]) -> bool) {
    until_within(Duration::from_secs(60), ranks, kept, done);
}

fn until_within(
    limit: Duration,
    ranks: &mut [Tcp],
    kept: &mut [Kept],
    mut done: impl FnMut(&mut [Tcp], &[Kept]) -> bool,
) {
    let deadline = Instant::now() + limit;
    while !done(ranks, kept) {
        assert!(Instant::now() < deadline, "nothing more happens");
        for (rank, kept) in ranks.iter_mut().zip(kept.iter_mut()) {
            rank.arm();
            rank.poll(kept).unwrap();
        }
    }
}

fn kept(ranks: usize) -> Vec<Kept> {
    (0..ranks).map(|_| Kept::default()).collect()
}

fn message(tag: u64, payload: &[u8]) -> Header {
    Header { tag, payload: u32::try_from(payload.len()).unwrap(), ..Header::new(Kind::Eager) }
}

#[test]
fn ranks_that_dial_each_other_at_the_same_time_end_with_one_connection() {
    for _ in 0..20 {
        let (mut ranks, mut kept) = (ranks(&[1, 1]), kept(2));
        let mut sent = [false, false];
        until(&mut ranks, &mut kept, |ranks, kept| {
            for (rank, sent) in sent.iter_mut().enumerate() {
                *sent =
                    *sent || ranks[rank].push(1 - rank, &message(7, b"hello"), b"hello", Tier::Bulk, false).unwrap();
            }
            kept.iter().all(|kept| kept.records.len() == 1)
        });
        assert!(kept.iter().all(|kept| kept.records[0].2 == b"hello" && kept.departures.is_empty()));
        assert!(ranks.iter().all(|rank| rank.open.len() == 1 && rank.waiting.is_empty()));
    }
}

#[test]
fn a_rank_of_another_job_is_not_let_in_and_knows_why() {
    let (mut ranks, mut kept) = (ranks(&[1, 2]), kept(2));
    until(&mut ranks, &mut kept, |ranks, kept| {
        assert!(!ranks[0].push(1, &message(7, b"secret"), b"secret", Tier::Bulk, false).unwrap());
        !kept[0].departures.is_empty()
    });
    let (peer, Departure::Lost(reason)) = &kept[0].departures[0] else { panic!("{:?}", kept[0].departures) };
    assert!(*peer == 1 && reason.contains("not a rank of this job"), "{reason}");
    assert!(kept[1].records.is_empty() && kept[1].departures.is_empty() && ranks[1].open.is_empty());
}

#[test]
fn strangers_are_dropped_without_an_answer_and_ranks_still_get_in() {
    let (mut ranks, mut kept) = (ranks(&[1, 1]), kept(2));
    let door = ranks[1].settings.addresses[1][0];
    let knock = |bytes: &[u8]| {
        let mut stranger = TcpStream::connect(door).unwrap();
        stranger.write_all(bytes).unwrap();
        stranger.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
        stranger
    };
    let mut wrong_rank = handshake::hello(0, 5, Claim::default(), &[0; 16]);
    let mut strangers =
        vec![knock(b"GET / HTTP/1.1\r\nHost: example\r\nAccept: */*\r\n\r\n"), knock(&[0; 4096]), knock(&wrong_rank)];
    wrong_rank[0] ^= 1;
    strangers.push(knock(&wrong_rank));
    // Silent ones, more than are kept: the oldest make room.
    let silent: Vec<_> = (0..100).map(|_| knock(b"")).collect();
    let mut sent = false;
    until(&mut ranks, &mut kept, |ranks, kept| {
        sent = sent || ranks[0].push(1, &message(7, b"hello"), b"hello", Tier::Bulk, false).unwrap();
        kept[1].records.len() == 1
    });
    for stranger in &mut strangers {
        // Closed, or reset because it had sent more than was read.
        assert!(matches!(stranger.read(&mut [0; 64]), Ok(0) | Err(_)));
    }
    drop(silent);
}

#[test]
fn whoever_says_hello_but_cannot_prove_the_key_is_dropped() {
    let (mut ranks, mut kept) = (ranks(&[1, 1]), kept(2));
    let mut stranger = TcpStream::connect(ranks[1].settings.addresses[1][0]).unwrap();
    stranger.write_all(&handshake::hello(0, 1, Claim::default(), &[3; 16])).unwrap();
    stranger.write_all(&[9; handshake::PROOF]).unwrap();
    stranger.set_nonblocking(true).unwrap();
    let (mut answer, mut closed) = (Vec::new(), false);
    until(&mut ranks, &mut kept, |_, _| {
        let mut bytes = [0; 256];
        match stranger.read(&mut bytes) {
            Ok(0) => closed = true,
            Ok(read) => answer.extend_from_slice(&bytes[..read]),
            Err(error) => closed |= error.kind() != std::io::ErrorKind::WouldBlock,
        }
        closed
    });
    // The acceptor's nonce and proof, and no verdict.
    assert_eq!(answer.len(), handshake::ANSWER);
    assert!(ranks[1].open.is_empty());
}

#[test]
fn a_peer_that_cannot_be_reached_is_lost_with_every_address_and_reason() {
    let (mut ranks, mut kept) = (ranks(&[1, 1]), kept(2));
    // Nobody listens there any more.
    let gone = ranks[0].settings.addresses[1][0];
    ranks.truncate(1);
    until(&mut ranks, &mut kept[..1], |ranks, kept| {
        ranks[0].push(1, &message(7, b""), b"", Tier::Bulk, false).unwrap();
        !kept[0].departures.is_empty()
    });
    let (1, Departure::Lost(reason)) = &kept[0].departures[0] else { panic!("{:?}", kept[0].departures) };
    assert!(reason.contains(&gone.to_string()) && reason.contains("refused"), "{reason}");
}

#[test]
fn an_address_that_does_not_answer_holds_up_the_next_one_for_a_moment_only() {
    let mut ranks = ranks_with(&[1, 1], 1, |settings| settings.connect_timeout = Duration::from_secs(600));
    let mut kept = kept(2);
    // A listener whose queue is full answers nobody.
    let silent = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM, None).unwrap();
    rustix::net::bind(&silent, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    rustix::net::listen(&silent, 0).unwrap();
    let address = SocketAddr::try_from(rustix::net::getsockname(&silent).unwrap()).unwrap();
    let crowd: Vec<_> = (0..8).map(|_| socket::dial(address, Duration::from_secs(60)).unwrap()).collect();
    ranks[0].settings.addresses[1].insert(0, address);
    let mut sent = false;
    until(&mut ranks, &mut kept, |ranks, kept| {
        sent = sent || ranks[0].push(1, &message(7, b"hello"), b"hello", Tier::Bulk, false).unwrap();
        kept[1].records.len() == 1
    });
    drop(crowd);
}

#[test]
fn records_that_do_not_fit_into_the_kernel_s_buffer_arrive_in_order() {
    let (mut ranks, mut kept) = (ranks(&[1, 1]), kept(2));
    let largest = ranks[0].capabilities().eager;
    let mut sent = 0_u64;
    until(&mut ranks, &mut kept, |ranks, kept| {
        while sent < 20_000 {
            let payload = vec![sent as u8; (sent as usize * 37) % largest];
            if !ranks[0].push(1, &message(sent, &payload), &payload, Tier::Bulk, false).unwrap() {
                break;
            }
            sent += 1;
        }
        kept[1].records.len() == 20_000
    });
    for (number, (peer, header, payload)) in (0_u64..).zip(&kept[1].records) {
        assert_eq!((*peer, header.tag), (0, number));
        assert!(payload.len() == (number as usize * 37) % largest && payload.iter().all(|byte| *byte == number as u8));
    }
}

#[test]
fn a_connection_that_breaks_without_a_farewell_is_a_loss_and_one_with_it_is_not() {
    for farewell in [false, true] {
        let (mut ranks, mut kept) = (ranks(&[1, 1]), kept(2));
        let mut sent = false;
        until(&mut ranks, &mut kept, |ranks, kept| {
            sent = sent || ranks[0].push(1, &message(1, b"x"), b"x", Tier::Bulk, false).unwrap();
            kept[1].records.len() == 1
        });
        if farewell {
            until(&mut ranks, &mut kept, |ranks, _| ranks[0].finish().unwrap());
        }
        drop(ranks.remove(0));
        until(&mut ranks, &mut kept[1..], |_, kept| !kept[0].departures.is_empty());
        match &kept[1].departures[..] {
            [(0, Departure::Finished)] => assert!(farewell),
            [(0, Departure::Lost(_))] => assert!(!farewell),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn bytes_that_are_no_record_are_refused() {
    let wrong =
        [Header { kind: 99, ..Header::new(Kind::Eager) }, Header { payload: u32::MAX, ..Header::new(Kind::Data) }];
    for wrong in wrong {
        let (mut ranks, mut kept) = (ranks(&[1, 1]), kept(2));
        let mut sent = false;
        until(&mut ranks, &mut kept, |ranks, kept| {
            sent = sent || ranks[0].push(1, &message(1, b""), b"", Tier::Bulk, false).unwrap();
            kept[1].records.len() == 1
        });
        let lane = &mut ranks[0].slots[1].as_mut().unwrap().lane;
        assert!(lane.push(&wrong, &[0; HEADER], false));
        let deadline = Instant::now() + Duration::from_secs(20);
        let error = loop {
            assert!(Instant::now() < deadline, "it was accepted");
            ranks[1].arm();
            if let Err(error) = ranks[1].poll(&mut kept[1]) {
                break error;
            }
        };
        assert!(error.to_string().contains("rank 0 sent a record that cannot be right"), "{error}");
    }
}

#[test]
fn every_pair_of_buffer_and_window_that_can_be_set_gives_lengths() {
    for buffer in 12..=26 {
        for window in 12..=28 {
            let (largest, piece) = lengths(1 << buffer, 1 << window);
            assert!(largest >= 1024 && piece >= largest, "{buffer} {window}: {largest} {piece}");
            assert!(largest <= (1 << buffer) / 2 && piece <= (1 << window) / 4, "{buffer} {window}: {largest} {piece}");
        }
    }
}
