//! A collective of one rank as data: steps over slices of three buffers, with the order that the data demands.
//!
//! Knows no transport, no element type and no operator: the executor runs a schedule, the checker proves it, the
//! pricing costs it, and each of them reads nothing but this.

mod error;
#[cfg(test)]
mod tests;

pub use error::ScheduleError;

use std::fmt;
use std::ops::Range;

/// One of the three buffers that a schedule works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Buffer {
    /// What the caller gives; never written.
    Input,
    /// What the caller gets. In the collectives that work in place it also holds the caller's contribution.
    Output,
    /// Room for what is on its way; undefined before the first write.
    Scratch,
}

impl Buffer {
    pub(crate) const ALL: [Buffer; 3] = [Buffer::Input, Buffer::Output, Buffer::Scratch];
}

impl fmt::Display for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Buffer::Input => "input",
            Buffer::Output => "output",
            Buffer::Scratch => "scratch",
        })
    }
}

/// A contiguous part of a buffer, counted in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slice {
    /// The buffer.
    pub buffer: Buffer,
    /// First element.
    pub offset: usize,
    /// Number of elements.
    pub length: usize,
}

impl Slice {
    /// The slice of a message that carries nothing but its arrival.
    pub const EMPTY: Slice = Slice { buffer: Buffer::Scratch, offset: 0, length: 0 };

    /// `length` elements of the input from `offset` on.
    #[must_use]
    pub const fn input(offset: usize, length: usize) -> Slice {
        Slice { buffer: Buffer::Input, offset, length }
    }

    /// `length` elements of the output from `offset` on.
    #[must_use]
    pub const fn output(offset: usize, length: usize) -> Slice {
        Slice { buffer: Buffer::Output, offset, length }
    }

    /// `length` elements of this slice, from its element `offset` on.
    #[must_use]
    pub const fn part(self, offset: usize, length: usize) -> Slice {
        Slice { buffer: self.buffer, offset: self.offset + offset, length }
    }

    /// The elements as a range of the buffer.
    #[must_use]
    pub const fn range(self) -> Range<usize> {
        self.offset..self.offset + self.length
    }

    /// Whether both name at least one common element.
    #[must_use]
    pub fn overlaps(self, other: Slice) -> bool {
        self.buffer == other.buffer
            && self.length > 0
            && other.length > 0
            && self.offset < other.offset + other.length
            && other.offset < self.offset + self.length
    }
}

impl fmt::Display for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}..{}]", self.buffer, self.offset, self.offset.saturating_add(self.length))
    }
}

/// On which side of the operator an operand stands; what decides for operators that do not commute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// `into = operand op into`: the operand comes from lower ranks.
    Left,
    /// `into = into op operand`: the operand comes from higher ranks.
    Right,
}

/// What one step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Action {
    /// Sends a slice to a rank of the communicator.
    Send {
        /// The receiving rank.
        peer: usize,
        /// What is sent.
        from: Slice,
    },
    /// Receives exactly as many elements as the slice has.
    Receive {
        /// The sending rank.
        peer: usize,
        /// Where it goes.
        into: Slice,
    },
    /// Combines two slices of the same length, element by element, into the second.
    Reduce {
        /// The other operand.
        operand: Slice,
        /// One operand, and the place of the result.
        into: Slice,
        /// The side on which `operand` stands.
        side: Side,
    },
    /// Copies a slice to another of the same length.
    Copy {
        /// What is copied.
        from: Slice,
        /// Where it goes.
        into: Slice,
    },
}

impl Action {
    /// The slices that the step reads (`None` where it reads fewer than two).
    #[must_use]
    pub fn reads(&self) -> [Option<Slice>; 2] {
        match *self {
            Action::Send { from, .. } | Action::Copy { from, .. } => [Some(from), None],
            Action::Receive { .. } => [None, None],
            Action::Reduce { operand, into, .. } => [Some(operand), Some(into)],
        }
    }

    /// The slice that the step writes.
    #[must_use]
    pub fn writes(&self) -> Option<Slice> {
        match *self {
            Action::Send { .. } => None,
            Action::Receive { into, .. } | Action::Reduce { into, .. } | Action::Copy { into, .. } => Some(into),
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Send { peer, from } => write!(f, "send {from} to rank {peer}"),
            Action::Receive { peer, into } => write!(f, "receive {into} from rank {peer}"),
            Action::Reduce { operand, into, side: Side::Left } => write!(f, "reduce {into} = {operand} op {into}"),
            Action::Reduce { operand, into, side: Side::Right } => write!(f, "reduce {into} = {into} op {operand}"),
            Action::Copy { from, into } => write!(f, "copy {from} to {into}"),
        }
    }
}

/// One step of a schedule; [`Schedule::dependencies`] says which steps come before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What it does.
    pub action: Action,
    /// Which of the messages between the same two ranks, in the same direction, this is: counted from 0 in the order
    /// of the schedule. 0 for the steps that are no messages.
    pub label: u32,
    /// Where this step's dependencies lie in the schedule's list.
    after: Range<u32>,
}

/// How many elements each buffer has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lengths {
    /// Elements of the input.
    pub input: usize,
    /// Elements of the output.
    pub output: usize,
    /// Elements of scratch.
    pub scratch: usize,
}

impl Lengths {
    /// The elements of one buffer.
    #[must_use]
    pub fn of(&self, buffer: Buffer) -> usize {
        match buffer {
            Buffer::Input => self.input,
            Buffer::Output => self.output,
            Buffer::Scratch => self.scratch,
        }
    }
}

