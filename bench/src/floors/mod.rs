//! What the machine itself can do between the first and the last rank: figures that no library is expected to beat,
//! measured in the same run by the same two processes on the same cores.
//!
//! The two ranks find each other through the library that is measured, under any launcher, and then do without it.

mod memory;
mod shared;
mod socket;

use crate::measure::{Pattern, Plan, Transport, Unit};
use crate::port::{Failure, Port};
use memory::Cores;
use serde::{Deserialize, Serialize};
use shared::Shared;
use socket::Line;
use std::net::{IpAddr, Ipv4Addr, TcpListener};

/// A floor beside a row, in the row's unit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Floor {
    /// What was measured.
    pub name: String,
    /// What it came to.
    pub value: f64,
}

/// What one rank tells the other so that it can find it.
#[derive(Debug, Serialize, Deserialize)]
struct Invitation {
    crowded: bool,
    /// Ranks on the host of the last one.
    beside_last: usize,
    host: Host,
    pid: u32,
    /// The shared memory's descriptor.
    memory: Option<i32>,
    port: u16,
    addresses: Vec<IpAddr>,
    token: [u8; 16],
}

/// What tells whether two processes can share memory and loopback.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Host {
    boot: String,
    processes: String,
    network: String,
}

impl Host {
    fn own() -> Self {
        let link = |name: &str| {
            std::fs::read_link(format!("/proc/self/ns/{name}"))
                .map(|path| path.display().to_string())
                .unwrap_or_default()
        };
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        Host { boot: boot.trim().to_owned(), processes: link("pid"), network: link("net") }
    }
}

/// What the last rank answers.
#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    /// A host of theirs has more ranks than processors: nothing was tried.
    Crowded,
    /// What came of joining the first rank, each way.
    Tried { memory: Result<(), String>, socket: Result<(), String> },
}

/// The first and the last rank, joined without the library. Empty on other ranks.
#[derive(Debug, Default)]
pub struct Floors {
    cores: Option<Cores>,
    line: Option<Line>,
    /// What connects the two ranks in the library, as far as known.
    transport: Option<Transport>,
    /// Why a floor is missing.
    notes: Vec<String>,
}

impl Floors {
    /// Joins the two ranks, unless one of their hosts has more ranks than processors: what others do meanwhile would be
    /// measured. `beside`, on rank 0: how many ranks are on its host, and how many on the last one's.
    ///
    /// # Errors
    /// The library failed.
    pub fn arrange<P: Port>(port: &mut P, plan: &Plan, beside: [usize; 2]) -> Result<Self, Failure> {
        let last = port.size() - 1;
        if port.rank() != 0 && port.rank() != last {
            return Ok(Floors { transport: plan.transport, ..Floors::default() });
        }
        let largest = plan.sizes.iter().map(|bytes| bytes * plan.window_of(*bytes)).max().unwrap_or(0);
        let mut floors = if port.rank() == 0 { invite(port, last, largest, beside)? } else { accept(port, largest)? };
        floors.transport = plan.transport.or(match (&floors.cores, &floors.line) {
            (Some(_), _) => Some(Transport::Shm),
            (None, Some(_)) => Some(Transport::Tcp),
            (None, None) => None,
        });
        Ok(floors)
    }

    /// What connects the two ranks.
    #[must_use]
    pub fn transport(&self) -> Option<Transport> {
        self.transport
    }

    /// Why a floor is missing.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Microseconds to hand over a cache line, on the first rank; both must call it.
    pub fn cache_line(&mut self) -> Option<f64> {
        self.cores.as_mut().map(Cores::cache_line)
    }

