//! Schedules of some ranks within what all ranks do.

use crate::compose::{Builder, StepId};
use crate::schedule::{Action, Buffer, Schedule, ScheduleError, Slice};

/// The schedule of a rank of some ranks only as one of all `size` ranks: `peers` are the ranks of the whole, in the order of
/// those few.
///
/// # Errors
/// It is not well formed: see [`Builder::finish`].
pub fn among(schedule: &Schedule, rank: usize, size: usize, peers: &[usize]) -> Result<Schedule, ScheduleError> {
    let lengths = schedule.lengths();
    let mut b = Builder::new(rank, size, lengths.input, lengths.output);
    let places = [b.input(), b.output(), b.scratch(lengths.scratch)];
    embed(&mut b, schedule, peers, places, &[]);
    b.finish()
}

/// Writes the steps of a schedule of `peers`, with its input, output and scratch at `places`; nothing of it begins before
/// `after`.
pub(super) fn embed(b: &mut Builder, schedule: &Schedule, peers: &[usize], places: [Slice; 3], after: &[StepId]) {
    let place = |slice: Slice| {
        let of = match slice.buffer {
            Buffer::Input => places[0],
            Buffer::Output => places[1],
            Buffer::Scratch => places[2],
        };
        of.part(slice.offset, slice.length)
    };
    for step in schedule.steps() {
        match step.action {
            Action::Send { peer, from } => b.send_after(peers[peer], place(from), after),
            Action::Receive { peer, into } => b.receive_after(peers[peer], place(into), after),
            Action::Reduce { operand, into, side } => b.reduce(place(operand), place(into), side),
            Action::Copy { from, into } => b.copy(place(from), place(into)),
        };
    }
}
