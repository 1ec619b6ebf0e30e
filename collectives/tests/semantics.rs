//! Every collective by every algorithm gives what a loop over all ranks gives, on every transport.

#![allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "ranks and lengths of tests are small")]

use spmd::Communicator;
use spmd::local::Cluster;
use spmd_collectives::algorithms::{Algorithm, Collective, Restriction};
use spmd_collectives::groups::Groups;
use spmd_collectives::prelude::*;

/// Lengths around the number of ranks, where blocks become empty or uneven, and two beyond the eager limit (8 KiB).
fn lengths(size: usize) -> Vec<usize> {
    let mut lengths = vec![0, 1, size - 1, size, size + 1, 1000, 1024, 1025, 3001];
    lengths.sort_unstable();
    lengths.dedup();
    lengths
}

/// What rank `rank` contributes: no two elements alike.
fn integers(rank: usize, length: usize) -> Vec<i64> {
    (0..length as i64).map(|index| (rank as i64 + 1) * 1_000_003 + index * 7_919).collect()
}

/// Values whose sum depends on the order: of very different size, and of both signs.
fn floats(rank: usize, length: usize) -> Vec<f32> {
    let mut state = (rank as u32).wrapping_mul(2_654_435_761) ^ 12_345;
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let exponent = 10f32.powi((state >> 28) as i32 - 8);
        (state >> 8 & 0xffff) as f32 * exponent * if state & 0x80 == 0 { 1.0 } else { -1.0 }
    };
    (0..length).map(next).collect()
}

/// Matrices of two rows and columns, whose product depends on the order.
fn matrices(rank: usize, length: usize) -> Vec<[u32; 4]> {
    (0..length as u32).map(|index| [rank as u32 + 2, index, 1, rank as u32 * 3 + 1]).collect()
}

fn product(a: [u32; 4], b: [u32; 4]) -> [u32; 4] {
    let entry =
        |row: usize, column: usize| a[row].wrapping_mul(b[column]).wrapping_add(a[row + 1].wrapping_mul(b[column + 2]));
    [entry(0, 0), entry(0, 1), entry(2, 0), entry(2, 1)]
}

/// The contributions of all ranks combined from left to right.
fn reference<T: Copy>(size: usize, of: impl Fn(usize) -> Vec<T>, op: impl Fn(T, T) -> T) -> Vec<T> {
    let first = of(0);
    (1..size).fold(first, |sum, rank| sum.into_iter().zip(of(rank)).map(|(a, b)| op(a, b)).collect())
}

/// The contributions of all ranks, one after another.
fn concatenated(size: usize, length: usize) -> Vec<i64> {
    (0..size).flat_map(|rank| integers(rank, length)).collect()
}

fn broadcast(comm: &Communicator, length: usize, root: usize) {
    let mut data = if comm.rank() == root { integers(root, length) } else { vec![-1; length] };
    comm.broadcast(&mut data, root).unwrap();
    assert_eq!(data, integers(root, length));
}

fn reduce(comm: &Communicator, length: usize, root: usize) {
    let (rank, size) = (comm.rank(), comm.size());
    let here = |expected: Vec<i64>| (rank == root).then_some(expected);
    let sum = comm.reduce(&integers(rank, length), Sum, root).unwrap();
    assert_eq!(sum, here(reference(size, |rank| integers(rank, length), i64::wrapping_add)));
    let mut greatest = vec![0; length];
    let place = (rank == root).then_some(&mut greatest[..]);
    comm.reduce_into(&integers(rank, length), place, Max, root).unwrap();
    assert_eq!(greatest, here(reference(size, |rank| integers(rank, length), i64::max)).unwrap_or(vec![0; length]));
}

fn reduce_in_rank_order(comm: &Communicator, length: usize, root: usize) {
    let result = comm.reduce(&matrices(comm.rank(), length), custom(product), root).unwrap();
    let expected = reference(comm.size(), |rank| matrices(rank, length), product);
    assert_eq!(result, (comm.rank() == root).then_some(expected));
}

