//! Point-to-point semantics, the same over every transport: each body below runs over shared memory, over TCP, and over
//! a mix of both.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "small numbers of test patterns"
)]

mod common;

use common::{
    LENGTHS, clusters, every_way_to_wait, long_enough_to_leave, on_every_transport, pattern, without_hanging,
};
use proptest::prelude::*;
use spmd::{Error, World, local::Cluster, prelude::*};

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
fn one_byte_too_many_is_an_error_whatever_the_length_and_whoever_comes_first() {
    const GUARD: u8 = 0xa5;
    on_every_transport(2, |world| {
        let comm = world.communicator();
        let lengths = [1, 31, 32, 33, 4096, 8191, 8192, 8193, 65_536, 65_537, 1 << 20];
        for (round, length) in lengths.into_iter().flat_map(|length| (0..3).map(move |round| (round, length))) {
            if comm.rank() == 0 {
                // The receive is there first, the message is there first, and a wildcard receives.
                if round == 0 {
                    comm.recv(&mut [0_u8], 1, 9)?;
                }
                let sent = [comm.isend(pattern(length, 1), 1, 1)?, comm.isend(pattern(length, 2), 1, 1)?];
                if round > 0 {
                    comm.isend(vec![0_u8], 1, 8)?.wait()?;
                }
                comm.wait_all(&sent)?;
            } else {
                let mut buffer = vec![GUARD; length + 1];
                if round > 0 {
                    comm.recv(&mut [0_u8], 0, 8)?;
                }
                let source = if round == 2 { Source::Any } else { Source::Rank(0) };
                let error = if round == 0 {
                    let receive = comm.irecv(vec![GUARD; length - 1], 0, 1)?;
                    comm.send(&[0_u8], 0, 9)?;
                    receive.wait().unwrap_err()
                } else {
                    comm.recv(&mut buffer[..length - 1], source, 1).unwrap_err()
                };
                assert!(
                    matches!(error, Error::Truncated { sent, room, .. } if sent == length && room == length - 1),
                    "{error}"
                );
                assert!(buffer.iter().all(|byte| *byte == GUARD), "nothing is written when a message is refused");
                let status = comm.recv(&mut buffer[..length], source, 1)?;
                assert_eq!(status.bytes, length);
                assert_eq!((&buffer[..length], buffer[length]), (&pattern(length, 2)[..], GUARD));
            }
        }
        Ok(())
    });
}

#[test]
fn every_tag_up_to_the_largest_is_its_own() {
    on_every_transport(2, |world| {
        let comm = world.communicator();
        let tags: Vec<i32> = (0..31).map(|bit| 1 << bit).chain([0, i32::MAX - 1, i32::MAX]).collect();
        if comm.rank() == 0 {
            let sent = tags.iter().map(|tag| comm.isend(vec![*tag], 1, *tag)).collect::<spmd::Result<Vec<_>>>()?;
            comm.wait_all(&sent)?;
        } else {
            for tag in tags.into_iter().rev() {
                let (got, status) = comm.recv_vec::<i32>(0, tag)?;
                assert_eq!((got, status.tag), (vec![tag], tag));
            }
            for tag in [-1, i32::MIN] {
                assert!(matches!(comm.recv(&mut [0], 0, tag), Err(Error::BadTag { .. })));
                assert!(matches!(comm.probe(0, tag), Err(Error::BadTag { .. })));
                assert!(matches!(comm.send(&[0], 0, tag), Err(Error::BadTag { .. })));
            }
        }
        Ok(())
    });
}

#[test]
fn elements_without_bytes_are_counted() {
    on_every_transport(2, |world| {
        type Nothing = [f64; 0];
        let comm = world.communicator();
        for count in [0, 1, 40, 100_000] {
            let nothing: Vec<Nothing> = vec![[]; count];
            if comm.rank() == 0 {
                comm.send(&nothing, 1, 0)?;
                comm.isend(nothing, 1, 0)?.wait()?;
            } else {
                let (got, status) = comm.recv_vec::<Nothing>(0, 0)?;
                assert_eq!((got.len(), status.elements::<Nothing>()), (count, count));
                let mut buffer: Vec<Nothing> = vec![[]; count + 2];
                assert_eq!(comm.recv(&mut buffer, 0, 0)?.elements::<Nothing>(), count);
            }
        }
        if comm.rank() == 0 {
            return comm.send(&[[0_u8; 0]; 5], 1, 1);
        }
        assert!(matches!(comm.recv(&mut [[0_u8; 0]; 4], 0, 1), Err(Error::Truncated { sent: 5, room: 4, .. })));
        Ok(())
    });
}

