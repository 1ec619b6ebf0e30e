//! Messages on their way: inside a host from one rank's hands into the other's, between hosts through the ports of links.
//!
//! Knows neither schedules nor what a message is for.

use super::fabric::INSIDE_LATENCY;
use super::{Event, Fabric, Part, Simulation, Task};
use std::collections::VecDeque;

#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    pub(super) source: usize,
    pub(super) destination: usize,
    pub(super) sent: usize,
    /// The receive, once it is posted.
    pub(super) received: Option<usize>,
    /// Those that have not left the sender yet.
    pub(super) bytes: f64,
    /// A part that leaves at once, so that ports serve several messages in turn.
    pub(super) part: f64,
    /// It leaves before it is asked for.
    pub(super) eager: bool,
    /// The receiver waits for nothing but its receive: the message is there, or its announcement.
    pub(super) there: bool,
    /// Whether nothing of it has left yet.
    pub(super) whole: bool,
    /// Whether it has lost packets.
    pub(super) lost: bool,
}

/// What is on its way between hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// To the receiver: there is a message.
    Announcement,
    /// To the sender: its receive is posted.
    Request,
    Part,
}

/// A part of a message on its way, or what is said of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) message: usize,
    pub(super) kind: Kind,
    pub(super) bytes: f64,
    /// The overhead goes with the first one.
    pub(super) first: bool,
    pub(super) last: bool,
    /// How much of its way is behind it.
    pub(super) stage: usize,
    /// Its last byte has passed all of that by then.
    pub(super) end: f64,
}

/// A message leaves in so many parts, unless they would be smaller than [`SMALLEST_PART`].
pub(super) const PARTS: f64 = 8.0;

/// Bytes: a few packets.
pub(super) const SMALLEST_PART: f64 = 12_000.0;

