//! Point-to-point semantics, the same over every transport: each body below runs over shared memory, over TCP, and over
//! a mix of both.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "small numbers of test patterns"
)]

use proptest::prelude::*;
use spmd::{Error, World, local::Cluster, prelude::*};

/// Every way in which two ranks can be connected, and settings that move the borders between protocols.
fn clusters(ranks: usize) -> Vec<(&'static str, Cluster)> {
    if std::env::var("SPMD_TEST_TRANSPORT").is_ok_and(|name| name == "verbs") {
        return over_rdma(ranks);
    }
    vec![
        ("shm", Cluster::new(ranks)),
        ("shm, small rings", Cluster::new(ranks).set("shm.ring_bytes", "4KiB")),
        ("shm, everything by rendezvous", Cluster::new(ranks).set("eager.limit", "0")),
        ("shm, read directly", Cluster::new(ranks).set("shm.direct_read", "always").set("eager.limit", "64")),
        ("shm, sleeping", Cluster::new(ranks).set("wait.policy", "sleep")),
        ("tcp", Cluster::new(ranks).set("transport.allow", "tcp")),
        (
            "tcp, everything by rendezvous",
            Cluster::new(ranks).set("transport.allow", "tcp").set("tcp.eager_limit", "0"),
        ),
        ("tcp, small buffers", Cluster::new(ranks).set("transport.allow", "tcp").set("tcp.buffer_bytes", "4KiB")),
        ("tcp, sleeping", Cluster::new(ranks).set("transport.allow", "tcp").set("wait.policy", "sleep")),
        ("tcp, several sockets", Cluster::new(ranks).set("transport.allow", "tcp").set("tcp.sockets", "3")),
        ("two hosts", Cluster::new(ranks).hosts(2)),
        ("faulty shm", Cluster::new(ranks).set("faulty.seed", "1").set("shm.ring_bytes", "64KiB")),
        (
            "faulty tcp",
            Cluster::new(ranks)
                .set("transport.allow", "tcp")
                .set("tcp.sockets", "2")
                .set("tcp.resend_bytes", "64KiB")
                .set("faulty.seed", "2"),
        ),
    ]
}

fn every_transport(ranks: usize) -> impl Iterator<Item = (&'static str, Cluster)> {
    clusters(ranks).into_iter()
}

/// The same over RDMA alone, for machines that have it: the lab runs this file there.
fn over_rdma(ranks: usize) -> Vec<(&'static str, Cluster)> {
    let verbs = || Cluster::new(ranks).set("transport.allow", "verbs").set("verbs.device", "rxe0,rxe1");
    // A receiver that is not ready would break a connection that tries only once.
    let strict = || verbs().set("verbs.rnr_retries", "0");
    vec![
        ("verbs", strict()),
        ("verbs, everything by rendezvous", verbs().set("verbs.eager_limit", "0")),
        ("verbs, small rings", strict().set("verbs.ring_bytes", "64KiB").set("verbs.send_depth", "16")),
        ("verbs, sleeping", verbs().set("wait.policy", "sleep")),
        ("verbs, two channels", strict().set("low_latency.size_hint", "4KiB")),
        ("verbs, every request reported", verbs().set("verbs.signal_all", "true").set("verbs.inline", "0")),
    ]
}

fn on_every_transport(ranks: usize, body: impl Fn(&World) -> spmd::Result<()> + Sync) {
    on(every_transport(ranks), body);
}

fn on(clusters: impl Iterator<Item = (&'static str, Cluster)>, body: impl Fn(&World) -> spmd::Result<()> + Sync) {
    for (name, cluster) in clusters {
        for (rank, result) in cluster.run(|world| body(world)).expect(name).into_iter().enumerate() {
            result.unwrap_or_else(|error| panic!("{name}, rank {rank}: {error}"));
        }
    }
}

/// Lengths around every border: nothing, one, eager limit, pieces, rings, and well beyond.
const LENGTHS: [usize; 14] = [0, 1, 7, 8, 100, 1000, 4095, 8192, 8193, 16_384, 65_536, 65_537, 300_000, 2_000_003];

fn pattern(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|i| ((i * 31 + seed * 17) >> 3) as u8).collect()
}

