//! Symmetric heaps and one-sided operations, the same over every way in which a rank's memory can be reached: mapped, by
//! records over TCP, and both in one heap.

use spmd::{Compare, SignalOp, SymmetricHeap, local::Cluster, prelude::*};
use std::{
    ops::Bound,
    panic::AssertUnwindSafe,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

/// Nothing here takes that long, on any machine.
const LONG: Option<Duration> = Some(Duration::from_secs(60));

fn on_every_transport(ranks: usize, body: impl Fn(&World) -> spmd::Result<()> + Sync) {
    match std::env::var("SPMD_TEST_TRANSPORT").as_deref() {
        // As in `common`.
        Ok("ranks") => return println!("ranks {ranks}"),
        Ok("launched") => {
            let world = World::init().expect("rsrun has started this");
            assert_eq!(world.size(), ranks, "start the test with so many ranks");
            return body(&world).unwrap_or_else(|error| panic!("rank {}: {error}", world.rank()));
        }
        _ => {}
    }
    let over_rdma = std::env::var("SPMD_TEST_TRANSPORT").is_ok_and(|name| name == "verbs");
    for (name, cluster) in if over_rdma { clusters_over_rdma(ranks) } else { clusters(ranks) } {
        for (rank, result) in cluster.run(|world| body(world)).expect(name).into_iter().enumerate() {
            result.unwrap_or_else(|error| panic!("{name}, rank {rank}: {error}"));
        }
    }
}

/// For machines that have it: the lab runs this file there. Two queue pairs of two kinds: bytes and what says that they
/// are there must not take different ones.
fn clusters_over_rdma(ranks: usize) -> Vec<(&'static str, Cluster)> {
    let verbs = || Cluster::new(ranks).set("transport.allow", "verbs").set("verbs.device", "rxe0,rxe1");
    let strict = || verbs().set("verbs.rnr_retries", "0");
    vec![
        ("verbs", strict()),
        ("verbs, two channels", strict().set("low_latency.size_hint", "4KiB")),
        ("verbs, three queue pairs for bulk", strict().set("verbs.queue_pairs", "3").set("verbs.ring_bytes", "64KiB")),
        ("verbs, sleeping", verbs().set("wait.policy", "sleep")),
    ]
}

fn clusters(ranks: usize) -> Vec<(&'static str, Cluster)> {
    vec![
        ("shm", Cluster::new(ranks)),
        ("shm, sleeping", Cluster::new(ranks).set("wait.policy", "sleep")),
        ("tcp", Cluster::new(ranks).set("transport.allow", "tcp")),
        ("tcp, sleeping", Cluster::new(ranks).set("transport.allow", "tcp").set("wait.policy", "sleep")),
        ("two hosts", Cluster::new(ranks).hosts(2)),
    ]
}

/// All ranks have come here, and what they have put is visible.
fn barrier(comm: &Communicator, heap: &SymmetricHeap) -> spmd::Result<()> {
    heap.quiet()?;
    // Every rank to every other: the collectives are another package.
    let requests: Vec<_> = (0..comm.size()).map(|to| comm.isend(vec![0_u8], to, 77)).collect::<spmd::Result<_>>()?;
    (0..comm.size()).try_for_each(|from| comm.recv(&mut [0_u8], from, 77).map(drop))?;
    requests.into_iter().try_for_each(|request| request.wait().map(drop))
}

fn pattern(length: usize, seed: usize) -> Vec<u32> {
    (0..length).map(|i| u32::try_from(i * 31 + seed * 17).unwrap()).collect()
}

#[test]
fn what_is_put_is_there_after_quiet_and_a_barrier_and_nowhere_else() {
    on_every_transport(3, |world| {
        let comm = world.communicator();
        let heap = SymmetricHeap::new(&comm, 8 << 20)?;
        for length in [0, 1, 3, 1000, 4096, 100_001] {
            let buffer = heap.alloc::<u32>(length + 2)?;
            barrier(&comm, &heap)?;
            let right = (comm.rank() + 1) % comm.size();
            buffer.slice(1..=length).put(&pattern(length, comm.rank()), right)?;
            barrier(&comm, &heap)?;
            let left = (comm.rank() + comm.size() - 1) % comm.size();
            let found = buffer.to_vec();
            assert_eq!(found[1..=length], pattern(length, left));
            assert_eq!((found[0], found[length + 1]), (0, 0), "the neighbours of {length} elements");
            heap.free(buffer)?;
        }
        Ok(())
    });
}

#[test]
fn a_get_reads_the_memory_of_any_rank() {
    on_every_transport(3, |world| {
        let comm = world.communicator();
        let heap = SymmetricHeap::new(&comm, 4 << 20)?;
        let buffer = heap.alloc::<u32>(500_000)?;
        buffer.write(&pattern(500_000, comm.rank()))?;
        barrier(&comm, &heap)?;
        for rank in 0..comm.size() {
            let mut found = vec![0; 400_000];
            buffer.slice(100_000..).get(&mut found, rank)?;
            assert!(found == pattern(500_000, rank)[100_000..], "rank {rank}");
        }
        barrier(&comm, &heap)
    });
}

/// The strong signal: whoever has seen it sees every put before, also those without a signal of their own.
#[test]
fn a_signal_covers_everything_put_to_the_same_rank_before() {
    on_every_transport(2, |world| {
        let comm = world.communicator();
        let heap = SymmetricHeap::new(&comm, 1 << 20)?;
        let data = heap.alloc::<u64>(10_000)?;
        let signals = heap.alloc::<u64>(2)?;
        for round in 1..=200_u64 {
            let length = usize::try_from(round * 37 % 5000).unwrap();
            if comm.rank() == 0 {
                data.slice(5000..).put(&vec![round; length], 1)?;
                data.put_signal(&vec![round; length], 1, &signals, 0, SignalOp::Set(round))?;
                signals.wait_signal(1, Compare::AtLeast(round), LONG)?;
            } else {
                assert_eq!(signals.wait_signal(0, Compare::Equal(round), LONG)?, round);
                let found = data.to_vec();
                assert!(found[..length].iter().chain(&found[5000..5000 + length]).all(|value| *value == round));
                signals.signal(1, SignalOp::Add(1), 0)?;
            }
        }
        barrier(&comm, &heap)
    });
}

#[test]
fn what_comes_after_a_fence_is_never_seen_before_what_came_before_it() {
    on_every_transport(2, |world| {
        let comm = world.communicator();
        let heap = SymmetricHeap::new(&comm, 1 << 20)?;
        let (count, data) = (heap.alloc::<u64>(1)?, heap.alloc::<u64>(3000)?);
        let signal = heap.alloc::<u64>(2)?;
        for round in 1..=60_u64 {
            if comm.rank() == 0 {
                // Changed word first, bytes second, and again a word: whatever way each takes.
                count.add(0, 1, 1)?;
                heap.fence();
                data.put(&vec![round; 3000], 1)?;
                heap.fence();
                signal.signal(0, SignalOp::Set(round), 1)?;
                signal.wait_signal(1, Compare::Equal(round), LONG)?;
            } else {
                // Looks at the memory itself, so that nothing is carried out by looking.
                let mut last = [0];
                while last[0] != round {
                    data.slice(2999..).read(&mut last)?;
                    if last[0] == round {
                        assert_eq!(count.fetch(0, 1)?, round, "bytes overtook what a fence put before them");
                    }
                    if signal.wait_signal(0, Compare::Equal(round), Some(Duration::from_millis(1))).is_ok() {
                        assert!(data.to_vec().iter().all(|value| *value == round));
                    }
                }
                signal.wait_signal(0, Compare::Equal(round), LONG)?;
                signal.signal(1, SignalOp::Set(round), 0)?;
            }
        }
        barrier(&comm, &heap)
    });
}

#[test]
fn own_elements_are_put_from_where_they_are_and_large_gets_come_whole() {
    on_every_transport(3, |world| {
        let comm = world.communicator();
        let heap = SymmetricHeap::new(&comm, 8 << 20)?;
        let data = heap.alloc::<u32>(700_001)?;
        let (rank, size) = (comm.rank(), comm.size());
        data.write(&pattern(data.len(), rank))?;
        barrier(&comm, &heap)?;
        let mut theirs = vec![0; data.len()];
        data.get(&mut theirs, (rank + 1) % size)?;
        assert!(theirs == pattern(data.len(), (rank + 1) % size));
        barrier(&comm, &heap)?;
        if rank == 0 {
            data.put_own(2)?;
            // They may be changed at once.
            data.write(&vec![0; data.len()])?;
        }
        barrier(&comm, &heap)?;
        let expected = if rank == 0 { vec![0; data.len()] } else { pattern(data.len(), if rank == 2 { 0 } else { 1 }) };
        assert!(data.to_vec() == expected);
        barrier(&comm, &heap)
    });
}

#[test]
fn signals_of_several_ranks_add_up() {
    on_every_transport(4, |world| {
        let comm = world.communicator();
        let heap = SymmetricHeap::new(&comm, 4096)?;
        let signal = heap.alloc::<u64>(1)?;
        for round in 1..=50_u64 {
            for rank in 0..comm.size() {
                signal.signal(0, SignalOp::Add(1), rank)?;
            }
            signal.wait_signal(0, Compare::AtLeast(4 * round), LONG)?;
        }
        barrier(&comm, &heap)?;
        assert_eq!(signal.fetch(0, comm.rank())?, 200);
        barrier(&comm, &heap)
    });
}

fn atomics_of<T: spmd::heap::Atomic + std::fmt::Debug>(
    heap: &SymmetricHeap,
    number: impl Fn(i8) -> T,
) -> spmd::Result<()> {
    let comm = heap.communicator().clone();
    let words = heap.alloc::<T>(3)?;
    barrier(&comm, heap)?;
    for _ in 0..100 {
        words.fetch_add(1, number(1), 0)?;
        words.add(2, number(-1), 0)?;
    }
    barrier(&comm, heap)?;
    let (sum, difference) = (words.fetch(1, 0)?, words.fetch(2, 0)?);
    let expected =
        |sign: i8| (0..300).fold(number(0), |at, _| if sign > 0 { next(at, &number) } else { before(at, &number) });
    assert_eq!((sum, difference), (expected(1), expected(-1)));
    barrier(&comm, heap)?;
    // Exactly one rank wins.
    let before = words.compare_swap(0, number(0), number(7), 1)?;
    let won = u8::from(before == number(0));
    comm.send(&[won], 0, 5)?;
    if comm.rank() == 0 {
        let mut winners = 0;
        for rank in 0..comm.size() {
            let mut one = [0_u8];
            comm.recv(&mut one, rank, 5)?;
            winners += one[0];
        }
        assert_eq!(winners, 1);
        assert_eq!(words.swap(0, number(9), 1)?, number(7));
        words.set(0, number(-1), 1)?;
        heap.quiet()?;
        assert_eq!(words.fetch(0, 1)?, number(-1));
    }
    barrier(&comm, heap)?;
    heap.free(words)
}

/// One more, by way of the arithmetic that the library promises: wrapping.
fn next<T: spmd::heap::Atomic>(value: T, number: &impl Fn(i8) -> T) -> T {
    step(value, number(1))
}

fn before<T: spmd::heap::Atomic>(value: T, number: &impl Fn(i8) -> T) -> T {
    step(value, number(-1))
}

/// Wrapping addition of words as bytes, least significant first.
fn step<T: spmd::heap::Atomic>(value: T, by: T) -> T {
    let (mut sum, addend) = ([value], [by]);
    let mut carry = 0_u16;
    for (byte, other) in spmd::element::as_bytes_mut(&mut sum).iter_mut().zip(spmd::element::as_bytes(&addend)) {
        carry += u16::from(*byte) + u16::from(*other);
        *byte = carry.to_le_bytes()[0];
        carry >>= 8;
    }
    sum[0]
}

#[test]
fn atomic_operations_are_atomic_for_every_kind_of_word() {
    on_every_transport(3, |world| {
        let comm = world.communicator();
        let heap = SymmetricHeap::new(&comm, 1 << 16)?;
        atomics_of::<u64>(&heap, |n| i64::from(n).cast_unsigned())?;
        atomics_of::<i64>(&heap, i64::from)?;
        atomics_of::<u32>(&heap, |n| i32::from(n).cast_unsigned())?;
        atomics_of::<i32>(&heap, i32::from)
    });
}

#[test]
fn a_signal_that_nobody_raises_ends_in_an_error_that_says_so() {
    on_every_transport(2, |world| {
        let comm = world.communicator();
        let heap = SymmetricHeap::new(&comm, 4096)?;
        let signal = heap.alloc::<u64>(2)?;
        let error = signal.wait_signal(1, Compare::NotEqual(0), Some(Duration::from_millis(20))).unwrap_err();
        assert!(matches!(error, Error::SignalTimeout { index: 1, found: 0, .. }), "{error}");
        barrier(&comm, &heap)
    });
}

/// While a rank waits for a signal, its messages and what others ask of it make progress.
#[test]
fn a_rank_that_waits_for_a_signal_serves_the_others() {
    on_every_transport(2, |world| {
        let comm = world.communicator();
        let heap = SymmetricHeap::new(&comm, 4 << 20)?;
        let signal = heap.alloc::<u64>(1)?;
        let words = heap.alloc::<i64>(1)?;
        if comm.rank() == 0 {
            let request = comm.isend(vec![1_u8; 1 << 20], 1, 3)?;
            signal.wait_signal(0, Compare::Equal(1), LONG)?;
            request.wait()?;
        } else {
            assert_eq!(words.fetch_add(0, 5, 0)?, 0);
            assert_eq!(comm.recv_vec::<u8>(0, 3)?.0.len(), 1 << 20);
            signal.signal(0, SignalOp::Set(1), 0)?;
        }
        barrier(&comm, &heap)
    });
}

#[test]
fn buffers_are_at_the_same_offset_everywhere_and_zero_also_when_used_again() {
    on_every_transport(3, |world| {
        let comm = world.communicator();
        let heap = SymmetricHeap::new(&comm, 1 << 16)?;
        let (a, b) = (heap.alloc::<u8>(1000)?, heap.alloc::<f64>(10)?);
        assert_eq!(b.offset() % 128, 0);
        let mut offsets = [0_u64; 2];
        let right = (comm.rank() + 1) % comm.size();
        let left = (comm.rank() + 2) % comm.size();
        comm.send_receive(&[a.offset() as u64, b.offset() as u64], right, 1, &mut offsets, left, 1)?;
        assert_eq!(offsets, [a.offset() as u64, b.offset() as u64]);
        a.write(&[7; 1000])?;
        let (offset, part) = (a.offset(), a.slice(..10));
        heap.free(a)?;
        let error = heap.free(part).unwrap_err();
        assert!(error.to_string().contains("the buffer is part of one, has been given back"), "{error}");
        let again = heap.alloc::<u8>(900)?;
        assert_eq!((again.offset(), again.to_vec()), (offset, vec![0; 900]));
        Ok(())
    });
}

#[test]
fn clones_and_slices_of_a_buffer_that_is_given_back_are_of_no_use_and_change_nothing() {
    on_every_transport(2, |world| {
        let comm = world.communicator();
        let heap = SymmetricHeap::new(&comm, 1 << 16)?;
        let _first = heap.alloc::<u64>(3)?;
        let buffer = heap.alloc::<u64>(100)?;
        let (clone, part, offset) = (buffer.clone(), buffer.slice(10..), buffer.offset());
        clone.put(&[1], 1)?;
        heap.free(buffer)?;
        // The same place is another's now.
        let next = heap.alloc::<u64>(100)?;
        assert_eq!(next.offset(), offset);
        next.write(&[5; 100])?;
        barrier(&comm, &heap)?;
        let other = 1 - comm.rank();
        let mut words = [0; 4];
        for stale in [&clone, &part, &part.slice(1..5), &clone.clone()] {
            let refused = [
                ("HeapBuffer::put", stale.put(&[7], other)),
                ("HeapBuffer::put", stale.put_signal(&[7], other, &next, 0, SignalOp::Set(7))),
                ("HeapBuffer::put_own", stale.put_own(other)),
                ("HeapBuffer::get", stale.get(&mut words, other)),
                ("HeapBuffer::write", stale.write(&[7])),
                ("HeapBuffer::read", stale.read(&mut words)),
                ("HeapBuffer::signal", stale.signal(0, SignalOp::Set(7), other)),
                ("HeapBuffer::set", stale.set(0, 7, other)),
                ("HeapBuffer::fetch", stale.fetch(0, other).map(drop)),
                ("HeapBuffer::wait_signal", stale.wait_signal(0, Compare::Equal(5), LONG).map(drop)),
                ("send_buffer", comm.send_buffer(stale, other, 1)),
                ("recv_buffer", comm.recv_buffer(stale, other, 1).map(drop)),
            ];
            for (operation, result) in refused {
                let error = result.unwrap_err().to_string();
                let buffer = format!("the buffer of 800 bytes at offset {offset} has been given back");
                assert!(error.contains(operation) && error.contains(&buffer), "{error}");
            }
        }
        barrier(&comm, &heap)?;
        assert_eq!((next.to_vec(), words), (vec![5; 100], [0; 4]));
        // It cannot give back the one that has its place.
        let error = heap.free(clone).unwrap_err();
        assert!(error.to_string().contains("has been given back"), "{error}");
        next.put(&[6], other)?;
        barrier(&comm, &heap)?;
        assert_eq!(next.to_vec()[..2], [6, 5]);
        heap.free(next)
    });
}

/// No `quiet` and no barrier: giving a buffer back is both.
#[test]
fn what_was_put_into_a_buffer_that_is_given_back_is_never_in_the_next_one() {
    on_every_transport(3, |world| {
        let comm = world.communicator();
        let heap = SymmetricHeap::new(&comm, 4 << 20)?;
        for _ in 0..10 {
            let buffer = heap.alloc::<u64>(200_000)?;
            // Rank 0 leads the agreement: what goes past it arrives when it likes.
            if comm.rank() != 0 {
                buffer.put(&vec![7; 200_000], 3 - comm.rank())?;
                buffer.slice(199_999..).add(0, 1, 3 - comm.rank())?;
            }
            heap.free(buffer)?;
            let next = heap.alloc::<u64>(200_000)?;
            assert!(next.to_vec().iter().all(|word| *word == 0), "rank {}", comm.rank());
            barrier(&comm, &heap)?;
            assert!(next.to_vec().iter().all(|word| *word == 0), "rank {}, later", comm.rank());
            heap.free(next)?;
        }
        Ok(())
    });
}

/// What waits for a rank that computes is bounded: whoever goes on changing its memory waits for it.
#[test]
fn changes_to_a_rank_that_computes_do_not_pile_up_at_whoever_makes_them() {
    const CHANGES: u64 = 50_000;
    let cluster = Cluster::new(2).set("transport.allow", "tcp").set("tcp.buffer_bytes", "4KiB");
    let finished = AtomicBool::new(false);
    let body = |world: &World| {
        let comm = world.communicator();
        let heap = SymmetricHeap::new(&comm, 4096)?;
        let words = heap.alloc::<u64>(1)?;
        barrier(&comm, &heap)?;
        if comm.rank() == 0 {
            std::thread::sleep(Duration::from_secs(1));
            assert!(!finished.load(Ordering::SeqCst), "all of them wait for a rank that has taken none");
        } else {
            (0..CHANGES).try_for_each(|_| words.add(0, 1, 0))?;
            finished.store(true, Ordering::SeqCst);
        }
        barrier(&comm, &heap)?;
        assert_eq!(words.fetch(0, 0)?, CHANGES);
        barrier(&comm, &heap)
    };
    let cluster = cluster.set("tcp.resend_bytes", "64KiB");
    cluster.run(body).unwrap().into_iter().for_each(|result: spmd::Result<()>| result.unwrap());
}

#[test]
fn a_part_beyond_the_end_is_a_panic_however_it_is_named() {
    spmd::local::run(1, |world| {
        let heap = SymmetricHeap::new(&world.communicator(), 4096).unwrap();
        let buffer = heap.alloc::<u32>(10).unwrap();
        let part = |from, to| std::panic::catch_unwind(AssertUnwindSafe(|| buffer.slice((from, to)).len()));
        assert_eq!(part(Bound::Excluded(3), Bound::Included(9)).unwrap(), 6);
        for end in [10, usize::MAX - 1, usize::MAX] {
            assert!(part(Bound::Unbounded, Bound::Included(end)).is_err(), "..={end}");
            assert!(part(Bound::Excluded(end), Bound::Unbounded).is_err(), "beyond {end}");
        }
    });
}

#[test]
fn ranks_that_disagree_get_an_error_that_names_both_and_the_heap_stays_usable() {
    on_every_transport(2, |world| {
        let comm = world.communicator();
        let odd = comm.rank() == 1;
        let error = SymmetricHeap::new(&comm, if odd { 8192 } else { 4096 }).unwrap_err().to_string();
        assert!(error.contains("rank 1") && error.contains("8192") && error.contains("4096"), "{error}");
        let heap = SymmetricHeap::new(&comm, 4096)?;
        let error = heap.alloc::<u8>(if odd { 10 } else { 20 }).unwrap_err().to_string();
        assert!(error.contains("takes a buffer of 10 bytes") && error.contains("of 20 bytes"), "{error}");
        let error = if odd { heap.alloc::<u8>(8).map(drop) } else { heap.alloc::<u64>(1).map(drop) };
        assert!(error.unwrap_err().to_string().contains("every rank must call the same"));
        let error = heap.alloc::<u8>(5000).unwrap_err().to_string();
        assert!(error.contains("4096 of 4096 bytes are left"), "{error}");
        let whole = heap.alloc::<u8>(4096)?;
        assert_eq!((whole.offset(), heap.bytes()), (0, 4096));
        Ok(())
    });
}

#[test]
fn wrong_arguments_are_errors_and_nothing_moves() {
    on_every_transport(2, |world| {
        let comm = world.communicator();
        assert!(SymmetricHeap::new(&comm, 0).unwrap_err().to_string().contains("0 bytes"));
        let heap = SymmetricHeap::new(&comm, 4096)?;
        let words = heap.alloc::<u64>(4)?;
        for error in [
            words.put(&[1; 5], 0).unwrap_err(),
            words.get(&mut [0; 5], 1).unwrap_err(),
            words.write(&[1; 5]).unwrap_err(),
            words.slice(2..).put(&[1; 3], 0).unwrap_err(),
            words.signal(4, SignalOp::Set(1), 1).unwrap_err(),
            words.fetch(4, 1).unwrap_err(),
        ] {
            assert!(
                matches!(error, Error::Heap { .. }) && error.to_string().contains("where the buffer has"),
                "{error}"
            );
        }
        assert!(matches!(words.put(&[1], 2), Err(Error::NoSuchRank { rank: 2, last: 1, .. })));
        barrier(&comm, &heap)?;
        assert_eq!(words.to_vec(), [0; 4]);
        Ok(())
    });
}

#[test]
fn heaps_of_several_communicators_are_apart() {
    on_every_transport(4, |world| {
        let comm = world.communicator();
        let color = u32::try_from(comm.rank() % 2).unwrap();
        // In reverse order, so that ranks of the heap are not those of the world.
        let half = comm.split(Some(color), -i64::try_from(comm.rank()).unwrap())?.expect("every rank has a color");
        let (all, mine) = (SymmetricHeap::new(&comm, 4096)?, SymmetricHeap::new(&half, 4096)?);
        let (one, other) = (all.alloc::<u64>(4)?, mine.alloc::<u64>(2)?);
        barrier(&comm, &all)?;
        for rank in 0..4 {
            one.slice(comm.rank()..).put(&[10 + comm.rank() as u64], rank)?;
        }
        for rank in 0..2 {
            other.slice(half.rank()..).put(&[20 + comm.rank() as u64], rank)?;
        }
        barrier(&half, &mine)?;
        barrier(&comm, &all)?;
        assert_eq!(one.to_vec(), [10, 11, 12, 13]);
        let color = u64::from(color);
        assert_eq!(other.to_vec(), [22 + color, 20 + color]);
        barrier(&comm, &all)
    });
}

#[test]
fn threads_of_one_rank_wait_for_each_other_s_signals() {
    on_every_transport(2, |world| {
        let comm = world.communicator();
        let heap = SymmetricHeap::new(&comm, 4096)?;
        let signal = heap.alloc::<u64>(2)?;
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                for round in 1..=20 {
                    signal.wait_signal(0, Compare::AtLeast(round), LONG)?;
                    signal.signal(1, SignalOp::Set(round), comm.rank())?;
                }
                Ok(())
            });
            for round in 1..=20 {
                signal.signal(0, SignalOp::Set(round), comm.rank())?;
                signal.wait_signal(1, Compare::AtLeast(round), LONG)?;
            }
            waiting.join().expect("no panic")
        })?;
        barrier(&comm, &heap)
    });
}

