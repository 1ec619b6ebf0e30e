//! Which algorithm a call uses: the one that the user forces, or that of a rule, or the cheapest legal one by the cost formulas.
//!
//! A pure function of numbers that are the same on every rank, so that ranks cannot disagree: the first rule of the tuning
//! [`Table`] that fits and is legal, where there is one; else `shared` where all ranks share memory; else the cheapest legal
//! algorithm by the formulas of the algorithms' documentation with the constants of the table, which are
//! [`Network::ASSUMED`] where nothing was measured.
//!
//! What these give for `all_reduce` with an operator that commutes, one rank a host:
//!
//! | ranks | from 8 B | from | from | from | from |
//! |---|---|---|---|---|---|
//! | 2 | `recursive_doubling` | | | | 128 KiB `segmented_ring` |
//! | 3 | `linear` | | | 8 KiB `ring` | 256 KiB `segmented_ring` |
//! | 4 | `recursive_multiplying` | 8 KiB `recursive_doubling` | 32 KiB `rabenseifner` | | 512 KiB `segmented_ring` |
//! | 8 | `recursive_multiplying` | 4 KiB `recursive_doubling` | 32 KiB `rabenseifner` | | 1 MiB `segmented_ring` |
//! | 16 | `recursive_multiplying` | 8 KiB `recursive_doubling` | 16 KiB `rabenseifner` | | 4 MiB `segmented_ring` |
//! | 96 | `recursive_multiplying` | 8 KiB `recursive_doubling` | 16 KiB `rabenseifner` | 1 MiB `ring` | 8 MiB `segmented_ring` |
//!
//! (Sizes in steps of two.)

use crate::algorithms::{Algorithm, Collective, Parameters, Restriction};
use crate::groups::Groups;
#[cfg(doc)]
use crate::price::Network;
use crate::shared;
use crate::table::Table;

/// The value of a key `collectives.NAME` that leaves the choice to the table.
pub const AUTO: &str = "auto";

/// What the choice depends on: the same on every rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// The collective.
    pub collective: Collective,
    /// The ranks and which of them are near each other.
    pub groups: &'a Groups,
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
    /// What it is told besides the call.
    pub parameters: Parameters,
    /// Seconds that the cost formula gives.
    pub cost: f64,
    /// Why this one.
    pub why: Why,
}

/// Why an algorithm was chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Why {
    /// The configuration names it.
    Forced,
    /// A rule of the tuning table, with the seconds that were measured.
    Rule {
        /// For the largest call of the rule; `None` where the rule is for more than was measured.
        measured: Option<f64>,
    },
    /// All ranks share the memory of one host, and no rule says something else.
    Memory,
    /// It is the cheapest by the cost formulas.
    Formula,
}

