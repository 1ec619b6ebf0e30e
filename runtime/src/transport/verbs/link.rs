//! Where a rank is with one peer: not yet, agreeing, open over RDMA, over TCP, gone.

use super::{agree::Offer, lane::Lane};
use crate::{
    error::{Error, Result},
    protocol::Tier,
    transport::{
        Sink,
        record::{Header, Kind},
    },
};
use std::time::Instant;

#[derive(Debug, Default)]
pub(super) enum Link {
    /// Not needed so far.
    #[default]
    Idle,
    /// Our ends are offered; records wait.
    Agreeing(Box<Agreeing>),
    Open(Box<Open>),
    /// RDMA does not reach it, for this reason.
    Tcp(String),
    Gone,
}

/// What is known until both ends are connected.
#[derive(Debug)]
pub(super) struct Agreeing {
    pub(super) lanes: Vec<Lane>,
    pub(super) offers: Option<Vec<Offer>>,
    /// How many of our ends are connected already, in order: one that has failed is tried again alone.
    done: usize,
    pub(super) connected: bool,
    pub(super) peer_ready: bool,
    pub(super) tries: u32,
    pub(super) try_at: Option<Instant>,
}

impl Agreeing {
    pub(super) fn new(lanes: Vec<Lane>) -> Self {
        Self { lanes, offers: None, done: 0, connected: false, peer_ready: false, tries: 0, try_at: None }
    }

    /// Connects our ends with the peer's. The error says whether trying again may help.
    pub(super) fn connect(&mut self) -> std::result::Result<(), (String, bool)> {
        let Some(offers) = &self.offers else { return Ok(()) };
        if offers.len() != self.lanes.len() {
            return Err(("it has another number of channels than we have".into(), false));
        }
        while self.done < self.lanes.len() {
            self.lanes[self.done].connect(&offers[self.done])?;
            self.done += 1;
        }
        self.connected = true;
        Ok(())
    }

    /// What the device has otherwise than it was asked for, in words.
    pub(super) fn deviations(&mut self) -> Result<Vec<String>> {
        let refused = |reason: String| Error::Bootstrap { reason };
        let each = self.lanes.iter_mut().map(|lane| lane.deviations().map_err(refused));
        Ok(each.collect::<Result<Vec<_>>>()?.concat())
    }

    /// Whether records may be sent.
    pub(super) fn is_ready(&self) -> bool {
        self.connected && self.peer_ready
    }
}

/// Open channels to a peer.
#[derive(Debug)]
pub(super) struct Open {
    /// The low-latency one first where there is one; then those for bulk.
    pub(super) lanes: Vec<Lane>,
    /// The first of those for bulk: it takes what needs an order, one-sided operations among them.
    bulk: usize,
    /// The lane that the last piece took.
    last_piece: usize,
    /// The number of the next record that we send, and of the next that we deliver. Pieces have none.
    next_out: u32,
    next_in: u32,
    /// Records sent and delivered in all.
    sent: u64,
    delivered: u64,
    /// How many records the peer has sent in all: it leaves.
    pub(super) farewell: Option<u64>,
    /// The peer has left.
    pub(super) finished: bool,
    said_farewell: bool,
    /// Why nothing reaches it any more.
    pub(super) failed: Option<Failure>,
}

/// Why nothing reaches a peer any more.
#[derive(Debug)]
pub(super) enum Failure {
    /// TCP says that it is gone.
    Lost(String),
    /// A request failed, or what the device reports cannot be.
    Device { reason: String, status: i32, vendor_code: u32 },
}

impl From<String> for Failure {
    fn from(reason: String) -> Self {
        Failure::Device { reason, status: 0, vendor_code: 0 }
    }
}

impl Open {
    pub(super) fn new(lanes: Vec<Lane>, bulk: usize) -> Self {
        Self {
            lanes,
            bulk,
            last_piece: bulk,
            next_out: 0,
            next_in: 0,
            sent: 0,
            delivered: 0,
            farewell: None,
            finished: false,
            said_farewell: false,
            failed: None,
        }
    }

