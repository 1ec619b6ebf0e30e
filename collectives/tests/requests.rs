//! Non-blocking and persistent collectives: results as of the blocking ones, several under way, progress by whatever call
//! waits.

#![allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "ranks of tests are small")]

use spmd::local::Cluster;
use spmd::{Communicator, Request};
use spmd_collectives::Error;
use spmd_collectives::algorithms::Collective;
use spmd_collectives::groups::Groups;
use spmd_collectives::prelude::*;
use std::time::Duration;

/// Over every transport, with and without faults, a communicator of some ranks.
fn everywhere(sizes: &[usize], program: impl Fn(&Communicator) + Sync) {
    for (transport, faults) in [("shm", "0"), ("tcp", "0"), ("shm", "7"), ("tcp", "11")] {
        for &size in sizes {
            Cluster::new(size)
                .set("transport.allow", transport)
                .set("faulty.seed", faults)
                .run(|world| program(&world.communicator()))
                .unwrap();
        }
    }
}

fn mine(comm: &Communicator, length: usize) -> Vec<i64> {
    (0..i64::try_from(length).unwrap()).map(|index| index * 31 + i64::try_from(comm.rank()).unwrap() * 1_000).collect()
}

/// Joins digits: what it gives depends on the order.
fn join(a: [u64; 2], b: [u64; 2]) -> [u64; 2] {
    [a[0].wrapping_mul(b[1]).wrapping_add(b[0]), a[1].wrapping_mul(b[1])]
}

fn digits(comm: &Communicator, length: usize) -> Vec<[u64; 2]> {
    vec![[comm.rank() as u64 + 1, 10]; length]
}

#[test]
fn each_gives_what_the_blocking_one_gives() {
    everywhere(&[1, 2, 3, 5], |comm| {
        let (size, last) = (comm.size(), comm.size() - 1);
        for length in [0, 1, 700, 5000] {
            let data = mine(comm, length);
            let wide = mine(comm, length * size);
            comm.ibarrier().unwrap().wait().unwrap();
            let mut expected = data.clone();
            comm.broadcast(&mut expected, last).unwrap();
            assert_eq!(comm.ibroadcast(data.clone(), last).unwrap().wait().unwrap(), expected);
            let expected = comm.reduce(&data, Sum, last).unwrap();
            assert_eq!(comm.ireduce(data.clone(), Sum, last).unwrap().wait().unwrap(), expected);
            let mut expected = digits(comm, length);
            comm.all_reduce(&mut expected, custom(join)).unwrap();
            let joined = comm.iall_reduce(digits(comm, length), custom(join)).unwrap();
            assert_eq!(joined.wait().unwrap(), expected);
            let expected = comm.gather(&data, 0).unwrap();
            assert_eq!(comm.igather(data.clone(), 0).unwrap().wait().unwrap(), expected);
            let expected = comm.all_gather(&data).unwrap();
            assert_eq!(comm.iall_gather(data.clone()).unwrap().wait().unwrap(), expected);
            let mut expected = vec![0; length];
            let root = comm.rank() == last;
            comm.scatter(root.then_some(&wide[..]), &mut expected, last).unwrap();
            let scattered = comm.iscatter(root.then(|| wide.clone()), length, last).unwrap();
            assert_eq!(scattered.wait().unwrap(), expected);
            let expected = comm.all_to_all(&wide).unwrap();
            assert_eq!(comm.iall_to_all(wide.clone()).unwrap().wait().unwrap(), expected);
            let expected = comm.reduce_scatter(&wide, Max).unwrap();
            assert_eq!(comm.ireduce_scatter(wide.clone(), Max).unwrap().wait().unwrap(), expected);
            let mut expected = data.clone();
            comm.scan(&mut expected, Sum).unwrap();
            assert_eq!(comm.iscan(data.clone(), Sum).unwrap().wait().unwrap(), expected);
            let expected = comm.exscan(&data, Sum).unwrap();
            assert_eq!(comm.iexscan(data.clone(), Sum).unwrap().wait().unwrap(), expected);
        }
    });
}