/// What may be used for a call.
pub fn legal(request: &Request<'_>) -> impl Iterator<Item = &'static Algorithm> {
    let Request { collective, groups, commutative, .. } = *request;
    collective.algorithms().iter().filter(move |algorithm| algorithm.forbidden(groups, commutative).is_none())
}

/// Chooses for a call; `forced` is [`AUTO`] or the name of an algorithm.
///
/// # Errors
/// [`SelectionError`] when there is no such algorithm, or it may not be used for this call.
pub fn select(request: &Request<'_>, forced: &str, table: &Table) -> Result<Choice, SelectionError> {
    let Request { collective, groups, elements, element_bytes, commutative } = *request;
    let (size, bytes) = (groups.size(), elements.saturating_mul(element_bytes));
    let legal = || legal(request);
    let names = || legal().map(|algorithm| algorithm.name).collect::<Vec<&str>>().join(", ");
    let choice = |algorithm: &'static Algorithm, why: Why| Choice {
        algorithm,
        parameters: algorithm.parameters(&table.network, groups, elements, element_bytes),
        cost: algorithm.cost(&table.network, groups, bytes),
        why,
    };
    if forced == AUTO {
        let ruled = table
            .fitting(collective, groups, bytes, commutative)
            .find_map(|rule| Some((rule, legal().find(|algorithm| algorithm.name == rule.algorithm)?)));
        if let Some((rule, algorithm)) = ruled {
            let choice = choice(algorithm, Why::Rule { measured: rule.measured });
            let elements = |bytes: usize| (bytes / element_bytes.max(1)).max(1);
            let Parameters { segment, chunk, .. } = choice.parameters;
            let (segment, chunk) = (rule.segment.map_or(segment, elements), rule.chunk.map_or(chunk, elements));
            let parameters = Parameters { segment, chunk, leaders: rule.leaders, ..Parameters::WHOLE };
            return Ok(Choice { parameters, ..choice });
        }
        // What no messages come near: not left to formulas, whose constants are those of messages.
        if let Some(algorithm) = legal().find(|algorithm| algorithm.name == shared::NAME) {
            return Ok(choice(algorithm, Why::Memory));
        }
        let cost = |algorithm: &&Algorithm| algorithm.cost(&table.network, groups, bytes);
        let cheapest = legal().min_by(|a, b| cost(a).total_cmp(&cost(b)));
        return match cheapest {
            Some(algorithm) => Ok(choice(algorithm, Why::Formula)),
            None => Err(SelectionError::Nothing { collective, size }),
        };
    }
    let Some(algorithm) = collective.algorithms().iter().find(|algorithm| algorithm.name == forced) else {
        return Err(SelectionError::Unknown { collective, name: forced.to_string(), legal: names() });
    };
    match algorithm.forbidden(groups, commutative) {
        Some(restriction) => {
            let name = algorithm.name;
            Err(SelectionError::Forbidden { collective, name, restriction, size, legal: names() })
        }
        None => Ok(choice(algorithm, Why::Forced)),
    }
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
    use crate::groups::Link;

    fn all_reduce(groups: &Groups, elements: usize, commutative: bool) -> Request<'_> {
        Request { collective: Collective::AllReduce, groups, elements, element_bytes: 4, commutative }
    }

    fn chosen(request: &Request<'_>) -> &'static str {
        select(request, AUTO, &Table::default()).unwrap().algorithm.name
    }

    #[test]
    fn the_documented_borders_of_all_reduce_are_those_of_the_model() {
        const KIB: usize = 1024;
        // From so many KiB on.
        let few = |doubling: usize, halving: usize, rings: &[(usize, &'static str)]| {
            let mut all = vec![(8, "recursive_multiplying"), (doubling * KIB, "recursive_doubling")];
            all.push((halving * KIB, "rabenseifner"));
            all.extend(rings.iter().map(|(from, name)| (from * KIB, *name)));
            all
        };
        let documented: [(usize, &[(usize, &str)]); 6] = [
            (2, &[(8, "recursive_doubling"), (128 * KIB, "segmented_ring")]),
            (3, &[(8, "linear"), (8 * KIB, "ring"), (256 * KIB, "segmented_ring")]),
            (4, &few(8, 32, &[(512, "segmented_ring")])),
            (8, &few(4, 32, &[(1024, "segmented_ring")])),
            (16, &few(8, 16, &[(4096, "segmented_ring")])),
            (96, &few(8, 16, &[(1024, "ring"), (8192, "segmented_ring")])),
        ];
        let mut all = Vec::new();
        for (size, _) in documented {
            let mut found: Vec<(usize, &str)> = Vec::new();
            for bytes in (3..28).map(|power| 1 << power) {
                let name = chosen(&all_reduce(&Groups::apart(size), bytes / 4, true));
                if found.last().is_none_or(|&(_, last)| last != name) {
                    found.push((bytes, name));
                }
            }
            all.push((size, found));
        }
        assert_eq!(all, documented.map(|(size, borders)| (size, borders.to_vec())));
    }

    #[test]
    fn an_algorithm_that_breaks_rank_order_is_never_chosen_for_an_operator_that_needs_it() {
        let in_turn = |size: usize| Groups::by_label((0..size).map(|rank| rank % 3));
        for collective in Collective::ALL.into_iter().filter(|collective| collective.reduces()) {
            for size in 1..100 {
                let racks = Groups::every(size, 4).within((0..size).map(|rank| rank / 12), Link::Between).unwrap();
                let dealt = Groups::every(size, 4).within((0..size).map(|rank| rank / 4 % 2), Link::Between).unwrap();
                let flat = [Groups::together(size), Groups::apart(size), Groups::every(size, 8), in_turn(size)];
                for groups in flat.into_iter().chain([racks, dealt]) {
                    for power in (0..28).step_by(3) {
                        let request = Request { collective, ..all_reduce(&groups, 1 << power, false) };
                        let algorithm = select(&request, AUTO, &Table::default()).unwrap().algorithm;
                        assert!(algorithm.keeps_rank_order(&groups), "{request:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn two_hops_are_chosen_where_hosts_have_many_ranks() {
        let hosts = Groups::every(96, 8);
        for bytes in [8, 1 << 10, 8 << 10] {
            assert_eq!(chosen(&all_reduce(&hosts, bytes / 4, true)), "two_hop", "{bytes} bytes");
        }
        // A flat ring moves as little between hosts, and here its many messages no longer cost much.
        assert_eq!(chosen(&all_reduce(&hosts, 1 << 20, true)), "ring");
        let reduce = Request { collective: Collective::Reduce, ..all_reduce(&hosts, 1 << 20, true) };
        assert_eq!(chosen(&reduce), "two_hop_chain");
    }

    #[test]
    fn a_forced_algorithm_is_used_whatever_it_costs() {
        for name in ["linear", "ring", "rabenseifner"] {
            assert_eq!(
                select(&all_reduce(&Groups::apart(7), 1, true), name, &Table::default()).unwrap().algorithm.name,
                name
            );
        }
    }

    #[test]
    fn a_forced_algorithm_that_is_not_legal_is_refused_with_the_restriction_and_the_legal_ones() {
        let text = select(&all_reduce(&Groups::apart(4), 1, false), "ring", &Table::default()).unwrap_err().to_string();
        assert_eq!(
            text,
            "collectives.all_reduce = ring: the operator must commute, which is not so in this call on 4 ranks; \
             allowed here: auto, linear, binomial, recursive_doubling, recursive_multiplying, rabenseifner"
        );
        let six = Groups::apart(6);
        let gather = Request { collective: Collective::AllGather, ..all_reduce(&six, 1, true) };
        let text = select(&gather, "recursive_doubling", &Table::default()).unwrap_err().to_string();
        assert!(text.contains("power of two") && text.ends_with("auto, ring, bruck"), "{text}");
    }

    #[test]
    fn the_memory_of_one_host_is_among_the_legal_ones_where_there_is_some() {
        let memory = Groups::together(3).with_memory_of_all();
        let text = select(&all_reduce(&memory, 1, false), "ring", &Table::default()).unwrap_err().to_string();
        assert!(text.ends_with("recursive_multiplying, rabenseifner, shared"), "{text}");
        let apart = Groups::apart(3);
        let text = select(&all_reduce(&apart, 1, true), "shared", &Table::default()).unwrap_err().to_string();
        assert!(text.contains("all_reduce = shared: all ranks must be on one host"), "{text}");
        assert!(text.ends_with("segmented_ring, rabenseifner"), "{text}");
        let gather = Request { collective: Collective::Gather, ..all_reduce(&memory, 1, true) };
        assert_eq!(chosen(&gather), chosen(&Request { groups: &Groups::together(3), ..gather }));
    }

    #[test]
    fn a_name_that_does_not_exist_is_refused_with_the_legal_ones() {
        let text = select(&all_reduce(&Groups::apart(4), 1, true), "rings", &Table::default()).unwrap_err().to_string();
        assert!(text.contains("all_reduce = rings") && text.contains("auto, linear, binomial"), "{text}");
    }

    #[test]
    fn segments_of_the_chain_follow_the_formula() {
        let apart = Groups::apart(18);
        let request = Request { collective: Collective::Broadcast, ..all_reduce(&apart, 1 << 20, true) };
        let segment = select(&request, AUTO, &Table::default()).unwrap().parameters.segment;
        // sqrt(16 * 4 MiB * 0.5 ns / 5.5 us) = 78.1 segments
        assert_eq!((1usize << 20).div_ceil(segment), 78);
        let nothing = Request { elements: 0, ..request };
        assert_eq!(select(&nothing, AUTO, &Table::default()).unwrap().parameters.segment, 1);
    }
}
