//! Collective operations in memory that all ranks of a communicator share: the memory, and waiting for each other in it.
//!
//! A call counts and is compared as those that send messages are, so that ranks which call different things find out. Knows
//! no collective; what lies where in the memory, and who may touch what when, is the business of its user.

#![expect(unsafe_code, reason = "memory shared with other processes")]

use super::{
    Call, Machine, Port, State,
    flight::{Adapter, Flight},
};
use crate::{
    comm::Communicator,
    element::Element,
    engine::{Engine, operation::NoBuffers},
    error::{Error, Result},
    memory::{
        Operation,
        heap::{HeapMemory, PAGE, reserved_bytes},
    },
    trace::What,
};
use std::sync::atomic::AtomicU64;
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
    #[inline]
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

/// Of the calls that need no message one in so many makes progress: ranks that only met in memory would never see what others
/// have sent.
const TURN: u64 = 16;

/// A collective operation under way in shared memory.
#[derive(Debug)]
pub struct Together<'a> {
    communicator: &'a Communicator,
    call: Call,
    /// The number of the call in its communicator, once it has begun.
    number: Option<u64>,
    /// Once something has to be waited for, or said.
    flight: Option<Box<Flight>>,
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
        let ranks: Vec<usize> = (0..self.size()).collect();
        // The same on all ranks.
        if ranks.len() < 2 || !self.all_near(&ranks) {
            return Ok(None);
        }
        self.room_of(&ranks, bytes)
    }

    /// Memory for each of several groups of ranks: every rank gives the ranks of its own group, with itself and in ascending
    /// order, and gets the memory that these share, in which they count from 0 in that order. `None` on all ranks of the
    /// communicator where the ranks of one group are not all on one host, may not share memory, or cannot have so much.
    /// Collective over the whole communicator.
    ///
    /// # Errors
    /// When a rank is lost, or calls something else.
    #[track_caller]
    pub fn room_of(&self, group: &[usize], bytes: usize) -> Result<Option<Room>> {
        let (rank, ranks) = (self.rank(), group.len());
        let part = (LINES * LINE + bytes).next_multiple_of(PAGE);
        let own = group.iter().position(|member| *member == rank);
        let segment = self.near().filter(|_| ranks > 1 && self.all_near(group)).map(|near| &near.segment);
        let offset = match (segment, reserved_bytes(part, ranks)) {
            (Some(segment), Some(bytes)) if own == Some(0) => segment.reserve(bytes).unwrap_or(NOWHERE),
            _ => NOWHERE,
        };
        let shares = self.runtime().shares_processors();
        let said = self.gather_words(Operation::Heap, [part as u64, offset, u64::from(shares)])?;
        let offset = group.first().map_or(NOWHERE, |first| said[*first][1]);
        let memory = match (own, segment) {
            (Some(own), Some(segment)) if offset != NOWHERE => {
                HeapMemory::shared(segment.clone(), offset, part, ranks, own).ok()
            }
            // A group of one shares with nobody.
            (Some(_), None) if ranks == 1 => HeapMemory::private(part).ok(),
            _ => None,
        };
        let made = self.gather_words(Operation::Heap, [u64::from(memory.is_some()), 0, 0])?;
        self.inner.calls.discount(2);
        let all = made.iter().all(|words| words[0] != 0);
        let shares_processors = group.iter().any(|member| said[*member][2] != 0);
        Ok(memory.filter(|_| all).map(|memory| Room { memory, ranks, shares_processors }))
    }

    /// Whether this rank shares memory with all of these.
    fn all_near(&self, ranks: &[usize]) -> bool {
        let near = self.near();
        near.is_some_and(|near| ranks.iter().all(|rank| near.place(self.world_rank(*rank)).is_some()))
    }

    /// A collective operation in shared memory. Every rank of the communicator must make the same calls in the same order.
    ///
    /// It begins when others are woken or waited for first: what a rank has for the others may be on its way to them
    /// meanwhile. What was found of earlier calls is an error then.
    #[must_use]
    pub fn together(&self, call: Call) -> Together<'_> {
        Together { communicator: self, call, number: None, flight: None, over: false }
    }
}

