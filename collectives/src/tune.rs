//! Trying algorithms on the ranks of a job: what `rsbench tune collectives` fills the tuning [`Table`] with.
//!
//! One job tries them all, because a trial says itself how it is done; that is for measuring only: programs leave it to the
//! configuration.

use crate::algorithms::{Algorithm, Collective, Parameters, Shape};
use crate::call::Call;
use crate::error::{Error, Result};
use crate::groups::Groups;
use crate::operators::{Op, Sum};
use crate::plan::{Plan, Plans};
use crate::prelude::Collectives as _;
use crate::price::Network;
use crate::select::{Request, SelectionError};
use crate::shared::{self, Grouped, HopPlan, IN_TWO_HOPS, Shared};
use crate::table::{OperatorClass, Rule, Table};
use spmd::Communicator;
use std::time::Instant;

/// Bytes from which ways in memory are also tried in smaller chunks.
const SMALLEST_QUARTERED: usize = 256 << 10;

/// The collectives that are tried: those of which several algorithms are worth it on several hosts.
pub const TRIED: [Collective; 3] = [Collective::Broadcast, Collective::Reduce, Collective::AllReduce];

/// The groups of a communicator's ranks, as the configuration says.
#[must_use]
pub fn groups(comm: &Communicator) -> Groups {
    crate::plan::groups(comm)
}

/// The same, and whether all ranks share memory, or those of each group, in which collectives may work: where that is so the
/// memory is made. Collective.
///
/// # Errors
/// The configuration's groups are wrong, or a rank is lost.
pub fn groups_and_memory(comm: &Communicator) -> Result<Groups> {
    let call = Call::new::<f32>(comm, Collective::AllReduce, 0, 0);
    comm.attribute(|| Plans::new(comm)).groups_and_memory(&call)
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
    /// The network that it gives them for, by which leaders in memory choose how they exchange.
    pub network: Network,
    /// Whether chunks and segments are those of the formula.
    pub by_formula: bool,
}

/// The ways that the cost formulas find best for so many bytes, the cheapest first, `most` at most; where one of them works in
/// two hops in memory, in several chunks, the same in chunks of a quarter: what these cost depends on processors, which the
/// formulas do not know; and where all ranks share memory the way through that. `groups`: of [`groups_and_memory`], or ways in
/// memory are none.
#[must_use]
pub fn candidates(collective: Collective, groups: &Groups, bytes: usize, table: &Table, most: usize) -> Vec<Trial> {
    let trial = |algorithm: &'static Algorithm| Trial {
        collective,
        algorithm,
        parameters: algorithm.parameters(&table.network, groups, bytes / 4, 4),
        predicted: algorithm.cost(&table.network, groups, bytes),
        network: table.network,
        by_formula: true,
    };
    let legal = collective.algorithms().iter().filter(|algorithm| algorithm.forbidden(groups, true).is_none());
    let (shared, mut all): (Vec<Trial>, Vec<Trial>) =
        legal.map(trial).partition(|trial| trial.algorithm.name == shared::NAME);
    all.sort_by(|a, b| a.predicted.total_cmp(&b.predicted));
    all.truncate(most);
    let in_memory = all.iter().find(|trial| trial.algorithm.name == IN_TWO_HOPS && bytes >= SMALLEST_QUARTERED);
    let in_quarters = in_memory.map(|trial| {
        let Parameters { segment, chunk, .. } = trial.parameters;
        let chunk = chunk.div_ceil(4);
        let parameters = Parameters { chunk, segment: segment.min(chunk), ..trial.parameters };
        Trial { parameters, by_formula: false, ..*trial }
    });
    all.extend(in_quarters);
    all.extend(shared);
    all
}

