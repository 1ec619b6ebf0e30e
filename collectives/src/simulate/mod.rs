//! What schedules take on a network of hosts and racks, event by event: links with a rate, a latency and a queue, and
//! memory that the ranks of a host share.
//!
//! Where [`crate::price`] has four constants and is cheap enough for every call, this knows what is shared and says what
//! the time went into. A message starts when its receive is posted (rendezvous) and goes through the ports on its way
//! one after the other, cut through: each serves messages in the order in which they come. Knows schedules, neither
//! operators nor collectives; [`sweep`] has those.

mod fabric;
pub mod sweep;
#[cfg(test)]
mod tests;

pub use fabric::{Fabric, Machine, Racks, Work};

use crate::groups::Groups;
use crate::price::{Instant, Waits, bytes};
use crate::schedule::{Action, Schedule};
use fabric::{AT_END, COPIED, INSIDE, INSIDE_LATENCY, REDUCED};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::fmt;

/// What all the ranks of a host, or all hosts of a rack, share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Part {
    /// A host's link, from it.
    Up,
    /// A host's link, to it.
    Down,
    /// A rack's link, from it.
    RackUp,
    /// A rack's link, to it.
    RackDown,
    /// The memory of a host.
    Memory,
    /// The processors of the machine that emulates all hosts.
    Processors,
}

impl Part {
    const ALL: [Part; 6] = [Part::Up, Part::Down, Part::RackUp, Part::RackDown, Part::Memory, Part::Processors];
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Part::Up => "a host's link, outward",
            Part::Down => "a host's link, inward",
            Part::RackUp => "a rack's link, outward",
            Part::RackDown => "a rack's link, inward",
            Part::Memory => "memory",
            Part::Processors => "the machine's processors",
        })
    }
}

/// How it went.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Seconds until all ranks have finished, when all begin at once.
    pub seconds: f64,
    /// The share of this time that the busiest one of each kind was busy, the busiest kind first.
    pub busy: Vec<(Part, f64)>,
    /// Messages that lost packets at a full port.
    pub losses: usize,
    /// Bytes that were sent again, everything after the first lost packet (Go-Back-N).
    pub resent: f64,
}

impl Outcome {
    /// What the time went into: the part that was busy for most of it, or `None` where ranks mostly waited for each
    /// other's messages, one after the other.
    #[must_use]
    pub fn bottleneck(&self) -> Option<Part> {
        self.busy.first().filter(|(_, share)| *share >= 0.6).map(|(part, _)| *part)
    }
}

/// Something that serves one after the other.
#[derive(Clone, Copy, Debug, Default)]
struct Server {
    free: f64,
    busy: f64,
    /// Who was served last.
    source: usize,
}

impl Server {
    /// Serves for so long from `now` on, at the earliest; when that begins.
    fn serve(&mut self, now: f64, source: usize, time: f64) -> f64 {
        let start = self.free.max(now);
        self.free = start + time;
        self.busy += time;
        self.source = source;
        start
    }
}

/// What happens at a time; of those at the same time earlier steps go first, on whatever rank, so that ports serve
/// chunks in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Ready {
        step: usize,
        rank: usize,
    },
    /// The next part of a message may leave.
    Leave {
        step: usize,
        message: usize,
    },
    /// A piece reaches the next port on its way.
    Arrive {
        step: usize,
        piece: usize,
    },
    Complete {
        step: usize,
        rank: usize,
    },
}

#[derive(Clone, Copy, Debug)]
struct Message {
    source: usize,
    destination: usize,
    sent: usize,
    received: usize,
    /// Those that have not left the sender yet.
    bytes: f64,
    /// A part that leaves at once, so that ports serve several messages in turn.
    part: f64,
    /// Whether nothing of it has left yet.
    whole: bool,
    /// Whether it has lost packets.
    lost: bool,
}

