//! Requests that are made once and started many times: the arguments are checked once, and the buffer stays the same.
//!
//! Started, a request is another type that has no buffer: nobody can touch what is being sent or received, and no state
//! needs checking when the program runs.

use super::{
    Communicator, RecvRequest, SendRequest, Source, Status, Tag, check_tag,
    completion::{Handle, Handled, Request},
};
use crate::{element::Element, error::Result, matching::Pattern, transport::record::Header};

impl Communicator {
    /// A send that can be started again and again, each time with what the buffer holds then.
    ///
    /// ```
    /// spmd::local::run(2, |world| {
    ///     let comm = world.communicator();
    ///     let peer = 1 - comm.rank();
    ///     let mut send = comm.send_init(vec![0_u32; 4], peer, 0).unwrap();
    ///     let mut receive = comm.recv_init(vec![0_u32; 4], peer, 0).unwrap();
    ///     for step in 0..3 {
    ///         send.data_mut().fill(step);
    ///         let (sending, receiving) = (send.start().unwrap(), receive.start().unwrap());
    ///         (receive, _) = receiving.wait().unwrap();
    ///         send = sending.wait().unwrap();
    ///         assert_eq!(receive.buffer(), [step; 4]);
    ///     }
    /// });
    /// ```
    ///
    /// # Errors
    /// When `dest` or `tag` does not exist.
    pub fn send_init<T: Element>(&self, data: Vec<T>, dest: usize, tag: i32) -> Result<PersistentSend<T>> {
        let peer = self.peer(dest, "send_init")?;
        let header = self.header::<T>(data.len(), check_tag(tag, "send_init")?);
        Ok(PersistentSend { call: SendCall { communicator: self.clone(), peer, header, synchronous: false }, data })
    }

    /// As [`Communicator::send_init`]; each start completes only when a receive has taken the message.
    ///
    /// # Errors
    /// As for [`Communicator::send_init`].
    pub fn ssend_init<T: Element>(&self, data: Vec<T>, dest: usize, tag: i32) -> Result<PersistentSend<T>> {
        let mut send = self.send_init(data, dest, tag)?;
        send.call.synchronous = true;
        Ok(send)
    }

    /// A receive of at most `buffer.len()` elements that can be started again and again.
    ///
    /// # Errors
    /// When `source` or `tag` does not exist.
    pub fn recv_init<T: Element>(
        &self,
        buffer: Vec<T>,
        source: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<PersistentRecv<T>> {
        let pattern = self.pattern(source.into(), tag.into(), "recv_init")?;
        Ok(PersistentRecv { call: RecvCall { communicator: self.clone(), pattern }, buffer })
    }
}

#[derive(Clone, Debug)]
struct SendCall {
    communicator: Communicator,
    peer: usize,
    header: Header,
    synchronous: bool,
}

#[derive(Clone, Debug)]
struct RecvCall {
    communicator: Communicator,
    pattern: Pattern,
}

/// A send that is not under way: see [`Communicator::send_init`].
#[derive(Clone, Debug)]
pub struct PersistentSend<T: Element> {
    call: SendCall,
    data: Vec<T>,
}

impl<T: Element> PersistentSend<T> {
    /// What is sent next.
    #[must_use]
    pub fn data(&self) -> &[T] {
        &self.data
    }

    /// What is sent next, to be changed.
    #[must_use]
    pub fn data_mut(&mut self) -> &mut [T] {
        &mut self.data
    }

    /// Begins to send.
    ///
    /// # Errors
    /// As for [`Communicator::send`]; the request is gone then.
    pub fn start(self) -> Result<StartedSend<T>> {
        let PersistentSend { call, data } = self;
        let request = if call.synchronous {
            call.communicator.start_synchronous_send(data, call.peer, call.header)?
        } else {
            call.communicator.start_send(data, call.peer, call.header)?
        };
        Ok(StartedSend { call, request })
    }
}

/// A persistent send under way. Dropping it does not stop the send.
#[derive(Debug)]
#[must_use = "a send is complete only after wait or test"]
pub struct StartedSend<T: Element> {
    call: SendCall,
    request: SendRequest<T>,
}

impl<T: Element> StartedSend<T> {
    /// Waits until the message is sent.
    ///
    /// # Errors
    /// As for [`SendRequest::wait`]; the request is gone then.
    pub fn wait(self) -> Result<PersistentSend<T>> {
        let StartedSend { call, request } = self;
        Ok(PersistentSend { call, data: request.wait()? })
    }

    /// The request, ready to be started again, if the message is sent; else as it is.
    ///
    /// # Errors
    /// As for [`SendRequest::wait`]; the request is gone then.
    pub fn test(self) -> Result<std::result::Result<PersistentSend<T>, Self>> {
        let StartedSend { call, request } = self;
        Ok(match request.test()? {
            Ok(data) => Ok(PersistentSend { call, data }),
            Err(request) => Err(StartedSend { call, request }),
        })
    }
}

impl<T: Element> Handled for StartedSend<T> {
    fn handle(&self) -> Handle<'_> {
        self.request.handle()
    }
}

impl<T: Element> Request for StartedSend<T> {}

/// A receive that is not under way: see [`Communicator::recv_init`].
#[derive(Clone, Debug)]
pub struct PersistentRecv<T: Element> {
    call: RecvCall,
    buffer: Vec<T>,
}

impl<T: Element> PersistentRecv<T> {
    /// The buffer, with what was received last in its front.
    #[must_use]
    pub fn buffer(&self) -> &[T] {
        &self.buffer
    }

    /// The buffer, to be changed.
    #[must_use]
    pub fn buffer_mut(&mut self) -> &mut [T] {
        &mut self.buffer
    }

    /// Begins to receive.
    ///
    /// # Errors
    /// As for [`Communicator::recv`]; the request is gone then.
    pub fn start(self) -> Result<StartedRecv<T>> {
        let PersistentRecv { call, buffer } = self;
        let request = call.communicator.start_receive(buffer, call.pattern, false)?;
        Ok(StartedRecv { call, request })
    }
}

/// A persistent receive under way. Dropping it withdraws it, as with [`RecvRequest`].
#[derive(Debug)]
#[must_use = "a message is received only after wait or test"]
pub struct StartedRecv<T: Element> {
    call: RecvCall,
    request: RecvRequest<T>,
}

impl<T: Element> StartedRecv<T> {
    /// Waits for the message.
    ///
    /// # Errors
    /// As for [`Communicator::recv`]; the request is gone then.
    pub fn wait(self) -> Result<(PersistentRecv<T>, Status)> {
        let StartedRecv { call, request } = self;
        let (buffer, status) = request.wait()?;
        Ok((PersistentRecv { call, buffer }, status))
    }

    /// The request, ready to be started again, and the status, if the message has come; else the request as it is.
    ///
    /// # Errors
    /// As for [`Communicator::recv`]; the request is gone then.
    pub fn test(self) -> Result<std::result::Result<(PersistentRecv<T>, Status), Self>> {
        let StartedRecv { call, request } = self;
        Ok(match request.test()? {
            Ok((buffer, status)) => Ok((PersistentRecv { call, buffer }, status)),
            Err(request) => Err(StartedRecv { call, request }),
        })
    }
}

impl<T: Element> Handled for StartedRecv<T> {
    fn handle(&self) -> Handle<'_> {
        self.request.handle()
    }
}

impl<T: Element> Request for StartedRecv<T> {}
