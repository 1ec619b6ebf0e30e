//! What the forms in shared memory promise, on threads that share a segment as processes do. Every test makes many calls
//! of all sizes one after the other: memory that is used again too early shows as a wrong value.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "small numbers as data"
)]

use crate::error::Error;
use crate::prelude::*;
use spmd::element::Element;
use spmd::local::Cluster;
use spmd::{Communicator, World};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Around the borders between the ways: words of a line, what is left for a meeting, chunks and blocks of them.
const LENGTHS: [usize; 12] = [0, 1, 2, 6, 7, 13, 1000, 2048, 4096, 4097, 33_000, 70_001];

fn on_ranks(ranks: usize, set: &[(&str, &str)], run: impl Fn(&Communicator) + Send + Sync) {
    let cluster = Cluster::new(ranks);
    let cluster = set.iter().fold(cluster, |cluster, (key, value)| cluster.set(key, value));
    cluster.run(|world: &World| run(&world.communicator())).unwrap();
}

/// The legal forms: forced, so that a fall back to messages would be an error.
const SHARED: [(&str, &str); 4] = [
    ("collectives.barrier", "shared"),
    ("collectives.broadcast", "shared"),
    ("collectives.reduce", "shared"),
    ("collectives.all_reduce", "shared"),
];

fn value(rank: usize, index: usize, call: usize) -> u64 {
    (rank as u64 + 1) * 1_000_003 + (index * (call + 1)) as u64
}

#[test]
fn results_are_right_for_all_sizes_on_1_to_9_ranks_again_and_again() {
    for ranks in 1..=9 {
        on_ranks(ranks, &SHARED, |comm| {
            for call in 0..3 {
                for length in LENGTHS {
                    let own: Vec<u64> = (0..length).map(|index| value(comm.rank(), index, call)).collect();
                    let sums = || (0..length).map(|index| (0..ranks).map(|rank| value(rank, index, call)).sum::<u64>());
                    let mut all = own.clone();
                    comm.all_reduce(&mut all, Sum).unwrap();
                    assert!(all.iter().copied().eq(sums()), "all_reduce of {length} on {ranks}");
                    let mut elsewhere = vec![0; length];
                    comm.all_reduce_into(&own, &mut elsewhere, Sum).unwrap();
                    assert!(elsewhere.into_iter().eq(sums()), "all_reduce_into of {length} on {ranks}");
                    assert!((0..length).all(|index| own[index] == value(comm.rank(), index, call)), "{length}");
                    let root = (call + length) % ranks;
                    let result = comm.reduce(&own, Sum, root).unwrap();
                    assert_eq!(result.is_some(), comm.rank() == root);
                    assert!(result.is_none_or(|result| result.into_iter().eq(sums())), "reduce of {length}");
                    let mut data = if comm.rank() == root { own.clone() } else { vec![0; length] };
                    comm.broadcast(&mut data, root).unwrap();
                    let theirs = (0..length).map(|index| value(root, index, call));
                    assert!(data.into_iter().eq(theirs), "broadcast of {length} from {root} of {ranks}");
                    comm.barrier().unwrap();
                }
            }
        });
    }
}

#[test]
fn an_operator_that_does_not_commute_is_applied_in_rank_order() {
    // The product of 2 by 2 matrices modulo a prime.
    type Matrix = [u32; 4];
    let times = |a: Matrix, b: Matrix| {
        let cell = |i: usize, j: usize| (a[2 * i] * b[j] + a[2 * i + 1] * b[2 + j]) % 251;
        [cell(0, 0), cell(0, 1), cell(1, 0), cell(1, 1)]
    };
    let matrix = |rank: usize, index: usize| [1, (rank + index) as u32 % 7, rank as u32 + 2, 3];
    for ranks in [2, 3, 5] {
        on_ranks(ranks, &SHARED, |comm| {
            for length in [1, 3, 900, 20_000] {
                let own: Vec<Matrix> = (0..length).map(|index| matrix(comm.rank(), index)).collect();
                let product =
                    |index: usize| (1..ranks).fold(matrix(0, index), |left, rank| times(left, matrix(rank, index)));
                let mut all = own.clone();
                comm.all_reduce(&mut all, custom(times)).unwrap();
                assert!((0..length).all(|index| all[index] == product(index)), "{ranks} ranks, {length}");
                all.fill([0; 4]);
                comm.all_reduce_into(&own, &mut all, custom(times)).unwrap();
                assert!((0..length).all(|index| all[index] == product(index)), "{ranks} ranks, {length}, elsewhere");
                let result = comm.reduce(&own, custom(times), ranks - 1).unwrap();
                assert!(result.is_none_or(|result| (0..length).all(|index| result[index] == product(index))));
            }
        });
    }
}

