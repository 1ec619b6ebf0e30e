//! What a link's thread waits for: orders, and room for what it has to write.

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

/// What a link's thread is told.
#[derive(Debug)]
pub(super) enum Order {
    Send(Vec<u8>),
    Close,
}

/// Orders for the thread, and what wakes it from its poll.
pub(super) struct Inbox {
    inbox: Receiver<Order>,
    pub(super) waker: Waker,
}

impl Inbox {
    pub(super) fn new(inbox: Receiver<Order>, waker: Waker) -> Self {
        Self { inbox, waker }
    }

    /// Takes all orders: frames are appended to `outgoing`. `true`: the link must end.
    pub(super) fn take(&self, outgoing: &mut Outgoing) -> bool {
        self.waker.reset();
        loop {
            match self.inbox.try_recv() {
                Ok(Order::Send(frame)) => outgoing.push(&frame),
                Ok(Order::Close) | Err(std::sync::mpsc::TryRecvError::Disconnected) => return true,
                Err(std::sync::mpsc::TryRecvError::Empty) => return false,
            }
        }
    }

    /// Waits for the pause to end; `true`: the link must end.
    pub(super) fn closed_within(&self, pause: Duration) -> bool {
        let until = Instant::now() + pause;
        // Nothing is sent to an agent that has not spoken.
        let mut outgoing = Outgoing::default();
        loop {
            if self.take(&mut outgoing) {
                return true;
            }
            let left = until.saturating_duration_since(Instant::now());
            let mut fds = [PollFd::new(&self.waker, PollFlags::IN)];
            if left.is_zero() || poll_for(&mut fds, Some(left)).is_err() {
                return false;
            }
        }
    }
}

/// Bytes that wait to be written.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    bytes: Vec<u8>,
    written: usize,
}

impl Outgoing {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if self.written == self.bytes.len() {
            self.bytes.clear();
            self.written = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.written
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes as much as `write` takes without blocking.
    pub(crate) fn flush(&mut self, mut write: impl FnMut(&[u8]) -> io::Result<usize>) -> io::Result<usize> {
        let before = self.len();
        while !self.is_empty() {
            match write(&self.bytes[self.written..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => self.written += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        // What has been written is given back when it is the larger part.
        if self.written > self.len() {
            self.bytes.drain(..self.written);
            self.written = 0;
        }
        Ok(before - self.len())
    }
}

/// Wakes a thread from `poll`.
#[derive(Clone, Debug)]
pub(crate) struct Waker(Arc<OwnedFd>);

impl Waker {
    /// A waker that has not been used.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)))
    }

    /// Makes the descriptor readable until the thread that waits for it has looked.
    pub(crate) fn wake(&self) {
        // Fails only when the counter is full: then it is readable already.
        let _ = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
    }

    fn reset(&self) {
        let _ = rustix::io::read(&*self.0, &mut [0_u8; 8]);
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// `poll` that is not ended by signals; `true` when something is ready, `false` when the time is over.
pub(super) fn poll_for(fds: &mut [PollFd<'_>], timeout: Option<Duration>) -> io::Result<bool> {
    let timeout = timeout.and_then(|t| Timespec::try_from(t).ok());
    match poll(fds, timeout.as_ref()) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

pub(super) fn is_ready(fd: &PollFd<'_>) -> bool {
    !(fd.revents() & (PollFlags::IN | PollFlags::OUT | PollFlags::HUP | PollFlags::ERR)).is_empty()
}