#[test]
fn messages_of_every_length_arrive_whole() {
    on_every_transport(2, |world| {
        let comm = world.communicator();
        for (number, length) in LENGTHS.into_iter().enumerate() {
            let expected = pattern(length, number);
            if comm.rank() == 0 {
                comm.send(&expected, 1, 3)?;
                let (back, status) = comm.recv_vec::<u8>(1, 4)?;
                assert_eq!(back, expected);
                assert_eq!(status, Status { source: 1, tag: 4, bytes: length });
            } else {
                let mut buffer = vec![0_u8; length + 5];
                let status = comm.recv(&mut buffer, 0, 3)?;
                assert_eq!((status.source, status.tag, status.elements::<u8>()), (0, 3, length));
                assert_eq!(buffer[..length], expected);
                comm.send(&buffer[..length], 0, 4)?;
            }
        }
        Ok(())
    });
}

#[test]
fn messages_of_one_source_keep_their_order_across_every_protocol_switch() {
    on_every_transport(2, |world| {
        let comm = world.communicator();
        let lengths: Vec<usize> = (0..60).map(|i| LENGTHS[(i * 5) % 12]).collect();
        if comm.rank() == 0 {
            for (number, &length) in lengths.iter().enumerate() {
                comm.send(&pattern(length, number), 1, 0)?;
            }
        } else {
            for (number, &length) in lengths.iter().enumerate() {
                let (got, _) = comm.recv_vec::<u8>(Any, Any)?;
                assert_eq!(got.len(), length, "message {number}");
                assert_eq!(got, pattern(length, number), "message {number}");
            }
        }
        Ok(())
    });
}

#[test]
fn tags_select_and_wildcards_take_the_oldest() {
    on_every_transport(3, |world| {
        let comm = world.communicator();
        if comm.rank() == 0 {
            let mut got = [0_u64];
            // The later tag first: the earlier message waits.
            comm.recv(&mut got, 1, 2)?;
            assert_eq!(got, [12]);
            let status = comm.recv(&mut got, 1, Any)?;
            assert_eq!((got, status.tag), ([11], 1));
            let mut sources = Vec::new();
            for _ in 0..2 {
                let status = comm.recv(&mut got, Any, 9)?;
                assert_eq!(got, [status.source as u64]);
                sources.push(status.source);
            }
            sources.sort_unstable();
            assert_eq!(sources, [1, 2]);
        } else {
            if comm.rank() == 1 {
                let requests = [comm.isend(vec![11_u64], 0, 1)?, comm.isend(vec![12_u64], 0, 2)?];
                requests.into_iter().try_for_each(|request| request.wait().map(drop))?;
            }
            comm.send(&[comm.rank() as u64], 0, 9)?;
        }
        Ok(())
    });
}

#[test]
fn a_rank_can_send_to_itself_messages_of_any_size() {
    on_every_transport(2, |world| {
        let comm = world.communicator();
        for length in LENGTHS {
            let request = comm.isend(pattern(length, 1), comm.rank(), 5)?;
            let (got, _) = comm.recv_vec::<u8>(comm.rank(), 5)?;
            assert_eq!(got, request.wait()?);
        }
        Ok(())
    });
}

#[test]
fn all_ranks_can_exchange_with_their_neighbours_at_once() {
    on_every_transport(4, |world| {
        let comm = world.communicator();
        let (rank, size) = (comm.rank(), comm.size());
        for length in LENGTHS {
            let mut from_left = vec![0_u8; length];
            let (left, right) = ((rank + size - 1) % size, (rank + 1) % size);
            let status = comm.send_receive(&pattern(length, rank), right, 1, &mut from_left, left, 1)?;
            assert_eq!((status.source, status.bytes), (left, length));
            assert_eq!(from_left, pattern(length, left));
        }
        Ok(())
    });
}

#[test]
fn large_non_blocking_sends_make_progress_in_any_call() {
    on_every_transport(2, |world| {
        let comm = world.communicator();
        let peer = 1 - comm.rank();
        // Rank 0 never waits for its request before the peer has answered: the answer needs the large message.
        if comm.rank() == 0 {
            let request = comm.isend(pattern(1_000_000, 0), peer, 1)?;
            let mut answer = [0_u32];
            comm.recv(&mut answer, peer, 2)?;
            assert_eq!(answer, [1_000_000]);
            assert_eq!(request.wait()?.len(), 1_000_000);
        } else {
            let (got, _) = comm.recv_vec::<u8>(peer, 1)?;
            comm.send(&[got.len() as u32], peer, 2)?;
        }
        Ok(())
    });
}

