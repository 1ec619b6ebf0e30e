//! Reduce: everyone's slice combined into one at the root.

use super::two_hop::Towards;
use super::{
    Algorithm, Load, Pieces, Pipeline, RADIX, Restriction, Shape, broadcast, children, in_memory, knomial, parent,
    whole,
};
use crate::compose::{Blocks, Builder, Group};
use crate::price::Model;
use crate::schedule::{Schedule, ScheduleError, Side, Slice};

pub(super) const ALGORITHMS: &[Algorithm] = &[
    Algorithm {
        name: "linear",
        restrictions: &[],
        source: "the root receives from everyone in rank order, a few at a time",
        pieces: whole,
        cost: |model, load| load.fan(model, load.bytes) + model.reduction(load.bytes),
        build: |shape| build(shape, linear),
    },
    Algorithm {
        name: "binomial",
        restrictions: &[Restriction::CommutativeOnly],
        source: "Thakur, Rabenseifner, Gropp: Optimization of collective communication operations in MPICH, 2005",
        pieces: whole,
        cost: tree_cost,
        build: |shape| build(shape, binomial),
    },
    Algorithm {
        name: "knomial",
        restrictions: &[Restriction::CommutativeOnly],
        source: "the same with four positions where the binomial tree has two: half the rounds, more messages in each",
        pieces: whole,
        cost: |model, load| {
            load.by_radix(&load.along_tree(model), load.rounds, load.bytes)
                + 1.5 * load.rounds * model.reduction(load.bytes)
        },
        build: |shape| build(shape, |b, group, root, own, result| knomial(b, group, root, own, result, RADIX)),
    },
    Algorithm {
        name: "binomial_ordered",
        restrictions: &[],
        source: "the same tree rooted at rank 0, which keeps the order of the ranks, and one message to the root",
        pieces: whole,
        cost: |model, load| tree_cost(model, load) + model.message(load.bytes),
        build: |shape| build(shape, binomial_ordered),
    },
    Algorithm {
        name: "chain",
        restrictions: &[Restriction::CommutativeOnly],
        source: "Pjesivac-Grbovic et al.: Performance analysis of MPI collective operations, 2005 (pipeline)",
        pieces: |model, load| Pieces::alike(broadcast::segments(model, load)),
        cost: |model, load| {
            let segments = broadcast::segments(model, load);
            let piece = load.bytes / segments;
            let message = model.message(piece) + model.reduction(piece);
            load.neighbours(model, load.bytes / segments) + (segments - 1.0) * (message - model.latency)
        },
        build: |shape| {
            let segment = shape.parameters.segment;
            build(shape, |b, group, root, own, result| {
                let own = broadcast::pieces(own, segment);
                let mut result = result.map(|result| broadcast::pieces(result, segment));
                for piece in own {
                    chain(b, group, root, piece, result.as_mut().and_then(Iterator::next));
                }
            })
        },
    },
    Algorithm {
        name: "two_hop",
        restrictions: &[Restriction::TwoLevels, Restriction::CommutativeUnlessRuns],
        source: "Graham et al.: Cheetah, 2011, and Luo et al.: HAN, 2020 (a tree inside groups, a tree between them)",
        pieces: |model, load| Pieces::alike(two_hop_stages(model, load).pieces(load.bytes)),
        cost: |model, load| two_hop_stages(model, load).cost(load.bytes),
        build: |shape| build_two_hop(shape, binomial_ordered),
    },
    Algorithm {
        name: "two_hop_chain",
        restrictions: &[Restriction::TwoLevels, Restriction::CommutativeOnly],
        source: "the same with a pipelined chain of the groups: each link between groups carries the data once",
        pieces: |model, load| Pieces::in_two_hops(broadcast::segments(model, &chain_of_groups(load)), load),
        cost: |model, load| two_hop_chain_cost(model, load),
        build: |shape| build_two_hop(shape, chain),
    },
    Algorithm {
        name: in_memory::NAME,
        restrictions: &[Restriction::TwoLevels, Restriction::CommutativeUnlessRuns, Restriction::SharedGroups],
        source: in_memory::SOURCE,
        pieces: |model, load| in_memory::pieces(model, load, broadcast::segments),
        cost: |model, load| {
            in_memory::cost_one_way(model, load, [1.0, 0.0], tree_cost, |model, segment| {
                model.message(segment) + model.reduction(segment)
            })
        },
        build: in_memory::build,
    },
    in_memory::COMBINED_BY_ALL,
];

