//! One-sided operations by byte offset, for callers that have numbers and no buffers: what a device asks for through a ring.
//!
//! Nobody on the way here has checked a number, so every one is checked. Nothing here waits for an answer: what has one
//! is a [`Pending`] that is asked now and then, so that one thread can have many under way.

use super::{Inner, Reach, SignalOp, SymmetricHeap};
use crate::{
    engine::{
        Engine,
        one_sided::{GET, PIECE},
        operation::OperationId,
    },
    error::{Error, Result},
    memory::heap::{HeapMemory, Width},
};
use std::{
    collections::VecDeque,
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{Ordering, fence},
    },
};

/// Operations that have been started and whose answers are still to come. Dropping it gives the answers up.
#[derive(Debug)]
pub struct Pending {
    heap: Arc<Inner>,
    /// In the order in which they were asked: the request, and where its bytes go in this rank's own memory.
    requests: VecDeque<(OperationId, usize)>,
}

impl Pending {
    /// Takes the answers that have come; whether that were all. Makes no progress itself: see [`SymmetricHeap::progress`].
    ///
    /// # Errors
    /// When a rank that was asked is lost, or has dropped the heap.
    pub fn is_done(&mut self) -> Result<bool> {
        if self.requests.is_empty() {
            return Ok(true);
        }
        let heap = self.heap.clone();
        self.take(&mut heap.communicator.runtime().lock())
    }

    pub(super) fn take(&mut self, engine: &mut Engine) -> Result<bool> {
        while let Some((request, destination)) = self.requests.front().copied() {
            let Some(answer) = engine.take_answer(request) else { return Ok(false) };
            self.requests.pop_front();
            self.heap.memory.write(self.heap.memory.own(), destination, &answer?);
        }
        Ok(true)
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if self.requests.is_empty() {
            return;
        }
        let mut engine = self.heap.communicator.runtime().lock();
        for (request, _) in self.requests.drain(..) {
            engine.abandon_request(request);
        }
    }
}

impl SymmetricHeap {
    /// This rank's own memory: [`bytes`](Self::bytes) bytes, there as long as the heap is.
    ///
    /// For devices that are to be given the address. Other ranks may write here at any time.
    #[must_use]
    pub fn memory(&self) -> NonNull<[u8]> {
        let memory = &self.inner.memory;
        NonNull::slice_from_raw_parts(memory.address(memory.own(), 0..memory.part()), memory.part())
    }

    pub(crate) fn memory_of_heap(&self) -> Arc<HeapMemory> {
        self.inner.memory.clone()
    }

    /// Puts `bytes` bytes at `source` of this rank's own memory to `destination` in the memory of `rank`. Returns when the
    /// source may be changed; see "Order" for when they are visible.
    ///
    /// # Errors
    /// When the rank or one of the ranges does not exist, when the ranges overlap, or when the rank is lost.
    pub fn put_at(&self, source: usize, destination: usize, bytes: usize, rank: usize) -> Result<()> {
        let operation = "SymmetricHeap::put_at";
        self.check(source, bytes, operation)?;
        self.check(destination, bytes, operation)?;
        let memory = &self.inner.memory;
        match self.inner.reach(rank, operation)? {
            Reach::Mapped { part } => {
                self.inner.has_changed(rank);
                self.copy((memory.own(), source), (part, destination), bytes, operation)
            }
            Reach::Records => {
                let mut piece = [0; PIECE];
                for at in (0..bytes).step_by(PIECE) {
                    let piece = &mut piece[..(bytes - at).min(PIECE)];
                    memory.read(memory.own(), source + at, piece);
                    self.inner.put_bytes(piece, destination + at, rank)?;
                }
                Ok(())
            }
        }
    }

    /// Puts bytes from anywhere to `destination` in the memory of `rank`; else as [`put_at`](Self::put_at).
    ///
    /// # Errors
    /// As for [`put_at`](Self::put_at).
    pub fn put_bytes_at(&self, bytes: &[u8], destination: usize, rank: usize) -> Result<()> {
        let operation = "SymmetricHeap::put_bytes_at";
        self.check(destination, bytes.len(), operation)?;
        match self.inner.reach(rank, operation)? {
            Reach::Mapped { part } => {
                self.inner.memory.write(part, destination, bytes);
                self.inner.has_changed(rank);
                Ok(())
            }
            Reach::Records => self.inner.put_bytes(bytes, destination, rank),
        }
    }

