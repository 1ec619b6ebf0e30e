//! Bytes of ranks elsewhere whose network device reads and writes their memory without them (RDMA).
//!
//! Words are changed by records all the same, which the target's engine carries out: a device's atomic operations are
//! atomic with those of other devices at best (`IBV_ATOMIC_HCA`), never surely with the instructions by which ranks of the
//! target's host change the same words. A record comes after every byte put before it, so that a signal covers them.

use super::Inner;
use crate::{
    engine::Engine,
    error::Result,
    transport::{Direct, MOST_FETCHED},
    verbs::Remote,
};
use std::sync::atomic::Ordering;

impl Inner {
    /// Where offset `at` of a rank's part is, if devices reach it.
    fn there(&self, rank: usize, at: usize) -> Option<Remote> {
        self.exposed[rank].map(|remote| remote.plus(at))
    }

    /// Waits until the transport takes an operation; `None`: it cannot.
    fn ask<R>(&self, mut ask: impl FnMut(&mut Engine) -> Result<Direct<R>>) -> Result<Option<R>> {
        self.wait(|engine| match ask(engine) {
            Ok(Direct::Done(result)) => Some(Ok(Some(result))),
            Ok(Direct::Impossible) => Some(Ok(None)),
            Ok(Direct::Busy) => None,
            Err(error) => Some(Err(error)),
        })
    }

    /// Waits until a request is done, and takes what it has fetched.
    fn take_direct(&self, peer: usize, request: u64, out: &mut [u8]) -> Result<()> {
        self.wait(|engine| match engine.take_direct(peer, request, out) {
            Ok(true) => Some(Ok(())),
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        })
    }

    /// Puts bytes at offset `at` of a rank's part, past its engine where a device can.
    pub(super) fn put_bytes(&self, bytes: &[u8], at: usize, rank: usize) -> Result<()> {
        if self.put_direct(bytes, rank, at)? { Ok(()) } else { self.put_records(bytes, at, rank) }
    }

    /// Puts bytes at offset `at` of a rank's part; `false` when no device reaches it.
    fn put_direct(&self, bytes: &[u8], rank: usize, at: usize) -> Result<bool> {
        let Some(there) = self.there(rank, at) else { return Ok(false) };
        self.keep_fence(rank)?;
        let peer = self.communicator.world_rank(rank);
        let mut done = 0;
        while done < bytes.len() {
            match self.ask(|engine| engine.put_direct(peer, there.plus(done), &bytes[done..]))? {
                Some(more) => done += more,
                None => return Ok(false),
            }
            self.written[rank].store(true, Ordering::Relaxed);
        }
        Ok(true)
    }

    /// Puts this rank's own bytes at offset `at` to the same place of a rank, straight from where they are; `false` when no
    /// device reaches it.
    pub(super) fn put_own_direct(&self, rank: usize, at: usize, bytes: usize) -> Result<bool> {
        let Some(there) = self.there(rank, at) else { return Ok(false) };
        self.keep_fence(rank)?;
        let peer = self.communicator.world_rank(rank);
        let (mut done, mut last) = (0, None);
        while done < bytes {
            let now = (bytes - done).min(MOST_AT_ONCE);
            let put = |engine: &mut Engine| engine.put_own_direct(peer, there.plus(done), self.key, at + done, now);
            match self.ask(put)? {
                Some(request) => last = Some(request),
                None => return Ok(false),
            }
            self.written[rank].store(true, Ordering::Relaxed);
            done += now;
        }
        // Requests are done in order; until then the device reads the bytes.
        last.map_or(Ok(()), |request| self.take_direct(peer, request, &mut [])).map(|()| true)
    }

    /// Fills `bytes` from offset `at` of a rank's part; `false` when no device reaches it.
    pub(super) fn get_direct(&self, bytes: &mut [u8], rank: usize, at: usize) -> Result<bool> {
        let Some(there) = self.there(rank, at) else { return Ok(false) };
        // What this rank has changed there by records it shall find changed.
        if self.pending[rank].load(Ordering::Relaxed) {
            self.quiet_at(&[rank])?;
        }
        let peer = self.communicator.world_rank(rank);
        for (number, piece) in bytes.chunks_mut(MOST_FETCHED).enumerate() {
            let from = there.plus(number * MOST_FETCHED);
            match self.ask(|engine| engine.get_direct(peer, from, piece.len()))? {
                Some(request) => self.take_direct(peer, request, piece)?,
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// What is put to this rank from now on must not be seen before what was changed by records until now: the fence that
    /// said so becomes a wait, because bytes overtake records.
    fn keep_fence(&self, rank: usize) -> Result<()> {
        if self.fenced[rank].swap(false, Ordering::Relaxed) { self.quiet_at(&[rank]) } else { Ok(()) }
    }

    /// Remembers a fence for ranks to which bytes and records take different ways.
    pub(super) fn note_fence(&self) {
        for (rank, fenced) in self.fenced.iter().enumerate() {
            if self.exposed[rank].is_some() && self.pending[rank].load(Ordering::Relaxed) {
                fenced.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Waits until everything that this rank has put to these ranks, or changed there, is visible.
    pub(super) fn quiet_at(&self, ranks: &[usize]) -> Result<()> {
        let (mut asked, mut fetched) = (Vec::new(), Vec::new());
        let mut result = Ok(());
        for &rank in ranks {
            let peer = self.communicator.world_rank(rank);
            let was_written = self.written[rank].swap(false, Ordering::Relaxed);
            let begun = if self.pending[rank].swap(false, Ordering::Relaxed) {
                // The answer comes after everything before it, bytes included.
                self.fenced[rank].store(false, Ordering::Relaxed);
                let request = self.communicator.runtime().lock().get(peer, self.key, 0, 0);
                request.map(|request| asked.push(request))
            } else if was_written && let Some(there) = self.there(rank, 0) {
                // Reading pushes what was written before it into the memory there: the rank need not help.
                let request = self.ask(|engine| engine.get_direct(peer, there, size_of::<u64>()));
                request.map(|request| fetched.extend(request.map(|request| (peer, request))))
            } else if was_written {
                self.communicator.runtime().check(peer, "what was put there")
            } else {
                Ok(())
            };
            result = result.and(begun);
        }
        // Whatever has become of one rank, what was put to the others is waited for.
        for (peer, request) in fetched {
            result = result.and(self.take_direct(peer, request, &mut [0; 8]));
        }
        for request in asked {
            result = result.and(self.answer(request).map(drop));
        }
        result
    }
}

/// Bytes of one request that moves them from where they are.
const MOST_AT_ONCE: usize = 1 << 20;