/// How a trial is done.
enum Way<'a> {
    Messages(Plan),
    Groups(&'a Grouped, HopPlan),
    Shared(&'a Shared),
}

impl Trial {
    /// Seconds that the slowest rank takes, the median of `rounds` rounds; the same on all ranks. Collective.
    ///
    /// # Errors
    /// The algorithm may not be used among these ranks, or a rank is lost.
    pub fn measure(&self, comm: &Communicator, bytes: usize, rounds: usize) -> Result<f64> {
        let Trial { collective, algorithm, parameters, .. } = *self;
        let groups = match self.is_in_memory() {
            true => groups_and_memory(comm)?,
            false => groups(comm),
        };
        let (rank, size, elements) = (comm.rank(), comm.size(), bytes / 4);
        let request = Request { collective, groups: &groups, elements, element_bytes: 4, commutative: true };
        if let Some(restriction) = algorithm.forbidden(request.groups, true) {
            let (name, legal) = (algorithm.name, String::new());
            return Err(Error::Selection(SelectionError::Forbidden { collective, name, restriction, size, legal }));
        }
        let call = Call::new::<f32>(comm, collective, 0, elements);
        let shape = Shape { rank, size, root: 0, elements, groups: &groups, parameters };
        let op = collective.reduces().then_some(&Sum as &dyn Op<f32>);
        let plans = comm.attribute(|| Plans::new(comm));
        // Of ways in memory; others say it themselves.
        let takes = if collective == Collective::Reduce { elements } else { 0 };
        let gets = if collective != Collective::Reduce || rank == 0 { elements } else { 0 };
        let (way, input, output) = match algorithm.name {
            IN_TWO_HOPS => {
                let (table, wanted) = (Table { network: self.network, ..Table::default() }, call.wanted::<f32>(op));
                let (grouped, plan) = plans.hop_plan_of(&call, &wanted, algorithm.name, &shape, &table)?;
                (Way::Groups(grouped, plan), takes, gets)
            }
            shared::NAME => {
                let shared = plans.memory(&call)?;
                let shared = shared.unwrap_or_else(|| unreachable!("it is legal where there is such memory only"));
                (Way::Shared(shared), takes, gets)
            }
            name => {
                let schedule = algorithm.schedule(&shape).map_err(|source| call.no_schedule(source))?;
                let lengths = schedule.lengths();
                (Way::Messages(call.plan_of(name, schedule)), lengths.input, lengths.output)
            }
        };
        let (input, mut output) = (vec![1.0_f32; input], vec![1.0_f32; output]);
        let mut times = Vec::with_capacity(rounds);
        // The first round makes connections.
        for round in 0..=rounds {
            comm.barrier()?;
            let begun = Instant::now();
            match &way {
                Way::Messages(plan) => call.follow(plan, &input, &mut output, op)?,
                Way::Groups(grouped, plan) => call.hop(grouped, plan, &input, &mut output, op)?,
                Way::Shared(shared) => call.in_memory(shared, &input, &mut output, op)?,
            }
            let took = comm.all_gather(&[begun.elapsed().as_secs_f64()])?;
            if round > 0 {
                times.push(took.into_iter().fold(0.0, f64::max));
            }
        }
        times.sort_by(f64::total_cmp);
        Ok(times.get(times.len() / 2).copied().unwrap_or(0.0))
    }

    /// Whether it works in memory that ranks share, which only calls that block can.
    #[must_use]
    pub fn is_in_memory(&self) -> bool {
        [shared::NAME, IN_TWO_HOPS].contains(&self.algorithm.name)
    }

    /// The rule that says: so it is done, for these bytes.
    #[must_use]
    pub fn rule(&self, groups: &Groups, bytes: std::ops::RangeInclusive<usize>, measured: f64) -> Rule {
        let Trial { collective, algorithm, parameters, predicted, .. } = *self;
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
            segment: Some(of(parameters.segment)),
            chunk: Some(of(parameters.chunk)),
            leaders: parameters.leaders,
            predicted: Some(predicted),
            measured: Some(measured),
        }
    }

    /// The rule that says the same of more than was measured, from so many bytes on: the same algorithm, in the pieces that the
    /// formulas find best for each call, unless others were found better.
    #[must_use]
    pub fn rule_above(&self, groups: &Groups, from: usize) -> Rule {
        let rule = self.rule(groups, from..=usize::MAX, 0.0);
        let pieces = |most: Option<usize>| most.filter(|_| !self.by_formula);
        let (segment, chunk) = (pieces(rule.segment), pieces(rule.chunk));
        Rule { segment, chunk, predicted: None, measured: None, ..rule }
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

    #[test]
    fn ways_in_memory_are_tried_where_groups_have_memory_and_a_rule_for_one_decides() {
        let table = Table::default();
        let bytes = 1 << 20;
        let rules = spmd::local::Cluster::new(6).hosts(2).run(|world| {
            let comm = world.communicator();
            assert!(!groups(&comm).share_memory());
            let groups = groups_and_memory(&comm).unwrap();
            let mut rules = Vec::new();
            for collective in TRIED {
                let all = candidates(collective, &groups, bytes, &table, 99);
                let in_memory: Vec<Trial> =
                    all.into_iter().filter(|trial| trial.algorithm.name == IN_TWO_HOPS).collect();
                let [whole, quarter] = &in_memory[..] else { panic!("{in_memory:?}") };
                assert_eq!(whole.parameters.chunk.div_ceil(4), quarter.parameters.chunk);
                for trial in in_memory {
                    let measured = trial.measure(&comm, bytes, 2).unwrap();
                    assert!(measured > 0.0);
                    rules.push(trial.rule(&groups, 0..=bytes, measured));
                }
            }
            // What goes by messages takes no notice.
            assert!(
                candidates(Collective::Gather, &groups, bytes, &table, 99)
                    .iter()
                    .all(|one| one.algorithm.name != IN_TWO_HOPS)
            );
            rules
        });
        let rules = rules.unwrap().swap_remove(0);
        assert_eq!(rules.len(), 2 * TRIED.len());
        let chunk = rules.last().unwrap().chunk.unwrap();
        let text = Table { rules: rules.into_iter().rev().collect(), ..table }.to_string();
        let ruled =
            spmd::local::Cluster::new(6).hosts(2).set("collectives.table", &text.replace('\n', ";")).run(|world| {
                let comm = world.communicator();
                let mut data = vec![comm.rank(); bytes / 8];
                comm.all_reduce(&mut data, Sum).unwrap();
                assert_eq!(data, vec![15; bytes / 8]);
                world.statistics().memory.collectives.calls
            });
        assert!(ruled.unwrap().iter().all(|calls| *calls > 0) && chunk > 0);
    }
}
