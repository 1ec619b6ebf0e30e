//! Every algorithm is proved by the checker for all small numbers of ranks.

use spmd_collectives::algorithms::varied::{self, Cuts};
use spmd_collectives::algorithms::{Algorithm, Collective, Parameters, Restriction};
use spmd_collectives::check::{self, Task};
use spmd_collectives::compose::{Builder, Group};
use spmd_collectives::groups::{Groups, Link};
use spmd_collectives::schedule::Schedule;

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
    let roots = if collective.is_rooted() { groups.size() } else { 1 };
    prove_at(collective, groups, counts, leaders, 0..roots);
}

/// The same for these roots.
fn prove_at(
    collective: Collective,
    groups: &Groups,
    counts: &[usize],
    leaders: usize,
    roots: impl IntoIterator<Item = usize> + Clone,
) {
    // Small pieces, and chunks of several, the last of them shorter.
    let parameters = Parameters { segment: 2, chunk: 5, leaders, fan_in: usize::MAX };
    let in_two_hops = |algorithm: &&Algorithm| algorithm.restrictions.contains(&Restriction::TwoLevels);
    let meant = |algorithm: &&Algorithm| in_two_hops(algorithm) == groups.are_two_levels();
    let legal = |algorithm: &&Algorithm| algorithm.forbidden(groups, true).is_none();
    for algorithm in collective.algorithms().iter().filter(meant).filter(legal) {
        for root in roots.clone() {
            for &elements in counts {
                let proof = check::algorithm(collective, algorithm, groups, elements, root, parameters);
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
    reduce_scatter_is_proved_for_1_to_17_ranks: ReduceScatter;
    scan_is_proved_for_1_to_17_ranks: Scan;
    exscan_is_proved_for_1_to_17_ranks: Exscan;
}

/// An order in which members lead that is not theirs.
fn leading(members: &[usize]) -> Vec<usize> {
    let size = members.len();
    (0..size).map(|member| if member + 1 == size { 0 } else { 1 + (member + size / 2) % size }).collect()
}

/// Divisions of `size` ranks: runs of equal and of unequal length, and ranks dealt out in turn.
fn divisions(size: usize) -> Vec<Groups> {
    let mut divisions: Vec<Groups> = [2, 3, 4, 8].map(|width| Groups::every(size, width)).into();
    divisions.push(Groups::by_label((0..size).map(|rank| rank % 3)));
    divisions.push(Groups::by_label((0..size).map(|rank| usize::from(rank > 0))));
    // The last member leads, and then the others from the middle on.
    let led = divisions.iter().map(|groups| groups.clone().led_by(leading)).collect::<Vec<_>>();
    divisions.extend(led);
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

/// Groups of `inner` neighbours, and `outer` of these in each larger one.
fn nested(size: usize, inner: usize, outer: usize) -> Groups {
    Groups::every(size, inner).within((0..size).map(|rank| rank / (inner * outer)), Link::Between).unwrap()
}

/// Groups of groups: runs of equal and of unequal length, groups of one, three levels of them, and ranks and groups dealt
/// out in turn.
fn nestings(size: usize) -> Vec<Groups> {
    let shapes = [(1, 2), (1, 3), (2, 2), (2, 3), (3, 2), (4, 2)];
    let mut nestings: Vec<Groups> = shapes.map(|(inner, outer)| nested(size, inner, outer)).into();
    nestings.push(nested(size, 2, 2).within((0..size).map(|rank| rank / 8), Link::Across).unwrap());
    nestings.push(nested(size, 1, 2).within((0..size).map(|rank| rank / 6), Link::Across).unwrap());
    let first_alone = Groups::every(size, 2).within((0..size).map(|rank| rank > 1), Link::Between);
    nestings.push(first_alone.unwrap());
    let dealt = Groups::by_label((0..size).map(|rank| rank % 4));
    nestings.push(dealt.within((0..size).map(|rank| rank % 2), Link::Between).unwrap());
    nestings.push(Groups::every(size, 2).within((0..size).map(|rank| rank / 2 % 2), Link::Between).unwrap());
    nestings.push(nested(size, 3, 2).led_by(leading));
    nestings.push(nested(size, 4, 2).led_by(leading));
    nestings.retain(|groups| groups.above().is_some() && groups.are_two_levels());
    nestings
}

#[test]
fn three_levels_and_more_are_proved_for_groups_of_all_kinds_up_to_17_ranks() {
    let mut kinds = 0;
    for collective in [Collective::Barrier, Collective::Broadcast, Collective::Reduce, Collective::AllReduce] {
        for groups in (1..=17).flat_map(nestings) {
            kinds += 1;
            for leaders in if collective == Collective::AllReduce { 1..=3 } else { 1..=1 } {
                // In up to five chunks, so that all members of larger groups lead in turn.
                let counts = &[0, 1, 23];
                match groups.size() {
                    size if size > 6 && collective.is_rooted() => {
                        prove_at(collective, &groups, counts, leaders, [0, size / 2, size - 1]);
                    }
                    _ => prove(collective, &groups, counts, leaders),
                }
            }
        }
    }
    assert!(kinds > 400, "{kinds}");
}

#[test]
fn three_levels_are_proved_for_96_ranks_on_12_hosts_in_3_racks_and_for_64_in_unequal_ones() {
    let racks = Groups::every(64, 8).within((0..64).map(|rank| rank < 40), Link::Between).unwrap();
    for groups in [nested(96, 8, 4), racks, nested(60, 4, 4)] {
        for collective in [Collective::Barrier, Collective::AllReduce] {
            prove(collective, &groups, &[23], 2);
        }
        prove_at(Collective::Reduce, &groups, &[23], 1, [0, 37]);
        prove_at(Collective::Broadcast, &groups, &[23], 1, [0, 37]);
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
    for collective in
        [Collective::AllGather, Collective::AllToAll, Collective::ReduceScatter, Collective::Scan, Collective::Exscan]
    {
        for size in (19..=64).step_by(3) {
            prove(collective, &Groups::apart(size), &[1], 1);
        }
    }
}

/// With equal counts the collectives of varied lengths must do what the others do.
#[test]
fn collectives_of_varied_lengths_are_proved_for_1_to_17_ranks_with_equal_counts() {
    let prove = |collective: Collective, size: usize, elements: usize, root: usize| {
        let counts = vec![elements; size];
        let schedule = |rank: usize| -> Schedule {
            let (one, all) = (elements, size * elements);
            let here = rank == root;
            let at_root = if here { all } else { 0 };
            let (input, output) = match collective {
                Collective::Gather => (one, at_root),
                Collective::Scatter => (at_root, one),
                Collective::AllGather => (one, all),
                _ => (all, all),
            };
            let mut b = Builder::new(rank, size, input, output);
            let (input, output, group) = (b.input(), b.output(), Group::all(rank, size));
            let cut = |slice| Cuts::new(slice, &counts).unwrap();
            match collective {
                Collective::Gather => {
                    varied::gather(&mut b, &group, root, input, here.then(|| cut(output)).as_ref());
                }
                Collective::Scatter => {
                    varied::scatter(&mut b, &group, root, here.then(|| cut(input)).as_ref(), output);
                }
                Collective::AllGather => varied::all_gather(&mut b, &group, input, &cut(output)),
                _ => varied::all_to_all(&mut b, &group, &cut(input), &cut(output)),
            }
            b.finish().unwrap()
        };
        let all: Vec<Schedule> = (0..size).map(schedule).collect();
        let proof = check::schedules(&Task { collective, size, elements, root, rank_order: true }, &all);
        assert!(
            proof.is_ok(),
            "{collective}_v, {size} ranks, {elements} elements, root {root}: {}",
            proof.unwrap_err()
        );
    };
    for size in 1..=17 {
        for elements in [0, 1, 3] {
            for root in 0..size {
                prove(Collective::Gather, size, elements, root);
                prove(Collective::Scatter, size, elements, root);
            }
            prove(Collective::AllGather, size, elements, 0);
            prove(Collective::AllToAll, size, elements, 0);
        }
    }
}
