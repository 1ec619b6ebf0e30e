//! Communicators that one rank ends for all, over every transport.

#![allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "small numbers of test patterns")]

mod common;

use common::{
    every_transport, long_enough_to_leave, on, on_every_transport, pattern, with_a_small_window, without_hanging,
};
use spmd::{Compare, Request, Result, SymmetricHeap, prelude::*};
use std::time::Duration;

#[track_caller]
fn assert_revoked<T>(result: Result<T>, by: &[usize], what: &str) {
    match result {
        Ok(_) => panic!("{what}: it has worked"),
        Err(error) => {
            assert!(error.is_loss(), "{what}: {error}");
            assert!(matches!(&error, Error::Revoked { by: who } if by.contains(who)), "{what}: {error}");
        }
    }
}

/// A message that no transport sends before it is asked for.
const LARGE: usize = 700_000;

#[test]
fn whatever_a_rank_waits_in_ends_when_another_one_revokes_the_communicator() {
    const KINDS: usize = 12;
    without_hanging("a call on a communicator that is revoked", || {
        on_every_transport(3, |world| {
            let comm = world.communicator();
            for kind in 0..KINDS {
                let part = comm.duplicate()?;
                if part.rank() == 2 {
                    long_enough_to_leave();
                    part.revoke()?;
                    comm.send_receive(&[0_u8], 0, 1, &mut [0_u8], 1, 1)?;
                    continue;
                }
                // Ranks 0 and 1 wait for each other in the same way, for what the other one will not do.
                let peer = 1 - part.rank();
                let (data, mut room) = (pattern(LARGE, kind), vec![0_u8; 8]);
                let result = match kind {
                    0 => part.recv(&mut room, peer, 0).map(drop),
                    1 => part.recv_vec::<u8>(Any, Any).map(drop),
                    2 => part.send(&data, peer, 0),
                    3 => part.ssend(&[1_u8], peer, 0),
                    4 => part.probe(peer, 7).map(drop),
                    5 => part.mprobe(Any, 7).map(drop),
                    6 => part.send_receive(&data, peer, 0, &mut room, peer, 1).map(drop),
                    7 => part.irecv(room, peer, 0).and_then(|receive| receive.wait()).map(drop),
                    8 => part.isend(data, peer, 0).and_then(|send| {
                        let receive = part.irecv(room, Any, 5)?;
                        let requests: [&dyn Request; 2] = [&send, &receive];
                        part.wait_all(&requests)?;
                        assert_revoked(send.wait(), &[2], "a send that has been waited for");
                        receive.wait().map(drop)
                    }),
                    9 => part.recv_init(room, peer, 0)?.start().and_then(|receive| receive.wait()).map(drop),
                    10 => loop {
                        if let Err(error) = part.iprobe(peer, Any) {
                            break Err(error);
                        }
                    },
                    _ => part.irecv(room, peer, 0).and_then(|mut receive| {
                        loop {
                            match receive.test()? {
                                Err(again) => receive = again,
                                Ok(_) => break Ok(()),
                            }
                        }
                    }),
                };
                assert_revoked(result, &[2], &format!("kind {kind}"));
                comm.send_receive(&[0_u8], part.rank() + 1, 1, &mut [0_u8], (part.rank() + 2) % 3, 1)?;
            }
            Ok(())
        });
    });
}

#[test]
fn every_later_call_is_an_error_and_communicators_made_before_go_on() {
    without_hanging("calls after the end of a communicator", || {
        on_every_transport(4, |world| {
            let comm = world.communicator();
            let (copy, rank) = (comm.duplicate()?, comm.rank());
            let half = comm.split(Some(rank as u32 % 2), 0)?.expect("everybody has a color");
            let heap = SymmetricHeap::new(&comm, 4096)?;
            let signals = heap.alloc::<u64>(2)?;
            let found = if rank == 0 {
                comm.send(&[5_u8], 0, 9)?;
                Some(comm.mprobe(0, 9)?)
            } else {
                None
            };
            let send = comm.send_init(vec![1_u8], (rank + 1) % 4, 0)?;
            // Whoever comes out of this knows that all have come in, and are through with what is above.
            copy.split(None, 0)?;
            if rank == 3 {
                comm.revoke()?;
                comm.revoke()?;
            } else {
                assert_revoked(signals.wait_signal(0, Compare::AtLeast(1), None), &[3], "a signal");
            }
            let peer = (rank + 1) % 4;
            assert_revoked(comm.send(&[1_u8], peer, 0), &[3], "send");
            assert_revoked(comm.send(&pattern(LARGE, 0), peer, 0), &[3], "send of much");
            assert_revoked(comm.send(&[1_u8], rank, 0), &[3], "send to itself");
            assert_revoked(comm.ssend(&[1_u8], peer, 0), &[3], "ssend");
            assert_revoked(comm.isend(vec![1_u8], peer, 0), &[3], "isend");
            assert_revoked(comm.issend(vec![1_u8], peer, 0), &[3], "issend");
            assert_revoked(send.start(), &[3], "a persistent send");
            assert_revoked(comm.recv(&mut [0_u8], peer, 0), &[3], "recv");
            assert_revoked(comm.recv(&mut [0_u8], Any, Any), &[3], "recv from any");
            assert_revoked(comm.irecv(vec![0_u8], Any, Any), &[3], "irecv");
            assert_revoked(comm.iprobe(Any, Any), &[3], "iprobe");
            assert_revoked(comm.improbe(Any, Any), &[3], "improbe");
            assert_revoked(comm.duplicate(), &[3], "duplicate");
            assert_revoked(comm.split(Some(0), 0), &[3], "split");
            assert_revoked(comm.set_low_latency_size_hint(64), &[3], "a size hint");
            assert_revoked(SymmetricHeap::new(&comm, 4096), &[3], "a heap");
            assert_revoked(heap.alloc::<u8>(1), &[3], "a buffer of a heap");
            if let Some(found) = found {
                assert_revoked(found.recv(&mut [0_u8]), &[3], "a message that was found");
            }
            // What was put before is still there, and others are still reached.
            // Not the word that a slower rank still waits for.
            signals.set(1, 7, peer)?;
            for other in [&copy, &half] {
                let (next, last) =
                    ((other.rank() + 1) % other.size(), (other.rank() + other.size() - 1) % other.size());
                for length in [1, LARGE] {
                    let (data, mut got) = (pattern(length, other.rank()), vec![0; length]);
                    other.send_receive(&data, next, 0, &mut got, last, 0)?;
                    assert!(got == pattern(length, last), "{length} bytes of a communicator that goes on");
                }
            }
            // It can still be shrunk, to all that there are.
            let new = comm.shrink()?;
            assert_eq!((new.rank(), new.size()), (rank, 4));
            let mut got = [9_usize];
            new.send_receive(&[rank], peer, 0, &mut got, (rank + 3) % 4, 0)?;
            assert_eq!(got, [(rank + 3) % 4]);
            Ok(())
        });
    });
}