    /// Takes a record; `false` when there is no room now, or ever.
    pub(super) fn push(&mut self, header: &Header, payload: &[u8], tier: Tier, later: bool) -> bool {
        if self.failed.is_some() {
            return false;
        }
        let numbered = header.kind != Kind::Data as u8;
        let header = Header { confirmed: if numbered { self.next_out } else { 0 }, ..*header };
        let mut taken = false;
        for lane in self.lanes_for(numbered, tier) {
            let pushed = self.lanes[lane].push(&header, payload, later);
            taken = self.note(pushed).unwrap_or(false);
            if taken || self.failed.is_some() {
                self.last_piece = if numbered { self.last_piece } else { lane };
                break;
            }
        }
        if taken {
            self.sent += 1;
            self.next_out = self.next_out.wrapping_add(u32::from(numbered));
        }
        taken
    }

    /// The lanes that a record may take, the best first: pieces take them in turn.
    fn lanes_for(&self, numbered: bool, tier: Tier) -> impl Iterator<Item = usize> + use<> {
        let (first, count) = (self.bulk, self.lanes.len() - self.bulk);
        let (from, tries) = match (numbered, tier) {
            (true, Tier::LowLatency) => (None, 1),
            (true, Tier::Bulk) => (Some(first), 1),
            (false, _) => (Some(self.last_piece + 1), count),
        };
        (0..tries).map(move |step| from.map_or(0, |from| first + (from - first + step) % count))
    }

    /// Asks the lane of one-sided operations; `None`: there is no room now, or ever.
    pub(super) fn ask<R>(
        &mut self,
        ask: impl FnOnce(&mut Lane) -> std::result::Result<Option<R>, String>,
    ) -> Option<R> {
        if self.failed.is_some() {
            return None;
        }
        let asked = ask(&mut self.lanes[self.bulk]);
        self.note(asked).flatten()
    }

    /// Keeps the first failure.
    fn note<T>(&mut self, result: std::result::Result<T, String>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(reason) => {
                self.failed.get_or_insert(reason.into());
                None
            }
        }
    }

    /// Lets kept records leave; `true` when any did.
    pub(super) fn flush(&mut self) -> bool {
        let mut moved = false;
        for at in 0..self.lanes.len() {
            let flushed = if self.failed.is_none() { self.lanes[at].flush() } else { Ok(false) };
            moved |= self.note(flushed).unwrap_or(false);
        }
        moved
    }

    /// Delivers what has arrived, in the order of the numbers, at most so many records; how many.
    pub(super) fn deliver(&mut self, peer: usize, most: usize, sink: &mut dyn Sink) -> Result<usize> {
        let mut count = 0;
        'records: while count < most {
            for at in 0..self.lanes.len() {
                let Some(found) = self.lanes[at].peek() else { continue };
                let (header, mut payload) = found.map_err(|what| Error::Corrupt { peer, what })?;
                let kind = Kind::from_byte(header.kind).ok_or(Error::Corrupt { peer, what: "unknown kind" })?;
                if kind != Kind::Data {
                    if header.confirmed != self.next_in {
                        continue;
                    }
                    self.next_in = self.next_in.wrapping_add(1);
                }
                sink.record(peer, &Header { confirmed: 0, ..header }, &mut payload)?;
                self.delivered += 1;
                count += 1;
                let released = self.lanes[at].release();
                self.note(released);
                continue 'records;
            }
            break;
        }
        for at in 0..self.lanes.len() {
            if self.failed.is_none() {
                let returned = self.lanes[at].return_credit();
                self.note(returned);
            }
        }
        Ok(count)
    }

    /// Whether the peer has left and everything that it had sent is delivered.
    pub(super) fn is_over(&self) -> bool {
        self.finished && self.farewell.is_none_or(|records| self.delivered >= records)
    }

    /// We leave. `None`: the device has not sent everything. Else it has, and with the first such answer the number of
    /// records that the peer must be told.
    pub(super) fn settle(&mut self) -> Option<Option<u64>> {
        // Gone, or leaving itself: nobody waits for what is not there.
        if self.failed.is_some() || self.finished || self.said_farewell {
            return Some(None);
        }
        let mut settled = true;
        for at in 0..self.lanes.len() {
            let done = self.lanes[at].settle();
            settled &= self.note(done).unwrap_or(true);
        }
        if !settled {
            return None;
        }
        self.said_farewell = true;
        Some(Some(self.sent))
    }
}
