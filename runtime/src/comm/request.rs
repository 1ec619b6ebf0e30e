//! Requests of non-blocking sends and receives. They own their buffers while the operation is under way, so that
//! forgetting a request cannot free memory in use.

use super::{
    Communicator, Status,
    buffer::lend,
    completion::{Handle, Handled, Request},
    expected,
};
use crate::{
    element::Element,
    engine::{
        Found,
        operation::{Expected, Landing, NoBuffers, OperationId, Source as From_},
        vector::AnyVec,
    },
    error::Result,
    matching::Pattern,
    memory::Activity,
    transport::record::Header,
};
use std::marker::PhantomData;

impl Communicator {
    pub(super) fn start_send<T: Element>(&self, data: Vec<T>, peer: usize, header: Header) -> Result<SendRequest<T>> {
        let mut engine = self.runtime().lock();
        let hint = self.inner.hint.of_message();
        let state = if engine.try_send(peer, header, &lend(&data), hint, true)? {
            State::Sent { data, waits: engine.is_unflushed() }
        } else {
            let id = engine.start_send(peer, header, hint, From_::Owned(AnyVec::new(data)))?;
            // What can leave now leaves now, not when this rank next waits.
            engine.progress(&mut NoBuffers)?;
            State::UnderWay(id)
        };
        drop(engine);
        Ok(SendRequest { communicator: self.clone(), state })
    }

    pub(super) fn start_synchronous_send<T: Element>(
        &self,
        data: Vec<T>,
        peer: usize,
        header: Header,
    ) -> Result<SendRequest<T>> {
        let mut engine = self.runtime().lock();
        let id = engine.start_synchronous_send(peer, header, From_::Owned(AnyVec::new(data)))?;
        engine.progress(&mut NoBuffers)?;
        drop(engine);
        Ok(SendRequest { communicator: self.clone(), state: State::UnderWay(id) })
    }

    pub(super) fn start_receive<T: Element>(
        &self,
        buffer: Vec<T>,
        pattern: Pattern,
        growing: bool,
    ) -> Result<RecvRequest<T>> {
        let (expected, landing) = landing(buffer, growing);
        let mut engine = self.runtime().lock();
        let id = engine.start_receive(self.inner.context, pattern, expected, landing, &mut NoBuffers)?;
        drop(engine);
        Ok(RecvRequest { communicator: self.clone(), id: Some(id), element: PhantomData })
    }

    pub(super) fn receive_found<T: Element>(
        &self,
        buffer: Vec<T>,
        found: Found,
        growing: bool,
    ) -> Result<RecvRequest<T>> {
        let (expected, landing) = landing(buffer, growing);
        let mut engine = self.runtime().lock();
        let id = engine.receive_found(self.inner.context, found, expected, landing, &mut NoBuffers)?;
        drop(engine);
        Ok(RecvRequest { communicator: self.clone(), id: Some(id), element: PhantomData })
    }
}

/// A buffer as the engine takes it. `growing`: it becomes as long as the message.
fn landing<T: Element>(buffer: Vec<T>, growing: bool) -> (Expected, Landing) {
    let buffer = AnyVec::new(buffer);
    let expected = expected::<T>(buffer.bytes().len(), false);
    (expected, if growing { Landing::Growing(buffer) } else { Landing::Owned(buffer) })
}

/// The vector in a buffer that an operation gave back.
fn unwrap<T: Element>(buffer: Option<AnyVec>) -> Vec<T> {
    buffer.map_or_else(|| unreachable!("a request's operation owns the vector it was made with"), AnyVec::into_elements)
}

/// A send under way. Dropping it does not stop the send.
#[derive(Debug)]
#[must_use = "a send is complete only after wait or test"]
pub struct SendRequest<T: Element> {
    communicator: Communicator,
    state: State<T>,
}

#[derive(Debug)]
enum State<T> {
    /// It left at once, or `waits` to leave together with others.
    Sent {
        data: Vec<T>,
        waits: bool,
    },
    UnderWay(OperationId),
    /// The buffer has been given back.
    Over,
}

impl<T: Element> SendRequest<T> {
    /// Waits until the message is sent and gives the buffer back.
    ///
    /// # Errors
    /// When the receiver is lost or has dropped its world.
    pub fn wait(mut self) -> Result<Vec<T>> {
        match std::mem::replace(&mut self.state, State::Over) {
            State::Sent { data, waits } => {
                if waits {
                    let mut engine = self.communicator.runtime().lock();
                    // Another call may have let it go.
                    if engine.is_unflushed() {
                        engine.progress(&mut NoBuffers)?;
                    }
                }
                Ok(data)
            }
            State::UnderWay(id) => {
                let sent = self
                    .communicator
                    .runtime()
                    .wait(Activity::Request, &mut NoBuffers, |engine, _| engine.take_send(id));
                if sent.is_err() {
                    self.state = State::UnderWay(id);
                }
                sent.map(unwrap)
            }
            State::Over => unreachable!("only wait and test end a request, and they consume it"),
        }
    }