#[test]
fn every_algorithm_goes_on_by_itself() {
    let (size, width) = (6, 3);
    let groups = Groups::every(size, width);
    for collective in [Collective::AllReduce, Collective::Reduce, Collective::Broadcast] {
        for algorithm in collective.algorithms().iter().filter(|row| row.forbidden(&groups, true).is_none()) {
            Cluster::new(size)
                .set("collectives.group_size", &width.to_string())
                .set(&format!("collectives.{collective}"), algorithm.name)
                .run(|world| {
                    let comm = world.communicator();
                    let sum: Vec<i64> = (0..3000).map(|index| 6 * 31 * index + 15_000).collect();
                    let all = comm.iall_reduce(mine(&comm, 3000), Sum).unwrap();
                    let one = comm.ireduce(mine(&comm, 3000), Sum, 4).unwrap();
                    let spread = comm.ibroadcast(mine(&comm, 3000), 5).unwrap();
                    let spread = spread.wait().unwrap();
                    assert!(spread.iter().zip(0..).all(|(value, index)| *value == index * 31 + 5000));
                    assert_eq!(one.wait().unwrap(), (comm.rank() == 4).then(|| sum.clone()));
                    assert_eq!(all.wait().unwrap(), sum, "{}", algorithm.name);
                })
                .unwrap();
        }
    }
}

#[test]
fn many_are_under_way_and_are_waited_for_in_any_order_with_blocking_ones_between() {
    everywhere(&[2, 5], |comm| {
        let size = i64::try_from(comm.size()).unwrap();
        let lengths = [3, 4000, 0, 1, 20_000, 17];
        let mut under_way: Vec<_> =
            lengths.iter().map(|length| comm.iall_reduce(vec![1i64; *length], Sum).unwrap()).collect();
        let mut between = [comm.rank()];
        comm.broadcast(&mut between, 1).unwrap();
        assert_eq!(between, [1]);
        let late = comm.iall_gather(vec![comm.rank(); 3]).unwrap();
        // Each rank in another order.
        under_way.rotate_left(comm.rank());
        let mut expected = lengths;
        expected.rotate_left(comm.rank());
        for (request, length) in under_way.into_iter().zip(expected).rev() {
            assert_eq!(request.wait().unwrap(), vec![size; length]);
        }
        assert_eq!(late.wait().unwrap(), (0..comm.size()).flat_map(|rank| [rank; 3]).collect::<Vec<_>>());
    });
}

#[test]
fn a_wait_for_a_message_carries_collectives_on() {
    everywhere(&[2, 4], |comm| {
        let barrier = comm.ibarrier().unwrap();
        let sum = comm.iall_reduce(vec![1u32; 3000], Sum).unwrap();
        // Every rank but the last completes both before it sends; the last waits for their messages alone.
        let last = comm.size() - 1;
        if comm.rank() == last {
            for rank in 0..last {
                comm.recv(&mut [0u8], rank, 0).unwrap();
            }
            barrier.wait().unwrap();
            assert_eq!(sum.wait().unwrap()[2999], comm.size() as u32);
        } else {
            barrier.wait().unwrap();
            assert_eq!(sum.wait().unwrap()[0], comm.size() as u32);
            comm.send(&[1u8], last, 0).unwrap();
        }
    });
}

#[test]
fn requests_of_messages_and_collectives_are_waited_for_together() {
    everywhere(&[2, 3], |comm| {
        let (right, left) = ((comm.rank() + 1) % comm.size(), (comm.rank() + comm.size() - 1) % comm.size());
        let send = comm.isend(vec![comm.rank()], right, 3).unwrap();
        let sum = comm.iall_reduce(vec![1.5f64; 10], Sum).unwrap();
        let receive = comm.irecv(vec![0usize], left, 3).unwrap();
        let barrier = comm.ibarrier().unwrap();
        let all: [&dyn Request; 4] = [&send, &sum, &receive, &barrier];
        assert!(comm.wait_any(&all).unwrap().is_some());
        comm.wait_all(&all).unwrap();
        assert!(comm.test_all(&all).unwrap());
        assert_eq!(comm.wait_some(&all).unwrap(), [0, 1, 2, 3]);
        assert_eq!(receive.wait().unwrap().0, [left]);
        assert_eq!(sum.wait().unwrap(), [1.5 * comm.size() as f64; 10]);
        send.wait().unwrap();
        barrier.wait().unwrap();
    });
}

#[test]
fn a_barrier_is_complete_for_nobody_before_the_last_has_started_its_own() {
    Cluster::new(3)
        .run(|world| {
            let comm = world.communicator();
            if comm.rank() == 2 {
                comm.recv(&mut [0u8], 0, 0).unwrap();
                comm.recv(&mut [0u8], 1, 0).unwrap();
            }
            let mut barrier = comm.ibarrier().unwrap();
            if comm.rank() < 2 {
                for _ in 0..200 {
                    barrier = barrier.test().unwrap().expect_err("rank 2 has not started");
                }
                comm.send(&[1u8], 2, 0).unwrap();
            }
            let mut tests = 0;
            while let Err(again) = barrier.test().unwrap() {
                barrier = again;
                tests += 1;
                assert!(tests < 100_000_000, "it is never complete");
            }
        })
        .unwrap();
}