/// A part of a message on its way.
#[derive(Clone, Copy, Debug)]
struct Piece {
    message: usize,
    bytes: f64,
    /// The overhead goes with the first one.
    first: bool,
    last: bool,
    /// How much of its way is behind it.
    stage: usize,
    /// Its last byte has passed all of that by then.
    end: f64,
}

/// What is done with bytes.
#[derive(Clone, Copy, Debug)]
enum Task {
    /// A message within a host.
    Inside(f64),
    /// One end of a message between hosts, or of a part of it; whether it is the first one.
    AtEnd(f64, bool),
    Reduce(f64),
    Copy(f64),
}

/// A message leaves in so many parts, unless they would be smaller than [`SMALLEST_PART`].
const PARTS: f64 = 8.0;

/// Bytes: a few packets.
const SMALLEST_PART: f64 = 12_000.0;

struct Simulation<'a> {
    fabric: &'a Fabric,
    hosts: &'a Groups,
    servers: HashMap<(Part, usize), Server>,
    messages: Vec<Message>,
    pieces: Vec<Piece>,
    /// Messages between hosts that wait for the one before them between the same ranks: a connection carries them in order.
    /// There is an entry, also an empty one, while one is leaving.
    lines: HashMap<(usize, usize), VecDeque<usize>>,
    queue: BinaryHeap<Reverse<(Instant, Event)>>,
    losses: usize,
    resent: f64,
}

/// Runs the schedules of all ranks, in order, with elements of `element_bytes` bytes; `hosts` says which ranks share a
/// host. `None` when the schedules never finish: see [`crate::check`] for why.
#[must_use]
pub fn simulate(schedules: &[Schedule], element_bytes: usize, fabric: &Fabric, hosts: &Groups) -> Option<Outcome> {
    let mut run = Simulation {
        fabric,
        hosts,
        servers: HashMap::new(),
        messages: Vec::new(),
        pieces: Vec::new(),
        lines: HashMap::new(),
        queue: BinaryHeap::new(),
        losses: 0,
        resent: 0.0,
    };
    let mut waits: Vec<Waits> = schedules.iter().map(Waits::new).collect();
    let mut posted: HashMap<(usize, usize, u32), usize> = HashMap::new();
    let mut processors = vec![0.0f64; schedules.len()];
    let mut remaining = 0;
    for (rank, schedule) in schedules.iter().enumerate() {
        remaining += schedule.steps().len();
        for step in (0..schedule.steps().len()).filter(|&step| waits[rank].missing[step] == 0) {
            run.at(0.0, Event::Ready { step, rank });
        }
    }
    let mut seconds = 0.0f64;
    while let Some(Reverse((Instant(now), event))) = run.queue.pop() {
        let (step, rank) = match event {
            Event::Leave { message, .. } => {
                run.leave(now, message);
                continue;
            }
            Event::Arrive { piece, .. } => {
                run.arrive(now, piece);
                continue;
            }
            Event::Complete { step, rank } => {
                remaining -= 1;
                seconds = seconds.max(now);
                waits[rank].complete(step, |step| run.at(now, Event::Ready { step, rank }));
                continue;
            }
            Event::Ready { step, rank } => (step, rank),
        };
        let (label, action) = (schedules[rank].steps()[step].label, schedules[rank].steps()[step].action);
        let bytes = |length: usize| bytes(length, element_bytes);
        let (key, length) = match action {
            Action::Send { peer, from } => ((rank, peer, label), from.length),
            Action::Receive { peer, into } => ((peer, rank, label), into.length),
            Action::Reduce { into, .. } | Action::Copy { into, .. } => {
                let bytes = bytes(into.length);
                let from = now.max(processors[rank]);
                let end = run.work(
                    from,
                    rank,
                    match action {
                        Action::Copy { .. } => Task::Copy(bytes),
                        _ => Task::Reduce(bytes),
                    },
                );
                processors[rank] = end;
                run.at(end, Event::Complete { step, rank });
                continue;
            }
        };
        let Some(other) = posted.remove(&key) else {
            posted.insert(key, step);
            continue;
        };
        let (source, destination, _) = key;
        let (sent, received) = if rank == source { (step, other) } else { (other, step) };
        let (bytes, id) = (bytes(length), run.messages.len());
        let part = (bytes / PARTS).max(SMALLEST_PART);
        run.messages.push(Message { source, destination, sent, received, bytes, part, whole: true, lost: false });
        run.begin(now, id);
    }
    (remaining == 0).then(|| run.outcome(seconds))
}