/// What one rank does in one collective. Every value of this type is valid: [`Schedule::new`] is the only way to one.
///
/// A step may start as soon as its dependencies are complete; steps that are not ordered by dependencies may run at the
/// same time. A receive is complete when the data is there, a send when its slice may be written again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    rank: usize,
    size: usize,
    lengths: Lengths,
    steps: Vec<Step>,
    dependencies: Vec<u32>,
}

impl Schedule {
    /// Takes steps, each with the indices of the steps before it, and numbers the messages.
    ///
    /// # Errors
    /// [`ScheduleError`] when a slice leaves its buffer, a dependency does not point backwards, the input is written,
    /// two slices of one step overlap or differ in length, a peer does not exist, or there are more than `u32::MAX`
    /// steps or dependencies.
    pub fn new(
        rank: usize,
        size: usize,
        lengths: Lengths,
        steps: impl IntoIterator<Item = (Action, Vec<u32>)>,
    ) -> Result<Schedule, ScheduleError> {
        let mut raw = RawSchedule::default();
        for (action, after) in steps {
            raw.push(action, &after)?;
        }
        raw.finish(rank, size, lengths)
    }

    /// The rank that the schedule is for.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// The number of ranks of the communicator.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// The elements of each buffer.
    #[must_use]
    pub fn lengths(&self) -> Lengths {
        self.lengths
    }

    /// The steps, in an order in which one could run them one by one.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The steps that must be complete before step `step` starts.
    ///
    /// # Panics
    /// When there is no such step.
    #[must_use]
    pub fn dependencies(&self, step: usize) -> &[u32] {
        let after = &self.steps[step].after;
        &self.dependencies[after.start as usize..after.end as usize]
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Lengths { input, output, scratch } = self.lengths;
        writeln!(f, "rank {} of {}: input {input}, output {output}, scratch {scratch} elements", self.rank, self.size)?;
        for (index, step) in self.steps.iter().enumerate() {
            write!(f, "{index:>5}  {}", step.action)?;
            if matches!(step.action, Action::Send { .. } | Action::Receive { .. }) {
                write!(f, ", message {}", step.label)?;
            }
            match self.dependencies(index) {
                [] => writeln!(f)?,
                after => writeln!(f, ", after {after:?}")?,
            }
        }
        Ok(())
    }
}

/// Steps on their way to a [`Schedule`].
#[derive(Clone, Debug, Default)]
pub(crate) struct RawSchedule {
    steps: Vec<Step>,
    dependencies: Vec<u32>,
}

impl RawSchedule {
    /// The index that the next step will have.
    pub(crate) fn next(&self) -> Result<u32, ScheduleError> {
        u32::try_from(self.steps.len()).map_err(|_| ScheduleError::TooLarge)
    }

    pub(crate) fn push(&mut self, action: Action, after: &[u32]) -> Result<(), ScheduleError> {
        let start = u32::try_from(self.dependencies.len()).map_err(|_| ScheduleError::TooLarge)?;
        self.dependencies.extend_from_slice(after);
        let end = u32::try_from(self.dependencies.len()).map_err(|_| ScheduleError::TooLarge)?;
        self.next()?;
        self.steps.push(Step { action, label: 0, after: start..end });
        Ok(())
    }

    pub(crate) fn finish(mut self, rank: usize, size: usize, lengths: Lengths) -> Result<Schedule, ScheduleError> {
        self.number_messages();
        let schedule = Schedule { rank, size, lengths, steps: self.steps, dependencies: self.dependencies };
        if rank >= size {
            return Err(ScheduleError::Rank { rank, size });
        }
        for index in 0..schedule.steps.len() {
            schedule.check_step(index)?;
        }
        Ok(schedule)
    }

    /// Both ends of a pair list their messages in the same order, so that counting them on each side gives every
    /// message the same number on both.
    fn number_messages(&mut self) {
        let mut messages: Vec<(bool, usize, usize)> = Vec::new();
        for (index, step) in self.steps.iter().enumerate() {
            match step.action {
                Action::Send { peer, .. } => messages.push((false, peer, index)),
                Action::Receive { peer, .. } => messages.push((true, peer, index)),
                Action::Reduce { .. } | Action::Copy { .. } => {}
            }
        }
        messages.sort_unstable();
        let mut label = 0;
        for (position, &(receive, peer, index)) in messages.iter().enumerate() {
            label = match position.checked_sub(1).map(|before| messages[before]) {
                Some((r, p, _)) if (r, p) == (receive, peer) => label + 1,
                _ => 0,
            };
            self.steps[index].label = label;
        }
    }
}

impl Schedule {
    fn check_step(&self, step: usize) -> Result<(), ScheduleError> {
        let action = self.steps[step].action;
        for slice in action.reads().into_iter().flatten().chain(action.writes()) {
            let available = self.lengths.of(slice.buffer);
            if slice.offset.checked_add(slice.length).is_none_or(|end| end > available) {
                return Err(ScheduleError::OutOfBounds { step, slice, available });
            }
        }
        if action.writes().is_some_and(|slice| slice.buffer == Buffer::Input) {
            return Err(ScheduleError::WritesInput { step, action });
        }
        match action {
            Action::Send { peer, .. } | Action::Receive { peer, .. } => {
                if peer >= self.size || peer == self.rank {
                    return Err(ScheduleError::Peer { step, peer, rank: self.rank, size: self.size });
                }
            }
            Action::Reduce { operand: from, into, .. } | Action::Copy { from, into } => {
                if from.length != into.length {
                    return Err(ScheduleError::Lengths { step, action });
                }
                if from.overlaps(into) {
                    return Err(ScheduleError::Overlap { step, action });
                }
            }
        }
        match self.dependencies(step).iter().find(|&&before| before as usize >= step) {
            Some(&dependency) => Err(ScheduleError::Dependency { step, dependency }),
            None => Ok(()),
        }
    }
}