#[test]
fn many_requests_complete_in_any_order() {
    on_every_transport(3, |world| {
        let comm = world.communicator();
        let (rank, size) = (comm.rank(), comm.size());
        let receives: Vec<_> = (0..50)
            .flat_map(|tag| (0..size).map(move |source| (source, tag)))
            .map(|(source, tag)| comm.irecv(vec![0_u64; 2000], source, tag))
            .collect::<spmd::Result<_>>()?;
        let sends: Vec<_> = (0..50)
            .rev()
            .flat_map(|tag| (0..size).map(move |dest| (dest, tag)))
            .map(|(dest, tag)| comm.isend(vec![(rank * 100 + tag as usize) as u64; 40 * tag as usize], dest, tag))
            .collect::<spmd::Result<_>>()?;
        for (number, receive) in receives.into_iter().enumerate().rev() {
            let (tag, source) = (number / size, number % size);
            let (got, status) = receive.wait()?;
            assert_eq!(status, Status { source, tag: tag as i32, bytes: 40 * tag * 8 });
            assert!(got[..40 * tag].iter().all(|word| *word == (source * 100 + tag) as u64));
        }
        for send in sends {
            send.wait()?;
        }
        Ok(())
    });
}

#[test]
fn test_gives_the_request_back_until_it_is_done() {
    on_every_transport(2, |world| {
        let comm = world.communicator();
        if comm.rank() == 0 {
            let mut receive = comm.irecv(vec![0_u8; 100_000], 1, 1)?;
            comm.send(&[1_u8], 1, 0)?;
            let (got, _) = loop {
                match receive.test()? {
                    Ok(done) => break done,
                    Err(again) => receive = again,
                }
            };
            assert_eq!(got, pattern(100_000, 1));
        } else {
            comm.recv(&mut [0_u8], 0, 0)?;
            let mut send = comm.isend(pattern(100_000, 1), 0, 1)?;
            while let Err(again) = send.test()? {
                send = again;
            }
        }
        Ok(())
    });
}

#[test]
fn a_dropped_receive_leaves_its_message_to_the_next_and_a_dropped_send_still_sends() {
    on_every_transport(2, |world| {
        let comm = world.communicator();
        if comm.rank() == 0 {
            drop(comm.irecv(vec![0_u8; 10], 1, 1)?);
            comm.send(&[0_u8], 1, 0)?;
            let (got, _) = comm.recv_vec::<u8>(1, 1)?;
            assert_eq!(got, [7; 10]);
            let (got, _) = comm.recv_vec::<u8>(1, 1)?;
            assert_eq!(got, pattern(500_000, 3));
        } else {
            comm.recv(&mut [0_u8], 0, 0)?;
            drop(comm.isend(vec![7_u8; 10], 0, 1)?);
            drop(comm.isend(pattern(500_000, 3), 0, 1)?);
        }
        Ok(())
    });
}

#[test]
fn a_message_that_does_not_fit_is_an_error_and_the_next_one_is_intact() {
    on_every_transport(2, |world| {
        let comm = world.communicator();
        for length in [100, 100_000] {
            if comm.rank() == 0 {
                comm.send(&pattern(length, 1), 1, 1)?;
                comm.send(&[42_u8], 1, 1)?;
                comm.send(&vec![1.5_f64; length], 1, 1)?;
                comm.send(&[43_u8], 1, 1)?;
            } else {
                let mut small = [0_u8; 10];
                let error = comm.recv(&mut small, 0, 1).unwrap_err();
                assert!(
                    matches!(error, Error::Truncated { source_rank: 0, sent, room: 10, .. } if sent == length),
                    "{error}"
                );
                assert_eq!(small, [0; 10]);
                comm.recv(&mut small, 0, 1)?;
                assert_eq!(small[0], 42);
                let error = comm.recv_vec::<f32>(0, 1).unwrap_err();
                assert!(matches!(error, Error::TypeMismatch { .. }), "{error}");
                assert!(error.to_string().contains("f64") && error.to_string().contains("f32"), "{error}");
                comm.recv(&mut small, 0, 1)?;
                assert_eq!(small[0], 43);
            }
        }
        Ok(())
    });
}

