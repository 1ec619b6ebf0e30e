//! Who may touch which bytes of the shared memory when.
//!
//! Generic over that memory, so that loom checks the very code that runs. Each rank's part has what it says in a tree
//! ([`Toward`]) and, twice (for odd and even steps), what it says in an exchange, what it leaves for a meeting, what it has
//! combined there, a chunk, and its combined block. A step's bytes are written by their owner before it signals the
//! step, read by others after that, and written again two steps later: by then everybody has signalled the step between,
//! which it does after it has read.

use crate::compose::Blocks;
use crate::operators::Op;
use crate::schedule::{Side, Slice};
use spmd::element::{Element, as_bytes, as_bytes_mut};
use spmd::memory::stores::{LONG, Stores};
use spmd::memory::{copy_elements, copy_past_cache};
use std::borrow::Cow;
use std::ops::Range;
use std::sync::atomic::Ordering;

/// A part of memory for each of some ranks, as one of them sees it: lines of words, and bytes. All zero at first.
///
/// Words are atomics. Accesses to bytes may be plain: what is asked for belongs to the caller as long as the closure runs.
pub(super) trait RoomMemory {
    /// Word `index` of line `line` of a rank.
    fn load(&self, rank: usize, line: usize, index: usize, order: Ordering) -> u64;
    fn store(&self, rank: usize, line: usize, index: usize, value: u64, order: Ordering);
    /// Adds 1; what was there before.
    fn increment(&self, rank: usize, line: usize, index: usize, order: Ordering) -> u64;
    /// Elements of a rank that nobody writes meanwhile.
    fn read<T: Element, R>(&self, rank: usize, offset: usize, length: usize, use_them: impl FnOnce(&[T]) -> R) -> R;
    /// Elements of this rank that nobody else accesses meanwhile.
    fn write<T: Element, R>(&self, offset: usize, length: usize, use_them: impl FnOnce(&mut [T]) -> R) -> R;
    /// Whether a rank waits for others by giving way to them, because there are more ranks than processors: the same on all.
    fn shares_processors(&self) -> bool;
}

/// A step of one kind, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step(pub(super) u64);

impl Step {
    fn parity(self) -> usize {
        usize::from(self.0 % 2 == 1)
    }
}

/// Lines of words: of each rank, and of rank 0 for all.
///
/// Behind what says that a rank has entered, on rank 0 how exchanges and chunks are to be written.
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
/// The last one that came, and who differs, in the lower bits of the word that says that a meeting is over; who differs in
/// that of a line in a tree.
const RANK_BITS: u32 = 20;

/// The lines of a rank in a tree. They are those of exchanges, which only two ranks have, and those no tree.
///
/// One of each serves odd and even steps: a rank writes that toward its parent again when it has read its parent's toward
/// its children, which the parent wrote when it had read that rank's; and it writes that toward its children again when all
/// of them have come to the next step, which they do when they have read the one of this step. Each write of word 0 is a release and
/// each look at it an acquire, so what was read before is read before it is overwritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Toward {
    Parent,
    Children,
}

impl Toward {
    fn line(self) -> usize {
        match self {
            Toward::Parent => SAID,
            Toward::Children => SAID + 1,
        }
    }
}

/// Elements that lie in a line.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Inline {
    words: [u64; INLINE.end - INLINE.start],
    bytes: usize,
}

impl Inline {
    /// Whether so many bytes do.
    pub(super) fn fits(bytes: usize) -> bool {
        bytes <= size_of::<[u64; INLINE.end - INLINE.start]>()
    }

    /// # Panics
    /// When they do not fit.
    pub(super) fn new<T: Element>(data: &[T]) -> Self {
        let (mut inline, data) = (Inline::default(), as_bytes(data));
        inline.bytes = data.len();
        inline.bytes_mut().copy_from_slice(data);
        inline
    }

    fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.bytes]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.words)[..self.bytes]
    }

    fn elements<T: Element>(&self) -> Cow<'_, [T]> {
        match bytemuck::try_cast_slice(self.bytes()) {
            Ok(elements) => Cow::Borrowed(elements),
            // Of a type that words are not aligned for.
            Err(_) => Cow::Owned(bytemuck::pod_collect_to_vec(self.bytes())),
        }
    }

    /// Combines elements of higher ranks into these; as many.
    pub(super) fn combine<T: Element>(&mut self, theirs: &Inline, op: &dyn Op<T>) {
        // None, or of a type without size, which has one value.
        if self.bytes == 0 {
            return;
        }
        let theirs = theirs.elements::<T>();
        if let Ok(own) = bytemuck::try_cast_slice_mut(self.bytes_mut()) {
            return op.apply(own, &theirs, Side::Right);
        }
        let mut own = self.elements::<T>().into_owned();
        op.apply(&mut own, &theirs, Side::Right);
        *self = Inline::new(&own);
    }

    /// Copies them to as many.
    pub(super) fn take<T: Element>(&self, into: &mut [T]) {
        as_bytes_mut(into).copy_from_slice(self.bytes());
    }
}

/// Ways of which it is known whether what others will read is better written into the cache or past it: the words of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Exchange = 1,
    Chunks = 2,
}

/// Bytes that are combined and copied while they are in the nearest cache.
pub(super) const PIECE: usize = 8 << 10;

#[derive(Debug)]
pub(super) struct Memory<M> {
    room: M,
    rank: usize,
    size: usize,
    small: usize,
    chunk: usize,
}

impl<M: RoomMemory> Memory<M> {
    /// The bytes that it needs of each rank.
    pub(super) fn bytes(small: usize, chunk: usize) -> usize {
        2 * (2 * small + 2 * chunk)
    }

    pub(super) fn new(room: M, rank: usize, size: usize, small: usize, chunk: usize) -> Self {
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
        self.room.store(self.rank, ENTERED, 0, calls, Ordering::Relaxed);
    }

    /// The number of the call that a rank has entered last.
    pub(super) fn entered(&self, rank: usize) -> u64 {
        self.room.load(rank, ENTERED, 0, Ordering::Relaxed)
    }

    /// How rank 0 wants so many bytes to be written that others will read. Ranks that share processors share caches.
    pub(super) fn stores(&self, way: Way, bytes: usize) -> Stores {
        match bytes < LONG || self.shares_processors() {
            true => Stores::IntoCache,
            false => Stores::from_number(self.room.load(0, ENTERED, way as usize, Ordering::Relaxed)),
        }
    }

    /// Rank 0 wants it so from now on; the others find out some time.
    pub(super) fn advise(&self, way: Way, stores: Stores) {
        self.room.store(0, ENTERED, way as usize, stores as u64, Ordering::Relaxed);
    }

    /// Says `data` to the other rank: in the line of the signal itself where it fits.
    pub(super) fn say<T: Element>(&self, step: Step, mark: u64, data: &[T], stores: Stores) {
        let line = SAID + step.parity();
        match Inline::fits(size_of_val(data)) {
            true => self.put(line, &Inline::new(data)),
            false => self.room.write(self.left_at(step), data.len(), |left| publish(stores, data, left)),
        }
        self.room.store(self.rank, line, 1, mark, Ordering::Relaxed);
        self.room.store(self.rank, line, 0, step.0, Ordering::Release);
    }

    /// Fetches the line of a step, to be written soon, which the other rank read two steps ago.
    pub(super) fn prepare_to_say(&self, step: Step, mark: u64) {
        self.room.store(self.rank, SAID + step.parity(), 1, mark, Ordering::Relaxed);
    }

    pub(super) fn has_said(&self, step: Step, rank: usize) -> bool {
        self.room.load(rank, SAID + step.parity(), 0, Ordering::Acquire) == step.0
    }

