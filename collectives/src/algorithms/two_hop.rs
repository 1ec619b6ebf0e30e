//! Two hops: inside each group first, then between the groups, and back, chunk by chunk.
//!
//! Compositions of the other algorithms. Each chunk has one member of each group as its leader, turn by turn; what is
//! done inside and between the groups are algorithms of their own. Chunks overlap by dependencies alone: while the
//! leaders are at one, their groups are at the next. Between the groups a chunk travels in smaller segments: there bytes
//! are slow and a short pipeline counts, inside a group a message costs a turn of a processor whatever its length.

use super::{Parameters, barrier, broadcast, reduce};
use crate::compose::{Blocks, Builder, Group};
use crate::groups::Groups;
use crate::schedule::Slice;

/// How many chunks may be on their way at once: one for each stage of an all-reduce (in, between, and out) and one that
/// waits.
const DEPTH: usize = 4;

/// What leaders of the groups do with a chunk that all of them get, in segments of at most so many elements.
pub type Between = fn(&mut Builder, &Group<'_>, Slice, usize);

/// What leaders of the groups do with a segment of a chunk that the one at a position gets: own, and result there.
pub type Towards = fn(&mut Builder, &Group<'_>, usize, Slice, Option<Slice>);

/// The two levels as one rank sees them.
#[derive(Clone, Copy, Debug)]
pub struct TwoHop<'a> {
    groups: &'a Groups,
    rank: usize,
    parameters: Parameters,
    /// This rank's group, whole.
    inside: Group<'a>,
}

impl<'a> TwoHop<'a> {
    /// The levels of a rank.
    ///
    /// # Panics
    /// When the groups have no such rank.
    #[must_use]
    pub fn new(groups: &'a Groups, rank: usize, parameters: Parameters) -> TwoHop<'a> {
        let members = groups.members(groups.of(rank));
        let inside = Group::of(members, rank).unwrap_or_else(|| unreachable!("a rank is a member of its group"));
        TwoHop { groups, rank, parameters, inside }
    }

    /// All-reduce of `data` in place: every group reduces to its leader, the leaders all-reduce, every group broadcasts.
    ///
    /// With one leader the groups work along binomial trees, or narrower ones (`fan_in`); with several (as many as the smallest group has ranks, at
    /// most) each leads its share of the chunks and combines them straight out of what the others send. Rank order is
    /// kept if the groups are runs of ranks and `between` keeps it.
    ///
    /// Cost with K chunks of c = n / K bytes, one leader, g ranks a group and N groups: the three stages
    /// `log2(g) (alpha_i + c (beta_i + gamma))`, the all-reduce of c bytes on N leaders and `log2(g) (alpha_i + c beta_i)`
    /// for the first chunk, and K - 1 times the slowest of them.
    pub fn all_reduce(&self, b: &mut Builder, data: Slice, leaders: usize, between: Between) {
        let leaders = leaders.clamp(1, self.groups.widths().0.max(1));
        let chunks = self.chunks(data, leaders);
        let mark = b.mark();
        for index in 0..chunks.parts() {
            if index % DEPTH.max(leaders) == 0 {
                b.rewind(mark);
            }
            let (chunk, leader) = (chunks.block(index), index % leaders);
            if leaders == 1 {
                reduce::bounded(b, &self.inside, self.parameters.fan_in, chunk, Some(chunk));
            } else {
                reduce::linear(b, &self.inside, leader, chunk, Some(chunk));
            }
            if let Some(group) = Group::of(&self.leaders(leader), self.rank) {
                between(b, &group, chunk, self.parameters.segment);
            }
            if leaders == 1 {
                broadcast::binomial(b, &self.inside, 0, chunk);
            } else {
                broadcast::linear(b, &self.inside, leader, chunk);
            }
        }
    }

    /// Reduce: every group reduces to its leader, the leaders to the one in the root's group, which is the root itself.
    ///
    /// `result` is where the root's result goes. Rank order is kept if the groups are runs of ranks and `between` keeps
    /// it.
    pub fn reduce(&self, b: &mut Builder, root: usize, own: Slice, result: Option<Slice>, between: Towards) {
        let leaders = self.leaders_with(root);
        let (own, result) = (self.chunks(own, 1), result.map(|result| self.chunks(result, 1)));
        let mark = b.mark();
        for index in 0..own.parts() {
            if index % DEPTH == 0 {
                b.rewind(mark);
            }
            let (chunk, place) = (own.block(index), result.as_ref().map(|result| result.block(index)));
            let Some(group) = Group::of(&leaders, self.rank) else {
                self.reduce_inside(b, root, chunk, None);
                continue;
            };
            // The leader's value of its group: where the result goes at the root, else in scratch.
            let value = match place {
                Some(place) => place,
                None if self.inside.size() > 1 => b.scratch(chunk.length),
                None => chunk,
            };
            if self.inside.size() > 1 {
                self.reduce_inside(b, root, chunk, Some(value));
            } else if value != chunk {
                b.copy(chunk, value);
            }
            let mut places = place.map(|place| broadcast::pieces(place, self.parameters.segment));
            for piece in broadcast::pieces(value, self.parameters.segment) {
                between(b, &group, self.groups.of(root), piece, places.as_mut().and_then(Iterator::next));
            }
        }
    }

    /// The reduction of a chunk inside this rank's group: along a tree in rank order, to the root in its own group.
    fn reduce_inside(&self, b: &mut Builder, root: usize, chunk: Slice, result: Option<Slice>) {
        match self.position(root) {
            Some(0) | None => reduce::bounded(b, &self.inside, self.parameters.fan_in, chunk, result),
            Some(position) => reduce::binomial_ordered(b, &self.inside, position, chunk, result),
        }
    }

    /// Broadcast: from the root to the leaders of the other groups, from each leader to its group; along trees in one
    /// piece, along chains in several.
    pub fn broadcast(&self, b: &mut Builder, root: usize, data: Slice) {
        let leaders = self.leaders_with(root);
        let position = self.position(root).unwrap_or(0);
        let between = Group::of(&leaders, self.rank);
        let chunks = self.chunks(data, 1);
        for chunk in (0..chunks.parts()).map(|index| chunks.block(index)) {
            if chunks.parts() == 1 {
                between.iter().for_each(|group| broadcast::binomial(b, group, self.groups.of(root), chunk));
                broadcast::binomial(b, &self.inside, position, chunk);
            } else {
                between
                    .iter()
                    .for_each(|group| broadcast::chain(b, group, self.groups.of(root), chunk, self.parameters.segment));
                broadcast::chain(b, &self.inside, position, chunk, chunk.length);
            }
        }
    }

    /// Barrier: every group reports to its first rank, these tell each other, and let their groups go.
    pub fn barrier(&self, b: &mut Builder) {
        let mut reported = barrier::up(b, &self.inside);
        if let Some(leaders) = Group::of(&self.leaders(0), self.rank) {
            reported = barrier::dissemination_after(b, &leaders, reported);
        }
        barrier::down(b, &self.inside, reported);
    }

    /// The members at a position, one of each group, in the order of the groups.
    fn leaders(&self, position: usize) -> Vec<usize> {
        (0..self.groups.count()).map(|group| self.groups.members(group)[position]).collect()
    }

    /// The first rank of each group, and the root in its own.
    fn leaders_with(&self, root: usize) -> Vec<usize> {
        let leader = |group| if group == self.groups.of(root) { root } else { self.groups.members(group)[0] };
        (0..self.groups.count()).map(leader).collect()
    }

    /// Where a rank stands in this rank's group, if it does.
    fn position(&self, rank: usize) -> Option<usize> {
        (0..self.inside.size()).find(|&position| self.inside.peer(position) == rank)
    }

    /// `data` in chunks: at least one, and one a leader where there is enough data.
    fn chunks(&self, data: Slice, leaders: usize) -> Blocks {
        Blocks::new(data, data.length.div_ceil(self.parameters.chunk.max(1)).max(leaders.min(data.length)))
    }
}
