//! The statistics of a whole job: sums, the busiest pairs, a table and JSON. Pure.

use super::{Accesses, DeviceCounter, DeviceStatistics, MemoryStatistics, Statistics, Tally};
use crate::protocol::Path;
use serde::Serialize;
use std::{collections::BTreeMap, fmt};

/// Pairs of ranks that the table shows.
const PAIRS: usize = 10;

/// The statistics of all ranks of a job that have been heard of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct JobStatistics {
    /// How many ranks the job has.
    pub size: usize,
    /// Ranks of which nothing is known: they died before they said anything, or are no users of this library.
    pub missing: Vec<usize>,
    /// What all ranks sent, by path.
    pub paths: Vec<(Path, Tally)>,
    /// What all ranks sent, by transport.
    pub transports: Vec<(String, Tally)>,
    /// The counters of transports, summed over ranks: transport, name, number.
    pub counters: Vec<(String, String, u64)>,
    /// What network devices have counted, by host. Of the ranks that share one, what the rank saw that saw the most.
    pub devices: Vec<(String, DeviceStatistics)>,
    /// What went past messages, summed over ranks.
    pub memory: MemoryStatistics,
    /// The pairs that exchanged the most bytes: sender, receiver, and what was sent.
    pub top_pairs: Vec<(usize, usize, Tally)>,
    /// Every rank, ascending.
    pub ranks: Vec<Statistics>,
}

impl JobStatistics {
    /// Of a job of `size` ranks.
    #[must_use]
    pub fn new(size: usize, mut ranks: Vec<Statistics>) -> Self {
        ranks.sort_by_key(|rank| rank.rank);
        let missing = (0..size).filter(|rank| ranks.binary_search_by_key(rank, |known| known.rank).is_err()).collect();
        let mut paths = Path::ALL.map(|path| (path, Tally::default())).to_vec();
        let mut transports: BTreeMap<&str, Tally> = BTreeMap::new();
        let mut counters: BTreeMap<(&str, &str), u64> = BTreeMap::new();
        let mut pairs = Vec::new();
        for rank in &ranks {
            for peer in &rank.peers {
                for (path, tally) in &peer.sent {
                    let sum = &mut paths[path.index()].1;
                    *sum = Tally::sum([*sum, *tally]);
                }
                let sent = peer.sent_total();
                let sum = transports.entry(&peer.transport).or_default();
                *sum = Tally::sum([*sum, sent]);
                if peer.peer != rank.rank && sent.messages > 0 {
                    pairs.push((rank.rank, peer.peer, sent));
                }
            }
            for transport in &rank.transports {
                for (name, number) in &transport.counters {
                    *counters.entry((&transport.transport, name)).or_default() += number;
                }
            }
        }
        paths.retain(|(_, tally)| tally.messages > 0);
        pairs.sort_by_key(|(from, to, tally)| (std::cmp::Reverse((tally.bytes, tally.messages)), *from, *to));
        pairs.truncate(PAIRS);
        let transports = transports.into_iter().map(|(name, tally)| (name.to_string(), tally)).collect();
        let counters = counters
            .into_iter()
            .map(|((transport, name), number)| (transport.to_string(), name.to_string(), number))
            .collect();
        let devices = devices(&ranks);
        let memory = MemoryStatistics::sum(ranks.iter().map(|rank| rank.memory));
        JobStatistics { size, missing, paths, transports, counters, devices, memory, top_pairs: pairs, ranks }
    }

    /// As JSON, on several lines.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_else(|error| unreachable!("plain numbers and texts: {error}"))
    }
}

/// What each device of each host has counted. Every rank has read the same counters, from a time of its own on.
fn devices(ranks: &[Statistics]) -> Vec<(String, DeviceStatistics)> {
    let mut found: BTreeMap<(&str, &str), BTreeMap<&str, DeviceCounter>> = BTreeMap::new();
    for rank in ranks {
        for DeviceStatistics { device, counters } in rank.transports.iter().filter_map(|it| it.device.as_ref()) {
            let known = found.entry((&rank.host, device)).or_default();
            for counter in counters {
                let most = known.entry(&counter.name).or_insert_with(|| counter.clone());
                most.count = most.count.max(counter.count);
            }
        }
    }
    let statistics = |((host, device), counters): ((&str, &str), BTreeMap<&str, DeviceCounter>)| {
        (host.to_string(), DeviceStatistics { device: device.to_string(), counters: counters.into_values().collect() })
    };
    found.into_iter().map(statistics).collect()
}