#[test]
fn a_probe_tells_the_length_and_leaves_the_message() {
    on_every_transport(2, |world| {
        let comm = world.communicator();
        for length in [0, 10, 100_000] {
            if comm.rank() == 0 {
                comm.send(&vec![1_u16; length], 1, 6)?;
            } else {
                let status = comm.probe(Any, Any)?;
                assert_eq!((status.source, status.tag, status.elements::<u16>()), (0, 6, length));
                assert_eq!(comm.iprobe(0, 6)?, Some(status));
                assert_eq!(comm.iprobe(0, 7)?, None);
                let (got, _) = comm.recv_vec::<u16>(0, 6)?;
                assert_eq!(got.len(), length);
            }
        }
        Ok(())
    });
}

#[test]
fn ranks_and_tags_that_do_not_exist_are_named() {
    on_every_transport(2, |world| {
        let comm = world.communicator();
        let error = comm.send(&[1_u8], 2, 0).unwrap_err();
        assert!(matches!(error, Error::NoSuchRank { rank: 2, last: 1, .. }), "{error}");
        let error = comm.recv(&mut [1_u8], 7, 0).unwrap_err();
        assert!(matches!(error, Error::NoSuchRank { rank: 7, .. }), "{error}");
        let error = comm.send(&[1_u8], 1, -1).unwrap_err();
        assert!(matches!(error, Error::BadTag { tag: -1, .. }), "{error}");
        Ok(())
    });
}

#[test]
fn a_receive_from_a_rank_that_has_left_is_an_error_not_a_hang() {
    on_every_transport(2, |world| {
        let comm = world.communicator();
        if comm.rank() == 0 {
            comm.send(&[5_u8], 1, 1)?;
            return Ok(());
        }
        let mut byte = [0_u8];
        comm.recv(&mut byte, 0, 1)?;
        assert_eq!(byte, [5]);
        let error = comm.recv(&mut byte, 0, 1).unwrap_err();
        assert!(matches!(error, Error::PeerFinished { peer: 0, .. }), "{error}");
        let error = comm.irecv(vec![0_u8], 0, 2).and_then(|request| request.wait()).unwrap_err();
        assert!(matches!(error, Error::PeerFinished { peer: 0, .. }), "{error}");
        Ok(())
    });
}

/// Waits until a rank has certainly dropped its world, without a message from it: what a program cannot know.
fn long_enough_to_leave() {
    std::thread::sleep(std::time::Duration::from_millis(50));
}

#[test]
fn a_receive_from_a_rank_that_left_without_ever_talking_is_an_error_not_a_hang() {
    without_hanging("a receive from a rank that left", || {
        for policy in ["auto", "spin", "sleep"] {
            on(every_transport(3).map(|(name, cluster)| (name, cluster.set("wait.policy", policy))), |world| {
                let comm = world.communicator();
                match comm.rank() {
                    0 => return Ok(()),
                    // One begins to wait before rank 0 has left, the other one after.
                    1 => {}
                    _ => long_enough_to_leave(),
                }
                let error = comm.recv(&mut [0_u8], 0, 1).unwrap_err();
                assert!(matches!(error, Error::PeerFinished { peer: 0, .. }), "{error}");
                let error = comm.probe(0, Any).unwrap_err();
                assert!(matches!(error, Error::PeerFinished { peer: 0, .. }), "{error}");
                let error = comm.send(&pattern(1_000_000, 0), 0, 1).unwrap_err();
                assert!(matches!(error, Error::PeerFinished { peer: 0, .. }), "{error}");
                Ok(())
            });
        }
    });
}

#[test]
fn a_receive_from_any_rank_ends_when_all_others_have_left() {
    without_hanging("a receive from any rank of those that left", || {
        on_every_transport(3, |world| {
            let comm = world.communicator();
            match comm.rank() {
                0 => return Ok(()),
                1 => return comm.send(&[7_u8], 2, 7),
                _ => {}
            }
            // What was sent is received, whatever else has happened; then nothing can come.
            let mut byte = [0_u8];
            assert_eq!(comm.recv(&mut byte, Any, Any)?.source, 1);
            for _ in 0..2 {
                let error = comm.recv(&mut byte, Any, Any).unwrap_err();
                assert!(matches!(error, Error::NobodyLeft { .. }), "{error}");
                let error = comm.probe(Any, 3).unwrap_err();
                assert!(matches!(error, Error::NobodyLeft { .. }), "{error}");
                let error = comm.irecv(vec![0_u8], Any, 3).and_then(|request| request.wait()).unwrap_err();
                assert!(matches!(error, Error::NobodyLeft { .. }), "{error}");
            }
            // A rank's messages to itself still arrive.
            for length in [8, 1_000_000] {
                let request = comm.isend(pattern(length, 1), 2, 5)?;
                assert_eq!(comm.probe(Any, 5)?.bytes, length);
                assert_eq!(comm.recv_vec::<u8>(Any, 5)?.0, pattern(length, 1));
                request.wait()?;
            }
            Ok(())
        });
    });
}

