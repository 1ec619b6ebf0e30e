//! Collective operations: several sends and receives at once and what is done between them, one after another in each
//! communicator.
//!
//! A [`Machine`] says which messages there are and what is computed; it is driven by a blocking call out of borrowed
//! buffers ([`Communicator::run`]), or by whoever makes progress when it owns its buffers ([`Communicator::start`]).
//! Knows no algorithm.

mod calls;
mod flight;
mod request;
mod together;
mod words;

pub use calls::Call;
pub(super) use calls::Calls;
pub use flight::Port;
pub use request::CollectiveRequest;
pub use together::{Room, Together};

use super::Communicator;
use crate::{
    engine::operation::NoBuffers,
    error::{Error, Result},
    memory::Activity,
    trace::What,
};
use flight::{Adapter, Flight};
use std::time::{Duration, Instant};

/// How long a rank sees to it that the others hear of its error.
const SEND_OFF: Duration = Duration::from_secs(1);

/// One rank's side of a collective operation, step by step.
pub trait Machine {
    /// The bytes that operation `op` sends: the same slice as long as it is under way.
    fn source(&self, op: u32) -> &[u8];

    /// The room that operation `op` receives into: the same slice as long as it is under way.
    fn destination(&mut self, op: u32) -> &mut [u8];

    /// Begins every send and receive that may begin.
    ///
    /// # Errors
    /// What the port reports.
    fn begin(&mut self, port: &mut Port<'_>) -> Result<()>;

    /// Operation `op`, which was begun, has completed.
    fn complete(&mut self, op: u32);

    /// What there is to do next.
    fn state(&self) -> State;

    /// Does one piece of its own work.
    fn work(&mut self);
}

/// What a [`Machine`] does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It waits for operations that it has begun.
    Waits,
    /// It has work of its own.
    Works,
    /// All is done, and all operations are complete.
    Done,
}

impl Communicator {
    /// Runs a collective operation to its end. Every rank of the communicator must make the same calls in the same order.
    ///
    /// # Errors
    /// [`Error::CallMismatch`] on all ranks when their calls do not fit together, in this call
    /// or in a later one: a rank that only sends is done before it can know. When a rank is lost, or has left. What is not
    /// complete then is given up.
    pub fn run<M: Machine>(&self, call: Call, machine: &mut M) -> Result<()> {
        self.run_by_hint(call, self.inner.hint.of_message(), machine)
    }

    pub(super) fn run_by_hint<M: Machine>(&self, call: Call, hint: usize, machine: &mut M) -> Result<()> {
        let runtime = self.runtime();
        let flight = Flight::begin(&mut runtime.lock(), &self.inner.calls, call, hint);
        let flight = flight.inspect_err(|error| self.send_off(error))?;
        let mut flight = Guard { communicator: self, flight, over: false };
        let (activity, lender) = (flight.flight.activity(), flight.flight.lender);
        let _span = runtime.span(What::Call(activity));
        loop {
            let mut adapter = Adapter { lender, machine: &mut *machine };
            runtime
                .wait(activity, &mut adapter, |engine, adapter| flight.flight.go_on(engine, adapter.machine))
                .inspect_err(|error| self.send_off(error))?;
            match machine.state() {
                State::Works => machine.work(),
                State::Waits => {}
                State::Done => break,
            }
        }
        flight.over = true;
        Ok(())
    }

    /// Sees off what this rank has said about its calls: it may make no progress for long after the error.
    fn send_off(&self, error: &Error) {
        if !matches!(error, Error::CallMismatch { .. }) {
            return;
        }
        let until = Instant::now() + SEND_OFF;
        let _ = self.runtime().wait(Activity::Request, &mut NoBuffers, |engine, _| {
            (!engine.has_outgoing() || Instant::now() >= until).then_some(Ok(()))
        });
    }

    /// Starts a collective operation; whoever makes progress on this rank then carries it on, as it does sends and receives.
    /// Calls count in the order in which they are started, and several may be under way. `finish` makes the request's result
    /// out of the machine, once that is done.
    ///
    /// # Errors
    /// As for [`Communicator::run`]. What happens later is reported by the request.
    pub fn start<M: Machine + Send + 'static, R>(
        &self,
        call: Call,
        machine: M,
        finish: impl FnOnce(Result<M>) -> Result<R> + Send + 'static,
    ) -> Result<CollectiveRequest<R>> {
        CollectiveRequest::start(self, call, machine, finish)
    }
}

/// Gives up what is under way if the call ends early, by an error or a panic.
struct Guard<'a> {
    communicator: &'a Communicator,
    flight: Flight,
    over: bool,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if !self.over {
            self.flight.give_up(&mut self.communicator.runtime().lock());
        }
    }
}
