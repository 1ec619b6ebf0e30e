//! Every algorithm is proved by the checker for all small numbers of ranks.

use spmd_collectives::algorithms::{Algorithm, Collective, Restriction};
use spmd_collectives::check;
use spmd_collectives::groups::Groups;

/// Element counts around the borders where blocks become empty or uneven.
fn counts(size: usize) -> Vec<usize> {
    let mut counts = vec![0, 1, size.saturating_sub(1), size, size + 1, 2 * size + 3];
    counts.sort_unstable();
    counts.dedup();
    counts
}

/// Proves the algorithms of a collective that are made for such groups: those in two hops where there are two levels,
/// the others where there is one.
fn prove(collective: Collective, groups: &Groups, counts: &[usize], leaders: usize) {
    let size = groups.size();
    let in_two_hops = |algorithm: &&Algorithm| algorithm.restrictions.contains(&Restriction::TwoLevels);
    let meant = |algorithm: &&Algorithm| in_two_hops(algorithm) == groups.are_two_levels();
    let legal = |algorithm: &&Algorithm| algorithm.forbidden(groups, true).is_none();
    for algorithm in collective.algorithms().iter().filter(meant).filter(legal) {
        let roots = if collective.is_rooted() { size } else { 1 };
        for root in 0..roots {
            for &elements in counts {
                let proof = check::algorithm(collective, algorithm, groups, elements, root, 2, leaders);
                let name = algorithm.name;
                assert!(
                    proof.is_ok(),
                    "{collective} {name}, {groups:?}, {leaders} leaders, {elements} elements, root {root}: {}",
                    proof.unwrap_err()
                );
            }
        }
    }
}

macro_rules! proved_up_to_17_ranks {
    ($($name:ident: $collective:ident;)*) => {$(
        #[test]
        fn $name() {
            for size in 1..=17 {
                prove(Collective::$collective, &Groups::apart(size), &counts(size), 1);
            }
        }
    )*};
}

proved_up_to_17_ranks! {
    barrier_is_proved_for_1_to_17_ranks: Barrier;
    broadcast_is_proved_for_1_to_17_ranks_and_all_roots: Broadcast;
    reduce_is_proved_for_1_to_17_ranks_and_all_roots: Reduce;
    all_reduce_is_proved_for_1_to_17_ranks: AllReduce;
    gather_is_proved_for_1_to_17_ranks_and_all_roots: Gather;
    all_gather_is_proved_for_1_to_17_ranks: AllGather;
    scatter_is_proved_for_1_to_17_ranks_and_all_roots: Scatter;
    all_to_all_is_proved_for_1_to_17_ranks: AllToAll;
}

/// Divisions of `size` ranks: runs of equal and of unequal length, and ranks dealt out in turn.
fn divisions(size: usize) -> Vec<Groups> {
    let mut divisions: Vec<Groups> = [2, 3, 4, 8].map(|width| Groups::every(size, width)).into();
    divisions.push(Groups::by_label((0..size).map(|rank| rank % 3)));
    divisions.push(Groups::by_label((0..size).map(|rank| usize::from(rank > 0))));
    divisions.retain(Groups::are_two_levels);
    divisions
}

#[test]
fn two_hops_are_proved_for_groups_of_all_kinds_and_several_leaders() {
    for collective in Collective::ALL {
        for groups in (2..=13).flat_map(divisions) {
            for leaders in if collective == Collective::AllReduce { 1..=3 } else { 1..=1 } {
                prove(collective, &groups, &[0, 1, 7], leaders);
            }
        }
    }
}

#[test]
fn two_hops_are_proved_for_96_ranks_on_12_hosts() {
    for collective in [Collective::Barrier, Collective::AllReduce] {
        prove(collective, &Groups::every(96, 8), &[9], 2);
    }
}

#[test]
fn all_reduce_and_barrier_are_proved_for_18_to_64_ranks() {
    for size in 18..=64 {
        prove(Collective::AllReduce, &Groups::apart(size), &[size + 1], 1);
        prove(Collective::Barrier, &Groups::apart(size), &[0], 1);
    }
}

#[test]
fn the_others_are_proved_for_every_third_size_from_18_to_64_ranks_and_one_element() {
    for collective in [Collective::AllGather, Collective::AllToAll] {
        for size in (19..=64).step_by(3) {
            prove(collective, &Groups::apart(size), &[1], 1);
        }
    }
}