#[test]
fn a_receive_from_any_rank_waits_as_long_as_one_member_of_its_communicator_is_left() {
    without_hanging("a receive within a part of the world", || {
        on_every_transport(4, |world| {
            let comm = world.communicator();
            let rank = comm.rank();
            let part = comm.split((rank > 0).then_some(0), 0)?;
            let Some(part) = part else { return Ok(()) };
            match rank {
                // Rank 1 leaves early, too, and rank 2 speaks late.
                1 => Ok(()),
                2 => {
                    long_enough_to_leave();
                    part.send(&[5_u8], 2, 0)
                }
                _ => {
                    assert_eq!(part.recv(&mut [0_u8], Any, Any)?.source, 1);
                    let error = part.recv(&mut [0_u8], Any, Any).unwrap_err();
                    assert!(matches!(error, Error::NobodyLeft { .. }), "{error}");
                    Ok(())
                }
            }
        });
    });
}

#[test]
fn messages_sent_before_leaving_arrive() {
    on_every_transport(2, |world| {
        let comm = world.communicator();
        if comm.rank() == 0 {
            for number in 0..200 {
                comm.send(&pattern(3000, number), 1, 1)?;
            }
            drop(comm.isend(pattern(1_000_000, 9), 1, 2)?);
        } else {
            std::thread::sleep(std::time::Duration::from_millis(30));
            for number in 0..200 {
                assert_eq!(comm.recv_vec::<u8>(0, 1)?.0, pattern(3000, number));
            }
            assert_eq!(comm.recv_vec::<u8>(0, 2)?.0, pattern(1_000_000, 9));
        }
        Ok(())
    });
}

#[test]
fn communicators_do_not_mix() {
    on_every_transport(4, |world| {
        let comm = world.communicator();
        let other = comm.duplicate()?;
        let peer = comm.rank() ^ 1;
        let requests = [comm.isend(vec![1_u8], peer, 0)?, other.isend(vec![2_u8], peer, 0)?];
        let mut got = [0_u8];
        other.recv(&mut got, Any, Any)?;
        assert_eq!(got, [2]);
        comm.recv(&mut got, Any, Any)?;
        assert_eq!(got, [1]);
        requests.into_iter().try_for_each(|request| request.wait().map(drop))
    });
}

#[test]
fn a_split_orders_by_key_and_leaves_out_who_has_no_color() {
    on_every_transport(7, |world| {
        let comm = world.communicator();
        let rank = comm.rank();
        // Even and odd ranks apart, in reverse order, rank 6 in none.
        let part = comm.split((rank != 6).then_some(rank as u32 % 2), -(rank as i64))?;
        let Some(part) = part else {
            assert_eq!(rank, 6);
            return Ok(());
        };
        let expected: Vec<usize> = (0..6).rev().filter(|other| other % 2 == rank % 2).collect();
        let members: Vec<usize> = (0..part.size()).map(|member| part.world_rank(member)).collect();
        assert_eq!(members, expected);
        assert_eq!(part.world_rank(part.rank()), rank);
        let (left, right) = ((part.rank() + 2) % 3, (part.rank() + 1) % 3);
        let mut got = [0_usize];
        let status = part.send_receive(&[rank], right, 0, &mut got, Any, Any)?;
        assert_eq!((status.source, got[0]), (left, expected[left]));
        // A split of a split.
        let alone = part.split(Some(part.rank() as u32), 0)?.expect("everybody has a color");
        assert_eq!((alone.size(), alone.world_rank(0)), (1, rank));
        Ok(())
    });
}

#[test]
fn ranks_that_leave_do_not_wait_for_each_other_to_receive() {
    without_hanging("leaving with messages that nobody wants", || {
        on_every_transport(3, |world| {
            let comm = world.communicator();
            for other in 0..3 {
                drop(comm.isend(pattern(500_000, 1), other, 1)?);
            }
            // Whoever still waits for its receiver hears that there is none.
            if comm.rank() == 2 {
                let error = comm.send(&pattern(500_000, 2), 0, 2).unwrap_err();
                assert!(matches!(error, Error::PeerFinished { peer: 0, .. }), "{error}");
            }
            Ok(())
        });
    });
}

