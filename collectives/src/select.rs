//! Which algorithm a call uses: the one that the user forces, or the cheapest legal one by the cost formulas.
//!
//! A pure function of numbers that are the same on every rank, so that ranks cannot disagree. Nothing here has been
//! measured yet: the formulas are those of the algorithms' documentation, the constants are [`Model::ASSUMED`].
//!
//! What that gives for `all_reduce` with an operator that commutes:
//!
//! | ranks | from 8 B | from | from |
//! |---|---|---|---|
//! | 2 | `recursive_doubling` | 128 KiB `ring` | |
//! | 3 | `linear` | 8 KiB `ring` | |
//! | 4 | `recursive_doubling` | 32 KiB `rabenseifner` | |
//! | 8 | `recursive_doubling` | 32 KiB `rabenseifner` | |
//! | 16 | `recursive_doubling` | 16 KiB `rabenseifner` | |
//! | 96 | `recursive_doubling` | 16 KiB `rabenseifner` | 1 MiB `ring` |
//!
//! (Sizes in steps of two.)

use crate::algorithms::{Algorithm, Collective, Restriction, broadcast};
use crate::price::Model;

/// The value of a key `collectives.NAME` that leaves the choice to the table.
pub const AUTO: &str = "auto";

/// What the choice depends on: the same on every rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The collective.
    pub collective: Collective,
    /// The number of ranks.
    pub size: usize,
    /// Elements per rank: see [`Collective`].
    pub elements: usize,
    /// Bytes of an element.
    pub element_bytes: usize,
    /// Whether the operator commutes; true where there is none.
    pub commutative: bool,
}

/// What was chosen.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// The algorithm.
    pub algorithm: &'static Algorithm,
    /// The most elements of a message, for algorithms that cut the data.
    pub segment: usize,
    /// Seconds that the cost formula gives.
    pub cost: f64,
}

/// Chooses for a call, on a model; `forced` is [`AUTO`] or the name of an algorithm.
///
/// # Errors
/// [`SelectionError`] when there is no such algorithm, or it may not be used for this call.
pub fn select(request: &Request, forced: &str, model: &Model) -> Result<Choice, SelectionError> {
    let Request { collective, size, elements, element_bytes, commutative } = *request;
    let bytes = elements.saturating_mul(element_bytes);
    let legal = || collective.algorithms().iter().filter(|algorithm| algorithm.forbidden(size, commutative).is_none());
    let names = || legal().map(|algorithm| algorithm.name).collect::<Vec<&str>>().join(", ");
    let algorithm = if forced == AUTO {
        legal()
            .min_by(|a, b| a.cost(model, size, bytes).total_cmp(&b.cost(model, size, bytes)))
            .ok_or(SelectionError::Nothing { collective, size })?
    } else {
        let found = collective.algorithms().iter().find(|algorithm| algorithm.name == forced);
        let Some(algorithm) = found else {
            return Err(SelectionError::Unknown { collective, name: forced.to_string(), legal: names() });
        };
        if let Some(restriction) = algorithm.forbidden(size, commutative) {
            let name = algorithm.name;
            return Err(SelectionError::Forbidden { collective, name, restriction, size, legal: names() });
        }
        algorithm
    };
    let segment = broadcast::segment(model, size, elements, element_bytes);
    Ok(Choice { algorithm, segment, cost: algorithm.cost(model, size, bytes) })
}