#[test]
fn all_ranks_get_the_same_bits_of_floats_and_get_them_again() {
    for ranks in [2, 3, 7] {
        let run = || {
            let cluster = SHARED.iter().fold(Cluster::new(ranks), |cluster, (key, value)| cluster.set(key, value));
            let results = cluster.run(|world: &World| {
                let comm = world.communicator();
                let mut data: Vec<f32> = (0..50_000).map(|index| 1.0 / (1 + comm.rank() * 77 + index) as f32).collect();
                let mut elsewhere = vec![0.0; data.len()];
                comm.all_reduce_into(&data, &mut elsewhere, Sum).unwrap();
                comm.all_reduce(&mut data, Sum).unwrap();
                assert!(data.iter().zip(&elsewhere).all(|(one, other)| one.to_bits() == other.to_bits()));
                data.iter().map(|value| value.to_bits()).collect::<Vec<u32>>()
            });
            results.unwrap()
        };
        let (first, second) = (run(), run());
        assert!(first.iter().all(|bits| *bits == first[0]) && first == second, "{ranks} ranks");
    }
}

#[test]
fn elements_of_odd_sizes_and_alignments_go_through_every_way() {
    on_ranks(2, &SHARED, |comm| {
        for length in [1, 5, 47, 48, 49, 30_000] {
            let mut data: Vec<[u8; 3]> = (0..length).map(|index| [comm.rank() as u8, index as u8, 1]).collect();
            comm.all_reduce(&mut data, custom(|a: [u8; 3], b: [u8; 3]| [a[0] + b[0], a[1].max(b[1]), a[2] + b[2]]))
                .unwrap();
            assert!(data.iter().enumerate().all(|(index, found)| *found == [1, index as u8, 2]), "{length}");
        }
    });
}

/// Ranks that wait as if each had a processor of its own: tiny data goes through a tree, of one level and of two.
const IN_TREES: [(&str, &str); 5] = [SHARED[0], SHARED[1], SHARED[2], SHARED[3], ("wait.policy", "sleep")];
const SIZES_OF_TREES: [usize; 9] = [3, 4, 7, 12, 16, 17, 18, 23, 32];

/// All-reduces and reduces of lengths up to what fits into a line, and one more.
fn check_tiny<T: Element + PartialEq + std::fmt::Debug>(
    comm: &Communicator,
    op: impl Op<T> + Copy,
    value: impl Fn(usize, usize) -> T,
) {
    let ranks = comm.size();
    let most = 48 / size_of::<T>();
    for length in [0, 1, 2, most - 1, most, most + 1] {
        let own: Vec<T> = (0..length).map(|index| value(comm.rank(), index)).collect();
        let expected: Vec<T> = (0..length)
            .map(|index| (1..ranks).fold(value(0, index), |left, rank| op.combine(left, value(rank, index))))
            .collect();
        let mut all = own.clone();
        comm.all_reduce(&mut all, op).unwrap();
        assert_eq!(all, expected, "{length} on {ranks}");
        let mut elsewhere = vec![T::zeroed(); length];
        comm.all_reduce_into(&own, &mut elsewhere, op).unwrap();
        assert_eq!(elsewhere, expected, "{length} on {ranks}, elsewhere");
        let root = length * 7 % ranks;
        let result = comm.reduce(&own, op, root).unwrap();
        assert_eq!(result, (comm.rank() == root).then_some(expected), "{length} on {ranks}, to {root}");
        let mut data = [if comm.rank() == root { value(root, length) } else { T::zeroed() }];
        comm.broadcast(&mut data, root).unwrap();
        assert_eq!(data, [value(root, length)], "from {root} of {ranks}");
    }
}