#[test]
fn messages_go_out_of_and_into_the_heap_at_any_size() {
    on_every_transport(3, |world| {
        let comm = world.communicator();
        let heap = SymmetricHeap::new(&comm, 8 << 20)?;
        let (out, into) = (heap.alloc::<u32>(600_000)?, heap.alloc::<u32>(600_000)?);
        for length in [0, 1, 1000, 5000, 100_000, 600_000] {
            let expected = pattern(length, length);
            match comm.rank() {
                0 => {
                    out.write(&expected)?;
                    // From heap to heap, from heap to a vector, and from a vector to the heap.
                    comm.send_buffer(&out.slice(..length), 1, 1)?;
                    comm.send_buffer(&out.slice(..length), 2, 2)?;
                    comm.send(&expected, 2, 3)?;
                }
                1 => {
                    let status = comm.recv_buffer(&into, 0, 1)?;
                    assert_eq!(status.elements::<u32>(), length);
                    assert!(into.to_vec()[..length] == expected, "{length}");
                }
                _ => {
                    assert!(comm.recv_vec::<u32>(0, 2)?.0 == expected, "{length}");
                    comm.recv_buffer(&into.slice(..length), 0, 3)?;
                    assert!(into.to_vec()[..length] == expected, "{length}");
                }
            }
        }
        // A message to oneself, and one that does not fit.
        if comm.rank() == 0 {
            let request = comm.isend(pattern(500_000, 5), 0, 4)?;
            comm.recv_buffer(&into, 0, 4)?;
            assert!(into.to_vec()[..500_000] == request.wait()?);
            comm.send_buffer(&out, 1, 5)?;
            comm.send_buffer(&out.slice(..5), 1, 6)?;
        } else if comm.rank() == 1 {
            let error = comm.recv_buffer(&into.slice(1..), 0, 5).unwrap_err();
            assert!(matches!(error, Error::Truncated { .. }), "{error}");
            comm.recv_buffer(&into, 0, 6)?;
        }
        barrier(&comm, &heap)
    });
}

