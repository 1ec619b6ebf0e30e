//! Collectives beside other things: groups split off, messages between, threads, hosts; and what barriers promise. That every
//! algorithm gives the right result is in `exhaustive.rs`.

#![allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "ranks and lengths of tests are small")]

mod bodies;

use bodies::*;
use spmd::bootstrap::node::Chosen;
use spmd::local::Cluster;
use spmd_collectives::algorithms::Collective;
use spmd_collectives::groups::Groups;
use spmd_collectives::prelude::*;

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

#[test]
fn what_is_done_in_place_is_what_is_done_into_another_buffer() {
    for size in [1, 2, 3, 5] {
        spmd::local::run(size, |world| {
            let comm = world.communicator();
            let (rank, last) = (comm.rank(), size - 1);
            for length in [0, 1, 2000] {
                let (data, wide) = (integers(rank, length), integers(rank, length * size));
                let mut buffer = data.clone();
                comm.reduce_in_place(&mut buffer, Sum, last).unwrap();
                assert_eq!(buffer, comm.reduce(&data, Sum, last).unwrap().unwrap_or(data.clone()));
                let mut buffer = vec![-1; length * size];
                buffer[rank * length..][..length].copy_from_slice(&data);
                comm.all_gather_in_place(&mut buffer).unwrap();
                assert_eq!(buffer, comm.all_gather(&data).unwrap());
                let mut buffer = wide.clone();
                comm.all_to_all_in_place(&mut buffer).unwrap();
                assert_eq!(buffer, comm.all_to_all(&wide).unwrap());
                let mut buffer = wide.clone();
                comm.reduce_scatter_in_place(&mut buffer, Max).unwrap();
                assert_eq!(buffer[..length], comm.reduce_scatter(&wide, Max).unwrap());
                assert_eq!(buffer[length..], wide[length..]);
                let mut buffer = data.clone();
                comm.exscan_in_place(&mut buffer, Sum).unwrap();
                assert_eq!(buffer, comm.exscan(&data, Sum).unwrap().unwrap_or(data));
            }
        });
    }
}

#[test]
fn on_hosts_in_racks_all_is_right_also_in_rank_order() {
    // Six hosts of two ranks, two of them a rack, over TCP; racks of unequal size the second time.
    for levels in ["host,2", "host,4"] {
        let cluster = Cluster::new(12)
            .hosts(6)
            .set("collectives.groups", levels)
            .set("collectives.chunk_bytes", "2KiB")
            .set("collectives.barrier", "two_hop")
            .set("collectives.broadcast", "two_hop")
            .set("collectives.reduce", "two_hop")
            .set("collectives.all_reduce", "two_hop");
        let keeps_order = |collective| matches!(collective, Collective::Reduce | Collective::AllReduce);
        cluster.run(|world| every_collective(&world.communicator(), &[0, 1, 1025], &[0, 7], keeps_order)).unwrap();
    }
}

#[test]
fn ranks_nearest_to_devices_lead_and_all_ranks_agree_who_they_are() {
    // Two hosts of four ranks, each with two devices; the first rank of each host is far from any.
    let device = |rank: usize| Chosen {
        name: format!("mlx5_{}", rank % 4 / 2),
        pci: String::new(),
        uuid: None,
        distance: "as the test says".into(),
        far: u32::from(rank.is_multiple_of(4)),
    };
    for leaders in ["1", "2"] {
        let cluster = Cluster::new(8)
            .hosts(2)
            .devices((0..8).map(|rank| Some(device(rank))))
            .set("collectives.leaders", leaders)
            .set("collectives.chunk_bytes", "2KiB")
            .set("collectives.barrier", "two_hop")
            .set("collectives.broadcast", "two_hop")
            .set("collectives.reduce", "two_hop")
            .set("collectives.all_reduce", "two_hop");
        let keeps_order = |collective| matches!(collective, Collective::Reduce | Collective::AllReduce);
        let found = cluster.run(|world| {
            let comm = world.communicator();
            every_collective(&comm, &[0, 1, 1025], &[0, 6], keeps_order);
            let groups = spmd_collectives::tune::groups(&comm);
            [0, 1].map(|group| [0, 1, 2, 3].map(|turn| groups.members(group)[groups.lead(group, turn)]))
        });
        assert!(found.unwrap().iter().all(|found| *found == [[1, 2, 3, 0], [5, 6, 7, 4]]));
    }
}