#[test]
fn a_request_that_is_dropped_still_does_its_part() {
    everywhere(&[4], |comm| {
        let sum = comm.iall_reduce(vec![comm.rank() as i64; 9000], Sum).unwrap();
        if comm.rank() % 2 == 1 {
            drop(sum);
        } else {
            assert_eq!(sum.wait().unwrap(), vec![6; 9000]);
        }
        comm.barrier().unwrap();
    });
}

#[test]
fn an_operator_that_owns_the_last_handle_of_a_communicator_goes_with_its_dropped_request() {
    let (done, ended) = std::sync::mpsc::channel();
    // On a thread of its own: what is looked for is a rank that waits for itself.
    std::thread::spawn(move || {
        let mismatch = Cluster::new(3).set("collectives.check_after", "50ms").run(|world| {
            let comm = world.communicator();
            let start = |fails: bool| {
                let owned = comm.duplicate().unwrap();
                let sum = custom(move |a: i64, b: i64| a + b + owned.size() as i64 - 3);
                let length = if fails && comm.rank() == 1 { 40 } else { 50 };
                comm.iall_reduce(vec![1; length], sum)
            };
            for _ in 0..2 {
                // Rank 2 is late, so that the others' are under way when they are dropped, and end in the barrier.
                if comm.rank() == 2 {
                    comm.recv(&mut [0u8], 0, 0).unwrap();
                    comm.recv(&mut [0u8], 1, 0).unwrap();
                }
                drop(start(false).unwrap());
                if comm.rank() < 2 {
                    comm.send(&[1u8], 2, 0).unwrap();
                }
                comm.barrier().unwrap();
            }
            // One that fails is taken back by who waits for it.
            start(true).and_then(|request| request.wait().map_err(|error| of(&error))).unwrap_err().to_string()
        });
        let _ = done.send(mismatch.unwrap());
    });
    let mismatch = ended.recv_timeout(Duration::from_secs(60)).expect("every rank goes on");
    assert!(mismatch.iter().all(|error| error.contains("all_reduce of 40 i64")), "{mismatch:?}");
}

#[test]
fn a_persistent_one_gives_each_time_what_its_buffer_holds_then() {
    everywhere(&[1, 3, 4], |comm| {
        let (rank, size) = (comm.rank() as i64, comm.size() as i64);
        let mut sum = comm.all_reduce_init(vec![0i64; 2000], Sum).unwrap();
        let mut all = comm.all_gather_init(vec![0i64; 2]).unwrap();
        let mut first = comm.exscan_init(vec![0i64], Sum).unwrap();
        let mut barrier = comm.barrier_init().unwrap();
        for step in 0..5 {
            sum.data_mut().fill(step + rank);
            all.data_mut().copy_from_slice(&[rank, step]);
            first.data_mut()[0] = step;
            // Ranks start them in different orders.
            let (sums, alls, firsts);
            if comm.rank() % 2 == 0 {
                (sums, alls) = (sum.start().unwrap(), all.start().unwrap());
                firsts = first.start().unwrap();
            } else {
                (firsts, alls) = (first.start().unwrap(), all.start().unwrap());
                sums = sum.start().unwrap();
            }
            let passing = barrier.start().unwrap();
            comm.wait_all(&[&sums as &dyn Request, &alls, &firsts, &passing]).unwrap();
            (sum, all, first) = (sums.wait().unwrap(), alls.wait().unwrap(), firsts.wait().unwrap());
            barrier = passing.wait().unwrap();
            assert_eq!(sum.result(), vec![size * step + size * (size - 1) / 2; 2000]);
            assert_eq!(all.result(), (0..size).flat_map(|rank| [rank, step]).collect::<Vec<_>>());
            assert_eq!(all.data(), [rank, step]);
            let before: &[i64] = if rank == 0 { &[] } else { &[step * rank] };
            assert_eq!(first.result(), before);
        }
    });
}

#[test]
fn calls_that_do_not_fit_together_are_an_error_of_every_request() {
    for transport in ["shm", "tcp"] {
        let errors = Cluster::new(3)
            .set("transport.allow", transport)
            .set("collectives.check_after", "50ms")
            .run(|world| {
                let comm = world.communicator();
                let right = comm.iall_reduce(vec![1u32; 10], Sum).unwrap();
                let op =
                    if comm.rank() == 1 { comm.iscan(vec![1u32; 10], Sum) } else { comm.iall_reduce(vec![1; 10], Sum) };
                assert_eq!(right.wait().unwrap(), [3; 10]);
                let first = op.and_then(|request| request.wait().map_err(|error| of(&error)));
                first.and_then(|_| comm.barrier()).unwrap_err().to_string()
            })
            .unwrap();
        for error in errors {
            assert!(
                error.contains("as collective 2 of a communicator") && error.contains("rank 1 calls scan"),
                "{error}"
            );
        }
    }
}