#[test]
fn operations_by_offset_do_what_those_on_buffers_do_without_waiting() {
    on_every_transport(3, |world| {
        let comm = world.communicator();
        let heap = SymmetricHeap::new(&comm, 1 << 20)?;
        let buffer = heap.alloc::<u32>(200_000)?;
        let signals = heap.alloc::<u64>(2)?;
        buffer.slice(..40_000).write(&pattern(40_000, comm.rank()))?;
        barrier(&comm, &heap)?;
        let (right, left) = ((comm.rank() + 1) % comm.size(), (comm.rank() + 2) % comm.size());
        heap.put_at(buffer.offset() + 4, buffer.offset() + 200_008, 4 * 39_999, right)?;
        heap.put_bytes_at(&[7; 3], buffer.offset() + 200_001, right)?;
        heap.signal_at(signals.offset() + 8, SignalOp::Add(5), right)?;
        heap.signal_at(signals.offset() + 8, SignalOp::Add(6), right)?;
        let mut quiet = heap.start_quiet()?;
        while !quiet.is_done()? {
            heap.progress()?;
        }
        signals.wait_signal(1, Compare::AtLeast(11), LONG)?;
        let found = buffer.to_vec();
        assert!(found[50_002..90_001] == pattern(40_000, left)[1..]);
        assert_eq!((found[50_000].to_ne_bytes(), found[50_001], found[90_001]), ([0, 7, 7, 7], 0, 0));
        // Two gets at once, one of them larger than a record.
        let mut gets = vec![
            heap.start_get(buffer.offset(), buffer.offset() + 400_000, 160_000, left)?,
            heap.start_get(buffer.offset() + 12, buffer.offset() + 796_000, 4, left)?,
        ];
        while !gets.is_empty() {
            heap.progress()?;
            let mut open = Vec::new();
            for mut get in gets {
                if !get.is_done()? {
                    open.push(get);
                }
            }
            gets = open;
        }
        let found = buffer.to_vec();
        assert!(found[100_000..140_000] == pattern(40_000, left)[..] && found[199_000] == pattern(4, left)[3]);
        barrier(&comm, &heap)
    });
}

