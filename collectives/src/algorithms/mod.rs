//! The algorithms of each collective: pure functions from a rank's view of the call to its schedule, each with its
//! restrictions, its cost and its source as data.
//!
//! Nothing here moves data or knows an element type. Every algorithm comes in two forms: a function that writes its
//! steps into a [`Builder`] for a [`Group`] of ranks and given slices,
//! out of which larger ones are composed, and a row of the table [`Collective::algorithms`], which is what selection,
//! checker and executor use.

pub mod all_gather;
pub mod all_reduce;
pub mod all_to_all;
pub mod barrier;
pub mod broadcast;
pub mod double_tree;
pub mod gather;
mod in_memory;
mod knomial;
pub mod reduce;
pub mod reduce_scatter;
pub mod scan;
pub mod scatter;
pub mod two_hop;
pub mod varied;

use crate::compose::{Builder, Group};
use crate::groups::Groups;
use crate::price::{Model, Network};
use crate::schedule::{Schedule, ScheduleError};
use std::fmt;
use two_hop::TwoHop;

pub(crate) use in_memory::{CHUNK as LARGEST_CHUNK, NAME as IN_TWO_HOPS};

/// A collective operation, with the buffers that its schedules use. `n` stands for [`Shape::elements`], p for the size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Collective {
    /// No rank leaves before every rank has entered. No buffers.
    Barrier,
    /// The root's output goes to every rank's output. Output n.
    Broadcast,
    /// All inputs are combined into the root's output. Input n; output n at the root, none elsewhere.
    Reduce,
    /// All outputs are combined in place, and everyone has the result. Output n.
    AllReduce,
    /// The root gets every rank's input, in rank order. Input n; output p n at the root, none elsewhere.
    Gather,
    /// Every rank gets every rank's input, in rank order. Input n, output p n.
    AllGather,
    /// Each rank gets its block of the root's input. Input p n at the root, none elsewhere; output n.
    Scatter,
    /// Block j of rank i's input becomes block i of rank j's output. Input p n, output p n.
    AllToAll,
    /// All inputs are combined, and rank i gets block i of the result. Input p n, output n.
    ReduceScatter,
    /// Each rank's output becomes what the outputs up to it combine to, in rank order. Output n.
    Scan,
    /// Each rank gets what the inputs before it combine to, in rank order. Input n; output n, none at rank 0.
    Exscan,
}

impl Collective {
    /// All of them.
    pub const ALL: [Collective; 11] = [
        Collective::Barrier,
        Collective::Broadcast,
        Collective::Reduce,
        Collective::AllReduce,
        Collective::Gather,
        Collective::AllGather,
        Collective::Scatter,
        Collective::AllToAll,
        Collective::ReduceScatter,
        Collective::Scan,
        Collective::Exscan,
    ];

    /// Its name, as in the configuration key `collectives.NAME`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Collective::Barrier => "barrier",
            Collective::Broadcast => "broadcast",
            Collective::Reduce => "reduce",
            Collective::AllReduce => "all_reduce",
            Collective::Gather => "gather",
            Collective::AllGather => "all_gather",
            Collective::Scatter => "scatter",
            Collective::AllToAll => "all_to_all",
            Collective::ReduceScatter => "reduce_scatter",
            Collective::Scan => "scan",
            Collective::Exscan => "exscan",
        }
    }

    /// The algorithms there are, simplest first.
    #[must_use]
    pub fn algorithms(self) -> &'static [Algorithm] {
        match self {
            Collective::Barrier => barrier::ALGORITHMS,
            Collective::Broadcast => broadcast::ALGORITHMS,
            Collective::Reduce => reduce::ALGORITHMS,
            Collective::AllReduce => all_reduce::ALGORITHMS,
            Collective::Gather => gather::ALGORITHMS,
            Collective::AllGather => all_gather::ALGORITHMS,
            Collective::Scatter => scatter::ALGORITHMS,
            Collective::AllToAll => all_to_all::ALGORITHMS,
            Collective::ReduceScatter => reduce_scatter::ALGORITHMS,
            Collective::Scan => scan::ALGORITHMS,
            Collective::Exscan => scan::EXCLUSIVE,
        }
    }

    /// Whether one rank is the root.
    #[must_use]
    pub fn is_rooted(self) -> bool {
        matches!(self, Collective::Broadcast | Collective::Reduce | Collective::Gather | Collective::Scatter)
    }

    /// Whether values are combined by an operator.
    #[must_use]
    pub fn reduces(self) -> bool {
        matches!(
            self,
            Collective::Reduce
                | Collective::AllReduce
                | Collective::ReduceScatter
                | Collective::Scan
                | Collective::Exscan
        )
    }
}