#[test]
fn lengths_that_are_told_once_do_not_mix_with_calls_that_tell_them_each_time() {
    for transport in ["shm", "tcp"] {
        let errors = Cluster::new(3)
            .set("transport.allow", transport)
            .set("collectives.check_after", "50ms")
            .run(|world| {
                let comm = world.communicator();
                let ended = match comm.rank() {
                    1 => comm.all_gather_v_init(vec![1u8; 3]).map(drop),
                    _ => comm.all_gather_v(&[1u8; 2]).map(drop),
                };
                ended.and_then(|()| comm.barrier()).unwrap_err().to_string()
            })
            .unwrap();
        for error in errors {
            assert!(
                error.contains("rank 1 calls all_gather_v of u8 (counts) at")
                    && error.contains("calls all_gather_v of u8 (ring) at"),
                "{error}"
            );
        }
    }
}

/// The library's error in one of the runtime.
fn of(error: &spmd::Error) -> Error {
    let spmd::Error::Library(library) = error else { panic!("{error}") };
    library.downcast_ref::<Error>().unwrap().clone()
}

#[test]
fn wrong_arguments_are_an_error_of_the_start() {
    spmd::local::run(2, |world| {
        let comm = world.communicator();
        assert!(matches!(comm.ibroadcast(vec![1], 2), Err(Error::NoSuchRoot { root: 2, .. })));
        assert!(matches!(comm.iall_to_all(vec![1, 2, 3]), Err(Error::NotDivisible { given: 3, .. })));
        assert!(matches!(comm.gather_init(vec![1], 9), Err(Error::NoSuchRoot { root: 9, .. })));
        assert!(matches!(comm.igather_v(vec![1], 3), Err(Error::NoSuchRoot { root: 3, .. })));
        assert!(matches!(comm.scatter_v_init(Some((vec![1], vec![1, 0])), 3), Err(Error::NoSuchRoot { root: 3, .. })));
        for counts in [vec![1, 1], vec![3], vec![1, 1, 1], vec![usize::MAX, 4]] {
            let error = comm.iall_to_all_v(vec![1, 2, 3], counts.clone()).unwrap_err();
            assert!(matches!(error, Error::Counts { size: 2, given: 3, .. }), "{counts:?}: {error}");
            let error = comm.all_to_all_v_init(vec![1, 2, 3], counts.clone()).unwrap_err();
            assert!(matches!(error, Error::Counts { size: 2, given: 3, .. }), "{counts:?}: {error}");
        }
        let missing = comm.iscatter_v::<u8>(None, comm.rank()).unwrap_err();
        assert!(matches!(missing, Error::MissingAtRoot { buffer: "input", .. }), "{missing}");
        let text = comm.ireduce(vec![1], Sum, 7).unwrap_err().to_string();
        assert!(text.contains("reduce with root 7"), "{text}");
        comm.barrier().unwrap();
    });
}

#[test]
fn a_rank_that_leaves_ends_the_others_requests() {
    Cluster::new(3)
        .run(|world| {
            let comm = world.communicator();
            if comm.rank() > 0 {
                let error = comm.ibarrier().and_then(|barrier| barrier.wait().map_err(|error| of(&error))).unwrap_err();
                assert!(matches!(error, Error::Runtime { .. }), "{error}");
            }
        })
        .unwrap();
}

#[test]
fn threads_of_a_rank_carry_each_other_s_collectives_on() {
    Cluster::new(2)
        .run(|world| {
            let comm = world.communicator();
            let other = comm.duplicate().unwrap();
            std::thread::scope(|scope| {
                let sums = scope.spawn(|| {
                    for _ in 0..50 {
                        assert_eq!(other.iall_reduce(vec![1u8; 3000], Sum).unwrap().wait().unwrap(), [2; 3000]);
                    }
                });
                for _ in 0..50 {
                    let gathered = comm.iall_gather(vec![comm.rank(); 2000]).unwrap();
                    std::thread::sleep(Duration::from_micros(50));
                    assert_eq!(gathered.wait().unwrap()[2000..], [1; 2000]);
                }
                sums.join().unwrap();
            });
        })
        .unwrap();
}
