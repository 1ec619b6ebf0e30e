//! A ring of bytes with one producer and one consumer (L. Lamport, "Specifying concurrent program modules", 1983).
//!
//! Positions only grow; the byte at position `p` lies at `p % capacity`. The producer owns the tail, the consumer the
//! head; each publishes its own with Release and reads the other's with Acquire. The algorithm is generic over the
//! memory, so that loom checks the very code that runs over the segment.

use super::index;
use std::ops::Range;

/// The memory of one ring: `capacity` bytes (a power of two), and the two positions.
///
/// `head` and `tail` are loaded with Acquire by the other side and stored with Release by their owner. `write` and
/// `read` get ranges within `0..capacity` that the algorithm has made sure belong to the caller.
pub(crate) trait RingMemory {
    fn capacity(&self) -> usize;
    fn head(&self) -> u64;
    fn set_head(&self, position: u64);
    fn tail(&self) -> u64;
    fn set_tail(&self, position: u64);
    fn write(&self, at: usize, bytes: &[u8]);
    fn read(&self, at: usize, bytes: &mut [u8]);
}

/// The offset of a position.
fn offset(position: u64, capacity: usize) -> usize {
    index(position & (capacity as u64 - 1))
}

/// At most two ranges of memory that hold `length` bytes from `position` on.
fn ranges(position: u64, length: usize, capacity: usize) -> (Range<usize>, Range<usize>) {
    let start = offset(position, capacity);
    let first = length.min(capacity - start);
    (start..start + first, 0..length - first)
}

/// The sending side. Remembers both positions and looks at the consumer's only when there seems to be no room.
#[derive(Debug)]
pub(crate) struct Producer<M> {
    memory: M,
    tail: u64,
    head_seen: u64,
}

impl<M: RingMemory> Producer<M> {
    pub(crate) fn new(memory: M) -> Self {
        let (tail, head_seen) = (memory.tail(), memory.head());
        Producer { memory, tail, head_seen }
    }

    /// Writes all parts one behind the other and publishes them at once, or writes nothing when there is no room.
    pub(crate) fn push(&mut self, parts: &[&[u8]]) -> bool {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let capacity = self.memory.capacity();
        let room = |head: u64| capacity - index(self.tail - head);
        if room(self.head_seen) < length {
            self.head_seen = self.memory.head();
            if room(self.head_seen) < length {
                return false;
            }
        }
        let mut position = self.tail;
        for part in parts {
            let (first, second) = ranges(position, part.len(), capacity);
            let (head, rest) = part.split_at(first.len());
            self.memory.write(first.start, head);
            if !second.is_empty() {
                self.memory.write(0, rest);
            }
            position += part.len() as u64;
        }
        self.tail = position;
        self.memory.set_tail(position);
        true
    }
}

/// The receiving side.
#[derive(Debug)]
pub(crate) struct Consumer<M> {
    memory: M,
    head: u64,
    tail_seen: u64,
}

impl<M: RingMemory> Consumer<M> {
    pub(crate) fn new(memory: M) -> Self {
        let (head, tail_seen) = (memory.head(), memory.tail());
        Consumer { memory, head, tail_seen }
    }

    /// How many bytes can be read. Looks at the producer's position only when all that was seen is used up.
    pub(crate) fn available(&mut self) -> usize {
        if self.tail_seen == self.head {
            self.tail_seen = self.memory.tail();
        }
        index(self.tail_seen - self.head)
    }

    /// Copies bytes that are available, from `skip` bytes behind the head on.
    pub(crate) fn peek(&self, skip: usize, bytes: &mut [u8]) {
        debug_assert!(skip + bytes.len() <= index(self.tail_seen - self.head));
        let (first, second) = ranges(self.head + skip as u64, bytes.len(), self.memory.capacity());
        let (head, rest) = bytes.split_at_mut(first.len());
        self.memory.read(first.start, head);
        if !second.is_empty() {
            self.memory.read(0, rest);
        }
    }

    /// Gives `length` bytes back to the producer.
    pub(crate) fn release(&mut self, length: usize) {
        debug_assert!(length <= index(self.tail_seen - self.head));
        self.head += length as u64;
        self.memory.set_head(self.head);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::*};

    /// Memory of this process, for tests of the algorithm alone.
    #[derive(Debug)]
    struct Plain {
        head: AtomicU64,
        tail: AtomicU64,
        bytes: Vec<AtomicU8>,
    }

    impl Plain {
        fn new(capacity: usize, start: u64) -> Self {
            Plain { head: start.into(), tail: start.into(), bytes: (0..capacity).map(|_| AtomicU8::new(0)).collect() }
        }
    }

    impl RingMemory for &Plain {
        fn capacity(&self) -> usize {
            self.bytes.len()
        }
        fn head(&self) -> u64 {
            self.head.load(Acquire)
        }
        fn set_head(&self, position: u64) {
            self.head.store(position, Release);
        }
        fn tail(&self) -> u64 {
            self.tail.load(Acquire)
        }
        fn set_tail(&self, position: u64) {
            self.tail.store(position, Release);
        }
        fn write(&self, at: usize, bytes: &[u8]) {
            for (i, byte) in bytes.iter().enumerate() {
                self.bytes[at + i].store(*byte, Relaxed);
            }
        }
        fn read(&self, at: usize, bytes: &mut [u8]) {
            for (i, byte) in bytes.iter_mut().enumerate() {
                *byte = self.bytes[at + i].load(Relaxed);
            }
        }
    }

