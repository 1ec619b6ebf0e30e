//! Collectives in the memory that all ranks of a communicator share on one host: no messages, each rank's part lies where
//! the others read it.
//!
//! Every call is a meeting: nobody leaves before everybody has come, so that what call k left in memory may be overwritten
//! in call k + 2. That costs each rank one turn of its processor, where messages along a tree cost several. Values are
//! combined in rank order when the operator asks for it, and each element on one rank only or by the same expression on
//! all. Knows no schedule; mismatches are found by comparing fingerprints, and by the runtime where ranks wait for long.

#[expect(unsafe_code, reason = "memory shared with other processes")]
mod memory;
#[cfg(test)]
mod tests;

use crate::algorithms::Collective;
use crate::operators::Op;
use crate::plan::Wanted;
use crate::schedule::Side;
use memory::{Memory, Step};
use spmd::comm::{Call, Together};
use spmd::element::{Element, Signature};
use spmd::{Communicator, Result};
use std::sync::{Mutex, PoisonError};

/// The name of the shared-memory form in the configuration.
pub(crate) const NAME: &str = "shared";

/// Up to this many bytes the last rank that comes combines everybody's data.
const SMALL: usize = 16 << 10;
/// Of all ranks together.
const SMALL_OF_ALL: usize = 64 << 10;
/// Larger data goes in chunks of at most this many bytes, so that they stay in caches; fewer where many ranks have one each.
const CHUNK: usize = 128 << 10;
const CHUNKS_OF_ALL: usize = 8 << 20;

/// The collectives that have such a form.
pub(crate) fn has(collective: Collective) -> bool {
    matches!(collective, Collective::Barrier | Collective::Broadcast | Collective::Reduce | Collective::AllReduce)
}

/// What a communicator keeps for them.
#[derive(Debug)]
pub(crate) struct Shared {
    memory: Memory,
    rank: usize,
    size: usize,
    /// Bytes of a chunk.
    chunk: usize,
    counts: Mutex<Counts>,
    /// The last call's mark: a program makes the same one again and again.
    last: Mutex<Option<(Wanted, Signature)>>,
}

/// How many steps of each kind there have been: the same on all ranks.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    calls: u64,
    exchanges: u64,
    meetings: u64,
    chunks: u64,
}

