//! Collective operations in memory that all ranks of a communicator share: the memory, and waiting for each other in it.
//!
//! A call counts and is compared as those that send messages are, so that ranks which call different things find out. Knows
//! no collective; what lies where in the memory, and who may touch what when, is the business of its user.

#![expect(unsafe_code, reason = "memory shared with other processes")]

use super::{Call, flight::Flight};
use crate::{
    comm::Communicator,
    element::Element,
    engine::operation::NoBuffers,
    error::{Error, Result},
    memory::{
        Operation,
        heap::{HeapMemory, PAGE, reserved_bytes},
    },
    trace::What,
};
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

/// Bytes between words that different ranks change: two cache lines, as processors fetch them in pairs.
const LINE: usize = 128;
/// Lines of words in front of each rank's bytes.
const LINES: usize = 8;
/// Where no memory could be had.
const NOWHERE: u64 = u64::MAX;
/// How often a waiting rank looks whether all is well.
const LOOK: Duration = Duration::from_millis(50);

/// A part of memory for each rank of a communicator whose ranks are all on one host, mapped into all of them: a few words
/// for signals, and bytes. All zero at first. It goes with the last rank that drops it.
#[derive(Debug)]
pub struct Room {
    memory: HeapMemory,
    ranks: usize,
    shares_processors: bool,
}

impl Room {
    /// Word `index` (below 16) of line `line` (below 8) of a rank.
    ///
    /// # Panics
    /// When there is no such word.
    #[must_use]
    pub fn word(&self, rank: usize, line: usize, index: usize) -> &AtomicU64 {
        assert!(rank < self.ranks && line < LINES && index < LINE / 8);
        let at = line * LINE + index * 8;
        let address = self.memory.address(rank, at..at + 8);
        // SAFETY: within a part, mapped as long as we are, aligned as parts are whole pages; words are only ever accessed as
        // atomics, because `bytes` begin behind them.
        unsafe { address.cast().as_ref() }
    }

    /// Whether a rank waits for others by giving way to them, because there are more ranks than processors: the same on all.
    #[must_use]
    pub fn shares_processors(&self) -> bool {
        self.shares_processors
    }

    /// Elements in the bytes of a rank.
    ///
    /// # Safety
    /// Nobody may write there for the lifetime of the result.
    ///
    /// # Panics
    /// When they are not within the rank's bytes or not aligned.
    #[must_use]
    pub unsafe fn elements<T: Element>(&self, rank: usize, offset: usize, length: usize) -> &[T] {
        let address = self.place::<T>(rank, offset, length);
        // SAFETY: mapped and aligned, as asserted; any bytes are a value; nobody writes, as promised.
        unsafe { std::slice::from_raw_parts(address, length) }
    }

    /// Elements in this rank's own bytes, to be changed.
    ///
    /// # Safety
    /// Nobody else may access them for the lifetime of the result.
    ///
    /// # Panics
    /// As for [`Room::elements`].
    #[must_use]
    #[expect(clippy::mut_from_ref, reason = "exclusive by promise")]
    pub unsafe fn own_elements<T: Element>(&self, offset: usize, length: usize) -> &mut [T] {
        let address = self.place::<T>(self.memory.own(), offset, length);
        // SAFETY: as for `elements`; nobody else accesses them, as promised.
        unsafe { std::slice::from_raw_parts_mut(address.cast_mut(), length) }
    }

    fn place<T: Element>(&self, rank: usize, offset: usize, length: usize) -> *const T {
        let start = LINES * LINE + offset;
        let address = self.memory.address(rank, start..start + length * size_of::<T>());
        assert!(address.cast::<T>().is_aligned(), "elements that are not aligned");
        address.as_ptr().cast()
    }
}

/// A collective operation under way in shared memory.
#[derive(Debug)]
pub struct Together<'a> {
    communicator: &'a Communicator,
    flight: Flight,
    over: bool,
}

impl Communicator {
    /// Memory of `bytes` bytes a rank that all ranks of the communicator share; `None` on all of them where they are not all
    /// on one host, may not share memory, or cannot have so much. Collective.
    ///
    /// # Errors
    /// When a rank is lost, or calls something else.
    #[track_caller]
    pub fn room(&self, bytes: usize) -> Result<Option<Room>> {
        let (rank, ranks) = (self.rank(), self.size());
        let Some(near) = self.near() else { return Ok(None) };
        if ranks < 2 || (0..ranks).any(|rank| near.place(self.world_rank(rank)).is_none()) {
            return Ok(None);
        }
        let part = (LINES * LINE + bytes).next_multiple_of(PAGE);
        let offset = match reserved_bytes(part, ranks) {
            Some(bytes) if rank == 0 => near.segment.reserve(bytes).unwrap_or(NOWHERE),
            _ => NOWHERE,
        };
        let shares = self.runtime().shares_processors();
        let said = self.gather_words(Operation::Heap, [part as u64, offset, u64::from(shares)])?;
        let offset = said[0][1];
        let memory = (offset != NOWHERE)
            .then(|| HeapMemory::shared(near.segment.clone(), offset, part, ranks, rank).ok())
            .flatten();
        let made = self.gather_words(Operation::Heap, [u64::from(memory.is_some()), 0, 0])?;
        self.inner.calls.discount(2);
        let all = made.iter().all(|words| words[0] != 0);
        let shares_processors = said.iter().any(|words| words[2] != 0);
        Ok(memory.filter(|_| all).map(|memory| Room { memory, ranks, shares_processors }))
    }

