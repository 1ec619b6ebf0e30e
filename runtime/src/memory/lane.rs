//! A lane carries entries from one producer to one consumer: a ring of cells, each one cache line, and a ring of bytes for
//! what does not fit into a cell.
//!
//! A small message moves one cache line and nothing else. The first word of a cell holds a stamp that says in which lap
//! the cell was written: it is stored last, with Release, so that whoever sees the stamp of its lap sees the cell and the
//! bytes that belong to it. There is no tail to look at. The consumer publishes its positions now and then, and the
//! producer reads them only when the lane looks full (as in FastForward: Giacomoni, Moseley and Vachharajani, PPoPP 2008),
//! and whenever it has filled a part of the ring of bytes: when the consumer has emptied all of it, the producer begins
//! again at the front, so that small messages stay in the cache and take little memory however many there are.
//!
//! The algorithm is generic over the memory, so that loom checks the very code that runs over the segment.

use super::{
    index,
    stores::{LONG, Stores},
};
use std::ops::Range;

/// Words of a cell: the stamp and flags, then what the caller put there.
pub(crate) const CELL_WORDS: usize = 8;
/// Bytes of a cell: one cache line.
pub(crate) const CELL: usize = CELL_WORDS * 8;
/// Bytes are handed out in multiples of this, so that what follows begins on a cache line.
const ALIGN: usize = 64;
/// The producer may begin anew at the front of the bytes whenever it has filled one of this many parts of them.
const PARTS: usize = 64;
/// How far ahead the consumer fetches cells: the next one, and one that is needed when this many have been taken.
const AHEAD: [u64; 2] = [1, 4];
/// From this length on, bytes never begin anew.
const PIECE: usize = 16 << 10;
/// In a cell's flags: its bytes, and all that follow, begin at the front of the ring. The caller's flags are below.
const REWOUND: u32 = 1 << 31;
/// In a cell's flags: its bytes were written into the producer's cache.
const INTO_CACHE: u32 = 1 << 30;
/// What the caller may set in a cell's flags.
pub(crate) const FLAGS: u32 = INTO_CACHE - 1;

/// What a cell carries besides its stamp.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) flags: u32,
    pub(crate) words: [u64; CELL_WORDS - 1],
}

/// The memory of one lane. Capacities are powers of two.
///
/// `stamp` is loaded with Acquire and stored with Release, as are the consumer's positions. All other accesses may be
/// plain: the algorithm gives them only places that belong to the caller.
pub(crate) trait LaneMemory {
    fn cell_capacity(&self) -> usize;
    fn byte_capacity(&self) -> usize;
    fn stamp(&self, cell: usize) -> u64;
    fn set_stamp(&self, cell: usize, stamp: u64);
    fn words(&self, cell: usize) -> [u64; CELL_WORDS - 1];
    /// The caller will soon look at this cell.
    fn fetch(&self, _cell: usize) {}
    fn set_words(&self, cell: usize, words: &[u64; CELL_WORDS - 1]);
    fn write(&self, at: usize, bytes: &[u8], stores: Stores);
    fn read(&self, at: usize, bytes: &mut [u8]);
    /// How many cells and bytes the consumer has released.
    fn released(&self) -> (u64, u64);
    fn set_released(&self, cells: u64, bytes: u64);
    /// How the consumer wants long payloads written. No more than a hint: may be relaxed.
    fn advice(&self) -> Stores;
    fn set_advice(&self, stores: Stores);
}

/// The stamp of a position with the caller's flags: never zero, which is what fresh memory holds.
fn stamp(position: u64, cells: usize, flags: u32) -> u64 {
    let lap = (position / cells as u64 + 1) & 0xffff_ffff;
    u64::from(flags) << 32 | lap
}

fn place(position: u64, capacity: usize) -> usize {
    index(position & (capacity as u64 - 1))
}

/// At most two ranges of memory that hold `length` bytes from `position` on.
fn ranges(position: u64, length: usize, capacity: usize) -> (Range<usize>, Range<usize>) {
    let start = place(position, capacity);
    let first = length.min(capacity - start);
    (start..start + first, 0..length - first)
}

fn padded(length: usize) -> u64 {
    length.next_multiple_of(ALIGN) as u64
}

/// The sending side.
#[derive(Debug)]
pub(crate) struct Producer<M> {
    memory: M,
    cells: u64,
    bytes: u64,
    /// What the consumer had released when we last looked.
    released: (u64, u64),
    /// Where the bytes last began anew at the front; everything before had been released.
    rewound: u64,
    stores: Stores,
}

