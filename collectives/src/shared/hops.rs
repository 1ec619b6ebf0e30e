//! Two hops: the ranks of a group work in the memory that they share, and its leaders exchange with those of other groups.
//!
//! Chunk by chunk: everybody copies its chunk into its part of the memory; each leader combines its share of the chunk out of
//! everybody's, exchanges that with the leaders of the same share in other groups, and publishes the result, which
//! everybody copies out. While leaders exchange chunk k, chunk k + 1 is combined, k + 2 copied in, and k - 1 copied out:
//! everything in memory is there three times. A rank overwrites what it gave for chunk k when all leaders have published
//! theirs of chunk k; a leader overwrites what it has published for chunk k when everybody has come with chunk k + 3,
//! which it does when it has copied chunk k out. Values are combined in rank order inside the group.
//!
//! Knows no communicator, and of other groups no more than that leaders exchange something.

use super::memory::{PIECE, RoomMemory, Step};
use super::protocol::{Company, Data};
use crate::compose::Blocks;
use crate::operators::Op;
use crate::schedule::{Side, Slice};
use spmd::element::Element;
use spmd::memory::copy_elements;
use std::ops::Range;
use std::sync::atomic::Ordering;

/// How often everything is there.
const DEPTH: u64 = 3;

/// Lines of words: of each rank, and of the first one for all.
const ENTERED: usize = 0;
const MARKS: usize = 1;
const CAME: usize = 2;
const OUT: usize = 3;

/// The company of a rank, with leaders of other groups if it is a leader.
pub(super) trait Between<T>: Company {
    /// Begins to exchange chunk number `chunk`; waiting goes on with it.
    fn begin(&mut self, chunk: usize, value: Vec<T>) -> Result<(), Self::Error>;

    /// Waits until what was begun last is done, and gives the result: in a reduction to one rank only there, and something of
    /// no meaning elsewhere.
    fn finish(&mut self) -> Result<Vec<T>, Self::Error>;
}

/// How a call is done in this rank's group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Division {
    /// Positions of the leaders in the group, in the order of their shares.
    pub(crate) leaders: Vec<usize>,
    /// Elements of a chunk.
    pub(crate) chunk: usize,
}

impl Division {
    /// In how many chunks so many elements go: at least one, because ranks wait for each other whatever they have.
    pub(crate) fn chunks(&self, elements: usize) -> usize {
        elements.div_ceil(self.chunk).max(1)
    }

    pub(crate) fn range(&self, index: usize, elements: usize) -> Range<usize> {
        (index * self.chunk).min(elements)..((index + 1) * self.chunk).min(elements)
    }

    /// The share of leader `position` in a chunk of so many elements; none if it is no leader.
    pub(crate) fn share(&self, position: usize, elements: usize) -> Range<usize> {
        let turn = self.leaders.iter().position(|leader| *leader == position);
        let shares = Blocks::new(Slice::output(0, elements), self.leaders.len());
        turn.map_or(0..0, |turn| shares.block(turn).range())
    }
}

/// How many calls and chunks there have been, and how often leaders have published: the same on all ranks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HopCounts {
    calls: u64,
    chunks: u64,
    published: u64,
}

/// The memory of this rank's group.
#[derive(Debug)]
pub(super) struct Hops<M> {
    room: M,
    position: usize,
    size: usize,
    /// Bytes of a chunk at most.
    chunk: usize,
}

impl<M: RoomMemory> Hops<M> {
    /// The bytes that it needs of each rank.
    pub(super) fn bytes(chunk: usize) -> usize {
        2 * 3 * chunk
    }

    pub(super) fn new(room: M, position: usize, size: usize, chunk: usize) -> Self {
        Hops { room, position, size, chunk }
    }

    /// Elements that a chunk has at most.
    pub(super) fn most(&self, element_bytes: usize) -> usize {
        self.chunk / element_bytes.max(1)
    }

    /// This rank's place in the group.
    pub(super) fn position(&self) -> usize {
        self.position
    }

