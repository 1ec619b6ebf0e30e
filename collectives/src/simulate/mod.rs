//! What schedules take on a network of hosts and racks, event by event: links with a rate, a latency and a queue, and
//! memory that the ranks of a host share.
//!
//! Where [`crate::price`] has four constants and is cheap enough for every call, this knows what is shared and says what
//! the time went into. A small message leaves at once; a large one is announced, asked for when its receive is there, and
//! then leaves. It goes through the ports on its way one after the other, cut through: each serves messages in the order in
//! which they come. Knows schedules, neither operators nor collectives; [`sweep`] has those.

mod embed;
mod fabric;
pub mod in_memory;
mod messages;
mod processors;
pub mod sweep;
#[cfg(test)]
mod tests;

pub use embed::among;
pub use fabric::{Eager, Fabric, Machine, Racks, Work};

use crate::groups::Groups;
use crate::price::{Instant, Waits, bytes};
use crate::schedule::{Action, Schedule};
use fabric::{AT_END, COPIED, INSIDE, REDUCED};
use messages::{Kind, Message, PARTS, Piece, SMALLEST_PART};
use processors::{Processors, Source};
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
    /// Seconds that the processors of the machine that emulates all hosts were busy from first to last, added up.
    pub processors: f64,
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
#[derive(Clone, Copy, Debug)]
struct Server {
    free: f64,
    busy: f64,
    /// Who was served last.
    source: usize,
}

impl Default for Server {
    /// One that has been idle for long.
    fn default() -> Server {
        Server { free: f64::NEG_INFINITY, busy: 0.0, source: 0 }
    }
}

impl Server {
    /// Serves for so long from `now` on, at the earliest; when that begins and ends. What it saved while it was idle, up to
    /// `saved`, is not waited for.
    fn serve(&mut self, now: f64, source: usize, time: f64, saved: f64) -> (f64, f64) {
        let start = self.free.max(now - saved);
        self.free = start + time;
        self.busy += time;
        self.source = source;
        (start.max(now), self.free.max(now))
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
    /// A rank has handed a piece to its host's system.
    Push {
        step: usize,
        piece: usize,
    },
    /// A piece is at its host's link.
    Depart {
        step: usize,
        piece: usize,
    },
    /// A piece reaches the next port on its way.
    Arrive {
        step: usize,
        piece: usize,
    },
    /// The receiver's system has a piece.
    Land {
        step: usize,
        piece: usize,
    },
    /// The receiver has a piece.
    Take {
        step: usize,
        piece: usize,
    },
    /// The sender has done its part of a message within a host.
    Hand {
        step: usize,
        message: usize,
    },
    /// The receiver has a message from its own host.
    Have {
        step: usize,
        message: usize,
    },
    Complete {
        step: usize,
        rank: usize,
    },
    /// A rank has a processor and does what it has to do. The last: whatever else happens at that time may give it work.
    Turn {
        rank: usize,
    },
}

/// What is done with bytes.
#[derive(Clone, Copy, Debug)]
enum Task {
    /// One end of a message within a host, with the bytes that are copied there.
    Inside(f64),
    /// One end of a message between hosts, or of a part of it; whether it is the first one.
    AtEnd(f64, bool),
    Reduce(f64),
    Copy(f64),
}

/// One end of a message that is ready while the other is not yet.
#[derive(Clone, Copy, Debug)]
enum Posted {
    Receive(usize),
    Message(usize),
}

/// How far a rank is.
struct Progress {
    /// Which of the schedules, one after the other, it is in.
    phase: usize,
    waits: Waits,
    remaining: usize,
    /// When it began the last one.
    begun: f64,
    /// It computes until then, where it has a processor of its own.
    busy_until: f64,
}

struct Simulation<'a> {
    fabric: &'a Fabric,
    hosts: &'a Groups,
    /// What the ranks do one after the other: the schedules of all of them.
    phases: &'a [&'a [Schedule]],
    element_bytes: usize,
    ranks: Vec<Progress>,
    processors: Option<Processors>,
    servers: HashMap<(Part, usize), Server>,
    messages: Vec<Message>,
    pieces: Vec<Piece>,
    posted: HashMap<(usize, usize, usize, u32), Posted>,
    /// Messages between hosts that wait for the one before them between the same ranks: a connection carries them in order.
    /// There is an entry, also an empty one, while one is leaving.
    lines: HashMap<(usize, usize), VecDeque<usize>>,
    queue: BinaryHeap<Reverse<(Instant, Event)>>,
    seconds: f64,
    losses: usize,
    resent: f64,
}

