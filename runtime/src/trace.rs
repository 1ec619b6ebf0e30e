//! What a rank did when: calls, waits and messages with their times, in a ring of bounded size.
//!
//! Off unless `report.trace` names a file; then a call costs two looks at the clock and one entry. Knows neither the
//! engine nor the launcher: who records calls `Recorder`, who collects writes it out with [`write_chrome`].

mod chrome;
#[cfg(not(loom))]
pub(crate) mod clock;
#[cfg(test)]
mod tests;

pub use chrome::{Summary, write_chrome};

use crate::{memory::Activity, protocol::Path};
use serde::{Deserialize, Serialize};
use std::{
    collections::VecDeque,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
};

/// Something that took time on one thread of a rank. Times are nanoseconds of the host's monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// The thread: an index into [`RankTrace::threads`].
    pub thread: u32,
    /// When it began.
    pub begin: u64,
    /// How long it took.
    pub nanoseconds: u64,
    /// What it was.
    pub what: What,
}

/// What an [`Event`] was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum What {
    /// A call that may block, or a whole collective operation.
    Call(Activity),
    /// The part of a call in which nothing moved at first, until its end.
    Blocked,
    /// The first record of a message was handed to its transport: all of a small message, the announcement of a large one.
    Sent {
        /// To which rank.
        peer: u32,
        /// The how many-th message to it.
        number: u64,
        /// The message's length in bytes.
        bytes: u64,
        /// Its way.
        path: Path,
    },
    /// The first record of a message arrived.
    Arrived {
        /// From which rank.
        peer: u32,
        /// The how many-th message from it.
        number: u64,
        /// The message's length in bytes.
        bytes: u64,
    },
}

/// What one rank has recorded, or a part of that.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RankTrace {
    /// The rank in the world.
    pub rank: u32,
    /// Its host.
    pub host: String,
    /// The names of its threads.
    pub threads: Vec<String>,
    /// How its host's clock differs from that of rank 0's host; `None`: another rank of the host knows.
    pub clock: Option<Clock>,
    /// What is to be added to the monotonic clock for nanoseconds since 1970, as the host believes.
    pub since_1970: i64,
    /// Older events that were dropped because the ring was full.
    pub dropped: u64,
    /// In the order in which they ended.
    pub events: Vec<Event>,
}

/// Events of one part of a trace: a part fits into a frame to the launcher several times.
const PART: usize = 1 << 16;

impl RankTrace {
    /// The same in parts that are not too long for a frame.
    pub(crate) fn parts(mut self) -> impl Iterator<Item = RankTrace> {
        let mut events = std::mem::take(&mut self.events).into_iter();
        let count = events.len().div_ceil(PART).max(1);
        (0..count).map(move |_| RankTrace { events: events.by_ref().take(PART).collect(), ..self.clone() })
    }
}

/// How the monotonic clock of a host differs from that of rank 0's host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clock {
    /// What is to be added to this host's clock, in nanoseconds.
    pub offset: i64,
    /// How wrong that may be at most: half the fastest round trip, in nanoseconds.
    pub accuracy: u64,
}

/// Records events of one rank; shared by its threads.
#[derive(Debug)]
pub(crate) struct Recorder {
    ring: Mutex<Ring>,
}

#[derive(Debug)]
struct Ring {
    capacity: usize,
    events: VecDeque<Event>,
    dropped: u64,
    /// Identity and name of every thread that has recorded anything.
    threads: Vec<(u32, String)>,
    /// For every peer the messages sent and arrived so far.
    messages: Vec<(u64, u64)>,
}

impl Recorder {
    /// For a world of `size` ranks; keeps so many events.
    pub(crate) fn new(size: usize, capacity: usize) -> Self {
        let ring =
            Ring { capacity, events: VecDeque::new(), dropped: 0, threads: Vec::new(), messages: vec![(0, 0); size] };
        Recorder { ring: Mutex::new(ring) }
    }

    fn lock(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something that began then and ends now.
    pub(crate) fn ended(&self, begin: u64, what: What) {
        let nanoseconds = now().saturating_sub(begin);
        let mut ring = self.lock();
        let thread = ring.thread();
        ring.push(Event { thread, begin, nanoseconds, what });
    }

    /// The first record of a message was handed over, which began then.
    pub(crate) fn sent(&self, begin: u64, peer: usize, bytes: usize, path: Path) {
        let number = {
            let mut ring = self.lock();
            ring.messages[peer].0 += 1;
            ring.messages[peer].0
        };
        self.ended(begin, What::Sent { peer: narrow(peer), number, bytes: bytes as u64, path });
    }

    /// The first record of a message arrived; its delivery began then.
    pub(crate) fn arrived(&self, begin: u64, peer: usize, bytes: usize) {
        let number = {
            let mut ring = self.lock();
            ring.messages[peer].1 += 1;
            ring.messages[peer].1
        };
        self.ended(begin, What::Arrived { peer: narrow(peer), number, bytes: bytes as u64 });
    }

    /// Everything that is kept, for a rank on this host.
    pub(crate) fn take(&self, rank: usize, host: &str, clock: Option<Clock>) -> RankTrace {
        let ring = self.lock();
        RankTrace {
            rank: narrow(rank),
            host: host.to_string(),
            threads: ring.threads.iter().map(|(_, name)| name.clone()).collect(),
            clock,
            since_1970: since_1970(),
            dropped: ring.dropped,
            events: ring.events.iter().copied().collect(),
        }
    }
}

impl Ring {
    fn push(&mut self, event: Event) {
        if self.events.len() >= self.capacity {
            self.events.pop_front();
            self.dropped += 1;
        }
        self.events.push_back(event);
    }

    /// The number of the calling thread.
    fn thread(&mut self) -> u32 {
        let me = identity();
        let known = self.threads.iter().position(|(thread, _)| *thread == me);
        narrow(known.unwrap_or_else(|| {
            let name = std::thread::current().name().map_or_else(|| format!("thread {me}"), str::to_string);
            self.threads.push((me, name));
            self.threads.len() - 1
        }))
    }
}

/// A number of the calling thread that no other thread of this process has or had.
fn identity() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    thread_local! {
        static MINE: u32 = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    MINE.with(|mine| *mine)
}

fn narrow(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// The host's monotonic clock in nanoseconds: the same for all processes of the host.
pub(crate) fn now() -> u64 {
    nanoseconds(rustix::time::clock_gettime(rustix::time::ClockId::Monotonic)).cast_unsigned()
}

/// What is to be added to [`now`] for nanoseconds since 1970.
fn since_1970() -> i64 {
    let real = nanoseconds(rustix::time::clock_gettime(rustix::time::ClockId::Realtime));
    real - now().cast_signed()
}

/// 292 years fit.
fn nanoseconds(time: rustix::time::Timespec) -> i64 {
    time.tv_sec.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec)
}
