//! All-reduce, in place: everyone's slice combined, and the same bits on every rank.
//!
//! That all ranks get the same bits holds by construction and is proved by the checker: each element is computed on one
//! rank and copied, or computed on several by the very same expression, operands in rank order.

pub(super) mod fold;
mod rabenseifner;
mod recursive_doubling;
mod recursive_multiplying;
mod ring;

pub use rabenseifner::rabenseifner;
pub use recursive_doubling::recursive_doubling;
pub use recursive_multiplying::recursive_multiplying;
pub use ring::ring;

use super::two_hop::Between;
use super::{Algorithm, Load, Pieces, Pipeline, Restriction, Shape, broadcast, double_tree, in_memory, reduce, whole};
use crate::compose::{Builder, Group};
use crate::price::Model;
use crate::schedule::{Schedule, ScheduleError, Slice};

pub(super) const ALGORITHMS: &[Algorithm] = &[
    Algorithm {
        name: "linear",
        restrictions: &[],
        source: "reduce to rank 0 in rank order and broadcast, without a tree",
        pieces: whole,
        cost: |model, load| 2.0 * load.fan(model, load.bytes) + model.reduction(load.bytes),
        build: |shape| build(shape, linear),
    },
    Algorithm {
        name: "binomial",
        restrictions: &[],
        source: "reduce to rank 0 and broadcast along a binomial tree; fewest messages: 2 (p - 1) in all",
        pieces: whole,
        cost: |model, load| {
            load.rounds * (2.0 * load.along_tree(model).message(load.bytes) + model.reduction(load.bytes))
        },
        build: |shape| build(shape, binomial),
    },
    Algorithm {
        name: "recursive_doubling",
        restrictions: &[],
        source: "Thakur, Rabenseifner, Gropp: Optimization of collective communication operations in MPICH, 2005",
        pieces: whole,
        cost: doubling_cost,
        build: |shape| build(shape, recursive_doubling),
    },
    Algorithm {
        name: "recursive_multiplying",
        restrictions: &[],
        source: "Ruefenacht, Bull, Booth: Generalisation of recursive doubling for AllReduce, 2017 (four ranks a round)",
        pieces: whole,
        cost: |model, load| {
            if load.width > 1.0 && load.groups > 1.0 {
                // Ranks of a group share a port, which is as busy as in recursive doubling or busier.
                return 1.5 * doubling_cost(model, load);
            }
            load.by_radix(model, load.core_rounds(), load.bytes)
                + 1.5 * load.core_rounds() * model.reduction(load.bytes)
                + load.folding(model)
        },
        build: |shape| build(shape, recursive_multiplying),
    },
    Algorithm {
        name: "double_tree",
        restrictions: &[Restriction::CommutativeOnly],
        source: "Sanders, Speck, Träff: Two-tree algorithms for full bandwidth broadcast, reduction and scan, 2009",
        pieces: |model, load| Pieces::alike(2.0 * load.halves_in(model)),
        cost: |model, load| {
            let (model, halves) = (load.all_at_once(model), load.halves_in(model));
            let segment = load.bytes / (2.0 * halves);
            let busy = model.overhead + segment * (model.per_byte + model.per_byte_reduced);
            // Of the later segments each rank passes four, and each waits for the answer to its request.
            4.0 * load.rounds * (model.latency + busy) + 8.0 * (halves - 1.0) * busy
        },
        build: |shape| {
            let segment = shape.parameters.segment;
            build(shape, |b, group, data| double_tree::all_reduce(b, group, data, segment))
        },
    },
    Algorithm {
        name: "ring",
        restrictions: &[Restriction::CommutativeOnly],
        source: "Patarasuk, Yuan: Bandwidth optimal all-reduce algorithms for clusters of workstations, 2009",
        pieces: whole,
        cost: ring_cost,
        build: |shape| build(shape, |b, group, data| ring(b, group, data, usize::MAX)),
    },
    Algorithm {
        name: "segmented_ring",
        restrictions: &[Restriction::CommutativeOnly],
        source: "the same with blocks in segments, as Open MPI's segmented ring: a block is passed on while it comes in",
        pieces: |model, load| Pieces::alike(ring_segments(model, load)),
        cost: segmented_ring_cost,
        build: |shape| build(shape, |b, group, data| ring(b, group, data, shape.parameters.segment)),
    },
    Algorithm {
        name: "rabenseifner",
        restrictions: &[],
        source: "Rabenseifner: Optimization of collective reduction operations, 2004 (vector halving, distance doubling)",
        pieces: whole,
        cost: rabenseifner_cost,
        build: |shape| build(shape, rabenseifner),
    },
    Algorithm {
        name: "two_hop",
        restrictions: &[Restriction::TwoLevels, Restriction::CommutativeUnlessRuns],
        source: "Luo et al.: HAN, 2020; Bayatpour et al.: DPML, 2017 (several leaders); recursive doubling between groups",
        pieces: |model, load| Pieces::alike(two_hop_stages(model, load, doubling_cost).pieces(load.bytes)),
        cost: |model, load| two_hop_stages(model, load, doubling_cost).cost(load.bytes),
        build: |shape| build_two_hop(shape, |b, group, data, _| recursive_doubling(b, group, data)),
    },
    Algorithm {
        name: "two_hop_ring",
        restrictions: &[Restriction::TwoLevels, Restriction::CommutativeOnly],
        source: "the same with a ring of the groups: each link between groups carries the data twice, whatever their number",
        pieces: ring_in_two_hops,
        cost: |model, load| two_hop_stages(model, load, ring_cost).cost(load.bytes),
        build: |shape| build_two_hop(shape, ring),
    },
    Algorithm {
        name: in_memory::NAME,
        restrictions: &[Restriction::TwoLevels, Restriction::CommutativeUnlessRuns, Restriction::SharedGroups],
        source: in_memory::SOURCE,
        pieces: |model, load| in_memory::pieces(model, load, ring_segments),
        cost: |model, load| in_memory::stages(model, load, cheapest_between).cost(load.bytes),
        build: in_memory::build,
    },
    in_memory::COMBINED_BY_ALL,
];

