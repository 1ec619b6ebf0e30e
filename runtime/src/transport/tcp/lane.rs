//! One lane of a link: records in both directions over a non-blocking socket, which may be replaced by another.
//!
//! The bytes of large messages go from the socket to where the receive wants them; only the beginning of such a record,
//! which was read to see what it is, is copied.

use super::{
    socket,
    stream::{Inbox, Mismatch, Outbox},
};
use crate::{
    error::{Error, Result},
    transport::{
        Sink,
        record::{HEADER, Header, Kind, Payload},
    },
};
use rustix::io::Errno;
use std::{
    io::{IoSlice, IoSliceMut},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

/// System calls for one peer in one poll: others get their turn.
const BURST: usize = 4;
/// Bytes of records that need not leave at once from which on they leave.
const GATHER: usize = 64 << 10;
/// Payloads from this size on are read to where they belong instead of through the staging buffer, and begin at a multiple
/// of a cache line: zeros fill the gap after their header. The kernel copies 64 KiB in 15 us then, else in 16.5.
pub(super) const DIRECT: usize = 8 << 10;
const GAP: usize = 64 - HEADER;
/// Bytes read to see what comes next when large records are expected: a few headers, or a small record.
const PEEK: usize = 1 << 10;

#[derive(Debug)]
pub(super) struct Lane {
    peer: usize,
    socket: Option<OwnedFd>,
    out: Outbox,
    inn: Inbox,
    staging: Staging,
    /// The large record that is arriving, less what has been delivered of it.
    piece: Option<Header>,
    /// The last record was large: the next one probably is.
    large: bool,
    sizes: Sizes,
    said_bye: bool,
    heard_bye: Option<u64>,
}

/// Bounds of a lane, in bytes; the same at both ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// What one system call reads.
    pub(super) buffer: usize,
    /// What may be under way.
    pub(super) window: usize,
    /// Whether it is kept until the peer has confirmed it, to be sent again over another connection.
    pub(super) again: bool,
    /// The largest payload of a record.
    pub(super) largest: usize,
    /// The largest piece of a large message.
    pub(super) piece: usize,
}

/// How a lane is after it was looked at.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum State {
    Quiet,
    Moved,
    /// The socket is of no use any more. The error, if it was not closed in order.
    Broken(Option<Errno>),
}