#[test]
fn an_offset_that_does_not_exist_is_an_error_and_nothing_is_written() {
    on_every_transport(2, |world| {
        let comm = world.communicator();
        let heap = SymmetricHeap::new(&comm, 8192)?;
        let all = heap.bytes();
        barrier(&comm, &heap)?;
        for rank in 0..2 {
            assert!(heap.put_at(0, all - 8, 9, rank).is_err());
            assert!(heap.put_at(all - 8, 0, 9, rank).is_err());
            assert!(heap.put_at(usize::MAX, 0, 2, rank).is_err());
            assert!(heap.put_bytes_at(&[1; 9], all - 8, rank).is_err());
            assert!(heap.start_get(all, 0, 1, rank).is_err());
            assert!(heap.signal_at(all - 4, SignalOp::Set(1), rank).is_err());
            let error = heap.signal_at(12, SignalOp::Set(1), rank).unwrap_err();
            assert!(error.to_string().contains("no multiple of 8"), "{error}");
        }
        assert!(heap.put_at(0, 0, 8, 2).is_err_and(|error| matches!(error, Error::NoSuchRank { rank: 2, .. })));
        let error = heap.put_at(0, 4, 8, comm.rank()).unwrap_err();
        assert!(error.to_string().contains("overlap"), "{error}");
        heap.put_at(16, 16, 8, comm.rank())?;
        barrier(&comm, &heap)?;
        let bytes = heap.alloc::<u8>(all)?;
        assert_eq!(bytes.to_vec(), vec![0; all]);
        barrier(&comm, &heap)
    });
}

