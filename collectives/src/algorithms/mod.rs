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
pub mod gather;
pub mod reduce;
pub mod scatter;

use crate::compose::{Builder, Group};
use crate::price::Model;
use crate::schedule::{Schedule, ScheduleError};
use std::fmt;

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
}

impl Collective {
    /// All of them.
    pub const ALL: [Collective; 8] = [
        Collective::Barrier,
        Collective::Broadcast,
        Collective::Reduce,
        Collective::AllReduce,
        Collective::Gather,
        Collective::AllGather,
        Collective::Scatter,
        Collective::AllToAll,
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
        matches!(self, Collective::Reduce | Collective::AllReduce)
    }
}

impl fmt::Display for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One rank's view of a call: all that an algorithm is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The rank that calls.
    pub rank: usize,
    /// The number of ranks.
    pub size: usize,
    /// The root; 0 where there is none.
    pub root: usize,
    /// Elements per rank: see [`Collective`].
    pub elements: usize,
    /// The most elements of one message of the algorithms that cut the data for a pipeline; others ignore it.
    pub segment: usize,
}

impl Shape {
    fn group(&self) -> Group<'static> {
        Group::all(self.rank, self.size)
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
        if worst < self.size { Ok(()) } else { Err(ScheduleError::Rank { rank: worst, size: self.size }) }
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
}

impl Restriction {
    /// Whether a call with so many ranks and such an operator is allowed.
    #[must_use]
    pub fn allows(self, size: usize, commutative: bool) -> bool {
        match self {
            Restriction::CommutativeOnly => commutative,
            Restriction::PowerOfTwoSize => size.is_power_of_two(),
        }
    }
}

impl fmt::Display for Restriction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Restriction::CommutativeOnly => "the operator must commute",
            Restriction::PowerOfTwoSize => "the number of ranks must be a power of two",
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
    cost: fn(&Model, &Load) -> f64,
    build: fn(&Shape) -> Result<Schedule, ScheduleError>,
}

impl Algorithm {
    /// The schedule of one rank.
    ///
    /// # Errors
    /// [`ScheduleError`] when rank or root is not below the size, or there are more elements than can be counted.
    pub fn schedule(&self, shape: &Shape) -> Result<Schedule, ScheduleError> {
        shape.checked()?;
        (self.build)(shape)
    }

    /// The first restriction that forbids it, if one does.
    #[must_use]
    pub fn forbidden(&self, size: usize, commutative: bool) -> Option<Restriction> {
        self.restrictions.iter().copied().find(|restriction| !restriction.allows(size, commutative))
    }

    /// Seconds that the formula of its documentation gives, on a model.
    #[must_use]
    pub fn cost(&self, model: &Model, size: usize, bytes: usize) -> f64 {
        if size <= 1 { 0.0 } else { (self.cost)(model, &Load::new(size, bytes)) }
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
struct Load {
    /// Ranks (p).
    size: f64,
    /// Rounds of doubling that reach all ranks: ⌈log2 p⌉.
    rounds: f64,
    /// Whether the ranks are a power of two.
    power_of_two: bool,
    /// Bytes of one rank (n).
    bytes: f64,
}

impl Load {
    // Sizes are far below the 2^53 where this would round.
    #[allow(clippy::cast_precision_loss)]
    fn new(size: usize, bytes: usize) -> Load {
        Load {
            size: size as f64,
            rounds: f64::from(size.next_power_of_two().trailing_zeros()),
            power_of_two: size.is_power_of_two(),
            bytes: bytes as f64,
        }
    }

    /// Messages to or from all other ranks that overlap but for the root's port.
    fn fan(&self, model: &Model, bytes: f64) -> f64 {
        model.latency + (self.size - 1.0) * (model.overhead + bytes * model.per_byte)
    }

    /// Part of the data that other ranks have: (p - 1) / p.
    fn others(&self) -> f64 {
        (self.size - 1.0) / self.size
    }

    /// A power of two of ranks takes no fold; others send all data to a partner first and get it back at the end.
    fn folding(&self, model: &Model) -> f64 {
        if self.power_of_two { 0.0 } else { 2.0 * model.message(self.bytes) + model.reduction(self.bytes) }
    }

    /// Rounds among the ranks that are left after the fold: ⌊log2 p⌋.
    fn core_rounds(&self) -> f64 {
        if self.power_of_two { self.rounds } else { self.rounds - 1.0 }
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
        let shape = Shape { rank: 0, size: 4, root: 4, elements: 1, segment: 1 };
        let broadcast = &Collective::Broadcast.algorithms()[0];
        assert_eq!(broadcast.schedule(&shape), Err(ScheduleError::Rank { rank: 4, size: 4 }));
    }

    #[test]
    fn more_elements_than_can_be_counted_make_no_schedule() {
        for collective in [Collective::Gather, Collective::AllGather, Collective::Scatter, Collective::AllToAll] {
            for algorithm in collective.algorithms() {
                let shape = Shape { rank: 0, size: 4, root: 0, elements: usize::MAX / 2, segment: 1 };
                assert_eq!(algorithm.schedule(&shape), Err(ScheduleError::TooLarge), "{collective} {}", algorithm.name);
            }
        }
    }
}