/// What a call reads and writes.
enum Data<'a, T> {
    /// In place, on all ranks.
    Both(&'a mut [T]),
    /// The root's goes to all.
    From(usize, &'a mut [T]),
    /// Everybody's, and the result at the root.
    To(&'a [T], Option<&'a mut [T]>),
}

impl Shared {
    /// `None` where there is no such memory. Collective.
    pub(crate) fn new(comm: &Communicator) -> Result<Option<Shared>> {
        let (rank, size) = (comm.rank(), comm.size());
        let chunk = (CHUNKS_OF_ALL / size.max(1)).clamp(16 << 10, CHUNK).next_multiple_of(4096);
        let room = comm.room(Memory::bytes(SMALL, chunk))?;
        Ok(room.map(|room| Shared {
            memory: Memory::new(room, rank, size, SMALL, chunk),
            rank,
            size,
            chunk,
            counts: Mutex::default(),
            last: Mutex::default(),
        }))
    }

    /// What tells calls apart, without the type of the elements.
    pub(crate) fn mark(&self, wanted: &Wanted) -> Signature {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match *last {
            Some((of, mark)) if of == *wanted => mark,
            _ => last.insert((*wanted, wanted.mark(NAME))).1,
        }
    }

    pub(crate) fn barrier(&self, comm: &Communicator, call: Call) -> Result<()> {
        self.run::<u8>(comm, call, Data::Both(&mut []), None)
    }

    pub(crate) fn all_reduce<T: Element>(
        &self,
        comm: &Communicator,
        call: Call,
        data: &mut [T],
        op: &dyn Op<T>,
    ) -> Result<()> {
        self.run(comm, call, Data::Both(data), Some(op))
    }

    pub(crate) fn reduce<T: Element>(
        &self,
        comm: &Communicator,
        call: Call,
        data: &[T],
        result: Option<&mut [T]>,
        op: &dyn Op<T>,
    ) -> Result<()> {
        self.run(comm, call, Data::To(data, result), Some(op))
    }

    pub(crate) fn broadcast<T: Element>(
        &self,
        comm: &Communicator,
        call: Call,
        data: &mut [T],
        root: usize,
    ) -> Result<()> {
        self.run(comm, call, Data::From(root, data), None)
    }

    fn run<T: Element>(
        &self,
        comm: &Communicator,
        call: Call,
        mut data: Data<'_, T>,
        op: Option<&dyn Op<T>>,
    ) -> Result<()> {
        // Calls of one communicator come one after another on every rank: held for the whole call.
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let mut together = comm.together(call)?;
        counts.calls += 1;
        self.memory.enter(counts.calls);
        let mark = u64::from(call.fingerprint.0);
        let bytes = data.length() * size_of::<T>();
        together.moves(bytes);
        if bytes > SMALL || bytes * self.size > SMALL_OF_ALL.max(2 * SMALL) {
            self.in_chunks(&mut counts, &mut together, mark, &mut data, op)?;
        } else if self.size == 2 && !self.memory.shares_processors() {
            self.exchange(&mut counts, &mut together, mark, &mut data, op)?;
        } else {
            self.meet(&mut counts, &mut together, mark, &mut data, op)?;
        }
        together.done()
    }

    fn wait(&self, calls: u64, together: &mut Together<'_>, ready: impl FnMut() -> bool) -> Result<()> {
        together.wait(|rank| self.memory.entered(rank) < calls, ready)
    }

    /// Two ranks with a processor each: both say what they have, and both combine it.
    fn exchange<T: Element>(
        &self,
        counts: &mut Counts,
        together: &mut Together<'_>,
        mark: u64,
        data: &mut Data<'_, T>,
        op: Option<&dyn Op<T>>,
    ) -> Result<()> {
        counts.exchanges += 1;
        let (step, other) = (Step(counts.exchanges), 1 - self.rank);
        self.memory.say(step, mark, data.own(self.rank));
        together.wake()?;
        self.wait(counts.calls, together, || self.memory.has_said(step, other))?;
        if self.memory.said_mark(step, other) != mark {
            return Err(together.differs(other));
        }
        self.memory.hear(step, other, data.length(), |theirs| match (data, op) {
            (Data::Both(both), Some(op)) => {
                op.apply(both, theirs, if other < self.rank { Side::Left } else { Side::Right });
            }
            (Data::From(root, data), _) if *root == other => data.copy_from_slice(theirs),
            (Data::To(own, Some(result)), Some(op)) => {
                result.copy_from_slice(own);
                op.apply(result, theirs, if other < self.rank { Side::Left } else { Side::Right });
            }
            _ => {}
        });
        Ok(())
    }

    /// Everybody leaves its data and comes; the last one that comes combines all of it.
    fn meet<T: Element>(
        &self,
        counts: &mut Counts,
        together: &mut Together<'_>,
        mark: u64,
        data: &mut Data<'_, T>,
        op: Option<&dyn Op<T>>,
    ) -> Result<()> {
        counts.meetings += 1;
        let step = Step(counts.meetings);
        self.memory.leave(step, mark, data.own(self.rank));
        if self.memory.come(step) {
            let differs = (0..self.size).find(|rank| self.memory.left_mark(step, *rank) != mark);
            if let (None, Some(op)) = (differs, op) {
                self.memory.combine(step, data.length(), op);
            }
            self.memory.finish(step, differs);
            together.wake()?;
        } else {
            self.wait(counts.calls, together, || self.memory.is_finished(step))?;
        }
        let (combiner, differs) = self.memory.finished();
        if let Some(rank) = differs {
            // Whoever differs from the last one blames it, the others blame whoever differs.
            let mine = self.memory.left_mark(step, combiner) == mark;
            return Err(together.differs(if mine && rank != self.rank { rank } else { combiner }));
        }
        match data {
            Data::Both(data) => self.memory.take_result(step, combiner, data),
            Data::From(root, data) if *root != self.rank => self.memory.take_left(step, *root, data),
            Data::To(_, Some(result)) => self.memory.take_result(step, combiner, result),
            _ => {}
        }
        Ok(())
    }

    /// Chunk by chunk: everybody copies a chunk into its part of the memory, combines its block of it out of everybody's, and
    /// copies the blocks of the others back. The next chunk is copied in before this one is waited for.
    fn in_chunks<T: Element>(
        &self,
        counts: &mut Counts,
        together: &mut Together<'_>,
        mark: u64,
        data: &mut Data<'_, T>,
        op: Option<&dyn Op<T>>,
    ) -> Result<()> {
        let calls = counts.calls;
        let most = (self.chunk / size_of::<T>().max(1)).max(1);
        let length = data.length();
        let first = counts.chunks;
        let number = length.div_ceil(most);
        counts.chunks += number as u64;
        let range = |index: usize| index * most..((index + 1) * most).min(length);
        let step = |index: usize| Step(first + 1 + index as u64);
        self.memory.copy_in(step(0), mark, data.own_part(self.rank, range(0)), self.rank, self.skips(data));
        self.signal(together, step(0), Self::CAME)?;
        for index in 0..number {
            if index + 1 < number {
                let part = data.own_part(self.rank, range(index + 1));
                self.memory.copy_in(step(index + 1), mark, part, self.rank, self.skips(data));
                self.signal(together, step(index + 1), Self::CAME)?;
            }
            let now = step(index);
            self.wait(calls, together, || self.memory.all(now, Self::CAME))?;
            if index == 0
                && let Some(rank) = (0..self.size).find(|rank| self.memory.chunk_mark(now, *rank) != mark)
            {
                return Err(together.differs(rank));
            }
            match (&mut *data, op) {
                (Data::Both(both), Some(op)) => {
                    self.memory.combine_in_place(now, &mut both[range(index)], op);
                    self.signal(together, now, Self::COMBINED)?;
                    self.wait(calls, together, || self.memory.all(now, Self::COMBINED))?;
                    self.memory.copy_out(now, &mut both[range(index)], self.rank);
                }
                (Data::To(own, result), Some(op)) => {
                    self.memory.combine_apart(now, &own[range(index)], op);
                    self.signal(together, now, Self::COMBINED)?;
                    self.wait(calls, together, || self.memory.all(now, Self::COMBINED))?;
                    if let Some(result) = result {
                        self.memory.copy_out(now, &mut result[range(index)], usize::MAX);
                    }
                }
                (Data::From(root, data), _) => {
                    if *root != self.rank {
                        self.memory.copy_chunk(now, *root, &mut data[range(index)]);
                    }
                    self.signal(together, now, Self::COMBINED)?;
                    self.wait(calls, together, || self.memory.all(now, Self::COMBINED))?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Which signals a chunk has.
    const CAME: usize = 0;
    const COMBINED: usize = 1;

    fn signal(&self, together: &Together<'_>, step: Step, what: usize) -> Result<()> {
        if self.memory.signal(step, what) { together.wake() } else { Ok(()) }
    }

    /// Whether the block that this rank combines itself need not be copied in: it is read where it is.
    fn skips<T>(&self, data: &Data<'_, T>) -> bool {
        !matches!(data, Data::From(..))
    }
}

impl<T> Data<'_, T> {
    fn length(&self) -> usize {
        match self {
            Data::Both(data) | Data::From(_, data) => data.len(),
            Data::To(data, _) => data.len(),
        }
    }

    /// What this rank gives.
    fn own(&self, rank: usize) -> &[T] {
        self.own_part(rank, 0..self.length())
    }

    fn own_part(&self, rank: usize, range: std::ops::Range<usize>) -> &[T] {
        match self {
            Data::Both(data) => &data[range],
            Data::From(root, data) if *root == rank => &data[range],
            Data::From(..) => &[],
            Data::To(data, _) => &data[range],
        }
    }
}