impl Simulation<'_> {
    /// The sender has done its part of a message within a host.
    pub(super) fn hand(&mut self, now: f64, id: usize) {
        let Message { source, destination, sent, bytes, eager, received, .. } = self.messages[id];
        if eager {
            self.at(now, Event::Complete { step: sent, rank: source });
            let event = Event::Have { step: sent, message: id };
            match self.fabric.machine {
                Some(_) => self.work(now, destination, Task::Inside(bytes), event),
                None => self.at(now + INSIDE_LATENCY, event),
            }
        } else if received.is_some() {
            self.meet(now, id);
        } else {
            self.messages[id].there = true;
        }
    }

    /// A message or its announcement is there, and so is its receive.
    pub(super) fn meet(&mut self, now: f64, id: usize) {
        let Message { source, destination, sent, received, bytes, eager, .. } = self.messages[id];
        if eager {
            let step = received.unwrap_or_else(|| unreachable!("its receive is there"));
            self.at(now, Event::Complete { step, rank: destination });
        } else if self.hosts.of(source) == self.hosts.of(destination) {
            // The receiver copies all of it.
            let event = Event::Have { step: sent, message: id };
            self.work(now, destination, Task::Inside(2.0 * bytes), event);
        } else {
            self.say(now, id, Kind::Request);
        }
    }

    /// The receiver has a message from its own host.
    pub(super) fn have(&mut self, now: f64, id: usize) {
        let Message { source, destination, sent, received, eager, .. } = self.messages[id];
        if let Some(step) = received {
            self.at(now, Event::Complete { step, rank: destination });
        }
        self.messages[id].there = true;
        if !eager {
            self.work(now, source, Task::Inside(0.0), Event::Complete { step: sent, rank: source });
        }
    }

    /// Announces a message or asks for it.
    pub(super) fn say(&mut self, now: f64, id: usize, kind: Kind) {
        let Message { source, destination, sent, .. } = self.messages[id];
        let speaker = if kind == Kind::Request { destination } else { source };
        self.pieces.push(Piece { message: id, kind, bytes: 0.0, first: true, last: true, stage: 0, end: 0.0 });
        let event = Event::Depart { step: sent, piece: self.pieces.len() - 1 };
        self.work(now, speaker, Task::AtEnd(0.0, true), event);
    }

    /// A message leaves, or waits for the one before it.
    pub(super) fn begin(&mut self, now: f64, id: usize) {
        let Message { source, destination, .. } = self.messages[id];
        match self.lines.get_mut(&(source, destination)) {
            Some(line) => line.push_back(id),
            None => {
                self.lines.insert((source, destination), VecDeque::new());
                self.leave(now, id);
            }
        }
    }

    /// The next part of a message goes to its host's link.
    pub(super) fn leave(&mut self, now: f64, id: usize) {
        let Message { source, sent, bytes: left, part, whole, .. } = self.messages[id];
        let bytes = left.min(part);
        let last = bytes >= left;
        self.messages[id].bytes -= bytes;
        self.messages[id].whole = false;
        self.pieces.push(Piece { message: id, kind: Kind::Part, bytes, first: whole, last, stage: 0, end: 0.0 });
        let event = Event::Depart { step: sent, piece: self.pieces.len() - 1 };
        self.work(now, source, Task::AtEnd(bytes, whole), event);
    }

    /// A piece passes its host's link.
    pub(super) fn depart(&mut self, now: f64, id: usize) {
        let Piece { message, kind, bytes, first, last, .. } = self.pieces[id];
        let Message { source, destination, sent, eager, .. } = self.messages[message];
        let from = self.hosts.of(if kind == Kind::Request { destination } else { source });
        let Fabric { latency, overhead, .. } = *self.fabric;
        let rate = self.rate(now, (Part::Up, from), source);
        let time = bytes / rate + if first { overhead } else { 0.0 };
        let saved = self.fabric.burst / rate;
        let (start, end) = self.servers.entry((Part::Up, from)).or_default().serve(now, source, time, saved);
        if kind == Kind::Part {
            if last {
                // A small one is the system's as soon as it is copied.
                self.at(if eager { now } else { end }, Event::Complete { step: sent, rank: source });
                match self.lines.get_mut(&(source, destination)).and_then(VecDeque::pop_front) {
                    Some(next) => self.at(start, Event::Leave { step: self.messages[next].sent, message: next }),
                    None => drop(self.lines.remove(&(source, destination))),
                }
            } else {
                // The next one is copied while this one is on the link.
                self.at(start, Event::Leave { step: sent, message });
            }
        }
        self.pieces[id].end = end + latency;
        // The first packet goes on while others follow.
        self.at(start + latency, Event::Arrive { step: sent, piece: id });
    }

    /// A piece passes the next port of a switch, or is copied out where it was going.
    pub(super) fn arrive(&mut self, now: f64, id: usize) {
        let Piece { message, kind, bytes, first, last, stage, end } = self.pieces[id];
        let Message { source, destination, sent, .. } = self.messages[message];
        let (source, destination) = if kind == Kind::Request { (destination, source) } else { (source, destination) };
        let (from, to) = (self.hosts.of(source), self.hosts.of(destination));
        let Fabric { latency, overhead, .. } = *self.fabric;
        let rack = |host: usize| self.fabric.racks.map_or(0, |racks| host / racks.hosts.max(1));
        let (leaves, enters) = (rack(from), rack(to));
        let way: &[Part] = if leaves == enters { &[Part::Down] } else { &[Part::RackUp, Part::RackDown, Part::Down] };
        let Some(&part) = way.get(stage) else {
            return self.work(now, destination, Task::AtEnd(bytes, first), Event::Take { step: sent, piece: id });
        };
        let (index, rate) = match part {
            Part::RackUp => (leaves, self.fabric.rack_rate()),
            Part::RackDown => (enters, self.fabric.rack_rate()),
            Part::Up | Part::Down | Part::Memory | Part::Processors => (to, self.rate(now, (part, to), source)),
        };
        let again = self.lost(now, (part, index), message, bytes, rate);
        let silence = self.silence();
        if again > 0.0 && last && silence > 0.0 {
            self.pieces[id].end += silence;
            return self.at(now + silence, Event::Arrive { step: sent, piece: id });
        }
        let time = (bytes + again) / rate + if first { overhead } else { 0.0 };
        let saved = self.fabric.burst / rate;
        let (start, passed) = self.servers.entry((part, index)).or_default().serve(now, source, time, saved);
        // Leaving the rack is one more way between switches.
        let hop = if part == Part::RackUp { latency } else { 0.0 };
        let end = end.max(passed) + hop;
        self.pieces[id].stage += 1;
        self.pieces[id].end = end;
        let at_last_port = stage + 1 == way.len();
        self.at(if at_last_port { end } else { start + hop }, Event::Arrive { step: sent, piece: id });
    }

    /// A piece is where it was going.
    pub(super) fn take(&mut self, now: f64, id: usize) {
        let Piece { message, kind, last, .. } = self.pieces[id];
        let Message { destination, received, .. } = self.messages[message];
        match kind {
            Kind::Announcement => match received {
                Some(_) => self.meet(now, message),
                None => self.messages[message].there = true,
            },
            Kind::Request => self.begin(now, message),
            Kind::Part if last => match received {
                Some(step) => self.at(now, Event::Complete { step, rank: destination }),
                None => self.messages[message].there = true,
            },
            Kind::Part => {}
        }
    }

    /// What a host's link carries for a rank now: less where another one's messages are in front of it.
    pub(super) fn rate(&self, now: f64, port: (Part, usize), source: usize) -> f64 {
        let waits = self.servers.get(&port).is_some_and(|server| server.free > now && server.source != source);
        if waits { self.fabric.rate.min(self.fabric.crowded) } else { self.fabric.rate }
    }

    /// Bytes that a message sends again because a piece of it met a full queue: what was under way when its first packet
    /// was lost, which is a queue and what the link holds; once, as senders slow down then. A sender's own messages do not
    /// make it lose any.
    pub(super) fn lost(&mut self, now: f64, port: (Part, usize), message: usize, bytes: f64, rate: f64) -> f64 {
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

    /// What a sender waits, whose receiver does not notice that the end of a message was lost as nothing came behind it:
    /// two round trips through a full queue, after which it sends that end again as a probe (RFC 8985, section 7), and its
    /// time-out at the most. That probes are lost as well happens to so few that a run knows them as its slowest rounds.
    fn silence(&self) -> f64 {
        let Fabric { timeout, queue, latency, rate, .. } = *self.fabric;
        (2.0 * (2.0 * latency + queue / rate)).min(timeout)
    }
}
