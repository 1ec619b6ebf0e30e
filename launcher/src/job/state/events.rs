//! What each event means.

use super::super::{agreement, release};
use super::{Action, Event, Job, Link, Phase};
use crate::exit::{ExitCode, Failure, signal_name};
use rustix::io::Errno;
use spmd::bootstrap::messages::{Exit, FromAgent, Hello, PROTOCOL, Release, SpawnFailure, ToAgent};
use std::time::Instant;

impl Job {
    pub(super) fn on_event(&mut self, now: Instant, event: Event) {
        match event {
            Event::Tick => {}
            Event::Stage(host, stage) => self.hosts[host].stage = stage,
            Event::Unguarded(host) => self.unguarded(host),
            Event::Ended(host, failure) => self.ended(now, host, failure),
            Event::Signal(signal @ (libc::SIGINT | libc::SIGTERM | libc::SIGHUP)) => self.interrupt(now, signal),
            Event::Signal(libc::SIGQUIT) => self.quit(now),
            Event::Signal(libc::SIGTSTP) => self.suspend(now),
            Event::Signal(libc::SIGCONT) => self.resume(now),
            Event::Signal(signal) => self.forward(signal),
            Event::Stdin(data) => self.input(data),
            Event::OutputTaken(rank, bytes) => {
                if let Some(state) = self.ranks.get(rank as usize).filter(|r| !r.exited)
                    && self.hosts[state.host].link == Link::Started
                {
                    let host = state.host;
                    self.send(host, ToAgent::OutputTaken { rank, bytes });
                }
            }
            Event::OutputFailed(reason) => self.fail(now, Failure::new(ExitCode::Directory, reason)),
            Event::OutputBroken(Errno::PIPE) => {
                let exit = ExitCode::Signal(u8::try_from(libc::SIGPIPE).unwrap_or(0));
                self.fail(now, Failure::new(exit, "standard output was closed by its reader"));
            }
            Event::OutputBroken(error) => {
                let error = std::io::Error::from(error);
                let message = format!("standard output cannot be written: {error}");
                self.fail(now, Failure::new(ExitCode::Directory, message));
            }
            Event::Frame(host, frame) if self.listens_to(host, &frame) => self.on_frame(now, host, frame),
            Event::Frame(..) => {}
        }
    }

    fn on_frame(&mut self, now: Instant, host: usize, frame: FromAgent) {
        let name = self.host_name(host).to_string();
        let rank = match &frame {
            FromAgent::Spawned { rank, .. }
            | FromAgent::SpawnFailed { rank, .. }
            | FromAgent::StdinTaken { rank, .. }
            | FromAgent::RankHello { rank, .. }
            | FromAgent::RankFinalized { rank }
            | FromAgent::RankAbort { rank, .. }
            | FromAgent::RankVersion { rank, .. }
            | FromAgent::Exited { rank, .. } => *rank as usize,
            _ => usize::MAX,
        };
        if rank != usize::MAX && self.ranks.get(rank).is_none_or(|r| r.host != host) {
            let message = format!("the agent on host {name} spoke of rank {rank}, which is not there");
            return self.fail(now, Failure::new(ExitCode::Internal, message));
        }
        match frame {
            FromAgent::Hello { .. } if matches!(self.hosts[host].link, Link::Sweeping(_)) => self.begin_sweep(host),
            FromAgent::Hello { allowed_cores, identity, pid, .. } => {
                let state = &mut self.hosts[host];
                (state.cores, state.machine, state.agent_pid) = (allowed_cores, identity, pid);
                self.greeted(host);
                self.connect_next(now);
                self.start_when_ready(now);
            }
            FromAgent::Node(node) => self.described(now, host, node),
            FromAgent::Stray { what } => {
                let decided = crate::settings::decided(&self.plan.start.snapshot, &what);
                if self.strays.insert((host, what.clone())) {
                    self.actions.push(Action::Notice(format!(
                        "host {name}: ignored {what} (the launcher's snapshot decides{decided})"
                    )));
                }
            }
            FromAgent::Warning { text } => self.actions.push(Action::Notice(format!("host {name}: {text}"))),
            FromAgent::Spawned { pid, cpus, .. } => {
                self.ranks[rank].started = Some(now);
                self.spawned(rank, pid, cpus);
            }
            FromAgent::SpawnFailed { reason, kind, .. } => {
                let exit = match kind {
                    SpawnFailure::NotFound => ExitCode::NotFound,
                    SpawnFailure::NotExecutable => ExitCode::NotExecutable,
                    SpawnFailure::Directory => ExitCode::Directory,
                    SpawnFailure::Other => ExitCode::Internal,
                };
                self.fail(now, Failure::new(exit, format!("host {name}: rank {rank} cannot be started: {reason}")));
            }
            FromAgent::StdinTaken { bytes, .. } => self.input_taken(rank, bytes),
            FromAgent::RankHello { hello, .. } => self.rank_hello(now, rank, hello),
            FromAgent::RankFinalized { .. } => self.finalized(now, rank),
            FromAgent::RankAbort { code, message, .. } => {
                // Whoever aborts does not succeed, whatever the code.
                let code = u8::try_from(code & 0xff).unwrap_or(1).max(1);
                let text = format!("{} aborted the job with code {code}: {message}", self.describe(rank));
                self.fail(now, Failure::new(ExitCode::Rank(code), text));
            }
            FromAgent::RankVersion { protocol, version, .. } => {
                let text = format!(
                    "the program of {} was built against version {version} with protocol {protocol}, rsrun is version {} \
                     with protocol {PROTOCOL}: rebuild the program, or use the rsrun of its version",
                    self.describe(rank),
                    env!("CARGO_PKG_VERSION")
                );
                self.fail(now, Failure::new(ExitCode::Protocol, text));
            }
            FromAgent::Exited { exit, .. } => self.rank_exited(now, rank, exit),
            FromAgent::Signalled { count } => self.signalled(host, count),
            FromAgent::Report { ranks } => self.reported(now, host, ranks),
            FromAgent::Failed { reason } => {
                self.fail(now, Failure::new(ExitCode::Internal, format!("host {name}: {reason}")));
            }
            FromAgent::Done => self.done(now, host),
            // Output goes to the sink and what ranks tell of themselves to its collector before they come here, and what is
            // passed on comes as what it is.
            FromAgent::Output { .. } | FromAgent::RankInsight { .. } | FromAgent::Below { .. } => {}
        }
    }

