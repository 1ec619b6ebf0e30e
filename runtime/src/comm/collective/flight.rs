//! The messages of one collective call under way on one rank, and what is done when they do not come.
//!
//! Knows no schedule: a [`Machine`] says which messages there are. Never waits by itself.

use super::{
    Machine, State,
    calls::{Call, Calls, Told},
};
use crate::{
    engine::{
        Engine,
        operation::{self, Expected, Landing, Lent, OperationId, Source as From_},
    },
    error::{Error, Result},
    matching::Pattern,
    memory::Activity,
    transport::record::{Header, Kind},
};
use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

/// How long a rank that has sent a message of another call is asked which.
const ANSWER: Duration = Duration::from_secs(3);

/// A call under way.
#[derive(Debug)]
pub(super) struct Flight {
    calls: Arc<Calls>,
    call: Call,
    /// The number of the call in its communicator, in the upper half of every tag.
    number: u64,
    /// The size hint that its messages go by.
    hint: usize,
    /// Names its buffers to the engine.
    pub(super) lender: u64,
    pending: Vec<Pending>,
    /// Ranks of the world that have yet to come, where no message says so.
    pub(super) absent: Vec<usize>,
    /// Ranks of the world, of those that all tell, that share the memory of this call, if it works in one.
    pub(super) beside: Vec<usize>,
    watch: Watch,
    /// A rank of the world has sent a message of another call of that number.
    accused: Option<(u64, usize)>,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    op: u32,
    id: OperationId,
    peer: usize,
    sends: bool,
}

/// How long nothing has completed.
#[derive(Debug, Default)]
struct Watch {
    looks: u32,
    since: Option<Instant>,
    has_stated: bool,
    has_told_all: bool,
    /// When who is missing is said next.
    warns_after: Duration,
}

/// Lends a machine's buffers to the engine under the name of its call.
pub(super) struct Adapter<'a, M> {
    pub(super) lender: u64,
    pub(super) machine: &'a mut M,
}

impl<M: Machine> operation::Buffers for Adapter<'_, M> {
    fn source(&self, lent: Lent) -> Option<&[u8]> {
        (lent.call == self.lender).then(|| self.machine.source(lent.number))
    }

    fn destination(&mut self, lent: Lent) -> Option<&mut [u8]> {
        (lent.call == self.lender).then(|| self.machine.destination(lent.number))
    }
}

/// Where a [`Machine`] begins its sends and receives.
pub struct Port<'a> {
    pub(super) engine: &'a mut Engine,
    pub(super) flight: &'a mut Flight,
}

impl fmt::Debug for Port<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Port").field("flight", &self.flight).finish_non_exhaustive()
    }
}

impl Port<'_> {
    /// Begins to send `bytes` to a rank of the communicator; `true` when that is done already. `op` names the operation to
    /// the machine, `label` tells messages between the same two ranks apart.
    ///
    /// # Errors
    /// When the peer does not exist, is lost, or has dropped its world.
    pub fn send(&mut self, op: u32, peer: usize, label: u32, bytes: &[u8]) -> Result<bool> {
        let Port { engine, flight } = self;
        let peer = flight.peer(peer)?;
        let header = Header {
            context: flight.calls.context,
            tag: flight.tag(label),
            total: bytes.len() as u64,
            signature: flight.call.fingerprint.0,
            ..Header::new(Kind::Eager)
        };
        if engine.try_send(peer, header, bytes, flight.hint, false)? {
            return Ok(true);
        }
        let lent = From_::Lent(Lent { call: flight.lender, number: op });
        let id = engine.start_send(peer, header, flight.hint, lent)?;
        flight.pending.push(Pending { op, id, peer, sends: true });
        Ok(false)
    }

    /// Begins to receive exactly as many bytes from a rank of the communicator as the machine's destination of `op` has.
    ///
    /// # Errors
    /// As for [`Port::send`].
    pub fn receive<M: Machine>(&mut self, op: u32, peer: usize, label: u32, machine: &mut M) -> Result<()> {
        let Port { engine, flight } = self;
        let peer = flight.peer(peer)?;
        let pattern = Pattern { source: Some(peer), tag: Some(flight.tag(label)) };
        let room = machine.destination(op).len();
        let expected = Expected { signature: flight.call.fingerprint, element: None, room, exact: true };
        let landing = Landing::Lent(Lent { call: flight.lender, number: op });
        let mut adapter = Adapter { lender: flight.lender, machine };
        let id = engine.start_receive(flight.calls.context, pattern, expected, landing, &mut adapter)?;
        flight.pending.push(Pending { op, id, peer, sends: false });
        Ok(())
    }
}

