//! Collective operations that own their buffers and are carried on by whoever makes progress.

use super::{Call, Machine, State, flight::Flight};
use crate::{
    comm::{
        Communicator,
        completion::{Handle, Handled, Request},
    },
    engine::{
        Engine,
        operation::{Buffers, Lent, NoBuffers},
        tasks::{Task, TaskId},
    },
    error::Result,
    memory::Activity,
};
use std::{any::Any, fmt};

/// A collective operation under way, which gives an `R` in the end. Dropping it does not stop the operation, which the
/// other ranks rely on.
#[must_use = "a collective is complete only after wait or test"]
pub struct CollectiveRequest<R> {
    communicator: Communicator,
    id: TaskId,
    finish: Option<Finish<R>>,
}

/// Makes the result out of the task, once that is over.
type Finish<R> = Box<dyn FnOnce(Result<Box<dyn Task>>) -> Result<R> + Send>;

/// What the engine carries on.
struct Underway<M> {
    flight: Flight,
    machine: M,
}

impl<M: Machine + Send> Buffers for Underway<M> {
    fn source(&self, lent: Lent) -> Option<&[u8]> {
        (lent.call == self.flight.lender).then(|| self.machine.source(lent.number))
    }

    fn destination(&mut self, lent: Lent) -> Option<&mut [u8]> {
        (lent.call == self.flight.lender).then(|| self.machine.destination(lent.number))
    }
}

impl<M: Machine + Send + 'static> Task for Underway<M> {
    fn go_on(&mut self, engine: &mut Engine) -> Option<Result<()>> {
        loop {
            match self.flight.go_on(engine, &mut self.machine)? {
                Ok(()) if self.machine.state() == State::Works => self.machine.work(),
                Ok(()) => return Some(Ok(())),
                Err(error) => {
                    self.flight.give_up(engine);
                    return Some(Err(error));
                }
            }
        }
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any + Send> {
        self
    }
}

impl<R> CollectiveRequest<R> {
    pub(super) fn start<M: Machine + Send + 'static>(
        communicator: &Communicator,
        call: Call,
        machine: M,
        finish: impl FnOnce(Result<M>) -> Result<R> + Send + 'static,
    ) -> Result<Self> {
        let hint = communicator.inner.hint.of_message();
        let mut engine = communicator.runtime().lock();
        let flight = match Flight::begin(&mut engine, &communicator.inner.calls, call, hint) {
            Ok(flight) => flight,
            Err(error) => {
                drop(engine);
                communicator.send_off(&error);
                return Err(error);
            }
        };
        let id = engine.start_task(Box::new(Underway { flight, machine }));
        let finish: Finish<R> = Box::new(|task| finish(task.map(machine_of)));
        let request = CollectiveRequest { communicator: communicator.clone(), id, finish: Some(finish) };
        // What can leave now leaves now, not when this rank next waits.
        let progressed = engine.progress(&mut NoBuffers);
        drop(engine);
        progressed.map(|_| request)
    }

    /// Waits until this rank's part is done.
    ///
    /// # Errors
    /// As for [`Communicator::run`].
    pub fn wait(mut self) -> Result<R> {
        let id = self.id;
        let runtime = self.communicator.runtime();
        let mut is_over = false;
        let task = runtime.wait(Activity::Request, &mut NoBuffers, |engine, _| {
            let task = engine.take_task(id);
            is_over = task.is_some();
            task
        });
        if let Err(error) = &task {
            self.communicator.send_off(error);
        }
        match (task, is_over) {
            (Err(error), false) => Err(error),
            (task, _) => self.finish(task),
        }
    }

    /// The result if this rank's part is done, else the request.
    ///
    /// # Errors
    /// As for [`Communicator::run`].
    pub fn test(mut self) -> Result<std::result::Result<R, Self>> {
        let runtime = self.communicator.runtime();
        runtime.poke()?;
        let done = runtime.lock().take_task(self.id);
        match done {
            Some(task) => {
                if let Err(error) = &task {
                    self.communicator.send_off(error);
                }
                self.finish(task).map(Ok)
            }
            None => Ok(Err(self)),
        }
    }

    fn finish(&mut self, task: Result<Box<dyn Task>>) -> Result<R> {
        match self.finish.take() {
            Some(finish) => finish(task),
            None => unreachable!("only wait and test end a request, and they consume it"),
        }
    }
}

/// The machine of a task that has been taken back.
fn machine_of<M: Machine + Send + 'static>(task: Box<dyn Task>) -> M {
    match task.into_any().downcast::<Underway<M>>() {
        Ok(underway) => underway.machine,
        Err(_) => unreachable!("a request's task has the machine that it was made with"),
    }
}

impl<R> Drop for CollectiveRequest<R> {
    fn drop(&mut self) {
        let forgotten = self.communicator.runtime().lock().forget_task(self.id);
        // Outside the lock: a machine may own a communicator.
        drop(forgotten);
    }
}

impl<R> fmt::Debug for CollectiveRequest<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CollectiveRequest").field("id", &self.id).finish_non_exhaustive()
    }
}

impl<R> Handled for CollectiveRequest<R> {
    fn handle(&self) -> Handle<'_> {
        Handle { runtime: self.communicator.runtime(), send: None, receive: None, task: Some(self.id) }
    }
}

impl<R> Request for CollectiveRequest<R> {}
