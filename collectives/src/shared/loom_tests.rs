//! The protocols under every order of the ranks' accesses that C++11 memory allows, or all with a few preemptions:
//! `RUSTFLAGS="--cfg loom" cargo test -p spmd-collectives --lib --release loom`

use super::hops::{Between, Division, HopCounts, Hops};
use super::memory::{Memory, RoomMemory};
use super::protocol::{Company, Counts, Data, Meetings};
use super::tree::Tree;
use crate::operators::{Op, custom};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU64, Ordering, fence};
use loom::sync::{Arc, Notify};
use spmd::element::{Element, as_bytes};
use std::collections::BTreeMap;
use std::ops::Range;

/// What loom watches: every word is an atomic of its own, every region of bytes (which one rank writes as a whole) a cell. An
/// access that signals do not order is an error.
struct Model {
    words: Vec<BTreeMap<(usize, usize), AtomicU64>>,
    /// By where they begin.
    regions: Vec<BTreeMap<usize, UnsafeCell<Vec<u8>>>>,
    shares_processors: bool,
}

/// Only words and regions that are used: every one costs in each of the many runs.
fn model(
    ranks: usize,
    words: &[(usize, Range<usize>)],
    regions: &[Range<usize>],
    shares_processors: bool,
) -> Arc<Model> {
    let words = || words.iter().flat_map(|(line, indices)| indices.clone().map(|index| (*line, index)));
    Arc::new(Model {
        words: (0..ranks).map(|_| words().map(|word| (word, AtomicU64::new(0))).collect()).collect(),
        regions: (0..ranks)
            .map(|_| regions.iter().map(|region| (region.start, UnsafeCell::new(vec![0; region.len()]))).collect())
            .collect(),
        shares_processors,
    })
}

impl Model {
    /// The region of a rank that begins at or before an offset, and where in it that lies.
    fn region(&self, rank: usize, offset: usize) -> (&UnsafeCell<Vec<u8>>, usize) {
        let (start, region) = self.regions[rank].range(..=offset).next_back().expect("a region");
        (region, offset - start)
    }
}

/// One rank's view.
struct View {
    model: Arc<Model>,
    own: usize,
}

#[expect(unsafe_code, reason = "loom's cells are read and written through pointers")]
impl RoomMemory for View {
    fn load(&self, rank: usize, line: usize, index: usize, order: Ordering) -> u64 {
        self.model.words[rank][&(line, index)].load(order)
    }

    fn store(&self, rank: usize, line: usize, index: usize, value: u64, order: Ordering) {
        self.model.words[rank][&(line, index)].store(value, order);
    }

    fn increment(&self, rank: usize, line: usize, index: usize, order: Ordering) -> u64 {
        self.model.words[rank][&(line, index)].fetch_add(1, order)
    }

    fn read<T: Element, R>(&self, rank: usize, offset: usize, length: usize, use_them: impl FnOnce(&[T]) -> R) -> R {
        if length == 0 {
            return use_them(&[]);
        }
        let (region, at) = self.model.region(rank, offset);
        // Held until they have been used: loom reports a write meanwhile.
        let guard = region.get();
        // SAFETY: loom checks that nobody writes the region meanwhile.
        let elements = guard.with(|bytes| unsafe {
            bytemuck::pod_collect_to_vec::<u8, T>(&(&*bytes)[at..at + length * size_of::<T>()])
        });
        use_them(&elements)
    }

    fn write<T: Element, R>(&self, offset: usize, length: usize, use_them: impl FnOnce(&mut [T]) -> R) -> R {
        if length == 0 {
            return use_them(&mut []);
        }
        let (region, at) = self.model.region(self.own, offset);
        let guard = region.get_mut();
        guard.with(|bytes| {
            // SAFETY: loom checks that nobody else accesses the region meanwhile.
            let bytes = unsafe { &mut (&mut *bytes)[at..at + length * size_of::<T>()] };
            let mut elements = bytemuck::pod_collect_to_vec::<u8, T>(bytes);
            let result = use_them(&mut elements);
            bytes.copy_from_slice(as_bytes(&elements));
            result
        })
    }

