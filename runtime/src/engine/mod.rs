//! Makes progress: moves records between the protocol and the transports, and waits when there is nothing to move.
//!
//! One engine a rank, behind one lock. Whoever waits makes progress for everybody.

mod core;
mod coverage;
pub(crate) mod direct;
mod flow;
pub(crate) mod one_sided;
pub(crate) mod operation;
mod outbox;
pub(crate) mod tasks;
#[cfg(test)]
mod tests;
mod wait;

pub(crate) use wait::{
    BELL_TOKEN, COMPLETION_TOKEN, CONTROL_TOKEN, FIRST_FREE_TOKEN, News, Runtime, WAKE_TOKEN, Waiting,
};

use crate::{
    error::{Error, Result},
    matching::Pattern,
    protocol::{Limits, Path, Tier},
    statistics::{PeerStatistics, Statistics, TransportStatistics, Waits},
    trace::{self, Recorder},
    transport::{
        Departure, Sink, Transport,
        record::{Header, Kind, Payload},
    },
};
use core::Core;
pub(crate) use core::Found;
use operation::{Buffers, EarlyBody, Envelope, Expected, Landing, NoBuffers, OperationId, OwnedBuffer, Source};
use outbox::length_of;
use rustc_hash::FxHashMap;
use std::{
    os::fd::OwnedFd,
    sync::Arc,
    time::{Duration, Instant},
};

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
    /// How many of them do not count yet.
    uncounted: usize,
    /// How many of them count.
    counted: usize,
    /// A wildcard receive may wait in vain: to be looked at after the next progress, which may bring its message.
    doubtful_wildcards: bool,
    /// By the context of its point-to-point messages, who is in a communicator.
    groups: FxHashMap<u64, Group>,
    /// How long a departure is kept back: where a launcher watches, it knows the cause and ends the job.
    keep_back: Duration,
    /// Set once: every later call fails with it.
    fatal: Option<Error>,
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
pub(crate) type Received = (Envelope, Option<Box<dyn OwnedBuffer>>);

/// Who is told what has been counted, and when the next time.
struct Report {
    due: Instant,
    tell: Box<dyn FnMut(Statistics) + Send>,
}

/// The ranks of a communicator, as far as wildcards must know them.
struct Group {
    members: Arc<[usize]>,
    /// Lost members that a wildcard receive or probe has reported: the next one waits for those that are left.
    reported: Vec<usize>,
    /// How many departures counted when the members were last looked at.
    checked_at: usize,
    /// All members but this rank were gone then.
    is_deserted: bool,
}

struct Departed {
    departure: Departure,
    counts_from: Instant,
    counted: bool,
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
            uncounted: 0,
            counted: 0,
            doubtful_wildcards: false,
            groups: FxHashMap::default(),
            keep_back,
            fatal: None,
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

    /// A fresh name for a call that lends buffers.
    pub(crate) fn new_call(&mut self) -> u64 {
        self.calls += 1;
        self.calls
    }

    /// Sends at once if that takes no waiting and no bookkeeping.
    ///
    /// `hint`: the size hint of its communicator. `later`: it need not leave before the next progress.
    pub(crate) fn try_send(
        &mut self,
        peer: usize,
        mut header: Header,
        bytes: &[u8],
        hint: usize,
        later: bool,
    ) -> Result<bool> {
        self.check(peer, "a send to it")?;
        let path = self.limits(peer).path(bytes.len(), hint);
        let state = &mut self.core.peers[peer];
        if !path.is_eager() || !state.is_clear() || !state.flow.try_send(bytes.len()) {
            return Ok(false);
        }
        header.kind = Kind::Eager as u8;
        header.payload = length_of(bytes);
        self.unflushed |= later;
        let began = self.recorder.as_ref().map(|_| trace::now());
        let sent = self.transport(peer).push(peer, &header, bytes, path.tier(), later)?;
        if sent {
            if let (Some(recorder), Some(began)) = (&self.recorder, began) {
                recorder.sent(began, peer, bytes.len(), path);
            }
            self.core.counters[peer].sent[path.index()].add(bytes.len());
            self.tell_sleeper(peer == self.core.rank);
        } else {
            self.core.peers[peer].flow.take_back(bytes.len());
        }
        Ok(sent)
    }

    /// This thread has moved something. When another one of this rank sleeps, what the kernel has not taken yet is that
    /// one's to watch, and what may be its own news must end its sleep.
    fn tell_sleeper(&mut self, news: bool) {
        if !self.sleeper {
            return;
        }
        self.arm(true);
        if news && !self.rung {
            // Cannot fail: the counter is read after every sleep.
            self.rung = rustix::io::write(&self.bell, &1_u64.to_ne_bytes()).is_ok();
        }
    }

