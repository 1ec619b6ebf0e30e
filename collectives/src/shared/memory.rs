//! Who may touch which bytes of the shared memory when: the one place where elements in it are slices.
//!
//! Each rank's part has, twice (for odd and even steps), what it says in an exchange, what it leaves for a meeting, what it
//! has combined there, a chunk, and its combined block. A step's bytes are written by their owner before it signals the
//! step, read by others after that, and written again two steps later: by then everybody has signalled the step between,
//! which it does after it has read.

use crate::compose::Blocks;
use crate::operators::Op;
use crate::schedule::{Side, Slice};
use spmd::comm::Room;
use spmd::element::{Element, as_bytes};
use std::ops::Range;
use std::sync::atomic::Ordering;

/// A step of one kind, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step(pub(super) u64);

impl Step {
    fn parity(self) -> usize {
        usize::from(self.0 % 2 == 1)
    }
}

/// Lines of words: of each rank, and of rank 0 for all.
const ENTERED: usize = 0;
const MARKS: usize = 1;
/// And the next one.
const SAID: usize = 2;
const COME: usize = 4;
const FINISHED: usize = 5;
/// And the next one.
const SIGNALS: usize = 6;

/// Words of a line that elements may lie in, behind the step and the mark.
const INLINE: Range<usize> = 2..8;
/// The last one that came, and who differs, in the lower bits of the word that says that a meeting is over.
const RANK_BITS: u32 = 20;

#[derive(Debug)]
pub(super) struct Memory {
    room: Room,
    rank: usize,
    size: usize,
    small: usize,
    chunk: usize,
}

impl Memory {
    /// The bytes that it needs of each rank.
    pub(super) fn bytes(small: usize, chunk: usize) -> usize {
        2 * (2 * small + 2 * chunk)
    }

    pub(super) fn new(room: Room, rank: usize, size: usize, small: usize, chunk: usize) -> Memory {
        Memory { room, rank, size, small, chunk }
    }

    pub(super) fn shares_processors(&self) -> bool {
        self.room.shares_processors()
    }

    fn left_at(&self, step: Step) -> usize {
        step.parity() * self.small
    }

    fn result_at(&self, step: Step) -> usize {
        (2 + step.parity()) * self.small
    }

    fn chunk_at(&self, step: Step) -> usize {
        4 * self.small + step.parity() * self.chunk
    }

    fn block_at(&self, step: Step) -> usize {
        4 * self.small + (2 + step.parity()) * self.chunk
    }

    /// This rank has entered call number `calls`.
    pub(super) fn enter(&self, calls: u64) {
        self.room.word(self.rank, ENTERED, 0).store(calls, Ordering::Relaxed);
    }

    /// The number of the call that a rank has entered last.
    pub(super) fn entered(&self, rank: usize) -> u64 {
        self.room.word(rank, ENTERED, 0).load(Ordering::Relaxed)
    }

    /// Elements of a rank that nobody writes now: `step` has been signalled by their owner and not by everybody the one after.
    fn theirs<T: Element>(&self, rank: usize, offset: usize, length: usize) -> &[T] {
        // SAFETY: the order of signals, see the module.
        unsafe { self.room.elements(rank, offset, length) }
    }

    /// Elements of this rank that nobody reads now: everybody has signalled the step before the last.
    #[expect(clippy::mut_from_ref, reason = "exclusive by the order of signals")]
    fn mine<T: Element>(&self, offset: usize, length: usize) -> &mut [T] {
        // SAFETY: the order of signals, see the module; within this rank the call holds the lock of its communicator.
        unsafe { self.room.own_elements(offset, length) }
    }

    /// Says `data` to the other rank: in the line of the signal itself where it fits.
    pub(super) fn say<T: Element>(&self, step: Step, mark: u64, data: &[T]) {
        let line = SAID + step.parity();
        let bytes = as_bytes(data);
        if bytes.len() <= INLINE.len() * 8 {
            for (index, word) in INLINE.zip(bytes.chunks(8)) {
                let mut whole = [0; 8];
                whole[..word.len()].copy_from_slice(word);
                self.room.word(self.rank, line, index).store(u64::from_ne_bytes(whole), Ordering::Relaxed);
            }
        } else {
            self.mine(self.left_at(step), data.len()).copy_from_slice(data);
        }
        self.room.word(self.rank, line, 1).store(mark, Ordering::Relaxed);
        self.room.word(self.rank, line, 0).store(step.0, Ordering::Release);
    }