    fn shares_processors(&self) -> bool {
        self.model.shares_processors
    }
}

/// Waits as the runtime does in the end: raises a flag, looks for the last time, and sleeps until it is woken
/// (`Together::wake` and `Runtime::sleep`). Who is not woken sleeps for ever, which loom reports.
#[derive(Clone)]
struct Others {
    own: usize,
    asleep: Arc<Vec<(AtomicU64, Notify)>>,
}

impl Company for Others {
    type Error = usize;

    fn wait(&mut self, _: impl Fn(usize) -> bool, mut ready: impl FnMut() -> bool) -> Result<(), usize> {
        let (flag, bell) = &self.asleep[self.own];
        while !ready() {
            flag.store(1, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            if !ready() {
                bell.wait();
            }
            flag.store(0, Ordering::Relaxed);
        }
        Ok(())
    }

    fn wake(&mut self, ranks: impl IntoIterator<Item = usize>) -> Result<(), usize> {
        fence(Ordering::SeqCst);
        for rank in ranks.into_iter().filter(|rank| *rank != self.own) {
            let (flag, bell) = &self.asleep[rank];
            if flag.load(Ordering::Relaxed) != 0 {
                bell.notify();
            }
        }
        Ok(())
    }

    fn differs(&mut self, rank: usize) -> usize {
        rank
    }
}

/// Runs a rank's program on each of so many threads.
fn on_ranks(
    preemptions: Option<usize>,
    ranks: usize,
    model: impl Fn() -> Arc<Model> + Send + Sync + 'static,
    program: impl Fn(View, Others) + Clone + Send + Sync + 'static,
) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.max_branches = 10_000;
    builder.check(move || {
        let model = model();
        let asleep = Arc::new((0..ranks).map(|_| (AtomicU64::new(0), Notify::new())).collect());
        let run = |own: usize| {
            let (view, others) = (View { model: model.clone(), own }, Others { own, asleep: Arc::clone(&asleep) });
            let program = program.clone();
            move || program(view, others)
        };
        let threads: Vec<_> = (1..ranks).map(|own| loom::thread::spawn(run(own))).collect();
        run(0)();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

/// Small calls up to 2 bytes, chunks of 4: the fewest that have everything.
const SMALL: usize = 2;
const CHUNK: usize = 4;

fn meetings(ranks: usize, shares_processors: bool) -> impl Fn() -> Arc<Model> {
    let regions = move || {
        let mut at = 0;
        [SMALL, SMALL, SMALL, SMALL, CHUNK, CHUNK, CHUNK, CHUNK].map(|length| {
            at += length;
            at - length..at
        })
    };
    assert_eq!(Memory::<View>::bytes(SMALL, CHUNK), regions()[7].end);
    move || {
        model(
            ranks,
            &[(0, 0..1), (1, 0..4), (2, 0..3), (3, 0..3), (4, 0..1), (5, 0..1), (6, 0..2), (7, 0..2)],
            &regions(),
            shares_processors,
        )
    }
}

/// Sums of bytes; with one byte and two ranks each rank's part tells which ranks and which calls are in it.
fn sum() -> impl Op<u8> {
    custom(|a: u8, b: u8| a.wrapping_add(b))
}

fn value(rank: usize, call: usize, index: usize) -> u8 {
    u8::try_from(1 + rank * 60 + call * 10 + index).unwrap()
}

/// All-reduces of these lengths one after the other.
fn all_reduces(ranks: usize, lengths: &'static [usize]) -> impl Fn(View, Others) + Clone {
    all_reduces_in_groups(ranks, None, lengths)
}

/// The same, with groups of `width` ranks in trees.
fn all_reduces_in_groups(
    ranks: usize,
    width: Option<usize>,
    lengths: &'static [usize],
) -> impl Fn(View, Others) + Clone {
    move |view: View, mut others: Others| {
        let rank = view.own;
        let meetings = Meetings::new(view, rank, ranks, SMALL, CHUNK);
        let meetings = match width {
            Some(width) => meetings.with_tree(Tree::of_width(rank, ranks, width)),
            None => meetings,
        };
        let mut counts = Counts::default();
        for (call, length) in lengths.iter().enumerate() {
            let mut data: Vec<u8> = (0..*length).map(|index| value(rank, call, index)).collect();
            meetings.run(&mut counts, &mut others, 7, Data::Both(&mut data), Some(&sum())).unwrap();
            let expected = |index| (0..ranks).fold(0_u8, |sum, rank| sum.wrapping_add(value(rank, call, index)));
            assert!(data.iter().enumerate().all(|(index, found)| *found == expected(index)), "call {call}: {data:?}");
        }
    }
}

#[test]
fn exchanges_of_two_ranks() {
    on_ranks(Some(3), 2, meetings(2, false), all_reduces(2, &[1, 1, 1]));
}

#[test]
fn meetings_of_two_ranks() {
    on_ranks(Some(3), 2, meetings(2, true), all_reduces(2, &[1, 1, 1]));
}

#[test]
fn meetings_of_three_ranks() {
    on_ranks(Some(2), 3, meetings(3, true), all_reduces(3, &[1, 1]));
}

/// The root, one that leads a group, and the other one of that group.
#[test]
fn a_tree_of_two_levels() {
    on_ranks(Some(1), 3, meetings(3, false), all_reduces_in_groups(3, Some(2), &[1, 1, 1]));
}

#[test]
fn a_tree_of_one_level() {
    on_ranks(Some(1), 3, meetings(3, false), all_reduces_in_groups(3, Some(1), &[1, 1]));
}

#[test]
fn barriers_and_reduces_in_a_tree_and_broadcasts_between_them() {
    on_ranks(Some(1), 3, meetings(3, false), |view, mut others| {
        let rank = view.own;
        let meetings = Meetings::new(view, rank, 3, SMALL, CHUNK).with_tree(Tree::of_width(rank, 3, 2));
        let mut counts = Counts::default();
        let own = [value(rank, 0, 0)];
        let mut result = [0];
        let place = (rank == 2).then_some(&mut result[..]);
        meetings.run(&mut counts, &mut others, 7, Data::To(&own, place), Some(&sum())).unwrap();
        let expected = (0..3).fold(0_u8, |sum, rank| sum.wrapping_add(value(rank, 0, 0)));
        assert_eq!(result[0], if rank == 2 { expected } else { 0 });
        let mut data = own;
        meetings.run(&mut counts, &mut others, 7, Data::From(1, &mut data), None).unwrap();
        assert_eq!(data, [value(1, 0, 0)]);
        meetings.run::<u8, _>(&mut counts, &mut others, 7, Data::Both(&mut []), None).unwrap();
    });
}

#[test]
fn a_call_that_differs_in_a_tree_is_found_by_all_in_the_second_step_as_in_the_first() {
    for (odd, width, before) in [(0, 2, 0), (1, 2, 0), (2, 2, 0), (2, 1, 0), (1, 2, 1), (2, 2, 1)] {
        on_ranks(Some(1), 3, meetings(3, false), move |view, mut others| {
            let rank = view.own;
            let meetings = Meetings::new(view, rank, 3, SMALL, CHUNK).with_tree(Tree::of_width(rank, 3, width));
            let (mut counts, mut data) = (Counts::default(), [1_u8]);
            for _ in 0..before {
                meetings.run(&mut counts, &mut others, 7, Data::Both(&mut data), Some(&sum())).unwrap();
            }
            let mark = if rank == odd { 8 } else { 7 };
            let found = meetings.run(&mut counts, &mut others, mark, Data::Both(&mut data), Some(&sum()));
            // Two of which one is the odd one, or the root where that is odd itself.
            let blamed = match (odd, rank) {
                (0, 0) => 1,
                (0, _) => 0,
                _ if rank == odd => 0,
                _ => odd,
            };
            assert_eq!(found, Err(blamed), "rank {rank}");
        });
    }
}

#[test]
fn three_chunks_of_two_ranks() {
    on_ranks(Some(2), 2, meetings(2, true), all_reduces(2, &[9]));
}

#[test]
fn chunks_of_three_ranks() {
    on_ranks(Some(1), 3, meetings(3, true), all_reduces(3, &[7]));
}

#[test]
fn a_small_call_then_a_large_one_then_a_small_one() {
    on_ranks(Some(2), 2, meetings(2, true), all_reduces(2, &[1, 5, 1]));
    on_ranks(Some(2), 2, meetings(2, false), all_reduces(2, &[1, 5, 1]));
}

#[test]
fn broadcasts_and_reduces_in_chunks_and_meetings() {
    on_ranks(Some(2), 2, meetings(2, true), |view, mut others| {
        let rank = view.own;
        let meetings = Meetings::new(view, rank, 2, SMALL, CHUNK);
        let mut counts = Counts::default();
        for (call, length) in [1, 6].into_iter().enumerate() {
            let own: Vec<u8> = (0..length).map(|index| value(rank, call, index)).collect();
            let mut data = own.clone();
            meetings.run(&mut counts, &mut others, 7, Data::From(1, &mut data), None).unwrap();
            assert!(data.iter().enumerate().all(|(index, found)| *found == value(1, call, index)), "{data:?}");
            let mut result = vec![0; length];
            let place = (rank == 0).then_some(&mut result[..]);
            meetings.run(&mut counts, &mut others, 7, Data::To(&own, place), Some(&sum())).unwrap();
            let expected = |index| value(0, call, index).wrapping_add(value(1, call, index));
            assert!(rank == 1 || result.iter().enumerate().all(|(index, found)| *found == expected(index)));
        }
    });
}

#[test]
fn all_reduces_whose_result_goes_elsewhere() {
    for shares_processors in [false, true] {
        on_ranks(Some(2), 2, meetings(2, shares_processors), |view, mut others| {
            let rank = view.own;
            let meetings = Meetings::new(view, rank, 2, SMALL, CHUNK);
            let mut counts = Counts::default();
            for (call, length) in [1, 6, 1].into_iter().enumerate() {
                let own: Vec<u8> = (0..length).map(|index| value(rank, call, index)).collect();
                let mut result = vec![0; length];
                meetings.run(&mut counts, &mut others, 7, Data::To(&own, Some(&mut result)), Some(&sum())).unwrap();
                let expected = |index| value(0, call, index).wrapping_add(value(1, call, index));
                assert!(result.iter().enumerate().all(|(index, found)| *found == expected(index)), "{result:?}");
            }
        });
    }
}

#[test]
fn a_call_that_differs_is_found_by_all() {
    for shares_processors in [false, true] {
        on_ranks(Some(2), 2, meetings(2, shares_processors), |view, mut others| {
            let rank = view.own;
            let meetings = Meetings::new(view, rank, 2, SMALL, CHUNK);
            let mut data = [1_u8];
            let mark = rank as u64;
            let found = meetings.run(&mut Counts::default(), &mut others, mark, Data::Both(&mut data), Some(&sum()));
            assert_eq!(found, Err(1 - rank));
        });
    }
}

/// Leaders of a group whose company is one other group that gives nothing: what they exchange comes back one higher.
struct Lone {
    others: Others,
    under_way: Option<Vec<u8>>,
}

impl Company for Lone {
    type Error = usize;

    fn wait(&mut self, missing: impl Fn(usize) -> bool, ready: impl FnMut() -> bool) -> Result<(), usize> {
        self.others.wait(missing, ready)
    }

    fn wake(&mut self, ranks: impl IntoIterator<Item = usize>) -> Result<(), usize> {
        self.others.wake(ranks)
    }

    fn differs(&mut self, rank: usize) -> usize {
        rank
    }
}

impl Between<u8> for Lone {
    fn begin(&mut self, _: usize, value: Vec<u8>) -> Result<(), usize> {
        assert!(self.under_way.is_none(), "one exchange at a time");
        self.under_way = Some(value);
        Ok(())
    }

    fn finish(&mut self) -> Result<Vec<u8>, usize> {
        let value = self.under_way.take().expect("something to be under way");
        Ok(value.into_iter().map(|value| value.wrapping_add(1)).collect())
    }
}

const HOP_CHUNK: usize = 2;

fn hops(ranks: usize) -> impl Fn() -> Arc<Model> {
    let regions: [Range<usize>; 6] = std::array::from_fn(|index| index * HOP_CHUNK..(index + 1) * HOP_CHUNK);
    assert_eq!(Hops::<View>::bytes(HOP_CHUNK), regions[5].end);
    move || model(ranks, &[(0, 0..1), (1, 0..3), (2, 0..3), (3, 0..1)], &regions, true)
}

/// All-reduces of these lengths with so many leaders, in chunks of `HOP_CHUNK`.
fn hop_all_reduces(ranks: usize, leaders: usize, lengths: &'static [usize]) -> impl Fn(View, Others) + Clone {
    move |view: View, others: Others| {
        let rank = view.own;
        let hops = Hops::new(view, rank, ranks, HOP_CHUNK);
        let (mut counts, mut company) = (HopCounts::default(), Lone { others, under_way: None });
        let division = Division { leaders: (0..leaders).collect(), chunk: HOP_CHUNK };
        for (call, length) in lengths.iter().enumerate() {
            let mut data: Vec<u8> = (0..*length).map(|index| value(rank, call, index)).collect();
            hops.run(&mut counts, &mut company, 7, &division, Data::Both(&mut data), Some(&sum())).unwrap();
            let expected = |index| (0..ranks).fold(1_u8, |sum, rank| sum.wrapping_add(value(rank, call, index)));
            assert!(data.iter().enumerate().all(|(index, found)| *found == expected(index)), "call {call}: {data:?}");
        }
    }
}

#[test]
fn two_hops_of_two_ranks_in_small_calls() {
    on_ranks(Some(2), 2, hops(2), hop_all_reduces(2, 1, &[1, 1, 1, 1]));
}

#[test]
fn two_hops_of_two_ranks_in_more_chunks_than_there_is_room_for() {
    on_ranks(Some(1), 2, hops(2), hop_all_reduces(2, 1, &[9]));
    on_ranks(Some(1), 2, hops(2), hop_all_reduces(2, 2, &[9]));
}

#[test]
fn two_hops_of_three_ranks() {
    on_ranks(Some(1), 3, hops(3), hop_all_reduces(3, 1, &[1]));
    on_ranks(Some(1), 3, hops(3), hop_all_reduces(3, 2, &[2]));
}

#[test]
fn broadcasts_and_reduces_in_two_hops() {
    on_ranks(Some(1), 2, hops(2), |view, others| {
        let rank = view.own;
        let hops = Hops::new(view, rank, 2, HOP_CHUNK);
        let (mut counts, mut company) = (HopCounts::default(), Lone { others, under_way: None });
        for (call, length) in [1, 9].into_iter().enumerate() {
            // The root is the second rank, which then leads its group.
            let division = Division { leaders: vec![1], chunk: HOP_CHUNK };
            let own: Vec<u8> = (0..length).map(|index| value(rank, call, index)).collect();
            let mut data = own.clone();
            hops.run(&mut counts, &mut company, 7, &division, Data::From(1, &mut data), None).unwrap();
            let expected = |index| value(1, call, index) + u8::from(rank == 0);
            assert!(data.iter().enumerate().all(|(index, found)| *found == expected(index)), "{data:?}");
            let mut result = vec![0; length];
            let place = (rank == 1).then_some(&mut result[..]);
            hops.run(&mut counts, &mut company, 7, &division, Data::To(&own, place), Some(&sum())).unwrap();
            let expected = |index| value(0, call, index).wrapping_add(value(1, call, index)).wrapping_add(1);
            assert!(rank == 0 || result.iter().enumerate().all(|(index, found)| *found == expected(index)));
        }
    });
}