    pub(crate) fn start_send(
        &mut self,
        peer: usize,
        header: Header,
        hint: usize,
        source: Source,
    ) -> Result<OperationId> {
        self.check(peer, "a send to it")?;
        let total = usize::try_from(header.total).unwrap_or(usize::MAX);
        let path = match &source {
            Source::Heap(_) => Path::DirectRead,
            _ => self.limits(peer).path(total, hint),
        };
        self.core.counters[peer].sent[path.index()].add(total);
        Ok(self.core.start_send(peer, header, path, source))
    }

    /// A send that is over only when its receive is there.
    pub(crate) fn start_synchronous_send(
        &mut self,
        peer: usize,
        header: Header,
        source: Source,
    ) -> Result<OperationId> {
        self.check(peer, "a send to it")?;
        let total = usize::try_from(header.total).unwrap_or(usize::MAX);
        self.core.counters[peer].sent[Path::Pieces.index()].add(total);
        Ok(self.core.start_send(peer, header, Path::Pieces, source))
    }

    /// Sends a short message whole, whatever the configuration says, and lets nobody wait for it: the receiver need not
    /// want it.
    pub(crate) fn send_whole(&mut self, peer: usize, header: Header, bytes: Box<dyn OwnedBuffer>) -> Result<()> {
        self.check(peer, "a send to it")?;
        let path = Path::Eager(Tier::LowLatency);
        self.core.counters[peer].sent[path.index()].add(bytes.bytes().len());
        let id = self.core.start_send(peer, header, path, Source::Owned(bytes));
        self.core.abandon_send(id);
        Ok(())
    }

    pub(crate) fn start_receive(
        &mut self,
        context: u64,
        pattern: Pattern,
        expected: Expected,
        landing: Landing,
        buffers: &mut dyn Buffers,
    ) -> Result<OperationId> {
        if let Some(fatal) = &self.fatal {
            return Err(fatal.clone());
        }
        let id = self.core.start_receive(context, pattern, expected, landing, buffers);
        if let Some(source) = pattern.source
            && let Err(error) = self.check(source, "a receive from it")
            && self.core.receives.get(&id).is_some_and(|receive| receive.done.is_none() && receive.arriving.is_none())
        {
            self.core.abandon_receive(id, buffers);
            return Err(error);
        }
        self.doubtful_wildcards |= self.counted > 0 && pattern.source.is_none();
        Ok(id)
    }

    pub(crate) fn probe(&mut self, context: u64, pattern: Pattern) -> Result<Option<Envelope>> {
        if let Some(found) = self.core.matcher.peek(context, pattern) {
            return Ok(Some(Envelope { source: found.source, tag: found.tag, bytes: found.message.total }));
        }
        self.core.ask_for_more(pattern.source);
        match pattern.source {
            Some(source) => self.check(source, "a probe for it")?,
            None if self.counted > 0 => self.wildcard_error(context, "a probe for any rank").map_or(Ok(()), Err)?,
            None => {}
        }
        Ok(None)
    }

    /// Source and tag of the messages of a context that no receive has met, the oldest nearly first.
    pub(crate) fn early(&self, context: u64) -> impl Iterator<Item = (usize, u64)> {
        self.core.matcher.waiting_in(context)
    }

    /// As a probe, and takes the message for nobody else to receive.
    pub(crate) fn find(&mut self, context: u64, pattern: Pattern) -> Result<Option<Found>> {
        if self.probe(context, pattern)?.is_none() {
            return Ok(None);
        }
        Ok(self.core.find(context, pattern))
    }

    /// A message that was found is not received after all.
    pub(crate) fn put_back(&mut self, context: u64, found: Found) {
        self.core.put_back(context, found, &mut NoBuffers);
        self.tell_sleeper(true);
    }

    /// Begins a receive of a message that was found.
    pub(crate) fn receive_found(
        &mut self,
        context: u64,
        found: Found,
        expected: Expected,
        landing: Landing,
        buffers: &mut dyn Buffers,
    ) -> Result<OperationId> {
        match &self.fatal {
            Some(fatal) => return Err(fatal.clone()),
            // It will not come any more.
            None if matches!(found.message.body, EarlyBody::AtSender(..)) => {
                self.check(found.source, "a receive from it")?;
            }
            None => {}
        }
        Ok(self.core.receive_found(context, found, expected, landing, buffers))
    }