impl Lane {
    pub(super) fn new(peer: usize, sizes: Sizes) -> Self {
        Lane {
            peer,
            socket: None,
            out: Outbox::new(sizes.window, sizes.again),
            inn: Inbox::new(sizes.window, sizes.again),
            staging: Staging { bytes: vec![0; sizes.buffer], start: 0, end: 0 },
            piece: None,
            large: false,
            sizes,
            said_bye: false,
            heard_bye: None,
        }
    }

    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.socket.as_ref().map(AsFd::as_fd)
    }

    /// Bytes of the lane that have arrived here.
    pub(super) fn received(&self) -> u64 {
        self.inn.received()
    }

    /// From now on this socket carries the lane. `received`: what has arrived at the peer. Returns the bytes that are
    /// sent again.
    pub(super) fn resume(&mut self, socket: OwnedFd, received: u64) -> std::result::Result<u64, Mismatch> {
        let again = self.out.resume(received)?;
        self.socket = Some(socket);
        Ok(again)
    }

    /// Takes the socket away.
    pub(super) fn interrupt(&mut self) -> Option<OwnedFd> {
        self.socket.take()
    }

    /// Whether anything was ever sent on this lane.
    pub(super) fn is_used(&self) -> bool {
        self.out.is_used()
    }

    /// Whether as much is kept as may be.
    pub(super) fn is_full(&self) -> bool {
        self.out.is_full()
    }

    /// Whether the kernel has not taken everything.
    pub(super) fn has_unsent(&self) -> bool {
        self.out.pending() > 0
    }

    /// Once the peer has said that nothing more comes on this lane: a bit for each lane of the link that it has used.
    pub(super) fn heard_bye(&self) -> Option<u64> {
        self.heard_bye
    }

    /// Sends a record; `false` when as much is kept as may be. `later`: it may be kept until the next flush, to leave with
    /// others in one system call. A broken connection takes nothing: reading from it tells why.
    pub(super) fn push(&mut self, header: &Header, payload: &[u8], later: bool) -> bool {
        if self.out.is_full() {
            self.flush();
            return false;
        }
        self.append(header, payload, later);
        true
    }

    fn append(&mut self, header: &Header, payload: &[u8], later: bool) {
        let header = Header { confirmed: self.inn.tell(), ..*header };
        let mut head = [0; HEADER + GAP];
        head[..HEADER].copy_from_slice(bytemuck::bytes_of(&header));
        let head = &head[..start_of(payload.len())];
        let mut given = 0;
        if !later
            && !self.has_unsent()
            && let Some(socket) = &self.socket
        {
            let parts = [IoSlice::new(head), IoSlice::new(payload)];
            given = send(socket, &parts).unwrap_or(0);
        }
        // Kept after it was sent: the peer works on it meanwhile.
        self.out.put(head, payload, given);
        if given == 0 && (!later || self.out.pending() >= GATHER) {
            self.flush();
        }
    }

    /// Gives the kernel what it did not take before; `true` when anything moved.
    pub(super) fn flush(&mut self) -> bool {
        let Some(socket) = &self.socket else { return false };
        let mut moved = false;
        while self.out.pending() > 0 {
            let (first, second) = self.out.next();
            match send(socket, &[IoSlice::new(first), IoSlice::new(second)]) {
                Ok(taken) => self.out.gave(taken),
                Err(_) => break,
            }
            moved = true;
        }
        moved
    }

    /// Reads and delivers what has arrived.
    pub(super) fn poll(&mut self, sink: &mut dyn Sink) -> Result<State> {
        let mut state = State::Quiet;
        for _ in 0..BURST {
            let Some(socket) = &self.socket else { return Ok(State::Quiet) };
            let (read, full) = if self.piece.is_some() {
                match self.deliver_piece(sink)? {
                    Ok(read) => (read, true),
                    Err(error) => return Ok(after(state, error)),
                }
            } else {
                let room = self.staging.room(if self.large { PEEK } else { usize::MAX });
                let length = room.len();
                match receive(socket, &mut [IoSliceMut::new(room)]) {
                    Ok(read) => {
                        self.staging.end += read;
                        self.inn.took(read);
                        (read, read == length)
                    }
                    Err(error) => return Ok(after(state, error)),
                }
            };
            if read > 0 {
                state = State::Moved;
            }
            self.deliver(sink)?;
            if self.inn.is_due() {
                self.append(&Header::new(Kind::Confirm), &[], false);
            }
            if !full && self.piece.is_none() {
                break;
            }
        }
        Ok(state)
    }

    /// Delivers the records in the staging buffer. A large one becomes the piece that is arriving.
    fn deliver(&mut self, sink: &mut dyn Sink) -> Result<()> {
        let peer = self.peer;
        let corrupt = |what| Error::Corrupt { peer, what };
        while self.piece.is_none() {
            let staged = self.staging.staged();
            let Some((head, rest)) = staged.split_first_chunk::<HEADER>() else { break };
            let header = Header::from_bytes(head);
            let length = header.payload as usize;
            let kind = Kind::from_byte(header.kind).ok_or(corrupt("unknown kind"))?;
            let most = if kind == Kind::Data { self.sizes.piece } else { self.sizes.largest };
            if length > most {
                return Err(corrupt("a record longer than any"));
            }
            self.out.confirm(header.confirmed);
            let Some(rest) = rest.get(start_of(length) - HEADER..) else { break };
            if rest.len() < length && length >= DIRECT {
                self.piece = match kind {
                    Kind::Data => Some(header),
                    Kind::Eager => sink.begin(peer, &header)?.map(|id| header.as_piece_for(id)),
                    _ => None,
                };
                // A message that nobody waits for yet is read whole.
                self.large = self.piece.is_some();
                if self.large {
                    self.staging.start += start_of(length);
                }
                break;
            }
            self.large = length >= DIRECT || (self.large && kind == Kind::Confirm);
            let Some(mut payload) = rest.get(..length) else { break };
            match kind {
                Kind::Bye => self.heard_bye = Some(header.id),
                Kind::Confirm => {}
                _ => sink.record(peer, &header, &mut payload as &mut dyn Payload)?,
            }
            self.staging.start += start_of(length) + length;
        }
        Ok(())
    }

    /// Delivers more of the piece that is arriving, staged bytes first. The inner result: bytes read, or why none were.
    fn deliver_piece(&mut self, sink: &mut dyn Sink) -> Result<std::result::Result<usize, Errno>> {
        let (Some(piece), Some(socket)) = (&mut self.piece, &self.socket) else { return Ok(Err(Errno::AGAIN)) };
        let before = piece.payload as usize;
        let mut arriving = Arriving { staging: &mut self.staging, socket, left: before, read: 0, error: None };
        sink.record(self.peer, piece, &mut arriving)?;
        let Arriving { left, read, error, .. } = arriving;
        self.inn.took(read);
        piece.shorten(before - left);
        if left == 0 {
            self.piece = None;
        }
        Ok(match error {
            Some(error) if before == left => Err(error),
            _ => Ok(before - left),
        })
    }

    /// Says that nothing more comes on this lane; `lanes`: a bit for each lane of the link that was used. `true` when the
    /// peer's kernel has acknowledged every byte, so that nothing is lost when this process exits.
    pub(super) fn finish(&mut self, lanes: u64) -> bool {
        if !self.said_bye {
            self.said_bye = true;
            self.append(&Header { id: lanes, ..Header::new(Kind::Bye) }, &[], false);
        }
        self.flush();
        self.has_parted()
    }

    /// Whether the farewell and all before it have reached the peer's kernel.
    pub(super) fn has_parted(&self) -> bool {
        let is_acknowledged = |socket| socket::unacknowledged(socket) == 0;
        self.said_bye && !self.has_unsent() && self.socket.as_ref().is_some_and(is_acknowledged)
    }
}