#[test]
fn tiny_data_of_all_types_in_trees_gives_the_right_results_again_and_again() {
    for ranks in SIZES_OF_TREES {
        on_ranks(ranks, &IN_TREES, |comm| {
            macro_rules! check {
                ($($type:ty),*) => {$(
                    check_tiny::<$type>(comm, Sum, |rank, index| ((rank + index) % 3) as $type);
                )*};
            }
            check!(u8, i8, u16, i16, u32, i32, u64, i64, u128, i128, usize, isize, f32, f64);
            check_tiny::<half::f16>(comm, Sum, |rank, index| half::f16::from_f32(((rank + index) % 3) as f32));
            // Of a size that words are no multiple of.
            let add = |a: [u8; 3], b: [u8; 3]| [a[0] + b[0], a[1].max(b[1]), a[2] ^ b[2]];
            check_tiny(comm, custom(add), |rank, index| [(rank % 3) as u8, index as u8, (rank * 5) as u8]);
        });
    }
}

#[test]
fn trees_apply_an_operator_in_rank_order() {
    // Affine maps x -> a1 x + a0 modulo 2^32, one after the other.
    let after = |a: [u32; 2], b: [u32; 2]| [b[1].wrapping_mul(a[0]).wrapping_add(b[0]), a[1].wrapping_mul(b[1])];
    for ranks in SIZES_OF_TREES {
        on_ranks(ranks, &IN_TREES, |comm| {
            check_tiny(comm, custom(after), |rank, index| [(rank + index) as u32, 2 * rank as u32 + 3]);
        });
    }
}

#[test]
fn floats_in_trees_have_the_same_bits_everywhere_and_again() {
    for ranks in [5, 32] {
        let run = || {
            let cluster = IN_TREES.iter().fold(Cluster::new(ranks), |cluster, (key, value)| cluster.set(key, value));
            let results = cluster.run(|world: &World| {
                let comm = world.communicator();
                let mut bits = Vec::new();
                for call in 0..20 {
                    let mut data: Vec<f32> =
                        (0..12).map(|index| 1.0 / (1 + comm.rank() * 77 + index + call) as f32).collect();
                    comm.all_reduce(&mut data, Sum).unwrap();
                    bits.extend(data.into_iter().map(f32::to_bits));
                }
                bits
            });
            results.unwrap()
        };
        let (first, second) = (run(), run());
        assert!(first.iter().all(|bits| *bits == first[0]) && first == second, "{ranks} ranks");
    }
}

#[test]
fn nobody_leaves_a_barrier_in_a_tree_before_everybody_has_come() {
    for ranks in SIZES_OF_TREES {
        let came = AtomicUsize::new(0);
        on_ranks(ranks, &IN_TREES, |comm| {
            for round in 0..20 {
                if (comm.rank() + round) % 5 == 0 {
                    std::thread::yield_now();
                }
                came.fetch_add(1, Ordering::Relaxed);
                comm.barrier().unwrap();
                assert!(came.load(Ordering::Relaxed) >= (round + 1) * ranks, "round {round} of {ranks}");
            }
        });
    }
}

#[test]
fn a_call_that_differs_in_a_tree_is_an_error_on_all_ranks() {
    // The root, one that leads a group, another one of a group, and the last one; at once and after other calls.
    for (odd, before) in [(0, 0), (1, 0), (7, 0), (31, 0), (6, 3), (9, 3)] {
        on_ranks(32, &IN_TREES, |comm| {
            for _ in 0..before {
                comm.barrier().unwrap();
            }
            let is_odd = comm.rank() == odd;
            let error = comm.all_reduce(&mut vec![1_u32; if is_odd { 5 } else { 4 }], Sum).unwrap_err();
            assert!(matches!(error, Error::Mismatch { .. }), "{error}");
            let text = error.to_string();
            assert!(text.contains(&format!("rank {odd}")) && text.contains('4') && text.contains('5'), "{text}");
        });
    }
    on_ranks(17, &IN_TREES, |comm| {
        let result = if comm.rank() == 9 { comm.barrier() } else { comm.all_reduce(&mut [1_u32], Sum) };
        assert!(matches!(result, Err(Error::Mismatch { .. })), "{result:?}");
    });
}

