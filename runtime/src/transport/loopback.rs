//! A rank's messages to itself: a queue.

use super::{
    Sink, Transport,
    record::{Header, Payload},
};
use crate::{
    error::Result,
    protocol::{Capabilities, Channels, DirectRead, Tier},
};
use std::collections::VecDeque;

/// The largest payload of one record: the queue copies it.
const LARGEST: usize = 1 << 20;

/// Carries records from a rank to itself.
#[derive(Debug)]
pub(crate) struct Loopback {
    rank: usize,
    queue: VecDeque<(Header, Vec<u8>)>,
}

impl Loopback {
    pub(crate) fn new(rank: usize) -> Self {
        Loopback { rank, queue: VecDeque::new() }
    }
}

impl Transport for Loopback {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            name: "loopback",
            inline: 0,
            eager: LARGEST,
            piece: LARGEST,
            channels: Channels::One { why: "a rank's messages to itself wait in one queue" },
            direct_read: DirectRead::No("they are copied within this process anyway"),
            slow_poll: false,
            gathers: false,
        }
    }

    fn push(&mut self, peer: usize, header: &Header, payload: &[u8], _tier: Tier, _later: bool) -> Result<bool> {
        debug_assert_eq!(peer, self.rank);
        self.queue.push_back((*header, payload.to_vec()));
        Ok(true)
    }

    fn poll(&mut self, sink: &mut dyn Sink) -> Result<bool> {
        // Only what is there now: the sink may cause replies, which are for the next round.
        let now = self.queue.len();
        if now == 0 {
            return Ok(false);
        }
        for (header, payload) in self.queue.drain(..now) {
            sink.record(self.rank, &header, &mut &payload[..] as &mut dyn Payload)?;
        }
        Ok(true)
    }

    fn arm(&mut self) {}

    fn disarm(&mut self) {}

    fn finish(&mut self) -> Result<bool> {
        Ok(true)
    }
}