/// Where the payload of a record begins.
fn start_of(length: usize) -> usize {
    if length < DIRECT { HEADER } else { HEADER + GAP }
}

/// The state after a read that failed.
fn after(state: State, error: Errno) -> State {
    match error {
        Errno::AGAIN | Errno::INTR => state,
        CLOSED => State::Broken(None),
        error => State::Broken(Some(error)),
    }
}

/// What [`receive`] says when the peer has closed the connection in order.
const CLOSED: Errno = Errno::SHUTDOWN;

fn send(socket: &OwnedFd, parts: &[IoSlice<'_>]) -> std::result::Result<usize, Errno> {
    let mut control = rustix::net::SendAncillaryBuffer::default();
    rustix::net::sendmsg(socket, parts, &mut control, rustix::net::SendFlags::NOSIGNAL)
}

fn receive(socket: &OwnedFd, parts: &mut [IoSliceMut<'_>]) -> std::result::Result<usize, Errno> {
    match rustix::io::readv(socket, parts) {
        Ok(0) => Err(CLOSED),
        other => other,
    }
}

/// Bytes read and not yet delivered: `bytes[start..end]`.
#[derive(Debug)]
struct Staging {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Staging {
    fn staged(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Where the next bytes go, at most this many. An incomplete record moves to the front, so that its rest fits.
    fn room(&mut self, most: usize) -> &mut [u8] {
        if self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let most = most.min(self.bytes.len() - self.end).max(1);
        &mut self.bytes[self.end..self.end + most]
    }
}

/// A payload of which a part is staged and the rest comes from the socket, in its own time.
struct Arriving<'a> {
    staging: &'a mut Staging,
    socket: &'a OwnedFd,
    left: usize,
    /// Bytes read from the socket.
    read: usize,
    error: Option<Errno>,
}

impl Payload for Arriving<'_> {
    fn len(&self) -> usize {
        self.left
    }

    fn copy_to(&mut self, out: &mut [u8]) -> usize {
        let staged = self.staging.staged();
        let now = staged.len().min(out.len());
        out[..now].copy_from_slice(&staged[..now]);
        self.staging.start += now;
        self.left -= now;
        if now == out.len() {
            return now;
        }
        // Everything staged is used up. The headers that follow are read along, for the price of this call.
        let wanted = out.len() - now;
        let room = self.staging.room(PEEK);
        match receive(self.socket, &mut [IoSliceMut::new(&mut out[now..]), IoSliceMut::new(room)]) {
            Ok(read) => {
                self.read += read;
                let here = read.min(wanted);
                self.staging.end += read - here;
                self.left -= here;
                now + here
            }
            Err(error) => {
                self.error = Some(error);
                now
            }
        }
    }
}