#[test]
fn a_communicator_shrinks_to_those_that_have_not_left() {
    without_hanging("agreeing who is left", || {
        on_every_transport(5, |world| {
            let comm = world.communicator();
            // Rank 1 leaves at once, and rank 0, which would coordinate, a little later.
            match comm.rank() {
                0 => {
                    long_enough_to_leave();
                    return Ok(());
                }
                1 => return Ok(()),
                _ => {}
            }
            let left = comm.shrink()?;
            let members: Vec<usize> = (0..left.size()).map(|rank| left.world_rank(rank)).collect();
            assert_eq!(members, [2, 3, 4]);
            let again = left.shrink()?;
            let size = again.size();
            assert_eq!((size, again.rank()), (3, left.rank()));
            let (left_hand, right_hand) = ((again.rank() + 2) % 3, (again.rank() + 1) % 3);
            let mut got = [0_usize];
            again.send_receive(&[again.rank()], right_hand, 0, &mut got, left_hand, 0)?;
            assert_eq!(got, [left_hand]);
            // The old one still works among those that are left.
            let peer = if comm.rank() == 2 { 3 } else { 2 };
            if comm.rank() < 4 {
                comm.send_receive(&[comm.rank()], peer, 1, &mut got, peer, 1)?;
                assert_eq!(got, [peer]);
            }
            // Over TCP nobody has heard its farewell: it is found not to listen any more.
            let error = comm.send(&[0_u8], 1, 0).unwrap_err();
            assert!(matches!(error, Error::PeerFinished { peer: 1, .. } | Error::PeerLost { peer: 1, .. }), "{error}");
            Ok(())
        });
    });
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Element)]
#[repr(C)]
struct Particle {
    position: [f64; 3],
    kind: u32,
    charge: i32,
}

#[test]
fn structs_travel_whole_and_are_told_apart_from_their_fields() {
    on_every_transport(2, |world| {
        let comm = world.communicator();
        let particles: Vec<Particle> =
            (0..5000).map(|i| Particle { position: [f64::from(i), 0.5, -1.0], kind: i as u32, charge: -i }).collect();
        if comm.rank() == 0 {
            comm.send(&particles, 1, 0)?;
            comm.send(&[1_u8; 32], 1, 0)?;
        } else {
            let (got, status) = comm.recv_vec::<Particle>(0, 0)?;
            assert_eq!(status.elements::<Particle>(), 5000);
            assert_eq!(got, particles);
            assert!(matches!(comm.recv_vec::<Particle>(0, 0), Err(Error::TypeMismatch { .. })));
        }
        Ok(())
    });
}

#[test]
fn several_threads_of_a_rank_can_talk_at_once() {
    on_every_transport(2, |world| {
        let peer = 1 - world.rank();
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|tag| {
                    let comm = world.communicator();
                    scope.spawn(move || -> spmd::Result<()> {
                        for round in 0..20 {
                            let length = LENGTHS[round % LENGTHS.len()];
                            let mut got = vec![0_u8; length];
                            let sent = pattern(length, tag as usize * 100 + round);
                            comm.send_receive(&sent, peer, tag, &mut got, peer, tag)?;
                            assert_eq!(got, sent);
                        }
                        Ok(())
                    })
                })
                .collect();
            threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
        })
    });
}

/// Ends the test, and says where, when `body` hangs: a lost wake-up must not look like a slow machine.
fn without_hanging(name: &'static str, body: impl FnOnce() + Send + 'static) {
    let (done, ended) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        body();
        let _ = done.send(());
    });
    match ended.recv_timeout(std::time::Duration::from_secs(120)) {
        Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("{name} hangs"),
        _ => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
    }
}

/// Every way to wait, over shared memory and over TCP.
fn every_way_to_wait(ranks: usize) -> impl Iterator<Item = Cluster> {
    ["auto", "spin", "yield", "sleep"].into_iter().flat_map(move |policy| {
        ["shm", "tcp"].map(|allow| Cluster::new(ranks).set("transport.allow", allow).set("wait.policy", policy))
    })
}