    /// The floor for one size of a pattern, on rank 0; all ranks must call it, and it says nothing on the others.
    ///
    /// # Errors
    /// The library failed, or the bare socket did.
    pub fn of_size<P: Port>(&mut self, port: &mut P, plan: &Plan, bytes: usize) -> Result<Option<Floor>, Failure> {
        let window = plan.window_of(bytes);
        let last = port.size() - 1;
        let (name, us) = match (self.transport, &mut self.cores, &mut self.line) {
            (Some(Transport::Shm), Some(cores), _) => {
                let (name, us, by_last) = match plan.pattern {
                    Pattern::Latency | Pattern::Ring | Pattern::Barrier | Pattern::AllReduce
                        if bytes <= LINES_UP_TO =>
                    {
                        ("cache line", cores.cache_line(), false)
                    }
                    Pattern::Latency | Pattern::Ring | Pattern::Barrier | Pattern::AllReduce => {
                        ("memcpy", cores.copy(bytes), true)
                    }
                    Pattern::Rate if bytes <= ONE_LINE => ("stream of lines", cores.line_stream(), false),
                    Pattern::Bandwidth | Pattern::Incast | Pattern::Rate | Pattern::Put => {
                        ("memcpy", cores.copy_windows(window, bytes, false), true)
                    }
                    Pattern::Bibw => ("memcpy both ways", cores.copy_windows(window, bytes, true), true),
                    Pattern::Memory => return Ok(None),
                };
                (name, if by_last { told_by_last(port, last, us)? } else { us })
            }
            (Some(Transport::Tcp), _, Some(line)) => match plan.pattern {
                Pattern::Latency | Pattern::Ring | Pattern::Barrier | Pattern::AllReduce => {
                    ("bare socket", line.round_trip(bytes)?)
                }
                Pattern::Bandwidth | Pattern::Incast | Pattern::Rate | Pattern::Put => {
                    ("bare socket", line.windows(window, bytes)?)
                }
                Pattern::Bibw | Pattern::Memory => return Ok(None),
            },
            _ => return Ok(None),
        };
        let value = match plan.pattern.unit() {
            Unit::Microseconds => us,
            Unit::MegabytesPerSecond => bytes as f64 / us,
            Unit::MillionsPerSecond => 1.0 / us,
            Unit::Megabytes => return Ok(None),
        };
        // Of several pairs the floor is only known for one.
        let known = value > 0.0 && value.is_finite() && !(plan.pattern == Pattern::Rate && port.size() > 2);
        Ok(known.then(|| Floor { name: name.to_owned(), value }))
    }
}

/// Up to here a message's time is compared with a cache line handed over, beyond it with a copy of its bytes.
const LINES_UP_TO: usize = 1024;
/// The bytes that fit into one cache line with a little beside.
const ONE_LINE: usize = 56;

/// Processors of this host that are in use.
fn processors() -> usize {
    let list = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let numbers = |range: &str| {
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        Some((to.parse::<usize>().ok()? + 1).saturating_sub(from.parse().ok()?))
    };
    list.trim().split(',').filter_map(numbers).sum::<usize>().max(1)
}

fn told_by_last<P: Port>(port: &mut P, last: usize, mine: f64) -> Result<f64, Failure> {
    let mut bytes = mine.to_le_bytes();
    if port.rank() == 0 {
        port.receive(&mut bytes, last)?;
    } else {
        port.send(&bytes, 0)?;
    }
    Ok(f64::from_le_bytes(bytes))
}

fn invite<P: Port>(port: &mut P, last: usize, area: usize, beside: [usize; 2]) -> Result<Floors, Failure> {
    let crowded = beside[0] > processors();
    let mut notes = Vec::new();
    let mut offer = |what: &str, error: std::io::Error| notes.push(format!("no {what}: {error}"));
    let shared = Shared::create(area).map_err(|error| offer("memory to share", error)).ok();
    let listener =
        TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).map_err(|error| offer("socket to listen on", error)).ok();
    let mut token = [0; 16];
    rustix::rand::getrandom(&mut token, rustix::rand::GetRandomFlags::empty())?;
    let invitation = Invitation {
        crowded,
        beside_last: beside[1],
        host: Host::own(),
        pid: std::process::id(),
        memory: shared.as_ref().map(Shared::descriptor),
        port: listener.as_ref().and_then(|listener| Some(listener.local_addr().ok()?.port())).unwrap_or(0),
        addresses: socket::own_addresses(),
        token,
    };
    say(port, last, &invitation)?;
    let Answer::Tried { memory, socket } = hear(port, last)? else {
        return Ok(Floors { notes: vec!["no floors: more ranks than processors".into()], ..Floors::default() });
    };
    if let Err(reason) = &memory {
        notes.push(format!("no floors between cores: {reason}"));
    }
    let line = match (socket, listener) {
        (Ok(()), Some(listener)) => Some(Line::accept(&listener, token)?),
        (Err(reason), _) => {
            notes.push(format!("no bare socket: {reason}"));
            None
        }
        _ => None,
    };
    let cores = shared.filter(|_| memory.is_ok()).map(|shared| Cores::new(shared, true));
    Ok(Floors { cores, line, notes, transport: None })
}

