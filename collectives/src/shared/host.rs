//! All ranks of a communicator on one host.

use super::memory::Memory;
use super::protocol::{Company, Counts, Data, Meetings, SMALL};
use crate::algorithms::{Collective, SHARED as NAME};
use crate::operators::Op;
use crate::plan::Wanted;
use spmd::comm::{Call, Room, Together};
use spmd::element::{Element, Signature};
use spmd::{Communicator, Error, Result};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The collectives that have such a form.
pub(crate) fn has(collective: Collective) -> bool {
    matches!(collective, Collective::Barrier | Collective::Broadcast | Collective::Reduce | Collective::AllReduce)
}

/// Larger data goes in chunks of at most this many bytes, so that they stay in caches; fewer where many ranks have one each.
const CHUNK: usize = 256 << 10;
const CHUNKS_OF_ALL: usize = 8 << 20;

/// What a communicator keeps for them.
#[derive(Debug)]
pub(crate) struct Shared {
    meetings: Meetings<Room>,
    /// Calls of one communicator come one after another on every rank: locked for the whole call.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    counts: Counts,
    /// The last call's mark: a program makes the same one again and again.
    last: Option<(Wanted, Signature)>,
}

/// A call that has entered: there is no other of this communicator meanwhile.
#[derive(Debug)]
pub(crate) struct Entered<'a> {
    meetings: &'a Meetings<Room>,
    state: MutexGuard<'a, State>,
    comm: &'a Communicator,
    /// What tells calls apart, without the type of the elements.
    pub(crate) mark: Signature,
}

impl Shared {
    /// `None` where there is no such memory. Collective.
    pub(crate) fn new(comm: &Communicator) -> Result<Option<Shared>> {
        let (rank, size) = (comm.rank(), comm.size());
        let chunk = (CHUNKS_OF_ALL / size.max(1)).clamp(16 << 10, CHUNK).next_multiple_of(4096);
        let room = comm.room(Memory::<Room>::bytes(SMALL, chunk))?;
        Ok(room.map(|room| Shared { meetings: Meetings::new(room, rank, size, SMALL, chunk), state: Mutex::default() }))
    }

    pub(crate) fn enter<'a>(&'a self, comm: &'a Communicator, wanted: &Wanted) -> Entered<'a> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mark = match state.last {
            Some((of, mark)) if of == *wanted => mark,
            _ => state.last.insert((*wanted, wanted.mark(NAME))).1,
        };
        Entered { meetings: &self.meetings, state, comm, mark }
    }
}

impl Entered<'_> {
    pub(crate) fn barrier(self, call: Call) -> Result<()> {
        self.run::<u8>(call, Data::Both(&mut []), None)
    }

    pub(crate) fn all_reduce<T: Element>(self, call: Call, data: &mut [T], op: &dyn Op<T>) -> Result<()> {
        self.run(call, Data::Both(data), Some(op))
    }

    pub(crate) fn reduce<T: Element>(
        self,
        call: Call,
        data: &[T],
        result: Option<&mut [T]>,
        op: &dyn Op<T>,
    ) -> Result<()> {
        self.run(call, Data::To(data, result), Some(op))
    }

    pub(crate) fn broadcast<T: Element>(self, call: Call, data: &mut [T], root: usize) -> Result<()> {
        self.run(call, Data::From(root, data), None)
    }

    fn run<T: Element>(mut self, call: Call, data: Data<'_, T>, op: Option<&dyn Op<T>>) -> Result<()> {
        let mut together = self.comm.together(call);
        together.moves(data.length() * size_of::<T>());
        self.meetings.run(&mut self.state.counts, &mut together, u64::from(call.fingerprint.0), data, op)?;
        together.done()
    }
}

impl Company for Together<'_> {
    type Error = Error;

    fn wait(&mut self, missing: impl Fn(usize) -> bool, ready: impl FnMut() -> bool) -> Result<()> {
        Together::wait(self, missing, ready)
    }

    fn wake(&mut self, ranks: impl IntoIterator<Item = usize>) -> Result<()> {
        Together::wake(self, ranks)
    }

    fn differs(&mut self, rank: usize) -> Error {
        Together::differs(self, rank)
    }
}