fn all_reduce(comm: &Communicator, length: usize) {
    let (rank, size) = (comm.rank(), comm.size());
    let mut data = integers(rank, length);
    comm.all_reduce(&mut data, Sum).unwrap();
    assert_eq!(data, reference(size, |rank| integers(rank, length), i64::wrapping_add));
    let mut least = vec![0; length];
    comm.all_reduce_into(&integers(rank, length), &mut least, Min).unwrap();
    assert_eq!(least, reference(size, |rank| integers(rank, length), i64::min));
}

fn all_reduce_in_rank_order(comm: &Communicator, length: usize) {
    let mut data = matrices(comm.rank(), length);
    comm.all_reduce(&mut data, custom(product)).unwrap();
    assert_eq!(data, reference(comm.size(), |rank| matrices(rank, length), product));
}

fn gather_and_scatter(comm: &Communicator, length: usize, root: usize) {
    let (rank, size) = (comm.rank(), comm.size());
    let all = concatenated(size, length);
    let gathered = comm.gather(&integers(rank, length), root).unwrap();
    assert_eq!(gathered, (rank == root).then(|| all.clone()));
    let mut block = vec![0; length];
    comm.scatter((rank == root).then_some(&all[..]), &mut block, root).unwrap();
    assert_eq!(block, integers(rank, length));
}

fn all_gather_and_all_to_all(comm: &Communicator, length: usize) {
    let (rank, size) = (comm.rank(), comm.size());
    assert_eq!(comm.all_gather(&integers(rank, length)).unwrap(), concatenated(size, length));
    let received = comm.all_to_all(&integers(rank, size * length)).unwrap();
    let expected: Vec<i64> =
        (0..size).flat_map(|from| integers(from, size * length)[rank * length..][..length].to_vec()).collect();
    assert_eq!(received, expected);
}

fn reduce_scatter(comm: &Communicator, length: usize) {
    let (rank, size) = (comm.rank(), comm.size());
    let expected = reference(size, |rank| integers(rank, size * length), i64::wrapping_add);
    let block = comm.reduce_scatter(&integers(rank, size * length), Sum).unwrap();
    assert_eq!(block, expected[rank * length..][..length]);
}

fn reduce_scatter_in_rank_order(comm: &Communicator, length: usize) {
    let (rank, size) = (comm.rank(), comm.size());
    let block = comm.reduce_scatter(&matrices(rank, size * length), custom(product)).unwrap();
    let expected = reference(size, |rank| matrices(rank, size * length), product);
    assert_eq!(block, expected[rank * length..][..length]);
}

fn scan_and_exscan(comm: &Communicator, length: usize) {
    let rank = comm.rank();
    let own = matrices(rank, length);
    let mut upto = own.clone();
    comm.scan(&mut upto, custom(product)).unwrap();
    assert_eq!(upto, reference(rank + 1, |rank| matrices(rank, length), product));
    let mut greatest = vec![0; length];
    comm.scan_into(&integers(rank, length), &mut greatest, Max).unwrap();
    assert_eq!(greatest, reference(rank + 1, |rank| integers(rank, length), i64::max));
    let before = comm.exscan(&own, custom(product)).unwrap();
    assert_eq!(before, (rank > 0).then(|| reference(rank, |rank| matrices(rank, length), product)));
}

/// How many elements rank `from` has for rank `to`: many different numbers, every fourth of them 0.
fn share(from: usize, to: usize, length: usize) -> usize {
    match (from * 7 + to * 3) % 4 {
        0 => 0,
        some => length / some + from % 3,
    }
}

fn collectives_of_varied_lengths(comm: &Communicator, length: usize, root: usize) {
    let (rank, size) = (comm.rank(), comm.size());
    let counts: Vec<usize> = (0..size).map(|rank| share(rank, root, length)).collect();
    let all: Vec<i64> = (0..size).flat_map(|rank| integers(rank, counts[rank])).collect();
    let mine = integers(rank, counts[rank]);
    assert_eq!(comm.gather_v(&mine, root).unwrap(), (rank == root).then(|| (all.clone(), counts.clone())));
    let block = comm.scatter_v((rank == root).then_some((&all[..], &counts[..])), root).unwrap();
    assert_eq!(block, mine);
    assert_eq!(comm.all_gather_v(&mine).unwrap(), (all, counts));
    let to = |rank: usize| -> Vec<usize> { (0..size).map(|to| share(rank, to, length)).collect() };
    let sent = integers(rank, to(rank).iter().sum());
    let mut expected = Vec::new();
    for from in 0..size {
        let start = to(from)[..rank].iter().sum();
        expected.extend(&integers(from, to(from).iter().sum())[start..][..to(from)[rank]]);
    }
    let counts = (0..size).map(|from| share(from, rank, length)).collect();
    assert_eq!(comm.all_to_all_v(&sent, &to(rank)).unwrap(), (expected, counts));
}