impl Together<'_> {
    fn begin(&mut self) -> Result<u64> {
        if let Some(number) = self.number {
            return Ok(number);
        }
        let communicator = self.communicator;
        let begun = communicator.inner.calls.begin(&mut communicator.runtime().lock(), self.call);
        let number = begun.inspect_err(|error| communicator.send_off(error))?;
        communicator.runtime().counters.collectives.add(0);
        self.number = Some(number);
        Ok(number)
    }

    /// Of a call that has begun; made where it is needed first, as most calls are over before. Locks the engine.
    fn flight(&mut self) -> &mut Flight {
        let Together { communicator, call, number, .. } = *self;
        self.flight.get_or_insert_with(|| {
            let number = number.unwrap_or_else(|| unreachable!("a call waits, or is accused, once it has begun"));
            let (calls, hint) = (&communicator.inner.calls, communicator.inner.hint.of_message());
            Box::new(Flight::of(&mut communicator.runtime().lock(), calls, call, number, hint))
        })
    }

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
        self.begin()?;
        if self.communicator.runtime().wait_shortly(&mut ready) {
            return Ok(());
        }
        self.wait_long(&mut None::<&mut NoMessages>, &missing, &mut ready)
    }

    /// As [`Together::wait`], for what takes longer than others of this host need: where ranks share processors, those that
    /// wait for this sleep soon, and leave the processors to those that it depends on.
    ///
    /// # Errors
    /// As for [`Together::wait`].
    pub fn wait_far(&mut self, missing: impl Fn(usize) -> bool, mut ready: impl FnMut() -> bool) -> Result<()> {
        self.begin()?;
        let runtime = self.communicator.runtime();
        if !runtime.shares_processors() && runtime.wait_shortly(&mut ready) {
            return Ok(());
        }
        self.wait_long(&mut None::<&mut NoMessages>, &missing, &mut ready)
    }

    /// As [`Together::wait`], and goes on with a machine that sends and receives for the same call meanwhile; what comes first
    /// ends it: that `ready`, or that the machine is done. The machines of one call come one after another.
    ///
    /// # Errors
    /// As for [`Together::wait`], and as for [`Communicator::run`].
    pub fn wait_with<M: Machine>(
        &mut self,
        machine: &mut M,
        missing: impl Fn(usize) -> bool,
        mut ready: impl FnMut() -> bool,
    ) -> Result<()> {
        self.begin()?;
        self.wait_long(&mut Some(machine), &missing, &mut ready)
    }

    fn wait_long<M: Machine>(
        &mut self,
        machine: &mut Option<&mut M>,
        missing: &dyn Fn(usize) -> bool,
        ready: &mut dyn FnMut() -> bool,
    ) -> Result<()> {
        let runtime = self.communicator.runtime();
        runtime.counters.collective_waits.add();
        let (context, activity) = (self.communicator.context(), self.flight().activity());
        let _span = runtime.span(What::Call(activity));
        loop {
            let deadline = Some(Instant::now() + LOOK);
            let flight = self.flight();
            let lender = flight.lender;
            let found = match machine {
                None => runtime.wait_for_memory(context, activity, deadline, || ready().then_some(()))?,
                Some(machine) => {
                    let mut adapter = Adapter { lender, machine: &mut **machine };
                    let messages = |engine: &mut Engine, adapter: &mut Adapter<'_, M>| {
                        flight.go_on_in_part(engine, adapter.machine)
                    };
                    let memory = || ready().then_some(());
                    runtime
                        .wait_for_either(context, activity, deadline, &mut adapter, memory, messages)
                        .inspect_err(|error| self.communicator.send_off(error))?
                }
            };
            match machine.as_deref_mut().map(|machine| (machine.state(), machine)) {
                Some((State::Works, machine)) => {
                    machine.work();
                    continue;
                }
                Some((State::Done, _)) => return Ok(()),
                _ if found.is_some() => return Ok(()),
                _ => self.look(missing, ready)?,
            }
        }
    }

    /// Nothing has come for long: whether all is well.
    fn look(&mut self, missing: &dyn Fn(usize) -> bool, ready: &mut dyn FnMut() -> bool) -> Result<()> {
        let communicator = self.communicator;
        let flight = self.flight();
        let mut engine = communicator.runtime().lock();
        let members = communicator.inner.members.iter().enumerate();
        flight.absent = members.filter(|(rank, _)| missing(*rank)).map(|(_, world)| *world).collect();
        if let (true, Some(near)) = (flight.beside.is_empty(), communicator.near()) {
            let members = communicator.inner.members.iter().enumerate();
            let told = members.filter(|(member, _)| communicator.inner.calls.is_told(*member));
            flight.beside = told.map(|(_, world)| *world).filter(|world| near.place(*world).is_some()).collect();
        }
        if let Err(error) = flight.look(&mut engine) {
            drop(engine);
            self.communicator.send_off(&error);
            return Err(error);
        }
        let members = communicator.inner.members.iter().enumerate();
        let gone = members.filter_map(|(rank, peer)| Some((engine.gone_since(*peer)?, rank, peer)));
        let mut gone: Vec<_> = gone.collect();
        // The others may have ended because of the first.
        gone.sort_unstable();
        for (_, rank, peer) in gone {
            // One that is missing may have come and left since we looked. One that is not may have left in order after
            // its part; if it is lost, it may have died in the middle of it, and nothing in the memory tells.
            if let Err(error) = engine.check(*peer, "a collective")
                && !ready()
                && (missing(rank) || matches!(error, Error::PeerLost { .. }))
            {
                return Err(error);
            }
        }
        Ok(())
    }

    /// What these ranks of the communicator may wait for has changed: wakes those that sleep.
    ///
    /// # Errors
    /// When they cannot be woken; [`Error::CallMismatch`] when the calls of ranks were found not to fit together.
    pub fn wake(&mut self, ranks: impl IntoIterator<Item = usize>) -> Result<()> {
        let communicator = self.communicator;
        if let Some(near) = communicator.near() {
            let mut looks = near.segment.looks();
            for rank in ranks.into_iter().filter(|rank| *rank != communicator.rank()) {
                let world = communicator.world_rank(rank);
                if near.place(world).is_some_and(|place| looks.sleeps(place)) {
                    communicator.runtime().lock().nudge(world)?;
                }
            }
        }
        self.begin().map(drop)
    }

    /// A rank's call is another one: the error that all ranks get.
    #[must_use]
    pub fn differs(&mut self, rank: usize) -> Error {
        if let Err(error) = self.begin() {
            return error;
        }
        let runtime = self.communicator.runtime();
        let world = self.communicator.world_rank(rank);
        self.flight().accuse_now(&mut runtime.lock(), world);
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
        let number = self.begin()?;
        self.over = true;
        let runtime = self.communicator.runtime();
        let calls = &self.communicator.inner.calls;
        let takes_its_turn = number.is_multiple_of(TURN);
        if self.flight.is_none() && !takes_its_turn {
            calls.have_met(number);
            return Ok(());
        }
        let stray = {
            let mut engine = runtime.lock();
            if takes_its_turn {
                engine.progress(&mut NoBuffers)?;
            }
            calls.complete(&engine, number)
        };
        match stray {
            None => Ok(()),
            Some((number, source)) => {
                self.flight().accuse(&mut runtime.lock(), number, source);
                loop {
                    self.wait(|_| false, || false)?;
                }
            }
        }
    }
}

/// For calls that send nothing.
#[derive(Debug)]
enum NoMessages {}

impl Machine for NoMessages {
    fn source(&self, _: u32) -> &[u8] {
        match *self {}
    }

    fn destination(&mut self, _: u32) -> &mut [u8] {
        match *self {}
    }

    fn begin(&mut self, _: &mut Port<'_>) -> Result<()> {
        match *self {}
    }

    fn complete(&mut self, _: u32) {
        match *self {}
    }

    fn state(&self) -> State {
        match *self {}
    }

    fn work(&mut self) {
        match *self {}
    }
}

impl Drop for Together<'_> {
    fn drop(&mut self) {
        if !self.over && self.number.is_some() {
            let communicator = self.communicator;
            self.flight().give_up(&mut communicator.runtime().lock());
        }
    }
}