#[test]
fn calls_that_do_not_fit_together_are_an_error_on_all_ranks_whichever_ways_they_take() {
    // Lengths that take the same way, and others.
    for (ranks, lengths) in [(2, [4, 5]), (3, [4, 5]), (3, [4, 13]), (3, [4, 40_000]), (3, [40_000, 50_000])] {
        for waits in ["auto", "sleep"] {
            on_ranks(ranks, &[("collectives.check_after", "100ms"), ("wait.policy", waits)], |comm| {
                let length = lengths[usize::from(comm.rank() == ranks - 1)];
                let error = comm.all_reduce(&mut vec![1_u32; length], Sum).unwrap_err();
                assert!(matches!(error, Error::Mismatch { .. }), "{error}");
                let text = error.to_string();
                assert!(lengths.iter().all(|length| text.contains(&length.to_string())), "{text}");
            });
        }
    }
}

#[test]
fn calls_that_take_different_ways_are_found_as_soon_as_ranks_look_whatever_the_time_to_warn() {
    // A tree and a meeting, a meeting and chunks (with ranks that share processors), two ranks that exchange and go in chunks;
    // nobody tells everybody, and all have entered.
    type Call = fn(&Communicator) -> Result<(), Error>;
    let sum: Call = |comm| comm.all_reduce(&mut [1_u32], Sum);
    let broadcast: Call = |comm| comm.broadcast(&mut [1_u32], 0);
    let long: Call = |comm| comm.all_reduce(&mut vec![1_u32; 40_000], Sum);
    let (barrier, none): (Call, Call) = (Communicator::barrier, |comm| comm.all_reduce::<u32>(&mut [], Sum));
    let ways = [IN_TREES[4], ("wait.policy", "yield")];
    let calls = [
        (3, broadcast, sum),
        (3, sum, broadcast),
        (5, broadcast, sum),
        (2, long, sum),
        (2, sum, long),
        (3, long, sum),
        (3, sum, long),
        (3, barrier, long),
        (3, long, none),
        (5, barrier, long),
    ];
    for ((ranks, odd, usual), way) in calls.into_iter().flat_map(|call| ways.map(|way| (call, way))) {
        let set = [way, ("collectives.check_after", "100ms"), ("collectives.warn_after", "0s")];
        for rank in 0..ranks {
            let begun = std::time::Instant::now();
            on_ranks(ranks, &set, |comm| {
                let result = if comm.rank() == rank { odd(comm) } else { usual(comm) };
                assert!(matches!(result, Err(Error::Mismatch { .. })), "{result:?}");
            });
            assert!(begun.elapsed() < std::time::Duration::from_secs(10), "{:?}", begun.elapsed());
        }
    }
}

#[test]
fn a_rank_that_leaves_in_the_middle_of_a_tree_ends_the_wait_of_the_others() {
    struct Sums {
        fails: bool,
    }
    impl Op<u32> for Sums {
        fn combine(&self, left: u32, right: u32) -> u32 {
            assert!(!self.fails, "an operator that fails");
            left + right
        }
    }
    // The root, and one that leads a group.
    for gone in [0, 1] {
        on_ranks(32, &IN_TREES, |comm| {
            let fails = comm.rank() == gone;
            let sum = || comm.all_reduce(&mut [1_u32], Sums { fails });
            match std::panic::catch_unwind(std::panic::AssertUnwindSafe(sum)) {
                Err(_) => assert!(fails, "an operator failed that does not"),
                Ok(result) => assert!(!fails && result.is_err(), "{result:?}"),
            }
        });
    }
}

#[test]
fn elements_without_size_go_every_way() {
    for (ranks, waits) in [(2, "sleep"), (3, "auto"), (3, "sleep")] {
        on_ranks(ranks, &[("wait.policy", waits)], |comm| {
            comm.broadcast(&mut [[0_u8; 0]; 5], 0).unwrap();
            comm.barrier().unwrap();
        });
    }
}

#[test]
fn a_rank_that_leaves_without_coming_ends_the_wait_of_the_others() {
    for (length, waits) in [(1, "auto"), (60_000, "auto"), (1, "sleep")] {
        on_ranks(3, &[("wait.policy", waits)], |comm| {
            comm.barrier().unwrap();
            if comm.rank() > 0 {
                let error = comm.all_reduce(&mut vec![0_u8; length], Sum).unwrap_err().to_string();
                assert!(error.contains("all_reduce (shared)") && error.contains("rank 0"), "{error}");
            }
        });
    }
}