    /// Begins a collective operation in shared memory. Every rank of the communicator must make the same calls in the same
    /// order.
    ///
    /// # Errors
    /// [`Error::CallMismatch`] when the calls of ranks were found not to fit together.
    pub fn together(&self, call: Call) -> Result<Together<'_>> {
        let flight = Flight::begin(&mut self.runtime().lock(), &self.inner.calls, call, 0);
        let flight = flight.inspect_err(|error| self.send_off(error))?;
        self.runtime().counters.collectives.add(0);
        Ok(Together { communicator: self, flight, over: false })
    }
}

impl Together<'_> {
    /// So many bytes of this rank take part: for its statistics.
    pub fn moves(&self, bytes: usize) {
        self.communicator.runtime().counters.collectives.add_bytes(bytes);
    }

    /// Waits until `ready`; `missing` says of a rank whether it has yet to come.
    ///
    /// # Errors
    /// [`Error::CallMismatch`] on all ranks when their calls do not fit together; when a rank is lost, or a missing one has
    /// left or has been waited for longer than `collectives.timeout`.
    pub fn wait(&mut self, missing: impl Fn(usize) -> bool, mut ready: impl FnMut() -> bool) -> Result<()> {
        let runtime = self.communicator.runtime();
        if runtime.wait_shortly(&mut ready) {
            return Ok(());
        }
        runtime.counters.collective_waits.add();
        let (context, activity) = (self.communicator.context(), self.flight.activity());
        let _span = runtime.span(What::Call(activity));
        loop {
            let deadline = Some(Instant::now() + LOOK);
            if runtime.wait_for_memory(context, activity, deadline, || ready().then_some(()))?.is_some() {
                return Ok(());
            }
            let mut engine = runtime.lock();
            let members = self.communicator.inner.members.iter().enumerate();
            self.flight.absent = members.filter(|(rank, _)| missing(*rank)).map(|(_, world)| *world).collect();
            if let Err(error) = self.flight.look(&mut engine) {
                drop(engine);
                self.communicator.send_off(&error);
                return Err(error);
            }
            for (rank, peer) in self.communicator.inner.members.iter().enumerate() {
                // One that is missing may have come and left since we looked. One that is not may have left in order after
                // its part; if it is lost, it may have died in the middle of it, and nothing in the memory tells.
                if let Err(error) = engine.check(*peer, "a collective")
                    && !ready()
                    && (missing(rank) || matches!(error, Error::PeerLost { .. }))
                {
                    return Err(error);
                }
            }
        }
    }

    /// What others wait for has changed: wakes those that sleep.
    ///
    /// # Errors
    /// When they cannot be woken.
    pub fn wake(&self) -> Result<()> {
        // A sleeper raises its flag before it looks at its memory for the last time (Dekker's pattern).
        fence(Ordering::SeqCst);
        let Some(near) = self.communicator.near() else { return Ok(()) };
        for (rank, world) in self.communicator.inner.members.iter().enumerate() {
            let place = near.place(*world).filter(|_| rank != self.communicator.rank());
            if place.is_some_and(|place| near.segment.sleeping(place).load(Ordering::Relaxed) != 0) {
                self.communicator.runtime().lock().nudge(*world)?;
            }
        }
        Ok(())
    }

    /// A rank's call is another one: the error that all ranks get.
    #[must_use]
    pub fn differs(&mut self, rank: usize) -> Error {
        let runtime = self.communicator.runtime();
        let world = self.communicator.world_rank(rank);
        self.flight.accuse_now(&mut runtime.lock(), world);
        loop {
            // Nothing will be ready: what is waited for is what the others say.
            if let Err(error) = self.wait(|_| false, || false) {
                return error;
            }
        }
    }

    /// This rank's part is done.
    ///
    /// # Errors
    /// When a message was found that none of this rank's calls has.
    pub fn done(mut self) -> Result<()> {
        self.over = true;
        let runtime = self.communicator.runtime();
        let stray = {
            let mut engine = runtime.lock();
            // Ranks that meet in memory only would never see what others have sent.
            if self.flight.takes_its_turn() {
                engine.progress(&mut NoBuffers)?;
            }
            self.flight.complete(&engine)
        };
        match stray {
            None => Ok(()),
            Some((number, source)) => {
                self.flight.accuse(&mut runtime.lock(), number, source);
                loop {
                    self.wait(|_| false, || false)?;
                }
            }
        }
    }
}

impl Drop for Together<'_> {
    fn drop(&mut self) {
        if !self.over {
            self.flight.give_up(&mut self.communicator.runtime().lock());
        }
    }
}
