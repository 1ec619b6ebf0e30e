//! Looking for messages before receiving them.

use super::{Communicator, RecvRequest, Source, Status, Tag};
use crate::{
    element::Element,
    engine::{
        Found,
        operation::{Envelope, NoBuffers},
    },
    error::Result,
    memory::Activity,
};

impl Communicator {
    /// Waits until a message is there that a receive with these arguments would take, and leaves it there. With several
    /// threads another one may receive it first: see [`Communicator::mprobe`].
    ///
    /// # Errors
    /// As for [`Communicator::recv`].
    pub fn probe(&self, source: impl Into<Source>, tag: impl Into<Tag>) -> Result<Status> {
        let pattern = self.pattern(source.into(), tag.into(), "probe")?;
        let context = self.inner.context;
        let (from, tag) = Self::shown(pattern);
        let activity = Activity::Probe { from, tag };
        self.runtime().poke()?;
        self.runtime()
            .wait(activity, &mut NoBuffers, |engine, _| engine.probe(context, pattern).transpose())
            .map(|envelope| self.status(&envelope))
    }

    /// As [`Communicator::probe`], without waiting.
    ///
    /// # Errors
    /// As for [`Communicator::recv`].
    pub fn iprobe(&self, source: impl Into<Source>, tag: impl Into<Tag>) -> Result<Option<Status>> {
        let pattern = self.pattern(source.into(), tag.into(), "iprobe")?;
        self.runtime().poke()?;
        let found = self.runtime().lock().probe(self.inner.context, pattern)?;
        Ok(found.map(|envelope| self.status(&envelope)))
    }

    /// Waits until a message is there and takes it: nobody else can find or receive it (a matched probe).
    ///
    /// # Errors
    /// As for [`Communicator::recv`].
    pub fn mprobe(&self, source: impl Into<Source>, tag: impl Into<Tag>) -> Result<Message> {
        let pattern = self.pattern(source.into(), tag.into(), "mprobe")?;
        let context = self.inner.context;
        let (from, tag) = Self::shown(pattern);
        let activity = Activity::Probe { from, tag };
        self.runtime().poke()?;
        let found =
            self.runtime().wait(activity, &mut NoBuffers, |engine, _| engine.find(context, pattern).transpose())?;
        Ok(self.message(found))
    }

    /// As [`Communicator::mprobe`], without waiting.
    ///
    /// # Errors
    /// As for [`Communicator::recv`].
    pub fn improbe(&self, source: impl Into<Source>, tag: impl Into<Tag>) -> Result<Option<Message>> {
        let pattern = self.pattern(source.into(), tag.into(), "improbe")?;
        self.runtime().poke()?;
        let found = self.runtime().lock().find(self.inner.context, pattern)?;
        Ok(found.map(|found| self.message(found)))
    }

    fn message(&self, found: Found) -> Message {
        let envelope = Envelope { source: found.source, tag: found.tag, bytes: found.message.total };
        Message { communicator: self.clone(), status: self.status(&envelope), found: Some(found) }
    }
}

/// A message that a matched probe has taken: it is received exactly once. Dropping it puts it back at its old place, for
/// others to find and receive.
#[derive(Debug)]
#[must_use = "a message that is dropped waits again"]
pub struct Message {
    communicator: Communicator,
    status: Status,
    /// Taken when it is received.
    found: Option<Found>,
}

impl Message {
    /// Its source, tag and length.
    #[must_use]
    pub fn status(&self) -> Status {
        self.status
    }

    /// Receives it into the front of `buffer`.
    ///
    /// # Errors
    /// As for [`Communicator::recv`]; the message is gone then.
    pub fn recv<T: Element>(mut self, buffer: &mut [T]) -> Result<Status> {
        let found = self.take();
        let comm = &self.communicator;
        comm.receive_into(buffer, Activity::Request, |engine, expected, landing, lent| {
            engine.receive_found(comm.inner.context, found, expected, landing, lent)
        })
    }

    /// Receives it whole.
    ///
    /// # Errors
    /// As for [`Communicator::recv`]; the message is gone then.
    pub fn recv_vec<T: Element>(mut self) -> Result<(Vec<T>, Status)> {
        let found = self.take();
        self.communicator.receive_found(Vec::<T>::new(), found, true)?.wait()
    }

    /// Begins to receive it into the front of `buffer`.
    ///
    /// # Errors
    /// As for [`Communicator::recv`]; the message is gone then.
    pub fn irecv<T: Element>(mut self, buffer: Vec<T>) -> Result<RecvRequest<T>> {
        let found = self.take();
        self.communicator.receive_found(buffer, found, false)
    }

    fn take(&mut self) -> Found {
        self.found.take().unwrap_or_else(|| unreachable!("whoever receives a message consumes it"))
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        if let Some(found) = self.found.take() {
            self.communicator.runtime().lock().put_back(self.communicator.inner.context, found);
        }
    }
}
