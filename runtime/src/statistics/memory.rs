//! What goes past messages: collectives in memory that the ranks of a host share, and one-sided operations by any way.
//!
//! Counted without the engine's lock, by loads and stores: a locked addition would take longer than a small put. Threads of
//! one rank that count at the same moment may lose one.

use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering};

/// Calls, and bytes that they moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accesses {
    /// How many.
    pub calls: u64,
    /// Of all of them together.
    pub bytes: u64,
}

/// What one rank has done past messages since it joined its world.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MemoryStatistics {
    /// Collectives in memory that all ranks of the communicator share; bytes of this rank's own elements.
    pub collectives: Accesses,
    /// How often one of them had to wait for other ranks for longer than a moment.
    pub collective_waits: u64,
    /// Puts into symmetric heaps, those of a put with a signal included.
    pub puts: Accesses,
    /// Gets out of them.
    pub gets: Accesses,
    /// Signals and atomic operations on them.
    pub updates: u64,
}

impl MemoryStatistics {
    /// The sum over ranks.
    pub(super) fn sum(all: impl IntoIterator<Item = Self>) -> Self {
        let plus = |a: Accesses, b: Accesses| Accesses { calls: a.calls + b.calls, bytes: a.bytes + b.bytes };
        all.into_iter().fold(Self::default(), |sum, one| MemoryStatistics {
            collectives: plus(sum.collectives, one.collectives),
            collective_waits: sum.collective_waits + one.collective_waits,
            puts: plus(sum.puts, one.puts),
            gets: plus(sum.gets, one.gets),
            updates: sum.updates + one.updates,
        })
    }
}

#[derive(Debug, Default)]
pub(crate) struct AccessCounter {
    calls: AtomicU64,
    bytes: AtomicU64,
}

/// What a rank counts.
#[derive(Debug, Default)]
pub(crate) struct MemoryCounters {
    pub(crate) collectives: AccessCounter,
    pub(crate) collective_waits: Counter,
    pub(crate) puts: AccessCounter,
    pub(crate) gets: AccessCounter,
    pub(crate) updates: Counter,
}

#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

#[inline]
fn raise(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
}

impl Counter {
    #[inline]
    pub(crate) fn add(&self) {
        raise(&self.0, 1);
    }
}

impl AccessCounter {
    #[inline]
    pub(crate) fn add(&self, bytes: usize) {
        raise(&self.calls, 1);
        raise(&self.bytes, bytes as u64);
    }

    #[inline]
    pub(crate) fn add_bytes(&self, bytes: usize) {
        raise(&self.bytes, bytes as u64);
    }

    fn read(&self) -> Accesses {
        Accesses { calls: self.calls.load(Ordering::Relaxed), bytes: self.bytes.load(Ordering::Relaxed) }
    }
}

impl MemoryCounters {
    pub(crate) fn read(&self) -> MemoryStatistics {
        MemoryStatistics {
            collectives: self.collectives.read(),
            collective_waits: self.collective_waits.0.load(Ordering::Relaxed),
            puts: self.puts.read(),
            gets: self.gets.read(),
            updates: self.updates.0.load(Ordering::Relaxed),
        }
    }
}