/// The legal algorithm number `turn` of each collective, counted round; of those in two hops where there are two levels.
fn turn(collective: Collective, groups: &Groups, turn: usize) -> &'static Algorithm {
    let mut legal: Vec<&Algorithm> =
        collective.algorithms().iter().filter(|algorithm| algorithm.forbidden(groups, true).is_none()).collect();
    let in_two_hops = |algorithm: &&Algorithm| algorithm.restrictions.contains(&Restriction::TwoLevels);
    if legal.iter().any(in_two_hops) {
        legal.retain(in_two_hops);
    }
    legal[turn % legal.len()]
}

fn suite(transport: &str, sizes: impl Iterator<Item = usize>) {
    for size in sizes {
        suite_in_groups(transport, &Groups::together(size), size);
        if [4, 7, 17].contains(&size) {
            suite_in_groups(transport, &Groups::every(size, 3), 3);
        }
    }
}

fn suite_in_groups(transport: &str, groups: &Groups, width: usize) {
    let size = groups.size();
    let legal =
        |collective: Collective| collective.algorithms().iter().filter(|row| row.forbidden(groups, true).is_none());
    let turns = match groups.are_two_levels() {
        true => 2,
        false => Collective::ALL.into_iter().map(|collective| legal(collective).count()).max().unwrap(),
    };
    for now in 0..turns {
        let mut cluster = Cluster::new(size)
            .set("transport.allow", transport)
            .set("collectives.group_size", &width.to_string())
            .set("collectives.leaders", &(1 + now % 2).to_string());
        for collective in Collective::ALL {
            cluster = cluster.set(&format!("collectives.{collective}"), turn(collective, groups, now).name);
        }
        let keeps_order = |collective| turn(collective, groups, now).keeps_rank_order(groups);
        cluster
            .run(|world| {
                let comm = world.communicator();
                for length in lengths(size) {
                    for root in [0, size / 2, size - 1] {
                        broadcast(&comm, length, root);
                        reduce(&comm, length, root);
                        gather_and_scatter(&comm, length, root);
                        if keeps_order(Collective::Reduce) {
                            reduce_in_rank_order(&comm, length, root);
                        }
                    }
                    all_reduce(&comm, length);
                    if keeps_order(Collective::AllReduce) {
                        all_reduce_in_rank_order(&comm, length);
                    }
                    all_gather_and_all_to_all(&comm, length);
                    reduce_scatter(&comm, length);
                    if keeps_order(Collective::ReduceScatter) {
                        reduce_scatter_in_rank_order(&comm, length);
                    }
                    scan_and_exscan(&comm, length);
                    comm.barrier().unwrap();
                }
            })
            .unwrap();
    }
}

#[test]
fn every_algorithm_gives_the_reference_s_result_over_shared_memory_on_1_to_9_ranks() {
    suite("shm", 1..=9);
}

#[test]
fn every_algorithm_gives_the_reference_s_result_over_tcp_on_1_to_9_ranks() {
    suite("tcp", 1..=9);
}

#[test]
fn every_algorithm_gives_the_reference_s_result_on_17_ranks() {
    suite("shm", 17..=17);
}

#[test]
fn blocks_of_different_lengths_and_of_none_arrive_in_rank_order_on_1_to_9_ranks() {
    for transport in ["shm", "tcp"] {
        for size in 1..=9 {
            Cluster::new(size)
                .set("transport.allow", transport)
                .run(|world| {
                    let comm = world.communicator();
                    for length in lengths(size) {
                        for root in [0, size / 2, size - 1] {
                            collectives_of_varied_lengths(&comm, length, root);
                        }
                    }
                })
                .unwrap();
        }
    }
}

