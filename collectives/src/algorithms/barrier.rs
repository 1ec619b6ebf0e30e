//! Barrier: messages without data, ordered by explicit dependencies alone.

use super::{Algorithm, Restriction, children, in_memory, parent, whole};
use crate::compose::{Builder, Group, StepId};
use crate::schedule::Slice;

pub(super) const ALGORITHMS: &[Algorithm] = &[
    Algorithm {
        name: "binomial",
        restrictions: &[],
        source: "a binomial tree up and down; fewest messages: 2 (p - 1) in all",
        pieces: whole,
        cost: |model, load| 2.0 * load.rounds * load.along_tree(model).message(0.0),
        build: |shape| {
            let mut b = Builder::new(shape.rank, shape.size, 0, 0);
            binomial(&mut b, &shape.group());
            b.finish()
        },
    },
    Algorithm {
        name: "dissemination",
        restrictions: &[],
        source: "Hensgen, Finkel, Manber: Two algorithms for barrier synchronization, 1988; fewest rounds: log2 p",
        pieces: whole,
        cost: |model, load| load.rounds * load.all_at_once(model).message(0.0),
        build: |shape| {
            let mut b = Builder::new(shape.rank, shape.size, 0, 0);
            dissemination(&mut b, &shape.group());
            b.finish()
        },
    },
    Algorithm {
        name: "two_hop",
        restrictions: &[Restriction::TwoLevels],
        source: "a tree inside each group, dissemination between the groups",
        pieces: whole,
        cost: |model, load| {
            let inside = load.levels().map(|(width, inside)| width.log2().ceil() * inside.message(0.0));
            2.0 * inside.sum::<f64>() + load.of_leaders().rounds * model.message(0.0)
        },
        build: |shape| {
            let mut b = Builder::new(shape.rank, shape.size, 0, 0);
            shape.two_hop().barrier(&mut b);
            b.finish()
        },
    },
    Algorithm {
        name: in_memory::NAME,
        restrictions: &[Restriction::TwoLevels, Restriction::SharedGroups],
        source: in_memory::SOURCE,
        pieces: whole,
        cost: |model, load| in_memory::stages(model, load, |model, load| load.rounds * model.message(0.0)).cost(0.0),
        build: in_memory::build,
    },
    in_memory::MOVED_BY_ALL,
];

/// Everyone reports to its parent once its children have; the root's answer goes back the same way.
///
/// Cost: `2 log2(p) (latency + overhead)`, and `2 (p - 1)` messages, which is what counts where ranks share cores.
pub fn binomial(b: &mut Builder, group: &Group<'_>) {
    let reported = up(b, group, Vec::new());
    down(b, group, reported);
}

/// The way to position 0, which this rank goes on once `arrived` is complete; returns what has to be complete before the way
/// back may begin on this rank.
pub(super) fn up(b: &mut Builder, group: &Group<'_>, mut arrived: Vec<StepId>) -> Vec<StepId> {
    let (rank, size) = (group.rank(), group.size());
    arrived.extend(children(rank, size).map(|child| b.receive(group.peer(child), Slice::EMPTY)));
    match parent(rank) {
        Some(parent) => vec![b.send_after(group.peer(parent), Slice::EMPTY, &arrived)],
        None => arrived,
    }
}

/// The way back, once `reported` is complete; returns what has to be complete for all to have entered.
pub(super) fn down(b: &mut Builder, group: &Group<'_>, mut reported: Vec<StepId>) -> Vec<StepId> {
    let (rank, size) = (group.rank(), group.size());
    if let Some(parent) = parent(rank) {
        reported = vec![b.receive_after(group.peer(parent), Slice::EMPTY, &reported)];
    }
    for child in children(rank, size).rev() {
        b.send_after(group.peer(child), Slice::EMPTY, &reported);
    }
    reported
}

/// In round k everyone tells the rank 2^k further that the 2^k ranks up to itself have entered.
///
/// Cost: `log2(p) (latency + overhead)`.
pub fn dissemination(b: &mut Builder, group: &Group<'_>) {
    dissemination_after(b, group, Vec::new());
}

/// The same, begun once `heard` is complete; returns what has to be complete for all to have entered.
pub(super) fn dissemination_after(b: &mut Builder, group: &Group<'_>, mut heard: Vec<StepId>) -> Vec<StepId> {
    let mut distance = 1;
    while distance < group.size() {
        b.send_after(group.ahead(distance), Slice::EMPTY, &heard);
        heard.push(b.receive(group.behind(distance), Slice::EMPTY));
        distance *= 2;
    }
    heard
}
