//! A software NIC: an independent reader of what a kernel (or a host thread) writes for an mlx5 NIC. It looks at doorbells,
//! fetches entries, checks every field, carries RDMA writes and atomic additions out in registered memory, and writes
//! completions.
//!
//! Stands in for hardware in tests: it knows the published formats and rules, and nothing of our writer. Stricter than
//! hardware: what hardware would do silently wrong is a fault with a name here.

mod fault;
mod format;
mod memory;

pub use fault::{Fault, Syndrome};
pub use format::{BLOCK, Entry, Expected, Payload, Place, Work, blocks, decode};
pub use memory::{Access, Memory, Regions};

use format::{COMPLETION, CQE_INVALID, MOST_SEGMENTS, SEGMENT, completion};
use std::sync::{Arc, atomic::Ordering};

/// Which of a queue pair's two doorbell records is that of its send queue (`MLX5_SND_DBR`).
pub const SEND_RECORD: usize = 1;

/// The memory of a queue pair's send side, as its owner made it.
#[derive(Clone, Debug)]
pub struct Queue {
    /// The queue pair's number: 24 bits.
    pub number: u32,
    /// The send queue: a power of two of blocks of 64 bytes, at most 2^15.
    pub entries: Memory,
    /// The completion queue: a power of two of completions of 64 bytes.
    pub completions: Memory,
    /// Doorbell records of the queue pair (8 bytes: receive, send), then that of the completion queue's consumer (4 bytes).
    pub records: Memory,
    /// The doorbell register: 8 bytes.
    pub doorbell: Memory,
    /// What keys in local segments mean.
    pub local: Arc<Regions>,
    /// What keys in remote segments mean.
    pub remote: Arc<Regions>,
}

/// A fault that the NIC has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The queue pair.
    pub number: u32,
    /// The position of the first block of the entry, or where the NIC was.
    pub position: u64,
    /// What is wrong.
    pub fault: Fault,
}

impl std::fmt::Display for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "queue pair {:#x}, block {}: {}", self.number, self.position, self.fault)
    }
}

/// What a NIC has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Times that a doorbell was seen to have changed.
    pub doorbells: u64,
    /// Entries carried out.
    pub entries: u64,
    /// Bytes written to peers.
    pub bytes: u64,
    /// Completions written.
    pub completions: u64,
}

/// The NIC. It does something only within [`Nic::poll`].
#[derive(Debug, Default)]
pub struct Nic {
    queues: Vec<State>,
    found: Vec<Found>,
    counters: Counters,
}

#[derive(Debug)]
struct State {
    queue: Queue,
    /// Blocks and completions that the queues have.
    blocks: u64,
    room: u64,
    /// What the register had when it was last looked at.
    register: u64,
    /// Blocks that have been fetched, and completions that have been written.
    fetched: u64,
    produced: u64,
    /// After the first fault all entries are flushed; after a lost completion nothing is done any more.
    failed: bool,
    dead: bool,
}

impl Nic {
    /// Takes a queue pair's send side over. Its completion queue is made ready: every place invalid, owner 0.
    ///
    /// # Panics
    /// When a queue's length is no power of two of its unit, too large, or its memory too short.
    pub fn add(&mut self, queue: Queue) {
        let blocks = queue.entries.bytes() / BLOCK;
        let room = queue.completions.bytes() / COMPLETION;
        assert!(blocks.is_power_of_two() && (1..=1 << 15).contains(&blocks), "{blocks} blocks");
        assert!(room.is_power_of_two() && queue.entries.bytes() == blocks * BLOCK, "{room} completions");
        assert!(queue.number < 1 << 24 && queue.records.bytes() >= 12 && queue.doorbell.bytes() >= 8);
        for place in 0..room {
            queue.completions.write(place * COMPLETION, &[0; COMPLETION - 1]);
            queue.completions.write(place * COMPLETION + COMPLETION - 1, &[CQE_INVALID << 4]);
        }
        let register = queue.doorbell.word(0).load(Ordering::Acquire);
        let (blocks, room) = (blocks as u64, room as u64);
        let state = State { queue, blocks, room, register, fetched: 0, produced: 0, failed: false, dead: false };
        self.queues.push(state);
    }

    /// Does what doorbells announce; whether there was anything.
    pub fn poll(&mut self) -> bool {
        let mut moved = false;
        for state in &mut self.queues {
            let register = state.queue.doorbell.word(0).load(Ordering::Acquire);
            if register == state.register || state.dead {
                continue;
            }
            state.register = register;
            moved = true;
            self.counters.doorbells += 1;
            match state.announced(register) {
                Ok(announced) => state.serve(announced, &mut self.counters, &mut self.found),
                Err(fault) => state.fail(fault, 0, state.fetched, &mut self.counters, &mut self.found),
            }
        }
        moved
    }

    /// The faults that were found, and not those of entries that were flushed after them.
    #[must_use]
    pub fn found(&self) -> &[Found] {
        &self.found
    }

    /// What it has done.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }
}

/// How far `to` is beyond `from`, which is known modulo 2^16.
fn ahead(to: u16, from: u64) -> u64 {
    u64::from(to.wrapping_sub((from & 0xffff) as u16))
}

