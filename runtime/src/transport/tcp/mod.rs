//! Records between hosts: one TCP connection a pair, made when it is first needed.
//!
//! Both ranks may dial at the same time; then the connection that the lower rank dialled stays. Whoever cannot prove
//! that it belongs to the job ([`handshake`]) is dropped without an answer.

pub(crate) mod addresses;
mod connection;
mod dial;
mod handshake;
mod socket;
#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "numbers of a pattern")]
mod tests;
mod welcome;

use super::{Departure, Sink, Transport, record::Header};
use crate::{
    bootstrap::messages::JobKey,
    error::{Context, Result},
    protocol::{Capabilities, Channels, Tier},
};
use connection::{Connection, State};
use dial::{Dial, Progress};
use rustix::{
    buffer::spare_capacity,
    event::{Timespec, epoll},
};
use std::{
    net::{IpAddr, SocketAddr, TcpListener},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
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
    /// For every rank the addresses it listens on, best first.
    pub(crate) addresses: Vec<Vec<SocketAddr>>,
    pub(crate) connect_timeout: Duration,
    pub(crate) buffer: usize,
    /// The first of the epoll tokens that this transport may use.
    pub(crate) first_token: u64,
}

/// The connections of a rank.
#[derive(Debug)]
pub(crate) struct Tcp {
    settings: Settings,
    poller: Arc<OwnedFd>,
    links: Vec<Link>,
    /// Peers with an open connection.
    open: Vec<usize>,
    /// Peers for which bytes are kept.
    unsent: Vec<usize>,
    /// Peers being dialled.
    dialling: Vec<usize>,
    /// Peers that have dropped their world, as the launcher says.
    finished: Vec<usize>,
    welcome: Welcome,
    largest: usize,
}

#[derive(Debug, Default)]
enum Link {
    /// Not needed so far.
    #[default]
    None,
    Dialling(Box<Dial>),
    /// Both dialled; the peer's connection is on its way.
    Expected,
    Open(Box<Connection>, Interest),
    Gone,
}

/// Whether the poller watches for room to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Interest {
    Reading,
    Writing,
}

/// A socket that peers can reach, and under which addresses.
pub(crate) fn listen(addresses: &[IpAddr]) -> Result<(TcpListener, Vec<SocketAddr>)> {
    let at = addresses::bind_address(addresses);
    let listener = TcpListener::bind(at).context(format!("listening on {at}"))?;
    listener.set_nonblocking(true).context("listening")?;
    let port = listener.local_addr().context("listening")?.port();
    Ok((listener, addresses.iter().map(|address| SocketAddr::new(*address, port)).collect()))
}

impl Tcp {
    pub(crate) fn new(settings: Settings, listener: TcpListener, poller: Arc<OwnedFd>) -> Result<Self> {
        let size = settings.addresses.len();
        let welcome = Welcome::new(
            listener,
            settings.rank,
            settings.key.clone(),
            settings.addresses[settings.rank].iter().map(SocketAddr::ip).collect(),
            poller.clone(),
            settings.first_token + size as u64,
            size,
        )?;
        // A quarter of a buffer, so that several records arrive with one system call.
        let largest = (settings.buffer / 4).max(1024).min(settings.buffer - super::record::HEADER);
        Ok(Tcp {
            links: (0..size).map(|_| Link::None).collect(),
            open: Vec::new(),
            unsent: Vec::new(),
            dialling: Vec::new(),
            finished: Vec::new(),
            welcome,
            largest,
            poller,
            settings,
        })
    }

    fn token(&self, peer: usize) -> epoll::EventData {
        epoll::EventData::new_u64(self.settings.first_token + peer as u64)
    }

    fn watch(&self, socket: BorrowedFd<'_>, peer: usize, flags: epoll::EventFlags) -> Result<()> {
        epoll::add(&self.poller, socket, self.token(peer), flags).context("watching a connection")
    }

    fn dial(&mut self, peer: usize) {
        let candidates = self.settings.addresses[peer].clone();
        let dial = Dial::new(self.settings.rank, peer, candidates, self.settings.connect_timeout);
        self.links[peer] = Link::Dialling(Box::new(dial));
        self.dialling.push(peer);
    }

    fn open(&mut self, peer: usize, socket: OwnedFd) -> Result<()> {
        let connection = Connection::new(socket, peer, self.settings.buffer);
        self.watch(connection.descriptor(), peer, epoll::EventFlags::IN)?;
        self.links[peer] = Link::Open(Box::new(connection), Interest::Reading);
        self.open.push(peer);
        Ok(())
    }

    /// Moves every dial on; `true` when any moved.
    fn advance_dials(&mut self, sink: &mut dyn Sink) -> Result<bool> {
        let mut moved = false;
        for peer in std::mem::take(&mut self.dialling) {
            let token = self.token(peer);
            let Link::Dialling(dial) = &mut self.links[peer] else { continue };
            match dial.advance(&self.settings.key, &self.poller, token)? {
                Progress::Waiting => {
                    self.dialling.push(peer);
                    continue;
                }
                Progress::Moved => self.dialling.push(peer),
                Progress::Open(socket) => self.open(peer, socket)?,
                Progress::Duplicate => self.links[peer] = Link::Expected,
                Progress::Failed(reason) => {
                    self.links[peer] = Link::Gone;
                    sink.departed(peer, Departure::Lost(reason));
                }
            }
            moved = true;
        }
        Ok(moved)
    }