/// Runs the schedules of all ranks, in order, with elements of `element_bytes` bytes; `hosts` says which ranks share a
/// host. `None` when the schedules never finish: see [`crate::check`] for why.
#[must_use]
pub fn simulate(schedules: &[Schedule], element_bytes: usize, fabric: &Fabric, hosts: &Groups) -> Option<Outcome> {
    simulate_each(&[schedules], element_bytes, fabric, hosts)
}

/// As [`simulate`], of several collectives one after the other, each rank at its own pace. The outcome's seconds are those of
/// the last one as the ranks time it themselves: of the rank for which it takes longest from its own beginning on.
///
/// # Panics
/// When these are not the schedules of as many ranks.
#[must_use]
pub fn simulate_each(phases: &[&[Schedule]], element_bytes: usize, fabric: &Fabric, hosts: &Groups) -> Option<Outcome> {
    let ranks = phases.first().map_or(0, |schedules| schedules.len());
    assert!(phases.iter().all(|schedules| schedules.len() == ranks), "every rank has a schedule of each collective");
    let processors = fabric.machine.map(|machine| Processors::new(&machine, ranks, hosts.count()));
    let progress = |rank: usize| {
        let schedule = &phases[0][rank];
        let remaining = schedule.steps().len();
        Progress { phase: 0, waits: Waits::new(schedule), remaining, begun: 0.0, busy_until: 0.0 }
    };
    let mut run = Simulation {
        fabric,
        hosts,
        phases,
        element_bytes,
        ranks: (0..ranks).map(progress).collect(),
        processors,
        servers: HashMap::new(),
        messages: Vec::new(),
        pieces: Vec::new(),
        posted: HashMap::new(),
        lines: HashMap::new(),
        queue: BinaryHeap::new(),
        seconds: 0.0,
        losses: 0,
        resent: 0.0,
    };
    (0..ranks).for_each(|rank| run.enter(0.0, rank));
    while let Some(Reverse((Instant(now), event))) = run.queue.pop() {
        match event {
            Event::Ready { step, rank } => run.ready(now, rank, step),
            Event::Leave { message, .. } => run.leave(now, message),
            Event::Push { step, piece } => run.push(now, step, piece),
            Event::Depart { piece, .. } => run.depart(now, piece),
            Event::Arrive { piece, .. } => run.arrive(now, piece),
            Event::Land { step, piece } => run.land(now, step, piece),
            Event::Take { piece, .. } => run.take(now, piece),
            Event::Hand { message, .. } => run.hand(now, message),
            Event::Have { message, .. } => run.have(now, message),
            Event::Complete { step, rank } => run.complete(now, rank, step),
            Event::Turn { rank } => run.turn(now, rank),
        }
    }
    run.ranks.iter().all(|rank| rank.remaining == 0 && rank.phase + 1 >= phases.len()).then(|| run.outcome())
}

impl<'a> Simulation<'a> {
    fn at(&mut self, time: f64, event: Event) {
        self.queue.push(Reverse((Instant(time), event)));
    }