impl<M: LaneMemory> Producer<M> {
    /// The producer of a fresh lane.
    pub(crate) fn new(memory: M) -> Self {
        Producer { memory, cells: 0, bytes: 0, released: (0, 0), rewound: 0, stores: Stores::default() }
    }

    /// How long payloads are written now.
    pub(crate) fn stores(&self) -> Stores {
        self.stores
    }

    /// Looks at what the consumer says.
    fn look(&mut self) {
        let (cells, bytes) = self.memory.released();
        self.released = (cells, bytes.max(self.rewound));
        self.stores = self.memory.advice();
    }

    /// Looks at the consumer when `length` more bytes fill a part of the ring; begins anew at the front when the ring is
    /// empty. Returns the flag that says so to the consumer.
    fn rewind(&mut self, length: usize) -> u32 {
        let capacity = self.memory.byte_capacity() as u64;
        let part = (capacity / PARTS as u64).max(ALIGN as u64);
        if self.bytes / part == (self.bytes + padded(length)) / part {
            return 0;
        }
        self.look();
        // Pieces of large messages go all the way round: they are to leave the producer's own cache.
        if length >= PIECE || self.released.1 != self.bytes || self.bytes.is_multiple_of(capacity) {
            return 0;
        }
        self.bytes = self.bytes.next_multiple_of(capacity);
        self.rewound = self.bytes;
        self.released.1 = self.bytes;
        REWOUND
    }

    /// Publishes a cell and the bytes that belong to it, or nothing when there is no room.
    pub(crate) fn push(&mut self, cell: &Cell, bytes: &[u8]) -> bool {
        let fits = |producer: &Self| {
            let (cells, released) = producer.released;
            producer.cells - cells < producer.memory.cell_capacity() as u64
                && producer.bytes - released + padded(bytes.len()) <= producer.memory.byte_capacity() as u64
        };
        if !fits(self) {
            self.look();
            if !fits(self) {
                return false;
            }
        }
        debug_assert_eq!(cell.flags & !FLAGS, 0);
        let mut flags = cell.flags;
        if !bytes.is_empty() {
            flags |= self.rewind(bytes.len());
            let stores = if bytes.len() >= LONG { self.stores } else { Stores::IntoCache };
            if stores == Stores::IntoCache {
                flags |= INTO_CACHE;
            }
            let (first, second) = ranges(self.bytes, bytes.len(), self.memory.byte_capacity());
            let (head, rest) = bytes.split_at(first.len());
            self.memory.write(first.start, head, stores);
            if !second.is_empty() {
                self.memory.write(0, rest, stores);
            }
            self.bytes += padded(bytes.len());
        }
        let at = place(self.cells, self.memory.cell_capacity());
        self.memory.set_words(at, &cell.words);
        self.memory.set_stamp(at, stamp(self.cells, self.memory.cell_capacity(), flags));
        self.cells += 1;
        true
    }
}

/// The receiving side.
#[derive(Debug)]
pub(crate) struct Consumer<M> {
    memory: M,
    cells: u64,
    bytes: u64,
    published: (u64, u64),
    /// What was published when [`Consumer::release`] last said that the producer may wait for it.
    told: (u64, u64),
    /// How the bytes of the cell that is next were written.
    stores: Stores,
}

impl<M: LaneMemory> Consumer<M> {
    /// The consumer of a fresh lane.
    pub(crate) fn new(memory: M) -> Self {
        Consumer { memory, cells: 0, bytes: 0, published: (0, 0), told: (0, 0), stores: Stores::default() }
    }

    /// The cell that is next, if it has come.
    #[inline]
    pub(crate) fn peek(&mut self) -> Option<Cell> {
        let at = place(self.cells, self.memory.cell_capacity());
        let found = self.memory.stamp(at);
        if found & 0xffff_ffff != stamp(self.cells, self.memory.cell_capacity(), 0) {
            return None;
        }
        let flags = (found >> 32) as u32;
        if flags & REWOUND != 0 {
            // Again when it is looked at again, which changes nothing.
            self.bytes = self.bytes.next_multiple_of(self.memory.byte_capacity() as u64);
        }
        self.stores = if flags & INTO_CACHE != 0 { Stores::IntoCache } else { Stores::PastCache };
        // The next ones come out of the producer's cache while this one is taken. Those that have not been written yet are
        // still here from the last lap: looking at them costs neither side anything.
        for ahead in AHEAD {
            self.memory.fetch(place(self.cells + ahead, self.memory.cell_capacity()));
        }
        Some(Cell { flags: flags & FLAGS, words: self.memory.words(at) })
    }