#[test]
fn what_is_changed_in_a_heap_that_a_rank_has_dropped_is_an_error_of_quiet_that_names_both() {
    on_every_transport(2, |world| {
        let comm = world.communicator();
        for number in 0..3_u64 {
            let heap = SymmetricHeap::new(&comm, 4096)?;
            let buffer = heap.alloc::<u64>(8)?;
            if comm.rank() == 1 {
                drop((heap, buffer));
                comm.send(&[1_u8], 0, 0)?;
                comm.recv(&mut [0_u8], 0, 1)?;
                continue;
            }
            comm.recv(&mut [0_u8], 1, 0)?;
            match number {
                0 => buffer.put(&[1, 2], 1)?,
                1 => buffer.signal(3, SignalOp::Add(1), 1)?,
                _ => buffer.put_signal(&[1, 2], 1, &buffer, 3, SignalOp::Set(1))?,
            }
            // Memory that is mapped here stays as long as this rank holds the heap.
            let is_mapped = comm.host_of(0) == comm.host_of(1)
                && !comm
                    .snapshot()
                    .entries()
                    .iter()
                    .any(|entry| entry.key == "transport.allow" && !entry.value.to_string().contains("shm"));
            let quiet = heap.quiet();
            if is_mapped {
                quiet?;
            } else {
                let error = quiet.unwrap_err().to_string();
                let wanted = format!("rank 1 has dropped heap {number} of its communicator");
                assert!(error.contains(&wanted), "{error}");
                // It is told once, and what has an answer is told at once.
                heap.quiet()?;
                let error = buffer.fetch(0, 1).unwrap_err().to_string();
                assert!(error.contains(&wanted), "{error}");
            }
            comm.send(&[1_u8], 1, 1)?;
        }
        Ok(())
    });
}