    pub(super) fn has_said(&self, step: Step, rank: usize) -> bool {
        self.room.word(rank, SAID + step.parity(), 0).load(Ordering::Acquire) == step.0
    }

    pub(super) fn said_mark(&self, step: Step, rank: usize) -> u64 {
        self.room.word(rank, SAID + step.parity(), 1).load(Ordering::Relaxed)
    }

    /// Gives what the rank has said, as many elements.
    pub(super) fn hear<T: Element>(&self, step: Step, rank: usize, length: usize, use_it: impl FnOnce(&[T])) {
        let bytes = length * size_of::<T>();
        if bytes > INLINE.len() * 8 {
            return use_it(self.theirs(rank, self.left_at(step), length));
        }
        let mut words = [0_u64; 6];
        for (place, index) in words.iter_mut().zip(INLINE).take(bytes.div_ceil(8)) {
            *place = self.room.word(rank, SAID + step.parity(), index).load(Ordering::Relaxed);
        }
        let words: &[u8] = bytemuck::cast_slice(&words);
        match bytemuck::try_cast_slice(&words[..bytes]) {
            Ok(elements) => use_it(elements),
            // Of a type that words are not aligned for.
            Err(_) => use_it(&bytemuck::pod_collect_to_vec::<u8, T>(&words[..bytes])),
        }
    }

    /// Leaves `data` for a meeting.
    pub(super) fn leave<T: Element>(&self, step: Step, mark: u64, data: &[T]) {
        self.mine(self.left_at(step), data.len()).copy_from_slice(data);
        self.room.word(self.rank, MARKS, step.parity()).store(mark, Ordering::Relaxed);
    }

    pub(super) fn left_mark(&self, step: Step, rank: usize) -> u64 {
        self.room.word(rank, MARKS, step.parity()).load(Ordering::Relaxed)
    }

    /// This rank has come; whether it is the last one.
    pub(super) fn come(&self, step: Step) -> bool {
        let before = self.room.word(0, COME, 0).fetch_add(1, Ordering::AcqRel);
        before + 1 == step.0 * self.size as u64
    }

    /// Combines what everybody has left, in rank order.
    pub(super) fn combine<T: Element>(&self, step: Step, length: usize, op: &dyn Op<T>) {
        let result = self.mine(self.result_at(step), length);
        result.copy_from_slice(self.theirs(0, self.left_at(step), length));
        for rank in 1..self.size {
            op.apply(result, self.theirs(rank, self.left_at(step), length), Side::Right);
        }
    }

    /// The meeting is over; `differs` has come for another call.
    pub(super) fn finish(&self, step: Step, differs: Option<usize>) {
        let who = differs.map_or(0, |rank| rank as u64 + 1);
        let word = step.0 << (2 * RANK_BITS) | who << RANK_BITS | self.rank as u64;
        self.room.word(0, FINISHED, 0).store(word, Ordering::Release);
    }

    pub(super) fn is_finished(&self, step: Step) -> bool {
        // Numbers of steps are cut off at 24 bits; no rank is further than one step away.
        self.room.word(0, FINISHED, 0).load(Ordering::Acquire) >> (2 * RANK_BITS) == step.0 & 0xff_ffff
    }

    /// Who came last in the meeting that is over, and who has come for another call.
    pub(super) fn finished(&self) -> (usize, Option<usize>) {
        let word = self.room.word(0, FINISHED, 0).load(Ordering::Acquire);
        let rank = |word: u64| usize::try_from(word & ((1 << RANK_BITS) - 1)).unwrap_or(0);
        (rank(word), rank(word >> RANK_BITS).checked_sub(1))
    }

    pub(super) fn take_result<T: Element>(&self, step: Step, rank: usize, into: &mut [T]) {
        into.copy_from_slice(self.theirs(rank, self.result_at(step), into.len()));
    }

    pub(super) fn take_left<T: Element>(&self, step: Step, rank: usize, into: &mut [T]) {
        into.copy_from_slice(self.theirs(rank, self.left_at(step), into.len()));
    }