#[test]
fn ranks_that_wait_in_a_chain_for_one_that_has_left_are_all_woken_by_the_first_that_shrinks() {
    without_hanging("a chain of ranks that wait for each other", || {
        for policy in ["auto", "spin", "sleep"] {
            on(every_transport(5).map(|(name, cluster)| (name, cluster.set("wait.policy", policy))), |world| {
                let comm = world.communicator();
                let rank = comm.rank();
                if rank == 4 {
                    return Ok(());
                }
                // Rank 3 hears that rank 4 has left; the others wait for one that is alive.
                let error = comm.recv(&mut [0_u8], rank + 1, 0).unwrap_err();
                assert!(error.is_loss(), "{error}");
                assert!(rank == 3 || matches!(error, Error::Revoked { .. }), "{error}");
                let left = comm.shrink()?;
                assert_eq!(left.size(), 4);
                let mut got = [9_usize];
                left.send_receive(&[rank], (rank + 1) % 4, 0, &mut got, (rank + 3) % 4, 0)?;
                assert_eq!(got, [(rank + 3) % 4]);
                Ok(())
            });
        }
    });
}

#[test]
fn messages_that_were_under_way_are_dropped_and_the_new_communicator_works_whatever_the_old_one_held() {
    without_hanging("a flood on a communicator that is revoked", || {
        on(with_a_small_window(3), |world| {
            const MOST: usize = 150_000;
            let (mut comm, data) = (world.communicator(), pattern(MOST, 1));
            let apart = comm.duplicate()?;
            for round in 0..3 {
                let rank = comm.rank();
                // Far more than anybody may keep, of which hardly anything is received; some of it is arriving.
                let mut kept = Vec::new();
                for number in 0..120 {
                    let length = [10, 1000, 20_000, MOST][number % 4];
                    for peer in 0..3 {
                        match comm.isend(data[..length].to_vec(), peer, number as i32) {
                            Ok(send) if number % 3 == 0 => kept.push(send),
                            Ok(_) | Err(Error::Revoked { .. }) => {}
                            Err(other) => return Err(other),
                        }
                    }
                }
                let receives: Vec<_> =
                    (0..40).filter_map(|number| comm.irecv(vec![0_u8; MOST], Any, 3 + 4 * number).ok()).collect();
                if round == rank {
                    let _ = comm.iprobe(Any, 999);
                    comm.revoke()?;
                }
                for receive in receives {
                    match receive.wait() {
                        Ok((got, status)) => assert!(got == data, "message {}", status.tag),
                        Err(error) => assert!(matches!(error, Error::Revoked { .. }), "{error}"),
                    }
                }
                let new = comm.shrink()?;
                for send in kept {
                    match send.wait() {
                        Ok(_) | Err(Error::Revoked { .. }) => {}
                        Err(other) => return Err(other),
                    }
                }
                comm = new;
                for number in 0..50 {
                    let (length, mut got) = ([10, 20_000][number % 2] + rank, vec![0_u8; 20_003]);
                    let (next, last) = ((rank + 1) % 3, (rank + 2) % 3);
                    let status = comm.send_receive(&data[..length], next, 1, &mut got, last, 1)?;
                    assert_eq!(status.bytes, length - rank + last);
                    assert!(got[..status.bytes] == data[..status.bytes], "message {number} after round {round}");
                }
                // One that is through must not end it for those that are not.
                apart.split(None, 0)?;
            }
            Ok(())
        });
    });
}

#[test]
fn a_thread_that_waits_is_woken_by_another_one_of_its_rank() {
    without_hanging("a thread whose communicator is revoked by another thread", || {
        on_every_transport(2, |world| {
            let comm = world.communicator();
            let part = comm.duplicate()?;
            std::thread::scope(|threads| {
                let waits = [Source::Any, Source::Rank(1 - comm.rank())].map(|from| {
                    threads.spawn({
                        let part = part.clone();
                        move || part.recv(&mut [0_u8], from, 0)
                    })
                });
                if comm.rank() == 0 {
                    std::thread::sleep(Duration::from_millis(20));
                    part.revoke()?;
                }
                for wait in waits {
                    assert_revoked(wait.join().expect("it does not panic"), &[0], "recv");
                }
                Ok(())
            })
        });
    });
}
