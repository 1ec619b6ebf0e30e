//! Scan and exclusive scan: each rank gets what the ranks up to it, or before it, combine to. All keep the order of the
//! ranks.

use super::{Algorithm, Load, Pieces, Shape, broadcast, whole};
use crate::compose::{Builder, Group, StepId};
use crate::price::Model;
use crate::schedule::{Schedule, ScheduleError, Side, Slice};

pub(super) const ALGORITHMS: &[Algorithm] = &[
    Algorithm {
        name: "chain",
        restrictions: &[],
        source: "each rank waits for the one before it, piece by piece",
        pieces: |model, load| Pieces::alike(broadcast::segments(model, load)),
        cost: |model, load| chain_cost(model, load),
        build: |shape| {
            let mut b = shape.in_place();
            for piece in broadcast::pieces(b.output(), shape.parameters.segment) {
                chain(&mut b, &shape.group(), piece);
            }
            b.finish()
        },
    },
    Algorithm {
        name: "recursive_doubling",
        restrictions: &[],
        source: "Hillis, Steele: Data parallel algorithms, 1986",
        pieces: whole,
        cost: |model, load| doubling_cost(model, load, load.rounds),
        build: |shape| {
            let mut b = shape.in_place();
            let data = b.output();
            recursive_doubling(&mut b, &shape.group(), data);
            b.finish()
        },
    },
];

pub(super) const EXCLUSIVE: &[Algorithm] = &[
    Algorithm {
        name: "chain",
        restrictions: &[],
        source: "each rank waits for the one before it, piece by piece",
        pieces: |model, load| Pieces::alike(broadcast::segments(model, load)),
        cost: |model, load| chain_cost(model, load),
        build: |shape| {
            build_exclusive(shape, |b, group, own, before| {
                let before =
                    before.map(|before| broadcast::pieces(before, shape.parameters.segment).collect::<Vec<Slice>>());
                for (index, own) in broadcast::pieces(own, shape.parameters.segment).enumerate() {
                    exclusive_chain(b, group, own, before.as_ref().map(|before| before[index]));
                }
            })
        },
    },
    Algorithm {
        name: "recursive_doubling",
        restrictions: &[],
        source: "Hillis, Steele: Data parallel algorithms, 1986",
        pieces: whole,
        cost: |model, load| doubling_cost(model, load, 2.0 * (load.rounds - 1.0)),
        build: |shape| build_exclusive(shape, exclusive_doubling),
    },
];

fn chain_cost(model: &Model, load: &Load<'_>) -> f64 {
    let segments = broadcast::segments(model, load);
    let piece = load.bytes / segments;
    let message = model.message(piece) + model.reduction(piece);
    load.neighbours(model, piece)
        + (load.size - 1.0) * model.reduction(piece)
        + (segments - 1.0) * (message - model.latency)
}

fn doubling_cost(model: &Model, load: &Load<'_>, reductions: f64) -> f64 {
    load.rounds * load.all_at_once(model).message(load.bytes) + reductions * model.reduction(load.bytes)
}

fn build_exclusive(
    shape: &Shape<'_>,
    emit: impl FnOnce(&mut Builder, &Group<'_>, Slice, Option<Slice>),
) -> Result<Schedule, ScheduleError> {
    let output = if shape.rank == 0 { 0 } else { shape.elements };
    let mut b = Builder::new(shape.rank, shape.size, shape.elements, output);
    let (own, before) = (b.input(), b.output());
    emit(&mut b, &shape.group(), own, (shape.rank > 0).then_some(before));
    b.finish()
}

/// One piece on its way from rank to rank. Pieces that follow each other make a pipeline.
///
/// Cost with K pieces: `(p - 1) (latency + (n / K) gamma) + (p - 2 + K) (overhead + (n / K) beta) + (K - 1) (n / K) gamma`.
pub fn chain(b: &mut Builder, group: &Group<'_>, data: Slice) {
    let (rank, size) = (group.rank(), group.size());
    if rank > 0 {
        let room = b.scratch(data.length);
        b.receive(group.behind(1), room);
        b.reduce(room, data, Side::Left);
    }
    if rank + 1 < size {
        b.send(group.ahead(1), data);
    }
}

/// In round k each rank passes what up to 2^k ranks combine to, itself the last, on to the rank 2^k further.
///
/// Low ranks are soon done and would send ahead of their turn: each round's messages are taken after the round before.
/// Cost: `log2(p) (latency + overhead + n beta + n gamma)`, for any number of ranks.
pub fn recursive_doubling(b: &mut Builder, group: &Group<'_>, data: Slice) {
    let (rank, size) = (group.rank(), group.size());
    let mut before: Vec<StepId> = Vec::new();
    let mut distance = 1;
    while distance < size {
        if rank + distance < size {
            b.send(group.ahead(distance), data);
        }
        if rank >= distance {
            let room = b.scratch(data.length);
            b.receive_after(group.behind(distance), room, &before);
            before = vec![b.reduce(room, data, Side::Left)];
        }
        distance *= 2;
    }
}

/// As [`chain`]; `before` is where the result goes, `None` on the first rank, which has none.
pub fn exclusive_chain(b: &mut Builder, group: &Group<'_>, own: Slice, before: Option<Slice>) {
    let (rank, size) = (group.rank(), group.size());
    if let Some(before) = before {
        b.receive(group.behind(1), before);
    }
    if rank + 1 == size {
        return;
    }
    let passed = match before {
        Some(before) => {
            let passed = b.scratch(own.length);
            b.copy(own, passed);
            b.reduce(before, passed, Side::Left);
            passed
        }
        None => own,
    };
    b.send(group.ahead(1), passed);
}

/// As [`recursive_doubling`]; `before` is where the result goes, `None` on the first rank, which has none.
///
/// Cost: `log2(p) (latency + overhead + n beta) + 2 (log2(p) - 1) n gamma`: what the last round brings is not sent on.
pub fn exclusive_doubling(b: &mut Builder, group: &Group<'_>, own: Slice, before: Option<Slice>) {
    let (rank, size) = (group.rank(), group.size());
    let mut upto = own;
    let mut turn: Vec<StepId> = Vec::new();
    let mut distance = 1;
    while distance < size {
        if rank + distance < size {
            b.send(group.ahead(distance), upto);
        }
        if let Some(before) = before.filter(|_| rank >= distance) {
            // Combined with this rank's own only if that is sent on.
            let passes_on = rank + 2 * distance < size;
            if distance == 1 {
                turn = vec![b.receive(group.behind(1), before)];
                if passes_on {
                    upto = b.scratch(own.length);
                    b.copy(own, upto);
                    b.reduce(before, upto, Side::Left);
                }
            } else {
                let room = b.scratch(own.length);
                b.receive_after(group.behind(distance), room, &turn);
                turn = vec![b.reduce(room, before, Side::Left)];
                if passes_on {
                    b.reduce(room, upto, Side::Left);
                }
            }
        }
        distance *= 2;
    }
}
