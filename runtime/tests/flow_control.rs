//! What waits for its receive is bounded, and nothing deadlocks or starves for it, over every transport.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "small numbers of test patterns"
)]

mod common;

use common::{LENGTHS, long_enough_to_leave, on, on_every_transport, pattern, with_a_small_window, without_hanging};
use spmd::{local::Cluster, prelude::*};

#[test]
fn a_flood_that_nobody_receives_yet_keeps_its_order_and_a_blocking_send_waits() {
    without_hanging("a flood", || {
        const MESSAGES: usize = 3000;
        let sent = std::sync::atomic::AtomicUsize::new(0);
        on(with_a_small_window(2), |world| {
            use std::sync::atomic::Ordering::SeqCst;
            let comm = world.communicator();
            let length = |number: usize| LENGTHS[number % 6];
            if comm.rank() == 0 {
                sent.store(0, SeqCst);
                // Non-blocking sends never wait, and the receiver keeps no more than the window of them.
                let requests = (0..MESSAGES)
                    .map(|number| comm.isend(pattern(length(number), number), 1, 0))
                    .collect::<spmd::Result<Vec<_>>>()?;
                comm.send(&[0_u8], 1, 1)?;
                for request in requests {
                    request.wait()?;
                }
                for number in 0..MESSAGES {
                    comm.send(&pattern(length(number), number), 1, 0)?;
                    sent.fetch_add(1, SeqCst);
                }
            } else {
                // All that was sent before is still there, in order, although the later tag is received first.
                comm.recv(&mut [9_u8], 0, 1)?;
                for number in 0..MESSAGES {
                    assert_eq!(comm.recv_vec::<u8>(0, 0)?.0, pattern(length(number), number), "message {number}");
                }
                for number in 0..MESSAGES {
                    // As many messages as the window holds, and the one that waits.
                    assert!(sent.load(SeqCst) <= number + 2 * 4096 / 64 + 1, "the sender does not wait");
                    assert_eq!(comm.recv_vec::<u8>(0, 0)?.0, pattern(length(number), number), "message {number}");
                }
            }
            Ok(())
        });
    });
}

#[test]
fn a_receive_finds_a_message_behind_any_number_of_others() {
    without_hanging("a receive of the last of many", || {
        on(with_a_small_window(2), |world| {
            let comm = world.communicator();
            let last = 2000;
            if comm.rank() == 0 {
                let requests = (0..=last)
                    .map(|tag| comm.isend(vec![tag; 1 + tag as usize % 50], 1, tag))
                    .collect::<spmd::Result<Vec<_>>>()?;
                requests.into_iter().try_for_each(|request| request.wait().map(drop))
            } else {
                assert_eq!(comm.probe(Any, last)?.tag, last);
                for tag in (0..=last).rev() {
                    let (got, status) = comm.recv_vec::<i32>(Any, tag)?;
                    assert_eq!((got.len(), got[0], status.tag), (1 + tag as usize % 50, tag, tag));
                }
                Ok(())
            }
        });
    });
}

#[test]
fn many_ranks_may_flood_one() {
    without_hanging("many to one", || {
        for (name, cluster) in [("shm", Cluster::new(32)), ("tcp", Cluster::new(32).set("transport.allow", "tcp"))] {
            let cluster = cluster.set("eager.window", "16KiB");
            on(std::iter::once((name, cluster)), |world| {
                const MESSAGES: usize = 200;
                let comm = world.communicator();
                if comm.rank() > 0 {
                    return (0..MESSAGES)
                        .map(|number| comm.isend(pattern(1024, comm.rank() + number), 0, number as i32))
                        .collect::<spmd::Result<Vec<_>>>()?
                        .into_iter()
                        .try_for_each(|request| request.wait().map(drop));
                }
                long_enough_to_leave();
                let mut seen = vec![0; comm.size()];
                for _ in 0..MESSAGES * (comm.size() - 1) {
                    let (got, status) = comm.recv_vec::<u8>(Any, Any)?;
                    assert_eq!(status.tag as usize, seen[status.source]);
                    assert_eq!(got, pattern(1024, status.source + seen[status.source]));
                    seen[status.source] += 1;
                }
                Ok(())
            });
        }
    });
}