/// Why no algorithm could be chosen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SelectionError {
    /// The forced name is not one of the collective's algorithms.
    #[error("collectives.{collective} = {name}: there is no such algorithm; allowed here: auto, {legal}")]
    Unknown {
        /// The collective.
        collective: Collective,
        /// The name.
        name: String,
        /// What may be used for this call.
        legal: String,
    },
    /// The forced algorithm may not be used for this call.
    #[error(
        "collectives.{collective} = {name}: {restriction}, which is not so in this call on {size} ranks; allowed \
         here: auto, {legal}"
    )]
    Forbidden {
        /// The collective.
        collective: Collective,
        /// The algorithm.
        name: &'static str,
        /// Which of its restrictions forbids it.
        restriction: Restriction,
        /// The number of ranks.
        size: usize,
        /// What may be used for this call.
        legal: String,
    },
    /// No algorithm is legal, which the table does not let happen.
    #[error("there is no algorithm for {collective} on {size} ranks")]
    Nothing {
        /// The collective.
        collective: Collective,
        /// The number of ranks.
        size: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_reduce(size: usize, elements: usize, commutative: bool) -> Request {
        Request { collective: Collective::AllReduce, size, elements, element_bytes: 4, commutative }
    }

    fn chosen(request: &Request) -> &'static str {
        select(request, AUTO, &Model::ASSUMED).unwrap().algorithm.name
    }

    #[test]
    fn the_documented_borders_of_all_reduce_are_those_of_the_model() {
        const KIB: usize = 1024;
        let documented: [(usize, &[(usize, &str)]); 6] = [
            (2, &[(8, "recursive_doubling"), (128 * KIB, "ring")]),
            (3, &[(8, "linear"), (8 * KIB, "ring")]),
            (4, &[(8, "recursive_doubling"), (32 * KIB, "rabenseifner")]),
            (8, &[(8, "recursive_doubling"), (32 * KIB, "rabenseifner")]),
            (16, &[(8, "recursive_doubling"), (16 * KIB, "rabenseifner")]),
            (96, &[(8, "recursive_doubling"), (16 * KIB, "rabenseifner"), (1024 * KIB, "ring")]),
        ];
        for (size, borders) in documented {
            let mut found: Vec<(usize, &str)> = Vec::new();
            for bytes in (3..28).map(|power| 1 << power) {
                let name = chosen(&all_reduce(size, bytes / 4, true));
                if found.last().is_none_or(|&(_, last)| last != name) {
                    found.push((bytes, name));
                }
            }
            assert_eq!(found, borders, "{size} ranks");
        }
    }

    #[test]
    fn an_algorithm_that_breaks_rank_order_is_never_chosen_for_an_operator_that_needs_it() {
        for collective in [Collective::Reduce, Collective::AllReduce] {
            for size in 1..100 {
                for power in 0..28 {
                    let request =
                        Request { collective, size, elements: 1 << power, element_bytes: 4, commutative: false };
                    let algorithm = select(&request, AUTO, &Model::ASSUMED).unwrap().algorithm;
                    assert!(!algorithm.restrictions.contains(&Restriction::CommutativeOnly), "{request:?}");
                }
            }
        }
    }

    #[test]
    fn a_forced_algorithm_is_used_whatever_it_costs() {
        for name in ["linear", "ring", "rabenseifner"] {
            assert_eq!(select(&all_reduce(7, 1, true), name, &Model::ASSUMED).unwrap().algorithm.name, name);
        }
    }

    #[test]
    fn a_forced_algorithm_that_is_not_legal_is_refused_with_the_restriction_and_the_legal_ones() {
        let text = select(&all_reduce(4, 1, false), "ring", &Model::ASSUMED).unwrap_err().to_string();
        assert_eq!(
            text,
            "collectives.all_reduce = ring: the operator must commute, which is not so in this call on 4 ranks; \
             allowed here: auto, linear, binomial, recursive_doubling, rabenseifner"
        );
        let gather = Request { collective: Collective::AllGather, ..all_reduce(6, 1, true) };
        let text = select(&gather, "recursive_doubling", &Model::ASSUMED).unwrap_err().to_string();
        assert!(text.contains("power of two") && text.ends_with("auto, ring, bruck"), "{text}");
    }

    #[test]
    fn a_name_that_does_not_exist_is_refused_with_the_legal_ones() {
        let text = select(&all_reduce(4, 1, true), "rings", &Model::ASSUMED).unwrap_err().to_string();
        assert!(text.contains("all_reduce = rings") && text.contains("auto, linear, binomial"), "{text}");
    }

    #[test]
    fn segments_of_the_chain_follow_the_formula() {
        let request = Request { collective: Collective::Broadcast, ..all_reduce(18, 1 << 20, true) };
        let segment = select(&request, AUTO, &Model::ASSUMED).unwrap().segment;
        // sqrt(16 * 4 MiB * 0.5 ns / 5.5 us) = 78.1 segments
        assert_eq!((1usize << 20).div_ceil(segment), 78);
        let nothing = Request { elements: 0, ..request };
        assert_eq!(select(&nothing, AUTO, &Model::ASSUMED).unwrap().segment, 1);
    }
}
