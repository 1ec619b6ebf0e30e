//! Two hops whose inner one goes through the memory that the ranks of a group share: what selection knows of them.
//!
//! There is no schedule: what is done is in `shared`, written directly, and proved by loom and by tests instead of by the
//! checker. Between the groups leaders follow the schedule of one of the other algorithms.

use super::{Load, Pieces, Pipeline, Shape};
use crate::price::Model;
use crate::schedule::{Schedule, ScheduleError};

pub(crate) const NAME: &str = "two_hop_shared";

/// Bytes of a chunk at most.
pub(crate) const CHUNK: usize = 1 << 20;

pub(super) const SOURCE: &str = "Luo et al.: HAN, 2020, with Jain et al.: Framework for scalable intra-node collective operations using shared memory, 2018";

/// Into memory and out of everybody's part of it, between the groups, and out of memory.
///
/// A signal in memory costs what a message inside a group does, whatever the number of ranks; a leader combines what all of
/// its group have given.
pub(super) fn stages(
    model: &Model,
    load: &Load<'_>,
    between: fn(&Model, &Load<'_>) -> f64,
) -> Pipeline<impl Fn(f64, bool) -> [f64; 3]> {
    let (model, load, leaders, others) = (*model, *load, load.of_leaders(), load.width - 1.0);
    Pipeline(move |bytes, _| {
        let inside = load.inside;
        // Racks, where there are any, in hops of their own.
        let above: f64 = load
            .levels()
            .skip(1)
            .map(|(width, link)| width.log2().ceil() * (2.0 * link.message(bytes) + link.reduction(bytes)))
            .sum();
        [
            inside.message(bytes) + others * inside.reduction(bytes),
            above + between(&model, &leaders.of_bytes(bytes)),
            inside.message(bytes),
        ]
    })
}

/// Chunks as large as there is room: each costs every rank turns of its processor, whatever its length. With 8 ranks on each
/// of three hosts an all-reduce of 256 KiB took 4.3 ms in one chunk and 5.9 ms in four, one of 4 MiB 55 ms in chunks of 1 MiB
/// and 80 ms in chunks of 64 KiB (one turn, two busy cores for all).
pub(super) fn pieces(_: &Model, load: &Load<'_>) -> Pieces {
    Pieces::alike((load.bytes / CHUNK as f64).max(1.0))
}

pub(super) fn build(_: &Shape<'_>) -> Result<Schedule, ScheduleError> {
    Err(ScheduleError::InMemory)
}