#[test]
fn ranks_that_may_not_share_memory_are_told_so_when_it_is_asked_for_and_send_messages_when_it_is_not() {
    on_ranks(2, &[("transport.allow", "tcp"), ("collectives.barrier", "shared")], |comm| {
        let text = comm.barrier().unwrap_err().to_string();
        assert!(text.contains("barrier = shared: all ranks must be on one host and may share memory"), "{text}");
        let mut data = [comm.rank()];
        comm.all_reduce(&mut data, Sum).unwrap();
        assert_eq!(data, [1]);
    });
}

/// The same in two hops whose inner one goes through memory; groups of these widths, `hosts` of them or on one.
const HOPS: [(&str, &str); 4] = [
    ("collectives.barrier", "two_hop_shared"),
    ("collectives.broadcast", "two_hop_shared"),
    ("collectives.reduce", "two_hop_shared"),
    ("collectives.all_reduce", "two_hop_shared"),
];

fn in_groups(ranks: usize, hosts: usize, set: &[(&str, &str)], run: impl Fn(&Communicator) + Send + Sync) {
    let cluster = Cluster::new(ranks).hosts(hosts);
    let cluster = set.iter().fold(cluster, |cluster, (key, value)| cluster.set(key, value));
    cluster.run(|world: &World| run(&world.communicator())).unwrap();
}

fn check_all(comm: &Communicator, lengths: &[usize]) {
    let ranks = comm.size();
    for call in 0..2 {
        for length in lengths.iter().copied() {
            let own: Vec<u64> = (0..length).map(|index| value(comm.rank(), index, call)).collect();
            let sums = || (0..length).map(|index| (0..ranks).map(|rank| value(rank, index, call)).sum::<u64>());
            let mut all = own.clone();
            comm.all_reduce(&mut all, Sum).unwrap();
            assert!(all.iter().copied().eq(sums()), "all_reduce of {length} on {ranks}");
            let root = (call + length) % ranks;
            let result = comm.reduce(&own, Sum, root).unwrap();
            assert_eq!(result.is_some(), comm.rank() == root);
            assert!(result.is_none_or(|result| result.into_iter().eq(sums())), "reduce of {length}");
            let mut data = if comm.rank() == root { own.clone() } else { vec![0; length] };
            comm.broadcast(&mut data, root).unwrap();
            let theirs = (0..length).map(|index| value(root, index, call));
            assert!(data.into_iter().eq(theirs), "broadcast of {length} from {root} of {ranks}");
            comm.barrier().unwrap();
        }
    }
}

#[test]
fn two_hops_through_memory_are_right_for_all_sizes_groups_and_leaders_again_and_again() {
    for (ranks, width) in [(3, "2"), (4, "2"), (5, "3"), (7, "3"), (9, "4")] {
        for (leaders, chunk) in [("1", "0"), ("2", "4000"), ("3", "64KiB")] {
            let set = [
                ("collectives.group_size", width),
                ("collectives.leaders", leaders),
                ("collectives.chunk_bytes", chunk),
            ];
            let set: Vec<_> = HOPS.into_iter().chain(set).collect();
            in_groups(ranks, 1, &set, |comm| check_all(comm, &[0, 1, 2, 7, 1000, 4097, 33_000]));
        }
    }
}

#[test]
fn two_hops_between_hosts_go_through_the_memory_of_each_without_being_asked_for() {
    for (ranks, hosts) in [(4, 2), (7, 3)] {
        in_groups(ranks, hosts, &HOPS, |comm| check_all(comm, &[0, 1, 1000, 40_000, 400_000]));
        in_groups(ranks, hosts, &[], |comm| check_all(comm, &[0, 1, 1000]));
    }
}

