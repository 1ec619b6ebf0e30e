//! Trying algorithms on the ranks of a job: what `rsbench tune collectives` fills the tuning [`Table`] with.
//!
//! One job tries them all, because a trial says itself how it is done; that is for measuring only: programs leave it to the
//! configuration.

use crate::algorithms::{Algorithm, Collective, Parameters, Shape};
use crate::call::Call;
use crate::error::{Error, Result};
use crate::groups::Groups;
use crate::operators::Sum;
use crate::prelude::Collectives as _;
use crate::select::{Request, SelectionError};
use crate::table::{OperatorClass, Rule, Table};
use spmd::Communicator;
use std::time::Instant;

/// The collectives that are tried: those of which several algorithms are worth it on several hosts.
pub const TRIED: [Collective; 3] = [Collective::Broadcast, Collective::Reduce, Collective::AllReduce];

/// The groups of a communicator's ranks, as the configuration says.
#[must_use]
pub fn groups(comm: &Communicator) -> Groups {
    crate::plan::groups(comm)
}

/// One way to do a collective on `f32`, with rank 0 as the root.
#[derive(Clone, Copy, Debug)]
pub struct Trial {
    /// The collective.
    pub collective: Collective,
    /// How.
    pub algorithm: &'static Algorithm,
    /// With which parameters.
    pub parameters: Parameters,
    /// Seconds that the cost formula gives.
    pub predicted: f64,
}

/// The ways that the cost formulas find best for so many bytes, the cheapest first, `most` at most.
#[must_use]
pub fn candidates(collective: Collective, groups: &Groups, bytes: usize, table: &Table, most: usize) -> Vec<Trial> {
    let trial = |algorithm: &'static Algorithm| Trial {
        collective,
        algorithm,
        parameters: algorithm.parameters(&table.network, groups, bytes / 4, 4),
        predicted: algorithm.cost(&table.network, groups, bytes),
    };
    let legal = collective.algorithms().iter().filter(|algorithm| algorithm.forbidden(groups, true).is_none());
    let mut all: Vec<Trial> = legal.map(trial).collect();
    all.sort_by(|a, b| a.predicted.total_cmp(&b.predicted));
    all.truncate(most);
    all
}

impl Trial {
    /// Seconds that the slowest rank takes, the median of `rounds` rounds; the same on all ranks. Collective.
    ///
    /// # Errors
    /// The algorithm may not be used among these ranks, or a rank is lost.
    pub fn measure(&self, comm: &Communicator, bytes: usize, rounds: usize) -> Result<f64> {
        let Trial { collective, algorithm, parameters, .. } = *self;
        let (rank, size, elements, groups) = (comm.rank(), comm.size(), bytes / 4, groups(comm));
        let request = Request { collective, groups: &groups, elements, element_bytes: 4, commutative: true };
        if let Some(restriction) = algorithm.forbidden(request.groups, true) {
            let (name, legal) = (algorithm.name, String::new());
            return Err(Error::Selection(SelectionError::Forbidden { collective, name, restriction, size, legal }));
        }
        let call = Call::new::<f32>(comm, collective, 0, elements);
        let shape = Shape { rank, size, root: 0, elements, groups: &groups, parameters };
        let schedule = algorithm.schedule(&shape).map_err(|source| call.no_schedule(source))?;
        let (input, output) = (schedule.lengths().input, schedule.lengths().output);
        let plan = call.plan_of(algorithm.name, schedule);
        let (input, mut output) = (vec![1.0_f32; input], vec![1.0_f32; output]);
        let mut times = Vec::with_capacity(rounds);
        // The first round makes connections.
        for round in 0..=rounds {
            comm.barrier()?;
            let begun = Instant::now();
            call.follow(&plan, &input, &mut output, Some(&Sum))?;
            let took = comm.all_gather(&[begun.elapsed().as_secs_f64()])?;
            if round > 0 {
                times.push(took.into_iter().fold(0.0, f64::max));
            }
        }
        times.sort_by(f64::total_cmp);
        Ok(times.get(times.len() / 2).copied().unwrap_or(0.0))
    }

    /// The rule that says: so it is done, for these bytes.
    #[must_use]
    pub fn rule(&self, groups: &Groups, bytes: std::ops::RangeInclusive<usize>, measured: f64) -> Rule {
        let Trial { collective, algorithm, parameters, predicted } = *self;
        let of = |elements: usize| elements.saturating_mul(4).min(1 << 30);
        Rule {
            collective,
            ranks: groups.size(),
            groups: groups.counts(),
            bytes,
            operator: match algorithm.keeps_rank_order(groups) {
                true => OperatorClass::Any,
                false => OperatorClass::Commutative,
            },
            algorithm: algorithm.name.into(),
            segment: of(parameters.segment),
            chunk: of(parameters.chunk),
            leaders: parameters.leaders,
            predicted,
            measured,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_ways_of_every_collective_are_tried_and_become_rules_that_are_read_again() {
        let table = Table::default();
        let rules = spmd::local::Cluster::new(6).set("collectives.group_size", "3").run(|world| {
            let comm = world.communicator();
            let groups = groups(&comm);
            let mut rules = Vec::new();
            for collective in TRIED {
                let tried = candidates(collective, &groups, 4096, &table, 3);
                assert!(tried.len() == 3 && tried.is_sorted_by(|a, b| a.predicted <= b.predicted));
                for trial in tried {
                    let measured = trial.measure(&comm, 4096, 2).unwrap();
                    assert!(measured > 0.0);
                    rules.push(trial.rule(&groups, 0..=4096, measured));
                }
            }
            rules
        });
        let rules = rules.unwrap().swap_remove(0);
        let found = Table::parse(&Table { rules: rules.clone(), ..table }.to_string()).unwrap().rules;
        assert!(
            found
                .iter()
                .zip(&rules)
                .all(|(a, b)| (&a.algorithm, &a.bytes, a.chunk) == (&b.algorithm, &b.bytes, b.chunk))
        );
        assert_eq!(found.len(), 9);
    }
}
