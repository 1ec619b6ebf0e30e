//! The part of the job that runs on this host.

use super::boot::{self, Shared};
use super::descendants;
use super::rank::{PIECE, Rank};
use super::reactor::{Part, Reactor, Source};
use super::spawn::{Launch, Refusal};
use crate::connect::Outgoing;
use rustix::process::{Pid, Resource, Signal, getrlimit};
use spmd::bootstrap::frame;
use spmd::bootstrap::messages::{FromAgent, SpawnFailure, Start, ToAgent, ToRank};
use spmd::config::keys;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::time::{Duration, Instant};

/// How long it may take until everything is gone after SIGKILL.
const KILL_LIMIT: Duration = Duration::from_millis(600);

#[derive(Debug, PartialEq)]
enum Phase {
    Running,
    /// SIGTERM was sent; SIGKILL follows then.
    Stopping(Instant),
    /// SIGKILL was sent; what is left then cannot be killed.
    Killed(Instant),
    /// Nothing runs any more; what was written is still being read.
    Draining,
}

/// The job on this host.
#[derive(Debug)]
pub(super) struct Local {
    start: Start,
    ranks: Vec<Rank>,
    /// Ranks that have ended, in that order, and are not reported yet.
    ended: VecDeque<usize>,
    phase: Phase,
    /// Not all ranks were started: the launcher will stop the job, which must not look finished before.
    incomplete: bool,
    buffer: Vec<u8>,
}

impl Local {
    pub(super) fn new(start: Start) -> Self {
        Self {
            start,
            ranks: Vec::new(),
            ended: VecDeque::new(),
            phase: Phase::Running,
            incomplete: false,
            buffer: vec![0; PIECE],
        }
    }

    /// The snapshot's time between SIGTERM and SIGKILL.
    pub(super) fn grace(&self) -> Duration {
        self.start.snapshot.get(keys::LAUNCH_GRACE)
    }

    /// Starts this host's ranks; stops at the first that cannot be started.
    pub(super) fn start(
        &mut self,
        reactor: &mut Reactor,
        environment: Vec<(OsString, OsString)>,
        open_files: Option<u64>,
        frames: &mut Vec<FromAgent>,
    ) {
        let here = self.start.host;
        let local: Vec<u32> =
            (0..).zip(&self.start.host_of).filter(|(_, host)| **host == here).map(|(rank, _)| rank).collect();
        let failed = |reason: String| FromAgent::Failed { reason };
        let needed = 4 * local.len() as u64 + 32;
        if let Some(limit) = getrlimit(Resource::Nofile).current.filter(|limit| *limit < needed) {
            self.incomplete = true;
            return frames.push(failed(format!(
                "{} ranks need {needed} open files, the limit is {limit}: raise it (ulimit -Hn) or use more hosts",
                local.len()
            )));
        }
        let reached_at = environment
            .iter()
            .find(|(name, _)| name == "SSH_CONNECTION")
            .and_then(|(_, value)| boot::reached_at(&value.to_string_lossy()));
        let shared = match Shared::create(local.len(), &self.start) {
            Ok(shared) => shared,
            Err(error) => {
                self.incomplete = true;
                return frames
                    .push(failed(format!("the memory that {} ranks share cannot be made: {error}", local.len())));
            }
        };
        let first = local.first().copied().unwrap_or(0);
        let mut refused = |rank: u32, refusal: Refusal| {
            frames.push(FromAgent::SpawnFailed { rank, reason: refusal.reason, kind: refusal.kind });
        };
        let start = self.start.clone();
        let launch = match Launch::new(&start, shared, environment, open_files, reached_at, local) {
            Ok(launch) => launch,
            Err(refusal) => {
                self.incomplete = true;
                return refused(first, refusal);
            }
        };
        for (index, rank) in launch.local.iter().enumerate() {
            let result = launch.spawn(index).and_then(|started| {
                let pid = started.pid;
                self.ranks.push(Rank::new(*rank, started));
                self.watch(reactor, index).map_err(|e| Refusal { kind: SpawnFailure::Other, reason: e.to_string() })?;
                Ok(pid)
            });
            match result {
                Ok(pid) => frames.push(FromAgent::Spawned { rank: *rank, pid }),
                Err(Refusal { kind, reason }) => {
                    self.incomplete = true;
                    frames.push(FromAgent::SpawnFailed { rank: *rank, reason, kind });
                    return;
                }
            }
        }
    }

    fn watch(&self, reactor: &mut Reactor, index: usize) -> io::Result<()> {
        let rank = &self.ranks[index];
        for (part, output) in [Part::Stdout, Part::Stderr].into_iter().zip(&rank.outputs) {
            if let Some(output) = output {
                reactor.watch(&output.fd, Source::Rank(part, index))?;
            }
        }
        if let Some(control) = &rank.control {
            reactor.watch(&control.fd, Source::Rank(Part::Control, index))?;
        }
        Ok(())
    }

    /// A stream of a rank is ready. The error is a reason to end the job.
    pub(super) fn on_ready(
        &mut self,
        reactor: &mut Reactor,
        part: Part,
        index: usize,
        frames: &mut Vec<FromAgent>,
    ) -> Result<(), String> {
        let Some(rank) = self.ranks.get_mut(index) else { return Ok(()) };
        match part {
            Part::Stdout => drop(rank.read_output(0, &mut self.buffer, frames)),
            Part::Stderr => drop(rank.read_output(1, &mut self.buffer, frames)),
            Part::Control => {
                let result = rank.read_control(frames);
                rank.flush_control();
                Self::rewatch_control(reactor, rank, index);
                result?;
            }
            Part::Stdin => Self::write_stdin(reactor, rank, index, frames),
        }
        Ok(())
    }