#[test]
fn a_thread_hears_of_what_another_thread_s_call_has_received_for_it() {
    without_hanging("a probe, or a receive, whose message another thread's call takes in", || {
        for cluster in every_way_to_wait(2) {
            let body = |world: &World| -> spmd::Result<()> {
                let comm = world.communicator();
                if comm.rank() == 1 {
                    // One at a time: the second message is sent only when the first has been noticed.
                    for tag in 0..3 {
                        std::thread::sleep(std::time::Duration::from_millis(20));
                        comm.send(&[tag], 0, tag)?;
                        comm.recv_vec::<i32>(0, tag)?;
                    }
                    return comm.send(&[9], 0, 9);
                }
                std::thread::scope(|scope| {
                    let keeps_receiving = scope.spawn(|| comm.recv_vec::<i32>(1, 9).map(drop));
                    std::thread::sleep(std::time::Duration::from_millis(10));
                    assert_eq!(comm.probe(1, 0)?.tag, 0);
                    comm.send(&[0], 1, 0)?;
                    assert_eq!(comm.probe(Any, 1)?.tag, 1);
                    comm.send(&[1], 1, 1)?;
                    comm.recv_vec::<i32>(1, 2)?;
                    comm.send(&[2], 1, 2)?;
                    keeps_receiving.join().unwrap()
                })
            };
            cluster.run(body).unwrap().into_iter().collect::<spmd::Result<Vec<()>>>().unwrap();
        }
    });
}

#[test]
fn a_thread_that_sleeps_is_woken_by_another_thread_of_its_rank() {
    // Rounds that each wait for a time-out instead of being woken would take minutes.
    without_hanging("a thread that waits for another thread of its rank", || {
        for cluster in every_way_to_wait(2) {
            let body = |world: &World| -> spmd::Result<()> {
                let comm = world.communicator();
                let me = comm.rank();
                std::thread::scope(|scope| {
                    let answers = scope.spawn(|| -> spmd::Result<()> {
                        for round in 0..40 {
                            comm.recv_vec::<u8>(me, round)?;
                            comm.send(&[1_u8], me, round + 1000)?;
                        }
                        Ok(())
                    });
                    for round in 0..40 {
                        std::thread::sleep(std::time::Duration::from_micros(200));
                        comm.send(&[1_u8], me, round)?;
                        comm.recv_vec::<u8>(me, round + 1000)?;
                    }
                    answers.join().unwrap()
                })
            };
            cluster.run(body).unwrap().into_iter().collect::<spmd::Result<Vec<()>>>().unwrap();
        }
    });
}

#[test]
fn a_panic_of_one_rank_reaches_the_caller_and_does_not_hang_the_others() {
    for (name, cluster) in clusters(3) {
        let panic = std::panic::catch_unwind(|| {
            cluster.run(|world| {
                let comm = world.communicator();
                assert!(comm.rank() != 1, "rank 1 gives up");
                comm.recv(&mut [0_u8], 1, 0).expect_err("rank 1 never sends");
            })
        });
        assert!(panic.is_err(), "{name}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Random programs: every rank sends the same known set of messages in some order and receives with wildcards.
    #[test]
    fn every_message_arrives_exactly_once(
        lengths in proptest::collection::vec(0..20_000_usize, 1..20),
        choice in 0..12_usize,
        ranks in 2..5_usize,
    ) {
        let mut all = clusters(ranks);
        let (name, cluster) = all.swap_remove(choice % all.len());
        let results = cluster.run(|world| -> spmd::Result<()> {
            let comm = world.communicator();
            let requests = (0..ranks)
                .flat_map(|dest| lengths.iter().enumerate().map(move |(number, length)| (dest, number, *length)))
                .map(|(dest, number, length)| comm.isend(pattern(length, comm.rank() + number), dest, number as i32))
                .collect::<spmd::Result<Vec<_>>>()?;
            let mut seen = vec![0; ranks];
            for _ in 0..ranks * lengths.len() {
                let (got, status) = comm.recv_vec::<u8>(Any, Any)?;
                let number = seen[status.source];
                assert_eq!(status.tag as usize, number, "{name}: order of rank {}", status.source);
                assert_eq!(got, pattern(lengths[number], status.source + number));
                seen[status.source] += 1;
            }
            requests.into_iter().try_for_each(|request| request.wait().map(drop))
        });
        for result in results.unwrap() {
            result.unwrap();
        }
    }
}
