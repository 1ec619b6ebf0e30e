//! Two hops: inside each group first, then between the groups, and back, chunk by chunk; where the groups are in larger
//! groups, what is done between them is the same again.
//!
//! Compositions of the other algorithms. Each chunk has one member of each group as its leader, turn by turn; what is
//! done inside and between the groups are algorithms of their own. Chunks overlap by dependencies alone: while the
//! leaders are at one, their groups are at the next. Between the groups a chunk travels in smaller segments: there bytes
//! are slow and a short pipeline counts, inside a group a message costs a turn of a processor whatever its length.
//!
//! A third level is the composition once more, of the leaders of a chunk, whose groups are those of the level above. There
//! members are hosts with a link each, so that in an all-reduce all of them lead.

use super::{Parameters, barrier, broadcast, reduce};
use crate::compose::{Blocks, Builder, Group, StepId};
use crate::groups::Groups;
use crate::schedule::{Buffer, Side, Slice};

/// How many chunks may be on their way at once: one for each stage of an all-reduce (in, between, and out) and one that
/// waits.
const DEPTH: usize = 4;

/// Elements of a share below which the messages of shares cost more than a tree saves, where there is one chunk only.
pub(super) const SHARE: usize = 1024;

/// What leaders of the groups do with a chunk that all of them get, in segments of at most so many elements.
pub type Between = fn(&mut Builder, &Group<'_>, Slice, usize);

/// What leaders of the groups do with a segment of a chunk that the one at a position gets: own, and result there.
pub type Towards = fn(&mut Builder, &Group<'_>, usize, Slice, Option<Slice>);

/// Two levels and those above them, as one rank sees them.
#[derive(Clone, Debug)]
pub struct TwoHop<'a> {
    groups: &'a Groups,
    /// The ranks that are divided: all, or the leaders of the groups of the level below.
    all: Group<'a>,
    parameters: Parameters,
    /// The ranks of this rank's group.
    members: Vec<usize>,
    /// Whether these are leaders of groups of the level below.
    is_above: bool,
}

impl<'a> TwoHop<'a> {
    /// The levels of the ranks `all`, as seen by one of them; `groups` divides their positions.
    ///
    /// # Panics
    /// When `groups` has no such position.
    #[must_use]
    pub fn new(groups: &'a Groups, all: Group<'a>, parameters: Parameters) -> TwoHop<'a> {
        let members = groups.members(groups.of(all.rank())).iter().map(|position| all.peer(*position)).collect();
        TwoHop { groups, all, parameters, members, is_above: false }
    }

    /// The level above, of leaders of the groups, one of each in order, of which this rank is one.
    fn above<'b>(&self, above: &'b Groups, leaders: Group<'b>) -> TwoHop<'b> {
        TwoHop { is_above: true, ..TwoHop::new(above, leaders, self.parameters) }
    }

    /// All-reduce of `data` in place: every group reduces to its leader, the leaders all-reduce, every group broadcasts.
    ///
    /// With one leader the groups work along binomial trees, or narrower ones (`fan_in`); with several (as many as the
    /// smallest group has ranks, at most) each leads its share of the chunks and combines them straight out of what the
    /// others send. On the levels above the members are hosts, each with a link of its own: there each leads its share of
    /// every chunk, unless that would be less than `SHARE` elements of the only one. Rank order is kept if the groups are
    /// runs of ranks and `between` keeps it.
    ///
    /// Cost with K chunks of c = n / K bytes, one leader, g ranks a group and N groups: the three stages
    /// `log2(g) (alpha_i + c (beta_i + gamma))`, the all-reduce of c bytes on N leaders and `log2(g) (alpha_i + c beta_i)`
    /// for the first chunk, and K - 1 times the slowest of them. With a level above of h groups in each larger one, the
    /// all-reduce on the leaders is `2 (alpha + (h - 1) (o + (c / h) beta))` and the all-reduce of c / h bytes on their
    /// leaders, h of them at once.
    pub fn all_reduce(&self, b: &mut Builder, data: Slice, leaders: usize, between: Between) {
        let leaders = leaders.clamp(1, self.groups.widths().0.max(1));
        let chunks = self.chunks(data, leaders);
        let mark = b.mark();
        for index in 0..chunks.parts() {
            if index % DEPTH.max(leaders) == 0 {
                b.rewind(mark);
            }
            self.all_reduce_chunk(b, chunks.block(index), (index % leaders, leaders), chunks.parts() > 1, between);
        }
    }

    fn all_reduce_chunk(
        &self,
        b: &mut Builder,
        chunk: Slice,
        (leader, leaders): (usize, usize),
        is_cut: bool,
        between: Between,
    ) {
        let inside = self.inside();
        let position = self.groups.lead(self.group(), leader);
        if leaders == 1 {
            reduce::bounded(b, &inside, self.parameters.fan_in, position, chunk, Some(chunk));
        } else {
            reduce::linear(b, &inside, position, chunk, Some(chunk));
        }
        if inside.rank() == position {
            let ranks = self.leaders(|group| self.groups.members(group)[self.groups.lead(group, leader)]);
            self.all_reduce_between(b, &ranks, chunk, is_cut, between);
        }
        if leaders == 1 {
            broadcast::binomial(b, &inside, position, chunk);
        } else {
            broadcast::linear(b, &inside, position, chunk);
        }
    }

    /// What leaders do with a chunk, one of each group.
    fn all_reduce_between(&self, b: &mut Builder, ranks: &[usize], chunk: Slice, is_cut: bool, between: Between) {
        let group = self.among(ranks);
        let Some(above) = self.groups.above() else {
            return between(b, &group, chunk, self.parameters.segment);
        };
        let above = self.above(above, group);
        let leaders = above.groups.widths().0;
        if leaders > 1 && are_shared(chunk.length, leaders, is_cut) {
            above.all_reduce_shares(b, &Blocks::new(chunk, leaders), is_cut, between);
        } else {
            above.all_reduce_chunk(b, chunk, (0, 1), is_cut, between);
        }
    }

    /// Every group scatters what it reduces: each of the first members gets its share from all others, all-reduces it with
    /// those of the other groups, and sends it to all others. All begin with the member next to them.
    fn all_reduce_shares(&self, b: &mut Builder, shares: &Blocks, is_cut: bool, between: Between) {
        let inside = self.inside();
        let (rank, size) = (inside.rank(), inside.size());
        let share =
            |member: usize| (member < shares.parts()).then(|| shares.block(member)).filter(|one| one.length > 0);
        let own = share(rank);
        let (ahead, behind) = (|distance| (rank + distance) % size, |distance| (rank + size - distance) % size);
        let mut received = vec![Slice::EMPTY; size];
        let mut last = Vec::new();
        for distance in 1..size {
            if let Some(share) = share(ahead(distance)) {
                b.send(inside.ahead(distance), share);
            }
            if let Some(own) = own {
                let place = b.scratch(own.length);
                last = vec![b.receive_after(inside.behind(distance), place, &last)];
                received[behind(distance)] = place;
            }
        }
        if let Some(own) = own {
            // In rank order: those before this rank from left to right, then its own, then the others.
            let (before, after) = received.split_at(rank);
            if let [first, others @ ..] = before {
                others.iter().for_each(|place| _ = b.reduce(*place, *first, Side::Right));
                b.reduce(*first, own, Side::Left);
            }
            after[1..].iter().for_each(|place| _ = b.reduce(*place, own, Side::Right));
            let ranks = self.leaders(|group| self.groups.members(group)[rank]);
            self.all_reduce_between(b, &ranks, own, is_cut, between);
        }
        for distance in 1..size {
            if let Some(own) = own {
                b.send(inside.ahead(distance), own);
            }
            if let Some(share) = share(behind(distance)) {
                last = vec![b.receive_after(inside.behind(distance), share, &last)];
            }
        }
    }

    /// Reduce: every group reduces to its leader, the leaders to the one in the root's group, which is the root itself.
    ///
    /// `result` is where the root's result goes. Rank order is kept if the groups are runs of ranks and `between` keeps
    /// it. With a level above, the groups of leaders do among themselves what `between` does, and then their leaders.
    pub fn reduce(&self, b: &mut Builder, root: usize, own: Slice, result: Option<Slice>, between: Towards) {
        let (own, result) = (self.chunks(own, 1), result.map(|result| self.chunks(result, 1)));
        let mark = b.mark();
        for index in 0..own.parts() {
            if index % DEPTH == 0 {
                b.rewind(mark);
            }
            let place = result.as_ref().map(|result| result.block(index));
            self.reduce_chunk(b, root, own.block(index), place, between);
        }
    }

    /// `root` is a position among the ranks that are divided.
    fn reduce_chunk(&self, b: &mut Builder, root: usize, chunk: Slice, place: Option<Slice>, between: Towards) {
        let (inside, leader) = (self.inside(), self.leader(root));
        if inside.rank() != leader {
            return self.reduce_inside(b, root, chunk, None, between);
        }
        // The leader's value of its group: where the result goes at the root, else in scratch.
        let value = match place {
            Some(place) => place,
            None if inside.size() > 1 && chunk.buffer == Buffer::Input => b.scratch(chunk.length),
            None => chunk,
        };
        if inside.size() > 1 {
            self.reduce_inside(b, root, chunk, Some(value), between);
        } else if value != chunk {
            b.copy(chunk, value);
        }
        let ranks = self.leaders_with(root);
        let group = self.among(&ranks);
        match self.groups.above() {
            None => self.in_segments(b, &group, self.groups.of(root), value, place, between),
            Some(above) => self.above(above, group).reduce_chunk(b, self.groups.of(root), value, place, between),
        }
    }

    /// The reduction of a chunk inside this rank's group: along a tree in rank order, to the root in its own group; on the
    /// levels above as between the groups.
    fn reduce_inside(&self, b: &mut Builder, root: usize, chunk: Slice, result: Option<Slice>, between: Towards) {
        let (inside, leader) = (self.inside(), self.leader(root));
        if self.is_above {
            self.in_segments(b, &inside, leader, chunk, result, between);
        } else {
            reduce::bounded(b, &inside, self.parameters.fan_in, leader, chunk, result);
        }
    }

    fn in_segments(
        &self,
        b: &mut Builder,
        group: &Group<'_>,
        root: usize,
        own: Slice,
        result: Option<Slice>,
        between: Towards,
    ) {
        let mut places = result.map(|result| broadcast::pieces(result, self.parameters.segment));
        for piece in broadcast::pieces(own, self.parameters.segment) {
            between(b, group, root, piece, places.as_mut().and_then(Iterator::next));
        }
    }

    /// Broadcast: from the root to the leaders of the other groups, from each leader to its group; along trees in one
    /// piece, along chains in several. With a level above, the leaders do the same.
    pub fn broadcast(&self, b: &mut Builder, root: usize, data: Slice) {
        let chunks = self.chunks(data, 1);
        for index in 0..chunks.parts() {
            self.broadcast_chunk(b, root, chunks.block(index), chunks.parts() > 1);
        }
    }

    fn broadcast_chunk(&self, b: &mut Builder, root: usize, chunk: Slice, is_cut: bool) {
        let (inside, leader, segment) = (self.inside(), self.leader(root), self.parameters.segment);
        let spread = |b: &mut Builder, group: &Group<'_>, root: usize, segment: usize| match is_cut {
            true => broadcast::chain(b, group, root, chunk, segment),
            false => broadcast::binomial(b, group, root, chunk),
        };
        if inside.rank() == leader {
            let ranks = self.leaders_with(root);
            let group = self.among(&ranks);
            match self.groups.above() {
                None => spread(b, &group, self.groups.of(root), segment),
                Some(above) => self.above(above, group).broadcast_chunk(b, self.groups.of(root), chunk, is_cut),
            }
        }
        spread(b, &inside, leader, if self.is_above { segment } else { chunk.length });
    }

    /// Barrier: every group reports to its leader, these tell each other, and let their groups go.
    pub fn barrier(&self, b: &mut Builder) {
        self.barrier_after(b, Vec::new());
    }

    /// The same, begun once `reported` is complete; returns what has to be complete for all to have entered.
    fn barrier_after(&self, b: &mut Builder, reported: Vec<StepId>) -> Vec<StepId> {
        // The order of the members is of no account, but that the first of them leads.
        let mut members = self.members.clone();
        members.swap(0, self.groups.lead(self.group(), 0));
        let inside = self.among(&members);
        let mut reported = barrier::up(b, &inside, reported);
        if inside.rank() == 0 {
            let ranks = self.leaders(|group| self.first(group));
            let group = self.among(&ranks);
            reported = match self.groups.above() {
                None => barrier::dissemination_after(b, &group, reported),
                Some(above) => self.above(above, group).barrier_after(b, reported),
            };
        }
        barrier::down(b, &inside, reported)
    }

    /// This rank's group.
    fn inside(&self) -> Group<'_> {
        self.among(&self.members)
    }

    /// Ranks of which this one is one.
    fn among<'b>(&self, ranks: &'b [usize]) -> Group<'b> {
        let rank = self.all.peer(self.all.rank());
        Group::of(ranks, rank).unwrap_or_else(|| unreachable!("rank {rank} leads its group or is a member of it"))
    }

    /// The ranks at positions, one of each group, in the order of the groups.
    fn leaders(&self, position: impl Fn(usize) -> usize) -> Vec<usize> {
        (0..self.groups.count()).map(|group| self.all.peer(position(group))).collect()
    }

    /// The position of the rank that leads a group first.
    fn first(&self, group: usize) -> usize {
        self.groups.members(group)[self.groups.lead(group, 0)]
    }

    /// The rank that leads each group first, and the root in its own.
    fn leaders_with(&self, root: usize) -> Vec<usize> {
        self.leaders(|group| if group == self.groups.of(root) { root } else { self.first(group) })
    }

    /// The number of this rank's group.
    fn group(&self) -> usize {
        self.groups.of(self.all.rank())
    }

    /// Where the leader stands in this rank's group: the root where it is a member, else the one that leads first.
    fn leader(&self, root: usize) -> usize {
        let members = self.groups.members(self.group());
        members.binary_search(&root).unwrap_or_else(|_| self.groups.lead(self.group(), 0))
    }

    /// `data` in chunks: at least one, and one a leader where there is enough data.
    fn chunks(&self, data: Slice, leaders: usize) -> Blocks {
        Blocks::new(data, data.length.div_ceil(self.parameters.chunk.max(1)).max(leaders.min(data.length)))
    }
}

/// Whether each of so many members of a level above leads a share of a chunk of an all-reduce.
pub(super) fn are_shared(elements: usize, members: usize, is_cut: bool) -> bool {
    is_cut || elements >= members.saturating_mul(SHARE)
}