impl fmt::Display for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One rank's view of a call: all that an algorithm is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape<'a> {
    /// The rank that calls.
    pub rank: usize,
    /// The number of ranks.
    pub size: usize,
    /// The root; 0 where there is none.
    pub root: usize,
    /// Elements per rank: see [`Collective`].
    pub elements: usize,
    /// Which ranks belong together, for the algorithms in two hops; others ignore it.
    pub groups: &'a Groups,
    /// What else there is to choose.
    pub parameters: Parameters,
}

/// What an algorithm can be told besides the call: each ignores what it has no use for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Parameters {
    /// The most elements of one message of the algorithms that cut the data for a pipeline; in two hops of a message
    /// between the groups.
    pub segment: usize,
    /// The most elements that a group combines at once in algorithms in two hops.
    pub chunk: usize,
    /// How many ranks of each group lead, each its share of the data, in algorithms that can have several.
    pub leaders: usize,
    /// The most ranks out of whose data one rank combines at once inside a group: fewer than a binomial tree has where
    /// the memory of a host would not keep up, see [`guard`](crate::guard).
    pub fan_in: usize,
}

impl Parameters {
    /// The data in one piece, one leader, and trees as they are.
    pub const WHOLE: Parameters = Parameters { segment: usize::MAX, chunk: usize::MAX, leaders: 1, fan_in: usize::MAX };
}

impl Shape<'_> {
    fn group(&self) -> Group<'static> {
        Group::all(self.rank, self.size)
    }

    fn two_hop(&self) -> TwoHop<'_> {
        TwoHop::new(self.groups, self.group(), self.parameters)
    }

    /// A builder with the buffers of a collective that works on the output alone.
    fn in_place(&self) -> Builder {
        Builder::new(self.rank, self.size, 0, self.elements)
    }

    /// Elements of all ranks together.
    fn total(&self) -> Result<usize, ScheduleError> {
        self.elements.checked_mul(self.size).ok_or(ScheduleError::TooLarge)
    }

    fn is_root(&self) -> bool {
        self.rank == self.root
    }

    fn checked(&self) -> Result<(), ScheduleError> {
        let worst = self.rank.max(self.root);
        if worst >= self.size {
            return Err(ScheduleError::Rank { rank: worst, size: self.size });
        }
        if self.groups.size() != self.size {
            return Err(ScheduleError::Groups { ranks: self.groups.size(), size: self.size });
        }
        Ok(())
    }
}

/// Where an algorithm may not be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Restriction {
    /// It combines values in another order than that of the ranks.
    CommutativeOnly,
    /// It works for 1, 2, 4, 8, … ranks.
    PowerOfTwoSize,
    /// It needs several groups, and several ranks in one of them; or the same of groups of groups.
    TwoLevels,
    /// It combines values group by group, which is the order of the ranks where groups are runs of neighbours.
    CommutativeUnlessRuns,
    /// It works in memory that all ranks share, not by messages.
    SharedMemory,
    /// It works in memory that the ranks of each group share: these must be on one host, and the call one that blocks.
    SharedGroups,
}

impl Restriction {
    /// Whether it allows a call among such groups with such an operator.
    #[must_use]
    pub fn allows(self, groups: &Groups, commutative: bool) -> bool {
        match self {
            Restriction::CommutativeOnly => commutative,
            Restriction::PowerOfTwoSize => groups.size().is_power_of_two(),
            Restriction::TwoLevels => groups.are_two_levels(),
            Restriction::CommutativeUnlessRuns => commutative || groups.keep_rank_order(),
            // What has no schedule is in no table.
            Restriction::SharedMemory => false,
            Restriction::SharedGroups => groups.share_memory(),
        }
    }
}

impl fmt::Display for Restriction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Restriction::CommutativeOnly => "the operator must commute",
            Restriction::PowerOfTwoSize => "the number of ranks must be a power of two",
            Restriction::TwoLevels => "there must be several groups, and several ranks in one of them",
            Restriction::CommutativeUnlessRuns => "the operator must commute, or each group be a run of ranks",
            Restriction::SharedMemory => "all ranks must be on one host and may share memory",
            Restriction::SharedGroups => "the ranks of each group must be on one host and may share memory",
        })
    }
}

