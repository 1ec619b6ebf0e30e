//! Files that say for each rank where it sits, by logical numbers.
//!
//! One rank a line: `rank 3=hostA slot=0:2-3` (package 0, its cores 2 and 3), `slot=5` (core 5 of the host),
//! `numa=1` or `numa=1:0-3`. `+n2` is the third host. Without a place the rank is not bound.

use super::pool::Pool;
use super::{Draft, Host, Plan, Request, Seat, bind, devices};
use crate::exit::{ExitCode, Failure};
use std::collections::HashMap;
use std::path::Path;

/// The most cores that all lines together may name.
const MAX_CORES: usize = 1 << 22;

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The rank.
    pub rank: u32,
    /// Its host.
    pub host: HostName,
    /// Its cores; `None`: it is not bound.
    pub place: Option<Place>,
    /// `file:line`, for messages.
    pub at: String,
}

/// A host as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostName {
    /// By name.
    Name(String),
    /// `+nX`: by position.
    Position(usize),
}

/// Cores as written, by logical numbers; no numbers: all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Of which part of the host.
    pub part: Part,
    /// Which of its cores.
    pub cores: Vec<usize>,
}

/// A part of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// All of it.
    Host,
    /// A package.
    Package(u32),
    /// A NUMA domain.
    Domain(u32),
}

/// A line that cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}:{column}: {reason}")]
pub struct RankfileError {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1.
    pub column: usize,
    /// What is wrong, and what would be right.
    pub reason: String,
}

/// Reads and understands a rankfile.
///
/// # Errors
/// [`ExitCode::Data`], with file, line and column.
pub fn read(path: &Path) -> Result<Vec<Entry>, Failure> {
    let wrong = |text: String| Failure::new(ExitCode::Data, text);
    let text = crate::input::text(path)
        .map_err(|reason| wrong(format!("the rankfile {} cannot be read: {reason}", path.display())))?;
    parse(&path.display().to_string(), &text).map_err(|error| wrong(crate::input::fit(&error.to_string())))
}

/// Understands the text of a rankfile. Entries come in the order of ranks, `0..n` without gaps.
///
/// # Errors
/// The first line that is wrong.
pub fn parse(file: &str, text: &str) -> Result<Vec<Entry>, RankfileError> {
    let mut found: Vec<(usize, Entry)> = Vec::new();
    let (mut lines, mut cores) = (HashMap::new(), 0);
    for (index, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        let content = line.split('#').next().unwrap_or_default();
        if content.trim().is_empty() {
            continue;
        }
        let number = index + 1;
        let error = |column: usize, reason: String| RankfileError {
            file: file.to_string(),
            line: number,
            column: content[..column].chars().count() + 1,
            reason,
        };
        let entry = entry(content, format!("{file}:{number}")).map_err(|(column, reason)| error(column, reason))?;
        if let Some(first) = lines.insert(entry.rank, number) {
            let column = content.find(|c: char| c.is_ascii_digit()).unwrap_or(0);
            return Err(error(column, format!("rank {} stands on line {first} already", entry.rank)));
        }
        cores += entry.place.as_ref().map_or(0, |place| place.cores.len());
        if cores > MAX_CORES {
            return Err(error(0, format!("up to this line ranks have more than {MAX_CORES} cores")));
        }
        found.push((number, entry));
    }
    found.sort_by_key(|(_, entry)| entry.rank);
    let gap = (0..).zip(&found).find(|(expected, (_, entry))| *expected != entry.rank);
    let whole = |line: usize, reason: String| RankfileError { file: file.to_string(), line, column: 1, reason };
    if let Some((missing, (line, entry))) = gap {
        return Err(whole(*line, format!("rank {} stands here, but rank {missing} stands nowhere", entry.rank)));
    }
    if found.is_empty() {
        return Err(whole(1, "no rank stands in this file: write for example rank 0=localhost slot=0".to_string()));
    }
    Ok(found.into_iter().map(|(_, entry)| entry).collect())
}