/// Among leaders that are no group of others.
fn cheapest_between(model: &Model, load: &Load<'_>) -> f64 {
    doubling_cost(model, load).min(rabenseifner_cost(model, load)).min(ring_cost(model, load))
}

fn doubling_cost(model: &Model, load: &Load<'_>) -> f64 {
    let rounds = load.core_rounds();
    rounds * (load.all_at_once(model).message(load.bytes) + model.reduction(load.bytes)) + load.folding(model)
}

/// The rounds with most data are those at small distances, inside the groups.
fn rabenseifner_cost(model: &Model, load: &Load<'_>) -> f64 {
    let part = |ranks: f64| load.bytes * (ranks - 1.0) / ranks;
    let moved = if load.runs || load.width == 1.0 {
        let between = load.racks.map_or(*model, |racks| racks.between);
        let shared = load.racks.map_or(0.0, |racks| part(racks.count) * racks.port);
        part(load.width) * load.inside.per_byte + part(load.groups) * between.per_byte + shared
    } else {
        part(load.size) * load.width * model.per_byte
    };
    2.0 * (load.core_rounds() * load.all_at_once(model).message(0.0) + moved)
        + model.reduction(part(load.size))
        + load.folding(model)
}

fn ring_cost(model: &Model, load: &Load<'_>) -> f64 {
    let block = load.bytes / load.size;
    2.0 * load.neighbours(model, block) + (load.size - 1.0) * model.reduction(block)
}

/// Segments of all data: one of a block takes a link four times as long as what a message costs whatever its length.
fn ring_segments(model: &Model, load: &Load<'_>) -> f64 {
    (load.bytes * model.per_byte / (4.0 * (model.latency + model.overhead))).max(load.size)
}

/// A round waits for one segment of the block before, and each segment costs its overhead; all but the last reduction of a
/// block overlap.
fn segmented_ring_cost(model: &Model, load: &Load<'_>) -> f64 {
    let (block, segments) = (load.bytes / load.size, ring_segments(model, load) / load.size);
    let overheads = 2.0 * (load.size - 1.0) * (segments - 1.0) * model.overhead;
    2.0 * load.neighbours(model, block) + overheads + (load.size - 1.0) * model.reduction(block / segments)
}

/// Chunks as the stages want them; between the groups their blocks in segments.
fn ring_in_two_hops(model: &Model, load: &Load<'_>) -> Pieces {
    let chunks = two_hop_stages(model, load, ring_cost).pieces(load.bytes);
    Pieces { segments: ring_segments(model, &load.of_leaders()).max(chunks), chunks }
}

/// Into the leaders, between them, out of them. What is done on levels above passes the links of the leaders one after the
/// other and is one stage: there all members of a group lead, each its share, if that is worth it.
fn two_hop_stages(
    model: &Model,
    load: &Load<'_>,
    between: fn(&Model, &Load<'_>) -> f64,
) -> Pipeline<impl Fn(f64, bool) -> [f64; 3]> {
    let (model, load, leaders) = (*model, *load, load.of_leaders());
    Pipeline(move |bytes, is_cut| {
        let tree = |width: f64, inside: Model, bytes: f64| {
            let (rounds, message) = (width.log2().ceil(), inside.message(bytes));
            [rounds * (message + inside.reduction(bytes)), rounds * message]
        };
        let (mut above, mut leading, mut share) = (0.0, 1.0, bytes);
        for (width, inside) in load.levels().skip(1) {
            if width > 1.0 && is_shared(share, width, is_cut) {
                (leading, share) = (leading * width, share / width);
                above += (width - 1.0) * (2.0 * inside.message(share) + inside.reduction(share));
            } else {
                above += tree(width, inside, share).iter().sum::<f64>();
            }
        }
        // All of them pass the port of their rack at once.
        let port = load.racks.map_or(0.0, |racks| racks.port);
        let model = Model { per_byte: model.per_byte.max(leading * port), ..model };
        let [into, out_of] = tree(load.width, load.inside, bytes);
        [into, above + between(&model, &leaders.of_bytes(share)), out_of]
    })
}

/// As [`two_hop`](super::two_hop) decides, for elements of four bytes.
fn is_shared(bytes: f64, width: f64, is_cut: bool) -> bool {
    const SHARE: f64 = (4 * super::two_hop::SHARE) as f64;
    is_cut || bytes >= width * SHARE
}

fn build_two_hop(shape: &Shape<'_>, between: Between) -> Result<Schedule, ScheduleError> {
    let hops = shape.two_hop();
    build(shape, |b, _, data| hops.all_reduce(b, data, shape.parameters.leaders, between))
}

fn build(shape: &Shape<'_>, emit: impl FnOnce(&mut Builder, &Group<'_>, Slice)) -> Result<Schedule, ScheduleError> {
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
