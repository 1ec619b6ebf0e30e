//! Every collective by every algorithm gives what a loop over all ranks gives, on every transport, with and without faults; the
//! bits of floats are the same on all ranks and whatever the transport does.
//!
//! The short form is part of the ordinary tests. The long form, of 1 to 17 ranks, which uses all processors there are:
//!
//!     cargo test --release -p spmd-collectives --test exhaustive -- --nocapture --ignored every
//!
//! With processes as ranks, where `PROGRAM` is the program that cargo names for `--no-run`:
//!
//!     rsrun -n 5 --set transport.allow=shm PROGRAM --ignored --exact as_a_rank_of_a_job

mod bodies;

use bodies::every_collective;
use spmd::World;
use spmd::local::Cluster;
use spmd_collectives::algorithms::{Algorithm, Collective, Restriction};
use spmd_collectives::groups::{Groups, Link};
use std::sync::Mutex;
use std::time::Instant;

/// Transport, and seed of faults (0: none).
const WAYS: [(&str, &str); 4] = [("shm", "0"), ("tcp", "0"), ("shm", "3"), ("tcp", "4")];

/// The collectives that ranks of one host also do in the memory that they share, and the name of that way.
const IN_MEMORY: [Collective; 4] =
    [Collective::Barrier, Collective::Broadcast, Collective::Reduce, Collective::AllReduce];
const SHARED: &str = "shared";

/// The legal algorithm number `turn` of a collective, counted round; of those in two hops where there are two levels.
fn turn(collective: Collective, groups: &Groups, turn: usize) -> &'static Algorithm {
    let legal = meant_for(collective, groups);
    legal[turn % legal.len()]
}

fn meant_for(collective: Collective, groups: &Groups) -> Vec<&'static Algorithm> {
    let mut legal: Vec<&Algorithm> =
        collective.algorithms().iter().filter(|algorithm| algorithm.forbidden(groups, true).is_none()).collect();
    let in_two_hops = |algorithm: &&Algorithm| algorithm.restrictions.contains(&Restriction::TwoLevels);
    if legal.iter().any(in_two_hops) {
        legal.retain(in_two_hops);
    }
    legal
}

/// As many turns as the collective with the most algorithms needs, and one in shared memory.
fn turns(groups: &Groups) -> usize {
    let counts = Collective::ALL.into_iter().map(|collective| meant_for(collective, groups).len());
    counts.max().unwrap_or(1).max(if groups.are_two_levels() { 2 } else { 1 }) + 1
}

/// Whether a turn is that in shared memory, which is the last.
fn in_memory(groups: &Groups, now: usize) -> bool {
    now + 1 == turns(groups)
}

/// The ways for a turn: ranks that only talk over TCP share no memory.
fn ways(groups: &Groups, now: usize) -> Vec<(&'static str, &'static str)> {
    WAYS.into_iter().filter(|(transport, _)| !in_memory(groups, now) || *transport == "shm").collect()
}

/// How a collective is done in a turn.
fn name(collective: Collective, groups: &Groups, now: usize) -> &'static str {
    match in_memory(groups, now) && IN_MEMORY.contains(&collective) {
        true => SHARED,
        false => turn(collective, groups, now).name,
    }
}

/// Every collective once, each by its algorithm number `now`; what the floats came to on each rank.
fn once(
    (transport, faults): (&str, &str),
    groups: &Groups,
    now: usize,
    lengths: &[usize],
    roots: &[usize],
) -> Vec<u64> {
    let size = groups.size();
    let mut cluster = Cluster::new(size)
        .set("transport.allow", transport)
        .set("faulty.seed", faults)
        .set("collectives.leaders", &(1 + now % 2).to_string());
    if groups.above().is_some() {
        let widths: Vec<String> = groups.levels().map(|level| level.widths().1.to_string()).collect();
        // Several chunks in every other turn.
        let chunk = if now.is_multiple_of(2) { "0" } else { "4096" };
        cluster = cluster.set("collectives.groups", &widths.join(",")).set("collectives.chunk_bytes", chunk);
    } else {
        cluster = cluster.set("collectives.group_size", &groups.widths().1.to_string());
    }
    for collective in Collective::ALL {
        cluster = cluster.set(&format!("collectives.{collective}"), name(collective, groups, now));
    }
    let keeps_order =
        |collective| name(collective, groups, now) == SHARED || turn(collective, groups, now).keeps_rank_order(groups);
    let bits = cluster.run(|world| every_collective(&world.communicator(), lengths, roots, keeps_order)).unwrap();
    let names: Vec<&str> = Collective::ALL.into_iter().map(|collective| name(collective, groups, now)).collect();
    for (rank, [_, everywhere]) in bits.iter().enumerate() {
        assert_eq!(*everywhere, bits[0][1], "{size} ranks over {transport}, {names:?}: other bits on rank {rank}");
    }
    bits.into_iter().flatten().collect()
}