    /// Says farewell for peers that have finished and with whom there is no connection. With one, they said it there: a
    /// finished peer's kernel has had every byte acknowledged, so that a connection which it had opened is open here, too,
    /// or needs no more than to be looked at.
    fn depart_finished(&mut self, sink: &mut dyn Sink) -> Result<()> {
        for peer in std::mem::take(&mut self.finished) {
            let token = self.token(peer);
            loop {
                let progress = match &mut self.links[peer] {
                    Link::Open(..) | Link::Gone => break,
                    Link::None | Link::Expected => Progress::Duplicate,
                    Link::Dialling(dial) => dial.advance(&self.settings.key, &self.poller, token)?,
                };
                match progress {
                    Progress::Moved => {}
                    Progress::Open(socket) => self.open(peer, socket)?,
                    Progress::Waiting | Progress::Duplicate | Progress::Failed(_) => {
                        self.links[peer] = Link::Gone;
                        sink.departed(peer, Departure::Finished);
                    }
                }
            }
            self.dialling.retain(|dialled| *dialled != peer);
        }
        Ok(())
    }

    /// Lets in peers that have proved who they are.
    fn admit(&mut self) -> Result<bool> {
        let (links, me) = (&self.links, self.settings.rank);
        // While both dial, the lower rank's connection stays.
        let admitted = self.welcome.poll(|peer| match links.get(peer) {
            Some(Link::None | Link::Expected) => true,
            Some(Link::Dialling(_)) => peer < me,
            _ => false,
        })?;
        let any = !admitted.is_empty();
        for (peer, socket) in admitted {
            self.dialling.retain(|dialled| *dialled != peer);
            self.open(peer, socket)?;
        }
        Ok(any)
    }

    /// The peers whose connections are worth looking at.
    fn ready(&self) -> Result<Ready> {
        let mut ready = Ready { peers: Vec::new(), newcomers: false };
        let mut events = Vec::with_capacity(64);
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        match epoll::wait(&*self.poller, spare_capacity(&mut events), Some(&now)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("asking for connections with news"),
        }
        for event in &events {
            let token = event.data.u64();
            let Some(number) = token.checked_sub(self.settings.first_token) else { continue };
            match usize::try_from(number) {
                Ok(peer) if peer < self.links.len() => ready.peers.push(peer),
                _ => ready.newcomers = true,
            }
        }
        Ok(ready)
    }

    /// Gives the kernel what is kept; `true` when it took any.
    fn flush(&mut self) -> bool {
        let mut moved = false;
        let links = &mut self.links;
        self.unsent.retain(|peer| match &mut links[*peer] {
            Link::Open(connection, _) => {
                moved |= connection.flush();
                connection.has_unsent()
            }
            _ => false,
        });
        moved
    }

    fn serve(&mut self, peer: usize, sink: &mut dyn Sink) -> Result<bool> {
        let token = self.token(peer);
        let Link::Open(connection, interest) = &mut self.links[peer] else { return Ok(false) };
        let state = connection.poll(sink)?;
        if state == State::Gone {
            self.links[peer] = Link::Gone;
            self.open.retain(|open| *open != peer);
            return Ok(true);
        }
        if !connection.has_unsent() && *interest == Interest::Writing {
            *interest = Interest::Reading;
            epoll::modify(&self.poller, connection.descriptor(), token, epoll::EventFlags::IN)
                .context("watching a connection")?;
        }
        Ok(state == State::Moved)
    }
}

/// What the kernel says has news.
struct Ready {
    peers: Vec<usize>,
    newcomers: bool,
}

impl Transport for Tcp {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            name: "tcp",
            inline: 0,
            eager: self.largest,
            piece: self.largest,
            channels: Channels::One { why: "every size takes one connection, which never waits to fill a packet" },
            direct_read: None,
            slow_poll: true,
        }
    }

    fn push(&mut self, peer: usize, header: &Header, payload: &[u8], _tier: Tier, later: bool) -> Result<bool> {
        match &mut self.links[peer] {
            Link::Open(connection, _) => {
                let had_unsent = connection.has_unsent();
                let taken = connection.push(header, payload, later);
                if !had_unsent && connection.has_unsent() {
                    self.unsent.push(peer);
                }
                Ok(taken)
            }
            Link::None => {
                self.dial(peer);
                Ok(false)
            }
            Link::Dialling(_) | Link::Expected | Link::Gone => Ok(false),
        }
    }

    fn poll(&mut self, sink: &mut dyn Sink) -> Result<bool> {
        let mut moved = !self.unsent.is_empty() && self.flush();
        if !self.dialling.is_empty() {
            moved |= self.advance_dials(sink)?;
        }
        if !self.finished.is_empty() {
            self.depart_finished(sink)?;
            moved = true;
        }
        if self.open.len() <= READ_DIRECTLY && self.welcome.is_quiet_for_now() {
            for at in (0..self.open.len()).rev() {
                moved |= self.serve(self.open[at], sink)?;
            }
            return Ok(moved);
        }
        let ready = self.ready()?;
        if ready.newcomers {
            moved |= self.admit()?;
        }
        for peer in ready.peers {
            moved |= self.serve(peer, sink)?;
        }
        Ok(moved)
    }

    fn arm(&mut self) {
        self.welcome.look_next_time();
        for &peer in &self.open {
            let token = epoll::EventData::new_u64(self.settings.first_token + peer as u64);
            if let Link::Open(connection, interest) = &mut self.links[peer]
                && connection.has_unsent()
                && *interest == Interest::Reading
                && epoll::modify(
                    &self.poller,
                    connection.descriptor(),
                    token,
                    epoll::EventFlags::IN | epoll::EventFlags::OUT,
                )
                .is_ok()
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

    fn finish(&mut self) -> Result<bool> {
        let mut finished = true;
        for &peer in &self.open {
            if let Link::Open(connection, _) = &mut self.links[peer] {
                finished &= connection.finish();
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
            Err(rustix::io::Errno::AGAIN) => return Some(false),
            Err(rustix::io::Errno::INTR) => {}
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
