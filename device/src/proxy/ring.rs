//! The ring's algorithm: many producers, one consumer, bounded.
//!
//! A producer takes a position from a counter, waits until that place is free, and writes the words of its descriptor, each
//! with the parity of the lap. A word proves by itself that it is of this lap, so words may arrive in any order, no store
//! has to be the last, and nothing is ever cleared. The consumer takes positions in order and says how far it is; a
//! producer looks at that only when the ring looks full, and leaves for the others what it has found.
//!
//! Generic over the memory, so that loom checks the very code that runs. In a kernel the producer's half is
//! `spmd_proxy.cuh`, step by step the same, except that there one of those who find the ring full looks for all. Knows words,
//! and nothing of what they mean.

/// In every word of a descriptor: the parity of the lap in which it was written. One bit is enough, because a place is
/// written again only after the consumer has taken what was there; so no word ever has to be cleared.
pub(crate) const LAP: u64 = 1 << 63;

/// The memory of one ring.
pub(crate) trait RingMemory {
    /// Words of a descriptor.
    const WORDS: usize;
    /// Places: a power of two.
    fn capacity(&self) -> u64;
    /// Loads with Acquire.
    fn word(&self, place: usize, word: usize) -> u64;
    /// Stores with Release.
    fn set_word(&self, place: usize, word: usize, value: u64);
    /// Takes the next position.
    fn reserve(&self) -> u64;
    /// What producers know of the consumer: Acquire and Release.
    fn seen(&self) -> u64;
    fn set_seen(&self, taken: u64);
    /// How far the consumer is: Acquire and Release.
    fn taken(&self) -> u64;
    fn set_taken(&self, taken: u64);
}

#[expect(clippy::cast_possible_truncation, reason = "below the capacity, which is that of memory")]
fn place(position: u64, capacity: u64) -> usize {
    (position & (capacity - 1)) as usize
}

/// The bit that every word of this position has: set in the first lap, because fresh memory is zero.
fn lap(position: u64, capacity: u64) -> u64 {
    if position & capacity == 0 { LAP } else { 0 }
}

/// Puts a descriptor into the ring; its position. `wait` is called again and again while there is no room.
///
/// # Errors
/// That of `wait`. The position it had taken stays empty, so that the ring is finished: nothing after it is ever taken.
pub(crate) fn push<M: RingMemory, E>(
    memory: &M,
    words: &[u64],
    mut wait: impl FnMut() -> Result<(), E>,
) -> Result<u64, E> {
    debug_assert_eq!(words.len(), M::WORDS);
    let capacity = memory.capacity();
    let position = memory.reserve();
    if position.wrapping_sub(memory.seen()) >= capacity {
        loop {
            let taken = memory.taken();
            if position.wrapping_sub(taken) < capacity {
                memory.set_seen(taken);
                break;
            }
            wait()?;
        }
    }
    let (place, lap) = (place(position, capacity), lap(position, capacity));
    for (at, word) in words.iter().enumerate() {
        memory.set_word(place, at, word & !LAP | lap);
    }
    Ok(position)
}

/// The host's side.
#[derive(Debug)]
pub(crate) struct Consumer<M> {
    memory: M,
    next: u64,
}

impl<M: RingMemory> Consumer<M> {
    /// The consumer of a ring that has taken `next` descriptors before: none of a fresh one.
    pub(crate) fn new(memory: M, next: u64) -> Self {
        Consumer { memory, next }
    }

    /// Positions that have been taken.
    #[cfg_attr(loom, expect(dead_code, reason = "its users are left out"))]
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Copies the next descriptor, without the parity, if all of it has come.
    pub(crate) fn take(&mut self, words: &mut [u64]) -> bool {
        debug_assert_eq!(words.len(), M::WORDS);
        let capacity = self.memory.capacity();
        let (place, lap) = (place(self.next, capacity), lap(self.next, capacity));
        for (at, word) in words.iter_mut().enumerate() {
            let found = self.memory.word(place, at);
            if found & LAP != lap {
                return false;
            }
            *word = found & !LAP;
        }
        self.next = self.next.wrapping_add(1);
        true
    }

