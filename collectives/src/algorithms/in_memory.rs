//! What goes through memory that ranks share, as far as selection knows it: all ranks of one host (`shared`), and two hops whose
//! inner one does (`two_hop_shared`).
//!
//! There is no schedule: what is done is in the module `shared`, written directly, and proved by loom and by tests instead of by
//! the checker. Between the groups leaders follow the schedule of one of the other algorithms.

use super::broadcast::segments;
use super::{Algorithm, Collective, Load, Pieces, Pipeline, Restriction, Shape, whole};
use crate::price::Model;
use crate::schedule::{Schedule, ScheduleError};

pub(crate) const NAME: &str = "two_hop_shared";

/// The form in which all ranks share memory.
pub(crate) const SHARED: &str = "shared";

/// The form in which all ranks share memory, of collectives that move data.
pub(super) const MOVED_BY_ALL: Algorithm = Algorithm {
    name: SHARED,
    restrictions: &[Restriction::SharedMemory],
    source: "Jain et al.: Framework for scalable intra-node collective operations using shared memory, 2018",
    pieces: whole,
    cost: |_, load| cost_of_all(load, false),
    build,
};

/// The same of collectives that combine it.
pub(super) const COMBINED_BY_ALL: Algorithm = Algorithm { cost: |_, load| cost_of_all(load, true), ..MOVED_BY_ALL };

/// Everybody's data into memory, combined out of it, each rank its block, and the result out of it. An estimate: a signal in
/// memory costs what a message inside a host does. It is told, and decides nothing: where all ranks share memory this form is
/// taken unless a rule or a key says something else.
fn cost_of_all(load: &Load<'_>, combines: bool) -> f64 {
    let others = if combines { (load.size - 1.0) / load.size } else { 0.0 };
    2.0 * load.inside.message(load.bytes) + load.inside.reduction(others * load.bytes)
}

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
    between: impl Fn(&Model, &Load<'_>) -> f64,
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

/// What goes one way only, from or to the root: along a tree of the leaders, or along a chain, which is filled once, whatever
/// the number of chunks: a leader begins with the next one when it has passed on the last segment of this one. `inside`: which
/// of the first and of the last stage there are; `one`: of a segment, at each leader.
pub(super) fn cost_one_way(
    model: &Model,
    load: &Load<'_>,
    inside: [f64; 2],
    tree: fn(&Model, &Load<'_>) -> f64,
    one: fn(&Model, f64) -> f64,
) -> f64 {
    let leaders = load.of_leaders();
    let segment = load.bytes / segments(model, &leaders);
    let (first, next) = (leaders.neighbours(model, segment), one(model, segment) - model.latency);
    let only = |stages: [f64; 3]| [inside[0] * stages[0], stages[1], inside[1] * stages[2]];
    let along_tree = stages(model, load, tree);
    let along_tree = Pipeline(|bytes, is_cut| only((along_tree.0)(bytes, is_cut)));
    let along_chain = stages(model, load, |_, load| load.bytes / segment.max(f64::MIN_POSITIVE) * next);
    let along_chain = Pipeline(|bytes, is_cut| only((along_chain.0)(bytes, is_cut)));
    (first - next + along_chain.cost_in(chunks(load.bytes), load.bytes)).min(along_tree.cost(load.bytes))
}

/// In how many chunks so many bytes go.
fn chunks(bytes: f64) -> f64 {
    (bytes / CHUNK as f64).ceil().max(1.0)
}

/// Chunks as large as there is room; between the groups in `segments`.
///
/// K chunks take the slowest stage K times, which costs `(K - 1) alpha_m` more than one, and save `(1 - 1 / K)` of what the
/// others take. Where links are slow, that is the time inside, of which there is little to save: with 96 ranks on 12 hosts of
/// 100 Mbit/s 25 of 700 ms for 4 MiB, and another chunk costs 8 ms, the latencies of a ring. Where they are fast, each
/// chunk costs every rank turns of its processor, which no constant tells. Either way large ones are the faster: 780 ms in
/// chunks of 1 MiB, 820 in halves there; and on three hosts of 8 ranks 40 ms in chunks of 1 MiB, 45, 55 and 72 in chunks of
/// 256, 128 and 64 KiB (two processors for all ranks). What travels in short pieces is what has to: a block of a ring that is
/// longer than what leaves at once is announced first, and whoever is to answer has to get a processor. Unsegmented, 4 MiB
/// took 990 ms there, and 48 here.
pub(super) fn pieces(model: &Model, load: &Load<'_>, segments: fn(&Model, &Load<'_>) -> f64) -> Pieces {
    let chunks = chunks(load.bytes);
    Pieces { segments: segments(model, &load.of_leaders()).max(chunks), chunks }
}

/// The form of an algorithm of leaders in which a chunk travels in segments, where it has one.
pub(crate) fn in_segments(collective: Collective, algorithm: &Algorithm) -> Option<&'static Algorithm> {
    let name = match algorithm.name {
        "ring" | "segmented_ring" => "segmented_ring",
        "chain" => "chain",
        _ => return None,
    };
    collective.algorithms().iter().find(|row| row.name == name)
}

pub(super) fn build(_: &Shape<'_>) -> Result<Schedule, ScheduleError> {
    Err(ScheduleError::InMemory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::groups::Groups;
    use crate::price::Network;

    /// Bytes of a chunk and of a segment of an all-reduce.
    fn pieces_on(between: Model, groups: &Groups, bytes: usize) -> (usize, usize) {
        let all = Collective::AllReduce.algorithms();
        let row = all.iter().find(|row| row.name == NAME).unwrap();
        let found = row.parameters(&Network { between, ..Network::ASSUMED }, groups, bytes / 4, 4);
        (4 * found.chunk, 4 * found.segment)
    }

    #[test]
    fn chunks_are_large_and_segments_take_a_link_four_times_what_a_message_costs() {
        let groups = Groups::every(96, 8).with_memory();
        // 100 Mbit/s, 134 us, and 223 us a message.
        let slow = Model { latency: 134e-6, overhead: 223e-6, per_byte: 85.5e-9, per_byte_reduced: 3e-10 };
        let (chunk, segment) = pieces_on(slow, &groups, 4 << 20);
        assert!(chunk == CHUNK && (15_000..18_000).contains(&segment), "{chunk} {segment}");
        let fast = Model { latency: 20e-6, overhead: 2e-6, per_byte: 8e-10, per_byte_reduced: 1e-10 };
        let (chunk, segment) = pieces_on(fast, &Groups::every(24, 8).with_memory(), 4 << 20);
        assert!(chunk == CHUNK && (100_000..120_000).contains(&segment), "{chunk} {segment}");
        // On the fastest links no block is cut.
        let fastest = Model { latency: 2e-6, overhead: 3e-7, per_byte: 4e-11, per_byte_reduced: 1e-10 };
        assert_eq!(pieces_on(fastest, &groups, 1 << 20), (CHUNK, 4 * (CHUNK / 4).div_ceil(12)));
        let (chunk, _) = pieces_on(slow, &groups, (1 << 20) + 4);
        assert_eq!(chunk, (1 << 19) + 4, "two of the same length, not a large one and a rest");
    }
}