#[test]
fn on_hosts_in_racks_two_hops_through_memory_are_right_and_the_same_as_flat() {
    // Hosts of two or three ranks over sockets, racks of two hosts or of unequal size; three levels on one host.
    for (ranks, hosts, levels) in [(12, 6, "host,2"), (12, 6, "host,4"), (9, 3, "host,2"), (12, 1, "2,3")] {
        for (leaders, chunk) in [("1", "0"), ("2", "4000")] {
            let levels =
                [("collectives.groups", levels), ("collectives.leaders", leaders), ("collectives.chunk_bytes", chunk)];
            let set: Vec<_> = HOPS.into_iter().chain(levels).collect();
            in_groups(ranks, hosts, &set, |comm| {
                let groups = crate::tune::groups_and_memory(comm).unwrap();
                assert!(groups.above().is_some() && groups.share_memory());
                check_all(comm, &[0, 1, 1000, 33_000]);
            });
            // Sums that wrap around: the same bits as without groups, whatever the order.
            let sums = |set: &[(&str, &str)]| {
                let cluster = Cluster::new(ranks).hosts(hosts);
                let cluster = set.iter().fold(cluster, |cluster, (key, value)| cluster.set(key, value));
                let run = |world: &World| {
                    let comm = world.communicator();
                    let mut data: Vec<u32> = (0..20_001)
                        .map(|index| (value(comm.rank(), index, 3) as u32).wrapping_mul(0x9e37_79b1))
                        .collect();
                    comm.all_reduce(&mut data, custom(u32::wrapping_add)).unwrap();
                    data
                };
                cluster.run(run).unwrap()
            };
            let (in_racks, flat) = (sums(&set), sums(&[("collectives.all_reduce", "binomial")]));
            assert!(in_racks.iter().all(|found| *found == flat[0]), "{ranks} ranks on {hosts} hosts");
        }
    }
}

#[test]
fn ranks_nearest_to_devices_lead_two_hops_through_memory() {
    // Two hosts of four ranks; the third one of each is the nearest to a device.
    let device = |rank: usize| spmd::bootstrap::node::Chosen {
        name: "mlx5_0".into(),
        pci: String::new(),
        uuid: None,
        distance: "as the test says".into(),
        far: u32::from(rank % 4 != 2),
    };
    for leaders in ["1", "3"] {
        let cluster = Cluster::new(8).hosts(2).devices((0..8).map(|rank| Some(device(rank))));
        let set = HOPS.into_iter().chain([("collectives.leaders", leaders), ("collectives.chunk_bytes", "2KiB")]);
        let cluster = set.fold(cluster, |cluster, (key, value)| cluster.set(key, value));
        let sent = cluster.run(|world: &World| {
            let comm = world.communicator();
            let groups = crate::tune::groups(&comm);
            assert_eq!([0, 1].map(|group| groups.members(group)[groups.lead(group, 0)]), [2, 6]);
            check_all(&comm, &[0, 1, 1000, 4097]);
            comm.all_reduce(&mut vec![1_u64; 50_000], Sum).unwrap();
            // Bytes to the other host.
            let far = |peer: usize| peer / 4 != comm.rank() / 4;
            let peers = world.statistics().peers.into_iter().filter(|peer| far(peer.peer));
            peers.flat_map(|peer| peer.sent).map(|(_, tally)| tally.bytes).sum::<u64>()
        });
        let sent = sent.unwrap();
        let leads = |rank: &usize| sent[*rank] > 50_000;
        let expected: &[usize] = if leaders == "1" { &[2, 6] } else { &[0, 1, 2, 4, 5, 6] };
        assert_eq!((0..8).filter(leads).collect::<Vec<_>>(), expected, "{sent:?}");
    }
}

