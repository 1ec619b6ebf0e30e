//! Synchronous and persistent sends, matched probes, cancelling, and waiting for some of many requests, over every transport.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "small numbers of test patterns"
)]

mod common;

use common::{LENGTHS, long_enough_to_leave, on_every_transport, pattern, without_hanging};
use spmd::{Cancelled, Error, Message, Request, prelude::*};

#[test]
fn a_synchronous_send_returns_only_when_its_message_is_received() {
    without_hanging("synchronous sends", || {
        on_every_transport(2, |world| {
            let comm = world.communicator();
            for (number, length) in LENGTHS.into_iter().enumerate() {
                if comm.rank() == 0 {
                    let request = comm.issend(pattern(length, number), 1, 1)?;
                    // The receiver sends this before it receives.
                    comm.recv(&mut [0_u8], 1, 2)?;
                    let request = request.test()?.expect_err("nobody has received it");
                    assert!(!comm.test_all(&[&request])?);
                    comm.send(&[0_u8], 1, 3)?;
                    assert_eq!(request.wait()?, pattern(length, number));
                    comm.ssend(&pattern(length, number), 1, 1)?;
                } else {
                    comm.send(&[0_u8], 0, 2)?;
                    comm.recv(&mut [0_u8], 0, 3)?;
                    for _ in 0..2 {
                        assert_eq!(comm.recv_vec::<u8>(0, 1)?.0, pattern(length, number));
                    }
                }
            }
            Ok(())
        });
    });
}

#[test]
fn synchronous_and_other_sends_keep_their_order_and_one_that_is_refused_is_over_too() {
    on_every_transport(2, |world| {
        let comm = world.communicator();
        if comm.rank() == 0 {
            let requests = (0..60_u8)
                .map(|number| {
                    let data = vec![number; LENGTHS[number as usize % 13]];
                    if number % 2 == 0 { comm.issend(data, 1, 0) } else { comm.isend(data, 1, 0) }
                })
                .collect::<spmd::Result<Vec<_>>>()?;
            comm.wait_all(&requests)?;
            comm.ssend(&[1_u8; 10], 1, 0)
        } else {
            for number in 0..60_u8 {
                let length = LENGTHS[number as usize % 13];
                assert_eq!(comm.recv_vec::<u8>(Any, Any)?.0, vec![number; length]);
            }
            assert!(matches!(comm.recv(&mut [0_u8; 9], 0, 0), Err(Error::Truncated { .. })));
            Ok(())
        }
    });
}

#[test]
fn persistent_requests_are_started_many_times_with_the_same_buffers() {
    on_every_transport(3, |world| {
        let comm = world.communicator();
        let (rank, size) = (comm.rank(), comm.size());
        let (left, right) = ((rank + size - 1) % size, (rank + 1) % size);
        for length in [0, 1, 1000, 100_000] {
            let mut send = comm.send_init(vec![0_usize; length], right, 0)?;
            let mut again = comm.ssend_init(vec![0_usize; length], right, 1)?;
            let mut receive = comm.recv_init(vec![0_usize; length], left, Any)?;
            for step in 0..4 {
                send.data_mut().fill(step * 10 + rank);
                again.data_mut().fill(step * 10 + rank + 1);
                let (sending, sending_again) = (send.start()?, again.start()?);
                for tag in 0..2 {
                    let receiving = receive.start()?;
                    let status;
                    (receive, status) = receiving.wait()?;
                    assert_eq!(status, Status { source: left, tag, bytes: length * 8 });
                    assert!(receive.buffer().iter().all(|word| *word == step * 10 + left + tag as usize));
                }
                (send, again) = (sending.wait()?, sending_again.wait()?);
                assert_eq!(send.data().len(), length);
            }
            // One that is started and then given up leaves its message to others.
            let last = comm.isend(vec![9_usize; length], right, 5)?;
            drop(receive.start()?);
            assert_eq!(comm.recv_vec::<usize>(left, 5)?.0, vec![9; length]);
            last.wait()?;
        }
        Ok(())
    });
}

#[test]
fn a_message_of_a_matched_probe_is_received_once_by_who_found_it() {
    on_every_transport(2, |world| {
        let comm = world.communicator();
        for length in [0, 10, 100_000] {
            if comm.rank() == 0 {
                let requests =
                    (0..4).map(|number| comm.isend(pattern(length, number), 1, 6)).collect::<spmd::Result<Vec<_>>>()?;
                comm.wait_all(&requests)?;
                comm.recv(&mut [0_u8], 1, 7)?;
            } else {
                let first = comm.mprobe(Any, Any)?;
                assert_eq!(first.status(), Status { source: 0, tag: 6, bytes: length });
                // Nobody else gets it.
                let second = comm.mprobe(0, 6)?;
                assert_eq!(comm.recv_vec::<u8>(0, 6)?.0, pattern(length, 2));
                assert_eq!(second.recv_vec::<u8>()?.0, pattern(length, 1));
                let mut buffer = vec![0_u8; length];
                assert_eq!(first.recv(&mut buffer)?.bytes, length);
                assert_eq!(buffer, pattern(length, 0));
                let last = comm.mprobe(0, Any)?.irecv(vec![0_u8; length + 1])?.wait()?;
                assert_eq!(last.0[..length], pattern(length, 3));
                assert!(comm.improbe(Any, Any)?.is_none());
                comm.send(&[0_u8], 0, 7)?;
            }
        }
        Ok(())
    });
}