/// A row of the table: one way to do a collective.
#[derive(Clone, Copy)]
pub struct Algorithm {
    /// Its name, as a value of the configuration key.
    pub name: &'static str,
    /// Where it may not be used.
    pub restrictions: &'static [Restriction],
    /// The paper or the program that it comes from.
    pub source: &'static str,
    /// Into how many pieces the model would cut the data.
    pieces: fn(&Model, &Load<'_>) -> Pieces,
    cost: fn(&Model, &Load<'_>) -> f64,
    build: fn(&Shape<'_>) -> Result<Schedule, ScheduleError>,
}

impl Algorithm {
    /// The schedule of one rank.
    ///
    /// # Errors
    /// [`ScheduleError`] when rank or root is not below the size, there are more elements than can be counted, or the
    /// algorithm has none ([`ScheduleError::InMemory`]).
    pub fn schedule(&self, shape: &Shape<'_>) -> Result<Schedule, ScheduleError> {
        shape.checked()?;
        (self.build)(shape)
    }

    /// The first restriction that forbids it, if one does.
    #[must_use]
    pub fn forbidden(&self, groups: &Groups, commutative: bool) -> Option<Restriction> {
        self.restrictions.iter().copied().find(|restriction| !restriction.allows(groups, commutative))
    }

    /// Whether it combines values in the order of the ranks among such groups.
    #[must_use]
    pub fn keeps_rank_order(&self, groups: &Groups) -> bool {
        self.restrictions.iter().all(|restriction| match restriction {
            Restriction::CommutativeOnly => false,
            Restriction::CommutativeUnlessRuns => groups.keep_rank_order(),
            _ => true,
        })
    }

    /// Seconds that the formula of its documentation gives, on a network. Algorithms that know no groups count every
    /// message as one of the widest that there are, but for the neighbours of rings and trees.
    #[must_use]
    pub fn cost(&self, network: &Network, groups: &Groups, bytes: usize) -> f64 {
        if groups.size() <= 1 {
            return 0.0;
        }
        (self.cost)(&network.outermost(groups), &Load::new(network, groups, bytes))
    }

    /// What the cost formulas find best on a network: pieces for algorithms that cut the data, else all of it; one leader.
    #[must_use]
    pub fn parameters(&self, network: &Network, groups: &Groups, elements: usize, element_bytes: usize) -> Parameters {
        if groups.size() <= 1 {
            return Parameters { segment: elements.max(1), chunk: elements.max(1), ..Parameters::WHOLE };
        }
        let load = Load::new(network, groups, elements.saturating_mul(element_bytes));
        let Pieces { segments, chunks } = (self.pieces)(&network.outermost(groups), &load);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // A small number, and at least 1.
        let most = |pieces: f64| elements.div_ceil((pieces.round() as usize).max(1)).max(1);
        Parameters { segment: most(segments), chunk: most(chunks), ..Parameters::WHOLE }
    }
}

impl fmt::Debug for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Algorithm")
            .field("name", &self.name)
            .field("restrictions", &self.restrictions)
            .finish_non_exhaustive()
    }
}

/// The numbers of the cost formulas, for two ranks or more.
#[derive(Clone, Copy, Debug)]
struct Load<'a> {
    /// Ranks (p).
    size: f64,
    /// Rounds of doubling that reach all ranks: ⌈log2 p⌉.
    rounds: f64,
    /// Whether the ranks are a power of two.
    power_of_two: bool,
    /// Bytes of one rank (n).
    bytes: f64,
    /// Groups (N).
    groups: f64,
    /// Ranks of the largest group (g).
    width: f64,
    /// Whether groups are runs of ranks.
    runs: bool,
    /// What messages and reductions inside a group cost.
    inside: Model,
    /// The outermost groups, where there is a level above the groups.
    racks: Option<Racks>,
    /// Of all levels.
    divided: &'a Groups,
    network: &'a Network,
}

/// The outermost groups, where they are groups of groups.
#[derive(Clone, Copy, Debug)]
struct Racks {
    /// How many.
    count: f64,
    /// Ranks of the largest one.
    width: f64,
    /// Messages between the groups of one.
    between: Model,
    /// Time of a byte in the port that one shares.
    port: f64,
}