/// One line; an error is a byte position and a reason.
fn entry(line: &str, at: String) -> Result<Entry, (usize, String)> {
    let mut words = line.split_whitespace().map(|word| (word.as_ptr() as usize - line.as_ptr() as usize, word));
    let shape = "a line reads: rank N=HOST slot=CORES";
    let (start, first) = words.next().unwrap_or((0, ""));
    if first != "rank" {
        return Err((start, format!("`{first}` is not `rank`: {shape}")));
    }
    let (start, assignment) = words.next().ok_or_else(|| (line.len(), format!("the rank is missing: {shape}")))?;
    let (rank, host) =
        assignment.split_once('=').ok_or_else(|| (start, format!("`{assignment}` has no host: {shape}")))?;
    let number = rank.parse().map_err(|_| (start, format!("`{rank}` is not the number of a rank")))?;
    let host_at = start + rank.len() + 1;
    let host = match host.strip_prefix("+n") {
        Some(position) => HostName::Position(
            position.parse().map_err(|_| (host_at, format!("`{host}` is not +n and the position of a host")))?,
        ),
        None if host.is_empty() => return Err((host_at, format!("the host is missing: {shape}"))),
        None => HostName::Name(host.to_string()),
    };
    let place = match words.next() {
        None => None,
        Some((start, word)) => Some(place(start, word)?),
    };
    if let Some((start, word)) = words.next() {
        return Err((start, format!("`{word}` is too much: {shape}")));
    }
    Ok(Entry { rank: number, host, place, at })
}

fn place(start: usize, word: &str) -> Result<Place, (usize, String)> {
    let Some((kind, value)) = word.split_once('=') else {
        return Err((start, format!("`{word}` has no value: slot=CORES, slot=PACKAGE:CORES, numa=DOMAIN[:CORES]")));
    };
    let value_at = start + kind.len() + 1;
    let index =
        |text: &str| text.parse().map_err(|_| (value_at, format!("`{text}` is not a logical number: write 0, 1, 2 …")));
    match (kind, value.split_once(':')) {
        ("slot", Some((package, cores))) => {
            let cores = numbers(value_at + package.len() + 1, cores)?;
            Ok(Place { part: Part::Package(index(package)?), cores })
        }
        ("slot", None) => Ok(Place { part: Part::Host, cores: numbers(value_at, value)? }),
        ("numa", Some((domain, cores))) => {
            let cores = numbers(value_at + domain.len() + 1, cores)?;
            Ok(Place { part: Part::Domain(index(domain)?), cores })
        }
        ("numa", None) => Ok(Place { part: Part::Domain(index(value)?), cores: Vec::new() }),
        _ => Err((start, format!("`{word}` is not known here: slot=CORES, slot=PACKAGE:CORES, numa=DOMAIN[:CORES]"))),
    }
}

/// `0-2,5`, or `*` for all.
fn numbers(at: usize, text: &str) -> Result<Vec<usize>, (usize, String)> {
    if text == "*" {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    let mut column = at;
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        match (first.parse::<usize>(), last.parse::<usize>()) {
            (Ok(first), Ok(last)) if first <= last && last < 65536 && found.len() <= MAX_CORES => {
                found.extend(first..=last)
            }
            _ => return Err((column, format!("`{part}` is not a core or a range of cores like 0-3"))),
        }
        column += part.len() + 1;
    }
    Ok(found)
}