#[test]
fn a_message_that_was_found_and_dropped_waits_at_its_old_place() {
    on_every_transport(2, |world| {
        let comm = world.communicator();
        for length in [5, 100_000] {
            if comm.rank() == 0 {
                let requests =
                    (0..3).map(|number| comm.isend(pattern(length, number), 1, 6)).collect::<spmd::Result<Vec<_>>>()?;
                comm.wait_all(&requests)?;
            } else {
                let found: Vec<Message> = (0..2).map(|_| comm.mprobe(Any, 6)).collect::<spmd::Result<_>>()?;
                drop(found);
                for number in 0..3 {
                    assert_eq!(comm.recv_vec::<u8>(0, 6)?.0, pattern(length, number));
                }
            }
        }
        Ok(())
    });
}

#[test]
fn a_message_that_was_found_may_be_refused_and_the_next_one_is_intact() {
    on_every_transport(2, |world| {
        let comm = world.communicator();
        for length in [10, 100_000] {
            if comm.rank() == 0 {
                comm.send(&pattern(length, 0), 1, 6)?;
                comm.send(&pattern(length, 1), 1, 6)?;
                comm.send(&pattern(length, 2), 1, 6)?;
            } else {
                let error = comm.mprobe(0, 6)?.recv(&mut [0_u8; 9]).unwrap_err();
                assert!(matches!(error, Error::Truncated { room: 9, .. }), "{error}");
                let error = comm.mprobe(0, 6)?.recv_vec::<i8>().unwrap_err();
                assert!(matches!(error, Error::TypeMismatch { .. }), "{error}");
                assert_eq!(comm.mprobe(0, 6)?.recv_vec::<u8>()?.0, pattern(length, 2));
            }
        }
        Ok(())
    });
}

#[test]
fn several_threads_with_matched_probes_receive_every_message_once() {
    without_hanging("threads with matched probes", || {
        on_every_transport(2, |world| {
            const MESSAGES: usize = 120;
            let comm = world.communicator();
            if comm.rank() == 0 {
                return (0..MESSAGES).try_for_each(|number| {
                    let length = LENGTHS[number % 12];
                    comm.send(&vec![number as u32; 1 + length / 4], 1, length as i32)
                });
            }
            let seen = std::sync::Mutex::new(vec![0; MESSAGES]);
            let left = std::sync::atomic::AtomicUsize::new(MESSAGES);
            std::thread::scope(|scope| {
                let threads: Vec<_> = (0..4)
                    .map(|_| {
                        scope.spawn(|| -> spmd::Result<()> {
                            // Whoever takes a place here finds a message for it.
                            use std::sync::atomic::Ordering::SeqCst;
                            while left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok() {
                                let message = comm.mprobe(Any, Any)?;
                                let (words, status) = message.recv_vec::<u32>()?;
                                assert_eq!(words.len(), 1 + status.tag as usize / 4);
                                assert!(words.iter().all(|word| *word == words[0]));
                                seen.lock().unwrap()[words[0] as usize] += 1;
                            }
                            Ok(())
                        })
                    })
                    .collect();
                threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
            })?;
            assert!(seen.lock().unwrap().iter().all(|times| *times == 1));
            Ok(())
        });
    });
}

#[test]
fn a_receive_can_be_cancelled_until_a_message_has_met_it() {
    on_every_transport(2, |world| {
        let comm = world.communicator();
        for length in [10, 500_000] {
            if comm.rank() == 0 {
                let early = comm.irecv(vec![7_u8; 20], 1, 1)?;
                let kept = comm.irecv(vec![0_u8; length], 1, 1)?;
                assert_eq!(early.cancel()?, Cancelled::Withdrawn(vec![7; 20]));
                comm.send(&[0_u8], 1, 0)?;
                comm.recv(&mut [0_u8], 1, 2)?;
                // Its message, which comes before that, has met it: it cannot be cancelled any more.
                let status = Status { source: 1, tag: 1, bytes: length };
                assert_eq!(kept.cancel()?, Cancelled::Received(pattern(length, 1), status));
                assert_eq!(comm.recv_vec::<u8>(1, 1)?.0, pattern(length, 2));
            } else {
                comm.recv(&mut [0_u8], 0, 0)?;
                let requests = [comm.isend(pattern(length, 1), 0, 1)?, comm.isend(pattern(length, 2), 0, 1)?];
                comm.send(&[0_u8], 0, 2)?;
                comm.wait_all(&requests)?;
            }
        }
        Ok(())
    });
}

