//! Setting up connections: what both ends tell each other over TCP until their channels are open, or until it is clear
//! that RDMA does not reach the peer.

use super::{
    PEER_BITS, Verbs,
    agree::Message,
    lane::Lane,
    link::{Agreeing, Link, Open},
};
use crate::{
    error::{Context, Error, Result},
    protocol::Tier,
    transport::{
        Transport,
        record::{Header, Kind},
    },
};
use std::time::{Duration, Instant};

/// A way to a peer that was not found is tried again this often, each time after a longer pause.
const TRIES: u32 = 34;
const PAUSE: Duration = Duration::from_millis(20);

impl Verbs {
    /// Says once why RDMA is not used.
    pub(super) fn say_why(&mut self, reason: &str) {
        if !std::mem::replace(&mut self.said_why, true) {
            eprintln!("rank {}: RDMA is not used, TCP takes its place: {reason}", self.rank);
        }
    }

    pub(super) fn say(&mut self, peer: usize, message: &Message) {
        self.unsaid.push((peer, message.to_bytes()));
    }

    /// Makes our ends of the channels to a peer and offers them.
    pub(super) fn begin(&mut self, peer: usize) -> Result<()> {
        let Ok((device, completions)) = &mut self.device else {
            let reason = self.device.as_ref().err().cloned().unwrap_or_default();
            // Nothing was said to the peer yet; if it offers, it is refused.
            self.give_up(peer, &reason, false);
            return Ok(());
        };
        let mut lanes = Vec::new();
        let recipes = self.recipes;
        for (index, recipe) in recipes.in_order().enumerate() {
            let id = (peer as u64) << PEER_BITS | (index as u64) << 1;
            match Lane::new(device, completions, recipe, id, random()?) {
                Ok(lane) => lanes.push(lane),
                Err(error) => {
                    let reason = error.to_string();
                    self.give_up(peer, &reason, true);
                    return Ok(());
                }
            }
        }
        let offer = Message::Offer(lanes.iter().map(Lane::offer).collect());
        self.links[peer] = Link::Agreeing(Box::new(Agreeing::new(lanes)));
        self.agreeing.push(peer);
        self.say(peer, &offer);
        Ok(())
    }

    /// RDMA does not reach this peer. `tell`: it may think otherwise.
    fn give_up(&mut self, peer: usize, reason: &str, tell: bool) {
        self.agreeing.retain(|other| *other != peer);
        if tell {
            self.say(peer, &Message::Refuse { reason: reason.to_string() });
            if self.fallback {
                self.say_why(reason);
            }
        }
        self.links[peer] = Link::Tcp(reason.to_string());
        if !self.fallback {
            self.links[peer] = Link::Gone;
            self.lost.push((peer, format!("RDMA does not reach it: {reason}")));
        }
    }

    /// A peer has said something about RDMA.
    pub(super) fn heard(&mut self, peer: usize, bytes: &[u8]) -> Result<()> {
        let corrupt = Error::Corrupt { peer, what: "an agreement that is none" };
        let message = Message::from_bytes(bytes).ok_or(corrupt)?;
        match message {
            Message::Offer(offers) => {
                if matches!(self.links[peer], Link::Idle) {
                    self.begin(peer)?;
                }
                match &mut self.links[peer] {
                    Link::Agreeing(agreeing) => {
                        agreeing.offers = Some(offers);
                        self.connect(peer)?;
                    }
                    Link::Tcp(reason) => {
                        let reason = reason.clone();
                        self.say(peer, &Message::Refuse { reason });
                    }
                    _ => {}
                }
            }
            Message::Refuse { reason } => {
                if matches!(self.links[peer], Link::Idle | Link::Agreeing(_)) {
                    self.give_up(peer, &format!("rank {peer} cannot: {reason}"), false);
                    if self.fallback {
                        self.say_why(&format!("rank {peer} cannot: {reason}"));
                    }
                }
            }
            Message::Ready => {
                if let Link::Agreeing(agreeing) = &mut self.links[peer] {
                    agreeing.peer_ready = true;
                    self.open_if_ready(peer);
                }
            }
            Message::Farewell { records } => {
                if let Link::Open(open) = &mut self.links[peer] {
                    open.farewell = Some(records);
                }
            }
        }
        Ok(())
    }

    /// Connects our ends with the peer's, or tries again later.
    fn connect(&mut self, peer: usize) -> Result<()> {
        let Link::Agreeing(agreeing) = &mut self.links[peer] else { return Ok(()) };
        match agreeing.connect() {
            Ok(()) => {
                for deviation in agreeing.deviations()? {
                    if !std::mem::replace(&mut self.said_why, true) {
                        eprintln!("rank {}: RDMA to rank {peer}: {deviation}", self.rank);
                    }
                }
                self.say(peer, &Message::Ready);
                self.open_if_ready(peer);
            }
            Err((_, true)) if agreeing.tries < TRIES => {
                agreeing.tries += 1;
                agreeing.try_at = Some(Instant::now() + PAUSE * agreeing.tries);
            }
            Err((reason, _)) => self.give_up(peer, &reason, true),
        }
        Ok(())
    }

    pub(super) fn open_if_ready(&mut self, peer: usize) {
        if matches!(&self.links[peer], Link::Agreeing(agreeing) if agreeing.is_ready())
            && let Link::Agreeing(agreeing) = std::mem::take(&mut self.links[peer])
        {
            self.links[peer] = Link::Open(Box::new(Open::new(agreeing.lanes, usize::from(self.recipes.low.is_some()))));
            self.agreeing.retain(|other| *other != peer);
            self.open.push(peer);
        }
    }

    /// Moves on what is being agreed upon; `true` when anything was said.
    pub(super) fn advance(&mut self) -> Result<bool> {
        for at in (0..self.agreeing.len()).rev() {
            let peer = self.agreeing[at];
            if let Link::Agreeing(agreeing) = &mut self.links[peer]
                && agreeing.try_at.is_some_and(|at| at <= Instant::now())
            {
                agreeing.try_at = None;
                self.connect(peer)?;
            }
        }
        let before = self.unsaid.len();
        let mut kept = Vec::new();
        for (peer, bytes) in std::mem::take(&mut self.unsaid) {
            let payload = u32::try_from(bytes.len()).expect("a short message");
            let header = Header { payload, ..Header::new(Kind::Agree) };
            // One order a peer: what follows something unsaid waits, too.
            let waits = kept.iter().any(|(other, _)| *other == peer);
            if waits || !self.tcp.push(peer, &header, &bytes, Tier::LowLatency, false)? {
                kept.push((peer, bytes));
            }
        }
        let moved = kept.len() < before;
        // What was said meanwhile comes after.
        kept.append(&mut self.unsaid);
        self.unsaid = kept;
        Ok(moved)
    }
}

/// A number from the kernel's generator.
fn random() -> Result<u32> {
    let mut bytes = [0; 4];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).context("drawing a random number")?;
    Ok(u32::from_ne_bytes(bytes))
}
