//! Gather: everyone's input becomes a block of the root's output.

use super::{Algorithm, Shape, children, parent, subtree, whole};
use crate::compose::{Blocks, Builder, Group};
use crate::schedule::{Schedule, ScheduleError, Slice};

pub(super) const ALGORITHMS: &[Algorithm] = &[
    Algorithm {
        name: "linear",
        restrictions: &[],
        source: "everyone sends to the root",
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
    let mut b = Builder::new(shape.rank, shape.size, shape.elements, if shape.is_root() { total } else { 0 });
    let (own, all) = (b.input(), b.output());
    emit(&mut b, &shape.group(), shape.root, own, all);
    b.finish()
}

/// Everyone sends straight to the root, which receives straight into its output.
///
/// `all` is used at the root only. Cost: `latency + (p - 1) (overhead + n beta)`.
pub fn linear(b: &mut Builder, group: &Group<'_>, root: usize, own: Slice, all: Slice) {
    if group.rank() != root {
        b.send(group.peer(root), own);
        return;
    }
    let blocks = Blocks::new(all, group.size());
    for distance in 1..group.size() {
        let member = (root + distance) % group.size();
        b.receive(group.peer(member), blocks.block(member));
    }
    b.copy(own, blocks.block(root));
}

/// A binomial tree: inner ranks collect the blocks of their subtree and send them on at once.
///
/// The root receives straight into its output; where a subtree goes round the last rank that takes two messages.
/// Cost: `log2(p) (latency + overhead) + (p - 1) n beta`.
pub fn binomial(b: &mut Builder, group: &Group<'_>, root: usize, own: Slice, all: Slice) {
    let size = group.size();
    let v = (group.rank() + size - root) % size;
    let rank_of = |v: usize| group.peer((v + root) % size);
    let extent = subtree(v, size);
    if v == 0 {
        let blocks = Blocks::new(all, size);
        for child in children(0, size) {
            for run in runs(child, subtree(child, size), root, size) {
                b.receive(rank_of(child), blocks.run(run.0, run.1));
            }
        }
        b.copy(own, blocks.block(root));
        return;
    }
    let collected = if extent == 1 { own } else { b.scratch(extent * own.length) };
    if extent > 1 {
        b.copy(own, collected.part(0, own.length));
        for child in children(v, size) {
            let part = collected.part((child - v) * own.length, subtree(child, size) * own.length);
            b.receive(rank_of(child), part);
        }
    }
    match parent(v) {
        Some(0) => {
            let mut sent = 0;
            for run in runs(v, extent, root, size) {
                let length = (run.1 - run.0) * own.length;
                b.send(rank_of(0), collected.part(sent, length));
                sent += length;
            }
        }
        Some(parent) => {
            b.send(rank_of(parent), collected);
        }
        None => {}
    }
}

/// The ranks of tree positions `first..first + count`, as one or two runs `(start, end)` of ranks in order.
pub(super) fn runs(first: usize, count: usize, root: usize, size: usize) -> impl Iterator<Item = (usize, usize)> {
    let start = (first + root) % size;
    let end = start + count;
    let wrapped = (end > size).then(|| (0, end - size));
    std::iter::once((start, end.min(size))).chain(wrapped)
}
