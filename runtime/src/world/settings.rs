//! What the configuration says, as the parts of a rank want it.

use super::Settings;
use crate::{
    bootstrap::messages::Boot,
    comm::Requested,
    config::{Snapshot, Value, keys},
    engine::Waiting,
    protocol::DirectRead,
};
use std::time::Duration;

/// From this size on, ranks that share processors read messages out of each other's memory: two on one processor exchange
/// 16 KiB in 6 us instead of 23, 64 KiB in 9 instead of 63, and 1 MiB in 94 instead of 77 (P99 120 instead of 1,600).
const DIRECT_READ: usize = 16 << 10;

/// Whether `transport.allow` has this word.
pub(super) fn allows(snapshot: &Snapshot, name: &str) -> bool {
    snapshot.get(keys::TRANSPORT_ALLOW).split(',').any(|word| word.trim() == name)
}

/// This rank's place among those of its host.
pub(super) fn place(boot: &Boot) -> usize {
    let rank = boot.rank as usize;
    boot.host_of[..rank].iter().filter(|host| **host == boot.host_of[rank]).count()
}

/// Whether messages within a host are read out of the sender's memory, and from which size on.
pub(super) fn direct_read(boot: &Boot) -> DirectRead {
    match boot.snapshot.get(keys::SHM_DIRECT_READ).as_str() {
        "always" => DirectRead::From(1),
        "auto" if boot.oversubscribed => DirectRead::From(DIRECT_READ),
        "auto" => DirectRead::No("both ranks have a processor, and copy faster together through the lane"),
        _ => DirectRead::No("shm.direct_read = never"),
    }
}

pub(super) fn waiting(snapshot: &Snapshot, oversubscribed: bool) -> Waiting {
    match snapshot.get(keys::WAIT_POLICY).as_str() {
        "spin" => Waiting::Spin,
        "yield" => Waiting::Yield,
        "sleep" => Waiting::SpinThenSleep(Duration::ZERO),
        _ if oversubscribed => Waiting::YieldThenSleep,
        _ => Waiting::SpinThenSleep(snapshot.get(keys::WAIT_SPIN)),
    }
}

/// The size hint of the world: what the program set in code, else the configuration's.
pub(super) fn size_hint(settings: &Settings, snapshot: &Snapshot) -> Requested {
    let key = keys::LOW_LATENCY_SIZE_HINT;
    if let Some((_, Value::Bytes(bytes))) = settings.iter().rev().find(|(name, _)| name == key.name) {
        return Requested { bytes: to_usize(*bytes), source: "World::builder".to_string() };
    }
    let entry = snapshot.entries().iter().find(|entry| entry.key == key.name);
    let source = entry.map_or_else(String::new, |entry| entry.source.to_string());
    Requested { bytes: to_usize(snapshot.get(key)), source }
}

/// Whether the launcher wants to know what ranks have counted.
pub(super) fn counts(snapshot: &Snapshot) -> bool {
    !snapshot.get(keys::REPORT_STATISTICS).is_empty()
}

/// A size from the snapshot; its range fits on every 64-bit machine.
pub(super) fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