impl Flight {
    pub(super) fn begin(engine: &mut Engine, calls: &Arc<Calls>, call: Call, hint: usize) -> Result<Flight> {
        let number = calls.begin(engine, call)?;
        Ok(Flight::of(engine, calls, call, number, hint))
    }

    /// Of a call that has begun, with this number.
    pub(super) fn of(engine: &mut Engine, calls: &Arc<Calls>, call: Call, number: u64, hint: usize) -> Flight {
        let (calls, lender) = (Arc::clone(calls), engine.new_call());
        let (pending, absent, beside) = (Vec::new(), Vec::new(), Vec::new());
        let (watch, accused) = (Watch::default(), None);
        Flight { calls, call, number, hint, lender, pending, absent, beside, watch, accused }
    }

    pub(super) fn activity(&self) -> Activity {
        let number = u32::try_from(self.calls.counted(self.number)).unwrap_or(u32::MAX);
        Activity::Collective { operation: self.call.operation, number }
    }

    fn peer(&self, rank: usize) -> Result<usize> {
        let (operation, last) = ("a collective", self.calls.members.len() - 1);
        self.calls.members.get(rank).copied().ok_or(Error::NoSuchRank { operation, rank, last })
    }

    fn tag(&self, label: u32) -> u64 {
        self.number << 32 | u64::from(label)
    }

    /// Goes as far as that is possible now. `None`: messages must come or go first; else the machine has work of its own, or
    /// is done, or has failed.
    pub(super) fn go_on<M: Machine>(&mut self, engine: &mut Engine, machine: &mut M) -> Option<Result<()>> {
        self.advance(engine, machine, true)
    }

    /// As [`Flight::go_on`] for a machine that is not all of the call.
    pub(super) fn go_on_in_part<M: Machine>(&mut self, engine: &mut Engine, machine: &mut M) -> Option<Result<()>> {
        self.advance(engine, machine, false)
    }

    fn advance<M: Machine>(&mut self, engine: &mut Engine, machine: &mut M, is_all: bool) -> Option<Result<()>> {
        while self.accused.is_none() {
            let begun = machine.begin(&mut Port { engine, flight: self });
            match begun.and_then(|()| self.collect(engine, machine)) {
                Err(Error::TypeMismatch { source_rank, .. } | Error::LengthMismatch { source_rank, .. }) => {
                    self.accuse(engine, self.number, source_rank);
                }
                // What others have said explains more than that they have left.
                Err(error) => return Some(Err(self.calls.hear(engine).err().unwrap_or(error))),
                Ok(progressed) => match machine.state() {
                    State::Works => return Some(Ok(())),
                    State::Done if !is_all => return Some(Ok(())),
                    State::Done => match self.calls.complete(engine, self.number) {
                        Some((number, source)) => self.accuse(engine, number, source),
                        None => return Some(Ok(())),
                    },
                    State::Waits if progressed => {}
                    State::Waits => break,
                },
            }
        }
        self.look(engine).err().map(Err)
    }

