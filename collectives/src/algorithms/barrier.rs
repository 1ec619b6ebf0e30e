//! Barrier: messages without data, ordered by explicit dependencies alone.

use super::{Algorithm, children, parent};
use crate::compose::{Builder, Group, StepId};
use crate::schedule::Slice;

pub(super) const ALGORITHMS: &[Algorithm] = &[
    Algorithm {
        name: "binomial",
        restrictions: &[],
        source: "a binomial tree up and down; fewest messages: 2 (p - 1) in all",
        cost: |model, load| 2.0 * load.rounds * model.message(0.0),
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
        cost: |model, load| load.rounds * model.message(0.0),
        build: |shape| {
            let mut b = Builder::new(shape.rank, shape.size, 0, 0);
            dissemination(&mut b, &shape.group());
            b.finish()
        },
    },
];

/// Everyone reports to its parent once its children have; the root's answer goes back the same way.
///
/// Cost: `2 log2(p) (latency + overhead)`, and `2 (p - 1)` messages, which is what counts where ranks share cores.
pub fn binomial(b: &mut Builder, group: &Group<'_>) {
    let (rank, size) = (group.rank(), group.size());
    let mut arrived: Vec<StepId> =
        children(rank, size).map(|child| b.receive(group.peer(child), Slice::EMPTY)).collect();
    if let Some(parent) = parent(rank) {
        let report = b.send_after(group.peer(parent), Slice::EMPTY, &arrived);
        arrived = vec![b.receive_after(group.peer(parent), Slice::EMPTY, &[report])];
    }
    for child in children(rank, size).rev() {
        b.send_after(group.peer(child), Slice::EMPTY, &arrived);
    }
}

/// In round k everyone tells the rank 2^k further that the 2^k ranks up to itself have entered.
///
/// Cost: `log2(p) (latency + overhead)`.
pub fn dissemination(b: &mut Builder, group: &Group<'_>) {
    let mut heard: Vec<StepId> = Vec::new();
    let mut distance = 1;
    while distance < group.size() {
        b.send_after(group.ahead(distance), Slice::EMPTY, &heard);
        heard.push(b.receive(group.behind(distance), Slice::EMPTY));
        distance *= 2;
    }
}