    fn rank_hello(&mut self, now: Instant, rank: usize, hello: Hello) {
        self.first_hello.get_or_insert(now);
        self.ranks[rank].pid = hello.pid;
        self.ranks[rank].hello = Some(hello);
        self.check_init(now);
        if self.phase != Phase::Running || self.released {
            return;
        }
        let said = |r: &super::Rank| r.hello.is_some();
        if !self.ranks.iter().all(said) {
            return;
        }
        let hellos: Vec<(&Hello, &str)> =
            self.ranks.iter().filter_map(|r| Some((r.hello.as_ref()?, self.host_name(r.host)))).collect();
        if let Err(reason) = agreement::check(&hellos, self.plan.snapshot_hash) {
            return self.refuse(now, reason);
        }
        let ranks: Vec<_> = self
            .ranks
            .iter()
            .filter_map(|r| Some((self.hosts[r.host].machine.as_str(), r.hello.as_ref()?.addresses.as_slice())))
            .collect();
        let release = Release { addresses: release::usable(&ranks) };
        self.released = true;
        let hosts = self.started();
        self.send_all(hosts, ToAgent::Release(release));
    }

    /// A rank that ends before `World::init` while others wait in it would make them wait for ever.
    fn check_init(&mut self, now: Instant) {
        if self.released || self.phase != Phase::Running {
            return;
        }
        let waiting = self.ranks.iter().position(|r| r.hello.is_some());
        let gone = self.ranks.iter().position(|r| r.exited && (r.hello.is_none() || self.plan.keep_going));
        if let (Some(waiting), Some(gone)) = (waiting, gone.filter(|gone| Some(*gone) != waiting)) {
            let end = match self.ranks[gone].exit {
                Some(Exit::Code(code)) => format!("ended with exit code {code}"),
                _ => "was killed".to_string(),
            };
            let reason = format!(
                "{} {end} without World::init, in which {} waits for it",
                self.describe(gone),
                self.describe(waiting)
            );
            self.refuse(now, reason);
        }
    }

    fn refuse(&mut self, now: Instant, reason: String) {
        let hosts = self.started();
        self.send_all(hosts, ToAgent::Refuse { reason: reason.clone() });
        self.fail(now, Failure::new(ExitCode::Refused, reason));
    }

    fn rank_exited(&mut self, now: Instant, rank: usize, exit: Exit) {
        let state = &mut self.ranks[rank];
        (state.exited, state.exit, state.ended) = (true, Some(exit), Some(now));
        self.input_taken(rank, 0);
        let who = self.describe(rank);
        match exit {
            Exit::Code(0) => {
                let state = &self.ranks[rank];
                if state.hello.is_some() && !state.finalized && (self.outcome.is_none() || self.plan.keep_going) {
                    let text = format!(
                        "{who} left with exit code 0 before its World was dropped: return from main instead of calling \
                         exit"
                    );
                    self.rank_failed(now, rank, Failure::new(ExitCode::Protocol, text), true);
                }
                self.check_init(now);
            }
            Exit::Code(code) => {
                let number = u8::try_from(code & 0xff).unwrap_or(u8::MAX);
                let failure = Failure::new(ExitCode::Rank(number), format!("{who} exited with code {code}"));
                self.rank_failed(now, rank, failure, true);
            }
            Exit::Signal { signal, core } => {
                let core = if core { ", core dumped" } else { "" };
                let text = format!("{who} was killed by {} (signal {signal}{core})", signal_name(signal));
                let number = u8::try_from(signal).unwrap_or(0);
                self.rank_failed(now, rank, Failure::new(ExitCode::Signal(number), text), false);
            }
        }
    }

    /// One rank failed: the job ends, or goes on without it. `softly`: perhaps only because another one failed.
    fn rank_failed(&mut self, now: Instant, rank: usize, failure: Failure, softly: bool) {
        let goes_on = self.plan.keep_going && matches!(self.phase, Phase::Running);
        match (goes_on, softly) {
            (true, _) => {
                self.go_on_without(rank, failure);
                self.check_init(now);
            }
            (false, true) => self.fail_softly(now, failure),
            (false, false) => self.fail(now, failure),
        }
    }

    pub(super) fn describe(&self, rank: usize) -> String {
        let state = &self.ranks[rank];
        format!("rank {rank} on host {} (pid {})", self.host_name(state.host), state.pid)
    }
}