impl<'a> Load<'a> {
    // Sizes are far below the 2^53 where this would round.
    #[allow(clippy::cast_precision_loss)]
    fn new(network: &'a Network, groups: &'a Groups, bytes: usize) -> Load<'a> {
        let size = groups.size();
        let racks = groups.levels().skip(1).last().map(|racks| Racks {
            count: racks.count() as f64,
            width: groups.levels().map(|level| level.widths().1 as f64).product::<f64>().min(size as f64),
            between: network.model(racks.link()),
            port: network.across.map_or(0.0, |across| across.per_byte),
        });
        Load {
            size: size as f64,
            rounds: f64::from(size.next_power_of_two().trailing_zeros()),
            power_of_two: size.is_power_of_two(),
            bytes: bytes as f64,
            groups: groups.count() as f64,
            width: groups.widths().1 as f64,
            runs: groups.keep_rank_order(),
            inside: network.inside,
            racks,
            divided: groups,
            network,
        }
    }

    /// The same for the leaders of the outermost groups alone.
    fn of_leaders(&self) -> Load<'a> {
        self.of_ranks(self.racks.map_or(self.groups, |racks| racks.count))
    }

    /// The same for so many ranks, each a group of its own.
    fn of_ranks(&self, size: f64) -> Load<'a> {
        Load {
            size,
            groups: size,
            rounds: size.log2().ceil(),
            power_of_two: size.log2().fract() == 0.0,
            width: 1.0,
            racks: None,
            ..*self
        }
    }

    /// Members of the largest group of each level and what messages between them cost, from the inner to the outer.
    #[allow(clippy::cast_precision_loss)]
    fn levels(&self) -> impl Iterator<Item = (f64, Model)> + use<'a> {
        let network = self.network;
        self.divided.levels().map(move |level| (level.widths().1 as f64, network.model(level.link())))
    }

    /// The same for so many bytes.
    fn of_bytes(&self, bytes: f64) -> Load<'a> {
        Load { bytes, ..*self }
    }

    /// A message that each of p - 1 ranks passes on to the rank next to it: most of them are in the same group if groups
    /// are runs of ranks, and the ports between groups set the pace.
    fn neighbours(&self, model: &Model, bytes: f64) -> f64 {
        let crossing = if self.runs { 1.0 / self.width } else { 1.0 };
        let leaving = self.racks.map_or(0.0, |racks| if self.runs { 1.0 / racks.width } else { 1.0 });
        let between = self.racks.map_or(model.latency, |racks| racks.between.latency);
        let wide = leaving * model.latency + (crossing - leaving) * between;
        let latency = wide + (1.0 - crossing) * self.inside.latency;
        (self.size - 1.0) * (latency + model.overhead + bytes * model.per_byte)
    }

    /// The average message of an algorithm in which all ranks exchange with one at distance 1, 2, 4, …: the small
    /// distances stay inside the groups if these are runs of ranks; in the others a whole group shares a port.
    fn all_at_once(&self, model: &Model) -> Model {
        self.average(model, self.width, self.racks.map_or(0.0, |racks| racks.width))
    }

    /// The average message of a tree, of which a few links only are between groups, if these are runs of ranks.
    fn along_tree(&self, model: &Model) -> Model {
        match self.runs {
            true => self.average(model, 1.0, 1.0),
            false => self.all_at_once(model),
        }
    }

    /// The port time of everyone's data on its way to everyone: that of the other groups once for each rank of the group.
    fn everyone_s_data(&self, model: &Model) -> f64 {
        let (others, per_byte) = (self.size - self.width, self.racks.map_or(*model, |racks| racks.between).per_byte);
        let shared = self.racks.map_or(0.0, |racks| (self.size - racks.width) * racks.width * racks.port);
        self.bytes * ((self.width - 1.0) * self.inside.per_byte + (others * self.width * per_byte).max(shared))
    }

    /// The average message when every rank has one for each other rank.
    fn in_turn(&self, model: &Model) -> Model {
        let near = (self.width - 1.0) / (self.size - 1.0);
        let mix = |inside: f64, between: f64| near * inside + (1.0 - near) * self.width * between;
        let shared =
            self.racks.map_or(0.0, |racks| (self.size - racks.width) / (self.size - 1.0) * racks.width * racks.port);
        let per_byte = self.racks.map_or(*model, |racks| racks.between).per_byte;
        Model {
            overhead: mix(self.inside.overhead, model.overhead),
            per_byte: mix(self.inside.per_byte, per_byte).max(shared),
            ..*model
        }
    }

    /// The average message when so many ranks of a group, and of a group of groups, share a port.
    fn average(&self, model: &Model, crowd: f64, rack_crowd: f64) -> Model {
        if self.width <= 1.0 && self.racks.is_none() || self.groups <= 1.0 {
            return *model;
        }
        // Of groups that are no power of two some partners at small distances are in the next one.
        let rounds = |width: f64| if width.log2().fract() == 0.0 { width.log2() } else { width.log2().floor() - 1.0 };
        let share = |width: f64| if self.runs { rounds(width).max(0.0) / self.size.log2() } else { 0.0 };
        let inner = share(self.width);
        let (near, between) = self.racks.map_or((0.0, *model), |racks| (share(racks.width) - inner, racks.between));
        let far = 1.0 - inner - near;
        let mix = |inside: f64, between: f64, across: f64| inner * inside + near * between + far * across;
        let shared = self.racks.map_or(0.0, |racks| rack_crowd * racks.port);
        Model {
            latency: mix(self.inside.latency, between.latency, model.latency),
            overhead: mix(self.inside.overhead, crowd * between.overhead, crowd * model.overhead),
            per_byte: mix(
                self.inside.per_byte,
                crowd * between.per_byte,
                (crowd * between.per_byte).max(model.per_byte).max(shared),
            ),
            per_byte_reduced: model.per_byte_reduced,
        }
    }

    /// Messages to or from all other ranks that overlap but for the root's port.
    fn fan(&self, model: &Model, bytes: f64) -> f64 {
        model.latency + (self.size - 1.0) * (model.overhead + bytes * model.per_byte)
    }

    /// A power of two of ranks takes no fold; others send all data to a partner first and get it back at the end.
    fn folding(&self, model: &Model) -> f64 {
        // Partners are neighbours.
        let model = if self.runs && self.width > 1.0 { &self.inside } else { model };
        if self.power_of_two { 0.0 } else { 2.0 * model.message(self.bytes) + model.reduction(self.bytes) }
    }

    /// Rounds among the ranks that are left after the fold: ⌊log2 p⌋.
    fn core_rounds(&self) -> f64 {
        if self.power_of_two { self.rounds } else { self.rounds - 1.0 }
    }
}