impl State {
    /// Blocks that a doorbell announces, beyond those that have been fetched.
    fn announced(&self, register: u64) -> Result<u64, Fault> {
        let bytes = register.to_ne_bytes();
        let first = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let number = u32::from_be_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]) >> 8;
        if number != self.queue.number {
            return Err(Fault::Doorbell { expected: self.queue.number, found: number });
        }
        let record = u32::from_be(self.queue.records.half(4 * SEND_RECORD).load(Ordering::Acquire));
        let (register, record) = ((first >> 8 & 0xffff) as u16, (record & 0xffff) as u16);
        // The record may be of a later doorbell; it must never be of an earlier one.
        if record.wrapping_sub(register) >= 1 << 15 {
            return Err(Fault::Record { register, record });
        }
        let announced = ahead(record, self.fetched);
        if announced > self.blocks {
            return Err(Fault::QueueOverrun { announced, free: self.blocks });
        }
        Ok(announced)
    }

    fn serve(&mut self, announced: u64, counters: &mut Counters, found: &mut Vec<Found>) {
        let end = self.fetched + announced;
        while self.fetched < end && !self.dead {
            let position = self.fetched;
            let covered = end - position;
            let first = self.block(position);
            let blocks = blocks(&first);
            let operation = first[3];
            if self.failed {
                self.fetched += blocks.min(covered);
                self.complete(operation, position, 0, Some(&Fault::Flushed), counters, found);
                continue;
            }
            let result = if blocks > covered {
                Err(Fault::Uncovered { blocks, covered })
            } else {
                let mut bytes = [0; MOST_SEGMENTS.next_multiple_of(4) * SEGMENT];
                for (number, place) in (0..blocks).zip(bytes.chunks_mut(BLOCK)) {
                    place.copy_from_slice(&self.block(position + number));
                }
                let expected = Expected { index: (position & 0xffff) as u16, number: self.queue.number };
                decode(&bytes, expected).and_then(|entry| Ok((self.carry(&entry)?, entry)))
            };
            self.fetched += blocks.min(covered);
            match result {
                Ok((bytes, entry)) => {
                    debug_assert_eq!(entry.blocks, blocks);
                    counters.entries += 1;
                    counters.bytes += u64::from(bytes);
                    if entry.completes {
                        self.complete(entry.operation, position, bytes, None, counters, found);
                    }
                }
                Err(fault) => self.fail(fault, operation, position, counters, found),
            }
        }
    }

    fn block(&self, position: u64) -> [u8; BLOCK] {
        let mut block = [0; BLOCK];
        let place = usize::try_from(position & (self.blocks - 1)).expect("within memory");
        self.queue.entries.read(place * BLOCK, &mut block);
        block
    }

    /// Carries an entry out, after everything has been checked; how many bytes went to the peer.
    fn carry(&self, entry: &Entry) -> Result<u32, Fault> {
        let local = |place: Place, bytes: u64| {
            let found = self.queue.local.find(place.key, place.address, bytes, Access::Local);
            found.ok_or(Fault::Local { key: place.key, address: place.address, bytes })
        };
        let remote = |place: Place, bytes: u64| {
            let found = self.queue.remote.find(place.key, place.address, bytes, Access::Remote);
            found.ok_or(Fault::Remote { key: place.key, address: place.address, bytes })
        };
        match &entry.work {
            Work::Nop => Ok(0),
            Work::Write { to, payload: Payload::Inline(bytes) } => {
                let (memory, at) = remote(*to, bytes.len() as u64)?;
                memory.write(at, bytes);
                Ok(bytes.len().try_into().expect("a few segments"))
            }
            Work::Write { to, payload: Payload::Gather { from, bytes } } => {
                let (source, start) = local(*from, u64::from(*bytes))?;
                let (memory, at) = remote(*to, u64::from(*bytes))?;
                // In packets, as a NIC would.
                let mut packet = [0; 4096];
                let mut done = 0;
                let total = usize::try_from(*bytes).expect("within memory");
                while done < total {
                    let piece = &mut packet[..(total - done).min(4096)];
                    source.read(start + done, piece);
                    memory.write(at + done, piece);
                    done += piece.len();
                }
                Ok(*bytes)
            }
            Work::FetchAdd { at: word, add, result } => {
                let (place, to) = local(*result, 8)?;
                let (memory, at) = remote(*word, 8)?;
                if !at.is_multiple_of(8) {
                    return Err(Fault::Alignment(word.address));
                }
                let before = memory.word(at).fetch_add(*add, Ordering::AcqRel);
                place.write(to, &before.to_ne_bytes());
                Ok(8)
            }
        }
    }

    /// The queue fails: an error completion, whether one was asked for or not.
    fn fail(&mut self, fault: Fault, operation: u8, position: u64, counters: &mut Counters, found: &mut Vec<Found>) {
        self.failed = true;
        found.push(Found { number: self.queue.number, position, fault });
        self.complete(operation, position, 0, Some(&fault), counters, found);
    }

    fn complete(
        &mut self,
        operation: u8,
        position: u64,
        bytes: u32,
        fault: Option<&Fault>,
        counters: &mut Counters,
        found: &mut Vec<Found>,
    ) {
        // The consumer counts with 24 bits.
        let consumed = u64::from(u32::from_be(self.queue.records.half(8).load(Ordering::Acquire)));
        let taken = self.produced.wrapping_sub(consumed) & 0xff_ffff;
        if taken >= self.room {
            self.dead = true;
            let fault = Fault::CompletionOverrun;
            found.push(Found { number: self.queue.number, position, fault });
            return;
        }
        let owner = u8::from(self.produced & self.room != 0);
        let index = (position & 0xffff) as u16;
        let bytes = completion(self.queue.number, operation, index, bytes, owner, fault);
        let place = usize::try_from(self.produced & (self.room - 1)).expect("within memory") * COMPLETION;
        self.queue.completions.write(place, &bytes[..60]);
        // Index, operation and owner last, in one piece: whoever sees the owner sees all of it.
        let last = u32::from_ne_bytes(bytes[60..].try_into().expect("four bytes"));
        self.queue.completions.half(place + 60).store(last, Ordering::Release);
        self.produced += 1;
        counters.completions += 1;
    }
}

#[cfg(test)]
mod tests;