    /// The buffer if the message is sent, else the request.
    ///
    /// # Errors
    /// As for [`SendRequest::wait`].
    pub fn test(self) -> Result<std::result::Result<Vec<T>, Self>> {
        if let State::UnderWay(id) = self.state {
            let runtime = self.communicator.runtime();
            runtime.poke()?;
            let done = runtime.lock().take_send(id);
            return match done {
                Some(result) => result.map(|buffer| Ok(unwrap(buffer))),
                None => Ok(Err(self)),
            };
        }
        self.wait().map(Ok)
    }
}

impl<T: Element> Drop for SendRequest<T> {
    fn drop(&mut self) {
        if let State::UnderWay(id) = self.state {
            self.communicator.runtime().lock().abandon_send(id);
        }
    }
}

impl<T: Element> Handled for SendRequest<T> {
    fn handle(&self) -> Handle<'_> {
        match self.state {
            State::UnderWay(id) => {
                Handle { runtime: self.communicator.runtime(), send: Some(id), receive: None, task: None }
            }
            State::Sent { .. } | State::Over => {
                Handle { runtime: self.communicator.runtime(), send: None, receive: None, task: None }
            }
        }
    }
}

impl<T: Element> Request for SendRequest<T> {}

/// A receive under way. Dropping it withdraws it: its message goes to the next receive, at its old place, even if it is
/// arriving or has arrived. Only a message that did not fit (too long, another type) has ended with this receive, whose
/// error nobody has seen then.
#[derive(Debug)]
#[must_use = "a message is received only after wait or test"]
pub struct RecvRequest<T: Element> {
    communicator: Communicator,
    /// None once its outcome has been given out.
    id: Option<OperationId>,
    element: PhantomData<fn() -> T>,
}

impl<T: Element> RecvRequest<T> {
    /// Waits for the message; gives the buffer back, with the message in its front.
    ///
    /// # Errors
    /// As for [`Communicator::recv`].
    pub fn wait(mut self) -> Result<(Vec<T>, Status)> {
        let id = self.id.unwrap_or_else(|| unreachable!("only wait and test end a request, and they consume it"));
        let (envelope, buffer) =
            self.communicator
                .runtime()
                .wait(Activity::Request, &mut NoBuffers, |engine, none| engine.take_receive(id, none))?;
        self.id = None;
        Ok((unwrap(buffer), self.communicator.status(&envelope)))
    }

    /// Buffer and status if the message has come, else the request.
    ///
    /// # Errors
    /// As for [`Communicator::recv`].
    pub fn test(mut self) -> Result<std::result::Result<(Vec<T>, Status), Self>> {
        let runtime = self.communicator.runtime();
        runtime.poke()?;
        let done = self.id.and_then(|id| runtime.lock().take_receive(id, &mut NoBuffers));
        let Some(result) = done else { return Ok(Err(self)) };
        self.id = None;
        result.map(|(envelope, buffer)| Ok((unwrap(buffer), self.communicator.status(&envelope))))
    }
}

impl<T: Element> RecvRequest<T> {
    /// Withdraws the receive. When a message has met it already, the receive completes instead, as in MPI: this waits for
    /// the rest of the message and returns it.
    ///
    /// # Errors
    /// As for [`Communicator::recv`], when a message has met it.
    pub fn cancel(self) -> Result<Cancelled<T>> {
        let withdrawn = self.id.and_then(|id| self.communicator.runtime().lock().cancel_receive(id));
        match withdrawn {
            Some(buffer) => Ok(Cancelled::Withdrawn(unwrap(Some(buffer)))),
            None => self.wait().map(|(buffer, status)| Cancelled::Received(buffer, status)),
        }
    }
}

/// What became of a receive that was cancelled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cancelled<T> {
    /// No message had met it: the buffer, unchanged.
    Withdrawn(Vec<T>),
    /// A message had: the buffer with the message in its front.
    Received(Vec<T>, Status),
}

impl<T: Element> Handled for RecvRequest<T> {
    fn handle(&self) -> Handle<'_> {
        Handle { runtime: self.communicator.runtime(), send: None, receive: self.id, task: None }
    }
}

impl<T: Element> Request for RecvRequest<T> {}

impl<T: Element> Drop for RecvRequest<T> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.communicator.runtime().lock().abandon_receive(id);
        }
    }
}