    /// Raises the signal at `offset` of `rank`, a multiple of 8. Whoever has seen it sees everything that this rank had put
    /// to that rank before. What goes by records may wait for [`progress`](Self::progress).
    ///
    /// # Errors
    /// When there is no such rank or word, or the rank is lost.
    pub fn signal_at(&self, offset: usize, op: SignalOp, rank: usize) -> Result<()> {
        let operation = "SymmetricHeap::signal_at";
        self.check(offset, size_of::<u64>(), operation)?;
        if !offset.is_multiple_of(size_of::<u64>()) {
            let reason = format!("a signal at byte {offset}, which is no multiple of 8");
            return Err(Error::Heap { operation, reason });
        }
        let update = op.update();
        let inner = &self.inner;
        match inner.reach(rank, operation)? {
            Reach::Mapped { part } => {
                inner.memory.update(part, offset, Width::Eight, update);
                inner.has_changed(rank);
                inner.wake(rank)
            }
            Reach::Records => {
                inner.pending[rank].store(true, Ordering::Relaxed);
                let peer = inner.communicator.world_rank(rank);
                let update = (Width::Eight, update);
                inner.wait(|engine| engine.update(peer, inner.key, offset, update, false).transpose()).map(drop)
            }
        }
    }

    /// Asks for `bytes` bytes at `source` in the memory of `rank`, to be written to `destination` of this rank's own.
    ///
    /// # Errors
    /// As for [`put_at`](Self::put_at).
    pub fn start_get(&self, source: usize, destination: usize, bytes: usize, rank: usize) -> Result<Pending> {
        let operation = "SymmetricHeap::start_get";
        self.check(source, bytes, operation)?;
        self.check(destination, bytes, operation)?;
        let inner = &self.inner;
        let mut requests = VecDeque::new();
        match inner.reach(rank, operation)? {
            Reach::Mapped { part } => {
                self.copy((part, source), (inner.memory.own(), destination), bytes, operation)?;
            }
            Reach::Records => {
                let peer = inner.communicator.world_rank(rank);
                for at in (0..bytes).step_by(GET) {
                    let piece = (bytes - at).min(GET);
                    let request = inner.communicator.runtime().lock().get(peer, inner.key, source + at, piece)?;
                    requests.push_back((request, destination + at));
                }
            }
        }
        Ok(Pending { heap: inner.clone(), requests })
    }

    /// Begins what [`quiet`](Self::quiet) does: when it is done, everything that this rank had put and signalled before is
    /// visible to all ranks.
    ///
    /// # Errors
    /// When a rank is lost that something was sent to.
    pub fn start_quiet(&self) -> Result<Pending> {
        fence(Ordering::SeqCst);
        let inner = &self.inner;
        let mut pending = Pending { heap: inner.clone(), requests: VecDeque::new() };
        for (rank, sent) in inner.pending.iter().enumerate() {
            let peer = inner.communicator.world_rank(rank);
            let was_written = inner.written[rank].swap(false, Ordering::Relaxed);
            if let (true, Reach::Mapped { .. }) = (was_written, inner.reach[rank]) {
                inner.communicator.runtime().check(peer, "quiet")?;
                continue;
            }
            // The answer comes after everything before it, bytes that went past the engine included.
            if sent.swap(false, Ordering::Relaxed) | was_written {
                let request = inner.communicator.runtime().lock().get(peer, inner.key, 0, 0)?;
                pending.requests.push_back((request, 0));
            }
        }
        Ok(pending)
    }

    /// What waits to leave leaves now, as far as it can, and what has come is carried out: one round of progress.
    ///
    /// # Errors
    /// When the job is ending.
    pub fn progress(&self) -> Result<()> {
        self.inner.communicator.runtime().poke()
    }

    /// Whether some rank is reached by records, so that operations move only when both ranks make progress.
    #[must_use]
    pub fn needs_progress(&self) -> bool {
        self.inner.reach.iter().any(|reach| matches!(reach, Reach::Records))
    }

    fn check(&self, offset: usize, bytes: usize, operation: &'static str) -> Result<()> {
        let all = self.bytes();
        if offset.checked_add(bytes).is_some_and(|end| end <= all) {
            return Ok(());
        }
        let reason = format!("{bytes} bytes from byte {offset} on, where the heap has {all}");
        Err(Error::Heap { operation, reason })
    }

    fn copy(&self, from: (usize, usize), to: (usize, usize), bytes: usize, operation: &'static str) -> Result<()> {
        if from == to || self.inner.memory.transfer(from, to, bytes) {
            return Ok(());
        }
        let reason = format!("{bytes} bytes from byte {} to byte {} of the same rank overlap", from.1, to.1);
        Err(Error::Heap { operation, reason })
    }
}