    /// A call on this rank. `op` combines; without one data goes from the root to all, or there is none.
    pub(super) fn run<T: Element, B: Between<T>>(
        &self,
        counts: &mut HopCounts,
        company: &mut B,
        mark: u64,
        division: &Division,
        mut data: Data<'_, T>,
        op: Option<&dyn Op<T>>,
    ) -> Result<(), B::Error> {
        debug_assert!(
            division.chunk <= self.most(size_of::<T>()) && division.leaders.iter().all(|leader| *leader < self.size)
        );
        counts.calls += 1;
        self.room.store(self.position, ENTERED, 0, counts.calls, Ordering::Relaxed);
        let number = division.chunks(data.length());
        let call = Call { hops: self, counts: *counts, mark, division, op };
        counts.chunks += number as u64;
        counts.published += (number * division.leaders.len()) as u64;
        let leads = division.leaders.contains(&self.position);
        for index in 0..number.min(2) {
            call.bring(company, index, &data)?;
        }
        let mut spare = Vec::new();
        for index in 0..=number {
            let before = index.checked_sub(1);
            let mut result = Vec::new();
            if leads {
                let value = match index < number {
                    true => Some(call.value(company, index, &data, std::mem::take(&mut spare))?),
                    false => None,
                };
                if let Some(before) = before {
                    if let Data::From(..) = data {
                        call.wait_for_all(company, before)?;
                    }
                    result = company.finish()?;
                    if call.spreads(&data) {
                        call.publish(company, before, &result)?;
                    }
                }
                if let Some(value) = value {
                    company.begin(index, value)?;
                    if !call.spreads(&data) {
                        call.is_out(company, index)?;
                    }
                }
            }
            if let Some(before) = before {
                call.wait_for_leaders(company, before)?;
                call.take(before, &mut data, &result);
            }
            spare = result;
            if index + 2 < number {
                call.bring(company, index + 2, &data)?;
            }
        }
        Ok(())
    }
}

/// A call under way.
struct Call<'a, M, T> {
    hops: &'a Hops<M>,
    /// Before its chunks.
    counts: HopCounts,
    mark: u64,
    division: &'a Division,
    op: Option<&'a dyn Op<T>>,
}