    /// How the bytes of the cell that [`Consumer::peek`] gave last were written.
    pub(crate) fn stores(&self) -> Stores {
        self.stores
    }

    /// Says how long payloads are to be written from now on.
    pub(crate) fn advise(&self, stores: Stores) {
        self.memory.set_advice(stores);
    }

    /// Copies bytes that belong to the next cell, from `skip` on.
    pub(crate) fn read(&self, skip: usize, bytes: &mut [u8]) {
        let (first, second) = ranges(self.bytes + skip as u64, bytes.len(), self.memory.byte_capacity());
        let (head, rest) = bytes.split_at_mut(first.len());
        self.memory.read(first.start, head);
        if !second.is_empty() {
            self.memory.read(0, rest);
        }
    }

    /// The next cell, with so many bytes, is done with. The producer learns of it at [`Consumer::publish`], or at once
    /// when it may be waiting for room; `true` then.
    ///
    /// A producer waits only when less than an eighth of the bytes, or no cell, is left: so there is still enough to be
    /// taken for this to say so once more, and a caller that wakes the producer then need not do it at other times.
    pub(crate) fn release(&mut self, bytes: usize) -> bool {
        self.cells += 1;
        self.bytes += padded(bytes);
        let much = self.bytes - self.told.1 >= (self.memory.byte_capacity() / 8) as u64
            || self.cells - self.told.0 >= (self.memory.cell_capacity() / 4) as u64;
        if much {
            self.told = (self.cells, self.bytes);
            self.publish();
        }
        much
    }

    /// Tells the producer what has been released.
    #[inline]
    pub(crate) fn publish(&mut self) {
        if self.published != (self.cells, self.bytes) {
            self.published = (self.cells, self.bytes);
            self.memory.set_released(self.cells, self.bytes);
        }
    }