    pub(super) fn said_mark(&self, step: Step, rank: usize) -> u64 {
        self.room.load(rank, SAID + step.parity(), 1, Ordering::Relaxed)
    }

    /// Gives what the rank has said, as many elements.
    pub(super) fn hear<T: Element>(&self, step: Step, rank: usize, length: usize, use_it: impl FnOnce(&[T])) {
        let bytes = length * size_of::<T>();
        // Elements without size are not counted in bytes.
        match Inline::fits(bytes) && size_of::<T>() > 0 {
            true => use_it(&self.get(rank, SAID + step.parity(), bytes).elements::<T>()),
            false => self.room.read(rank, self.left_at(step), length, use_it),
        }
    }

    /// Puts elements into a line of this rank, and gets them out of one.
    fn put(&self, line: usize, value: &Inline) {
        for (index, word) in INLINE.zip(value.words).take(value.bytes.div_ceil(8)) {
            self.room.store(self.rank, line, index, word, Ordering::Relaxed);
        }
    }

    fn get(&self, rank: usize, line: usize, bytes: usize) -> Inline {
        let mut value = Inline { bytes, ..Inline::default() };
        for (place, index) in value.words.iter_mut().zip(INLINE).take(bytes.div_ceil(8)) {
            *place = self.room.load(rank, line, index, Ordering::Relaxed);
        }
        value
    }

    /// Passes something on in a tree: who differs, the mark that it does from, and a value.
    pub(super) fn pass(&self, toward: Toward, step: Step, differs: Option<usize>, mark: u64, value: &Inline) {
        let line = toward.line();
        let who = differs.map_or(0, |rank| rank as u64 + 1);
        self.put(line, value);
        self.room.store(self.rank, line, 1, mark, Ordering::Relaxed);
        self.room.store(self.rank, line, 0, step.0 << RANK_BITS | who, Ordering::Release);
    }

    pub(super) fn has_passed(&self, toward: Toward, step: Step, rank: usize) -> bool {
        // Numbers of steps are cut off at the same bit; no rank is further than one step away.
        self.room.load(rank, toward.line(), 0, Ordering::Acquire) >> RANK_BITS == step.0 << RANK_BITS >> RANK_BITS
    }

    /// Who differs, and the mark, of what a rank has passed.
    pub(super) fn passed(&self, toward: Toward, rank: usize) -> (Option<usize>, u64) {
        let word = self.room.load(rank, toward.line(), 0, Ordering::Relaxed);
        let who = usize::try_from(word & ((1 << RANK_BITS) - 1)).unwrap_or(0);
        (who.checked_sub(1), self.room.load(rank, toward.line(), 1, Ordering::Relaxed))
    }

    /// The value of so many bytes that a rank has passed.
    pub(super) fn passed_value(&self, toward: Toward, rank: usize, bytes: usize) -> Inline {
        self.get(rank, toward.line(), bytes)
    }

    /// Leaves `data` for a meeting.
    pub(super) fn leave<T: Element>(&self, step: Step, mark: u64, data: &[T]) {
        self.room.write(self.left_at(step), data.len(), |left| copy_elements(data, left));
        self.room.store(self.rank, MARKS, step.parity(), mark, Ordering::Relaxed);
    }

    pub(super) fn left_mark(&self, step: Step, rank: usize) -> u64 {
        self.room.load(rank, MARKS, step.parity(), Ordering::Relaxed)
    }

    /// This rank has come; whether it is the last one.
    pub(super) fn come(&self, step: Step) -> bool {
        let before = self.room.increment(0, COME, 0, Ordering::AcqRel);
        before + 1 == step.0 * self.size as u64
    }

