//! From the first use of a link to its end: connections are dialled, admitted, replaced and given up.
//!
//! Decides by [`slot`](super::slot), and makes nothing of what the connections carry.

use super::{
    Settings, Tcp,
    dial::{Call, Dial, Step},
    handshake::{Claim, Progress},
    lane::{Lane, Sizes},
    slot::{Interest, Slot, Trouble, Way},
    socket, welcome,
};
use crate::{
    error::{Context, Result},
    transport::{Departure, Sink},
};
use rustix::{event::epoll, io::Errno};
use std::{
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

/// Time between two attempts to replace a connection.
const REST: Duration = Duration::from_millis(100);
/// How long the connection that a peer is making may take until this rank dials again.
const EXPECTANCY: Duration = Duration::from_secs(2);

impl Tcp {
    pub(super) fn dial(&mut self, at: usize) {
        let narrow = |number: usize| u32::try_from(number).expect("the launcher numbers ranks in 32 bits");
        let peer = self.peer_of(at);
        let claim = Claim { lane: narrow(at - self.first_of(peer)), progress: self.slot(at).progress() };
        let Settings { rank, connect_timeout, silence, .. } = self.settings;
        let call = Call {
            me: narrow(rank),
            peer: narrow(peer),
            claim,
            timeout: connect_timeout,
            silence: kernel_limit(silence),
        };
        let dial = Dial::new(call, &self.settings.addresses[peer]);
        self.slot(at).way = Way::Dialling(Box::new(dial));
        self.wait_for(at);
    }

    /// The slot waits for a connection.
    pub(super) fn wait_for(&mut self, at: usize) {
        if !self.waiting.contains(&at) {
            self.waiting.push(at);
        }
    }

    /// From now on this connection carries the lane. `theirs`: how far it has come at the peer; `epoch` is that of the
    /// connection.
    pub(super) fn carry(
        &mut self,
        at: usize,
        socket: OwnedFd,
        ours: bool,
        epoch: u32,
        theirs: Progress,
        sink: &mut dyn Sink,
    ) -> Result<()> {
        if at == self.first_of(self.peer_of(at)) {
            socket::busy_poll(&socket);
        }
        epoll::add(&self.poller, &socket, self.token(at), epoll::EventFlags::IN).context("watching a connection")?;
        let slot = self.slot(at);
        // Closed before the new one takes over: what it still held is sent again.
        drop(slot.lane.interrupt());
        let Ok(again) = slot.lane.resume(socket, theirs.received) else {
            let reason = "the connection to it broke, and what it says to have received cannot be".to_string();
            self.lose(self.peer_of(at), reason, sink);
            return Ok(());
        };
        let replaced = slot.epoch > 0;
        slot.way = Way::Open(Interest::Reading);
        (slot.ours, slot.epoch, slot.trouble) = (ours, epoch, None);
        let has_unsent = slot.lane.has_unsent();
        self.resent.connections += u64::from(replaced);
        self.resent.bytes += again;
        self.waiting.retain(|other| *other != at);
        if !self.open.contains(&at) {
            self.open.push(at);
        }
        if has_unsent && !self.unsent.contains(&at) {
            self.unsent.push(at);
        }
        Ok(())
    }

    /// The connection of a slot is of no use any more.
    pub(super) fn broke(&mut self, at: usize, error: Option<Errno>, sink: &mut dyn Sink) {
        let Settings { reconnect, silence, .. } = self.settings;
        let peer = self.peer_of(at);
        self.open.retain(|other| *other != at);
        let departed = self.departed[peer];
        let slot = self.slot(at);
        // Whoever has heard our farewell closes the connection, whether it goes on itself or not.
        let parted = error.is_none() && slot.lane.has_parted();
        drop(slot.lane.interrupt());
        if departed || parted || slot.lane.heard_bye().is_some() {
            slot.way = Way::Gone;
            return;
        }
        let reason = match error {
            Some(Errno::TIMEDOUT) => format!("its host has not answered for {silence:?} (heartbeat.timeout)"),
            Some(error) => format!("the connection broke: {}", std::io::Error::from(error)),
            None => "the connection was closed".to_string(),
        };
        if reconnect.is_zero() {
            self.lose(peer, reason, sink);
            return;
        }
        // A host that was silent has used up most of its time.
        let limit =
            if error == Some(Errno::TIMEDOUT) { reconnect.min(silence - kernel_limit(silence)) } else { reconnect };
        slot.trouble = Some(Trouble { reason, until: Instant::now() + limit });
        self.dial(at);
    }

    /// Nothing more comes from this peer and nothing more reaches it.
    pub(super) fn depart(&mut self, peer: usize, departure: Departure, sink: &mut dyn Sink) {
        if !std::mem::replace(&mut self.departed[peer], true) {
            sink.departed(peer, departure);
        }
    }

    pub(super) fn lose(&mut self, peer: usize, reason: String, sink: &mut dyn Sink) {
        self.depart(peer, Departure::Lost(reason), sink);
        self.close(peer);
    }

    /// Closes every connection to a peer.
    pub(super) fn close(&mut self, peer: usize) {
        let first = self.first_of(peer);
        let all = first..first + self.settings.lanes;
        for slot in self.slots[all.clone()].iter_mut().flatten() {
            drop(slot.lane.interrupt());
            slot.way = Way::Gone;
        }
        for list in [&mut self.open, &mut self.unsent, &mut self.waiting] {
            list.retain(|at| !all.contains(at));
        }
    }

    /// Moves every slot on that waits for a connection; `true` when any moved.
    pub(super) fn advance(&mut self, sink: &mut dyn Sink) -> Result<bool> {
        let mut moved = false;
        let now = Instant::now();
        for at in std::mem::take(&mut self.waiting) {
            let (peer, token) = (self.peer_of(at), self.token(at));
            let Some(slot) = &mut self.slots[at] else { continue };
            let late = slot.trouble.clone().filter(|trouble| trouble.until <= now);
            let step = match &mut slot.way {
                Way::Dialling(dial) => {
                    // Whoever accepts connections lives, and may compute for as long as it likes.
                    if let (Some(Trouble { reason, .. }), false) = (&late, dial.has_reached()) {
                        let limit = self.settings.reconnect;
                        self.lose(peer, format!("{reason}; no other could be made (tcp.reconnect is {limit:?})"), sink);
                        moved = true;
                        continue;
                    }
                    dial.advance(&self.settings.key, &self.poller, token)?
                }
                Way::Expected(until) | Way::Resting(until) if *until <= now => {
                    self.dial(at);
                    moved = true;
                    continue;
                }
                Way::Expected(_) | Way::Resting(_) => Step::Waiting,
                Way::Unused | Way::Open(_) | Way::Gone => continue,
            };
            moved |= !matches!(step, Step::Waiting);
            match step {
                Step::Waiting | Step::Moved => self.wait_for(at),
                Step::Open(socket, theirs) => self.carry(at, socket, true, theirs.epoch, theirs, sink)?,
                Step::Duplicate => {
                    slot.way = Way::Expected(now + EXPECTANCY);
                    self.wait_for(at);
                }
                Step::Failed { reason, refused } => match slot.trouble.clone() {
                    Some(_) if !refused && late.is_none() => {
                        slot.way = Way::Resting(now + REST);
                        self.wait_for(at);
                    }
                    Some(trouble) => self.lose(peer, format!("{}; {reason}", trouble.reason), sink),
                    None => self.lose(peer, reason, sink),
                },
            }
        }
        Ok(moved)
    }

    /// Says farewell for peers that have finished and with whom there is no connection. With one, they said it there: a
    /// finished peer's kernel has had every byte acknowledged, so that a connection which it had opened is open here, too,
    /// or needs no more than to be looked at.
    pub(super) fn depart_finished(&mut self, sink: &mut dyn Sink) -> Result<()> {
        for peer in std::mem::take(&mut self.finished) {
            let at = self.first_of(peer);
            let token = self.token(at);
            while !self.departed[peer] {
                let step = match self.slots[at].as_mut().map(|slot| &mut slot.way) {
                    Some(Way::Open(_)) => break,
                    Some(Way::Dialling(dial)) => dial.advance(&self.settings.key, &self.poller, token)?,
                    _ => Step::Duplicate,
                };
                match step {
                    Step::Moved => {}
                    Step::Open(socket, theirs) => self.carry(at, socket, true, theirs.epoch, theirs, sink)?,
                    Step::Waiting | Step::Duplicate | Step::Failed { .. } => {
                        self.depart(peer, Departure::Finished, sink);
                        self.close(peer);
                    }
                }
            }
        }
        Ok(())
    }

    /// Lets in peers that have proved who they are.
    pub(super) fn admit(&mut self, sink: &mut dyn Sink) -> Result<bool> {
        let mut any = false;
        loop {
            let Settings { rank, lanes, .. } = self.settings;
            let (slots, departed) = (&self.slots, &self.departed);
            let unused = Slot::new(Lane::new(rank, Sizes { buffer: 0, ..self.sizes }));
            let admitted = self.welcome.poll(|peer, claim| {
                let lane = usize::try_from(claim.lane).ok().filter(|lane| *lane < lanes)?;
                if peer == rank || *departed.get(peer)? {
                    return None;
                }
                let slot = slots.get(peer * lanes + lane)?.as_deref().unwrap_or(&unused);
                slot.judge(&claim, peer < rank)
            })?;
            let Some(welcome::Admitted { peer, claim, socket }) = admitted else { return Ok(any) };
            let at = self.first_of(peer) + claim.lane as usize;
            let epoch = self.slot(at).epoch.max(claim.progress.epoch) + 1;
            self.carry(at, socket, false, epoch, claim.progress, sink)?;
            any = true;
        }
    }

    /// A peer has finished when it has said so on every lane that it has used.
    pub(super) fn look_for_farewell(&mut self, peer: usize, sink: &mut dyn Sink) {
        let first = self.first_of(peer);
        let heard = |lane: usize| self.slots[first + lane].as_ref().and_then(|slot| slot.lane.heard_bye());
        let Some(used) = heard(0) else { return };
        if (0..self.settings.lanes).all(|lane| used >> lane & 1 == 0 || heard(lane).is_some()) {
            self.depart(peer, Departure::Finished, sink);
        }
    }
}

/// How long the kernel may take to call a silent host gone, so that there is time to see whether it only lost its
/// connections.
fn kernel_limit(silence: Duration) -> Duration {
    silence * 2 / 3
}