    /// The most bytes that a cell can have.
    pub(crate) fn capacity(&self) -> usize {
        self.memory.byte_capacity()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// Memory of this thread, for tests of the algorithm alone.
    #[derive(Debug)]
    struct Plain {
        cells: RefCell<Vec<[u64; CELL_WORDS]>>,
        bytes: RefCell<Vec<u8>>,
        released: RefCell<(u64, u64)>,
        advice: RefCell<Stores>,
    }

    fn plain(cells: usize, bytes: usize) -> Plain {
        Plain {
            cells: vec![[0; CELL_WORDS]; cells].into(),
            bytes: vec![0; bytes].into(),
            released: (0, 0).into(),
            advice: Stores::default().into(),
        }
    }

    impl LaneMemory for &Plain {
        fn cell_capacity(&self) -> usize {
            self.cells.borrow().len()
        }
        fn byte_capacity(&self) -> usize {
            self.bytes.borrow().len()
        }
        fn stamp(&self, cell: usize) -> u64 {
            self.cells.borrow()[cell][0]
        }
        fn set_stamp(&self, cell: usize, stamp: u64) {
            self.cells.borrow_mut()[cell][0] = stamp;
        }
        fn words(&self, cell: usize) -> [u64; CELL_WORDS - 1] {
            self.cells.borrow()[cell][1..].try_into().unwrap()
        }
        fn set_words(&self, cell: usize, words: &[u64; CELL_WORDS - 1]) {
            self.cells.borrow_mut()[cell][1..].copy_from_slice(words);
        }
        fn write(&self, at: usize, bytes: &[u8], _: Stores) {
            self.bytes.borrow_mut()[at..at + bytes.len()].copy_from_slice(bytes);
        }
        fn read(&self, at: usize, bytes: &mut [u8]) {
            bytes.copy_from_slice(&self.bytes.borrow()[at..at + bytes.len()]);
        }
        fn released(&self) -> (u64, u64) {
            *self.released.borrow()
        }
        fn set_released(&self, cells: u64, bytes: u64) {
            *self.released.borrow_mut() = (cells, bytes);
        }
        fn advice(&self) -> Stores {
            *self.advice.borrow()
        }
        fn set_advice(&self, stores: Stores) {
            *self.advice.borrow_mut() = stores;
        }
    }

    fn cell(number: u64) -> Cell {
        Cell { flags: u32::try_from(number).unwrap(), words: [number, u64::MAX, 0, 1, 2, 3, number] }
    }

    fn pattern(number: u64) -> Vec<u8> {
        (0..number * 37 % 257).map(|i| u8::try_from((i + number) % 251).unwrap()).collect()
    }

    #[test]
    fn entries_come_out_as_they_went_in_over_many_laps() {
        let memory = plain(8, 512);
        let (mut producer, mut consumer) = (Producer::new(&memory), Consumer::new(&memory));
        let (mut pushed, mut taken) = (0, 0);
        for round in 0..10_000_u64 {
            // Fill and drain by different amounts, so that both rings wrap at every offset.
            for _ in 0..round % 5 {
                if producer.push(&cell(pushed), &pattern(pushed)) {
                    pushed += 1;
                }
            }
            for _ in 0..(round * 7) % 6 {
                let Some(found) = consumer.peek() else { break };
                assert_eq!(found, cell(taken));
                let mut bytes = vec![0; pattern(taken).len()];
                let (a, b) = bytes.split_at_mut(index(taken) % 3 % (pattern(taken).len() + 1));
                consumer.read(0, a);
                consumer.read(a.len(), b);
                assert_eq!(bytes, pattern(taken));
                consumer.release(bytes.len());
                taken += 1;
            }
            consumer.publish();
        }
        assert!(taken > 5000 && pushed - taken <= 8);
    }

    #[test]
    fn a_full_lane_takes_nothing_and_loses_nothing() {
        let memory = plain(4, 256);
        let (mut producer, mut consumer) = (Producer::new(&memory), Consumer::new(&memory));
        assert!(producer.push(&cell(0), &[1; 100]));
        assert!(!producer.push(&cell(9), &[2; 129]), "more bytes than are left");
        assert!(producer.push(&cell(1), &[3; 128]));
        assert!(!producer.push(&cell(9), &[4; 1]), "no byte is left");
        assert!(producer.push(&cell(2), &[]) && producer.push(&cell(3), &[]));
        assert!(!producer.push(&cell(9), &[]), "no cell is left");
        for number in 0..4 {
            assert_eq!(consumer.peek(), Some(cell(number)));
            consumer.release([100, 128, 0, 0][index(number)]);
        }
        assert_eq!(consumer.peek(), None);
        consumer.publish();
        assert!(producer.push(&cell(4), &[5; 256]));
        assert_eq!(consumer.peek(), Some(cell(4)));
    }

    #[test]
    fn small_messages_that_are_taken_at_once_stay_at_the_front_of_the_ring() {
        let memory = plain(8, 64 * 1024);
        let (mut producer, mut consumer) = (Producer::new(&memory), Consumer::new(&memory));
        for number in 0..10_000 {
            assert!(producer.push(&cell(number), &pattern(number)));
            assert_eq!(consumer.peek(), Some(cell(number)));
            let mut bytes = vec![0; pattern(number).len()];
            consumer.read(0, &mut bytes);
            assert_eq!(bytes, pattern(number));
            consumer.release(bytes.len());
            consumer.publish();
        }
        let used = memory.bytes.borrow().iter().rposition(|byte| *byte != 0).unwrap();
        assert!(used < 2 * 64 * 1024 / PARTS, "{used}");
    }

    #[test]
    fn long_payloads_are_written_as_the_consumer_advises() {
        let memory = plain(8, 16 * LONG);
        let (mut producer, mut consumer) = (Producer::new(&memory), Consumer::new(&memory));
        for stores in [Stores::PastCache, Stores::IntoCache, Stores::PastCache] {
            consumer.advise(stores);
            for (length, expected) in [(LONG, stores), (LONG - 1, Stores::IntoCache)] {
                assert!(producer.push(&cell(1), &vec![1; length]));
                assert_eq!(consumer.peek(), Some(cell(1)));
                assert_eq!(consumer.stores(), expected);
                consumer.release(length);
                consumer.publish();
            }
        }
    }

    #[test]
    fn what_a_former_lap_left_is_not_taken_for_an_entry() {
        let memory = plain(2, 64);
        let (mut producer, mut consumer) = (Producer::new(&memory), Consumer::new(&memory));
        for number in 0..100 {
            assert_eq!(consumer.peek(), None);
            assert!(producer.push(&cell(number), b"x"));
            assert_eq!(consumer.peek(), Some(cell(number)));
            consumer.release(1);
            consumer.publish();
        }
    }
}

/// `RUSTFLAGS="--cfg loom" cargo test -p spmd --lib loom`
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