#[test]
fn a_receive_that_is_dropped_never_loses_its_message_or_its_order() {
    on_every_transport(2, |world| {
        let comm = world.communicator();
        for length in [10, 8000, 2_000_003] {
            if comm.rank() == 0 {
                let requests =
                    (0..4).map(|number| comm.isend(pattern(length, number), 1, 1)).collect::<spmd::Result<Vec<_>>>()?;
                comm.send(&[0_u8], 1, 0)?;
                comm.wait_all(&requests)?;
            } else {
                let not_yet = comm.irecv(vec![0_u8; length], 0, 1)?;
                let second = comm.irecv(vec![0_u8; length], 0, Any)?;
                comm.recv(&mut [0_u8], 0, 0)?;
                // By now the first messages are here, or on their way: some of the large ones in part.
                drop(second);
                drop(not_yet);
                for number in 0..4 {
                    assert_eq!(comm.recv_vec::<u8>(0, 1)?.0, pattern(length, number), "message {number}");
                }
            }
        }
        Ok(())
    });
}

#[test]
fn waiting_for_some_of_many_requests_of_any_kind_finds_each_of_them() {
    on_every_transport(2, |world| {
        let comm = world.communicator();
        let peer = 1 - comm.rank();
        let mut requests: Vec<Box<dyn Request>> = Vec::new();
        assert_eq!(
            (comm.wait_any(&requests)?, comm.wait_some(&requests)?, comm.test_all(&requests)?),
            (None, vec![], true)
        );
        comm.wait_all(&requests)?;
        for number in 0..30 {
            let length = LENGTHS[number % 13];
            requests.push(Box::new(comm.irecv(vec![0_u8; length], peer, number as i32)?));
            requests.push(Box::new(comm.isend(vec![0_u8; length], peer, number as i32)?));
            requests.push(Box::new(comm.recv_init(vec![0_u64; 3], peer, 1000 + number as i32)?.start()?));
            requests.push(Box::new(comm.ssend_init(vec![0_u64; 3], peer, 1000 + number as i32)?.start()?));
        }
        // Two that cannot complete before all others have.
        let last = comm.irecv(vec![0_u8], peer, 5000)?;
        let never = comm.irecv(vec![0_u8], peer, 6000)?;
        requests.push(Box::new(last));
        requests.push(Box::new(never));
        for _ in 0..30 {
            let index = comm.wait_any(&requests)?.expect("there are requests");
            assert!(index < requests.len() - 2);
            drop(requests.remove(index));
        }
        while requests.len() > 40 {
            let complete = comm.wait_some(&requests)?;
            assert!(!complete.is_empty() && complete.is_sorted());
            for index in complete.into_iter().rev() {
                drop(requests.remove(index));
            }
        }
        while requests.len() > 2 {
            match comm.test_any(&requests)? {
                Some(index) => drop(requests.remove(index)),
                None => std::thread::yield_now(),
            }
            assert!(comm.test_some(&requests)?.into_iter().all(|index| index + 2 < requests.len()));
        }
        assert!(!comm.test_all(&requests)?);
        comm.send_receive(&[0_u8], peer, 4000, &mut [0_u8], peer, 4000)?;
        comm.send(&[0_u8], peer, 5000)?;
        assert_eq!(comm.wait_any(&requests)?, Some(0));
        assert_eq!(comm.test_some(&requests)?, [0]);
        // An error is an end, too; the request itself reports it.
        let wrong = comm.irecv(vec![0_f32], peer, 7000)?;
        comm.send(&[1_u8], peer, 7000)?;
        comm.wait_all(&[&wrong])?;
        assert!(matches!(wrong.wait(), Err(Error::TypeMismatch { .. })));
        Ok(())
    });
}

#[test]
fn waiting_for_any_request_ends_when_a_rank_leaves() {
    without_hanging("requests of a rank that left", || {
        on_every_transport(2, |world| {
            let comm = world.communicator();
            if comm.rank() == 0 {
                return Ok(());
            }
            long_enough_to_leave();
            let Ok(request) = comm.irecv(vec![0_u8], 0, 0) else { return Ok(()) };
            assert_eq!(comm.wait_any(&[&request])?, Some(0));
            assert!(matches!(request.wait(), Err(Error::PeerFinished { .. })));
            Ok(())
        });
    });
}