    /// Tells producers that the places of everything taken are free, and sources may be changed.
    pub(crate) fn publish(&self) {
        self.memory.set_taken(self.next);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::{cell::Cell, cell::RefCell, convert::Infallible};

    /// Memory of one thread, for the algorithm alone; its counters begin anywhere.
    struct Plain {
        words: RefCell<Vec<[u64; 2]>>,
        head: Cell<u64>,
        seen: Cell<u64>,
        taken: Cell<u64>,
        looks: Cell<u64>,
    }

    impl Plain {
        fn new(capacity: usize, start: u64) -> Self {
            // What a former lap would have left there: the other parity at every place that comes next.
            let old = |place: usize| {
                let next = start + (place as u64).wrapping_sub(start) % capacity as u64;
                [(lap(next, capacity as u64) ^ LAP) | 99; 2]
            };
            Plain {
                words: RefCell::new((0..capacity).map(old).collect()),
                head: start.into(),
                seen: start.into(),
                taken: start.into(),
                looks: 0.into(),
            }
        }
    }

    impl RingMemory for &Plain {
        const WORDS: usize = 2;
        fn capacity(&self) -> u64 {
            self.words.borrow().len() as u64
        }
        fn word(&self, place: usize, word: usize) -> u64 {
            self.words.borrow()[place][word]
        }
        fn set_word(&self, place: usize, word: usize, value: u64) {
            self.words.borrow_mut()[place][word] = value;
        }
        fn reserve(&self) -> u64 {
            self.head.replace(self.head.get().wrapping_add(1))
        }
        fn seen(&self) -> u64 {
            self.seen.get()
        }
        fn set_seen(&self, taken: u64) {
            self.seen.set(taken);
        }
        fn taken(&self) -> u64 {
            self.looks.set(self.looks.get() + 1);
            self.taken.get()
        }
        fn set_taken(&self, taken: u64) {
            self.taken.set(taken);
        }
    }

    #[test]
    fn descriptors_come_out_in_order_over_many_laps_and_beyond_2_to_the_32() {
        for (capacity, start) in [(1, 0), (2, 0), (8, 5), (4, (1 << 32) - 9), (8, (1 << 33) - 4), (4, u64::MAX - 30)] {
            let memory = Plain::new(capacity, start);
            let mut consumer = Consumer::new(&memory, start);
            let (mut pushed, mut taken) = (0_u64, 0_u64);
            for round in 0..1000_u64 {
                while pushed - taken < (round * 7) % (capacity as u64 + 1) {
                    let position = push(&&memory, &[pushed, !pushed], || Err::<(), _>("full")).unwrap();
                    assert_eq!(position, start.wrapping_add(pushed));
                    pushed += 1;
                }
                for _ in 0..(round * 5) % (capacity as u64 + 2) {
                    let mut words = [0; 2];
                    let is_there = consumer.take(&mut words);
                    assert_eq!(is_there, taken < pushed, "capacity {capacity}, start {start}, position {taken}");
                    if is_there {
                        assert_eq!(words, [taken, !taken & !LAP]);
                        taken += 1;
                    }
                }
                consumer.publish();
            }
            assert!(taken > 100, "{capacity}: {taken}");
        }
    }

    #[test]
    fn a_descriptor_of_which_a_word_is_missing_is_not_taken() {
        let memory = Plain::new(4, 0);
        let mut consumer = Consumer::new(&memory, 0);
        for missing in 0..2 {
            let position = consumer.next();
            push(&&memory, &[1, 2], || Ok::<_, Infallible>(())).unwrap();
            let place = place(position, 4);
            let word = memory.words.borrow()[place][missing];
            memory.words.borrow_mut()[place][missing] = word ^ LAP;
            assert!(!consumer.take(&mut [0; 2]));
            memory.words.borrow_mut()[place][missing] = word;
            assert!(consumer.take(&mut [0; 2]));
            consumer.publish();
        }
    }

    #[test]
    fn a_full_ring_makes_its_producer_wait_and_a_producer_that_gives_up_finishes_it() {
        let memory = Plain::new(2, 0);
        let mut consumer = Consumer::new(&memory, 0);
        for number in 0..2 {
            push(&&memory, &[number, 0], || Err::<(), _>("full")).unwrap();
        }
        assert_eq!(memory.looks.get(), 0, "nobody looks at the consumer before the ring looks full");
        let mut words = [0; 2];
        let mut waits = 0;
        // Room comes only after the third look.
        push(&&memory, &[2, 0], || {
            waits += 1;
            if waits == 3 {
                assert!(consumer.take(&mut words));
                consumer.publish();
            }
            Ok::<_, Infallible>(())
        })
        .unwrap();
        assert_eq!((waits, words[0]), (3, 0));
        assert_eq!(push(&&memory, &[3, 0], || Err("patience is over")), Err("patience is over"));
        assert!(consumer.take(&mut words) && consumer.take(&mut words));
        consumer.publish();
        push(&&memory, &[4, 0], || Err::<(), _>("full")).unwrap();
        assert!(!consumer.take(&mut words), "nothing after the hole is taken");
    }
}

/// `RUSTFLAGS="--cfg loom" cargo test -p spmd-device --lib loom`
#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::{
        cell::UnsafeCell,
        sync::{
            Arc,
            atomic::{AtomicU64, Ordering::*},
        },
    };

    struct Model {
        words: Vec<[AtomicU64; 2]>,
        head: AtomicU64,
        seen: AtomicU64,
        taken: AtomicU64,
        /// What descriptors speak of: a source for every producer. Loom reports any access that the ring does not order.
        sources: [UnsafeCell<u64>; 2],
    }

    impl RingMemory for Arc<Model> {
        const WORDS: usize = 2;
        fn capacity(&self) -> u64 {
            self.words.len() as u64
        }
        fn word(&self, place: usize, word: usize) -> u64 {
            self.words[place][word].load(Acquire)
        }
        fn set_word(&self, place: usize, word: usize, value: u64) {
            self.words[place][word].store(value, Release);
        }
        fn reserve(&self) -> u64 {
            self.head.fetch_add(1, Relaxed)
        }
        fn seen(&self) -> u64 {
            self.seen.load(Acquire)
        }
        fn set_seen(&self, taken: u64) {
            self.seen.store(taken, Release);
        }
        fn taken(&self) -> u64 {
            self.taken.load(Acquire)
        }
        fn set_taken(&self, taken: u64) {
            self.taken.store(taken, Release);
        }
    }

    fn model(capacity: usize) -> Arc<Model> {
        Arc::new(Model {
            words: (0..capacity).map(|_| [AtomicU64::new(0), AtomicU64::new(0)]).collect(),
            head: AtomicU64::new(0),
            seen: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            sources: [UnsafeCell::new(0), UnsafeCell::new(0)],
        })
    }

    /// Writes its source and pushes a descriptor that names it; the source is written again once that has been taken.
    #[expect(unsafe_code, reason = "loom's cells are read and written through pointers")]
    fn produce(memory: &Arc<Model>, own: usize, pushes: u64) {
        for number in 1..=pushes {
            let value = own as u64 * 100 + number;
            // SAFETY: loom checks that nobody else accesses the source meanwhile.
            memory.sources[own].with_mut(|source| unsafe { *source = value });
            let position = push(memory, &[own as u64, value], || {
                loom::thread::yield_now();
                Ok::<_, std::convert::Infallible>(())
            })
            .unwrap();
            while number < pushes && memory.taken.load(Acquire) <= position {
                loom::thread::yield_now();
            }
        }
    }

    /// Takes everything that producers push, and checks each source.
    #[expect(unsafe_code, reason = "loom's cells are read and written through pointers")]
    fn consume(memory: &Arc<Model>, total: u64) {
        let mut consumer = Consumer::new(memory.clone(), 0);
        let mut last = [0; 2];
        for _ in 0..total {
            let mut words = [0; 2];
            while !consumer.take(&mut words) {
                loom::thread::yield_now();
            }
            let own = usize::try_from(words[0]).unwrap();
            // SAFETY: loom checks that nobody writes the source meanwhile.
            let value = memory.sources[own].with(|source| unsafe { *source });
            assert_eq!(value, words[1], "the source as it was when its descriptor was pushed");
            assert_eq!(value - own as u64 * 100, last[own] + 1, "each producer's descriptors in its order");
            last[own] += 1;
            consumer.publish();
        }
    }

    fn check(capacity: usize, pushes: &'static [u64]) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(move || {
            let memory = model(capacity);
            let threads: Vec<_> = (0..pushes.len())
                .map(|own| {
                    let memory = memory.clone();
                    loom::thread::spawn(move || produce(&memory, own, pushes[own]))
                })
                .collect();
            consume(&memory, pushes.iter().sum());
            for thread in threads {
                thread.join().unwrap();
            }
        });
    }

    #[test]
    fn a_source_is_read_before_its_producer_writes_it_again_lap_after_lap() {
        check(1, &[3]);
        check(2, &[4]);
    }

    /// Two producers and room for both.
    #[test]
    fn descriptors_of_two_producers_are_whole() {
        check(2, &[1, 1]);
    }

    /// Two producers and room for one: the second waits for the first one's place, and gives up after some looks.
    #[test]
    fn a_place_is_not_written_before_it_was_taken() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(|| {
            let memory = model(1);
            let threads = [7, 8].map(|value| {
                let memory = memory.clone();
                loom::thread::spawn(move || {
                    let mut looks = 0;
                    let wait = || {
                        looks += 1;
                        loom::thread::yield_now();
                        if looks < 2 { Ok(()) } else { Err(()) }
                    };
                    push(&memory, &[value, value], wait).is_ok()
                })
            });
            let mut consumer = Consumer::new(memory, 0);
            let mut taken = 0;
            let mut look = |taken: &mut usize| {
                let mut words = [0; 2];
                let is_there = consumer.take(&mut words);
                if is_there {
                    assert!(words[0] == words[1] && (7..=8).contains(&words[0]), "{words:?}");
                    *taken += 1;
                    consumer.publish();
                }
                is_there
            };
            for _ in 0..3 {
                look(&mut taken);
                loom::thread::yield_now();
            }
            let pushed = threads.map(|thread| thread.join().unwrap()).into_iter().filter(|pushed| *pushed).count();
            while look(&mut taken) {}
            assert_eq!(taken, pushed);
        });
    }
}