    #[test]
    fn bytes_come_out_as_they_went_in_over_many_laps_and_every_piece_size() {
        // Starts shortly before the counters wrap in 32 bits, where a narrow cast would show.
        let memory = Plain::new(64, u64::from(u32::MAX) - 31);
        let (mut producer, mut consumer) = (Producer::new(&memory), Consumer::new(&memory));
        let (mut next, mut expected) = (0_u8, 0_u8);
        for round in 0..1000_u32 {
            let length = (round % 65) as u8;
            let piece: Vec<u8> = (0..length).map(|i| next.wrapping_add(i)).collect();
            let (a, b) = piece.split_at(piece.len() / 3);
            assert!(producer.push(&[a, b]));
            next = next.wrapping_add(length);
            let length = usize::from(length);
            assert_eq!(consumer.available(), length);
            let mut got = vec![0; length];
            consumer.peek(0, &mut got);
            for byte in got {
                assert_eq!(byte, expected);
                expected = expected.wrapping_add(1);
            }
            consumer.release(length);
        }
    }

    #[test]
    fn a_push_that_does_not_fit_leaves_the_ring_as_it_was() {
        let memory = Plain::new(16, 0);
        let (mut producer, mut consumer) = (Producer::new(&memory), Consumer::new(&memory));
        assert!(producer.push(&[&[1; 10]]));
        assert!(!producer.push(&[&[2; 7]]));
        assert!(producer.push(&[&[3; 6]]));
        assert!(!producer.push(&[&[4; 1]]));
        let mut got = [0; 10];
        assert_eq!(consumer.available(), 16);
        consumer.peek(0, &mut got);
        assert_eq!(got, [1; 10]);
        consumer.release(10);
        assert!(producer.push(&[&[5; 10]]));
        let mut got = [0; 6];
        consumer.peek(0, &mut got);
        assert_eq!(got, [3; 6]);
    }
}

/// `RUSTFLAGS="--cfg loom" cargo test -p spmd --lib ring`
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

    /// Every byte is a cell of its own: loom reports any access that the positions do not order.
    struct Model {
        head: AtomicU64,
        tail: AtomicU64,
        bytes: Vec<UnsafeCell<u8>>,
    }

    impl RingMemory for Arc<Model> {
        fn capacity(&self) -> usize {
            self.bytes.len()
        }
        fn head(&self) -> u64 {
            self.head.load(Acquire)
        }
        fn set_head(&self, position: u64) {
            self.head.store(position, Release);
        }
        fn tail(&self) -> u64 {
            self.tail.load(Acquire)
        }
        fn set_tail(&self, position: u64) {
            self.tail.store(position, Release);
        }
        #[expect(unsafe_code, reason = "loom's cells are read and written through pointers")]
        fn write(&self, at: usize, bytes: &[u8]) {
            for (i, byte) in bytes.iter().enumerate() {
                // SAFETY: loom checks that nobody else accesses the cell meanwhile.
                self.bytes[at + i].with_mut(|cell| unsafe { *cell = *byte });
            }
        }
        #[expect(unsafe_code, reason = "loom's cells are read and written through pointers")]
        fn read(&self, at: usize, bytes: &mut [u8]) {
            for (i, byte) in bytes.iter_mut().enumerate() {
                // SAFETY: loom checks that nobody writes the cell meanwhile.
                *byte = self.bytes[at + i].with(|cell| unsafe { *cell });
            }
        }
    }

    #[test]
    fn no_byte_is_read_before_it_is_published_or_overwritten_before_it_is_released() {
        loom::model(|| {
            let memory = Arc::new(Model {
                head: AtomicU64::new(0),
                tail: AtomicU64::new(0),
                bytes: (0..2).map(|_| UnsafeCell::new(0)).collect(),
            });
            let mut producer = Producer::new(memory.clone());
            let thread = loom::thread::spawn(move || {
                let mut sent = 0;
                for byte in 1..=3_u8 {
                    // Bounded: loom explores every interleaving of these attempts.
                    if producer.push(&[&[byte]]) {
                        sent = byte;
                    } else {
                        break;
                    }
                }
                sent
            });
            let mut consumer = Consumer::new(memory);
            let mut received = 0;
            for _ in 0..3 {
                if consumer.available() > 0 {
                    let mut byte = [0];
                    consumer.peek(0, &mut byte);
                    consumer.release(1);
                    received += 1;
                    assert_eq!(byte[0], received);
                }
            }
            let sent = thread.join().unwrap();
            while consumer.available() > 0 {
                let mut byte = [0];
                consumer.peek(0, &mut byte);
                consumer.release(1);
                received += 1;
                assert_eq!(byte[0], received);
            }
            assert_eq!(received, sent);
        });
    }
}
