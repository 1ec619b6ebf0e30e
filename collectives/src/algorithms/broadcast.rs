//! Broadcast: from the root's slice to the same slice of every rank.

use super::{Algorithm, Load, Pieces, RADIX, Restriction, children, double_tree, in_memory, knomial, parent, whole};
use crate::compose::{Builder, Group};
use crate::price::Model;
use crate::schedule::Slice;

pub(super) const ALGORITHMS: &[Algorithm] = &[
    Algorithm {
        name: "linear",
        restrictions: &[],
        source: "the root sends to everyone",
        pieces: whole,
        cost: |model, load| load.fan(model, load.bytes),
        build: |shape| {
            let mut b = shape.in_place();
            let data = b.output();
            linear(&mut b, &shape.group(), shape.root, data);
            b.finish()
        },
    },
    Algorithm {
        name: "binomial",
        restrictions: &[],
        source: "Thakur, Rabenseifner, Gropp: Optimization of collective communication operations in MPICH, 2005",
        pieces: whole,
        cost: |model, load| load.rounds * load.along_tree(model).message(load.bytes),
        build: |shape| {
            let mut b = shape.in_place();
            let data = b.output();
            binomial(&mut b, &shape.group(), shape.root, data);
            b.finish()
        },
    },
    Algorithm {
        name: "knomial",
        restrictions: &[],
        source: "the same with four positions where the binomial tree has two: half the rounds, more messages in each",
        pieces: whole,
        cost: |model, load| load.by_radix(&load.along_tree(model), load.rounds, load.bytes),
        build: |shape| {
            let mut b = shape.in_place();
            let data = b.output();
            knomial(&mut b, &shape.group(), shape.root, data, RADIX);
            b.finish()
        },
    },
    Algorithm {
        name: "double_tree",
        restrictions: &[],
        source: "Sanders, Speck, Träff: Two-tree algorithms for full bandwidth broadcast, reduction and scan, 2009",
        pieces: |model, load| Pieces::alike(2.0 * load.halves_in(model)),
        cost: |model, load| {
            let (model, halves) = (load.all_at_once(model), load.halves_in(model));
            let busy = model.overhead + load.bytes / (2.0 * halves) * model.per_byte;
            // Inner ranks pass two segments on for each that they get, and the root gives all of them away first.
            2.0 * (load.rounds + 1.0) * (model.latency + busy) + 8.0 * (halves - 1.0) * busy
        },
        build: |shape| {
            let mut b = shape.in_place();
            let data = b.output();
            double_tree::broadcast(&mut b, &shape.group(), shape.root, data, shape.parameters.segment);
            b.finish()
        },
    },
    Algorithm {
        name: "chain",
        restrictions: &[],
        source: "Pjesivac-Grbovic et al.: Performance analysis of MPI collective operations, 2005 (pipeline)",
        pieces: |model, load| Pieces::alike(segments(model, load)),
        cost: |model, load| {
            let segments = segments(model, load);
            let message = model.message(load.bytes / segments);
            load.neighbours(model, load.bytes / segments) + (segments - 1.0) * (message - model.latency)
        },
        build: |shape| {
            let mut b = shape.in_place();
            let data = b.output();
            chain(&mut b, &shape.group(), shape.root, data, shape.parameters.segment);
            b.finish()
        },
    },
    Algorithm {
        name: "two_hop",
        restrictions: &[Restriction::TwoLevels],
        source: "Graham et al.: Cheetah, 2011 (between groups first, then inside them)",
        pieces: |model, load| Pieces::in_two_hops(two_hop_pieces(model, load), load),
        cost: two_hop_cost,
        build: |shape| {
            let mut b = shape.in_place();
            let data = b.output();
            shape.two_hop().broadcast(&mut b, shape.root, data);
            b.finish()
        },
    },
    Algorithm {
        name: in_memory::NAME,
        restrictions: &[Restriction::TwoLevels, Restriction::SharedGroups],
        source: in_memory::SOURCE,
        pieces: |model, load| in_memory::pieces(model, load, segments),
        cost: |model, load| {
            in_memory::cost_one_way(model, load, [0.0, 1.0], tree_cost, |model, segment| model.message(segment))
        },
        build: in_memory::build,
    },
    in_memory::MOVED_BY_ALL,
];

fn tree_cost(model: &Model, load: &Load<'_>) -> f64 {
    load.rounds * model.message(load.bytes)
}