    /// Combines what everybody has left, in rank order.
    pub(super) fn combine<T: Element>(&self, step: Step, length: usize, op: &dyn Op<T>) {
        let left = self.left_at(step);
        self.room.write(self.result_at(step), length, |result: &mut [T]| {
            self.room.read(0, left, length, |first| copy_elements(first, result));
            for rank in 1..self.size {
                self.room.read(rank, left, length, |theirs| op.apply(result, theirs, Side::Right));
            }
        });
    }

    /// The meeting is over; `differs` has come for another call.
    pub(super) fn finish(&self, step: Step, differs: Option<usize>) {
        let who = differs.map_or(0, |rank| rank as u64 + 1);
        let word = step.0 << (2 * RANK_BITS) | who << RANK_BITS | self.rank as u64;
        self.room.store(0, FINISHED, 0, word, Ordering::Release);
    }

    pub(super) fn is_finished(&self, step: Step) -> bool {
        // Numbers of steps are cut off at 24 bits; no rank is further than one step away.
        self.room.load(0, FINISHED, 0, Ordering::Acquire) >> (2 * RANK_BITS) == step.0 & 0xff_ffff
    }

    /// Who came last in the meeting that is over, and who has come for another call.
    pub(super) fn finished(&self) -> (usize, Option<usize>) {
        let word = self.room.load(0, FINISHED, 0, Ordering::Acquire);
        let rank = |word: u64| usize::try_from(word & ((1 << RANK_BITS) - 1)).unwrap_or(0);
        (rank(word), rank(word >> RANK_BITS).checked_sub(1))
    }

    pub(super) fn take_result<T: Element>(&self, step: Step, rank: usize, into: &mut [T]) {
        self.room.read(rank, self.result_at(step), into.len(), |result| copy_elements(result, into));
    }

    pub(super) fn take_left<T: Element>(&self, step: Step, rank: usize, into: &mut [T]) {
        self.room.read(rank, self.left_at(step), into.len(), |left| copy_elements(left, into));
    }

    /// The block of a chunk of `length` elements that a rank combines.
    fn block(&self, length: usize, rank: usize) -> Range<usize> {
        Blocks::new(Slice::output(0, length), self.size).block(rank).range()
    }

    /// Copies a chunk in, without this rank's own block if that is read where it is.
    pub(super) fn copy_in<T: Element>(&self, step: Step, mark: u64, data: &[T], skips: bool, stores: Stores) {
        let skipped = if skips { self.block(data.len(), self.rank) } else { 0..0 };
        self.room.write(self.chunk_at(step), data.len(), |chunk: &mut [T]| {
            publish(stores, &data[..skipped.start], &mut chunk[..skipped.start]);
            publish(stores, &data[skipped.end..], &mut chunk[skipped.end..]);
        });
        self.room.store(self.rank, MARKS, 2 + step.parity(), mark, Ordering::Relaxed);
    }

    pub(super) fn chunk_mark(&self, step: Step, rank: usize) -> u64 {
        self.room.load(rank, MARKS, 2 + step.parity(), Ordering::Relaxed)
    }

    /// This rank signals a step; whether all have.
    pub(super) fn signal(&self, step: Step, what: usize) -> bool {
        let before = self.room.increment(0, SIGNALS + what, step.parity(), Ordering::AcqRel);
        before + 1 == self.all_signals(step)
    }

    /// Whether all ranks have signalled a step.
    pub(super) fn all(&self, step: Step, what: usize) -> bool {
        self.room.load(0, SIGNALS + what, step.parity(), Ordering::Acquire) >= self.all_signals(step)
    }

    /// Odd and even steps are counted apart, as a rank may signal one before another has signalled the step before.
    fn all_signals(&self, step: Step) -> u64 {
        step.0.div_ceil(2) * self.size as u64
    }

