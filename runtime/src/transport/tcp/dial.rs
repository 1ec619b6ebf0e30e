//! One attempt to reach a peer: its addresses, each a little after the one before (RFC 8305), then the handshake with the
//! first that answers. Never blocks.

use super::{
    fill,
    handshake::{self, Attempt, Claim, Side, Verdict},
    nonce, passed, send_whole, socket,
};
use crate::{
    bootstrap::messages::JobKey,
    error::{Context, Result},
};
use rustix::{event::epoll, io::Errno, net::sockopt};
use std::{
    collections::VecDeque,
    net::SocketAddr,
    os::fd::{AsFd, OwnedFd},
    time::{Duration, Instant},
};

/// A peer that is swamped may drop a connection before it has proved itself: tried again this often.
const RETRIES: u32 = 5;
/// An address that has not answered by then gets company by the next one (RFC 8305, section 5).
const HEAD_START: Duration = Duration::from_millis(250);

/// Whom to reach, and what for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) me: u32,
    pub(super) peer: u32,
    pub(super) claim: Claim,
    /// How long one address may take to answer.
    pub(super) timeout: Duration,
    /// As in [`socket::prepare`].
    pub(super) silence: Duration,
}

#[derive(Debug)]
pub(super) struct Dial {
    call: Call,
    untried: VecDeque<SocketAddr>,
    /// Those that have not answered yet.
    racing: Vec<Racer>,
    next_start: Instant,
    retries: u32,
    stage: Stage,
    /// What went wrong at each address, for the error.
    failures: Vec<String>,
    /// Every address so far has said that nobody listens there.
    refused: bool,
}

#[derive(Debug)]
struct Racer {
    socket: OwnedFd,
    address: SocketAddr,
    deadline: Instant,
}

#[derive(Debug)]
enum Stage {
    Racing,
    /// The hello is sent; the peer answers when it next looks, which may take as long as it computes.
    Answer {
        socket: OwnedFd,
        address: SocketAddr,
        nonce: [u8; handshake::NONCE],
        received: Vec<u8>,
    },
    Verdict {
        socket: OwnedFd,
        address: SocketAddr,
        received: Vec<u8>,
    },
}

#[derive(Debug)]
pub(super) enum Step {
    Waiting,
    Moved,
    /// The connection is open; how far the lane has come at the peer.
    Open(OwnedFd, handshake::Progress),
    Duplicate,
    Failed {
        reason: String,
        /// Nobody listens at any address: the peer's process is gone.
        refused: bool,
    },
}

impl Dial {
    pub(super) fn new(call: Call, candidates: &[SocketAddr]) -> Self {
        Dial {
            call,
            untried: candidates.iter().copied().collect(),
            racing: Vec::new(),
            next_start: Instant::now(),
            retries: 0,
            stage: Stage::Racing,
            failures: Vec::new(),
            refused: true,
        }
    }

    /// Whether the peer has been reached and only its answer is missing.
    pub(super) fn has_reached(&self) -> bool {
        !matches!(self.stage, Stage::Racing)
    }

    pub(super) fn advance(&mut self, key: &JobKey, poller: &OwnedFd, token: epoll::EventData) -> Result<Step> {
        match std::mem::replace(&mut self.stage, Stage::Racing) {
            Stage::Racing => self.race(poller, token),
            Stage::Answer { socket, address, nonce, received } => {
                Ok(self.answer(key, socket, address, nonce, received))
            }
            Stage::Verdict { socket, address, received } => self.verdict(socket, address, received, poller),
        }
    }

    fn race(&mut self, poller: &OwnedFd, token: epoll::EventData) -> Result<Step> {
        let mut moved = false;
        if (self.racing.is_empty() || passed(self.next_start))
            && let Some(address) = self.untried.pop_front()
        {
            self.start(address, poller, token)?;
            moved = true;
        }
        let mut at = 0;
        while at < self.racing.len() {
            match self.look_at(&self.racing[at])? {
                Some(Ok(())) => {
                    let Racer { socket, address, .. } = self.racing.swap_remove(at);
                    self.greet(socket, address)?;
                    return Ok(Step::Moved);
                }
                Some(Err(why)) => {
                    let address = self.racing.swap_remove(at).address;
                    self.give_up(address, &why);
                    moved = true;
                }
                None => at += 1,
            }
        }
        if !self.racing.is_empty() || !self.untried.is_empty() {
            return Ok(if moved { Step::Moved } else { Step::Waiting });
        }
        let reason = if self.failures.is_empty() {
            "it offers no address that other hosts can reach (see tcp.interfaces)".to_string()
        } else {
            format!("cannot connect to it: {}", self.failures.join("; "))
        };
        Ok(Step::Failed { reason, refused: self.refused })
    }