/// Into how many pieces data is cut: segments that travel in one message, and chunks that a group combines at once, each
/// of which is one segment or more.
#[derive(Clone, Copy, Debug)]
struct Pieces {
    segments: f64,
    chunks: f64,
}

impl Pieces {
    /// Of an algorithm that makes no difference.
    fn alike(pieces: f64) -> Pieces {
        Pieces { segments: pieces, chunks: pieces }
    }

    /// Chunks for a group, where the data is in `segments`: `sqrt(n (beta + gamma) / (latency + overhead))` of what a message
    /// costs inside.
    fn in_two_hops(segments: f64, load: &Load<'_>) -> Pieces {
        let Model { latency, overhead, per_byte, per_byte_reduced } = load.inside;
        let chunks = (load.bytes * (per_byte + per_byte_reduced) / (latency + overhead)).sqrt();
        Pieces { segments, chunks: chunks.clamp(1.0, segments.max(1.0)) }
    }
}

/// The pieces of an algorithm that does not cut the data.
fn whole(_: &Model, _: &Load<'_>) -> Pieces {
    Pieces::alike(1.0)
}

/// The digits of positions in k-nomial trees, and the partners of recursive multiplying with this rank.
const RADIX: usize = 4;

impl Load<'_> {
    /// Rounds of a tree or an exchange among `RADIX` ranks, each with one message after the other at the busiest port.
    fn by_radix(&self, model: &Model, rounds: f64, bytes: f64) -> f64 {
        let partners = f64::from(u32::try_from(RADIX - 1).unwrap_or(3));
        (rounds / 2.0).ceil() * (model.latency + partners * (model.overhead + bytes * model.per_byte))
    }

    /// Segments of each half of the data in a double tree: `sqrt(log2(p) n beta / (4 (latency + overhead)))`.
    fn halves_in(&self, model: &Model) -> f64 {
        (self.rounds * self.bytes * model.per_byte / (4.0 * (model.latency + model.overhead))).sqrt().max(1.0)
    }
}