/// What people want to see of a device's counters: what has happened, and what must not.
fn shown(counter: &DeviceCounter) -> Option<String> {
    let DeviceCounter { name, meaning, count } = counter;
    match meaning {
        Some(meaning) if *count > 0 || meaning.is_trouble() => Some(format!("{name} {count} ({meaning})")),
        None if *count > 0 => Some(format!("{name} {count}")),
        _ => None,
    }
}

/// Bytes with three digits that count: `1.23 MiB`.
fn human(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 10_000 {
        return format!("{bytes} B");
    }
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    let mut number = bytes as f64 / 1024.0;
    let mut unit = 0;
    while number >= 1000.0 && unit + 1 < UNITS.len() {
        number /= 1024.0;
        unit += 1;
    }
    let digits = if number < 10.0 { 2 } else { usize::from(number < 100.0) };
    format!("{number:.digits$} {}", UNITS[unit])
}

/// A table whose first column is text and whose others are right-aligned.
fn table(f: &mut fmt::Formatter<'_>, rows: &[Vec<String>]) -> fmt::Result {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    for row in rows {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            line += &if column == 0 { format!("  {cell:<width$}") } else { format!("  {cell:>width$}") };
        }
        writeln!(f, "{}", line.trim_end())?;
    }
    Ok(())
}

fn cells(tally: Tally) -> [String; 2] {
    [tally.messages.to_string(), human(tally.bytes)]
}

impl fmt::Display for JobStatistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.ranks.is_empty() {
            return writeln!(f, "statistics of {} ranks: nothing is known of any of them", self.size);
        }
        let all = Tally::sum(self.ranks.iter().map(Statistics::sent));
        writeln!(f, "statistics of {} ranks: {} messages, {} sent", self.size, all.messages, human(all.bytes))?;
        let header = |words: &[&str]| words.iter().map(|word| (*word).to_string()).collect::<Vec<_>>();
        let mut rows = vec![header(&["path", "messages", "bytes"])];
        rows.extend(self.paths.iter().map(|(path, tally)| [vec![path.to_string()], cells(*tally).to_vec()].concat()));
        rows.push(header(&["over", "messages", "bytes"]));
        rows.extend(self.transports.iter().map(|(name, tally)| [vec![name.clone()], cells(*tally).to_vec()].concat()));
        table(f, &rows)?;
        let mut rows = vec![header(&[
            "rank on host",
            "sent",
            "bytes",
            "received",
            "bytes",
            "stalls",
            "spins",
            "yields",
            "sleeps",
        ])];
        for rank in &self.ranks {
            let mark = if rank.complete { "" } else { " (until shortly before its end)" };
            let numbers = [rank.stalls(), rank.waits.spins, rank.waits.yields, rank.waits.sleeps];
            rows.push(
                [
                    vec![format!("{} {}{mark}", rank.rank, rank.host)],
                    cells(rank.sent()).to_vec(),
                    cells(rank.received()).to_vec(),
                    numbers.map(|number| number.to_string()).to_vec(),
                ]
                .concat(),
            );
        }
        table(f, &rows)?;
        if !self.top_pairs.is_empty() {
            let mut rows = vec![header(&["busiest pairs", "messages", "bytes"])];
            let pairs = self.top_pairs.iter();
            rows.extend(
                pairs.map(|(from, to, tally)| [vec![format!("{from} to {to}")], cells(*tally).to_vec()].concat()),
            );
            table(f, &rows)?;
        }
        if self.memory != MemoryStatistics::default() {
            let MemoryStatistics { collectives, collective_waits, puts, gets, updates } = self.memory;
            let shown = |accesses: Accesses, what| format!("{} {what} ({})", accesses.calls, human(accesses.bytes));
            writeln!(
                f,
                "  past messages: {}, which waited {collective_waits} times, {}, {}, {updates} signals and atomic operations",
                shown(collectives, "collectives in shared memory"),
                shown(puts, "puts"),
                shown(gets, "gets"),
            )?;
        }
        let counters: Vec<String> =
            self.counters.iter().map(|(transport, name, number)| format!("{transport} {name} {number}")).collect();
        if !counters.is_empty() {
            writeln!(f, "  counted by transports: {}", counters.join(", "))?;
        }
        for (host, DeviceStatistics { device, counters }) in &self.devices {
            let counters: Vec<String> = counters.iter().filter_map(shown).collect();
            let counters = if counters.is_empty() { "nothing".to_string() } else { counters.join(", ") };
            writeln!(f, "  counted by {device} on {host}: {counters}")?;
        }
        if !self.missing.is_empty() {
            writeln!(f, "  nothing is known of ranks {}", super::rank_ranges(&self.missing))?;
        }
        Ok(())
    }
}