    /// Withdraws a receive that no message has met, and gives its buffer back.
    pub(crate) fn cancel_receive(&mut self, id: OperationId) -> Option<Box<dyn OwnedBuffer>> {
        if !self.core.withdraw(id) {
            return None;
        }
        match self.core.receives.remove(&id)?.landing {
            Landing::Owned(buffer) | Landing::Growing(buffer) => Some(buffer),
            Landing::Lent(_) | Landing::Heap(_) | Landing::Nowhere => None,
        }
    }

    /// Whether a send is over, well or badly.
    pub(crate) fn is_send_done(&self, id: OperationId) -> bool {
        self.core.sends.get(&id).is_none_or(|send| send.done.is_some())
    }

    /// Whether a receive is over, well or badly.
    pub(crate) fn is_receive_done(&self, id: OperationId) -> bool {
        self.core.receives.get(&id).is_none_or(|receive| receive.done.is_some())
    }

    /// The outcome of a send that is done, with the buffer if the send owned it.
    pub(crate) fn take_send(&mut self, id: OperationId) -> Option<Result<Option<Box<dyn OwnedBuffer>>>> {
        let result = self.core.sends.get_mut(&id)?.done.take()?;
        let send = self.core.sends.remove(&id)?;
        Some(result.map(|()| match send.source {
            Source::Owned(buffer) => Some(buffer),
            Source::Lent(_) | Source::Heap(_) => None,
        }))
    }

    /// The outcome of a receive that is done, with the buffer if the receive owned it.
    pub(crate) fn take_receive(&mut self, id: OperationId, buffers: &mut dyn Buffers) -> Option<Result<Received>> {
        let receive = self.core.receives.get_mut(&id)?;
        receive.settle(buffers);
        let result = receive.done.take()?;
        let receive = self.core.receives.remove(&id)?;
        Some(result.map(|envelope| match receive.landing {
            Landing::Owned(buffer) | Landing::Growing(buffer) => (envelope, Some(buffer)),
            Landing::Lent(_) | Landing::Heap(_) | Landing::Nowhere => (envelope, None),
        }))
    }

    pub(crate) fn abandon_send(&mut self, id: OperationId) {
        self.withdraw(id);
        self.core.abandon_send(id);
    }

    pub(crate) fn abandon_receive(&mut self, id: OperationId) {
        self.core.abandon_receive(id, &mut NoBuffers);
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
        self.fatal.get_or_insert(error);
    }

    /// The launcher says that this rank is gone and the job goes on: what has arrived from it still counts.
    pub(crate) fn lose(&mut self, peer: usize, reason: String) {
        if let Some(departed) = self.departed.get_mut(peer) {
            let counts_from = Instant::now();
            if departed.is_none() {
                self.uncounted += 1;
            }
            let lost = Departed { departure: Departure::Lost(reason), counts_from, counted: false };
            let departed = departed.get_or_insert(lost);
            departed.counts_from = departed.counts_from.min(counts_from);
        }
    }

    /// The launcher says that this rank has dropped its world; its transport knows when nothing more can come from it.
    pub(crate) fn peer_finished(&mut self, peer: usize) {
        let known = self.departed.get(peer).is_none_or(Option::is_some);
        if !known && peer != self.core.rank {
            self.transport(peer).peer_finished(peer);
        }
    }

    /// A communicator of this rank has come to be.
    pub(crate) fn add_group(&mut self, context: u64, members: Arc<[usize]>) {
        self.groups.insert(context, Group { members, reported: Vec::new(), checked_at: 0, is_deserted: false });
    }

