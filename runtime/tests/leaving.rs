//! What happens to messages and receives when ranks leave, over every transport.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "small numbers of test patterns"
)]

mod common;

use common::{clusters, every_transport, long_enough_to_leave, on, on_every_transport, pattern, without_hanging};
use spmd::{Compare, Error, SignalOp, SymmetricHeap, prelude::*};
use std::time::{Duration, Instant};

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
            std::thread::sleep(Duration::from_millis(30));
            for number in 0..200 {
                assert_eq!(comm.recv_vec::<u8>(0, 1)?.0, pattern(3000, number));
            }
            assert_eq!(comm.recv_vec::<u8>(0, 2)?.0, pattern(1_000_000, 9));
        }
        Ok(())
    });
}

#[test]
fn two_hundred_connections_that_are_used_once_and_left_end_without_an_error() {
    // Eight ranks have 28 pairs: each connects, says one word in each direction, and leaves at once.
    let plain = |name: &str| ["shm", "tcp", "verbs"].contains(&name);
    for _ in 0..8 {
        on(every_transport(8).filter(|(name, _)| plain(name)), |world| {
            let comm = world.communicator();
            let rank = comm.rank();
            for step in 1..8 {
                let peer = (rank + step) % 8;
                drop(comm.isend(vec![rank as u8], peer, 0)?);
            }
            for step in 1..8 {
                let peer = (rank + 8 - step) % 8;
                let mut said = [0_u8];
                comm.recv(&mut said, peer, 0)?;
                assert_eq!(said, [peer as u8]);
            }
            Ok(())
        });
    }
}

#[test]
fn every_call_after_the_own_world_has_been_dropped_is_the_same_error() {
    without_hanging("a call without a world", || {
        for (name, cluster) in clusters(2) {
            let kept = cluster.run(|world| {
                let comm = world.communicator();
                let heap = SymmetricHeap::new(&comm, 4096)?;
                let buffer = heap.alloc::<u64>(8)?;
                let receive = comm.irecv(vec![0_u8], comm.rank(), 9)?;
                spmd::Result::Ok((comm, heap, buffer, receive))
            });
            for (rank, kept) in kept.expect(name).into_iter().enumerate() {
                let (comm, heap, buffer, receive) = kept.expect(name);
                let peer = 1 - rank;
                let is_told = |what: &str, result: spmd::Result<()>| match result {
                    Err(Error::WorldDropped { rank: own }) => assert_eq!(own, rank, "{name}, {what}"),
                    other => panic!("{name}, rank {rank}, {what}: {other:?}"),
                };
                is_told("wait", receive.wait().map(drop));
                for to in [peer, rank] {
                    for length in [1, 1_000_000] {
                        is_told("send", comm.send(&pattern(length, 0), to, 0));
                        is_told("ssend", comm.ssend(&pattern(length, 0), to, 0));
                        is_told("isend", comm.isend(pattern(length, 0), to, 0).and_then(SendRequest::wait).map(drop));
                    }
                    is_told("recv", comm.recv(&mut [0_u8], to, 0).map(drop));
                    is_told("recv_vec", comm.recv_vec::<u8>(to, 0).map(drop));
                    is_told("irecv", comm.irecv(vec![0_u8], to, 0).map(drop));
                    is_told("probe", comm.probe(to, 0).map(drop));
                    is_told("iprobe", comm.iprobe(to, 0).map(drop));
                    is_told("put", buffer.put(&[1], to));
                    is_told("get", buffer.get(&mut [1], to));
                    is_told("put_signal", buffer.put_signal(&[1], to, &buffer, 3, SignalOp::Set(1)));
                    is_told("fetch_add", buffer.fetch_add(0, 1, to).map(drop));
                }
                is_told("recv from any", comm.recv(&mut [0_u8], Any, Any).map(drop));
                is_told("wait_signal", buffer.wait_signal(7, Compare::Equal(1), None).map(drop));
                is_told("alloc", heap.alloc::<u8>(1).map(drop));
                is_told("heap", SymmetricHeap::new(&comm, 1).map(drop));
                is_told("duplicate", comm.duplicate().map(drop));
                is_told("split", comm.split(Some(0), 0).map(drop));
                is_told("shrink", comm.shrink().map(drop));
                is_told("revoke", comm.revoke());
            }
        }
    });
}

