//! Requests of non-blocking sends and receives. They own their buffers while the operation is under way, so that
//! forgetting a request cannot free memory in use.

use super::{Communicator, Status, buffer::Growing, expected};
use crate::{
    element::{self, Element},
    engine::operation::{Landing, NoBuffers, OperationId, OwnedBuffer, Source as From_},
    error::Result,
    matching::Pattern,
    memory::Activity,
    transport::record::Header,
};
use std::marker::PhantomData;

impl Communicator {
    pub(super) fn start_send<T: Element>(&self, data: Vec<T>, peer: usize, header: Header) -> Result<SendRequest<T>> {
        let mut engine = self.runtime().lock();
        let state = if engine.try_send(peer, header, element::as_bytes(&data), self.inner.hint.of_message(), true)? {
            State::Sent(data)
        } else {
            let id =
                engine.start_send(peer, header, self.inner.hint.of_message(), From_::Owned(Box::new(Growing(data))))?;
            // What can leave now leaves now, not when this rank next waits.
            engine.progress(&mut NoBuffers)?;
            State::UnderWay(id)
        };
        drop(engine);
        Ok(SendRequest { communicator: self.clone(), state })
    }

    pub(super) fn start_receive<T: Element>(
        &self,
        buffer: Growing<T>,
        pattern: Pattern,
        growing: bool,
    ) -> Result<RecvRequest<T>> {
        let expected = expected::<T>(buffer.bytes().len(), false);
        let buffer: Box<dyn OwnedBuffer> = Box::new(buffer);
        let landing = if growing { Landing::Growing(buffer) } else { Landing::Owned(buffer) };
        let mut engine = self.runtime().lock();
        let id = engine.start_receive(self.inner.context, pattern, expected, landing, &mut NoBuffers)?;
        drop(engine);
        Ok(RecvRequest { communicator: self.clone(), id, element: PhantomData })
    }
}

/// The vector in a buffer that an operation gave back.
fn unwrap<T: Element>(buffer: Option<Box<dyn OwnedBuffer>>) -> Vec<T> {
    buffer
        .and_then(|buffer| buffer.into_any().downcast::<Growing<T>>().ok())
        .map_or_else(|| unreachable!("a request's operation owns the vector it was made with"), |buffer| buffer.0)
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
    /// It left at once.
    Sent(Vec<T>),
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
            State::Sent(data) => {
                // It may have been kept to leave together with others: the wait ends that.
                let mut engine = self.communicator.runtime().lock();
                if engine.is_unflushed() {
                    engine.progress(&mut NoBuffers)?;
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

/// A receive under way. Dropping it withdraws it.
#[derive(Debug)]
#[must_use = "a message is received only after wait or test"]
pub struct RecvRequest<T: Element> {
    communicator: Communicator,
    id: OperationId,
    element: PhantomData<fn() -> T>,
}

impl<T: Element> RecvRequest<T> {
    /// Waits for the message; gives the buffer back, with the message in its front.
    ///
    /// # Errors
    /// As for [`Communicator::recv`].
    pub fn wait(self) -> Result<(Vec<T>, Status)> {
        let id = self.id;
        let (envelope, buffer) =
            self.communicator
                .runtime()
                .wait(Activity::Request, &mut NoBuffers, |engine, none| engine.take_receive(id, none))?;
        Ok((unwrap(buffer), self.communicator.status(&envelope)))
    }

    /// Buffer and status if the message has come, else the request.
    ///
    /// # Errors
    /// As for [`Communicator::recv`].
    pub fn test(self) -> Result<std::result::Result<(Vec<T>, Status), Self>> {
        let runtime = self.communicator.runtime();
        runtime.poke()?;
        let done = runtime.lock().take_receive(self.id, &mut NoBuffers);
        match done {
            Some(result) => result.map(|(envelope, buffer)| Ok((unwrap(buffer), self.communicator.status(&envelope)))),
            None => Ok(Err(self)),
        }
    }
}

impl<T: Element> Drop for RecvRequest<T> {
    fn drop(&mut self) {
        self.communicator.runtime().lock().abandon_receive(self.id);
    }
}