/// Needs 9 GiB of memory: `cargo test --release -p spmd --test point_to_point -- --ignored four_gibibytes`.
#[test]
#[ignore = "needs 9 GiB of memory"]
fn a_message_of_more_than_four_gibibytes_arrives_whole() {
    for (name, cluster) in [("shm", Cluster::new(2)), ("tcp", Cluster::new(2).set("transport.allow", "tcp"))] {
        for result in cluster
            .run(|world| -> spmd::Result<()> {
                let comm = world.communicator();
                let words = (1_usize << 29) + 1;
                if comm.rank() == 0 {
                    comm.send(&(0..words as u64).collect::<Vec<_>>(), 1, 0)
                } else {
                    let (got, status) = comm.recv_vec::<u64>(0, 0)?;
                    assert_eq!((got.len(), status.bytes), (words, (1 << 32) + 8));
                    assert!(got.into_iter().eq(0..words as u64));
                    Ok(())
                }
            })
            .expect(name)
        {
            result.expect(name);
        }
    }
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
            let copy = comm.duplicate()?;
            // Whoever shrinks revokes the communicator, of which others may then make no copy.
            for peer in (2..5).filter(|peer| *peer != comm.rank()) {
                match comm.send_receive(&[0_u8], peer, 0, &mut [0_u8], peer, 0) {
                    // By one that has heard both others.
                    Err(Error::Revoked { .. }) => break,
                    other => other?,
                };
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
            // Whoever shrinks a communicator ends it for all.
            for ended in [&comm, &left] {
                let error = ended.send(&[0_u8], 1, 0).unwrap_err();
                assert!(matches!(error, Error::Revoked { by: 2..=4 }), "{error}");
            }
            // Over TCP nobody has heard its farewell: it is found not to listen any more. Over shared memory another rank may
            // have seen first that it has left; this one sees it soon, too.
            let mut sends = (0..20_000).map(|_| {
                std::thread::sleep(std::time::Duration::from_millis(1));
                copy.send(&[0_u8], 1, 0)
            });
            let error = sends.find_map(Result::err).expect("sends to a rank that has left are refused in the end");
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

#[test]
fn several_threads_of_a_rank_stress_it_on_tags_and_communicators_of_their_own() {
    without_hanging("four threads a rank", || {
        on_every_transport(3, |world| {
            let comm = world.communicator();
            let (rank, size) = (comm.rank(), comm.size());
            let own: Vec<Communicator> = (0..4).map(|_| comm.duplicate()).collect::<spmd::Result<_>>()?;
            std::thread::scope(|scope| {
                let threads: Vec<_> = own
                    .iter()
                    .enumerate()
                    .map(|(thread, own)| {
                        let comm = &comm;
                        scope.spawn(move || -> spmd::Result<()> {
                            // Two threads share the world's communicator by tags, two have their own with wildcards.
                            let (comm, tag) = if thread < 2 { (comm, thread as i32) } else { (own, 0) };
                            let wanted = if thread < 2 { Tag::Exactly(tag) } else { Tag::Any };
                            for round in 0..12 {
                                let length = LENGTHS[(round * 5 + thread) % 13];
                                let sends = (0..size)
                                    .map(|dest| comm.isend(pattern(length, rank + round), dest, tag))
                                    .collect::<spmd::Result<Vec<_>>>()?;
                                for source in 0..size {
                                    let got = if round % 2 == 0 {
                                        comm.recv_vec::<u8>(source, wanted)?.0
                                    } else {
                                        comm.mprobe(source, wanted)?.recv_vec::<u8>()?.0
                                    };
                                    assert_eq!(got, pattern(length, source + round));
                                }
                                comm.wait_all(&sends)?;
                            }
                            Ok(())
                        })
                    })
                    .collect();
                threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
            })
        });
    });
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