    /// Every word and byte is a cell of its own: loom reports any access that the stamps and positions do not order.
    struct Model {
        stamps: Vec<AtomicU64>,
        words: Vec<UnsafeCell<[u64; CELL_WORDS - 1]>>,
        bytes: Vec<UnsafeCell<u8>>,
        released: [AtomicU64; 2],
    }

    #[expect(unsafe_code, reason = "loom's cells are read and written through pointers")]
    impl LaneMemory for Arc<Model> {
        fn cell_capacity(&self) -> usize {
            self.stamps.len()
        }
        fn byte_capacity(&self) -> usize {
            self.bytes.len()
        }
        fn stamp(&self, cell: usize) -> u64 {
            self.stamps[cell].load(Acquire)
        }
        fn set_stamp(&self, cell: usize, stamp: u64) {
            self.stamps[cell].store(stamp, Release);
        }
        fn words(&self, cell: usize) -> [u64; CELL_WORDS - 1] {
            // SAFETY: loom checks that nobody writes the words meanwhile.
            self.words[cell].with(|words| unsafe { *words })
        }
        fn set_words(&self, cell: usize, words: &[u64; CELL_WORDS - 1]) {
            // SAFETY: loom checks that nobody else accesses the words meanwhile.
            self.words[cell].with_mut(|place| unsafe { *place = *words });
        }
        fn write(&self, at: usize, bytes: &[u8], _: Stores) {
            for (i, byte) in bytes.iter().enumerate() {
                // SAFETY: loom checks that nobody else accesses the byte meanwhile.
                self.bytes[at + i].with_mut(|place| unsafe { *place = *byte });
            }
        }
        fn read(&self, at: usize, bytes: &mut [u8]) {
            for (i, byte) in bytes.iter_mut().enumerate() {
                // SAFETY: loom checks that nobody writes the byte meanwhile.
                *byte = self.bytes[at + i].with(|place| unsafe { *place });
            }
        }
        fn released(&self) -> (u64, u64) {
            (self.released[0].load(Acquire), self.released[1].load(Acquire))
        }
        fn set_released(&self, cells: u64, bytes: u64) {
            self.released[0].store(cells, Release);
            self.released[1].store(bytes, Release);
        }
        fn advice(&self) -> Stores {
            Stores::PastCache
        }
        fn set_advice(&self, _: Stores) {}
    }

    fn model(cells: usize, bytes: usize) -> Arc<Model> {
        Arc::new(Model {
            stamps: (0..cells).map(|_| AtomicU64::new(0)).collect(),
            words: (0..cells).map(|_| UnsafeCell::new([0; CELL_WORDS - 1])).collect(),
            bytes: (0..bytes).map(|_| UnsafeCell::new(0)).collect(),
            released: [AtomicU64::new(0), AtomicU64::new(0)],
        })
    }

    /// Three entries through a lane of two cells, with bytes: laps, a full lane and every order of the two sides.
    #[test]
    fn nothing_is_read_before_it_is_published_or_overwritten_before_it_is_released() {
        loom::model(|| {
            let memory = model(2, 128);
            let mut producer = Producer::new(memory.clone());
            let thread = loom::thread::spawn(move || {
                let mut sent = 0;
                for number in 1..=3_u8 {
                    let cell = Cell { flags: 1, words: [u64::from(number); CELL_WORDS - 1] };
                    // Bounded: loom explores every interleaving of these attempts.
                    if !producer.push(&cell, &[number]) {
                        break;
                    }
                    sent = number;
                }
                sent
            });
            let mut consumer = Consumer::new(memory);
            let mut received = 0;
            let mut take = |received: &mut u8| {
                let Some(cell) = consumer.peek() else { return false };
                let mut byte = [0];
                consumer.read(0, &mut byte);
                consumer.release(1);
                consumer.publish();
                *received += 1;
                assert_eq!((cell.words, byte), ([u64::from(*received); CELL_WORDS - 1], [*received]));
                true
            };
            for _ in 0..2 {
                take(&mut received);
            }
            let sent = thread.join().unwrap();
            while take(&mut received) {}
            assert_eq!(received, sent);
        });
    }
}
