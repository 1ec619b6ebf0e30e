//! All-gather: everyone's input becomes a block of everyone's output.

use super::{Algorithm, Restriction, Shape, broadcast, whole};
use crate::compose::{Blocks, Builder, Group};
use crate::schedule::{Schedule, ScheduleError, Slice};

pub(super) const ALGORITHMS: &[Algorithm] = &[
    Algorithm {
        name: "ring",
        restrictions: &[],
        source: "Thakur, Rabenseifner, Gropp: Optimization of collective communication operations in MPICH, 2005",
        pieces: whole,
        cost: |model, load| load.neighbours(model, load.bytes),
        build: |shape| in_blocks(shape, |b, group, blocks| ring(b, group, blocks, group.rank(), b.input(), usize::MAX)),
    },
    Algorithm {
        name: "recursive_doubling",
        restrictions: &[Restriction::PowerOfTwoSize],
        source: "Thakur, Rabenseifner, Gropp: Optimization of collective communication operations in MPICH, 2005",
        pieces: whole,
        cost: |model, load| load.rounds * load.all_at_once(model).message(0.0) + load.everyone_s_data(model),
        build: |shape| in_blocks(shape, |b, group, blocks| recursive_doubling(b, group, blocks, b.input())),
    },
    Algorithm {
        name: "bruck",
        restrictions: &[],
        source: "Bruck et al.: Efficient algorithms for all-to-all communications in multiport message-passing systems, 1997",
        pieces: whole,
        cost: |model, load| {
            load.rounds * load.all_at_once(model).message(0.0)
                + load.everyone_s_data(model)
                + model.reduction(load.size * load.bytes)
        },
        build: |shape| {
            let mut b = Builder::new(shape.rank, shape.size, shape.elements, shape.total()?);
            let (own, all) = (b.input(), b.output());
            bruck(&mut b, &shape.group(), own, all);
            b.finish()
        },
    },
];

/// Algorithms that pass blocks of the output on; the rank's own block is copied there meanwhile.
fn in_blocks(shape: &Shape<'_>, emit: fn(&mut Builder, &Group<'_>, &Blocks)) -> Result<Schedule, ScheduleError> {
    let mut b = Builder::new(shape.rank, shape.size, shape.elements, shape.total()?);
    let blocks = Blocks::new(b.output(), shape.size);
    let own = b.input();
    b.copy(own, blocks.block(shape.rank));
    emit(&mut b, &shape.group(), &blocks);
    b.finish()
}

/// A ring: everyone passes on what came last, beginning with block `owned`, which this rank has and which also lies in
/// `own`. Rank r + 1 must own block `owned + 1`. There are as many blocks as ranks. Longer ones travel in segments of at
/// most `segment` elements.
///
/// Cost: `(p - 1) (latency + overhead + n beta)`; each rank talks to two neighbours only.
pub fn ring(b: &mut Builder, group: &Group<'_>, blocks: &Blocks, owned: usize, own: Slice, segment: usize) {
    let size = group.size();
    for round in 0..size.saturating_sub(1) {
        let sent = if round == 0 { own } else { blocks.block((owned + size - round) % size) };
        for piece in broadcast::pieces(sent, segment) {
            b.send(group.ahead(1), piece);
        }
        let next = blocks.block((owned + size - round - 1) % size);
        for piece in broadcast::pieces(next, segment) {
            b.receive(group.behind(1), piece);
        }
    }
}

/// Ranks at distance 1, 2, 4, … exchange all that they have, at first the own block, which also lies in `own`. There
/// are as many blocks as ranks, a power of two.
///
/// Cost: `log2(p) (latency + overhead) + (p - 1) n beta`.
pub fn recursive_doubling(b: &mut Builder, group: &Group<'_>, blocks: &Blocks, own: Slice) {
    let rank = group.rank();
    let mut distance = 1;
    while distance < group.size() {
        let partner = rank ^ distance;
        let first = |member: usize| member & !(distance - 1);
        let held = if distance == 1 { own } else { blocks.run(first(rank), first(rank) + distance) };
        b.send(group.peer(partner), held);
        b.receive(group.peer(partner), blocks.run(first(partner), first(partner) + distance));
        distance *= 2;
    }
}

/// Everyone gathers the blocks of the ranks after it, doubling their number each round, and turns them into rank order
/// at the end.
///
/// Cost: `log2(p) (latency + overhead) + (p - 1) n beta + p n gamma`, for any number of ranks.
pub fn bruck(b: &mut Builder, group: &Group<'_>, own: Slice, all: Slice) {
    let (rank, size, n) = (group.rank(), group.size(), own.length);
    let gathered = b.scratch(all.length);
    b.copy(own, gathered.part(0, n));
    let mut have = 1;
    while have < size {
        let count = have.min(size - have);
        b.send(group.behind(have), gathered.part(0, count * n));
        b.receive(group.ahead(have), gathered.part(have * n, count * n));
        have *= 2;
    }
    let wrapped = rank * n;
    b.copy(gathered.part(0, all.length - wrapped), all.part(wrapped, all.length - wrapped));
    if rank > 0 {
        b.copy(gathered.part(all.length - wrapped, wrapped), all.part(0, wrapped));
    }
}
