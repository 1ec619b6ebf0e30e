//! An open connection to one peer: records in both directions over a non-blocking socket.

use crate::{
    error::{Error, Result},
    transport::{
        Departure, Sink,
        record::{HEADER, Header, Kind, Payload},
    },
};
use rustix::io::Errno;
use std::{
    io::IoSlice,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

/// Bytes taken from one peer in one poll, in units of the read buffer: others get their turn.
const BURST: usize = 4;

/// Bytes that are kept for one system call.
const KEPT: usize = 64 << 10;

#[derive(Debug)]
pub(super) struct Connection {
    socket: OwnedFd,
    peer: usize,
    /// Bytes read and not yet delivered: `input[start..end]`.
    input: Vec<u8>,
    start: usize,
    end: usize,
    /// What the kernel has not taken yet: at most [`KEPT`] bytes and one record.
    unsent: Vec<u8>,
    unsent_from: usize,
    said_bye: bool,
    heard_bye: bool,
}

/// How a connection is after it was looked at.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum State {
    Quiet,
    Moved,
    Gone,
}

impl Connection {
    pub(super) fn new(socket: OwnedFd, peer: usize, buffer: usize) -> Self {
        Connection {
            socket,
            peer,
            input: vec![0; buffer],
            start: 0,
            end: 0,
            unsent: Vec::new(),
            unsent_from: 0,
            said_bye: false,
            heard_bye: false,
        }
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether the kernel has not taken everything.
    pub(super) fn has_unsent(&self) -> bool {
        self.unsent_from < self.unsent.len()
    }

    /// Sends a record; `false` when too much is kept already. `later`: it may be kept until the next flush, to leave with
    /// others in one system call. A broken connection takes nothing any more: reading from it tells why.
    pub(super) fn push(&mut self, header: &Header, payload: &[u8], later: bool) -> bool {
        if self.unsent.len() - self.unsent_from >= KEPT {
            self.flush();
            if self.unsent.len() - self.unsent_from >= KEPT {
                return false;
            }
        }
        let head = bytemuck::bytes_of(header);
        let mut taken = 0;
        if !later && !self.has_unsent() {
            let parts = [IoSlice::new(head), IoSlice::new(payload)];
            let mut control = rustix::net::SendAncillaryBuffer::default();
            match rustix::net::sendmsg(&self.socket, &parts, &mut control, rustix::net::SendFlags::NOSIGNAL) {
                Ok(sent) => taken = sent,
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(_) => return false,
            }
        }
        if !self.has_unsent() {
            self.unsent.clear();
            self.unsent_from = 0;
        }
        self.unsent.extend_from_slice(head.get(taken..).unwrap_or_default());
        self.unsent.extend_from_slice(&payload[taken.saturating_sub(head.len())..]);
        if !later {
            self.flush();
        }
        true
    }

    /// Gives the kernel what it did not take before; `true` when anything moved.
    pub(super) fn flush(&mut self) -> bool {
        let mut moved = false;
        while self.has_unsent() {
            match rustix::net::send(&self.socket, &self.unsent[self.unsent_from..], rustix::net::SendFlags::NOSIGNAL) {
                Ok(taken) => {
                    self.unsent_from += taken;
                    moved = true;
                }
                Err(_) => break,
            }
        }
        moved
    }

    /// Reads and delivers what has arrived.
    pub(super) fn poll(&mut self, sink: &mut dyn Sink) -> Result<State> {
        let mut state = State::Quiet;
        for _ in 0..BURST {
            self.make_room();
            let read =
                match rustix::net::recv(&self.socket, &mut self.input[self.end..], rustix::net::RecvFlags::empty()) {
                    Ok((_, read)) => read,
                    Err(Errno::INTR) => continue,
                    Err(Errno::AGAIN) => return Ok(state),
                    Err(error) => {
                        return Ok(self.gone(sink, &format!("the connection broke: {}", std::io::Error::from(error))));
                    }
                };
            if read == 0 {
                return Ok(self.gone(sink, "the connection was closed"));
            }
            self.end += read;
            state = State::Moved;
            self.deliver(sink)?;
            if self.end < self.input.len() {
                return Ok(state);
            }
        }
        Ok(state)
    }

    fn gone(&mut self, sink: &mut dyn Sink, why: &str) -> State {
        if !self.heard_bye {
            sink.departed(self.peer, Departure::Lost(why.to_string()));
        }
        State::Gone
    }

    /// Moves an incomplete record to the front, so that its rest fits.
    fn make_room(&mut self) {
        if self.start > 0 {
            self.input.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
    }

    fn deliver(&mut self, sink: &mut dyn Sink) -> Result<()> {
        let corrupt = |what| Error::Corrupt { peer: self.peer, what };
        while let Some((head, rest)) = self.input[self.start..self.end].split_first_chunk::<HEADER>() {
            let header = Header::from_bytes(head);
            let length = header.payload as usize;
            let kind = Kind::from_byte(header.kind).ok_or(corrupt("unknown kind"))?;
            if length > self.input.len() - HEADER {
                return Err(corrupt("a record longer than any"));
            }
            let Some(mut payload) = rest.get(..length) else { break };
            if kind == Kind::Bye {
                self.heard_bye = true;
                sink.departed(self.peer, Departure::Finished);
            } else {
                sink.record(self.peer, &header, &mut payload as &mut dyn Payload)?;
            }
            self.start += HEADER + length;
        }
        Ok(())
    }

    /// Says that nothing more comes; `true` when the peer's kernel has acknowledged every byte, so that nothing is lost
    /// when this process exits.
    pub(super) fn finish(&mut self) -> bool {
        if !self.said_bye {
            self.said_bye = self.push(&Header::new(Kind::Bye), &[], false);
        }
        self.flush();
        self.said_bye && !self.has_unsent() && super::socket::unacknowledged(&self.socket) == 0
    }
}