/// All ranks in one group, and for some numbers of ranks groups of three, and pairs in larger groups of two.
fn divisions(size: usize) -> Vec<Groups> {
    let mut divisions = vec![Groups::together(size)];
    if [4, 5, 8, 13, 17].contains(&size) {
        divisions.push(Groups::every(size, 3));
        divisions.extend((size > 4).then(|| nested(size, 2, 2)));
    }
    divisions
}

/// Numbers that look drawn, the same in every run.
fn drawn(size: usize, now: usize, below: usize) -> usize {
    let mixed = (size as u64 * 1_000_003 + now as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    usize::try_from(mixed >> 33).unwrap_or(0) % below
}

#[test]
fn every_algorithm_gives_the_reference_s_result_on_a_few_ranks_and_transports_in_turn() {
    for size in [1, 2, 3, 4, 5, 8] {
        for groups in divisions(size) {
            for now in 0..turns(&groups) {
                let lengths = [0, 1, size - 1, size + 1, 1025];
                let ways = ways(&groups, now);
                once(ways[(size + now) % ways.len()], &groups, now, &lengths, &[0, size - 1]);
            }
        }
    }
}

/// Groups of `inner` ranks, in larger ones of `outer` groups.
fn nested(size: usize, inner: usize, outer: usize) -> Groups {
    Groups::every(size, inner).within((0..size).map(|rank| rank / (inner * outer)), Link::Between).unwrap()
}

#[test]
fn three_levels_give_the_reference_s_result_on_a_few_ranks_and_transports_in_turn() {
    for (turn, groups) in [nested(5, 2, 2), nested(8, 2, 2), nested(13, 2, 3), nested(12, 4, 2)].into_iter().enumerate()
    {
        for now in 0..turns(&groups) - 1 {
            let size = groups.size();
            let ways = ways(&groups, now);
            // The longest is enough for a share each.
            once(ways[(turn + now) % ways.len()], &groups, now, &[0, 1, size + 1, 3 * 1024 + 5], &[0, size - 1]);
        }
    }
}

/// All of it; what is printed tells how far it is.
#[test]
#[ignore = "takes minutes: 1 to 17 ranks on every transport"]
fn every_algorithm_gives_the_reference_s_result_on_1_to_17_ranks_and_every_transport() {
    let begun = Instant::now();
    let mut turns: Vec<(Groups, usize)> = (1..=17)
        .flat_map(divisions)
        .flat_map(|groups| (0..turns(&groups)).map(move |now| (groups.clone(), now)))
        .collect();
    let all = turns.len();
    let side_by_side = std::thread::available_parallelism().map_or(1, |cores| cores.get().div_ceil(2));
    eprintln!("{all} turns, {side_by_side} at once, those of many ranks first");
    turns.sort_by_key(|(groups, _)| groups.size());
    let left = Mutex::new(turns);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..side_by_side)
            .map(|_| {
                scope.spawn(|| {
                    loop {
                        let Some((groups, now)) = left.lock().unwrap().pop() else { break };
                        by_every_way(&groups, now);
                        let (left, passed) = (left.lock().unwrap().len(), begun.elapsed().as_secs_f64());
                        eprintln!("turn {now} of {} ranks: done after {passed:.0} s, {left} left", groups.size());
                    }
                })
            })
            .collect();
        workers.into_iter().for_each(|worker| worker.join().expect("every turn is right"));
    });
}

/// Whatever the transport and its faults, the same algorithm gives the same bits.
fn by_every_way(groups: &Groups, now: usize) {
    let size = groups.size();
    let mut lengths = bodies::lengths(size);
    lengths.push(drawn(size, now, 3000));
    let mut first = None;
    for way in ways(groups, now) {
        let found = once(way, groups, now, &lengths, &[0, size / 2, size - 1]);
        let first = first.get_or_insert_with(|| found.clone());
        assert_eq!(*first, found, "{size} ranks, turn {now}: other bits over {way:?}");
    }
}

/// Under `rsrun`: every collective, by the algorithms that the job's settings choose. Alone it is a world of one rank.
#[test]
#[ignore = "for rsrun: see the top of the file"]
fn as_a_rank_of_a_job() {
    let world = World::init().unwrap();
    let comm = world.communicator();
    let size = comm.size();
    // The choice for an operator that needs rank order is another than for one that does not: always right.
    every_collective(&comm, &bodies::lengths(size), &[0, size / 2, size - 1], |_| true);
}