impl Simulation<'_> {
    fn at(&mut self, time: f64, event: Event) {
        self.queue.push(Reverse((Instant(time), event)));
    }

    /// What a rank's host does with bytes, in its memory or on the processors of the one machine; when that ends.
    fn work(&mut self, now: f64, rank: usize, task: Task) -> f64 {
        let Some(machine) = self.fabric.machine else {
            let traffic = match task {
                Task::Inside(bytes) => INSIDE * bytes,
                Task::AtEnd(bytes, _) => AT_END * bytes,
                Task::Reduce(bytes) => REDUCED * bytes,
                Task::Copy(bytes) => COPIED * bytes,
            };
            let time = traffic / self.fabric.memory;
            let memory = self.servers.entry((Part::Memory, self.hosts.of(rank))).or_default();
            return memory.serve(now, rank, time) + time;
        };
        let time = match task {
            Task::Inside(bytes) => machine.inside.message + bytes * machine.inside.byte,
            Task::AtEnd(bytes, first) => {
                (bytes * machine.between.byte + if first { machine.between.message } else { 0.0 }) / 2.0
            }
            Task::Reduce(bytes) | Task::Copy(bytes) => bytes * machine.reduced,
        };
        // Whichever is free first.
        let free = |index: &usize| self.servers.get(&(Part::Processors, *index)).map_or(0.0, |server| server.free);
        let first = (0..machine.processors.max(1)).min_by(|a, b| free(a).total_cmp(&free(b))).unwrap_or(0);
        self.servers.entry((Part::Processors, first)).or_default().serve(now, rank, time) + time
    }

    /// A message leaves, or waits for the one before it.
    fn begin(&mut self, now: f64, id: usize) {
        let Message { source, destination, .. } = self.messages[id];
        if self.hosts.of(source) == self.hosts.of(destination) {
            return self.leave(now, id);
        }
        match self.lines.get_mut(&(source, destination)) {
            Some(line) => line.push_back(id),
            None => {
                self.lines.insert((source, destination), VecDeque::new());
                self.leave(now, id);
            }
        }
    }

    /// The next part of a message passes its host's memory and link.
    fn leave(&mut self, now: f64, id: usize) {
        let Message { source, destination, sent, received, bytes: left, part, whole, .. } = self.messages[id];
        let from = self.hosts.of(source);
        if from == self.hosts.of(destination) {
            let end = self.work(now, source, Task::Inside(left)) + INSIDE_LATENCY;
            self.at(end, Event::Complete { step: sent, rank: source });
            self.at(end, Event::Complete { step: received, rank: destination });
            return;
        }
        let Fabric { rate, latency, overhead, .. } = *self.fabric;
        let bytes = left.min(part);
        let copied = self.work(now, source, Task::AtEnd(bytes, whole));
        let time = bytes / rate + if whole { overhead } else { 0.0 };
        let start = self.servers.entry((Part::Up, from)).or_default().serve(now, source, time);
        let end = copied.max(start + time);
        let last = bytes >= left;
        self.messages[id].bytes -= bytes;
        self.messages[id].whole = false;
        self.at(
            end,
            if last { Event::Complete { step: sent, rank: source } } else { Event::Leave { step: sent, message: id } },
        );
        if last {
            match self.lines.get_mut(&(source, destination)).and_then(VecDeque::pop_front) {
                Some(next) => self.at(end, Event::Leave { step: self.messages[next].sent, message: next }),
                None => drop(self.lines.remove(&(source, destination))),
            }
        }
        // The first packet goes on while others follow.
        self.pieces.push(Piece { message: id, bytes, first: whole, last, stage: 0, end: end + latency });
        self.at(end - time + latency, Event::Arrive { step: sent, piece: self.pieces.len() - 1 });
    }

    /// A piece passes the next port of a switch, or is copied out where it was going.
    fn arrive(&mut self, now: f64, id: usize) {
        let Piece { message, bytes, first, last, stage, end } = self.pieces[id];
        let Message { source, destination, sent, received, .. } = self.messages[message];
        let (from, to) = (self.hosts.of(source), self.hosts.of(destination));
        let Fabric { rate, latency, overhead, .. } = *self.fabric;
        let rack = |host: usize| self.fabric.racks.map_or(0, |racks| host / racks.hosts.max(1));
        let (leaves, enters) = (rack(from), rack(to));
        let way: &[Part] = if leaves == enters { &[Part::Down] } else { &[Part::RackUp, Part::RackDown, Part::Down] };
        let Some(&part) = way.get(stage) else {
            let end = self.work(now, destination, Task::AtEnd(bytes, first));
            if last {
                self.at(end, Event::Complete { step: received, rank: destination });
            }
            return;
        };
        let (index, rate) = match part {
            Part::RackUp => (leaves, self.rack_rate()),
            Part::RackDown => (enters, self.rack_rate()),
            Part::Up | Part::Down | Part::Memory | Part::Processors => (to, rate),
        };
        let again = self.lost(now, (part, index), message, bytes, rate);
        let time = (bytes + again) / rate + if first { overhead } else { 0.0 };
        let start = self.servers.entry((part, index)).or_default().serve(now, source, time);
        // Leaving the rack is one more way between switches.
        let hop = if part == Part::RackUp { latency } else { 0.0 };
        let end = end.max(start + time) + hop;
        self.pieces[id].stage += 1;
        self.pieces[id].end = end;
        let at_last_port = stage + 1 == way.len();
        self.at(if at_last_port { end } else { start + hop }, Event::Arrive { step: sent, piece: id });
    }

    #[allow(clippy::cast_precision_loss)] // Hosts of a rack.
    fn rack_rate(&self) -> f64 {
        self.fabric.racks.map_or(f64::INFINITY, |racks| self.fabric.rate * racks.hosts as f64 / racks.oversubscription)
    }

    /// Bytes that a message sends again because a piece of it met a full queue: what was under way when its first packet
    /// was lost, which is a queue and what the link holds; once, as senders slow down then. A sender's own messages do not
    /// make it lose any.
    fn lost(&mut self, now: f64, port: (Part, usize), message: usize, bytes: f64, rate: f64) -> f64 {
        let Message { source, lost, .. } = self.messages[message];
        let server = self.servers.get(&port).copied().unwrap_or_default();
        let waiting = (server.free - now).max(0.0) * rate;
        if lost || waiting <= self.fabric.queue || server.source == source || bytes <= 0.0 {
            return 0.0;
        }
        let window = bytes.min(self.fabric.queue + 2.0 * self.fabric.latency * rate);
        self.messages[message].lost = true;
        self.losses += 1;
        self.resent += window;
        window
    }

    fn outcome(&self, seconds: f64) -> Outcome {
        let share = |part: Part| {
            let busiest = self.servers.iter().filter(|((of, _), _)| *of == part).map(|(_, server)| server.busy);
            busiest.reduce(f64::max).map(|busy| (part, busy / seconds.max(f64::MIN_POSITIVE)))
        };
        let mut busy: Vec<(Part, f64)> = Part::ALL.into_iter().filter_map(share).collect();
        busy.sort_by(|a, b| b.1.total_cmp(&a.1));
        Outcome { seconds, busy, losses: self.losses, resent: self.resent }
    }
}
