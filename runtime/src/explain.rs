//! Which way messages take and why, for people and programs: what `World::explain` gives and `rsrun --explain` prints.
//!
//! Says what [`protocol`](crate::protocol) and the choice of transports have decided; decides nothing. Peers that are
//! reached alike are one entry.

use crate::{
    config::{Entry, Snapshot, keys},
    hint::{SizeHint, size},
    protocol::{DirectRead, Limits, Path, Tier},
    statistics::rank_ranges,
    transport::choice::Choice,
};
use serde::Serialize;
use serde_json::Value;
use std::fmt;

#[cfg(test)]
mod tests;

/// How a rank's messages travel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Explanation {
    /// The rank in the world.
    pub rank: usize,
    /// How many ranks there are.
    pub size: usize,
    /// The rank's host.
    pub host: String,
    /// The size hint, and what it comes to on each transport.
    pub hint: SizeHint,
    /// Peers that are reached alike.
    pub peers: Vec<Peers>,
}

/// Peers that are reached alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Peers {
    /// Their ranks in the world, ascending.
    pub ranks: Vec<usize>,
    /// How many hosts they are on.
    pub hosts: usize,
    /// Whether that is this rank's own host.
    pub same_host: bool,
    /// The transport.
    pub transport: &'static str,
    /// Why this one.
    pub why: String,
    /// The port that it uses, where it is one of a network device.
    pub port: Option<PortUsed>,
    /// The other transports.
    pub refused: Vec<Refused>,
    /// Which sizes take which path, ascending and without gaps.
    pub ranges: Vec<SizeRange>,
}

/// The port of a network device that connections use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PortUsed {
    /// Device and port, as `mlx5_0:1`.
    pub device: String,
    /// This rank's address there.
    pub gid: String,
    /// Its index in the port's table.
    pub gid_index: u8,
    /// The largest packet in bytes: the smaller of the configured one (`verbs.mtu`) and the port's; a peer's may be smaller
    /// still.
    pub mtu: u32,
    /// The largest packet that the port can carry now.
    pub port_mtu: u32,
}

/// A transport that does not carry messages to these peers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refused {
    /// Its name, as in `transport.allow`.
    pub transport: &'static str,
    /// Why not.
    pub why: String,
}

/// Messages of these sizes take one path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SizeRange {
    /// The smallest, in bytes.
    pub from: u64,
    /// The largest, in bytes; `None`: no limit.
    pub to: Option<u64>,
    /// The path in words, as in the statistics.
    pub path: String,
    /// What the range ends with, and where that limit comes from.
    pub why: String,
}

/// What an explanation is made of, for one kind of peers.
pub(crate) struct Group {
    pub(crate) ranks: Vec<usize>,
    pub(crate) hosts: usize,
    pub(crate) same_host: bool,
    pub(crate) limits: Limits,
    pub(crate) port: Option<PortUsed>,
    /// `None`: the rank itself.
    pub(crate) choice: Option<Choice>,
}

impl Peers {
    pub(crate) fn new(group: Group, hint: &SizeHint, snapshot: &Snapshot) -> Self {
        let Group { ranks, hosts, same_host, limits, port, choice } = group;
        let allowed = shown(snapshot, keys::TRANSPORT_ALLOW.name);
        let refused: Vec<Refused> = choice
            .iter()
            .flat_map(|choice| &choice.refused)
            .map(|(transport, refusal)| Refused { transport, why: refusal.to_string() })
            .collect();
        let why = match &choice {
            None => "a rank's messages to itself".to_string(),
            Some(_) => format!("the first that reaches them of {allowed}"),
        };
        let ranges = ranges(&limits, hint, snapshot);
        let transport = choice.and_then(|choice| choice.transport).unwrap_or(limits.capabilities.name);
        Peers { ranks, hosts, same_host, transport, why, port, refused, ranges }
    }
}

fn ranges(limits: &Limits, hint: &SizeHint, snapshot: &Snapshot) -> Vec<SizeRange> {
    let requested = usize::try_from(hint.requested).unwrap_or(usize::MAX);
    let mut from = 0;
    let mut ranges = Vec::new();
    for (end, path) in limits.ranges(requested) {
        let why = why(limits, hint, snapshot, end, path);
        let to = (end != usize::MAX).then_some(end as u64);
        ranges.push(SizeRange { from, to, path: path.to_string(), why });
        from = (end as u64).saturating_add(1);
    }
    ranges
}

