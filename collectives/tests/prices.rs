//! The model prices schedules as the formulas of the algorithms say, and the selection follows it.

use spmd_collectives::algorithms::{Algorithm, Collective, Shape};
use spmd_collectives::price::{Model, price};
use spmd_collectives::schedule::Schedule;
use spmd_collectives::select::{AUTO, Request, select};

fn priced(algorithm: &Algorithm, size: usize, elements: usize, segment: usize) -> f64 {
    let schedules: Vec<Schedule> =
        (0..size).map(|rank| algorithm.schedule(&Shape { rank, size, root: 0, elements, segment }).unwrap()).collect();
    price(&schedules, 4, &Model::ASSUMED).unwrap()
}

#[test]
fn prices_are_those_of_the_formulas_where_all_ports_are_equally_busy() {
    for (collective, name) in [
        (Collective::Barrier, "dissemination"),
        (Collective::Broadcast, "binomial"),
        (Collective::Broadcast, "chain"),
        (Collective::Reduce, "binomial"),
        (Collective::Gather, "linear"),
        (Collective::Gather, "binomial"),
        (Collective::Scatter, "linear"),
        (Collective::AllGather, "ring"),
        (Collective::AllGather, "recursive_doubling"),
        (Collective::AllReduce, "recursive_doubling"),
        (Collective::AllReduce, "ring"),
        (Collective::AllReduce, "rabenseifner"),
        (Collective::AllToAll, "pairwise"),
    ] {
        let algorithm = collective.algorithms().iter().find(|algorithm| algorithm.name == name).unwrap();
        for size in [2, 4, 8, 32] {
            for elements in [1, 1024, 1 << 18] {
                let request = Request { collective, size, elements, element_bytes: 4, commutative: true };
                let choice = select(&request, name, &Model::ASSUMED).unwrap();
                let found = priced(algorithm, size, elements, choice.segment);
                let off = (found / choice.cost - 1.0).abs();
                assert!(
                    off < 0.15,
                    "{collective} {name}, {size} ranks, {elements} elements: {found:e} s, formula {:e} s",
                    choice.cost
                );
            }
        }
    }
}

#[test]
fn what_is_selected_is_hardly_dearer_than_the_best_on_the_model() {
    for collective in Collective::ALL {
        for size in [2, 4, 7, 8, 16, 17] {
            for elements in [1, 64, 1024, 1 << 14, 1 << 18] {
                let request = Request { collective, size, elements, element_bytes: 4, commutative: true };
                let choice = select(&request, AUTO, &Model::ASSUMED).unwrap();
                let mine = priced(choice.algorithm, size, elements, choice.segment);
                for other in collective.algorithms().iter().filter(|other| other.forbidden(size, true).is_none()) {
                    let theirs = priced(other, size, elements, choice.segment);
                    assert!(
                        mine < 1.5 * theirs,
                        "{collective}, {size} ranks, {elements} elements: {} {mine:e} s, {} {theirs:e} s",
                        choice.algorithm.name,
                        other.name
                    );
                }
            }
        }
    }
}

#[test]
fn schedules_that_never_finish_have_no_price() {
    use spmd_collectives::schedule::{Action, Lengths, Slice};
    let steps = |peer| {
        [(Action::Receive { peer, into: Slice::EMPTY }, vec![]), (Action::Send { peer, from: Slice::EMPTY }, vec![0])]
    };
    let both = [0, 1].map(|rank| Schedule::new(rank, 2, Lengths::default(), steps(1 - rank)).unwrap());
    assert_eq!(price(&both, 4, &Model::ASSUMED), None);
}