/// Places every rank as the file says.
pub(super) fn plan(hosts: &[Host<'_>], entries: &[Entry], request: &Request) -> Result<Plan, Failure> {
    let wrong = |entry: &Entry, text: String| Failure::new(ExitCode::Data, format!("{}: {text}", entry.at));
    if let Some(ranks) = request.ranks.filter(|ranks| *ranks as usize != entries.len()) {
        let text = format!("-n {ranks}, but the rankfile has {} ranks: leave -n out", entries.len());
        return Err(Failure::new(ExitCode::Slots, text));
    }
    let mut drafts = Vec::new();
    let mut users: HashMap<(&str, u32), &Entry> = HashMap::new();
    for entry in entries {
        let host = match &entry.host {
            HostName::Position(position) => (*position < hosts.len()).then_some(*position),
            HostName::Name(name) => hosts.iter().position(|host| host.name == name),
        };
        let host = host.ok_or_else(|| {
            let names: Vec<&str> = hosts.iter().take(8).map(|host| host.name).collect();
            let more = if hosts.len() > names.len() { " …" } else { "" };
            let text = match &entry.host {
                HostName::Name(name) => {
                    format!("the job has no host `{name}`, only {}{more}", names.join(", "))
                }
                HostName::Position(position) => {
                    format!("the job has no host +n{position}, only {} (counted from 0)", hosts.len())
                }
            };
            wrong(entry, crate::input::fit(&text))
        })?;
        let mut seat = Seat { host, ..Seat::default() };
        if let Some(place) = &entry.place {
            let node = hosts[host].node.ok_or_else(|| {
                wrong(entry, format!("the topology of host {} is not known: leave its cores out", hosts[host].name))
            })?;
            seat.cores =
                cores(node, place).map_err(|text| wrong(entry, format!("host {} {text}", hosts[host].name)))?;
            let threads = seat.cores.iter().flat_map(|core| &node.cores[*core].threads);
            seat.placement.cpus = threads.filter(|t| t.allowed).map(|t| t.os).collect();
            seat.placement.cpus.sort_unstable();
            seat.placement.domain = bind::domain(node, &seat.cores);
            for cpu in &seat.placement.cpus {
                if let Some(other) = users.insert((hosts[host].machine, *cpu), entry).filter(|_| !request.oversubscribe)
                {
                    let text = format!(
                        "rank {} shares hardware thread {cpu} of host {} with rank {} ({}): allow it with --oversubscribe",
                        entry.rank, hosts[host].name, other.rank, other.at
                    );
                    return Err(wrong(entry, text));
                }
            }
        }
        drafts.push(Draft { host, dealt: drafts.len(), seat, ..Draft::default() });
    }
    let mut plan = Plan { oversubscribed: vec![false; hosts.len()], ..Plan::default() };
    let mut ranks = vec![0; hosts.len()];
    drafts.iter().for_each(|draft| ranks[draft.host] += 1);
    for pool in Pool::all(hosts, &ranks, request) {
        let here = drafts.iter().filter(|draft| pool.hosts.contains(&draft.host));
        let distinct = here.clone().all(|draft| !draft.seat.cores.is_empty()) && !request.oversubscribe;
        let crowded = here.count() > pool.capacity && !distinct;
        pool.hosts.iter().for_each(|host| plan.oversubscribed[*host] = crowded);
    }
    // By host, then back into the order of ranks.
    drafts.sort_by_key(|draft| draft.host);
    for own in drafts.chunk_by_mut(|a, b| a.host == b.host) {
        if let Some(node) = hosts[own[0].host].node {
            devices::choose(node, own);
        }
    }
    drafts.sort_by_key(|draft| draft.dealt);
    plan.seats = drafts.into_iter().map(|draft| draft.seat).collect();
    devices::hide_others(hosts, &mut plan.seats, request)?;
    Ok(plan)
}

/// The cores that a line means; each must have a hardware thread that may be used.
fn cores(node: &spmd::bootstrap::node::Node, place: &Place) -> Result<Vec<usize>, String> {
    let inside = |core: &spmd::bootstrap::node::Core| match place.part {
        Part::Host => true,
        Part::Package(package) => core.package == package,
        Part::Domain(domain) => core.domain == domain,
    };
    let all: Vec<usize> = (0..node.cores.len()).filter(|at| inside(&node.cores[*at])).collect();
    let usable = |at: &usize| node.cores[*at].threads.iter().any(|thread| thread.allowed);
    let part = match place.part {
        Part::Host => String::new(),
        Part::Package(package) => format!(" in package {package}"),
        Part::Domain(domain) => format!(" in NUMA domain {domain}"),
    };
    if place.cores.is_empty() {
        let usable: Vec<usize> = all.into_iter().filter(usable).collect();
        return if usable.is_empty() { Err(format!("has no core{part} that may be used")) } else { Ok(usable) };
    }
    let pick = |number: &usize| match all.get(*number) {
        None => Err(format!("has {} cores{part}, so no core {number}", all.len())),
        Some(at) if !usable(at) => Err(format!("may not use core {number}{part}: it is outside the allowed set")),
        Some(at) => Ok(*at),
    };
    place.cores.iter().map(pick).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        parse("ranks", text).unwrap_err().to_string()
    }

    #[test]
    fn a_line_names_rank_host_and_cores() {
        let entries =
            parse("f", "# mine\r\nrank 1=+n1 slot=1:0-2,5\n\nrank 0=a slot=3\nrank 2=b\nrank 3=b numa=1").unwrap();
        assert_eq!(entries[0].host, HostName::Name("a".into()));
        assert_eq!(entries[0].place, Some(Place { part: Part::Host, cores: vec![3] }));
        assert_eq!(entries[1].host, HostName::Position(1));
        assert_eq!(entries[1].place, Some(Place { part: Part::Package(1), cores: vec![0, 1, 2, 5] }));
        assert_eq!(entries[1].at, "f:2");
        assert_eq!(entries[2].place, None);
        assert_eq!(entries[3].place, Some(Place { part: Part::Domain(1), cores: vec![] }));
    }

    #[test]
    fn what_is_wrong_is_told_with_line_and_column() {
        assert!(error("rank 0=a\nrank 0=b").starts_with("ranks:2:6: rank 0 stands on line 1"));
        assert!(error("rank 0=a\nrank 2=b").starts_with("ranks:2:1: rank 2 stands here, but rank 1"));
        assert!(error("ranks 0=a").starts_with("ranks:1:1: `ranks` is not `rank`"));
        assert!(error("rank x=a").starts_with("ranks:1:6: `x` is not the number"));
        assert!(error("rank 0=").starts_with("ranks:1:8: the host is missing"));
        assert!(error("rank 0=a slot=0:1,x").starts_with("ranks:1:19: `x` is not a core"));
        assert!(error("rank 0=a slots=1").starts_with("ranks:1:10: `slots=1` is not known"));
        assert!(error("rank 0=a slot=1 slot=2").starts_with("ranks:1:17: `slot=2` is too much"));
        assert!(error("rank 0=+nx").starts_with("ranks:1:8: `+nx`"));
        assert!(error("# nothing\n").contains("no rank stands"));
        for word in ["slot", "numa", "é"] {
            assert!(error(&format!("rank 0=a {word}")).starts_with(&format!("ranks:1:10: `{word}` has no value")));
        }
        assert!(error("rank 99999999999=a").starts_with("ranks:1:6: `99999999999` is not the number"));
        assert!(error("rank 0=a slot=0-99999999").starts_with("ranks:1:15: `0-99999999` is not a core"));
        assert!(error("rank 0 = a").starts_with("ranks:1:6: `0` has no host"));
        assert!(error("rank 0=a \\\nslot=0").starts_with("ranks:1:10: "));
        let many: String = (0..100).map(|rank| format!("rank {rank}=a slot=0-65535\n")).collect();
        assert!(error(&many).contains("more than 4194304 cores"));
    }

    proptest::proptest! {
        #[test]
        fn any_words_of_the_language_give_entries_or_an_error(
            words in proptest::collection::vec(
                proptest::sample::select(&["rank", "0", "1=", "=a", "=+n", "slot", "numa", "=", ":", "0-", "3", ",", "*", "é", "#", " ", "\n"][..]),
                0..20
            )
        ) {
            let text = words.concat();
            match parse("ranks", &text) {
                Ok(entries) => proptest::prop_assert!(!entries.is_empty()),
                Err(error) => proptest::prop_assert!(error.line >= 1 && error.column >= 1 && !error.reason.is_empty()),
            }
        }
    }

    #[test]
    fn line_ends_comments_and_a_byte_order_mark_do_not_matter() {
        let plain = parse("ranks", "rank 0=a slot=1\nrank 1=b\n").unwrap();
        for text in [
            "rank 0=a slot=1\r\nrank 1=b",
            "\u{feff}rank 0=a slot=1\nrank 1=b\n",
            "# two\n\n rank 0=a\tslot=1 # one\nrank 1=b\n",
        ] {
            let entries = parse("ranks", text).unwrap();
            let shape = |entries: &[Entry]| {
                entries.iter().map(|e| (e.rank, e.host.clone(), e.place.clone())).collect::<Vec<_>>()
            };
            assert_eq!(shape(&entries), shape(&plain), "{text:?}");
        }
    }
}
