//! How the ranks of one host meet in their memory: what each writes, signals, waits for and reads, and in which order.
//!
//! Every call is a meeting: nobody leaves before everybody has come, so that what call k left in memory may be overwritten
//! in call k + 2, and what went through a tree in the next one ([`Toward`]). That costs each rank one turn of its
//! processor, where messages along a tree cost several. Values are combined in rank order when the operator asks for it,
//! and each element on one rank only or by the same expression on all. Knows no communicator: how a rank waits is the
//! business of its [`Company`].

use super::memory::{Inline, Memory, RoomMemory, Step, Toward, Way};
use super::tree::Tree;
use crate::operators::Op;
use crate::schedule::Side;
use spmd::element::Element;
use spmd::memory::copy_elements;
use spmd::memory::stores::{Chooser, LONG, Sample, Side as Task, Stores};
use std::ops::Range;
use std::time::{Duration, Instant};

/// Up to this many bytes the last rank that comes combines everybody's data.
pub(super) const SMALL: usize = 16 << 10;
/// Of all ranks together.
const SMALL_OF_ALL: usize = 64 << 10;

/// The other ranks, as one that works with them in memory sees them. Ranks are positions in that memory.
pub(super) trait Company {
    type Error;

    /// Waits until `ready`; `missing` says of a rank whether it has yet to come.
    fn wait(&mut self, missing: impl Fn(usize) -> bool, ready: impl FnMut() -> bool) -> Result<(), Self::Error>;

    /// What these ranks may sleep for has changed.
    fn wake(&mut self, ranks: impl IntoIterator<Item = usize>) -> Result<(), Self::Error>;

    /// A rank's call is another one: the error that all ranks get.
    fn differs(&mut self, rank: usize) -> Self::Error;
}

/// How many steps of each kind there have been: the same on all ranks. And what rank 0 knows of how long they take.
#[derive(Debug, Default)]
pub(super) struct Counts {
    calls: u64,
    exchanges: u64,
    meetings: u64,
    in_trees: u64,
    chunks: u64,
    /// For [`Way::Exchange`] and [`Way::Chunks`], on rank 0.
    learnt: [Learnt; 2],
    /// For what is copied out to a large result, on each rank.
    of_results: Learnt,
    /// How these are written next.
    results: Stores,
}

/// What is known about the stores of a way.
#[derive(Debug, Default)]
struct Learnt {
    chooser: Chooser,
    /// The stores of the last time, and how often they have been used since others were.
    stores: Stores,
    times: u32,
}

impl Learnt {
    /// So many bytes, written with these stores, took so long to be written, and to be read and combined: how the next are to be
    /// written, if that says anything.
    fn learn(&mut self, bytes: usize, stores: Stores, (written, read): (Duration, Duration)) -> Option<Stores> {
        let Learnt { chooser, stores: last, times } = self;
        *times = if stores == *last { times.saturating_add(1) } else { 0 };
        *last = stores;
        if *times < SETTLING {
            return None;
        }
        chooser.sample(Task::Write, Sample::new(stores, bytes, written));
        chooser.sample(Task::Read, Sample::new(stores, bytes, read));
        Some(chooser.advice(stores, bytes.min(COUNTED)))
    }
}

/// So often the caches are not yet what other stores make them, and another rank may write the other way.
const SETTLING: u32 = 3;
/// A chunk counts for so many bytes, so that several decide.
const COUNTED: usize = 16 << 10;

/// A result of so many bytes does not stay in the cache of a processor, and does not push others' chunks out of it if it is written
/// past it.
const LARGE: usize = 2 << 20;