    fn start(&mut self, address: SocketAddr, poller: &OwnedFd, token: epoll::EventData) -> Result<()> {
        let now = Instant::now();
        match socket::dial(address, self.call.silence) {
            Ok(socket) => {
                let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
                epoll::add(poller, &socket, token, flags).context("watching a connection")?;
                self.racing.push(Racer { socket, address, deadline: now + self.call.timeout });
                self.next_start = now + HEAD_START;
            }
            Err(error) => self.give_up(address, &why(error)),
        }
        Ok(())
    }

    /// How a racer is: connected, failed, or (`None`) still on its way.
    fn look_at(&self, racer: &Racer) -> Result<Option<std::result::Result<(), Failure>>> {
        Ok(match sockopt::socket_error(&racer.socket).context("asking a socket for its error")? {
            Err(error) => Some(Err(why(error))),
            Ok(()) if rustix::net::getpeername(&racer.socket) == Err(Errno::NOTCONN) => {
                let text = format!("no answer within {:?} (tcp.connect_timeout)", self.call.timeout);
                passed(racer.deadline).then_some(Err(Failure { text, refused: false }))
            }
            Ok(()) => Some(Ok(())),
        })
    }

    fn greet(&mut self, socket: OwnedFd, address: SocketAddr) -> Result<()> {
        let nonce = nonce()?;
        if send_whole(&socket, &handshake::hello(self.call.me, self.call.peer, self.call.claim, &nonce)) {
            self.stage = Stage::Answer { socket, address, nonce, received: Vec::new() };
        } else {
            self.retry_or_give_up(address, "it closed the connection");
        }
        Ok(())
    }

    /// The address does not work.
    fn give_up(&mut self, address: SocketAddr, failure: &Failure) {
        self.refused &= failure.refused;
        self.failures.push(format!("{address}: {}", failure.text));
    }

    fn retry_or_give_up(&mut self, address: SocketAddr, why: &str) {
        self.retries += 1;
        if self.retries > RETRIES {
            self.give_up(address, &Failure { text: why.to_string(), refused: false });
        } else {
            self.untried.push_front(address);
        }
    }

    fn answer(
        &mut self,
        key: &JobKey,
        socket: OwnedFd,
        address: SocketAddr,
        nonce: [u8; handshake::NONCE],
        mut received: Vec<u8>,
    ) -> Step {
        match fill(&socket, &mut received, handshake::ANSWER) {
            Some(false) => {
                self.stage = Stage::Answer { socket, address, nonce, received };
                return Step::Waiting;
            }
            None => {
                self.retry_or_give_up(address, "it closed the connection: not a rank of this job?");
                return Step::Moved;
            }
            Some(true) => {}
        }
        let (theirs, proof) = received.split_at(handshake::NONCE);
        let mut acceptor_nonce = [0; handshake::NONCE];
        acceptor_nonce.copy_from_slice(theirs);
        let Call { me, peer, claim, .. } = self.call;
        let attempt = Attempt { dialer: me, acceptor: peer, claim, dialer_nonce: nonce, acceptor_nonce };
        if !handshake::verify(key, Side::Acceptor, &attempt, proof) {
            let text = "whoever listens there is not a rank of this job".to_string();
            // Another program has the port now: as good as nobody.
            self.give_up(address, &Failure { text, refused: true });
        } else if send_whole(&socket, &handshake::prove(key, Side::Dialer, &attempt)) {
            self.stage = Stage::Verdict { socket, address, received: Vec::new() };
        } else {
            self.retry_or_give_up(address, "it closed the connection");
        }
        Step::Moved
    }

    fn verdict(
        &mut self,
        socket: OwnedFd,
        address: SocketAddr,
        mut received: Vec<u8>,
        poller: &OwnedFd,
    ) -> Result<Step> {
        let filled = fill(&socket, &mut received, handshake::VERDICT);
        let verdict = match (filled, received[..].try_into()) {
            (Some(false), _) => {
                self.stage = Stage::Verdict { socket, address, received };
                return Ok(Step::Waiting);
            }
            (Some(true), Ok(bytes)) => Verdict::from_bytes(bytes),
            _ => None,
        };
        match verdict {
            Some(Verdict::Accepted(progress)) => {
                // From here on the connection is watched level-triggered, under the same token.
                epoll::delete(poller, socket.as_fd()).context("watching a connection")?;
                Ok(Step::Open(socket, progress))
            }
            Some(Verdict::Duplicate) => Ok(Step::Duplicate),
            None => {
                self.retry_or_give_up(address, "it closed the connection");
                Ok(Step::Moved)
            }
        }
    }
}

/// Why an address does not work.
struct Failure {
    text: String,
    /// Nobody listens there.
    refused: bool,
}

fn why(error: Errno) -> Failure {
    Failure { text: std::io::Error::from(error).to_string(), refused: error == Errno::CONNREFUSED }
}
