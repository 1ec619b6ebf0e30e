//! The low-latency size hint: agreed upon, kept, inherited, visible; and messages arrive in order whatever it says.

use spmd::{Communicator, Error, HintApplies, World, local::Cluster};

/// Ranks of one host over shared memory, and the same ranks each on a host of its own over TCP.
fn clusters(ranks: usize) -> [Cluster; 2] {
    [Cluster::new(ranks), Cluster::new(ranks).hosts(ranks)]
}

fn everywhere(ranks: usize, program: impl Fn(&World) + Sync) {
    for cluster in clusters(ranks) {
        cluster.run(&program).unwrap();
    }
}

#[test]
fn a_fresh_communicator_takes_a_hint_at_once() {
    everywhere(3, |world| {
        let comm = world.communicator();
        assert_eq!(comm.low_latency_size_hint().requested, 0);
        assert_eq!(comm.set_low_latency_size_hint(16384).unwrap(), HintApplies::Now);
        let hint = comm.low_latency_size_hint();
        assert_eq!((hint.requested, hint.source.as_str()), (16384, "set_low_latency_size_hint"));
        assert_eq!(world.communicator().low_latency_size_hint(), hint, "clones are the same communicator");
        // Again: to agree is not to use.
        assert_eq!(comm.set_low_latency_size_hint(0).unwrap(), HintApplies::Now);
    });
}

#[test]
fn a_communicator_that_any_rank_has_used_keeps_its_hint_and_its_children_get_the_new_one() {
    everywhere(3, |world| {
        let comm = world.communicator();
        if comm.rank() == 1 {
            comm.send(&[1_u8], 2, 0).unwrap();
        }
        assert_eq!(comm.set_low_latency_size_hint(4096).unwrap(), HintApplies::ToNewCommunicators);
        assert_eq!(comm.low_latency_size_hint().requested, 0);
        let half = comm.split(Some(u32::try_from(comm.rank() % 2).unwrap()), 0).unwrap().unwrap();
        for child in [comm.duplicate().unwrap(), half] {
            assert_eq!(child.low_latency_size_hint().requested, 4096);
        }
        if comm.rank() == 2 {
            comm.recv(&mut [0_u8], 1, 0).unwrap();
        }
    });
}

#[test]
fn ranks_that_disagree_get_the_error_on_all_of_them_and_nothing_changes() {
    everywhere(3, |world| {
        let comm = world.communicator();
        let mine = if comm.rank() == 2 { 8192 } else { 4096 };
        let error = comm.set_low_latency_size_hint(mine).unwrap_err();
        assert!(matches!(error, Error::Disagreement { rank: 2, value: 8192, first: 4096, .. }), "{error}");
        assert_eq!(comm.low_latency_size_hint().requested, 0);
        let error = comm.set_low_latency_size_hint(u64::MAX).unwrap_err();
        assert!(error.to_string().contains("low_latency.size_hint"), "{error}");
    });
}

#[test]
fn the_configurations_hint_is_the_worlds_and_what_it_comes_to_is_said_for_each_transport() {
    for (hint, shm) in [("4KiB", 0), ("16KiB", 16384), ("1MiB", 32768)] {
        let cluster = Cluster::new(4).hosts(2).set("shm.ring_bytes", "256KiB").set("low_latency.size_hint", hint);
        let hints = cluster.run(World::low_latency_size_hint).unwrap();
        for hint in hints {
            assert_eq!(hint.source, "command line --set");
            let on = |name: &str| hint.transports.iter().find(|on| on.transport == name).unwrap().effective;
            assert_eq!(on("shm"), shm, "{hint}");
            assert_eq!(hint.effective(), on("shm").min(on("tcp")));
        }
    }
}

/// Sizes around every limit, small and large mixed, so that each neighbour takes another path.
fn sizes() -> Vec<usize> {
    let limits = [0, 32, 4096, 8192, 16384, 32768, 65536];
    let around = limits.into_iter().flat_map(|limit: usize| [limit.saturating_sub(1), limit, limit + 1]);
    let mut sizes: Vec<usize> = around.chain([200_000, 1]).collect();
    // A fixed shuffle: 7 and the count have no common factor.
    let count = sizes.len();
    sizes = (0..count).map(|at| sizes[at * 7 % count]).collect();
    sizes
}

fn exchange_in_order(comm: &Communicator) {
    let (me, size) = (comm.rank(), comm.size());
    let sizes = sizes();
    let byte = |from: usize, at: usize| u8::try_from((from * 31 + at) % 251).unwrap();
    let requests: Vec<_> = sizes
        .iter()
        .enumerate()
        .map(|(at, bytes)| comm.isend(vec![byte(me, at); *bytes], (me + 1) % size, 5).unwrap())
        .collect();
    let from = (me + size - 1) % size;
    for (at, bytes) in sizes.iter().enumerate() {
        let (data, _) = comm.recv_vec::<u8>(from, 5).unwrap();
        assert_eq!(data.len(), *bytes, "message {at}");
        assert!(data.iter().all(|found| *found == byte(from, at)), "message {at} of {bytes} bytes");
    }
    requests.into_iter().for_each(|request| drop(request.wait().unwrap()));
}

#[test]
fn messages_of_one_source_stay_in_order_across_every_path_under_every_hint() {
    for hint in ["0", "1", "4KiB", "8KiB", "16KiB", "64KiB", "1MiB"] {
        for cluster in clusters(3) {
            cluster.set("low_latency.size_hint", hint).run(|world| exchange_in_order(&world.communicator())).unwrap();
        }
    }
}

#[test]
fn communicators_with_different_hints_work_side_by_side() {
    everywhere(2, |world| {
        let comm = world.communicator();
        let other = comm.duplicate().unwrap();
        let _ = other.set_low_latency_size_hint(32768).unwrap();
        for _ in 0..3 {
            exchange_in_order(&comm);
            exchange_in_order(&other);
        }
    });
}

#[test]
fn an_explanation_covers_every_peer_once_and_groups_those_that_are_reached_alike() {
    let explanations = Cluster::new(6).hosts(2).run(World::explain).unwrap();
    for (rank, explanation) in explanations.iter().enumerate() {
        let mut peers: Vec<usize> = explanation.peers.iter().flat_map(|peers| peers.ranks.clone()).collect();
        peers.sort_unstable();
        assert_eq!(peers, [0, 1, 2, 3, 4, 5]);
        let of = |peer| explanation.peers.iter().find(|peers| peers.ranks.contains(&peer)).unwrap().transport;
        assert_eq!(of(rank), "loopback");
        assert_eq!(of((rank + 3) % 6), "tcp");
        assert_eq!(explanation.peers.len(), 3, "{explanation}");
    }
}
