//! All-reduce, in place: everyone's slice combined, and the same bits on every rank.
//!
//! That all ranks get the same bits holds by construction and is proved by the checker: each element is computed on one
//! rank and copied, or computed on several by the very same expression, operands in rank order.

mod fold;
mod rabenseifner;
mod recursive_doubling;
mod ring;

pub use rabenseifner::rabenseifner;
pub use recursive_doubling::recursive_doubling;
pub use ring::ring;

use super::{Algorithm, Restriction, Shape, broadcast, reduce};
use crate::compose::{Builder, Group};
use crate::schedule::{Schedule, ScheduleError, Slice};

pub(super) const ALGORITHMS: &[Algorithm] = &[
    Algorithm {
        name: "linear",
        restrictions: &[],
        source: "reduce to rank 0 in rank order and broadcast, without a tree",
        cost: |model, load| 2.0 * load.fan(model, load.bytes) + model.reduction(load.bytes),
        build: |shape| build(shape, linear),
    },
    Algorithm {
        name: "binomial",
        restrictions: &[],
        source: "reduce to rank 0 and broadcast along a binomial tree; fewest messages: 2 (p - 1) in all",
        cost: |model, load| load.rounds * (2.0 * model.message(load.bytes) + model.reduction(load.bytes)),
        build: |shape| build(shape, binomial),
    },
    Algorithm {
        name: "recursive_doubling",
        restrictions: &[],
        source: "Thakur, Rabenseifner, Gropp: Optimization of collective communication operations in MPICH, 2005",
        cost: |model, load| {
            load.core_rounds() * (model.message(load.bytes) + model.reduction(load.bytes)) + load.folding(model)
        },
        build: |shape| build(shape, recursive_doubling),
    },
    Algorithm {
        name: "ring",
        restrictions: &[Restriction::CommutativeOnly],
        source: "Patarasuk, Yuan: Bandwidth optimal all-reduce algorithms for clusters of workstations, 2009",
        cost: |model, load| {
            let block = load.bytes / load.size;
            (load.size - 1.0) * (2.0 * model.message(block) + model.reduction(block))
        },
        build: |shape| build(shape, ring),
    },
    Algorithm {
        name: "rabenseifner",
        restrictions: &[],
        source: "Rabenseifner: Optimization of collective reduction operations, 2004 (vector halving, distance doubling)",
        cost: |model, load| {
            let moved = load.bytes * load.others();
            2.0 * load.core_rounds() * model.message(0.0)
                + 2.0 * moved * model.per_byte
                + model.reduction(moved)
                + load.folding(model)
        },
        build: |shape| build(shape, rabenseifner),
    },
];

fn build(shape: &Shape, emit: fn(&mut Builder, &Group<'_>, Slice)) -> Result<Schedule, ScheduleError> {
    let mut b = shape.in_place();
    let data = b.output();
    emit(&mut b, &shape.group(), data);
    b.finish()
}

/// Reduces to the first rank in rank order and broadcasts.
///
/// Cost: `2 latency + 2 (p - 1) (overhead + n beta) + n gamma`.
pub fn linear(b: &mut Builder, group: &Group<'_>, data: Slice) {
    reduce::linear(b, group, 0, data, Some(data));
    broadcast::linear(b, group, 0, data);
}

/// Reduces to the first rank along a binomial tree and broadcasts along it.
///
/// Cost: `log2(p) (2 (latency + overhead + n beta) + n gamma)`, and `2 (p - 1)` messages in all, which is what counts
/// where ranks share cores.
pub fn binomial(b: &mut Builder, group: &Group<'_>, data: Slice) {
    reduce::binomial(b, group, 0, data, Some(data));
    broadcast::binomial(b, group, 0, data);
}