/// What the range that ends with `end` ends with.
fn why(limits: &Limits, hint: &SizeHint, snapshot: &Snapshot, end: usize, path: Path) -> String {
    let requested = usize::try_from(hint.requested).unwrap_or(usize::MAX);
    let (can, setting) = (limits.capabilities, shown(snapshot, limits.key));
    let asked = format!("the size hint of {} ({})", size(hint.requested), hint.source);
    match path {
        Path::Inline(_) if end == can.inline => format!("travels within its header, which holds {}", size(end as u64)),
        Path::Inline(Tier::LowLatency) => format!("within its header, up to {asked}"),
        Path::Inline(Tier::Bulk) => format!("within its header, up to {setting}"),
        Path::Eager(Tier::LowLatency) if end == requested => format!("up to {asked}"),
        Path::Eager(Tier::LowLatency) => {
            format!("the low-latency channel takes at most {}, less than {asked}", size(end as u64))
        }
        Path::Eager(Tier::Bulk) if end == limits.wanted => format!("up to {setting}"),
        Path::Eager(Tier::Bulk) if end == requested => format!("up to {asked}, which is above {setting}"),
        Path::Eager(Tier::Bulk) => format!("a record carries at most {}, less than asked for", size(end as u64)),
        Path::Pieces => {
            let piece = size(can.piece as u64);
            match can.direct_read {
                DirectRead::No(why) => format!("waits for its receive, then pieces of {piece}; no direct read: {why}"),
                DirectRead::From(from) => {
                    format!(
                        "waits for its receive, then pieces of {piece}; read directly from {} on",
                        size(from as u64)
                    )
                }
            }
        }
        Path::DirectRead => "waits for its receive, which reads it out of this rank's memory".to_string(),
    }
}

/// `eager.limit = 8KiB (default)`.
fn shown(snapshot: &Snapshot, key: &str) -> String {
    match snapshot.entries().iter().find(|entry| entry.key == key) {
        Some(Entry { key, value, source, .. }) => format!("{key} = {value} ({source})"),
        None => key.to_string(),
    }
}

impl Explanation {
    /// As JSON, on several lines.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_else(|error| unreachable!("plain numbers and texts: {error}"))
    }
}

/// What [`Explanation::to_json`] gives, with what libraries have said of their choices for kinds of calls, each an object,
/// under `collectives`.
#[must_use]
pub fn with_collectives(explanation: &str, said: &[String]) -> String {
    let value = |json: &str| serde_json::from_str(json).unwrap_or_else(|_| Value::String(json.to_owned()));
    let mut all = value(explanation);
    if let Value::Object(all) = &mut all {
        all.insert("collectives".to_owned(), said.iter().map(|entry| value(entry)).collect());
    }
    format!("{all:#}")
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "rank {} of {} on {}: how its messages travel (sizes in bytes)", self.rank, self.size, self.host)?;
        writeln!(f, "size hint {} from {}", size(self.hint.requested), self.hint.source)?;
        for peers in &self.peers {
            peers.fmt(f)?;
            if let Some(on) = self.hint.transports.iter().find(|on| on.transport == peers.transport) {
                writeln!(f, "    hint     {}", on.why)?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Peers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let many = if self.ranks.len() == 1 { "rank" } else { "ranks" };
        let place = match (self.same_host, self.hosts) {
            (true, _) => "this host".to_string(),
            (false, 1) => "another host".to_string(),
            (false, hosts) => format!("{hosts} other hosts"),
        };
        writeln!(f, "\nto {many} {} on {place}: {}", rank_ranges(&self.ranks), self.transport)?;
        writeln!(f, "    chosen   {}", self.why)?;
        if let Some(PortUsed { device, gid, gid_index, mtu, port_mtu }) = &self.port {
            writeln!(
                f,
                "    device   {device}, GID {gid_index} ({gid}), packets of up to {mtu} bytes (the port: {port_mtu})"
            )?;
        }
        for Refused { transport, why } in &self.refused {
            writeln!(f, "    refused  {transport}: {why}")?;
        }
        for SizeRange { from, to, path, why } in &self.ranges {
            let to = to.map_or_else(|| "any".to_string(), |to| to.to_string());
            writeln!(f, "    {from:>9} .. {to:<9}  {path:<23}  {why}")?;
        }
        Ok(())
    }
}