fn tree_cost(model: &Model, load: &Load<'_>) -> f64 {
    load.rounds * (load.along_tree(model).message(load.bytes) + model.reduction(load.bytes))
}

/// The tree inside the groups, and those of the levels above and between the outermost groups.
fn two_hop_stages(model: &Model, load: &Load<'_>) -> Pipeline<impl Fn(f64, bool) -> [f64; 3]> {
    let (model, load) = (*model, *load);
    Pipeline(move |bytes, _| {
        let tree = |width: f64, model: Model| width.log2().ceil() * (model.message(bytes) + model.reduction(bytes));
        let above = load.levels().skip(1).map(|(width, inside)| tree(width, inside)).sum::<f64>();
        [tree(load.width, load.inside), above + tree(load.of_leaders().size, model), 0.0]
    })
}

/// The groups that a piece passes one after the other: those of its own larger group, and then one of each.
fn chain_of_groups<'a>(load: &Load<'a>) -> Load<'a> {
    load.of_ranks(load.of_leaders().size + load.levels().skip(1).map(|(width, _)| width - 1.0).sum::<f64>())
}

/// The first chunk is combined inside the groups, its segments go through the groups one after the other; the others follow
/// as fast as the slower of the two stages. A leader of groups of groups takes in what each level brings.
fn two_hop_chain_cost(model: &Model, load: &Load<'_>) -> f64 {
    let groups = chain_of_groups(load);
    let Pieces { segments, chunks } = Pieces::in_two_hops(broadcast::segments(model, &groups), load);
    let one = |model: &Model, bytes: f64| model.message(bytes) + model.reduction(bytes);
    let inside = load.width.log2().ceil() * one(&load.inside, load.bytes / chunks);
    let piece = load.bytes / segments;
    let hop = |hops: f64, model: &Model| (hops * one(model, piece), one(model, piece) - model.latency);
    let (mut first, mut next) = hop(load.of_leaders().size - 1.0, model);
    for (width, between) in load.levels().skip(1).filter(|(width, _)| *width > 1.0) {
        let (fill, busy) = hop(width - 1.0, &between);
        (first, next) = (first + fill, next + busy);
    }
    inside + first + ((chunks - 1.0) * inside).max((segments - 1.0) * next)
}

fn build_two_hop(shape: &Shape<'_>, between: Towards) -> Result<Schedule, ScheduleError> {
    let hops = shape.two_hop();
    build(shape, |b, _, root, own, result| hops.reduce(b, root, own, result, between))
}

