//! Scatter: each rank gets its block of the root's input.

use super::gather::runs;
use super::{Algorithm, Shape, children, parent, subtree, whole};
use crate::compose::{Blocks, Builder, Group};
use crate::schedule::{Schedule, ScheduleError, Slice};

pub(super) const ALGORITHMS: &[Algorithm] = &[
    Algorithm {
        name: "linear",
        restrictions: &[],
        source: "the root sends to everyone",
        pieces: whole,
        cost: |model, load| load.fan(model, load.bytes),
        build: |shape| build(shape, linear),
    },
    Algorithm {
        name: "binomial",
        restrictions: &[],
        source: "Thakur, Rabenseifner, Gropp: Optimization of collective communication operations in MPICH, 2005",
        pieces: whole,
        cost: |model, load| load.rounds * model.message(0.0) + (load.size - 1.0) * load.bytes * model.per_byte,
        build: |shape| build(shape, binomial),
    },
];

type Emit = fn(&mut Builder, &Group<'_>, usize, Slice, Slice);

fn build(shape: &Shape<'_>, emit: Emit) -> Result<Schedule, ScheduleError> {
    let total = shape.total()?;
    let mut b = Builder::new(shape.rank, shape.size, if shape.is_root() { total } else { 0 }, shape.elements);
    let (all, own) = (b.input(), b.output());
    emit(&mut b, &shape.group(), shape.root, all, own);
    b.finish()
}

/// The root sends each rank its block.
///
/// `all` is used at the root only. Cost: `latency + (p - 1) (overhead + n beta)`.
pub fn linear(b: &mut Builder, group: &Group<'_>, root: usize, all: Slice, own: Slice) {
    if group.rank() != root {
        b.receive(group.peer(root), own);
        return;
    }
    let blocks = Blocks::new(all, group.size());
    for distance in 1..group.size() {
        let member = (root + distance) % group.size();
        b.send(group.peer(member), blocks.block(member));
    }
    b.copy(blocks.block(root), own);
}

/// A binomial tree: inner ranks get the blocks of their subtree at once and send parts on, largest first.
///
/// The root sends straight out of its input; where a subtree goes round the last rank that takes two messages.
/// Cost: `log2(p) (latency + overhead) + (p - 1) n beta`.
pub fn binomial(b: &mut Builder, group: &Group<'_>, root: usize, all: Slice, own: Slice) {
    let size = group.size();
    let v = (group.rank() + size - root) % size;
    let rank_of = |v: usize| group.peer((v + root) % size);
    let extent = subtree(v, size);
    if v == 0 {
        let blocks = Blocks::new(all, size);
        for child in children(0, size).rev() {
            for run in runs(child, subtree(child, size), root, size) {
                b.send(rank_of(child), blocks.run(run.0, run.1));
            }
        }
        b.copy(blocks.block(root), own);
        return;
    }
    let held = if extent == 1 { own } else { b.scratch(extent * own.length) };
    match parent(v) {
        Some(0) => {
            let mut received = 0;
            for run in runs(v, extent, root, size) {
                let length = (run.1 - run.0) * own.length;
                b.receive(rank_of(0), held.part(received, length));
                received += length;
            }
        }
        Some(parent) => {
            b.receive(rank_of(parent), held);
        }
        None => {}
    }
    for child in children(v, size).rev() {
        let part = held.part((child - v) * own.length, subtree(child, size) * own.length);
        b.send(rank_of(child), part);
    }
    if extent > 1 {
        b.copy(held.part(0, own.length), own);
    }
}