#[test]
fn floats_have_the_same_bits_on_all_ranks_and_from_run_to_run() {
    for size in [2, 3, 5, 6, 7, 8, 12] {
        let groups = Groups::every(size, 3);
        for algorithm in
            Collective::AllReduce.algorithms().iter().filter(|algorithm| algorithm.forbidden(&groups, true).is_none())
        {
            let cluster = Cluster::new(size)
                .set("collectives.group_size", "3")
                .set("collectives.leaders", "2")
                .set("collectives.all_reduce", algorithm.name);
            let bits = || {
                cluster.run(|world| {
                    let comm = world.communicator();
                    let mut data: Vec<f32> = floats(comm.rank(), 1001);
                    comm.all_reduce(&mut data, Sum).unwrap();
                    data.iter().map(|value| value.to_bits()).collect::<Vec<u32>>()
                })
            };
            let (first, second) = (bits().unwrap(), bits().unwrap());
            for rank in 0..size {
                assert_eq!(first[rank], first[0], "{} on {size} ranks, rank {rank}", algorithm.name);
                assert_eq!(second[rank], first[0], "{} on {size} ranks, second run", algorithm.name);
            }
        }
    }
}

#[test]
fn no_rank_leaves_a_barrier_before_all_have_entered() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    for algorithm in Collective::Barrier.algorithms() {
        let entered = AtomicUsize::new(0);
        Cluster::new(6)
            .set("collectives.group_size", "4")
            .set("collectives.barrier", algorithm.name)
            .run(|world| {
                let comm = world.communicator();
                for round in 1..=50 {
                    entered.fetch_add(1, Ordering::SeqCst);
                    comm.barrier().unwrap();
                    assert!(entered.load(Ordering::SeqCst) >= 6 * round);
                }
            })
            .unwrap();
    }
}

#[test]
fn collectives_work_in_communicators_split_off_and_with_messages_between() {
    Cluster::new(7)
        .run(|world| {
            let comm = world.communicator();
            let half = comm.split(Some(comm.rank() as u32 % 2), -(comm.rank() as i64)).unwrap().unwrap();
            // Digits, and ten to the power of their number.
            let join = custom(|a: [usize; 2], b: [usize; 2]| [a[0] * b[1] + b[0], a[1] * b[1]]);
            let mut data = [[comm.rank(), 10]];
            half.all_reduce(&mut data, join).unwrap();
            // Ranks are turned round in their halves.
            assert_eq!(data[0][0], if comm.rank().is_multiple_of(2) { 6420 } else { 531 });
            comm.send(&[1u8], (comm.rank() + 1) % 7, 0).unwrap();
            assert_eq!(comm.all_gather(&[comm.rank()]).unwrap(), [0, 1, 2, 3, 4, 5, 6]);
            comm.recv(&mut [0u8], (comm.rank() + 6) % 7, 0).unwrap();
        })
        .unwrap();
}

#[test]
fn large_messages_are_cut_into_a_pipeline_and_arrive_whole() {
    Cluster::new(4)
        .set("collectives.broadcast", "chain")
        .run(|world| {
            let comm = world.communicator();
            let length = 300_000;
            broadcast(&comm, length, 3);
            all_reduce(&comm, length);
        })
        .unwrap();
}

#[test]
fn the_configuration_s_own_choice_works_across_hosts_with_both_transports() {
    for (size, hosts) in [(6, 2), (9, 3), (12, 4)] {
        Cluster::new(size)
            .hosts(hosts)
            .run(|world| {
                let comm = world.communicator();
                for length in [0, 3, 1000, 40_000] {
                    broadcast(&comm, length, 1);
                    reduce(&comm, length, size - 1);
                    reduce_in_rank_order(&comm, length, 2);
                    all_reduce(&comm, length);
                    all_reduce_in_rank_order(&comm, length);
                    gather_and_scatter(&comm, length, 3);
                    all_gather_and_all_to_all(&comm, length);
                    reduce_scatter(&comm, length);
                    reduce_scatter_in_rank_order(&comm, length);
                    scan_and_exscan(&comm, length);
                    comm.barrier().unwrap();
                }
            })
            .unwrap();
    }
}
