//! Records between hosts: a link of one or more lanes to each peer, each over a TCP connection made when it is first
//! needed.
//!
//! The first lane keeps the order of everything; pieces of large messages, which need none, are spread over the others. A
//! lane outlives its connection ([`stream`]): when that breaks, both ranks dial, one of the two connections stays
//! ([`slot`]), and what had not arrived is sent again. Whoever cannot prove that it belongs to the job ([`handshake`]) is
//! dropped without an answer.

pub(crate) mod addresses;
mod dial;
mod handshake;
mod lane;
mod life;
mod slot;
mod socket;
mod stream;
#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "numbers of a pattern")]
mod tests;
mod welcome;

use super::{
    Sink, Transport,
    record::{Header, Kind},
};
use crate::{
    bootstrap::messages::JobKey,
    error::{Context, Result},
    protocol::{Capabilities, Channels, DirectRead, Tier},
};
use lane::{Lane, Sizes, State};
use rustix::{
    buffer::spare_capacity,
    event::{Timespec, epoll},
    io::Errno,
};
use slot::{Interest, Slot, Way};
use std::{
    net::{IpAddr, SocketAddr, TcpListener},
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
    time::{Duration, Instant},
};
use welcome::Welcome;

/// With at most this many connections each is read directly; with more, the kernel is asked which have something.
const READ_DIRECTLY: usize = 2;

/// What a rank needs to reach others.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) rank: usize,
    pub(crate) key: JobKey,
    /// For every rank the addresses to try, best first; for this one those it listens on.
    pub(crate) addresses: Vec<Vec<SocketAddr>>,
    /// Connections of each pair of ranks, at most 64.
    pub(crate) lanes: usize,
    pub(crate) connect_timeout: Duration,
    /// How long a broken connection may take to be replaced; zero: it is not.
    pub(crate) reconnect: Duration,
    /// A host that says nothing for this long is gone.
    pub(crate) silence: Duration,
    /// Bytes that one system call reads.
    pub(crate) buffer: usize,
    /// Bytes of each lane that may be on their way: kept until the peer has confirmed them.
    pub(crate) window: usize,
    /// The first of the epoll tokens that this transport may use.
    pub(crate) first_token: u64,
}

/// The links of a rank.
#[derive(Debug)]
pub(crate) struct Tcp {
    settings: Settings,
    poller: Arc<OwnedFd>,
    /// The lanes of all links, those of one peer after each other.
    slots: Vec<Option<Box<Slot>>>,
    /// For every peer whether it has departed.
    departed: Vec<bool>,
    /// Slots with an open connection.
    open: Vec<usize>,
    /// Slots for which bytes are kept that the kernel has not taken.
    unsent: Vec<usize>,
    /// Slots that wait for a connection.
    waiting: Vec<usize>,
    /// Peers that have dropped their world, as the launcher says.
    finished: Vec<usize>,
    welcome: Welcome,
    sizes: Sizes,
    /// The lane that took the last piece.
    last_lane: usize,
    resent: Resent,
}

/// What broken connections have cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Resent {
    /// Connections that were replaced.
    pub(crate) connections: u64,
    /// Bytes that were sent again.
    pub(crate) bytes: u64,
}

/// A socket that peers can reach, and under which addresses.
pub(crate) fn listen(addresses: &[IpAddr]) -> Result<(TcpListener, Vec<SocketAddr>)> {
    let at = addresses::bind_address(addresses);
    let listener = TcpListener::bind(at).context(format!("listening on {at}"))?;
    listener.set_nonblocking(true).context("listening")?;
    let port = listener.local_addr().context("listening")?.port();
    Ok((listener, addresses.iter().map(|address| SocketAddr::new(*address, port)).collect()))
}

/// The largest record and the largest piece of a message, in bytes, with a read buffer and a window of so many.
fn lengths(buffer: usize, window: usize) -> (usize, usize) {
    // Several records must fit into the window, and a whole message, unlike a piece, into the read buffer.
    let largest = (buffer / 2).min(window / 4).max(1024);
    // Pieces go past the read buffer if it holds whatever does not.
    let piece = if buffer < 2 * lane::DIRECT { largest } else { (window / 4).min(1 << 20).max(largest) };
    (largest, piece)
}

impl Tcp {
    pub(crate) fn new(settings: Settings, listener: TcpListener, poller: Arc<OwnedFd>) -> Result<Self> {
        let size = settings.addresses.len();
        let slots = size * settings.lanes;
        let welcome = Welcome::new(&settings, listener, poller.clone(), settings.first_token + slots as u64)?;
        let Settings { buffer, window, .. } = settings;
        let (largest, piece) = lengths(buffer, window);
        let sizes = Sizes { buffer, window, again: !settings.reconnect.is_zero(), largest, piece };
        Ok(Tcp {
            slots: (0..slots).map(|_| None).collect(),
            departed: vec![false; size],
            open: Vec::new(),
            unsent: Vec::new(),
            waiting: Vec::new(),
            finished: Vec::new(),
            welcome,
            sizes,
            last_lane: 0,
            resent: Resent::default(),
            poller,
            settings,
        })
    }

