//! How algorithms write schedules: a group of ranks, blocks of a slice, and a builder that finds the order by itself.
//!
//! An algorithm lists its steps as if they ran one after the other; [`Builder`] keeps of that order only what the
//! slices demand (a read after the write it needs, a write after the reads it would spoil). So algorithms compose:
//! emitting one after another, or one for each chunk, gives a pipeline without a word about it. Nothing here knows a
//! collective.

mod history;

use crate::schedule::{Action, Buffer, Lengths, RawSchedule, Schedule, ScheduleError, Side, Slice};
use history::History;

/// The index of a step in the schedule being built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepId(u32);

/// A point in the handing out of scratch; see [`Builder::rewind`].
#[derive(Clone, Copy, Debug)]
pub struct Mark(usize);

/// Collects the steps of one rank; see the module's words on order.
#[derive(Debug)]
pub struct Builder {
    rank: usize,
    size: usize,
    lengths: Lengths,
    raw: RawSchedule,
    /// Where the next piece of scratch begins.
    free: usize,
    history: [History; 3],
    after: Vec<u32>,
    failure: Option<ScheduleError>,
}

impl Builder {
    /// A builder for `rank` of a communicator of `size`, whose caller gives `input` and gets `output` elements.
    #[must_use]
    pub fn new(rank: usize, size: usize, input: usize, output: usize) -> Builder {
        Builder {
            rank,
            size,
            lengths: Lengths { input, output, scratch: 0 },
            raw: RawSchedule::default(),
            free: 0,
            history: Default::default(),
            after: Vec::new(),
            failure: None,
        }
    }

    /// The whole input.
    #[must_use]
    pub fn input(&self) -> Slice {
        Slice::input(0, self.lengths.input)
    }

    /// The whole output.
    #[must_use]
    pub fn output(&self) -> Slice {
        Slice::output(0, self.lengths.output)
    }

    /// `length` elements of scratch.
    pub fn scratch(&mut self, length: usize) -> Slice {
        let offset = self.free;
        match offset.checked_add(length) {
            Some(end) => {
                self.free = end;
                self.lengths.scratch = self.lengths.scratch.max(end);
            }
            None => self.failure = Some(ScheduleError::TooLarge),
        }
        Slice { buffer: Buffer::Scratch, offset, length }
    }

    /// The scratch handed out up to now.
    #[must_use]
    pub fn mark(&self) -> Mark {
        Mark(self.free)
    }

    /// Lets the scratch handed out since `mark` be handed out again: whoever uses it then waits for those who use it
    /// now. With this a pipeline bounds how many chunks are on their way, which it must: chunks that all start at once
    /// fill the ports with first hops while the second hops wait.
    pub fn rewind(&mut self, mark: Mark) {
        self.free = mark.0.min(self.free);
    }

    /// Sends `from` to `peer`.
    pub fn send(&mut self, peer: usize, from: Slice) -> StepId {
        self.push(Action::Send { peer, from }, &[])
    }

    /// Sends `from` to `peer` once `after` is complete, for order that no slice shows.
    pub fn send_after(&mut self, peer: usize, from: Slice, after: &[StepId]) -> StepId {
        self.push(Action::Send { peer, from }, after)
    }

    /// Receives `into` from `peer`.
    pub fn receive(&mut self, peer: usize, into: Slice) -> StepId {
        self.push(Action::Receive { peer, into }, &[])
    }

    /// Receives `into` from `peer`, and does not begin before `after` is complete.
    pub fn receive_after(&mut self, peer: usize, into: Slice, after: &[StepId]) -> StepId {
        self.push(Action::Receive { peer, into }, after)
    }

    /// Combines `operand`, standing on `side`, into `into`.
    pub fn reduce(&mut self, operand: Slice, into: Slice, side: Side) -> StepId {
        self.push(Action::Reduce { operand, into, side }, &[])
    }

    /// Copies `from` to `into`.
    pub fn copy(&mut self, from: Slice, into: Slice) -> StepId {
        self.push(Action::Copy { from, into }, &[])
    }

    /// The schedule.
    ///
    /// # Errors
    /// [`ScheduleError`] when the steps make no valid schedule.
    pub fn finish(self) -> Result<Schedule, ScheduleError> {
        match self.failure {
            Some(failure) => Err(failure),
            None => self.raw.finish(self.rank, self.size, self.lengths),
        }
    }

    fn push(&mut self, action: Action, after: &[StepId]) -> StepId {
        let step = match self.raw.next() {
            Ok(step) => step,
            Err(failure) => {
                self.failure = Some(failure);
                return StepId(u32::MAX);
            }
        };
        self.after.clear();
        self.after.extend(after.iter().map(|id| id.0));
        // A slice that overflows is refused by `finish`; its history would be nonsense.
        let counted = |slice: &Slice| slice.offset.checked_add(slice.length).is_some();
        let write = action.writes().filter(counted);
        for slice in action.reads().into_iter().flatten().filter(counted).filter(|read| Some(*read) != write) {
            self.history[slice.buffer as usize].read(slice.range(), step, &mut self.after);
        }
        if let Some(slice) = write {
            self.history[slice.buffer as usize].write(slice.range(), step, &mut self.after);
        }
        self.after.sort_unstable();
        self.after.dedup();
        if let Err(failure) = self.raw.push(action, &self.after) {
            self.failure = Some(failure);
        }
        StepId(step)
    }
}

