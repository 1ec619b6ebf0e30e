//! Two hops whose inner one goes through the memory that the ranks of a group share: what selection knows of them.
//!
//! There is no schedule: what is done is in `shared`, written directly, and proved by loom and by tests instead of by the
//! checker. Between the groups leaders follow the schedule of one of the other algorithms.

use super::{Load, Pipeline, Shape};
use crate::price::Model;
use crate::schedule::{Schedule, ScheduleError};

pub(crate) const NAME: &str = "two_hop_shared";

pub(super) const SOURCE: &str = "Luo et al.: HAN, 2020, with Jain et al.: Framework for scalable intra-node collective operations using shared memory, 2018";

/// Into memory and out of everybody's part of it, between the groups, and out of memory.
///
/// A signal in memory costs what a message inside a group does, whatever the number of ranks; a leader combines what all of
/// its group have given.
pub(super) fn stages(
    model: &Model,
    load: &Load,
    between: fn(&Model, &Load) -> f64,
) -> Pipeline<impl Fn(f64) -> [f64; 3]> {
    let (model, inside, leaders, others) = (*model, load.inside, load.of_leaders(), load.width - 1.0);
    Pipeline(move |bytes| {
        [
            inside.message(bytes) + others * inside.reduction(bytes),
            between(&model, &leaders.of_bytes(bytes)),
            inside.message(bytes),
        ]
    })
}

pub(super) fn build(_: &Shape<'_>) -> Result<Schedule, ScheduleError> {
    Err(ScheduleError::InMemory)
}