    /// Combines this rank's block of a chunk out of everybody's, where its own lies, and publishes it.
    pub(super) fn combine_in_place<T: Element>(&self, step: Step, chunk: &mut [T], stores: Stores, op: &dyn Op<T>) {
        self.by_pieces(step, chunk.len(), |result, piece| {
            if !op.is_commutative() && self.rank > 0 {
                self.accumulate(step, &piece, &chunk[piece.clone()], result, op);
                return copy_elements(result, &mut chunk[piece]);
            }
            let own = &mut chunk[piece.clone()];
            for rank in (0..self.size).filter(|rank| *rank != self.rank) {
                self.of_chunk(step, rank, &piece, |theirs| op.apply(own, theirs, Side::Right));
            }
            publish(stores, own, result);
        });
    }

    /// The same without writing to the rank's own data: to the same place of `out` where there is one.
    pub(super) fn combine_apart<T: Element>(
        &self,
        step: Step,
        chunk: &[T],
        mut out: Option<&mut [T]>,
        stores: Stores,
        op: &dyn Op<T>,
    ) {
        self.by_pieces(step, chunk.len(), |result, piece| match &mut out {
            Some(out) => {
                self.accumulate(step, &piece, &chunk[piece.clone()], &mut out[piece.clone()], op);
                publish(stores, &out[piece], result);
            }
            None => self.accumulate(step, &piece, &chunk[piece.clone()], result, op),
        });
    }

    /// Combines a piece of a chunk out of everybody's, in rank order where that matters, and elsewhere as in place.
    fn accumulate<T: Element>(&self, step: Step, piece: &Range<usize>, own: &[T], into: &mut [T], op: &dyn Op<T>) {
        let first = if op.is_commutative() { self.rank } else { 0 };
        for rank in std::iter::once(first).chain((0..self.size).filter(|rank| *rank != first)) {
            let mut add = |theirs: &[T]| match rank == first {
                true => copy_elements(theirs, into),
                false => op.apply(into, theirs, Side::Right),
            };
            match rank == self.rank {
                true => add(own),
                false => self.of_chunk(step, rank, piece, add),
            }
        }
    }

    /// This rank's block of a chunk of `length` elements piece by piece: where the piece is to be published, and where in
    /// the chunk it lies.
    fn by_pieces<T: Element>(&self, step: Step, length: usize, mut make: impl FnMut(&mut [T], Range<usize>)) {
        let block = self.block(length, self.rank);
        self.room.write(self.block_at(step), block.len(), |result: &mut [T]| {
            let most = (PIECE / size_of::<T>().max(1)).max(1);
            for (result, start) in result.chunks_mut(most).zip((block.start..).step_by(most)) {
                let end = start + result.len();
                make(result, start..end);
            }
        });
    }

    /// A part of what a rank has copied in.
    fn of_chunk<T: Element>(&self, step: Step, rank: usize, part: &Range<usize>, use_it: impl FnOnce(&[T])) {
        // The block that is read elsewhere, which its owner has not copied in, is nobody's part.
        self.room.read(rank, self.chunk_at(step) + part.start * size_of::<T>(), part.len(), use_it);
    }

    /// Copies the combined blocks out, without that of rank `own`.
    pub(super) fn copy_out<T: Element>(&self, step: Step, chunk: &mut [T], own: usize, stores: Stores) {
        for rank in (0..self.size).filter(|rank| *rank != own) {
            let range = self.block(chunk.len(), rank);
            let result = &mut chunk[range.clone()];
            self.room.read(rank, self.block_at(step), range.len(), |block| publish(stores, block, result));
        }
    }

    /// Copies a rank's whole chunk out.
    pub(super) fn copy_chunk<T: Element>(&self, step: Step, rank: usize, into: &mut [T]) {
        self.room.read(rank, self.chunk_at(step), into.len(), |chunk| copy_elements(chunk, into));
    }
}

/// Copies to where others will read it, or this rank later.
fn publish<T: Element>(stores: Stores, from: &[T], to: &mut [T]) {
    match stores {
        Stores::IntoCache => copy_elements(from, to),
        Stores::PastCache => copy_past_cache(from, to),
    }
}