fn build(
    shape: &Shape<'_>,
    emit: impl FnOnce(&mut Builder, &Group<'_>, usize, Slice, Option<Slice>),
) -> Result<Schedule, ScheduleError> {
    let output = if shape.is_root() { shape.elements } else { 0 };
    let mut b = Builder::new(shape.rank, shape.size, shape.elements, output);
    let (input, output) = (b.input(), b.output());
    emit(&mut b, &shape.group(), shape.root, input, shape.is_root().then_some(output));
    b.finish()
}

/// How many messages the linear root has room for: enough to keep its port busy while it reduces, few enough that
/// p - 1 senders cannot all send at once.
const WINDOW: usize = 4;

/// Combines slices from left to right, in the order of the calls, without copying where it can.
///
/// `own` is this rank's contribution, `result` the place of the result; they may be the same slice.
struct Accumulator {
    own: Slice,
    result: Slice,
    /// The value so far: nothing, the contribution where it lies, or a slice that may be written.
    value: Option<Slice>,
    slots: Vec<Slice>,
    window: usize,
    received: usize,
}

impl Accumulator {
    fn new(own: Slice, result: Slice, window: usize) -> Accumulator {
        Accumulator { own, result, value: None, slots: Vec::new(), window, received: 0 }
    }

    /// value = value op own.
    fn absorb_own(&mut self, b: &mut Builder) {
        self.value = match self.value {
            None => Some(self.own),
            Some(value) if value == self.result => {
                b.reduce(self.own, value, Side::Right);
                Some(value)
            }
            // In place: the values from the left lie in scratch, the contribution where the result goes.
            Some(value) => {
                b.reduce(value, self.result, Side::Left);
                Some(self.result)
            }
        };
    }

    /// value = value op (what `peer` sends).
    fn absorb(&mut self, b: &mut Builder, peer: usize) {
        self.value = Some(match self.value {
            None => {
                let place = if self.own == self.result { b.scratch(self.result.length) } else { self.result };
                b.receive(peer, place);
                place
            }
            Some(value) if value == self.own && self.own != self.result => {
                b.receive(peer, self.result);
                b.reduce(self.own, self.result, Side::Left);
                self.result
            }
            Some(value) => {
                let slot = self.slot(b);
                b.receive(peer, slot);
                b.reduce(slot, value, Side::Right);
                value
            }
        });
    }

    /// Room for one message; after `window` of them the first is used again.
    fn slot(&mut self, b: &mut Builder) -> Slice {
        let index = self.received % self.window;
        self.received += 1;
        if index == self.slots.len() {
            self.slots.push(b.scratch(self.result.length));
        }
        self.slots[index]
    }
}

/// The root receives from everyone in rank order, at most a few at a time, and combines from left to right.
///
/// Cost: `latency + (p - 1) (overhead + n beta) + n gamma`: the root's port is the bottleneck, reductions overlap.
pub fn linear(b: &mut Builder, group: &Group<'_>, root: usize, own: Slice, result: Option<Slice>) {
    if group.rank() != root {
        b.send(group.peer(root), own);
        return;
    }
    let mut sum = Accumulator::new(own, result.unwrap_or(own), WINDOW);
    for member in 0..group.size() {
        if member == root {
            sum.absorb_own(b);
        } else {
            sum.absorb(b, group.peer(member));
        }
    }
    if sum.value == Some(own) && own != sum.result {
        b.copy(own, sum.result);
    }
}

/// A binomial tree rooted at the root: ranks are combined in cyclic order from there.
///
/// `result` is where the root's result goes, and, on other ranks, room that may be written (else scratch is taken).
/// Cost: `log2(p) (latency + overhead + n beta + n gamma)`.
pub fn binomial(b: &mut Builder, group: &Group<'_>, root: usize, own: Slice, result: Option<Slice>) {
    let size = group.size();
    let v = (group.rank() + size - root) % size;
    tree(b, group, v, |v| group.peer((v + root) % size), own, result);
}

/// A k-nomial tree: as [`binomial`], with `radix` positions where that has two.
///
/// Cost: `log_k(p) (latency + (k - 1) (overhead + n beta + n gamma))`.
pub fn knomial(b: &mut Builder, group: &Group<'_>, root: usize, own: Slice, result: Option<Slice>, radix: usize) {
    let size = group.size();
    let v = (group.rank() + size - root) % size;
    let children = knomial::children(v, size, radix);
    join(b, None, &children, knomial::parent(v, radix), |v| group.peer((v + root) % size), own, result);
}

/// The tree of [`binomial`] rooted at rank 0, whose result is that of rank order, and one message from there to the
/// root.
///
/// Cost: as [`binomial`], and `latency + overhead + n beta` unless the root is rank 0.
pub fn binomial_ordered(b: &mut Builder, group: &Group<'_>, root: usize, own: Slice, result: Option<Slice>) {
    let rank = group.rank();
    // The root's result comes at the end; until then its place is as good as scratch.
    let value = tree(b, group, rank, |v| group.peer(v), own, result);
    if root != 0 && rank == 0 {
        b.send(group.peer(root), value);
    }
    if root != 0 && rank == root {
        b.receive(group.peer(0), result.unwrap_or(own));
    }
}

/// One piece on its way along a chain that ends at the root: everyone combines what comes from the rank ahead and passes
/// it on. Pieces that follow each other make a pipeline.
///
/// Combined in cyclic order from the root, so that the operator must commute. Cost with K pieces:
/// `(p - 1) latency + (p - 2 + K) (overhead + (n / K) (beta + gamma))`.
pub fn chain(b: &mut Builder, group: &Group<'_>, root: usize, own: Slice, result: Option<Slice>) {
    let size = group.size();
    let v = (group.rank() + size - root) % size;
    let value = if v + 1 == size {
        match result.filter(|result| *result != own) {
            Some(result) => {
                b.copy(own, result);
                result
            }
            None => own,
        }
    } else {
        let mut sum = Accumulator::new(own, result.unwrap_or(own), 1);
        if result.is_none() {
            // What passes through must not change this rank's own data.
            sum.result = b.scratch(own.length);
        }
        sum.absorb_own(b);
        sum.absorb(b, group.ahead(1));
        sum.value.unwrap_or(own)
    };
    if v > 0 {
        b.send(group.behind(1), value);
    }
}

/// A tree to a root in which no rank combines the data of more than `fan_in` others, in rank order: the binomial one where
/// that is narrow enough, else one whose ranks have `fan_in` children each, a chain for 1. Those before the root have a tree of
/// their own, of which it takes the result; for a chain that is one more.
///
/// Cost: with f children `log_f(p) (latency + f (overhead + n beta + n gamma))`.
pub fn bounded(b: &mut Builder, group: &Group<'_>, fan_in: usize, root: usize, own: Slice, result: Option<Slice>) {
    let rank = group.rank();
    let (start, end) = if rank < root { (0, root) } else { (root, group.size()) };
    let most = if rank < root || root == 0 { fan_in } else { fan_in.saturating_sub(1) }.max(1);
    let (parent, children) = if children(0, end - start).count() <= most {
        (parent(rank - start), children(rank - start, end - start).collect())
    } else {
        place(rank - start, end - start, most)
    };
    let before = (rank == root && root > 0).then_some(0);
    let parent = parent.map(|parent| start + parent).or((rank < root).then_some(root));
    let children: Vec<usize> = children.into_iter().map(|child| start + child).collect();
    join(b, before, &children, parent, |v| group.peer(v), own, result);
}

/// Parent and children of a position in a tree of which each position leads a run of those after it, which it cuts into
/// as many runs as it has children.
fn place(position: usize, size: usize, fan_in: usize) -> (Option<usize>, Vec<usize>) {
    let (mut parent, mut start, mut end) = (None, 0, size);
    loop {
        let runs = Blocks::new(Slice::output(start + 1, end - start - 1), fan_in.min(end - start - 1));
        let mut runs = (0..runs.parts()).map(|index| runs.block(index).range()).filter(|run| !run.is_empty());
        if start == position {
            return (parent, runs.map(|run| run.start).collect());
        }
        let Some(run) = runs.find(|run| run.contains(&position)) else {
            unreachable!("a run holds all positions behind its first")
        };
        (parent, start, end) = (Some(start), run.start, run.end);
    }
}

/// Reduces to position 0 of a binomial tree and returns where this position's value lies.
fn tree(
    b: &mut Builder,
    group: &Group<'_>,
    v: usize,
    rank_of: impl Fn(usize) -> usize,
    own: Slice,
    result: Option<Slice>,
) -> Slice {
    let children: Vec<usize> = children(v, group.size()).collect();
    join(b, None, &children, parent(v), rank_of, own, result)
}

/// Combines what comes from a position before this one, this position's data and that of its children, from left to right,
/// and sends it to the parent; returns where it lies.
fn join(
    b: &mut Builder,
    before: Option<usize>,
    children: &[usize],
    parent: Option<usize>,
    rank_of: impl Fn(usize) -> usize,
    own: Slice,
    result: Option<Slice>,
) -> Slice {
    let result = match result {
        Some(result) => result,
        None if before.is_some() || !children.is_empty() => b.scratch(own.length),
        None => own,
    };
    let mut sum = Accumulator::new(own, result, 2);
    if let Some(before) = before {
        sum.absorb(b, rank_of(before));
    }
    sum.absorb_own(b);
    for child in children {
        sum.absorb(b, rank_of(*child));
    }
    let value = sum.value.unwrap_or(own);
    match parent {
        Some(parent) => {
            b.send(rank_of(parent), value);
        }
        None if value == own && own != result => {
            b.copy(own, result);
            return result;
        }
        None => {}
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bounded_tree_holds_every_position_once_with_no_more_children_than_allowed() {
        for size in 1..40 {
            for fan_in in 1..8 {
                let mut seen = vec![0; size];
                for position in 0..size {
                    let (parent, children) = place(position, size, fan_in);
                    assert!(children.len() <= fan_in && children.is_sorted());
                    assert_eq!(parent.is_none(), position == 0);
                    for child in children {
                        assert_eq!(place(child, size, fan_in).0, Some(position));
                        seen[child] += 1;
                    }
                }
                assert_eq!((seen[0], seen[1..].iter().all(|times| *times == 1)), (0, true), "{size} by {fan_in}");
            }
        }
    }
}
