//! Reduce-scatter: everyone's input is combined, and each rank gets its block of the result.

use super::all_reduce::fold::Core;
use super::{Algorithm, Load, Restriction, Shape, whole};
use crate::compose::{Blocks, Builder, Group, StepId};
use crate::price::Model;
use crate::schedule::{Schedule, ScheduleError, Side, Slice};

pub(super) const ALGORITHMS: &[Algorithm] = &[
    Algorithm {
        name: "pairwise",
        restrictions: &[],
        source: "Thakur, Rabenseifner, Gropp: Optimization of collective communication operations in MPICH, 2005; \
                 values from lower and from higher ranks are combined apart, which keeps the order of the ranks",
        pieces: whole,
        cost: |model, load| (load.size - 1.0) * load.in_turn(model).message(load.bytes) + model.reduction(load.bytes),
        build: |shape| build(shape, pairwise),
    },
    Algorithm {
        name: "recursive_halving",
        restrictions: &[Restriction::CommutativeOnly],
        source: "Thakur, Rabenseifner, Gropp: Optimization of collective communication operations in MPICH, 2005",
        pieces: whole,
        cost: halving_cost,
        build: |shape| build(shape, recursive_halving),
    },
    Algorithm {
        name: "ring",
        restrictions: &[Restriction::CommutativeOnly],
        source: "Patarasuk, Yuan: Bandwidth optimal all-reduce algorithms for clusters of workstations, 2009 (first half)",
        pieces: whole,
        cost: |model, load| load.neighbours(model, load.bytes) + (load.size - 1.0) * model.reduction(load.bytes),
        build: |shape| build(shape, ring),
    },
];

fn halving_cost(model: &Model, load: &Load<'_>) -> f64 {
    let all = load.of_bytes(load.size * load.bytes);
    // All data to the partner; only its block comes back.
    let fold =
        if load.power_of_two { 0.0 } else { all.folding(model) - model.message(all.bytes) + model.message(load.bytes) };
    load.core_rounds() * load.all_at_once(model).message(0.0)
        + load.everyone_s_data(model)
        + model.reduction((load.size - 1.0) * load.bytes)
        + fold
}

fn build(shape: &Shape<'_>, emit: fn(&mut Builder, &Group<'_>, Slice, Slice)) -> Result<Schedule, ScheduleError> {
    let mut b = Builder::new(shape.rank, shape.size, shape.total()?, shape.elements);
    let (all, block) = (b.input(), b.output());
    if shape.size == 1 {
        b.copy(all, block);
    } else {
        emit(&mut b, &shape.group(), all, block);
    }
    b.finish()
}

/// Round i gives the rank at distance i its block and gets one's own from the rank at that distance behind, one round at a
/// time. `all` has a block as long as `block` for each rank, of which there are several.
///
/// Blocks come from the ranks r - 1, …, 0 first, then from p - 1, …, r + 1: each half is combined towards the left, and
/// both at the end, so that the operator need not commute.
/// Cost: `(p - 1) (latency + overhead + n beta) + n gamma`: all reductions but the last overlap with messages.
pub fn pairwise(b: &mut Builder, group: &Group<'_>, all: Slice, block: Slice) {
    let (rank, size) = (group.rank(), group.size());
    let blocks = Blocks::new(all, size);
    // Two places, so that the next block may come while one is combined.
    let rooms = [b.scratch(block.length), b.scratch(block.length)];
    b.copy(blocks.block(rank), block);
    let mut higher: Option<Slice> = None;
    let mut before: Vec<StepId> = Vec::new();
    for distance in 1..size {
        let from = (rank + size - distance) % size;
        let (room, value) = match (from < rank, higher) {
            (true, _) => (rooms[distance % 2], Some(block)),
            (false, Some(value)) => (rooms[distance % 2], Some(value)),
            (false, None) => (b.scratch(block.length), None),
        };
        let receive = b.receive_after(group.peer(from), room, &before);
        let send = b.send_after(group.ahead(distance), blocks.block((rank + distance) % size), &before);
        before = vec![receive, send];
        match value {
            Some(value) => {
                b.reduce(room, value, Side::Left);
            }
            None => higher = Some(room),
        }
    }
    if let Some(higher) = higher {
        b.reduce(higher, block, Side::Right);
    }
}

/// Ranks at distance p/2, p/4, …, 1 exchange halves of what they have combined so far, each keeping the half in which its
/// own block lies.
///
/// Far ranks come first, so that the operator must commute. Where p is no power of two, neighbours are folded together
/// first, and one of each pair gets its block at the end.
/// Cost: `log2(p) (latency + overhead) + (p - 1) n (beta + gamma)`; where p is no power of two two more messages, one of
/// all data, and its reduction.
pub fn recursive_halving(b: &mut Builder, group: &Group<'_>, all: Slice, block: Slice) {
    let (rank, size) = (group.rank(), group.size());
    let core = match Core::of(rank, size) {
        Ok(core) => core,
        Err(taker) => {
            b.send(group.peer(taker), all);
            b.receive(group.peer(taker), block);
            return;
        }
    };
    let blocks = Blocks::new(all, size);
    let mut held = all;
    if let Some(giver) = core.giver() {
        let given = b.scratch(all.length);
        b.receive(group.peer(giver), given);
        b.reduce(all, given, Side::Right);
        held = given;
    }
    let (mut first, mut end) = (0, core.size);
    let mut distance = core.size / 2;
    while distance > 0 {
        let partner = core.position ^ distance;
        let peer = group.peer(core.member(partner));
        let middle = first + distance;
        let length = |first: usize, end: usize| blocks.run(core.start(first), core.start(end)).length;
        let (lower, upper) = (length(first, middle), length(middle, end));
        let (lower, upper) = (held.part(0, lower), held.part(lower, upper));
        let (kept, given, side) =
            if core.position < partner { (lower, upper, Side::Left) } else { (upper, lower, Side::Right) };
        (first, end) = if core.position < partner { (first, middle) } else { (middle, end) };
        let room = if kept.length == block.length && distance == 1 { block } else { b.scratch(kept.length) };
        b.receive(peer, room);
        b.send(peer, given);
        b.reduce(kept, room, side);
        held = room;
        distance /= 2;
    }
    if let Some(giver) = core.giver() {
        b.send(group.peer(giver), held.part(0, block.length));
        b.copy(held.part(block.length, block.length), block);
    }
}

/// Each block travels once round the ring, beginning behind its owner, and is combined on its way.
///
/// Block k is combined in the order k + 1, …, k, so the operator must commute.
/// Cost: `(p - 1) (latency + overhead + n beta + n gamma)`; each rank talks to two neighbours only.
pub fn ring(b: &mut Builder, group: &Group<'_>, all: Slice, block: Slice) {
    let (rank, size) = (group.rank(), group.size());
    let blocks = Blocks::new(all, size);
    let rooms = [b.scratch(block.length), b.scratch(block.length)];
    let mut held = blocks.block((rank + size - 1) % size);
    for round in 0..size - 1 {
        b.send(group.ahead(1), held);
        let last = round + 2 == size;
        let room = if last { block } else { rooms[round % 2] };
        b.receive(group.behind(1), room);
        b.reduce(blocks.block((rank + 2 * size - round - 2) % size), room, Side::Right);
        held = room;
    }
}
