//! Top-k with error feedback: nothing is lost, all ranks agree to the last bit, and what would be larger as a list goes whole.

#![allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "ranks and lengths of tests are small")]

use spmd::bootstrap::node::Chosen;
use spmd::local::Cluster;
use spmd_collectives::Error;
use spmd_collectives::compress::{Compressed, TopK, Traffic};
use spmd_collectives::prelude::*;

/// What a rank contributes in a step: a few large entries, at other places each time, among many small ones of both signs.
fn gradient(rank: usize, step: usize, length: usize) -> Vec<i64> {
    let mut state = (rank * 1_000 + step) as u64 ^ 0x9e37_79b9_7f4a_7c15;
    let next = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let small = (state >> 40) as i64 % 100 - 50;
        if state >> 33 & 0x3f == 0 { small * 1_000 } else { small }
    };
    (0..length).map(next).collect()
}

#[test]
fn what_was_sent_and_what_remains_is_the_gradient_exactly() {
    for (transport, faults) in [("shm", "0"), ("tcp", "0"), ("shm", "5")] {
        for (size, width) in [(1, 1), (2, 1), (4, 2), (7, 3), (9, 4), (6, 6)] {
            for (length, keep, reuse) in [(0, 0.1, 1), (1, 0.5, 1), (997, 0.01, 1), (997, 0.03, 4), (2000, 0.9, 2)] {
                let results = Cluster::new(size)
                    .set("transport.allow", transport)
                    .set("faulty.seed", faults)
                    .set("collectives.group_size", &width.to_string())
                    .run(|world| {
                        let comm = world.communicator();
                        let mut sum = Compressed::new(&comm, length, TopK { keep, reuse }).unwrap();
                        let mut sent = vec![0i64; length];
                        for step in 0..6 {
                            let mut data = gradient(comm.rank(), step, length);
                            sum.all_reduce(&mut data).unwrap();
                            sent.iter_mut().zip(data).for_each(|(sent, data)| *sent += data);
                        }
                        (sent, sum.residual().to_vec())
                    })
                    .unwrap();
                let mut whole = vec![0i64; length];
                for (rank, step) in (0..size).flat_map(|rank| (0..6).map(move |step| (rank, step))) {
                    whole.iter_mut().zip(gradient(rank, step, length)).for_each(|(sum, data)| *sum += data);
                }
                let mut left = whole;
                for (rank, (sent, residual)) in results.iter().enumerate() {
                    assert_eq!(*sent, results[0].0, "rank {rank} of {size}");
                    left.iter_mut().zip(residual).for_each(|(left, kept)| *left -= kept);
                }
                assert_eq!(left, results[0].0, "{size} ranks in groups of {width}, {length} elements, {keep}");
            }
        }
    }
}

#[test]
fn ranks_nearest_to_devices_send_for_their_groups() {
    let device = |rank: usize| Chosen {
        name: "mlx5_0".into(),
        pci: String::new(),
        uuid: None,
        distance: "as the test says".into(),
        far: u32::from(rank % 3 != 1),
    };
    let devices = (0..6).map(|rank| Some(device(rank)));
    let found = Cluster::new(6).hosts(2).devices(devices).run(|world| {
        let comm = world.communicator();
        let mut sum = Compressed::new(&comm, 1000, TopK { keep: 0.1, reuse: 1 }).unwrap();
        let mut data = gradient(comm.rank(), 0, 1000);
        sum.all_reduce(&mut data).unwrap();
        (data, sum.residual().to_vec(), sum.traffic().sparse_steps)
    });
    let found = found.unwrap();
    assert_eq!(found.iter().map(|(_, _, steps)| *steps).collect::<Vec<_>>(), [0, 1, 0, 0, 1, 0]);
    let mut left: Vec<i64> = (0..1000).map(|index| (0..6).map(|rank| gradient(rank, 0, 1000)[index]).sum()).collect();
    for (data, residual, _) in &found {
        assert_eq!(*data, found[0].0);
        left.iter_mut().zip(residual).for_each(|(left, kept)| *left -= kept);
    }
    assert_eq!(left, found[0].0);
}

#[test]
fn only_the_share_that_was_asked_for_goes_between_groups() {
    let length = 10_000;
    let traffic = Cluster::new(6)
        .set("collectives.group_size", "2")
        .run(|world| {
            let comm = world.communicator();
            let mut sum = Compressed::new(&comm, length, TopK { keep: 0.01, reuse: 4 }).unwrap();
            for step in 0..20 {
                sum.all_reduce(&mut gradient(comm.rank(), step, length)).unwrap();
            }
            sum.traffic()
        })
        .unwrap();
    for (rank, traffic) in traffic.into_iter().enumerate() {
        if rank % 2 == 1 {
            assert_eq!(traffic, Traffic::default(), "rank {rank} does not lead");
            continue;
        }
        assert_eq!((traffic.sparse_steps, traffic.dense_steps), (20, 0));
        // 12 bytes an entry; a reused threshold lets through twice as many at most.
        let entries = traffic.bytes / 12 / 20;
        assert!((50..=200).contains(&entries), "rank {rank} sends {entries} of {length} entries a step");
    }
}

#[test]
fn what_would_be_larger_as_a_list_goes_whole_and_leaves_nothing_behind() {
    Cluster::new(4)
        .set("collectives.group_size", "2")
        .run(|world| {
            let comm = world.communicator();
            let mut sum = Compressed::new(&comm, 300, TopK { keep: 0.9, reuse: 1 }).unwrap();
            let mut data = vec![comm.rank() as i32 + 1; 300];
            sum.all_reduce(&mut data).unwrap();
            assert_eq!(data, [10; 300]);
            assert!(sum.residual().iter().all(|kept| *kept == 0));
            if comm.rank() % 2 == 0 {
                assert_eq!(sum.traffic(), Traffic { sparse_steps: 0, dense_steps: 1, bytes: 1200 });
            }
        })
        .unwrap();
}

#[test]
fn floats_have_the_same_bits_on_all_ranks_and_a_nan_is_not_kept_back() {
    let bits = Cluster::new(6)
        .set("collectives.group_size", "2")
        .run(|world| {
            let comm = world.communicator();
            let mut sum = Compressed::new(&comm, 500, TopK { keep: 0.05, reuse: 3 }).unwrap();
            let mut bits = Vec::new();
            for step in 0..9 {
                let mut data: Vec<f32> =
                    gradient(comm.rank(), step, 500).into_iter().map(|value| value as f32 / 7.0).collect();
                if (comm.rank(), step) == (3, 8) {
                    data[77] = f32::NAN;
                }
                sum.all_reduce(&mut data).unwrap();
                bits.extend(data.into_iter().map(f32::to_bits));
            }
            bits
        })
        .unwrap();
    assert!(bits.iter().all(|rank| *rank == bits[0]));
    assert!(f32::from_bits(bits[0][8 * 500 + 77]).is_nan());
}

#[test]
fn wrong_shares_and_lengths_are_errors() {
    spmd::local::run(2, |world| {
        let comm = world.communicator();
        let error = Compressed::<f32>::new(&comm, 10, TopK { keep: 1.5, reuse: 1 }).unwrap_err();
        assert!(error.to_string().contains("the share to keep is 1.5"), "{error}");
        let mut sum = Compressed::new(&comm, 10, TopK::default()).unwrap();
        let error = sum.all_reduce(&mut [1.0f64; 9]).unwrap_err();
        assert!(matches!(error, Error::Length { expected: 10, given: 9, .. }), "{error}");
        comm.barrier().unwrap();
    });
}