#[test]
fn floods_in_both_directions_at_once_do_not_deadlock() {
    without_hanging("two floods", || {
        on(with_a_small_window(2), |world| {
            let comm = world.communicator();
            let peer = 1 - comm.rank();
            let sends =
                (0..1000).map(|number| comm.isend(pattern(300, number), peer, 0)).collect::<spmd::Result<Vec<_>>>()?;
            for number in 0..1000 {
                assert_eq!(comm.recv_vec::<u8>(peer, 0)?.0, pattern(300, number));
            }
            sends.into_iter().try_for_each(|request| request.wait().map(drop))
        });
    });
}

#[test]
fn a_blocking_send_to_oneself_never_waits_and_what_is_not_received_holds_nobody_up() {
    without_hanging("sends to oneself", || {
        on(with_a_small_window(2), |world| {
            let comm = world.communicator();
            let me = comm.rank();
            for length in LENGTHS {
                for number in 0..3 {
                    comm.send(&pattern(length, number), me, 5)?;
                }
            }
            for length in LENGTHS {
                for number in 0..3 {
                    assert_eq!(comm.recv_vec::<u8>(me, 5)?.0, pattern(length, number));
                }
            }
            comm.send(&pattern(1_000_000, 0), me, 5)
        });
    });
}

#[test]
fn a_quiet_rank_is_heard_among_those_that_flood() {
    without_hanging("a quiet rank", || {
        on(with_a_small_window(4), |world| {
            let comm = world.communicator();
            match comm.rank() {
                0 => {
                    // Everybody takes part until the quiet rank has been heard often enough.
                    let mut seen = [0_usize; 4];
                    while seen[3] < 10 {
                        let status = comm.recv(&mut [0_u8; 8], Any, 0)?;
                        seen[status.source] += 1;
                        if status.source == 3 {
                            comm.send(&[0_u8], 3, 1)?;
                        }
                        let most = seen[1].max(seen[2]);
                        assert!(most < 20_000, "only {seen:?} messages were received");
                    }
                    let stops = [comm.isend(vec![0_u8], 1, 2)?, comm.isend(vec![0_u8], 2, 2)?];
                    // What is left of the flood.
                    let mut ended = 0;
                    while ended < 2 {
                        ended += usize::from(comm.recv(&mut [0_u8; 8], Any, Any)?.tag == 3);
                    }
                    stops.into_iter().try_for_each(|stop| stop.wait().map(drop))
                }
                3 => (0..10).try_for_each(|_| {
                    comm.send(&[3_u8; 8], 0, 0)?;
                    comm.recv(&mut [0_u8], 0, 1).map(drop)
                }),
                _ => {
                    while comm.iprobe(0, 2)?.is_none() {
                        comm.send(&[1_u8; 8], 0, 0)?;
                    }
                    comm.recv(&mut [0_u8], 0, 2)?;
                    comm.send(&[1_u8; 8], 0, 3)
                }
            }
        });
    });
}

/// Memory of this process in bytes.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[test]
fn messages_of_communicators_that_are_dropped_take_no_memory() {
    const LENGTH: usize = 1 << 20;
    without_hanging("messages that nobody will receive", || {
        on_every_transport(3, |world| {
            let comm = world.communicator();
            let (left, right) = ((comm.rank() + 2) % 3, (comm.rank() + 1) % 3);
            let before = resident();
            for round in 0..400 {
                let other = comm.duplicate()?;
                // Announced messages, whose bytes wait at the sender, and whole ones in turn.
                drop(other.isend(vec![7_u8; if round % 2 == 0 { LENGTH } else { 1000 }], right, 0)?);
                let mut token = [0_u8];
                comm.send_receive(&[1_u8], right, 1, &mut token, left, 1)?;
                // What was sent before on the way to this rank is here; nobody receives it.
                assert!(other.iprobe(left, 0)?.is_some());
            }
            // All three ranks together would keep 600 MB.
            let more = resident().saturating_sub(before);
            assert!(more < 200 * LENGTH, "{} MB more than before", more >> 20);
            let mut got = vec![0_u8; 2000];
            comm.send_receive(&pattern(2000, comm.rank()), right, 2, &mut got, left, 2)?;
            assert_eq!(got, pattern(2000, left));
            Ok(())
        });
    });
}
