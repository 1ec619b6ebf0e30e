//! Makes progress: moves records between the protocol and the transports, and waits when there is nothing to move.
//!
//! One engine a rank, behind one lock. Whoever waits makes progress for everybody.

mod calls;
mod core;
mod coverage;
mod departures;
pub(crate) mod direct;
mod flow;
mod inbox;
mod lock;
pub(crate) mod one_sided;
pub(crate) mod operation;
mod outbox;
mod pace;
mod revoked;
mod runtime;
mod table;
pub(crate) mod tasks;
#[cfg(test)]
mod tests;
pub(crate) mod vector;
mod wait;

pub(crate) use pace::Waiting;
pub(crate) use runtime::{BELL_TOKEN, COMPLETION_TOKEN, CONTROL_TOKEN, FIRST_FREE_TOKEN, News, Runtime, WAKE_TOKEN};

use crate::{
    error::{Error, Result},
    protocol::Limits,
    statistics::{PeerStatistics, Statistics, TransportStatistics, Waits},
    trace::Recorder,
    transport::Transport,
};
use core::Core;
pub(crate) use core::Found;
use departures::Departed;
use inbox::Inbox;
use operation::{Buffers, Envelope};
pub(crate) use revoked::{LAST, collectives_of, words_of};
use std::{
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use vector::AnyVec;

/// Time between two reports of what has been counted.
const REPORT_EVERY: Duration = Duration::from_secs(1);
/// Polls between two looks at whether it is time for one. Before a sleep there is one in any case.
const REPORT_POLLS: u32 = 1 << 14;

/// Polls of the other transports between two polls of one that costs a system call.
const SLOW_POLL: u32 = 16;

/// The transports of a rank and which of them reaches whom.
pub(crate) struct Routes {
    pub(crate) routes: Vec<Route>,
    /// For every rank of the world an index into `routes`.
    pub(crate) to: Vec<usize>,
}

/// A transport, and which way messages of which size go over it.
pub(crate) struct Route {
    transport: Box<dyn Transport>,
    limits: Limits,
    /// Its poll costs a system call and others are there: they are polled more often.
    slow: bool,
}

impl Routes {
    /// Adds a transport to these ranks. `eager`: the largest message that is sent at once, as configured by this key.
    pub(crate) fn add(&mut self, transport: Box<dyn Transport>, (eager, key): (usize, &'static str), ranks: &[usize]) {
        let limits = Limits::new(transport.capabilities(), eager, key);
        ranks.iter().for_each(|rank| self.to[*rank] = self.routes.len());
        // The first transport is the loopback, which is no reason to leave another one waiting.
        let slow = limits.capabilities.slow_poll && self.routes.len() > 1;
        self.routes.push(Route { transport, limits, slow });
    }
}

pub(crate) struct Engine {
    core: Core,
    routes: Routes,
    polls: u32,
    /// For every rank the name of its host, for errors.
    hosts: Vec<String>,
    /// Peers that are gone, and since when that counts.
    departed: Vec<Option<Departed>>,
    /// Peers that have dropped their world, as the launcher says; from their transports there is more to come, perhaps.
    farewells: Vec<usize>,
    /// How many of them do not count yet.
    uncounted: usize,
    /// How many of them count.
    counted: usize,
    /// A wildcard receive may wait in vain: to be looked at after the next progress, which may bring its message.
    doubtful_wildcards: bool,
    /// How long a departure is kept back: where a launcher watches, it knows the cause and ends the job.
    keep_back: Duration,
    /// Set once: every later call fails with it.
    fatal: Option<Error>,
    /// A peer is gone, or nearly so, or there is a fatal error.
    trouble: Arc<AtomicBool>,
    /// Something was pushed that need not leave before the next progress.
    unflushed: bool,
    /// A thread sleeps on the descriptors.
    sleeper: bool,
    /// An eventfd that ends that sleep, for news that the sleeper's descriptors do not tell: what another thread of this
    /// rank has done.
    bell: OwnedFd,
    rung: bool,
    calls: u64,
    waits: Waits,
    /// Records messages, when that is asked for.
    recorder: Option<Arc<Recorder>>,
    /// Tells what has been counted so far, now and then, so that it is known of a rank that dies.
    report: Option<Report>,
    /// Peers whose first outgoing message has been refused by the transport.
    stalled: Vec<bool>,
    /// Operations that go on by themselves.
    tasks: tasks::Tasks,
    next_task: tasks::TaskId,
}

/// A message that has been received, with the buffer if the receive owned it.
pub(crate) type Received = (Envelope, Option<AnyVec>);

/// Who is told what has been counted, and when the next time.
struct Report {
    due: Instant,
    tell: Box<dyn FnMut(Statistics) + Send>,
}

impl Engine {
    /// `window`: see [`Core::new`].
    pub(crate) fn new(
        rank: usize,
        hosts: Vec<String>,
        routes: Routes,
        window: usize,
        keep_back: Duration,
        bell: OwnedFd,
    ) -> Self {
        let size = hosts.len();
        Engine {
            core: Core::new(rank, size, window),
            routes,
            polls: 0,
            hosts,
            departed: (0..size).map(|_| None).collect(),
            farewells: Vec::new(),
            uncounted: 0,
            counted: 0,
            doubtful_wildcards: false,
            keep_back,
            fatal: None,
            trouble: Arc::default(),
            unflushed: false,
            sleeper: false,
            bell,
            rung: false,
            calls: 0,
            waits: Waits::default(),
            recorder: None,
            report: None,
            stalled: vec![false; size],
            tasks: tasks::Tasks::default(),
            next_task: 0,
        }
    }

    /// Whether anything has ever gone wrong that an operation on a peer's memory has to report: for those that do not lock
    /// the engine.
    pub(crate) fn trouble(&self) -> Arc<AtomicBool> {
        self.trouble.clone()
    }

    /// From now on messages are recorded.
    pub(crate) fn record(&mut self, recorder: Arc<Recorder>) {
        self.recorder = Some(recorder);
    }

    /// From now on what has been counted is told now and then.
    pub(crate) fn report(&mut self, tell: impl FnMut(Statistics) + Send + 'static) {
        self.report = Some(Report { due: Instant::now() + REPORT_EVERY, tell: Box::new(tell) });
    }

    fn report_now_and_then(&mut self) {
        if let Some(mut report) = self.report.take_if(|report| report.due <= Instant::now()) {
            (report.tell)(self.statistics(false));
            report.due = Instant::now() + REPORT_EVERY;
            self.report = Some(report);
        }
    }

    /// What this rank has counted so far.
    pub(crate) fn statistics(&self, complete: bool) -> Statistics {
        let peers = self.core.counters.iter().enumerate().filter_map(|(peer, counted)| {
            let mut link = Vec::new();
            let transport = &self.routes.routes[self.routes.to[peer]].transport;
            transport.link_counters(peer, &mut |name, number| link.push((name.to_string(), number)));
            PeerStatistics::new(peer, self.reached_by(peer), counted, link)
        });
        let transports = self.routes.routes.iter().map(|route| {
            let mut counters = Vec::new();
            route.transport.counters(&mut |name, number| counters.push((name.to_string(), number)));
            let device = route.transport.device();
            TransportStatistics { transport: route.limits.capabilities.name.to_string(), counters, device }
        });
        Statistics {
            rank: self.core.rank,
            host: self.hosts[self.core.rank].clone(),
            complete,
            peers: peers.collect(),
            waits: self.waits,
            transports: transports.filter(|it| !it.counters.is_empty() || it.device.is_some()).collect(),
        }
    }

    /// The name of the transport that carries messages to a peer.
    fn reached_by(&self, peer: usize) -> &'static str {
        match self.fallen_back(peer) {
            Some(_) => "tcp",
            None => self.limits(peer).capabilities.name,
        }
    }

    /// Why TCP takes the place of a faster transport that was to reach this peer, where it does.
    pub(crate) fn fallen_back(&self, peer: usize) -> Option<&str> {
        self.routes.routes[self.routes.to[peer]].transport.fallen_back(peer)
    }

    /// The limits between the paths to a peer.
    pub(crate) fn limits(&self, peer: usize) -> &Limits {
        &self.routes.routes[self.routes.to[peer]].limits
    }

    /// This thread has moved something. When another one of this rank sleeps, what the kernel has not taken yet is that
    /// one's to watch, and what may be its own news must end its sleep.
    pub(super) fn tell_sleeper(&mut self, news: bool) {
        if !self.sleeper {
            return;
        }
        self.arm(true);
        if news && !self.rung {
            // Cannot fail: the counter is read after every sleep.
            self.rung = rustix::io::write(&self.bell, &1_u64.to_ne_bytes()).is_ok();
        }
    }

    /// Changes whenever something happens that may end a wait, whichever thread made it happen.
    pub(crate) fn news(&self) -> u64 {
        self.core.news
    }

    /// The world is being dropped: nothing more is received.
    pub(crate) fn leave(&mut self) {
        self.core.leave();
    }

    /// Whether sends to others are still under way. What this rank sent to itself and never received is no one's.
    pub(crate) fn has_unsent(&self) -> bool {
        let rank = self.core.rank;
        self.core.sends.values().any(|send| send.done.is_none() && send.peer != rank) || self.has_outgoing()
    }

    /// Whether something for others waits for room in a transport, or for a connection.
    pub(crate) fn has_outgoing(&self) -> bool {
        self.core.busy.iter().any(|peer| *peer != self.core.rank)
    }

    /// Tells all peers that nothing more comes; `true` when the process may exit.
    pub(crate) fn finish(&mut self) -> Result<bool> {
        let mut finished = true;
        for route in &mut self.routes.routes {
            finished &= route.transport.finish()?;
        }
        Ok(finished)
    }

    /// Whether something waits for the next progress to leave.
    pub(crate) fn is_unflushed(&self) -> bool {
        self.unflushed
    }

    /// From now on every call fails with this error.
    pub(crate) fn fail(&mut self, error: Error) {
        self.core.news += 1;
        self.trouble.store(true, Ordering::Relaxed);
        self.fatal.get_or_insert(error);
    }

    /// Moves what can be moved now; `true` when anything moved.
    pub(crate) fn progress(&mut self, buffers: &mut dyn Buffers) -> Result<bool> {
        if let Some(fatal) = &self.fatal {
            return Err(fatal.clone());
        }
        let stepped = if self.tasks.is_empty() { self.step(buffers) } else { self.step_with_tasks(buffers) };
        let moved = match stepped {
            Ok(moved) => moved,
            Err(error) => {
                // Something may be half done: no later call may rely on it.
                self.fail(error.clone());
                self.tell_sleeper(true);
                return Err(error);
            }
        };
        if moved {
            self.core.news += 1;
            self.tell_sleeper(true);
        }
        Ok(moved)
    }

    fn step(&mut self, buffers: &mut dyn Buffers) -> Result<bool> {
        let leave_now = std::mem::take(&mut self.unflushed);
        let mut moved = !self.core.busy.is_empty() && self.flush(buffers)?;
        self.polls = self.polls.wrapping_add(1);
        if self.polls.is_multiple_of(REPORT_POLLS) {
            self.report_now_and_then();
        }
        let mut inbox = Inbox {
            recorder: self.recorder.as_deref(),
            core: &mut self.core,
            departed: &mut self.departed,
            uncounted: &mut self.uncounted,
            keep_back: self.keep_back,
            hosts: &self.hosts,
            buffers,
        };
        for Route { transport, slow, .. } in &mut self.routes.routes {
            if !*slow || leave_now || self.polls.is_multiple_of(SLOW_POLL) {
                moved |= transport.poll(&mut inbox)?;
            }
        }
        self.withdraw_revoked();
        if !self.core.fetches.is_empty() {
            moved |= self.fetch(buffers);
        }
        if !self.core.busy.is_empty() {
            moved |= self.flush(buffers)?;
        }
        if self.uncounted > 0 {
            moved |= self.count_departures(buffers);
        }
        if std::mem::take(&mut self.doubtful_wildcards) {
            self.end_wildcards(buffers);
        }
        Ok(moved)
    }

    pub(super) fn transport(&mut self, peer: usize) -> &mut dyn Transport {
        &mut *self.routes.routes[self.routes.to[peer]].transport
    }
}