    fn rewatch_control(reactor: &mut Reactor, rank: &Rank, index: usize) {
        if let Some(control) = &rank.control {
            // Fails only for a descriptor that is not watched.
            let _ = reactor.also_write(&control.fd, Source::Rank(Part::Control, index), !control.outgoing.is_empty());
        }
    }

    fn write_stdin(reactor: &mut Reactor, rank: &mut Rank, index: usize, frames: &mut Vec<FromAgent>) {
        rank.flush_stdin(frames);
        let source = Source::Rank(Part::Stdin, index);
        match &rank.stdin {
            Some(input) => drop(reactor.want_write(&input.fd, source, !input.outgoing.is_empty())),
            None => reactor.forget_write(source),
        }
    }

    /// What the launcher says to ranks.
    pub(super) fn on_message(&mut self, reactor: &mut Reactor, message: ToAgent, frames: &mut Vec<FromAgent>) {
        match message {
            ToAgent::Release(release) => self.tell_ranks(reactor, &ToRank::Release(release)),
            ToAgent::Refuse { reason } => self.tell_ranks(reactor, &ToRank::Refuse { reason }),
            ToAgent::Stdin { rank, data } => {
                if let Some(index) = self.ranks.iter().position(|r| r.rank == rank) {
                    let rank = &mut self.ranks[index];
                    rank.push_stdin(&data);
                    Self::write_stdin(reactor, rank, index, frames);
                }
            }
            ToAgent::Signal { signal } => {
                let signal = Signal::from_named_raw(signal);
                let reached = signal.map_or(0, |signal| self.ranks.iter().filter(|rank| rank.signal(signal)).count());
                frames.push(FromAgent::Signalled { count: u32::try_from(reached).unwrap_or(u32::MAX) });
            }
            // The agent's own.
            ToAgent::Start(_) | ToAgent::Stop => {}
        }
    }

    fn tell_ranks(&mut self, reactor: &mut Reactor, message: &ToRank) {
        let Ok(bytes) = frame::to_frame(message) else { return };
        for (index, rank) in self.ranks.iter_mut().enumerate() {
            if let Some(control) = &mut rank.control {
                Outgoing::push(&mut control.outgoing, &bytes);
                rank.flush_control();
                Self::rewatch_control(reactor, rank, index);
            }
        }
    }

    /// A child of this process has ended: a rank, or something that a rank had abandoned.
    pub(super) fn child_ended(&mut self, pid: Pid, status: i32, frames: &mut Vec<FromAgent>) -> Result<(), String> {
        let Some(index) = self.ranks.iter().position(|rank| rank.is(pid)) else { return Ok(()) };
        let rank = &mut self.ranks[index];
        rank.ended(status);
        self.ended.push_back(index);
        // What it said before its end comes before the news of its end.
        rank.read_control(frames)
    }

    /// Ends everything: SIGTERM, after `grace` SIGKILL. A shorter grace than before counts.
    pub(super) fn stop(&mut self, now: Instant, grace: Duration) {
        let until = now + grace;
        match self.phase {
            Phase::Running => {
                for rank in &self.ranks {
                    rank.signal(Signal::TERM);
                    // A stopped process would not notice.
                    rank.signal(Signal::CONT);
                }
                self.phase = Phase::Stopping(until);
            }
            Phase::Stopping(before) => self.phase = Phase::Stopping(before.min(until)),
            Phase::Killed(_) | Phase::Draining => {}
        }
    }

    /// When [`Local::advance`] is due.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.phase {
            Phase::Stopping(until) | Phase::Killed(until) => Some(until),
            Phase::Running | Phase::Draining => None,
        }
    }

    /// Reports ended ranks in the order of their ends, keeps the time limits. `true`: nothing is left.
    pub(super) fn advance(&mut self, now: Instant, frames: &mut Vec<FromAgent>) -> bool {
        while let Some(index) = self.ended.front().copied().filter(|index| self.ranks[*index].is_drained()) {
            self.ended.pop_front();
            self.ranks[index].report(frames);
        }
        match self.phase {
            Phase::Stopping(until) if until <= now => {
                for rank in &self.ranks {
                    rank.signal(Signal::KILL);
                }
                self.phase = Phase::Killed(now + KILL_LIMIT);
            }
            Phase::Killed(until) if until <= now => {
                let left = self.ranks.iter().filter(|rank| rank.exit.is_none()).map(|rank| rank.rank.to_string());
                let text = format!("ranks {} did not die from SIGKILL", left.collect::<Vec<_>>().join(", "));
                frames.push(FromAgent::Warning { text });
                return true;
            }
            _ => {}
        }
        let all_ended = self.ranks.iter().all(|rank| rank.exit.is_some());
        let may_end = !self.incomplete || self.phase != Phase::Running;
        if all_ended && may_end && self.phase != Phase::Draining {
            if !self.end_leftovers() {
                let text = "processes that ranks left behind did not die from SIGKILL".to_string();
                frames.push(FromAgent::Warning { text });
            }
            self.phase = Phase::Draining;
            // What the leftovers wrote is in the pipes too.
            self.ranks.iter_mut().for_each(Rank::measure);
        }
        let over = self.phase == Phase::Draining && self.ranks.iter().all(|rank| rank.reported && rank.is_drained());
        if over {
            self.ranks.iter_mut().for_each(|rank| rank.finish_lines(frames));
        }
        over
    }

    /// Kills what ranks left behind: children of wrappers, daemons. `false`: something cannot be killed.
    fn end_leftovers(&mut self) -> bool {
        descendants::end_all(KILL_LIMIT, |_, _| {})
    }
}