    fn schedule(&self, rank: usize) -> &'a Schedule {
        &self.phases[self.ranks[rank].phase][rank]
    }

    /// A rank begins the schedule of its phase, and the next one where there is nothing in it.
    fn enter(&mut self, now: f64, rank: usize) {
        loop {
            self.ranks[rank].begun = now;
            let missing = &self.ranks[rank].waits.missing;
            let ready: Vec<usize> = (0..missing.len()).filter(|&step| missing[step] == 0).collect();
            ready.into_iter().for_each(|step| self.at(now, Event::Ready { step, rank }));
            if self.ranks[rank].remaining > 0 || self.ranks[rank].phase + 1 >= self.phases.len() {
                return;
            }
            self.advance(rank);
        }
    }

    /// A rank is in its next phase.
    fn advance(&mut self, rank: usize) {
        self.ranks[rank].phase += 1;
        let schedule = self.schedule(rank);
        let progress = &mut self.ranks[rank];
        (progress.waits, progress.remaining) = (Waits::new(schedule), schedule.steps().len());
    }

    fn complete(&mut self, now: f64, rank: usize, step: usize) {
        let mut ready = Vec::new();
        let progress = &mut self.ranks[rank];
        progress.remaining -= 1;
        progress.waits.complete(step, |step| ready.push(step));
        ready.into_iter().for_each(|step| self.at(now, Event::Ready { step, rank }));
        let Progress { phase, remaining, begun, .. } = self.ranks[rank];
        if phase + 1 >= self.phases.len() {
            self.seconds = self.seconds.max(now - begun);
        } else if remaining == 0 {
            self.advance(rank);
            self.enter(now, rank);
        }
    }

    /// All that a step waits for is done.
    fn ready(&mut self, now: f64, rank: usize, step: usize) {
        let (schedule, phase) = (self.schedule(rank), self.ranks[rank].phase);
        let (label, action) = (schedule.steps()[step].label, schedule.steps()[step].action);
        let element_bytes = self.element_bytes;
        let bytes = |length: usize| bytes(length, element_bytes);
        let done = Event::Complete { step, rank };
        match action {
            Action::Reduce { into, .. } => self.work(now, rank, Task::Reduce(bytes(into.length)), done),
            Action::Copy { into, .. } => self.work(now, rank, Task::Copy(bytes(into.length)), done),
            Action::Receive { peer, .. } => {
                let key = (peer, rank, phase, label);
                match self.posted.remove(&key) {
                    Some(Posted::Message(id)) => {
                        self.messages[id].received = Some(step);
                        if self.messages[id].there {
                            self.meet(now, id);
                        }
                    }
                    _ => drop(self.posted.insert(key, Posted::Receive(step))),
                }
            }
            Action::Send { peer, from } => {
                let (id, bytes) = (self.messages.len(), bytes(from.length));
                let near = self.hosts.of(rank) == self.hosts.of(peer);
                let Eager { inside, between } = self.fabric.eager;
                let key = (rank, peer, phase, label);
                let received = match self.posted.remove(&key) {
                    Some(Posted::Receive(step)) => Some(step),
                    _ => {
                        self.posted.insert(key, Posted::Message(id));
                        None
                    }
                };
                self.messages.push(Message {
                    source: rank,
                    destination: peer,
                    sent: step,
                    received,
                    bytes,
                    part: (bytes / PARTS).max(SMALLEST_PART),
                    eager: bytes <= if near { inside } else { between },
                    there: false,
                    whole: true,
                    lost: false,
                });
                match (near, self.messages[id].eager) {
                    // Where hosts have memory of their own, only bytes count.
                    (true, eager) if eager || self.fabric.machine.is_none() => {
                        self.messages[id].eager = true;
                        self.work(now, rank, Task::Inside(bytes), Event::Hand { step, message: id });
                    }
                    (true, _) => self.work(now, rank, Task::Inside(0.0), Event::Hand { step, message: id }),
                    (false, true) => self.begin(now, id),
                    (false, false) => self.say(now, id, Kind::Announcement),
                }
            }
        }
    }

    /// What a rank's host does with bytes, in its memory or on the processors of the one machine; then `event` happens.
    fn work(&mut self, now: f64, rank: usize, task: Task, event: Event) {
        let (Some(machine), Some(processors)) = (self.fabric.machine, &mut self.processors) else {
            let traffic = match task {
                Task::Inside(bytes) => INSIDE * bytes,
                Task::AtEnd(bytes, _) => AT_END * bytes,
                Task::Reduce(bytes) => REDUCED * bytes,
                Task::Copy(bytes) => COPIED * bytes,
            };
            let computes = matches!(task, Task::Reduce(_) | Task::Copy(_));
            let from = if computes { now.max(self.ranks[rank].busy_until) } else { now };
            let time = traffic / self.fabric.memory;
            let memory = self.servers.entry((Part::Memory, self.hosts.of(rank))).or_default();
            let (_, end) = memory.serve(from, rank, time, 0.0);
            if computes {
                self.ranks[rank].busy_until = end;
            }
            return self.at(end, event);
        };
        match (task, event) {
            (Task::Inside(bytes), _) => {
                let time = (machine.inside.message + bytes * machine.inside.byte) / 2.0;
                processors.add(rank, time, event, Source::Here);
            }
            (Task::Reduce(bytes), _) => processors.add(rank, bytes * machine.reduced, event, Source::Here),
            // A message within a host is copied twice.
            (Task::Copy(bytes), _) => processors.add(rank, bytes * machine.inside.byte / 2.0, event, Source::Here),
            // What a message costs is the rank's; what its bytes do, the system's, which asks the rank for no more once it has it.
            (Task::AtEnd(_, true), Event::Depart { step, piece }) => {
                processors.add(rank, machine.between.message / 2.0, Event::Push { step, piece }, Source::Sending);
            }
            (Task::AtEnd(bytes, _), Event::Take { step, piece }) => {
                let time = bytes * machine.between.byte / 2.0;
                processors.add_to_system(self.hosts.of(rank), time, Event::Land { step, piece });
            }
            (Task::AtEnd(bytes, _), _) => {
                processors.add_to_system(self.hosts.of(rank), bytes * machine.between.byte / 2.0, event);
            }
        }
        self.dispatch(now);
    }

    /// A rank has handed a piece to its host's system, which brings it to the link.
    fn push(&mut self, now: f64, step: usize, piece: usize) {
        let Piece { message, kind, bytes, .. } = self.pieces[piece];
        let Message { source, destination, .. } = self.messages[message];
        let rank = if kind == Kind::Request { destination } else { source };
        self.work(now, rank, Task::AtEnd(bytes, false), Event::Depart { step, piece });
    }

    /// The receiver's system has a piece; the receiver reads it when it looks at its connections.
    fn land(&mut self, now: f64, step: usize, piece: usize) {
        let Piece { message, kind, first, .. } = self.pieces[piece];
        let Message { source, destination, .. } = self.messages[message];
        let rank = if kind == Kind::Request { source } else { destination };
        if let (Some(machine), Some(processors)) = (self.fabric.machine, &mut self.processors) {
            let time = if first { machine.between.message / 2.0 } else { 0.0 };
            processors.add(rank, time, Event::Take { step, piece }, Source::Connection);
        }
        self.dispatch(now);
    }

    /// Ranks that wait for processors get those that are free.
    fn dispatch(&mut self, now: f64) {
        while let Some((begin, rank)) = self.processors.as_mut().and_then(|processors| processors.next(now)) {
            self.at(begin, Event::Turn { rank });
        }
    }

    /// A rank that has a processor does what is next.
    fn turn(&mut self, now: f64, rank: usize) {
        match self.processors.as_mut().and_then(|processors| processors.turn(rank)) {
            Some((time, event)) => {
                self.at(now + time, event);
                self.at(now + time, Event::Turn { rank });
            }
            None => self.dispatch(now),
        }
    }

    fn outcome(&self) -> Outcome {
        let seconds = self.seconds;
        let share = |part: Part| {
            let busiest = self.servers.iter().filter(|((of, _), _)| *of == part).map(|(_, server)| server.busy);
            busiest.reduce(f64::max).map(|busy| (part, busy / seconds.max(f64::MIN_POSITIVE)))
        };
        let mut busy: Vec<(Part, f64)> = Part::ALL.into_iter().filter_map(share).collect();
        busy.extend(self.processors.as_ref().map(|processors| (Part::Processors, processors.share(seconds))));
        busy.sort_by(|a, b| b.1.total_cmp(&a.1));
        let processors = self.processors.as_ref().map_or(0.0, Processors::busy);
        Outcome { seconds, busy, losses: self.losses, resent: self.resent, processors }
    }
}
