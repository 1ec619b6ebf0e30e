//! The algorithms of each collective: pure functions from a rank's view of the call to its schedule, each with its
//! restrictions, its cost and its source as data.
//!
//! Nothing here moves data or knows an element type. Every algorithm comes in two forms: a function that writes its
//! steps into a [`Builder`](crate::compose::Builder) for a [`Group`](crate::compose::Group) of ranks and given slices,
//! out of which larger ones are composed, and a row of the table [`Collective::algorithms`], which is what selection,
//! checker and executor use.

pub mod all_gather;
pub mod all_reduce;
pub mod all_to_all;
pub mod barrier;
pub mod broadcast;
mod collective;
pub mod double_tree;
pub mod gather;
mod in_memory;
mod knomial;
mod load;
mod pieces;
pub mod reduce;
pub mod reduce_scatter;
mod restriction;
pub mod scan;
pub mod scatter;
mod shape;
mod tree;
pub mod two_hop;
pub mod varied;

pub use collective::Collective;
pub use restriction::Restriction;
pub use shape::{Parameters, Shape};

pub(crate) use in_memory::{CHUNK as LARGEST_CHUNK, NAME as IN_TWO_HOPS, SHARED, in_segments};

use crate::groups::Groups;
use crate::price::{Model, Network};
use crate::schedule::{Schedule, ScheduleError};
use load::{Load, RADIX};
use pieces::{Pieces, Pipeline, whole};
use std::fmt;
use tree::{children, parent, subtree};

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