/// The ranks that take part in an algorithm, and which of them this rank is: the whole communicator, or some of it
/// (the ranks of a host, the leaders of all hosts).
#[derive(Clone, Copy, Debug)]
pub struct Group<'a> {
    rank: usize,
    size: usize,
    members: Option<&'a [usize]>,
}

impl<'a> Group<'a> {
    /// All ranks of a communicator of `size`.
    #[must_use]
    pub fn all(rank: usize, size: usize) -> Group<'static> {
        Group { rank, size, members: None }
    }

    /// The given ranks of a communicator, as seen by its rank `rank`; `None` when that is not one of them.
    ///
    /// `members` must be the same list on every member, ascending where an operator needs rank order.
    #[must_use]
    pub fn of(members: &'a [usize], rank: usize) -> Option<Group<'a>> {
        let position = members.iter().position(|&member| member == rank)?;
        Some(Group { rank: position, size: members.len(), members: Some(members) })
    }

    /// This rank's position in the group.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// How many ranks the group has.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// The rank in the communicator of the member at `position`.
    ///
    /// # Panics
    /// When a listed group has no such position.
    #[must_use]
    pub fn peer(&self, position: usize) -> usize {
        self.members.map_or(position, |members| members[position])
    }

    /// The rank `distance` positions further, round the end.
    #[must_use]
    pub(crate) fn ahead(&self, distance: usize) -> usize {
        self.peer((self.rank + distance) % self.size)
    }

    /// The rank `distance` positions before, round the start; `distance` is below the group's size.
    #[must_use]
    pub(crate) fn behind(&self, distance: usize) -> usize {
        self.peer((self.rank + self.size - distance) % self.size)
    }
}

/// A slice cut into `parts` blocks whose lengths differ by one at most, the longer ones first.
#[derive(Clone, Copy, Debug)]
pub struct Blocks {
    whole: Slice,
    parts: usize,
}

impl Blocks {
    /// Cuts `whole` into `parts` blocks (at least one).
    #[must_use]
    pub fn new(whole: Slice, parts: usize) -> Blocks {
        Blocks { whole, parts: parts.max(1) }
    }

    /// How many blocks there are.
    #[must_use]
    pub fn parts(&self) -> usize {
        self.parts
    }

    /// Block `index`.
    #[must_use]
    pub fn block(&self, index: usize) -> Slice {
        self.run(index, index + 1)
    }

    /// The blocks from `first` up to but without `end`, as one slice.
    #[must_use]
    pub fn run(&self, first: usize, end: usize) -> Slice {
        let start = self.start(first);
        self.whole.part(start, self.start(end) - start)
    }

    fn start(&self, index: usize) -> usize {
        index * (self.whole.length / self.parts) + index.min(self.whole.length % self.parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dependencies(builder: Builder) -> Vec<Vec<u32>> {
        let schedule = builder.finish().unwrap();
        (0..schedule.steps().len()).map(|step| schedule.dependencies(step).to_vec()).collect()
    }

    #[test]
    fn a_read_waits_for_the_writes_of_what_it_reads() {
        let mut b = Builder::new(0, 2, 0, 8);
        b.receive(1, Slice::output(0, 4));
        b.receive(1, Slice::output(4, 4));
        b.send(1, Slice::output(3, 2));
        b.send(1, Slice::output(5, 3));
        assert_eq!(dependencies(b), [vec![], vec![], vec![0, 1], vec![1]]);
    }

    #[test]
    fn a_write_waits_for_the_reads_that_it_would_spoil() {
        let mut b = Builder::new(0, 2, 0, 8);
        b.send(1, Slice::output(0, 3));
        b.send(1, Slice::output(2, 4));
        b.receive(1, Slice::output(2, 1));
        b.receive(1, Slice::output(6, 2));
        b.receive(1, Slice::output(0, 8));
        assert_eq!(dependencies(b), [vec![], vec![], vec![0, 1], vec![], vec![0, 1, 2, 3]]);
    }

    #[test]
    fn chunks_of_two_hops_overlap_without_a_word() {
        let mut b = Builder::new(1, 3, 0, 4);
        for chunk in 0..2 {
            let chunk = Slice::output(2 * chunk, 2);
            b.receive(0, chunk);
            b.send(2, chunk);
        }
        assert_eq!(dependencies(b), [vec![], vec![0], vec![], vec![2]]);
    }

    #[test]
    fn slices_without_elements_order_nothing() {
        let mut b = Builder::new(0, 2, 0, 4);
        let first = b.receive(1, Slice::EMPTY);
        b.send(1, Slice::EMPTY);
        b.send_after(1, Slice::EMPTY, &[first]);
        assert_eq!(dependencies(b), [vec![], vec![], vec![0]]);
    }

    #[test]
    fn blocks_cover_a_slice_and_differ_by_one_at_most() {
        for length in 0..40 {
            for parts in 1..9 {
                let blocks = Blocks::new(Slice::output(3, length), parts);
                let all: Vec<Slice> = (0..parts).map(|index| blocks.block(index)).collect();
                let mut next = 3;
                for block in &all {
                    assert_eq!(block.offset, next);
                    next += block.length;
                }
                assert_eq!(next, 3 + length);
                assert!(all[0].length - all[parts - 1].length <= 1);
            }
        }
    }

    #[test]
    fn a_listed_group_knows_its_members_positions() {
        let leaders = [0, 4, 8];
        let group = Group::of(&leaders, 8).unwrap();
        assert_eq!((group.rank(), group.size(), group.peer(1), group.ahead(1), group.behind(1)), (2, 3, 4, 0, 4));
        assert!(Group::of(&leaders, 5).is_none());
    }
}
