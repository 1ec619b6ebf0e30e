//! What happens to messages and receives when ranks leave, over every transport.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "small numbers of test patterns"
)]

mod common;

use common::{every_transport, long_enough_to_leave, on, on_every_transport, pattern, without_hanging};
use spmd::{Error, prelude::*};

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