#[test]
fn a_message_for_a_communicator_that_its_receiver_has_dropped_is_an_error_at_the_sender() {
    without_hanging("a send into a communicator that was dropped", || {
        on_every_transport(2, |world| {
            let comm = world.communicator();
            for (length, comes_too_late) in [(1, false), (1, true), (1_000_000, false), (1_000_000, true)] {
                let other = comm.duplicate()?;
                if comm.rank() == 1 {
                    // With the message waiting there, and before it comes.
                    if !comes_too_late {
                        other.probe(0, 5)?;
                    }
                    drop(other);
                    comm.send(&[1_u8], 0, 1)?;
                } else {
                    if comes_too_late {
                        comm.recv(&mut [0_u8], 1, 1)?;
                    }
                    let error = other.ssend(&pattern(length, 0), 1, 5).unwrap_err();
                    assert!(matches!(error, Error::CommunicatorDropped { peer: 1, .. }), "{length}: {error}");
                    if !comes_too_late {
                        comm.recv(&mut [0_u8], 1, 1)?;
                    }
                    let error = other.issend(pattern(length, 0), 1, 5)?.wait().unwrap_err();
                    assert!(matches!(error, Error::CommunicatorDropped { peer: 1, .. }), "{length}: {error}");
                }
                // Others are not concerned.
                let mut byte = [0_u8];
                comm.send_receive(&[7_u8], 1 - comm.rank(), 2, &mut byte, 1 - comm.rank(), 2)?;
                assert_eq!(byte, [7]);
            }
            Ok(())
        });
    });
}

#[test]
fn small_messages_to_a_dropped_communicator_do_not_use_up_the_credit_of_others() {
    without_hanging("small messages to a communicator that was dropped", || {
        on(common::with_a_small_window(2), |world| {
            let comm = world.communicator();
            let other = comm.duplicate()?;
            if comm.rank() == 1 {
                drop(other);
                comm.send(&[1_u8], 0, 1)?;
                // Whatever comes before this is taken on the way.
                comm.recv(&mut [0_u8], 0, 2)?;
            } else {
                comm.recv(&mut [0_u8], 1, 1)?;
                // Four windows: a few hundred bytes are sent whole as long as there is credit, and announced without.
                for _ in 0..100 {
                    match other.send(&pattern(100, 0), 1, 5) {
                        Ok(()) | Err(Error::CommunicatorDropped { peer: 1, .. }) => {}
                        Err(error) => return Err(error),
                    }
                }
                comm.send(&[2_u8], 1, 2)?;
            }
            Ok(())
        });
    });
}

#[test]
fn one_sided_operations_on_a_rank_that_has_left_are_errors_before_long() {
    without_hanging("an operation on a rank that left", || {
        on_every_transport(3, |world| {
            let comm = world.communicator();
            let heap = SymmetricHeap::new(&comm, 4096)?;
            let buffer = heap.alloc::<u64>(8)?;
            if comm.rank() == 0 {
                return Ok(());
            }
            type Operation<'a> = (&'static str, &'a dyn Fn() -> spmd::Result<()>);
            let operations: [Operation<'_>; 6] = [
                ("put and quiet", &|| buffer.put(&[1, 2, 3], 0).and_then(|()| heap.quiet())),
                ("get", &|| buffer.get(&mut [0; 3], 0)),
                ("fetch_add", &|| buffer.fetch_add(1, 1, 0).map(drop)),
                ("add", &|| buffer.add(1, 1, 0)),
                ("signal", &|| buffer.signal(2, SignalOp::Add(1), 0)),
                ("put_signal", &|| buffer.put_signal(&[1], 0, &buffer, 2, SignalOp::Set(1))),
            ];
            for (name, operation) in operations {
                let since = Instant::now();
                let error = loop {
                    match operation() {
                        Err(error) => break error,
                        // It has not been heard of yet.
                        Ok(()) => assert!(since.elapsed() < Duration::from_secs(30), "{name} goes on for ever"),
                    }
                };
                // Over TCP it may have dropped the heap, and be there for a moment.
                let is_named = matches!(error, Error::PeerFinished { peer: 0, .. })
                    || matches!(&error, Error::Heap { reason, .. } if reason.starts_with("rank 0 has dropped heap 0"));
                assert!(is_named, "{name}: {error}");
            }
            // The others are not concerned.
            let peer = 3 - comm.rank();
            buffer.slice(4..).put(&[comm.rank() as u64], peer)?;
            comm.send_receive(&[1_u8], peer, 0, &mut [0_u8], peer, 0)?;
            let _ = heap.quiet();
            comm.send_receive(&[1_u8], peer, 0, &mut [0_u8], peer, 0)?;
            assert_eq!(buffer.slice(4..).to_vec()[0], peer as u64);
            Ok(())
        });
    });
}