    /// The block of a chunk of `length` elements that a rank combines.
    fn block(&self, length: usize, rank: usize) -> Range<usize> {
        Blocks::new(Slice::output(0, length), self.size).block(rank).range()
    }

    /// Copies a chunk in, without the block of rank `own` if that is read elsewhere.
    pub(super) fn copy_in<T: Element>(&self, step: Step, mark: u64, data: &[T], own: usize, skips: bool) {
        let skipped = if skips { self.block(data.len(), own) } else { 0..0 };
        let chunk = self.mine(self.chunk_at(step), data.len());
        chunk[..skipped.start].copy_from_slice(&data[..skipped.start]);
        chunk[skipped.end..].copy_from_slice(&data[skipped.end..]);
        self.room.word(self.rank, MARKS, 2 + step.parity()).store(mark, Ordering::Relaxed);
    }

    pub(super) fn chunk_mark(&self, step: Step, rank: usize) -> u64 {
        self.room.word(rank, MARKS, 2 + step.parity()).load(Ordering::Relaxed)
    }

    /// This rank signals a step; whether all have.
    pub(super) fn signal(&self, step: Step, what: usize) -> bool {
        let before = self.room.word(0, SIGNALS + what, step.parity()).fetch_add(1, Ordering::AcqRel);
        before + 1 == self.all_signals(step)
    }

    /// Whether all ranks have signalled a step.
    pub(super) fn all(&self, step: Step, what: usize) -> bool {
        self.room.word(0, SIGNALS + what, step.parity()).load(Ordering::Acquire) >= self.all_signals(step)
    }

    /// Odd and even steps are counted apart, as a rank may signal one before another has signalled the step before.
    fn all_signals(&self, step: Step) -> u64 {
        step.0.div_ceil(2) * self.size as u64
    }

    /// Combines this rank's block of a chunk out of everybody's, where its own lies, and publishes it.
    pub(super) fn combine_in_place<T: Element>(&self, step: Step, chunk: &mut [T], op: &dyn Op<T>) {
        let range = self.block(chunk.len(), self.rank);
        let length = chunk.len();
        let result = self.mine(self.block_at(step), range.len());
        let own = &mut chunk[range.clone()];
        let their_block = |rank: usize| &self.theirs::<T>(rank, self.chunk_at(step), length)[range.clone()];
        if op.is_commutative() || self.rank == 0 {
            for rank in (0..self.size).filter(|rank| *rank != self.rank) {
                op.apply(own, their_block(rank), Side::Right);
            }
            result.copy_from_slice(own);
        } else {
            self.combine_in_order(result, own, their_block, op);
            own.copy_from_slice(result);
        }
    }

    /// The same without writing to the rank's own data.
    pub(super) fn combine_apart<T: Element>(&self, step: Step, chunk: &[T], op: &dyn Op<T>) {
        let range = self.block(chunk.len(), self.rank);
        let result = self.mine(self.block_at(step), range.len());
        let their_block = |rank: usize| &self.theirs::<T>(rank, self.chunk_at(step), chunk.len())[range.clone()];
        self.combine_in_order(result, &chunk[range.clone()], their_block, op);
    }

    fn combine_in_order<'a, T: Element>(
        &self,
        result: &mut [T],
        own: &'a [T],
        their_block: impl Fn(usize) -> &'a [T],
        op: &dyn Op<T>,
    ) {
        let block = |rank: usize| if rank == self.rank { own } else { their_block(rank) };
        result.copy_from_slice(block(0));
        for rank in 1..self.size {
            op.apply(result, block(rank), Side::Right);
        }
    }

    /// Copies the combined blocks out, without that of rank `own`.
    pub(super) fn copy_out<T: Element>(&self, step: Step, chunk: &mut [T], own: usize) {
        for rank in (0..self.size).filter(|rank| *rank != own) {
            let range = self.block(chunk.len(), rank);
            let length = range.len();
            chunk[range].copy_from_slice(self.theirs(rank, self.block_at(step), length));
        }
    }

    /// Copies a rank's whole chunk out.
    pub(super) fn copy_chunk<T: Element>(&self, step: Step, rank: usize, into: &mut [T]) {
        into.copy_from_slice(self.theirs(rank, self.chunk_at(step), into.len()));
    }
}
