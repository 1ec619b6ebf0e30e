//! What a rank has sent, received and waited for: plain counters in its engine, and what they say to people and programs.
//!
//! Counting is an addition to a number that only this rank writes; the engine's lock is held anyway. Knows nothing of how
//! counters travel to the launcher.

mod job;
mod memory;
#[cfg(test)]
mod tests;

pub use job::JobStatistics;
// Its users are left out under loom.
#[cfg(not(loom))]
pub(crate) use memory::MemoryCounters;
pub use memory::{Accesses, MemoryStatistics};

use crate::protocol::Path;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Messages and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// How many.
    pub messages: u64,
    /// Their payload in bytes.
    pub bytes: u64,
}

impl Tally {
    #[inline]
    pub(crate) fn add(&mut self, bytes: usize) {
        self.messages += 1;
        self.bytes += bytes as u64;
    }

    /// The sum of several.
    fn sum(all: impl IntoIterator<Item = Tally>) -> Tally {
        all.into_iter().fold(Tally::default(), |sum, one| Tally {
            messages: sum.messages + one.messages,
            bytes: sum.bytes + one.bytes,
        })
    }
}

/// How blocked calls have waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waits {
    /// Looks that found nothing, after which the rank looked again at once.
    pub spins: u64,
    /// Times it let others run.
    pub yields: u64,
    /// Times it slept.
    pub sleeps: u64,
}

/// What a rank counts for one peer. Indexed by [`Path::index`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PeerCounters {
    pub(crate) sent: [Tally; Path::ALL.len()],
    pub(crate) received: Received,
    pub(crate) stalls: u64,
}

/// What has been received from one peer, by whether it came unasked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Received {
    /// Messages that came at once, before or after their receive.
    pub eager: Tally,
    /// Messages that were announced and asked for.
    pub rendezvous: Tally,
}

impl Received {
    fn total(&self) -> Tally {
        Tally::sum([self.eager, self.rendezvous])
    }
}

/// What one rank has counted since it joined its world.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Statistics {
    /// The rank in the world.
    pub rank: usize,
    /// Its host.
    pub host: String,
    /// `false`: the rank went on counting, or died, after this.
    pub complete: bool,
    /// The peers with which it exchanged anything, ascending.
    pub peers: Vec<PeerStatistics>,
    /// How its blocked calls have waited.
    pub waits: Waits,
    /// What it has done past messages.
    pub memory: MemoryStatistics,
    /// What its transports have counted.
    pub transports: Vec<TransportStatistics>,
}

/// What one rank has exchanged with one peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PeerStatistics {
    /// The peer's rank in the world.
    pub peer: usize,
    /// The transport that reaches it.
    pub transport: String,
    /// What was sent, by path; paths without messages are left out.
    pub sent: Vec<(Path, Tally)>,
    /// What was received.
    pub received: Received,
    /// How often a message had to wait because the transport had no room for it or the peer had given no credit.
    pub stalls: u64,
    /// What the transport has counted for this peer alone: names and numbers of its own.
    pub link: Vec<(String, u64)>,
}

/// What one transport has counted: names and numbers of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransportStatistics {
    /// The transport's name.
    pub transport: String,
    /// For example `wake-ups`.
    pub counters: Vec<(String, u64)>,
    /// What the network device has counted, where the transport has one that counts.
    pub device: Option<DeviceStatistics>,
}

/// What the port of a network device has counted since the rank opened it. Everything that uses the port is in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceStatistics {
    /// Device and port, as `mlx5_0:1`.
    pub device: String,
    /// All that the driver counts, by name.
    pub counters: Vec<DeviceCounter>,
}

/// One counter of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceCounter {
    /// The driver's name for it.
    pub name: String,
    /// What it says, where that is known of the name.
    pub meaning: Option<Meaning>,
    /// What it has risen by.
    pub count: u64,
}

/// What a counter of a network device says, whatever its vendor calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Meaning {
    /// Packets sent.
    Sent,
    /// Packets received.
    Received,
    /// A receiver had no place for what came (RNR): credits or receives are missing.
    NotReady,
    /// Packets were sent again: something was lost, or `verbs.timeout` is too short.
    Resent,
    /// Packets came out of order, or the peer said so: loss, or several paths.
    OutOfSequence,
    /// No acknowledgement came within `verbs.timeout`: loss, a dead peer, or too short a time.
    TimedOut,
    /// A request came twice: an acknowledgement was lost, or the peer's timeout is too short.
    Duplicate,
    /// A connection failed after all retries.
    GaveUp,
    /// The network said that it is congested.
    Congestion,
    /// The link went down.
    LinkDown,
}

impl Meaning {
    /// Whether people want to see that it has not happened.
    fn is_trouble(self) -> bool {
        matches!(self, Meaning::NotReady | Meaning::Resent | Meaning::GaveUp)
    }
}

impl fmt::Display for Meaning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Meaning::Sent => "packets sent",
            Meaning::Received => "packets received",
            Meaning::NotReady => "receiver not ready",
            Meaning::Resent => "sent again",
            Meaning::OutOfSequence => "out of sequence",
            Meaning::TimedOut => "no acknowledgement in time",
            Meaning::Duplicate => "came twice",
            Meaning::GaveUp => "given up",
            Meaning::Congestion => "congestion",
            Meaning::LinkDown => "link down",
        })
    }
}

impl PeerStatistics {
    pub(crate) fn new(peer: usize, transport: &str, counters: &PeerCounters, link: Vec<(String, u64)>) -> Option<Self> {
        let PeerCounters { sent, received, stalls } = *counters;
        let sent: Vec<_> = Path::ALL.into_iter().zip(sent).filter(|(_, tally)| *tally != Tally::default()).collect();
        let anything = !sent.is_empty() || received != Received::default() || stalls > 0 || !link.is_empty();
        anything.then(|| PeerStatistics { peer, transport: transport.to_string(), sent, received, stalls, link })
    }

    fn sent_total(&self) -> Tally {
        Tally::sum(self.sent.iter().map(|(_, tally)| *tally))
    }
}

impl Statistics {
    /// Everything sent to all peers.
    #[must_use]
    pub fn sent(&self) -> Tally {
        Tally::sum(self.peers.iter().map(PeerStatistics::sent_total))
    }

    /// Everything received from all peers.
    #[must_use]
    pub fn received(&self) -> Tally {
        Tally::sum(self.peers.iter().map(|peer| peer.received.total()))
    }

    /// Messages that had to wait for room or credit.
    #[must_use]
    pub fn stalls(&self) -> u64 {
        self.peers.iter().map(|peer| peer.stalls).sum()
    }
}

/// Ranks as ranges: `0-3,7`.
pub(crate) fn rank_ranges(ranks: &[usize]) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for rank in ranks {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *rank => *last = *rank,
            _ => runs.push((*rank, *rank)),
        }
    }
    let texts = runs.iter().map(|(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    });
    texts.collect::<Vec<_>>().join(",")
}
