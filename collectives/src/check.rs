//! Proves schedules: runs those of all ranks together on symbols instead of numbers.
//!
//! [`schedules`] shows for the given number of ranks and elements that
//!
//! - every message has a sender and a receiver that agree on its length and number;
//! - nothing waits for ever, neither when a send completes only with its receive (rendezvous) nor when it completes at
//!   once (eager); completion is monotone, so that one order of events stands for all;
//! - no two steps of a rank that may run at the same time touch the same elements, one of them writing;
//! - nothing undefined is read, and every rank ends with what the collective promises: each element combined exactly
//!   once, in rank order unless the operator must commute, and by the same expression on every rank, so that all get
//!   the same bits whatever the rounding;
//! - no rank leaves a barrier before all have entered.
//!
//! It trusts nothing of how the schedules were built, and knows no transport.

mod fault;
mod promise;
mod races;
mod run;
mod symbols;

pub use fault::Fault;

use crate::algorithms::{Algorithm, Collective, Parameters, Shape};
use crate::groups::Groups;
use crate::schedule::{Action, Schedule};
use promise::Promise;
use run::{Mode, Run};

/// What the schedules of all ranks are to do together.
#[derive(Clone, Copy, Debug)]
pub struct Task {
    /// The collective.
    pub collective: Collective,
    /// The number of ranks.
    pub size: usize,
    /// Elements per rank: see [`Collective`].
    pub elements: usize,
    /// The root; 0 where there is none.
    pub root: usize,
    /// Whether values must be combined in rank order.
    pub rank_order: bool,
}

/// What is known of schedules that were proved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Messages of all ranks together.
    pub messages: usize,
    /// Elements in these messages.
    pub elements: usize,
    /// The longest chain of messages of which each waits for the one before.
    pub rounds: usize,
    /// The most elements of scratch that a rank needs.
    pub scratch: usize,
}

/// Proves one algorithm among such groups, for one number of elements, one root, and parameters as given.
///
/// # Errors
/// The first [`Fault`] found.
pub fn algorithm(
    collective: Collective,
    algorithm: &Algorithm,
    groups: &Groups,
    elements: usize,
    root: usize,
    parameters: Parameters,
) -> Result<Report, Fault> {
    let size = groups.size();
    let all = (0..size)
        .map(|rank| algorithm.schedule(&Shape { rank, size, root, elements, groups, parameters }))
        .collect::<Result<Vec<Schedule>, _>>()?;
    let rank_order = algorithm.keeps_rank_order(groups);
    schedules(&Task { collective, size, elements, root, rank_order }, &all)
}

/// Proves that the schedules, one for each rank in order, fulfil the task.
///
/// # Errors
/// The first [`Fault`] found.
pub fn schedules(task: &Task, schedules: &[Schedule]) -> Result<Report, Fault> {
    let promise = Promise::of(task);
    if schedules.len() != task.size {
        return Err(Fault::Count { schedules: schedules.len(), size: task.size });
    }
    for (rank, schedule) in schedules.iter().enumerate() {
        promise.check_buffers(rank, schedule)?;
        races::check(rank, schedule)?;
    }
    let mut rounds = 0;
    for mode in [Mode::Rendezvous, Mode::Eager] {
        let mut run = Run::new(&promise, schedules, mode);
        run.finish()?;
        promise.check_outputs(&run)?;
        rounds = rounds.max(run.rounds());
    }
    let mut report = Report { messages: 0, elements: 0, rounds, scratch: 0 };
    for schedule in schedules {
        report.scratch = report.scratch.max(schedule.lengths().scratch);
        for step in schedule.steps() {
            if let Action::Send { from, .. } = step.action {
                report.messages += 1;
                report.elements += from.length;
            }
        }
    }
    Ok(report)
}