    /// Tells the machine what has completed; whether anything has.
    fn collect<M: Machine>(&mut self, engine: &mut Engine, machine: &mut M) -> Result<bool> {
        let mut failed = None;
        let before = self.pending.len();
        let lender = self.lender;
        self.pending.retain(|operation| {
            let done = if operation.sends {
                engine.take_send(operation.id).map(|result| result.map(drop))
            } else {
                engine.take_receive(operation.id, &mut Adapter { lender, machine }).map(|result| result.map(drop))
            };
            match done {
                None => return true,
                Some(Ok(())) => machine.complete(operation.op),
                Some(Err(error)) => failed = failed.take().or(Some(error)),
            }
            false
        });
        let progressed = self.pending.len() < before;
        if progressed {
            self.watch.looks = 0;
        }
        failed.map_or(Ok(progressed), Err)
    }

    /// A message has come that this rank's call of that number does not have: everyone hears what this rank's call is, and the
    /// sender, who will find the same, says what its own is.
    pub(super) fn accuse(&mut self, engine: &mut Engine, number: u64, source: usize) {
        self.accused = Some((number, source));
        self.watch.looks = 0;
        self.calls.state(engine, number, &[], Told::All);
    }

    /// Nothing has completed.
    pub(super) fn look(&mut self, engine: &mut Engine) -> Result<()> {
        self.calls.hear(engine)?;
        // The clock is not asked by those that wait shortly.
        self.watch.looks += 1;
        if self.watch.looks == 1 {
            self.watch = Watch { looks: 1, warns_after: self.calls.patience.warn, ..Watch::default() };
            return Ok(());
        }
        let since = *self.watch.since.get_or_insert_with(Instant::now);
        let (waited, patience) = (since.elapsed(), self.calls.patience);
        if let Some((number, source)) = self.accused {
            return match waited > ANSWER || engine.is_gone(source) {
                true => Err(self.calls.decide_alone(engine, number, source)),
                false => Ok(()),
            };
        }
        let due = |after: Duration| !after.is_zero() && waited >= after;
        if due(patience.check) && !self.watch.has_stated {
            self.watch.has_stated = true;
            let waits_for = self.waits_for();
            // All have come and one of them is in another call, perhaps: nobody says which.
            let told = if waits_for.is_empty() { &self.beside } else { &waits_for };
            self.calls.state(engine, self.number, &waits_for, Told::These(told));
        }
        if patience.tells_all().is_some_and(|after| waited >= after) && !self.watch.has_told_all {
            self.watch.has_told_all = true;
            self.calls.state(engine, self.number, &self.waits_for(), Told::All);
        }
        if due(self.watch.warns_after) {
            self.watch.warns_after *= 2;
            self.warn(waited);
        }
        if due(patience.limit) {
            let (missing, _) = self.calls.missing(self.number, &self.waits_for());
            let call = self.call.to_string();
            return Err(Error::CollectiveTimeout { call, number: self.calls.counted(self.number), waited, missing });
        }
        Ok(())
    }

    /// Ranks of the world whose messages have not come, or not gone.
    fn waits_for(&self) -> Vec<usize> {
        let pending = self.pending.iter().map(|pending| pending.peer);
        let mut peers: Vec<usize> = pending.chain(self.absent.iter().copied()).collect();
        peers.sort_unstable();
        peers.dedup();
        peers
    }

    fn warn(&self, waited: Duration) {
        let (missing, lower_waits) = self.calls.missing(self.number, &self.waits_for());
        if lower_waits || missing.is_empty() {
            return;
        }
        eprintln!(
            "rank {} has waited {} s in {}, collective {} of its communicator; {} not in it",
            self.calls.world_rank(),
            waited.as_secs(),
            self.call,
            self.calls.counted(self.number),
            crate::error::ranks(&missing),
        );
    }

    /// A rank of the world is in another call of this number.
    pub(super) fn accuse_now(&mut self, engine: &mut Engine, source: usize) {
        self.accuse(engine, self.number, source);
    }

    /// Gives up what is not complete: receives are withdrawn and sends are not made.
    pub(super) fn give_up(&mut self, engine: &mut Engine) {
        self.calls.fail(self.number);
        for operation in self.pending.drain(..) {
            if operation.sends {
                engine.abandon_send(operation.id);
            } else {
                engine.abandon_receive(operation.id);
            }
        }
    }
}