    fn token(&self, at: usize) -> epoll::EventData {
        epoll::EventData::new_u64(self.settings.first_token + at as u64)
    }

    fn first_of(&self, peer: usize) -> usize {
        peer * self.settings.lanes
    }

    fn peer_of(&self, at: usize) -> usize {
        at / self.settings.lanes
    }

    fn slot(&mut self, at: usize) -> &mut Slot {
        let peer = self.peer_of(at);
        let sizes = self.sizes;
        self.slots[at].get_or_insert_with(|| Box::new(Slot::new(Lane::new(peer, sizes))))
    }

    /// The slots whose connections are worth looking at.
    fn ready(&self) -> Result<Ready> {
        let mut ready = Ready { slots: Vec::new(), newcomers: false };
        let mut events = Vec::with_capacity(64);
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        match epoll::wait(&*self.poller, spare_capacity(&mut events), Some(&now)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error).context("asking for connections with news"),
        }
        for event in &events {
            let token = event.data.u64();
            let Some(number) = token.checked_sub(self.settings.first_token) else { continue };
            match usize::try_from(number) {
                Ok(at) if at < self.slots.len() => ready.slots.push(at),
                _ => ready.newcomers = true,
            }
        }
        Ok(ready)
    }

    /// Gives the kernel what is kept; `true` when it took any.
    fn flush(&mut self) -> bool {
        let mut moved = false;
        let slots = &mut self.slots;
        self.unsent.retain(|at| match &mut slots[*at] {
            Some(slot) if slot.is_open() => {
                moved |= slot.lane.flush();
                slot.lane.has_unsent()
            }
            _ => false,
        });
        moved
    }

    fn serve(&mut self, at: usize, sink: &mut dyn Sink) -> Result<bool> {
        let token = self.token(at);
        let Some(slot) = &mut self.slots[at] else { return Ok(false) };
        let Way::Open(interest) = &mut slot.way else { return Ok(false) };
        let had_heard = slot.lane.heard_bye().is_some();
        let had_unsent = slot.lane.has_unsent();
        let state = slot.lane.poll(sink)?;
        let (heard, has_unsent) = (slot.lane.heard_bye().is_some(), slot.lane.has_unsent());
        if !has_unsent
            && *interest == Interest::Writing
            && let Some(socket) = slot.lane.descriptor()
        {
            *interest = Interest::Reading;
            epoll::modify(&self.poller, socket, token, epoll::EventFlags::IN).context("watching a connection")?;
        }
        if has_unsent && !had_unsent {
            self.unsent.push(at);
        }
        if heard && !had_heard {
            self.look_for_farewell(self.peer_of(at), sink);
        }
        match state {
            State::Quiet => Ok(false),
            State::Moved => Ok(true),
            State::Broken(error) => {
                self.broke(at, error, sink);
                Ok(true)
            }
        }
    }

    /// The slot that takes a record for this peer now.
    fn slot_for(&mut self, peer: usize, header: &Header) -> usize {
        let (first, bulk) = (self.first_of(peer), self.settings.lanes - 1);
        if bulk == 0 || header.kind != Kind::Data as u8 {
            return first;
        }
        let mut any = None;
        for step in 1..=bulk {
            let lane = 1 + (self.last_lane + step - 1) % bulk;
            let slot = self.slot(first + lane);
            match slot.way {
                Way::Open(_) if slot.lane.is_full() => any = Some(first + lane),
                Way::Open(_) => {
                    self.last_lane = lane;
                    return first + lane;
                }
                Way::Unused => self.dial(first + lane),
                _ => {}
            }
        }
        // Until the others are there the first lane carries everything.
        any.unwrap_or(first)
    }
}

/// What the kernel says has news.
struct Ready {
    slots: Vec<usize>,
    newcomers: bool,
}

impl Transport for Tcp {
    fn capabilities(&self) -> Capabilities {
        let why = match self.settings.lanes {
            1 => "every size takes one connection, which never waits to fill a packet",
            _ => "all but pieces of large messages take the first connection, which never waits to fill a packet",
        };
        Capabilities {
            name: "tcp",
            inline: 0,
            eager: self.sizes.largest,
            piece: self.sizes.piece,
            channels: Channels::One { why },
            direct_read: DirectRead::No("a socket reaches no memory of the other process"),
            slow_poll: true,
            gathers: true,
        }
    }