    /// Nobody holds the communicator any more.
    pub(crate) fn remove_group(&mut self, context: u64) {
        self.groups.remove(&context);
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
        let mut moved = self.flush(buffers)?;
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

    /// Ends what waits for peers that have been gone for long enough.
    fn count_departures(&mut self, buffers: &mut dyn Buffers) -> bool {
        let now = Instant::now();
        let mut any = false;
        for peer in 0..self.departed.len() {
            if let Some(departed) = &mut self.departed[peer]
                && !departed.counted
                && departed.counts_from <= now
            {
                departed.counted = true;
                self.uncounted -= 1;
                self.counted += 1;
                let error = departure_error(peer, &self.hosts[peer], &departed.departure, "what waits for it");
                self.core.fail_peer(peer, &error, buffers);
                self.transport(peer).forget(peer);
                any = true;
            }
        }
        self.doubtful_wildcards |= any;
        any
    }

    /// Ends wildcard receives that nobody is left for, or that must hear of a lost member.
    fn end_wildcards(&mut self, buffers: &mut dyn Buffers) {
        for context in self.core.matcher.contexts_with_wildcards() {
            if let Some(error) = self.wildcard_error(context, "a receive from any rank") {
                for id in self.core.matcher.take_wildcards(context) {
                    self.core.finish_receive(id, Err(error.clone()), buffers);
                }
            }
        }
    }

    /// Why a receive from any rank of a communicator must not wait (any longer): a member is lost, which is reported once,
    /// or all others are gone. What this rank sends to itself is no reason to wait: whoever would send it may be the one
    /// that waits.
    fn wildcard_error(&mut self, context: u64, operation: &'static str) -> Option<Error> {
        let group = self.groups.get_mut(&context)?;
        if group.checked_at == self.counted {
            return group.is_deserted.then_some(Error::NobodyLeft { operation });
        }
        let mut left = group.members.len();
        for &peer in &*group.members {
            let Some(Departed { departure, counted: true, .. }) = &self.departed[peer] else { continue };
            left -= 1;
            if *departure != Departure::Finished && !group.reported.contains(&peer) {
                group.reported.push(peer);
                return Some(departure_error(peer, &self.hosts[peer], departure, operation));
            }
        }
        group.checked_at = self.counted;
        group.is_deserted = left == 1 && group.members.len() > 1;
        group.is_deserted.then_some(Error::NobodyLeft { operation })
    }

    /// When the next departure begins to count.
    fn next_departure(&self) -> Option<Instant> {
        self.departed.iter().flatten().filter(|departed| !departed.counted).map(|departed| departed.counts_from).min()
    }

    pub(crate) fn check(&self, peer: usize, operation: &'static str) -> Result<()> {
        if let Some(fatal) = &self.fatal {
            return Err(fatal.clone());
        }
        match &self.departed[peer] {
            Some(departed) if departed.counted => {
                Err(departure_error(peer, &self.hosts[peer], &departed.departure, operation))
            }
            _ => Ok(()),
        }
    }

    /// Whether nothing more comes from a peer: it is lost, or has dropped its world.
    pub(crate) fn is_gone(&self, peer: usize) -> bool {
        self.departed[peer].as_ref().is_some_and(|departed| departed.counted)
    }

    fn transport(&mut self, peer: usize) -> &mut dyn Transport {
        &mut *self.routes.routes[self.routes.to[peer]].transport
    }
}

fn departure_error(peer: usize, host: &str, departure: &Departure, operation: &'static str) -> Error {
    let host = host.to_string();
    match departure {
        Departure::Finished => Error::PeerFinished { peer, host, operation },
        Departure::Lost(reason) => Error::PeerLost { peer, host, reason: reason.clone() },
        Departure::Broken(error) => Error::Link { peer, host, error: error.clone() },
    }
}

/// Takes what transports deliver.
struct Inbox<'a> {
    recorder: Option<&'a Recorder>,
    core: &'a mut Core,
    departed: &'a mut [Option<Departed>],
    uncounted: &'a mut usize,
    keep_back: Duration,
    hosts: &'a [String],
    buffers: &'a mut dyn Buffers,
}

impl Sink for Inbox<'_> {
    fn record(&mut self, peer: usize, header: &Header, payload: &mut dyn Payload) -> Result<()> {
        // What waited for a lost peer has been told so: its last words find nobody.
        if self.departed[peer].as_ref().is_some_and(|departed| departed.counted) {
            return Ok(());
        }
        if header.kind == Kind::Discard as u8 && header.tag == core::LEFT {
            let error = departure_error(peer, &self.hosts[peer], &Departure::Finished, "a send to it");
            return self.core.turned_away(peer, header.id, error);
        }
        let Some(recorder) = self.recorder else {
            return self.core.record(peer, header, payload, self.buffers);
        };
        let began = trace::now();
        self.core.record(peer, header, payload, self.buffers)?;
        if matches!(Kind::from_byte(header.kind), Some(Kind::Eager | Kind::RequestToSend)) {
            recorder.arrived(began, peer, usize::try_from(header.total).unwrap_or(usize::MAX));
        }
        Ok(())
    }

    fn begin(&mut self, peer: usize, header: &Header) -> Result<Option<u64>> {
        Ok(self.core.begin(peer, header))
    }

    fn departed(&mut self, peer: usize, departure: Departure) {
        let counts_from = Instant::now() + self.keep_back;
        if self.departed[peer].is_none() {
            self.departed[peer] = Some(Departed { departure, counts_from, counted: false });
            *self.uncounted += 1;
        }
    }
}
