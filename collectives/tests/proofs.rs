//! Every algorithm is proved by the checker for all small numbers of ranks.

use spmd_collectives::algorithms::Collective;
use spmd_collectives::check;

/// Element counts around the borders where blocks become empty or uneven.
fn counts(size: usize) -> Vec<usize> {
    let mut counts = vec![0, 1, size.saturating_sub(1), size, size + 1, 2 * size + 3];
    counts.sort_unstable();
    counts.dedup();
    counts
}

fn prove(collective: Collective, sizes: impl Iterator<Item = usize> + Clone, counts: impl Fn(usize) -> Vec<usize>) {
    for algorithm in collective.algorithms() {
        for size in sizes.clone().filter(|&size| algorithm.forbidden(size, true).is_none()) {
            let roots = if collective.is_rooted() { size } else { 1 };
            for root in 0..roots {
                for elements in counts(size) {
                    let proof = check::algorithm(collective, algorithm, size, elements, root, 2);
                    let name = algorithm.name;
                    assert!(
                        proof.is_ok(),
                        "{collective} {name}, {size} ranks, {elements} elements, root {root}: {}",
                        proof.unwrap_err()
                    );
                }
            }
        }
    }
}

macro_rules! proved_up_to_17_ranks {
    ($($name:ident: $collective:ident;)*) => {$(
        #[test]
        fn $name() {
            prove(Collective::$collective, 1..=17, counts);
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

#[test]
fn all_reduce_and_barrier_are_proved_for_18_to_64_ranks() {
    prove(Collective::AllReduce, 18..=64, |size| vec![size + 1]);
    prove(Collective::Barrier, 18..=64, |_| vec![0]);
}

#[test]
fn the_others_are_proved_for_every_third_size_from_18_to_64_ranks_and_one_element() {
    for collective in [Collective::AllGather, Collective::AllToAll] {
        prove(collective, (19..=64).step_by(3), |_| vec![1]);
    }
}