    fn counters(&self, tell: &mut dyn FnMut(&'static str, u64)) {
        tell("connections replaced", self.resent.connections);
        tell("bytes resent", self.resent.bytes);
    }

    fn push(&mut self, peer: usize, header: &Header, payload: &[u8], _tier: Tier, later: bool) -> Result<bool> {
        if self.departed[peer] {
            return Ok(false);
        }
        let at = self.slot_for(peer, header);
        let slot = self.slot(at);
        match slot.way {
            Way::Open(_) => {
                let had_unsent = slot.lane.has_unsent();
                let taken = slot.lane.push(header, payload, later);
                if !had_unsent && slot.lane.has_unsent() {
                    self.unsent.push(at);
                }
                Ok(taken)
            }
            Way::Unused => {
                self.dial(at);
                Ok(false)
            }
            _ => Ok(false),
        }
    }

    fn poll(&mut self, sink: &mut dyn Sink) -> Result<bool> {
        let mut moved = !self.unsent.is_empty() && self.flush();
        if !self.waiting.is_empty() {
            moved |= self.advance(sink)?;
        }
        if !self.finished.is_empty() {
            self.depart_finished(sink)?;
            moved = true;
        }
        if self.open.len() <= READ_DIRECTLY && self.welcome.is_quiet_for_now() {
            for place in (0..self.open.len()).rev() {
                if let Some(&at) = self.open.get(place) {
                    moved |= self.serve(at, sink)?;
                }
            }
            return Ok(moved);
        }
        let ready = self.ready()?;
        for at in ready.slots {
            moved |= self.serve(at, sink)?;
        }
        if ready.newcomers {
            moved |= self.admit(sink)?;
        }
        Ok(moved)
    }

    fn arm(&mut self) {
        self.welcome.look_next_time();
        for &at in &self.open {
            let token = epoll::EventData::new_u64(self.settings.first_token + at as u64);
            if let Some(slot) = &mut self.slots[at]
                && slot.lane.has_unsent()
                && let (Way::Open(interest @ Interest::Reading), Some(socket)) = (&mut slot.way, slot.lane.descriptor())
                && epoll::modify(&self.poller, socket, token, epoll::EventFlags::IN | epoll::EventFlags::OUT).is_ok()
            {
                *interest = Interest::Writing;
            }
        }
    }

    fn disarm(&mut self) {
        self.welcome.look_next_time();
    }

    fn peer_finished(&mut self, peer: usize) {
        self.finished.push(peer);
    }

    fn forget(&mut self, peer: usize) {
        self.departed[peer] = true;
        self.close(peer);
    }

    fn sever(&mut self, choice: u64) {
        let Some(count) = u64::try_from(self.open.len()).ok().filter(|count| *count > 0) else { return };
        let at = self.open[usize::try_from(choice / 2 % count).unwrap_or(0)];
        let Some(socket) = self.slots[at].as_ref().and_then(|slot| slot.lane.descriptor()) else { return };
        if choice.is_multiple_of(2) {
            // Half-closed: the peer sees the end, this side what still arrives.
            let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Write);
        } else {
            socket::reset(socket);
        }
    }

    fn finish(&mut self) -> Result<bool> {
        let mut finished = true;
        for peer in 0..self.departed.len() {
            let first = self.first_of(peer);
            let lanes = &mut self.slots[first..first + self.settings.lanes];
            let used = |slot: &Slot| slot.is_open() || slot.lane.is_used();
            let mask = (0..).zip(&*lanes).filter(|(_, slot)| slot.as_deref().is_some_and(used));
            let mask = mask.map(|(lane, _)| 1_u64 << lane).sum::<u64>();
            if mask == 0 || self.departed[peer] && lanes.iter().flatten().all(|slot| !slot.is_open()) {
                continue;
            }
            // The others know that more is to be heard once the first lane says so.
            for slot in lanes.iter_mut().flatten().filter(|slot| used(slot)) {
                finished &= slot.lane.finish(mask) || matches!(slot.way, Way::Gone);
            }
        }
        Ok(finished)
    }
}

/// A nonce from the kernel's generator.
fn nonce() -> Result<[u8; handshake::NONCE]> {
    let mut nonce = [0; handshake::NONCE];
    let mut filled = 0;
    while filled < nonce.len() {
        filled += rustix::rand::getrandom(&mut nonce[filled..], rustix::rand::GetRandomFlags::empty())
            .context("drawing a random number")?;
    }
    Ok(nonce)
}

/// Reads what is missing of a message of fixed length; `None` when the peer is gone, `Some(false)` when more is to come.
fn fill(socket: impl AsFd, buffer: &mut Vec<u8>, length: usize) -> Option<bool> {
    let mut bytes = [0; 128];
    while buffer.len() < length {
        let missing = (length - buffer.len()).min(bytes.len());
        match rustix::net::recv(&socket, &mut bytes[..missing], rustix::net::RecvFlags::empty()) {
            Ok((_, 0)) => return None,
            Ok((_, read)) => buffer.extend_from_slice(&bytes[..read]),
            Err(Errno::AGAIN) => return Some(false),
            Err(Errno::INTR) => {}
            Err(_) => return None,
        }
    }
    Some(true)
}

/// Sends a short message whole: a fresh connection's buffer has room for it.
fn send_whole(socket: impl AsFd, bytes: &[u8]) -> bool {
    rustix::net::send(socket, bytes, rustix::net::SendFlags::NOSIGNAL).is_ok_and(|sent| sent == bytes.len())
}

/// Whether a deadline has passed.
fn passed(deadline: Instant) -> bool {
    deadline <= Instant::now()
}