#[test]
fn two_hops_through_memory_apply_an_operator_in_rank_order_and_give_the_same_bits_everywhere_and_again() {
    // Affine maps x -> a1 x + a0 modulo 2^32, one after the other.
    let associative = |a: [u32; 2], b: [u32; 2]| [b[1].wrapping_mul(a[0]).wrapping_add(b[0]), a[1].wrapping_mul(b[1])];
    let value = |rank: usize, index: usize| [rank as u32 + index as u32, 2 * rank as u32 + 3];
    for (ranks, hosts, leaders) in [(5, 2, "1"), (6, 2, "3"), (7, 3, "2")] {
        let set: Vec<_> = HOPS.into_iter().chain([("collectives.leaders", leaders)]).collect();
        in_groups(ranks, hosts, &set, |comm| {
            for length in [1, 900, 50_000] {
                let own: Vec<[u32; 2]> = (0..length).map(|index| value(comm.rank(), index)).collect();
                let expected =
                    |index: usize| (1..ranks).fold(value(0, index), |left, rank| associative(left, value(rank, index)));
                let mut all = own.clone();
                comm.all_reduce(&mut all, custom(associative)).unwrap();
                assert!((0..length).all(|index| all[index] == expected(index)), "{ranks} ranks, {length}");
                let result = comm.reduce(&own, custom(associative), ranks - 2).unwrap();
                assert!(result.is_none_or(|result| (0..length).all(|index| result[index] == expected(index))));
            }
        });
        let run = || {
            let cluster =
                set.iter().fold(Cluster::new(ranks).hosts(hosts), |cluster, (key, value)| cluster.set(key, value));
            let results = cluster.run(|world: &World| {
                let comm = world.communicator();
                let mut data: Vec<f32> = (0..50_000).map(|index| 1.0 / (1 + comm.rank() * 77 + index) as f32).collect();
                comm.all_reduce(&mut data, Sum).unwrap();
                data.iter().map(|value| value.to_bits()).collect::<Vec<u32>>()
            });
            results.unwrap()
        };
        let (once, again) = (run(), run());
        assert!(once.iter().all(|bits| *bits == once[0]) && once == again, "{ranks} ranks");
    }
}

#[test]
fn calls_that_do_not_fit_together_are_an_error_on_all_ranks_of_all_groups() {
    // A rank that leads its group and one that does not; lengths of one chunk and of several.
    for (odd, lengths) in [(0, [4, 5]), (4, [4, 5]), (3, [4, 400_000]), (5, [400_000, 500_000])] {
        in_groups(6, 2, &[("collectives.check_after", "100ms")], |comm| {
            let length = lengths[usize::from(comm.rank() == odd)];
            let error = comm.all_reduce(&mut vec![1_u32; length], Sum).unwrap_err();
            assert!(matches!(error, Error::Mismatch { .. }), "{error}");
            let text = error.to_string();
            assert!(lengths.iter().all(|length| text.contains(&length.to_string())), "{text}");
            assert!(text.contains("two_hop_shared"), "{text}");
        });
    }
    in_groups(6, 2, &[("collectives.check_after", "100ms")], |comm| {
        let result = match comm.rank() {
            4 => comm.barrier(),
            _ => comm.all_reduce(&mut [1_u32], Sum),
        };
        let error = result.unwrap_err();
        assert!(matches!(error, Error::Mismatch { .. }), "{error}");
    });
}

#[test]
fn a_rank_that_leaves_without_coming_ends_the_wait_of_the_others_on_all_hosts() {
    for (leaves, length) in [(0, 1), (4, 1), (3, 600_000), (1, 600_000)] {
        in_groups(6, 2, &[], |comm| {
            comm.barrier().unwrap();
            if comm.rank() != leaves {
                let error = comm.all_reduce(&mut vec![0_u8; length], Sum).unwrap_err().to_string();
                assert!(error.contains("all_reduce (two_hop_shared)"), "{error}");
            }
        });
    }
}

#[test]
fn groups_whose_ranks_share_no_memory_are_told_so_when_it_is_asked_for_and_send_messages_when_it_is_not() {
    let apart =
        [("transport.allow", "tcp"), ("collectives.barrier", "two_hop_shared"), ("collectives.group_size", "2")];
    in_groups(4, 2, &apart, |comm| {
        let text = comm.barrier().unwrap_err().to_string();
        let why = "barrier = two_hop_shared: the ranks of each group must be on one host and may share memory";
        assert!(text.contains(why), "{text}");
        let mut data = [comm.rank()];
        comm.all_reduce(&mut data, Sum).unwrap();
        assert_eq!(data, [6]);
    });
    // Groups across hosts.
    let across = [("collectives.group_size", "3"), ("collectives.all_reduce", "two_hop_shared")];
    in_groups(4, 2, &across, |comm| {
        let text = comm.all_reduce(&mut [1], Sum).unwrap_err().to_string();
        assert!(text.contains("must be on one host"), "{text}");
        comm.barrier().unwrap();
    });
    // One level only.
    in_groups(4, 1, &[("collectives.all_reduce", "two_hop_shared")], |comm| {
        let text = comm.all_reduce(&mut [1], Sum).unwrap_err().to_string();
        assert!(text.contains("there must be several groups"), "{text}");
    });
}