fn accept<P: Port>(port: &mut P, area: usize) -> Result<Floors, Failure> {
    let invitation: Invitation = hear(port, 0)?;
    if invitation.crowded || invitation.beside_last > processors() {
        say(port, 0, &Answer::Crowded)?;
        return Ok(Floors::default());
    }
    let own = Host::own();
    let memory = match invitation.memory {
        _ if (&own.boot, &own.processes) != (&invitation.host.boot, &invitation.host.processes) => {
            Err("the ranks are on different hosts".to_owned())
        }
        None => Err("the first rank has none".to_owned()),
        Some(descriptor) => {
            Shared::open(invitation.pid, descriptor, area).map_err(|error| format!("opening the first rank's: {error}"))
        }
    };
    // Within one network loopback is what a library would use, too.
    let near = own.boot == invitation.host.boot && own.network == invitation.host.network;
    let addresses = if near { vec![Ipv4Addr::LOCALHOST.into()] } else { invitation.addresses };
    let line = Line::connect(&addresses, invitation.port, invitation.token).map_err(|error| error.to_string());
    let as_answer = |error: Option<&String>| error.map_or(Ok(()), |error| Err(error.clone()));
    let tried = Answer::Tried { memory: as_answer(memory.as_ref().err()), socket: as_answer(line.as_ref().err()) };
    say(port, 0, &tried)?;
    let cores = memory.ok().map(|shared| Cores::new(shared, false));
    Ok(Floors { cores, line: line.ok(), ..Floors::default() })
}

/// Sends a value: its length as JSON, then the text.
fn say<P: Port, T: Serialize>(port: &mut P, to: usize, value: &T) -> Result<(), Failure> {
    let text = serde_json::to_vec(value)?;
    port.send(&(text.len() as u64).to_le_bytes(), to)?;
    port.send(&text, to)
}

fn hear<P: Port, T: for<'a> Deserialize<'a>>(port: &mut P, from: usize) -> Result<T, Failure> {
    let mut length = [0; 8];
    port.receive(&mut length, from)?;
    let mut text = vec![0; usize::try_from(u64::from_le_bytes(length))?];
    port.receive(&mut text, from)?;
    Ok(serde_json::from_slice(&text)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::own::Own;
    use crate::record::samples;

    fn floor(pattern: Pattern, transport: Transport, bytes: usize) -> Option<Floor> {
        let plan =
            Plan { pattern, sizes: vec![bytes], rounds: 10, window: 4, transport: Some(transport), ..samples::plan() };
        let mut of_ranks = spmd::local::run(2, |world| {
            let mut port = Own::new(world.communicator());
            let mut floors = Floors::arrange(&mut port, &plan, [2, 2]).expect("two threads find each other");
            floors.of_size(&mut port, &plan, bytes).expect("floors can be measured")
        });
        of_ranks.swap_remove(0)
    }

    #[test]
    fn each_pattern_stands_on_the_floor_that_fits_its_transport_and_size() {
        use Pattern::{Bandwidth, Bibw, Latency, Rate};
        for (pattern, transport, bytes, expected) in [
            (Latency, Transport::Shm, 8, Some("cache line")),
            (Latency, Transport::Shm, 65536, Some("memcpy")),
            (Bandwidth, Transport::Shm, 4096, Some("memcpy")),
            (Bibw, Transport::Shm, 4096, Some("memcpy both ways")),
            (Rate, Transport::Shm, 8, Some("stream of lines")),
            (Latency, Transport::Tcp, 8, Some("bare socket")),
            (Bandwidth, Transport::Tcp, 4096, Some("bare socket")),
            // Nothing moves.
            (Bandwidth, Transport::Shm, 0, None),
            (Bibw, Transport::Tcp, 8, None),
        ] {
            let floor = floor(pattern, transport, bytes);
            // One processor alone has no floor between two.
            if processors() < 2 {
                assert_eq!(floor, None);
                continue;
            }
            assert_eq!(floor.as_ref().map(|floor| &*floor.name), expected, "{pattern:?} {transport:?} {bytes}");
            assert!(floor.is_none_or(|floor| floor.value > 0.0));
        }
    }
}