impl<M: RoomMemory, T: Element> Call<'_, M, T> {
    fn step(&self, index: usize) -> Step {
        Step(self.counts.chunks + 1 + index as u64)
    }

    /// Which of the three a step has.
    fn turn(step: Step) -> usize {
        usize::from(step.0 % DEPTH == 1) + 2 * usize::from(step.0 % DEPTH == 2)
    }

    fn given_at(&self, step: Step) -> usize {
        Self::turn(step) * self.hops.chunk
    }

    fn published_at(&self, step: Step) -> usize {
        (3 + Self::turn(step)) * self.hops.chunk
    }

    fn range(&self, index: usize, data: &Data<'_, T>) -> Range<usize> {
        self.division.range(index, data.length())
    }

    /// Whether the result goes to everybody.
    fn spreads(&self, data: &Data<'_, T>) -> bool {
        !matches!(data, Data::To(..))
    }

    fn is_missing(&self, rank: usize) -> bool {
        self.hops.room.load(rank, ENTERED, 0, Ordering::Relaxed) < self.counts.calls
    }

    /// This rank comes with a chunk: what others combine of it is where they read it.
    fn bring<C: Company>(&self, company: &mut C, index: usize, data: &Data<'_, T>) -> Result<(), C::Error> {
        let (room, position, step) = (&self.hops.room, self.hops.position, self.step(index));
        if self.op.is_some() {
            let part = data.own_part(position, self.range(index, data));
            // Read where it is.
            let own = self.division.share(position, part.len());
            if own.len() < part.len() {
                room.write(self.given_at(step), part.len(), |given: &mut [T]| {
                    copy_elements(&part[..own.start], &mut given[..own.start]);
                    copy_elements(&part[own.end..], &mut given[own.end..]);
                });
            }
        }
        room.store(position, MARKS, Self::turn(step), self.mark, Ordering::Relaxed);
        let before = room.increment(0, CAME, Self::turn(step), Ordering::AcqRel);
        match before + 1 == self.all(step) {
            true => self.division.leaders.iter().try_for_each(|leader| company.wake(*leader..*leader + 1)),
            false => Ok(()),
        }
    }

    /// How often ranks have come to a step and those that take its turn, once all have. A rank may be ahead of others by less
    /// than `DEPTH` steps.
    fn all(&self, step: Step) -> u64 {
        step.0.div_ceil(DEPTH) * self.hops.size as u64
    }

    /// Waits until everybody has come with a chunk, and with the same call.
    fn wait_for_all<C: Company>(&self, company: &mut C, index: usize) -> Result<(), C::Error> {
        let (room, step) = (&self.hops.room, self.step(index));
        let have_come = || room.load(0, CAME, Self::turn(step), Ordering::Acquire) >= self.all(step);
        company.wait(|rank| self.is_missing(rank), have_come)?;
        let differs = |rank: &usize| room.load(*rank, MARKS, Self::turn(step), Ordering::Relaxed) != self.mark;
        match (0..self.hops.size).find(differs).filter(|_| index == 0) {
            Some(rank) => Err(company.differs(rank)),
            None => Ok(()),
        }
    }

    /// What this leader has to exchange: its share of what its group gives.
    fn value<C: Company>(
        &self,
        company: &mut C,
        index: usize,
        data: &Data<'_, T>,
        mut value: Vec<T>,
    ) -> Result<Vec<T>, C::Error> {
        let (room, position, step) = (&self.hops.room, self.hops.position, self.step(index));
        let range = self.range(index, data);
        let share = self.division.share(position, range.len());
        // Of the last chunk it is shorter.
        value.resize(share.len(), T::zeroed());
        let own = data.own_part(position, range);
        let Some(op) = self.op else {
            if let Data::From(root, _) = data {
                // The others receive it.
                if *root == position {
                    value.copy_from_slice(own);
                }
                return Ok(value);
            }
            self.wait_for_all(company, index)?;
            return Ok(value);
        };
        self.wait_for_all(company, index)?;
        let most = (PIECE / size_of::<T>().max(1)).max(1);
        for (value, start) in value.chunks_mut(most).zip((share.start..).step_by(most)) {
            let piece = start..start + value.len();
            for rank in 0..self.hops.size {
                let mut add = |theirs: &[T]| match rank {
                    0 => copy_elements(theirs, value),
                    _ => op.apply(value, theirs, Side::Right),
                };
                match rank == position {
                    true => add(&own[piece.clone()]),
                    false => room.read(rank, self.given_at(step) + start * size_of::<T>(), piece.len(), add),
                }
            }
        }
        Ok(value)
    }

    /// This leader's share of the result is where the others read it.
    fn publish<C: Company>(&self, company: &mut C, index: usize, share: &[T]) -> Result<(), C::Error> {
        if self.hops.size > 1 {
            let place = self.published_at(self.step(index));
            self.hops.room.write(place, share.len(), |published: &mut [T]| copy_elements(share, published));
        }
        self.is_out(company, index)
    }

    /// This leader is through with what the others gave for a chunk.
    fn is_out<C: Company>(&self, company: &mut C, index: usize) -> Result<(), C::Error> {
        let before = self.hops.room.increment(0, OUT, 0, Ordering::AcqRel);
        match before + 1 == self.published(index) {
            true => company.wake(0..self.hops.size),
            false => Ok(()),
        }
    }

    /// How often leaders have published once all have for a chunk: none does so for the next one before.
    fn published(&self, index: usize) -> u64 {
        self.counts.published + ((index + 1) * self.division.leaders.len()) as u64
    }

    fn wait_for_leaders<C: Company>(&self, company: &mut C, index: usize) -> Result<(), C::Error> {
        let out = || self.hops.room.load(0, OUT, 0, Ordering::Acquire) >= self.published(index);
        // A leader that has come may have left with an error of its exchange.
        company.wait(|rank| self.is_missing(rank) || self.division.leaders.contains(&rank), out)
    }

    /// Copies the result of a chunk out; `own`: what this rank got as a leader.
    fn take(&self, index: usize, data: &mut Data<'_, T>, own: &[T]) {
        let (hops, step, range) = (self.hops, self.step(index), self.range(index, data));
        match data {
            // The root has it.
            Data::From(root, _) if *root == hops.position => {}
            Data::Both(data) | Data::From(_, data) => {
                let chunk = &mut data[range];
                for leader in self.division.leaders.iter().copied() {
                    let share = self.division.share(leader, chunk.len());
                    match leader == hops.position {
                        true => chunk[share].copy_from_slice(own),
                        false => hops.room.read(leader, self.published_at(step), share.len(), |published| {
                            copy_elements(published, &mut chunk[share.clone()]);
                        }),
                    }
                }
            }
            Data::To(_, Some(result)) => result[range].copy_from_slice(own),
            Data::To(..) => {}
        }
    }
}