/// As [`segments`], for the chain of the groups that goes on inside each of them.
fn two_hop_pieces(model: &Model, load: &Load<'_>) -> f64 {
    let mut hops = (load.of_leaders().size - 2.0) * model.per_byte;
    let mut start = model.latency + model.overhead;
    for (width, inside) in load.levels().filter(|(width, _)| *width > 1.0) {
        hops += (width - 1.0) * inside.per_byte;
        start += inside.overhead;
    }
    (hops * load.bytes / start).sqrt().floor().max(1.0)
}

/// In one piece trees; in several chains, whose first piece goes all the way while a leader's port serves all hops.
fn two_hop_cost(model: &Model, load: &Load<'_>) -> f64 {
    let (pieces, leaders) = (two_hop_pieces(model, load), load.of_leaders());
    let message = |model: &Model| model.message(load.bytes / pieces);
    if pieces < 2.0 {
        let inside = load.levels().map(|(width, inside)| width.log2().ceil() * message(&inside));
        return leaders.rounds * message(model) + inside.sum::<f64>();
    }
    let (mut first, mut busy) = ((leaders.size - 1.0) * message(model), message(model) - model.latency);
    for (width, inside) in load.levels().filter(|(width, _)| *width > 1.0) {
        first += (width - 1.0) * message(&inside);
        busy += message(&inside) - inside.latency;
    }
    first + (pieces - 1.0) * busy
}

/// The root sends to everyone, nearest rank first.
///
/// Cost: `latency + (p - 1) (overhead + n beta)`: the root's port is the bottleneck.
pub fn linear(b: &mut Builder, group: &Group<'_>, root: usize, data: Slice) {
    if group.rank() == root {
        for distance in 1..group.size() {
            b.send(group.ahead(distance), data);
        }
    } else {
        b.receive(group.peer(root), data);
    }
}

/// A binomial tree: whoever has the data sends it on, largest subtree first.
///
/// Cost: `log2(p) (latency + overhead + n beta)`.
pub fn binomial(b: &mut Builder, group: &Group<'_>, root: usize, data: Slice) {
    let size = group.size();
    let rank_of = |v: usize| group.peer((v + root) % size);
    let v = (group.rank() + size - root) % size;
    if let Some(parent) = parent(v) {
        b.receive(rank_of(parent), data);
    }
    for child in children(v, size).rev() {
        b.send(rank_of(child), data);
    }
}

/// A k-nomial tree: as [`binomial`], with `radix` positions where that has two.
///
/// Cost: `log_k(p) (latency + (k - 1) (overhead + n beta))`.
pub fn knomial(b: &mut Builder, group: &Group<'_>, root: usize, data: Slice, radix: usize) {
    let size = group.size();
    let rank_of = |v: usize| group.peer((v + root) % size);
    let v = (group.rank() + size - root) % size;
    if let Some(parent) = knomial::parent(v, radix) {
        b.receive(rank_of(parent), data);
    }
    for child in knomial::children(v, size, radix).into_iter().rev() {
        b.send(rank_of(child), data);
    }
}

/// A chain from the root round to the rank before it, in segments of at most `segment` elements.
///
/// Cost with K segments: `(p - 1) latency + (p - 2 + K) (overhead + (n / K) beta)`.
pub fn chain(b: &mut Builder, group: &Group<'_>, root: usize, data: Slice, segment: usize) {
    let v = (group.rank() + group.size() - root) % group.size();
    for piece in pieces(data, segment) {
        if v > 0 {
            b.receive(group.behind(1), piece);
        }
        if v + 1 < group.size() {
            b.send(group.ahead(1), piece);
        }
    }
}

/// A slice in pieces of at most `segment` elements; one without elements where the slice has none.
pub(super) fn pieces(data: Slice, segment: usize) -> impl Iterator<Item = Slice> {
    let segment = segment.max(1);
    let count = data.length.div_ceil(segment).max(1);
    (0..count).map(move |index| data.part(index * segment, segment.min(data.length - index * segment)))
}

/// The number of segments: `sqrt((p - 2) n beta / (latency + overhead))`, at least one. That is best when each message
/// costs its latency, as with a rendezvous; where latency is hidden more segments would do.
pub(super) fn segments(model: &Model, load: &Load<'_>) -> f64 {
    ((load.size - 2.0) * load.bytes * model.per_byte / (model.latency + model.overhead)).sqrt().max(1.0)
}
