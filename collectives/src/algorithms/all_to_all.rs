//! All-to-all: block j of rank i's input becomes block i of rank j's output.

use super::{Algorithm, Shape, whole};
use crate::compose::{Blocks, Builder, Group, StepId};
use crate::schedule::{Schedule, ScheduleError, Slice};

pub(super) const ALGORITHMS: &[Algorithm] = &[
    Algorithm {
        name: "linear",
        restrictions: &[],
        source: "everything at once, each rank beginning with its next neighbour",
        pieces: whole,
        cost: |model, load| load.fan(&load.in_turn(model), load.bytes) * CONTENTION,
        build: |shape| build(shape, linear),
    },
    Algorithm {
        name: "pairwise",
        restrictions: &[],
        source: "Thakur, Rabenseifner, Gropp: Optimization of collective communication operations in MPICH, 2005",
        pieces: whole,
        cost: |model, load| (load.size - 1.0) * load.in_turn(model).message(load.bytes),
        build: |shape| build(shape, pairwise),
    },
    Algorithm {
        name: "bruck",
        restrictions: &[],
        source: "Bruck et al.: Efficient algorithms for all-to-all communications in multiport message-passing systems, 1997",
        pieces: whole,
        cost: |model, load| {
            let moved = load.rounds * load.size / 2.0 * load.bytes;
            load.rounds * load.all_at_once(model).message(moved / load.rounds)
                + model.reduction(2.0 * moved + 2.0 * load.size * load.bytes)
        },
        build: |shape| build(shape, bruck),
    },
];

/// How much longer messages of all ranks to all ranks take when they meet in a network without order. Assumed.
const CONTENTION: f64 = 1.5;

fn build(shape: &Shape<'_>, emit: fn(&mut Builder, &Group<'_>, Slice, Slice)) -> Result<Schedule, ScheduleError> {
    let total = shape.total()?;
    let mut b = Builder::new(shape.rank, shape.size, total, total);
    let (input, output) = (b.input(), b.output());
    emit(&mut b, &shape.group(), input, output);
    b.finish()
}

/// All messages at once.
///
/// Cost: `latency + (p - 1) (overhead + n beta)`, and half as much again for messages that meet (assumed).
pub fn linear(b: &mut Builder, group: &Group<'_>, input: Slice, output: Slice) {
    let (rank, size) = (group.rank(), group.size());
    let (from, into) = (Blocks::new(input, size), Blocks::new(output, size));
    for distance in 1..size {
        b.receive(group.behind(distance), into.block((rank + size - distance) % size));
        b.send(group.ahead(distance), from.block((rank + distance) % size));
    }
    b.copy(from.block(rank), into.block(rank));
}

/// Round i exchanges with the ranks at distance i, and only one round at a time, so that every port carries one message
/// each way.
///
/// Cost: `(p - 1) (latency + overhead + n beta)`.
pub fn pairwise(b: &mut Builder, group: &Group<'_>, input: Slice, output: Slice) {
    let (rank, size) = (group.rank(), group.size());
    let (from, into) = (Blocks::new(input, size), Blocks::new(output, size));
    b.copy(from.block(rank), into.block(rank));
    let mut before: Vec<StepId> = Vec::new();
    for distance in 1..size {
        let receive = b.receive_after(group.behind(distance), into.block((rank + size - distance) % size), &before);
        let send = b.send_after(group.ahead(distance), from.block((rank + distance) % size), &before);
        before = vec![receive, send];
    }
}

/// Blocks travel by the binary digits of their distance: in round k all whose distance has bit k go 2^k ranks further,
/// packed into one message.
///
/// Cost: `log2(p) (latency + overhead + (p / 2) n (beta + 2 gamma)) + 2 p n gamma`.
pub fn bruck(b: &mut Builder, group: &Group<'_>, input: Slice, output: Slice) {
    let (rank, size) = (group.rank(), group.size());
    let from = Blocks::new(input, size);
    // held.block(d) is on its way to the rank at distance d from where it started.
    let room = b.scratch(input.length);
    let held = Blocks::new(room, size);
    b.copy(from.run(rank, size), held.run(0, size - rank));
    b.copy(from.run(0, rank), held.run(size - rank, size));
    let mut distance = 1;
    while distance < size {
        let travelling: Vec<(usize, usize)> =
            (distance..size).step_by(2 * distance).map(|first| (first, (first + distance).min(size))).collect();
        let length = travelling.iter().map(|&(first, end)| held.run(first, end).length).sum();
        let (packed, received) = (b.scratch(length), b.scratch(length));
        for (runs, slice) in in_turn(&held, &travelling, packed) {
            b.copy(runs, slice);
        }
        b.send(group.ahead(distance), packed);
        b.receive(group.behind(distance), received);
        for (runs, slice) in in_turn(&held, &travelling, received) {
            b.copy(slice, runs);
        }
        distance *= 2;
    }
    let into = Blocks::new(output, size);
    for distance in 0..size {
        b.copy(held.block(distance), into.block((rank + size - distance) % size));
    }
}

/// Each run of blocks with its place when they are packed one after another.
fn in_turn(held: &Blocks, runs: &[(usize, usize)], packed: Slice) -> impl Iterator<Item = (Slice, Slice)> {
    runs.iter().scan(0, move |offset, &(first, end)| {
        let run = held.run(first, end);
        let place = packed.part(*offset, run.length);
        *offset += run.length;
        Some((run, place))
    })
}