/// Stages that work at the same time, each on another piece of the data: seconds of each stage for so many bytes, and
/// whether these are one of several pieces.
struct Pipeline<F>(F);

impl<F: Fn(f64, bool) -> [f64; 3]> Pipeline<F> {
    /// The number of pieces that ends soonest: `sqrt(n (sum of the betas - beta_m) / alpha_m)`, m being the slowest stage.
    fn pieces(&self, bytes: f64) -> f64 {
        let (start, whole) = ((self.0)(0.0, true), (self.0)(bytes, true));
        let (mut slowest, mut others) = (0, 0.0);
        for stage in 0..whole.len() {
            if whole[stage] > whole[slowest] {
                slowest = stage;
            }
            others += whole[stage] - start[stage];
        }
        others -= whole[slowest] - start[slowest];
        (others / start[slowest].max(f64::MIN_POSITIVE)).sqrt().clamp(1.0, bytes.max(1.0))
    }

    /// The time of so many bytes in the best number of pieces: the first through all stages, the others through the
    /// slowest.
    fn cost(&self, bytes: f64) -> f64 {
        let pieces = self.pieces(bytes);
        // Half a piece more is rounded up to two.
        let stages = (self.0)(bytes / pieces, pieces >= 1.5);
        stages.iter().sum::<f64>() + (pieces - 1.0) * stages.iter().fold(0.0, |slowest: f64, &stage| slowest.max(stage))
    }
}

/// How many further positions belong to the subtree of position `v` in a binomial tree of `size` positions whose root
/// is 0, with itself: positions `v..v + extent`.
fn subtree(v: usize, size: usize) -> usize {
    match v {
        0 => size,
        _ => (1 << v.trailing_zeros()).min(size - v),
    }
}

/// The children of position `v` in that tree, nearest (and smallest subtree) first.
fn children(v: usize, size: usize) -> impl DoubleEndedIterator<Item = usize> {
    let bits = if v == 0 { size.next_power_of_two().trailing_zeros() } else { v.trailing_zeros() };
    (0..bits).map(move |bit| v + (1 << bit)).filter(move |&child| child < size)
}

/// The parent of position `v` in that tree; `None` for the root.
fn parent(v: usize) -> Option<usize> {
    (v > 0).then(|| v & (v - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_within_a_collective() {
        for collective in Collective::ALL {
            let names: Vec<&str> = collective.algorithms().iter().map(|algorithm| algorithm.name).collect();
            for (index, name) in names.iter().enumerate() {
                assert!(!names[..index].contains(name) && *name != "auto", "{collective} {name}");
            }
        }
    }

    #[test]
    fn every_collective_has_an_algorithm_without_restrictions() {
        for collective in Collective::ALL {
            assert!(collective.algorithms().iter().any(|algorithm| algorithm.restrictions.is_empty()), "{collective}");
        }
    }

    #[test]
    fn a_binomial_tree_holds_every_position_once() {
        for size in 1..70 {
            let mut seen = vec![0; size];
            seen[0] += 1;
            for v in 0..size {
                let mut next = v + 1;
                for child in children(v, size) {
                    assert_eq!((parent(child), child), (Some(v), next));
                    seen[child] += 1;
                    next += subtree(child, size);
                }
                assert_eq!(next, v + subtree(v, size));
            }
            assert_eq!(seen, vec![1; size]);
        }
    }

    #[test]
    fn a_root_that_does_not_exist_makes_no_schedule() {
        let groups = Groups::apart(4);
        let shape = Shape { rank: 0, size: 4, root: 4, elements: 1, groups: &groups, parameters: Parameters::WHOLE };
        let broadcast = &Collective::Broadcast.algorithms()[0];
        assert_eq!(broadcast.schedule(&shape), Err(ScheduleError::Rank { rank: 4, size: 4 }));
    }

    #[test]
    fn more_elements_than_can_be_counted_make_no_schedule() {
        for collective in [Collective::Gather, Collective::AllGather, Collective::Scatter, Collective::AllToAll] {
            for algorithm in collective.algorithms() {
                let (groups, elements) = (Groups::apart(4), usize::MAX / 2);
                let shape =
                    Shape { rank: 0, size: 4, root: 0, elements, groups: &groups, parameters: Parameters::WHOLE };
                assert_eq!(algorithm.schedule(&shape), Err(ScheduleError::TooLarge), "{collective} {}", algorithm.name);
            }
        }
    }
}
