//! Incoming connections until they have proved who they are. Bounded in number, bytes and time.

use super::{
    Settings, fill,
    handshake::{self, Attempt, Claim, Side, Verdict},
    nonce, passed, send_whole, socket,
};
use crate::{
    bootstrap::messages::JobKey,
    error::{Context, Result},
};
use rustix::event::epoll;
use std::{
    collections::VecDeque,
    net::{IpAddr, SocketAddr, TcpListener},
    os::fd::OwnedFd,
    sync::Arc,
    time::{Duration, Instant},
};

/// Strangers beyond the number of ranks that may be half way in; the oldest makes room for the next.
const STRANGERS: usize = 64;
/// Whoever has not proved itself by then is dropped. Long, because a rank may compute between two steps.
const PATIENCE: Duration = Duration::from_secs(60);
/// Polls of a spinning rank between two looks at the listener.
const LOOK_EVERY: u32 = 64;

#[derive(Debug)]
pub(super) struct Welcome {
    listener: TcpListener,
    me: usize,
    key: JobKey,
    /// Connections that come in at another address of this host are dropped (`tcp.interfaces`).
    addresses: Vec<IpAddr>,
    /// As in [`socket::prepare`].
    silence: Duration,
    poller: Arc<OwnedFd>,
    token: u64,
    guests: VecDeque<Guest>,
    most: usize,
    since_look: u32,
}

#[derive(Debug)]
struct Guest {
    socket: OwnedFd,
    deadline: Instant,
    received: Vec<u8>,
    attempt: Option<Attempt>,
}

/// What became of a guest after it was looked at.
enum Fate {
    Stays,
    Leaves,
    Enters(usize, Claim),
}

/// A peer that is let in: the connection carries this lane from now on.
#[derive(Debug)]
pub(super) struct Admitted {
    pub(super) peer: usize,
    pub(super) claim: Claim,
    pub(super) socket: OwnedFd,
}

impl Welcome {
    /// `settings` are those of the transport, `token` is for the listener and its guests.
    pub(super) fn new(settings: &Settings, listener: TcpListener, poller: Arc<OwnedFd>, token: u64) -> Result<Self> {
        epoll::add(&poller, &listener, epoll::EventData::new_u64(token), epoll::EventFlags::IN)
            .context("watching the listening socket")?;
        let size = settings.addresses.len();
        Ok(Welcome {
            listener,
            me: settings.rank,
            key: settings.key.clone(),
            addresses: settings.addresses[settings.rank].iter().map(SocketAddr::ip).collect(),
            silence: settings.silence,
            poller,
            token,
            guests: VecDeque::new(),
            most: size * settings.lanes + STRANGERS,
            since_look: 0,
        })
    }

    /// Whether the listener can be left alone this time: asking costs a system call.
    pub(super) fn is_quiet_for_now(&mut self) -> bool {
        self.since_look += 1;
        if self.since_look < LOOK_EVERY && self.guests.is_empty() {
            return true;
        }
        self.since_look = 0;
        false
    }

    pub(super) fn look_next_time(&mut self) {
        self.since_look = LOOK_EVERY;
    }

    /// Moves every guest on until one is let in. `admits` decides about ranks that have proved themselves; who is
    /// accepted is returned before anything else happens, so that the progress that was told to the peer still holds.
    pub(super) fn poll(&mut self, admits: impl Fn(usize, Claim) -> Option<Verdict>) -> Result<Option<Admitted>> {
        self.accept()?;
        for _ in 0..self.guests.len() {
            let Some(mut guest) = self.guests.pop_front() else { break };
            match self.look_at(&mut guest, &admits)? {
                Fate::Stays if !passed(guest.deadline) => self.guests.push_back(guest),
                Fate::Stays | Fate::Leaves => {}
                Fate::Enters(peer, claim) => {
                    epoll::delete(&self.poller, &guest.socket).context("watching a connection")?;
                    return Ok(Some(Admitted { peer, claim, socket: guest.socket }));
                }
            }
        }
        Ok(None)
    }

    fn accept(&mut self) -> Result<()> {
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(()),
                // The caller has gone again, or descriptors are short: it will try again.
                Err(_) => return Ok(()),
            };
            let here = stream.local_addr().is_ok_and(|at| self.addresses.contains(&at.ip().to_canonical()));
            let socket = OwnedFd::from(stream);
            if !here
                || rustix::io::ioctl_fionbio(&socket, true).is_err()
                || socket::prepare(&socket, self.silence).is_err()
            {
                continue;
            }
            epoll::add(&self.poller, &socket, epoll::EventData::new_u64(self.token), epoll::EventFlags::IN)
                .context("watching a connection")?;
            if self.guests.len() >= self.most {
                self.guests.pop_front();
            }
            self.guests.push_back(Guest {
                socket,
                deadline: Instant::now() + PATIENCE,
                received: Vec::new(),
                attempt: None,
            });
        }
    }

    fn look_at(&self, guest: &mut Guest, admits: impl Fn(usize, Claim) -> Option<Verdict>) -> Result<Fate> {
        let me = u32::try_from(self.me).expect("the launcher numbers ranks in 32 bits");
        if guest.attempt.is_none() {
            match fill(&guest.socket, &mut guest.received, handshake::HELLO) {
                Some(true) => {}
                Some(false) => return Ok(Fate::Stays),
                None => return Ok(Fate::Leaves),
            }
            let hello = guest.received[..].try_into().expect("filled to this length");
            let Some((dialer, claim, dialer_nonce)) = handshake::parse_hello(hello, me) else {
                return Ok(Fate::Leaves);
            };
            let attempt = Attempt { dialer, acceptor: me, claim, dialer_nonce, acceptor_nonce: nonce()? };
            let mut answer = [0; handshake::ANSWER];
            answer[..handshake::NONCE].copy_from_slice(&attempt.acceptor_nonce);
            answer[handshake::NONCE..].copy_from_slice(&handshake::prove(&self.key, Side::Acceptor, &attempt));
            if !send_whole(&guest.socket, &answer) {
                return Ok(Fate::Leaves);
            }
            guest.received.clear();
            guest.attempt = Some(attempt);
        }
        match fill(&guest.socket, &mut guest.received, handshake::PROOF) {
            Some(true) => {}
            Some(false) => return Ok(Fate::Stays),
            None => return Ok(Fate::Leaves),
        }
        let Some(attempt) = guest.attempt else { return Ok(Fate::Leaves) };
        if !handshake::verify(&self.key, Side::Dialer, &attempt, &guest.received) {
            return Ok(Fate::Leaves);
        }
        let (peer, claim) = (attempt.dialer as usize, attempt.claim);
        let Some(verdict) = admits(peer, claim) else { return Ok(Fate::Leaves) };
        if !send_whole(&guest.socket, &verdict.to_bytes()) || verdict == Verdict::Duplicate {
            return Ok(Fate::Leaves);
        }
        Ok(Fate::Enters(peer, claim))
    }
}