/// What a call reads and writes.
pub(super) enum Data<'a, T> {
    /// In place, on all ranks.
    Both(&'a mut [T]),
    /// The root's goes to all.
    From(usize, &'a mut [T]),
    /// Everybody's, and the result where it is wanted: at the root, or on all ranks.
    To(&'a [T], Option<&'a mut [T]>),
}

/// The forms within one host, on one rank.
#[derive(Debug)]
pub(super) struct Meetings<M> {
    memory: Memory<M>,
    tree: Tree,
    rank: usize,
    size: usize,
    /// Bytes that are small, and of a chunk.
    small: usize,
    chunk: usize,
}

impl<M: RoomMemory> Meetings<M> {
    pub(super) fn new(room: M, rank: usize, size: usize, small: usize, chunk: usize) -> Self {
        let memory = Memory::new(room, rank, size, small, chunk);
        Meetings { memory, tree: Tree::new(rank, size), rank, size, small, chunk }
    }

    #[cfg(all(test, loom))]
    pub(super) fn with_tree(self, tree: Tree) -> Self {
        Meetings { tree, ..self }
    }

    pub(super) fn run<T: Element, C: Company>(
        &self,
        counts: &mut Counts,
        company: &mut C,
        mark: u64,
        mut data: Data<'_, T>,
        op: Option<&dyn Op<T>>,
    ) -> Result<(), C::Error> {
        counts.calls += 1;
        self.memory.enter(counts.calls);
        let bytes = data.length() * size_of::<T>();
        if bytes > self.small || bytes * self.size > SMALL_OF_ALL.max(2 * self.small) {
            self.in_chunks(counts, company, mark, &mut data, op)
        } else if self.size == 2 && !self.memory.shares_processors() {
            self.exchange(counts, company, mark, &mut data, op)
        } else if Inline::fits(bytes) && !self.memory.shares_processors() && !matches!(data, Data::From(..)) {
            self.in_tree(counts, company, mark, &mut data, op)
        } else {
            self.meet(counts, company, mark, &mut data, op)
        }
    }

    fn wait<C: Company>(&self, calls: u64, company: &mut C, ready: impl FnMut() -> bool) -> Result<(), C::Error> {
        company.wait(|rank| self.memory.entered(rank) < calls, ready)
    }

    /// Two ranks with a processor each: both say what they have, and both combine it.
    fn exchange<T: Element, C: Company>(
        &self,
        counts: &mut Counts,
        company: &mut C,
        mark: u64,
        data: &mut Data<'_, T>,
        op: Option<&dyn Op<T>>,
    ) -> Result<(), C::Error> {
        counts.exchanges += 1;
        let (step, other) = (Step(counts.exchanges), 1 - self.rank);
        let bytes = data.length() * size_of::<T>();
        let stores = self.memory.stores(Way::Exchange, bytes);
        let tells = data.tells_of_stores();
        let watch = self.watch(bytes).filter(|_| tells);
        self.memory.say(step, mark, data.own(self.rank), stores);
        let written = watch.map(|watch| watch.elapsed());
        // Looked at before the fence in `wake`: the other's line comes while ours is fetched to be written.
        let has_said = self.memory.has_said(step, other);
        company.wake(0..2)?;
        if !has_said {
            // Also if it has entered: perhaps another call.
            company.wait(|rank| rank == other, || self.memory.has_said(step, other))?;
        }
        if self.memory.said_mark(step, other) != mark {
            return Err(company.differs(other));
        }
        let watch = self.watch(bytes);
        self.memory.hear(step, other, data.length(), |theirs| match (data, op) {
            (Data::Both(both), Some(op)) => {
                op.apply(both, theirs, if other < self.rank { Side::Left } else { Side::Right });
            }
            (Data::From(root, data), _) if *root == other => copy_elements(theirs, data),
            (Data::To(own, Some(result)), Some(op)) => {
                copy_elements(own, result);
                op.apply(result, theirs, if other < self.rank { Side::Left } else { Side::Right });
            }
            _ => {}
        });
        self.memory.prepare_to_say(Step(step.0 + 1), mark);
        self.learn(counts, Way::Exchange, bytes, stores, written.zip(watch.map(|watch| watch.elapsed())));
        Ok(())
    }

    /// A watch where it is worth knowing how long so many bytes take: on rank 0, which decides for all.
    fn watch(&self, bytes: usize) -> Option<Instant> {
        (self.rank == 0 && bytes >= LONG && !self.memory.shares_processors()).then(Instant::now)
    }

    /// So many bytes, written with these stores, took so long to be written, and to be read and combined.
    fn learn(&self, counts: &mut Counts, way: Way, bytes: usize, stores: Stores, times: Option<(Duration, Duration)>) {
        let advice = times.and_then(|times| counts.learnt[way as usize - 1].learn(bytes, stores, times));
        if let Some(advice) = advice.filter(|advice| *advice != stores) {
            self.memory.advise(way, advice);
        }
    }

    /// Copies the combined blocks of a chunk to a part of the result. A large one is written as was found to be faster: it
    /// pushes itself out of the cache, and what is written past it need not be fetched before.
    fn copy_out<T: Element>(&self, counts: &mut Counts, step: Step, part: &mut [T], is_large: bool) {
        if !is_large || self.memory.shares_processors() {
            return self.memory.copy_out(step, part, self.rank, Stores::IntoCache);
        }
        let (bytes, stores, watch) = (size_of_val(part), counts.results, Instant::now());
        self.memory.copy_out(step, part, self.rank, stores);
        // What is little takes long for its bytes.
        if 2 * bytes > self.chunk {
            let times = (watch.elapsed(), Duration::ZERO);
            counts.results = counts.of_results.learn(bytes, stores, times).unwrap_or(stores);
        }
    }

    /// Ranks with a processor each: each combines what its children in the tree say with its own, and says it to its parent;
    /// what the root comes to goes down the same way. So few ranks write or read any one line, and the lines of one level
    /// travel at the same time.
    fn in_tree<T: Element, C: Company>(
        &self,
        counts: &mut Counts,
        company: &mut C,
        mark: u64,
        data: &mut Data<'_, T>,
        op: Option<&dyn Op<T>>,
    ) -> Result<(), C::Error> {
        counts.in_trees += 1;
        let (memory, step, children) = (&self.memory, Step(counts.in_trees), || self.tree.children());
        // All of them are looked at, whether or not one is missing, so that their lines come at the same time.
        let have_come = || children().fold(true, |all, child| all & memory.has_passed(Toward::Parent, step, child));
        // Also one that has entered may be missing here: in another call, or gone.
        let calls = counts.calls;
        let is_missing =
            |child: usize| children().any(|one| one == child) && !memory.has_passed(Toward::Parent, step, child);
        company.wait(|rank| memory.entered(rank) < calls || is_missing(rank), have_come)?;
        let bytes = data.length() * size_of::<T>();
        let mut value = Inline::new(data.own(self.rank));
        let mut differs = children().find_map(|child| match memory.passed(Toward::Parent, child) {
            (below, theirs) if theirs == mark => below,
            _ => Some(child),
        });
        if let (None, Some(op)) = (differs, op) {
            children().for_each(|child| value.combine(&memory.passed_value(Toward::Parent, child, bytes), op));
        }
        let mut of_root = mark;
        if let Some(parent) = self.tree.parent {
            memory.pass(Toward::Parent, step, differs, mark, &value);
            company.wake([parent])?;
            let has_passed = || memory.has_passed(Toward::Children, step, parent);
            company.wait(|rank| memory.entered(rank) < calls || rank == parent, has_passed)?;
            (differs, of_root) = memory.passed(Toward::Children, parent);
            value = memory.passed_value(Toward::Children, parent, bytes);
        }
        if children().len() > 0 {
            memory.pass(Toward::Children, step, differs, of_root, &value);
            company.wake(children())?;
        }
        if let Some(rank) = differs {
            // Whoever differs from the root blames it, the others blame whoever differs.
            return Err(company.differs(if mark == of_root { rank } else { 0 }));
        }
        match data {
            Data::Both(result) | Data::To(_, Some(result)) => value.take(result),
            Data::To(_, None) | Data::From(..) => {}
        }
        Ok(())
    }

    /// Everybody leaves its data and comes; the last one that comes combines all of it.
    fn meet<T: Element, C: Company>(
        &self,
        counts: &mut Counts,
        company: &mut C,
        mark: u64,
        data: &mut Data<'_, T>,
        op: Option<&dyn Op<T>>,
    ) -> Result<(), C::Error> {
        counts.meetings += 1;
        let step = Step(counts.meetings);
        self.memory.leave(step, mark, data.own(self.rank));
        if self.memory.come(step) {
            let differs = (0..self.size).find(|rank| self.memory.left_mark(step, *rank) != mark);
            if let (None, Some(op)) = (differs, op) {
                self.memory.combine(step, data.length(), op);
            }
            self.memory.finish(step, differs);
            company.wake(0..self.size)?;
        } else {
            self.wait(counts.calls, company, || self.memory.is_finished(step))?;
        }
        let (combiner, differs) = self.memory.finished();
        if let Some(rank) = differs {
            // Whoever differs from the last one blames it, the others blame whoever differs.
            let mine = self.memory.left_mark(step, combiner) == mark;
            return Err(company.differs(if mine && rank != self.rank { rank } else { combiner }));
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
    fn in_chunks<T: Element, C: Company>(
        &self,
        counts: &mut Counts,
        company: &mut C,
        mark: u64,
        data: &mut Data<'_, T>,
        op: Option<&dyn Op<T>>,
    ) -> Result<(), C::Error> {
        let calls = counts.calls;
        let most = (self.chunk / size_of::<T>().max(1)).max(1);
        let length = data.length();
        let first = counts.chunks;
        let number = length.div_ceil(most);
        counts.chunks += number as u64;
        let range = |index: usize| index * most..((index + 1) * most).min(length);
        let step = |index: usize| Step(first + 1 + index as u64);
        let skips = data.reads_its_own();
        let bytes = range(0).len() * size_of::<T>();
        let is_large = length * size_of::<T>() >= LARGE;
        let stores = self.memory.stores(Way::Chunks, bytes);
        let tells = data.tells_of_stores();
        let watch = self.watch(bytes).filter(|_| tells);
        self.memory.copy_in(step(0), mark, data.own_part(self.rank, range(0)), skips, stores);
        let mut written = watch.map(|watch| watch.elapsed());
        self.signal(company, step(0), Self::CAME)?;
        for index in 0..number {
            let mut written_next = None;
            if index + 1 < number {
                let part = data.own_part(self.rank, range(index + 1));
                let watch = self.watch(bytes);
                self.memory.copy_in(step(index + 1), mark, part, skips, stores);
                written_next = watch.map(|watch| watch.elapsed());
                self.signal(company, step(index + 1), Self::CAME)?;
            }
            let now = step(index);
            self.wait(calls, company, || self.memory.all(now, Self::CAME))?;
            if index == 0
                && let Some(rank) = (0..self.size).find(|rank| self.memory.chunk_mark(now, *rank) != mark)
            {
                return Err(company.differs(rank));
            }
            let watch = self.watch(bytes);
            match (&mut *data, op) {
                (Data::Both(both), Some(op)) => {
                    self.memory.combine_in_place(now, &mut both[range(index)], stores, op);
                    self.signal(company, now, Self::COMBINED)?;
                    self.wait(calls, company, || self.memory.all(now, Self::COMBINED))?;
                    self.copy_out(counts, now, &mut both[range(index)], is_large);
                }
                (Data::To(own, result), Some(op)) => {
                    let mut result = result.as_mut().map(|result| &mut result[range(index)]);
                    self.memory.combine_apart(now, &own[range(index)], result.as_deref_mut(), stores, op);
                    self.signal(company, now, Self::COMBINED)?;
                    self.wait(calls, company, || self.memory.all(now, Self::COMBINED))?;
                    if let Some(result) = result {
                        self.copy_out(counts, now, result, is_large);
                    }
                }
                (Data::From(root, data), _) => {
                    if *root != self.rank {
                        self.memory.copy_chunk(now, *root, &mut data[range(index)]);
                    }
                    self.signal(company, now, Self::COMBINED)?;
                    self.wait(calls, company, || self.memory.all(now, Self::COMBINED))?;
                }
                _ => {}
            }
            // What is little takes long for its bytes.
            let times = written.zip(watch.map(|watch| watch.elapsed()));
            self.learn(counts, Way::Chunks, bytes, stores, times.filter(|_| range(index).len() == range(0).len()));
            written = written_next;
        }
        Ok(())
    }

    /// Which signals a chunk has.
    const CAME: usize = 0;
    const COMBINED: usize = 1;

    fn signal<C: Company>(&self, company: &mut C, step: Step, what: usize) -> Result<(), C::Error> {
        if self.memory.signal(step, what) { company.wake(0..self.size) } else { Ok(()) }
    }
}

impl<T> Data<'_, T> {
    pub(super) fn length(&self) -> usize {
        match self {
            Data::Both(data) | Data::From(_, data) => data.len(),
            Data::To(data, _) => data.len(),
        }
    }

    /// What this rank gives.
    pub(super) fn own(&self, rank: usize) -> &[T] {
        self.own_part(rank, 0..self.length())
    }

    pub(super) fn own_part(&self, rank: usize, range: Range<usize>) -> &[T] {
        match self {
            Data::Both(data) => &data[range],
            Data::From(root, data) if *root == rank => &data[range],
            Data::From(..) => &[],
            Data::To(data, _) => &data[range],
        }
    }

    /// Whether rank 0 both writes what others read and reads what they wrote, so that it can tell which stores are better.
    fn tells_of_stores(&self) -> bool {
        matches!(self, Data::Both(_) | Data::To(_, Some(_)))
    }

    /// Whether the block that a rank combines itself need not be copied in: it is read where it is.
    fn reads_its_own(&self) -> bool {
        !matches!(self, Data::From(..))
    }
}
