//! The part of the job that runs on this host.

use super::boot::{self, Shared};
use super::descendants;
use super::limits::Limits;
use super::rank::{PIECE, Rank};
use super::reactor::{Part, Reactor, Source};
use super::spawn::{Launch, Refusal};
use crate::connect::Outgoing;
use rustix::process::{Pid, Resource, Signal, getrlimit};
use spmd::bootstrap::frame;
use spmd::bootstrap::messages::{FromAgent, SpawnFailure, Start, StdinTarget, ToAgent, ToRank};
use spmd::config::keys;
use spmd::memory::{Activity, Segment};
use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// How many bytes of standard input may be on their way to a rank before its pipe, which holds as many.
const STDIN_WINDOW: u32 = 16 << 10;
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
    /// Where ranks say what they are doing.
    board: Option<Segment>,
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
            board: None,
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
        mut given: Option<OwnedFd>,
        frames: &mut Vec<FromAgent>,
    ) {
        let here = self.start.host;
        let local: Vec<u32> =
            (0..).zip(&self.start.host_of).filter(|(_, host)| **host == here).map(|(rank, _)| rank).collect();
        let failed = |reason: String| FromAgent::Failed { reason };
        let limits = Limits {
            soft: open_files,
            hard: getrlimit(Resource::Nofile).maximum,
            local: local.len() as u64,
            far: (self.start.host_of.len() - local.len()) as u64,
        };
        if let Err(reason) = limits.check() {
            self.incomplete = true;
            return frames.push(failed(reason));
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
        let launch = match Launch::new(&start, shared, &environment, limits, reached_at, local) {
            Ok(launch) => launch,
            Err(refusal) => {
                self.incomplete = true;
                return refused(first, refusal);
            }
        };
        let window = self.start.output_window;
        for (index, rank) in launch.local.iter().enumerate() {
            let own = if self.start.stdin == StdinTarget::Rank(*rank) { given.take() } else { None };
            let result = launch.spawn(index, own).and_then(|started| {
                let pid = started.pid;
                self.ranks.push(Rank::new(*rank, started, window, self.start.prompts == Some(*rank)));
                self.watch(reactor, index).map_err(|e| Refusal { kind: SpawnFailure::Other, reason: e.to_string() })?;
                Ok(pid)
            });
            match result {
                Ok(pid) => {
                    frames.push(FromAgent::Spawned { rank: *rank, pid, cpus: runs_on(pid) });
                    if self.ranks[index].stdin.is_some() {
                        frames.push(FromAgent::StdinTaken { rank: *rank, bytes: STDIN_WINDOW });
                    }
                }
                Err(Refusal { kind, reason }) => {
                    self.incomplete = true;
                    frames.push(FromAgent::SpawnFailed { rank: *rank, reason, kind });
                    return;
                }
            }
        }
        self.board = Some(launch.shared.into_board());
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
            Part::Stdout | Part::Stderr => {
                rank.read_output(usize::from(part == Part::Stderr), &mut self.buffer, frames);
                Self::rewatch_outputs(reactor, rank, index);
            }
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

    fn rewatch_outputs(reactor: &mut Reactor, rank: &mut Rank, index: usize) {
        for (output, wanted) in rank.rewatch() {
            let part = if output == 0 { Part::Stdout } else { Part::Stderr };
            if let Some(output) = &rank.outputs[output] {
                // Fails only for a descriptor that is not watched.
                let _ = reactor.want_read(&output.fd, Source::Rank(part, index), wanted);
            }
        }
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
            ToAgent::RankLost { rank, reason } => self.tell_ranks(reactor, &ToRank::Lost { rank, reason }),
            ToAgent::RanksFinished { ranks } => self.tell_ranks(reactor, &ToRank::Finished { ranks }),
            ToAgent::Stdin { rank, data } => {
                for (index, own) in self.ranks.iter_mut().enumerate() {
                    if rank.is_none_or(|rank| rank == own.rank) {
                        own.push_stdin(&data);
                        Self::write_stdin(reactor, own, index, frames);
                    }
                }
            }
            ToAgent::OutputTaken { rank, bytes } => {
                if let Some(index) = self.ranks.iter().position(|r| r.rank == rank) {
                    self.ranks[index].output_taken(bytes);
                    Self::rewatch_outputs(reactor, &mut self.ranks[index], index);
                }
            }
            ToAgent::Report => {
                let running = self.ranks.iter().enumerate().filter(|(_, rank)| rank.exit.is_none());
                let doing = |index| self.board.as_ref().map_or(Activity::Outside, |board| board.activity(index));
                let ranks = running.map(|(index, rank)| (rank.rank, doing(index))).collect();
                frames.push(FromAgent::Report { ranks });
            }
            ToAgent::Signal { signal } => {
                let signal = Signal::from_named_raw(signal);
                let reached = signal.map_or(0, |signal| self.ranks.iter().filter(|rank| rank.signal(signal)).count());
                frames.push(FromAgent::Signalled { count: u32::try_from(reached).unwrap_or(u32::MAX) });
            }
            // The agent's own.
            ToAgent::Describe(_)
            | ToAgent::Start(_)
            | ToAgent::Stop { .. }
            | ToAgent::Sweep { .. }
            | ToAgent::Reach(_)
            | ToAgent::Leave { .. }
            | ToAgent::Below { .. } => {}
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
        // A rank that never waits, and so does not look at its control socket, is to know as well.
        if let Some(board) = &self.board {
            board.tell_news();
        }
    }

    /// A child of this process has ended: a rank, or something that a rank had abandoned.
    pub(super) fn child_ended(
        &mut self,
        reactor: &mut Reactor,
        pid: Pid,
        status: i32,
        frames: &mut Vec<FromAgent>,
    ) -> Result<(), String> {
        let Some(index) = self.ranks.iter().position(|rank| rank.is(pid)) else { return Ok(()) };
        let rank = &mut self.ranks[index];
        rank.ended(status);
        Self::rewatch_outputs(reactor, rank, index);
        self.ended.push_back(index);
        // What it said before its end comes before the news of its end.
        rank.read_control(frames)
    }

    /// Ends everything: this signal, after `grace` SIGKILL. A shorter grace than before counts.
    pub(super) fn stop(&mut self, now: Instant, grace: Duration, signal: i32) {
        let until = now + grace;
        match self.phase {
            Phase::Running => {
                for rank in &self.ranks {
                    rank.signal(Signal::from_named_raw(signal).unwrap_or(Signal::TERM));
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
        let phase = match self.phase {
            Phase::Stopping(until) | Phase::Killed(until) => Some(until),
            Phase::Running | Phase::Draining => None,
        };
        phase.into_iter().chain(self.ranks.iter().filter_map(Rank::prompt_due)).min()
    }

    /// Reports ended ranks in the order of their ends, keeps the time limits. `relay` is no part of the job here.
    /// `true`: nothing is left.
    pub(super) fn advance(
        &mut self,
        reactor: &mut Reactor,
        now: Instant,
        relay: Option<Pid>,
        frames: &mut Vec<FromAgent>,
    ) -> bool {
        for (index, rank) in self.ranks.iter_mut().enumerate() {
            if rank.prompt_due().is_some_and(|due| due <= now) {
                rank.flush_prompts(now, frames);
                Self::rewatch_outputs(reactor, rank, index);
            }
        }
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
                // A process in an uninterruptible sleep: nobody can wait for it to end.
                for rank in self.ranks.iter().filter(|rank| rank.exit.is_none()) {
                    let pid = rank.pid.map_or(0, |pid| pid.as_raw_nonzero().get());
                    let text = format!("process {pid} (rank {}) did not die from SIGKILL", rank.rank);
                    frames.push(FromAgent::Warning { text });
                }
                return true;
            }
            _ => {}
        }
        let all_ended = self.ranks.iter().all(|rank| rank.exit.is_some());
        let may_end = !self.incomplete || self.phase != Phase::Running;
        if all_ended && may_end && self.phase != Phase::Draining {
            if !Self::end_leftovers(relay) {
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
    fn end_leftovers(relay: Option<Pid>) -> bool {
        descendants::end_all(KILL_LIMIT, relay, |_, _| {})
    }
}

/// Where the kernel lets a process run.
fn runs_on(pid: u32) -> String {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.map(crate::topology::live::affinity_of).unwrap_or_default()
}
