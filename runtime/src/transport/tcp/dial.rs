//! One attempt to reach a peer: its addresses in turn, then the handshake. Never blocks.

use super::{
    fill,
    handshake::{self, Attempt, Side},
    nonce, passed, send_whole, socket,
};
use crate::{
    bootstrap::messages::JobKey,
    error::{Context, Result},
};
use rustix::{event::epoll, io::Errno, net::sockopt};
use std::{
    net::SocketAddr,
    os::fd::{AsFd, OwnedFd},
    time::{Duration, Instant},
};

/// A peer that is swamped may drop a connection before it has proved itself: tried again this often.
const RETRIES: u32 = 5;

#[derive(Debug)]
pub(super) struct Dial {
    me: u32,
    peer: u32,
    candidates: Vec<SocketAddr>,
    at: usize,
    retries: u32,
    timeout: Duration,
    stage: Stage,
    /// What went wrong at each address, for the error.
    failures: Vec<String>,
}

#[derive(Debug)]
enum Stage {
    Next,
    Connecting {
        socket: OwnedFd,
        deadline: Instant,
    },
    /// The hello is sent; the peer answers when it next looks, which may take as long as it computes.
    Answer {
        socket: OwnedFd,
        nonce: [u8; handshake::NONCE],
        received: Vec<u8>,
    },
    Verdict {
        socket: OwnedFd,
    },
}

#[derive(Debug)]
pub(super) enum Progress {
    Waiting,
    Moved,
    Open(OwnedFd),
    Duplicate,
    Failed(String),
}

impl Dial {
    pub(super) fn new(me: usize, peer: usize, candidates: Vec<SocketAddr>, timeout: Duration) -> Self {
        let narrow = |rank: usize| u32::try_from(rank).expect("the launcher numbers ranks in 32 bits");
        Dial {
            me: narrow(me),
            peer: narrow(peer),
            candidates,
            at: 0,
            retries: 0,
            timeout,
            stage: Stage::Next,
            failures: Vec::new(),
        }
    }

    pub(super) fn advance(&mut self, key: &JobKey, poller: &OwnedFd, token: epoll::EventData) -> Result<Progress> {
        match std::mem::replace(&mut self.stage, Stage::Next) {
            Stage::Next => self.next_candidate(poller, token),
            Stage::Connecting { socket, deadline } => self.connecting(socket, deadline),
            Stage::Answer { socket, nonce, received } => Ok(self.answer(key, socket, nonce, received)),
            Stage::Verdict { socket } => self.verdict(socket, poller),
        }
    }

    fn next_candidate(&mut self, poller: &OwnedFd, token: epoll::EventData) -> Result<Progress> {
        let Some(&address) = self.candidates.get(self.at) else {
            let reason = if self.candidates.is_empty() {
                "it offers no address that other hosts can reach (see tcp.interfaces)".to_string()
            } else {
                format!("cannot connect to it: {}", self.failures.join("; "))
            };
            return Ok(Progress::Failed(reason));
        };
        match socket::dial(address) {
            Ok(socket) => {
                epoll::add(
                    poller,
                    &socket,
                    token,
                    epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET,
                )
                .context("watching a connection")?;
                self.stage = Stage::Connecting { socket, deadline: Instant::now() + self.timeout };
            }
            Err(error) => self.give_up(&std::io::Error::from(error).to_string()),
        }
        Ok(Progress::Moved)
    }

    /// The address at hand does not work: on to the next.
    fn give_up(&mut self, why: &str) {
        self.failures.push(format!("{}: {why}", self.candidates[self.at]));
        self.at += 1;
        self.retries = 0;
    }

    fn connecting(&mut self, socket: OwnedFd, deadline: Instant) -> Result<Progress> {
        match sockopt::socket_error(&socket).context("asking a socket for its error")? {
            Err(error) => {
                self.give_up(&std::io::Error::from(error).to_string());
                return Ok(Progress::Moved);
            }
            Ok(()) if rustix::net::getpeername(&socket) == Err(Errno::NOTCONN) => {
                if passed(deadline) {
                    self.give_up(&format!("no answer within {:?} (tcp.connect_timeout)", self.timeout));
                    return Ok(Progress::Moved);
                }
                self.stage = Stage::Connecting { socket, deadline };
                return Ok(Progress::Waiting);
            }
            Ok(()) => {}
        }
        let nonce = nonce()?;
        if send_whole(&socket, &handshake::hello(self.me, self.peer, &nonce)) {
            self.stage = Stage::Answer { socket, nonce, received: Vec::new() };
        } else {
            self.retry_or_give_up("it closed the connection");
        }
        Ok(Progress::Moved)
    }

    fn retry_or_give_up(&mut self, why: &str) {
        self.retries += 1;
        if self.retries > RETRIES {
            self.give_up(why);
        }
    }

    fn answer(
        &mut self,
        key: &JobKey,
        socket: OwnedFd,
        nonce: [u8; handshake::NONCE],
        mut received: Vec<u8>,
    ) -> Progress {
        match fill(&socket, &mut received, handshake::ANSWER) {
            Some(false) => {
                self.stage = Stage::Answer { socket, nonce, received };
                return Progress::Waiting;
            }
            None => {
                self.retry_or_give_up("it closed the connection: not a rank of this job?");
                return Progress::Moved;
            }
            Some(true) => {}
        }
        let (theirs, proof) = received.split_at(handshake::NONCE);
        let mut acceptor_nonce = [0; handshake::NONCE];
        acceptor_nonce.copy_from_slice(theirs);
        let attempt = Attempt { dialer: self.me, acceptor: self.peer, dialer_nonce: nonce, acceptor_nonce };
        if !handshake::verify(key, Side::Acceptor, &attempt, proof) {
            self.give_up("whoever listens there is not a rank of this job");
        } else if send_whole(&socket, &handshake::prove(key, Side::Dialer, &attempt)) {
            self.stage = Stage::Verdict { socket };
        } else {
            self.retry_or_give_up("it closed the connection");
        }
        Progress::Moved
    }

    fn verdict(&mut self, socket: OwnedFd, poller: &OwnedFd) -> Result<Progress> {
        let mut received = Vec::new();
        match fill(&socket, &mut received, 1) {
            Some(false) => {
                self.stage = Stage::Verdict { socket };
                Ok(Progress::Waiting)
            }
            Some(true) if received == [handshake::ACCEPTED] => {
                // From here on the connection is watched level-triggered, under the same token.
                epoll::delete(poller, socket.as_fd()).context("watching a connection")?;
                Ok(Progress::Open(socket))
            }
            Some(true) if received == [handshake::DUPLICATE] => Ok(Progress::Duplicate),
            _ => {
                self.retry_or_give_up("it closed the connection");
                Ok(Progress::Moved)
            }
        }
    }
}
