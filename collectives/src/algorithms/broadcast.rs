//! Broadcast: from the root's slice to the same slice of every rank.

use super::{Algorithm, Load, children, parent};
use crate::compose::{Builder, Group};
use crate::price::Model;
use crate::schedule::Slice;

pub(super) const ALGORITHMS: &[Algorithm] = &[
    Algorithm {
        name: "linear",
        restrictions: &[],
        source: "the root sends to everyone",
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
        cost: |model, load| load.rounds * model.message(load.bytes),
        build: |shape| {
            let mut b = shape.in_place();
            let data = b.output();
            binomial(&mut b, &shape.group(), shape.root, data);
            b.finish()
        },
    },
    Algorithm {
        name: "chain",
        restrictions: &[],
        source: "Pjesivac-Grbovic et al.: Performance analysis of MPI collective operations, 2005 (pipeline)",
        cost: |model, load| {
            let segments = segments(model, load);
            let message = model.message(load.bytes / segments);
            (load.size - 1.0) * message + (segments - 1.0) * (message - model.latency)
        },
        build: |shape| {
            let mut b = shape.in_place();
            let data = b.output();
            chain(&mut b, &shape.group(), shape.root, data, shape.segment);
            b.finish()
        },
    },
];

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
fn pieces(data: Slice, segment: usize) -> impl Iterator<Item = Slice> {
    let segment = segment.max(1);
    let count = data.length.div_ceil(segment).max(1);
    (0..count).map(move |index| data.part(index * segment, segment.min(data.length - index * segment)))
}

/// The number of segments: `sqrt((p - 2) n beta / (latency + overhead))`, at least one. That is best when each message
/// costs its latency, as with a rendezvous; where latency is hidden more segments would do.
fn segments(model: &Model, load: &Load) -> f64 {
    ((load.size - 2.0) * load.bytes * model.per_byte / (model.latency + model.overhead)).sqrt().max(1.0)
}

/// Elements of a segment of the chain that the model finds best.
pub(crate) fn segment(model: &Model, size: usize, elements: usize, element_bytes: usize) -> usize {
    let load = Load::new(size.max(2), elements.saturating_mul(element_bytes));
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // A small number, and at least 1.
    let segments = segments(model, &load).round() as usize;
    elements.div_ceil(segments).max(1)
}
