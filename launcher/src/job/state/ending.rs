//! How a job ends: the first failure that counts, stopping, giving up, and the end.

use super::{Action, CONFIRM, Job, Link, Phase, SETTLE, ranks};
use crate::exit::{ExitCode, Failure};
use spmd::bootstrap::messages::{FromAgent, ToAgent};
use std::time::Instant;

impl Job {
    /// A failure that counts at once, and takes the place of a rank's ordinary exit code that came just before.
    pub(super) fn fail(&mut self, now: Instant, failure: Failure) {
        if self.outcome.is_none() || matches!(self.phase, Phase::Settling(_)) {
            self.outcome = Some(failure);
        }
        self.stop(now, libc::SIGTERM);
    }

    /// A rank failed and the others go on: the first failure still decides the exit code.
    pub(super) fn go_on_without(&mut self, rank: usize, failure: Failure) {
        let reason = failure.message.clone();
        self.actions.push(Action::Notice(format!("{reason}; the other ranks go on")));
        self.outcome.get_or_insert(failure);
        self.failed += 1;
        let rank = u32::try_from(rank).unwrap_or(u32::MAX);
        if self.released {
            let hosts = self.started();
            self.send_all(hosts, ToAgent::RankLost { rank, reason });
        }
    }

    /// A rank ended with an ordinary exit code: perhaps only because another was killed.
    pub(super) fn fail_softly(&mut self, now: Instant, failure: Failure) {
        if self.outcome.is_some() {
            return;
        }
        self.outcome = Some(failure);
        if self.ranks.iter().all(|r| r.exited) {
            self.stop(now, libc::SIGTERM)
        } else {
            self.phase = Phase::Settling(now + SETTLE)
        }
    }

    /// Ends everything that runs; `signal` is what ranks get first.
    pub(super) fn stop(&mut self, now: Instant, signal: i32) {
        if matches!(self.phase, Phase::Stopping(_) | Phase::Finished) {
            return;
        }
        self.phase = Phase::Stopping(now + self.plan.grace + CONFIRM);
        self.actions.push(Action::StopStdin);
        for host in 0..self.hosts.len() {
            match self.hosts[host].link {
                Link::Waiting => self.hosts[host].link = Link::Gone,
                Link::Connecting(_) => self.give_up(host),
                Link::Ready | Link::Started | Link::Done | Link::Gone | Link::Sweeping(_) => {}
            }
        }
        self.release_idle();
        let hosts = self.started();
        self.send_all(hosts, ToAgent::Stop { signal });
    }

    /// The launcher was asked to end: the first time in order, the second time at once, the third time it just leaves.
    pub(super) fn interrupt(&mut self, now: Instant, signal: i32) {
        self.interrupts += 1;
        let already = self.outcome.is_some() && matches!(self.phase, Phase::Stopping(_));
        self.signals.forget_stop();
        let name = crate::exit::signal_name(signal);
        let exit = ExitCode::Signal(u8::try_from(signal).unwrap_or(0));
        if self.outcome.is_none() || matches!(self.phase, Phase::Settling(_)) {
            self.outcome = Some(Failure::new(exit, format!("interrupted by {name}")));
        }
        // Ranks get what we got, except that the end of the terminal is an end for them, too.
        self.stop(now, if signal == libc::SIGINT { signal } else { libc::SIGTERM });
        match (self.interrupts, already) {
            (1, false) => {}
            (1 | 2, _) => drop(self.signal_all(libc::SIGKILL)),
            _ => {
                for host in 0..self.hosts.len() {
                    if matches!(self.hosts[host].link, Link::Started | Link::Sweeping(_)) {
                        self.give_up(host);
                    }
                }
            }
        }
    }

    pub(super) fn started(&self) -> Vec<usize> {
        (0..self.hosts.len()).filter(|h| self.hosts[*h].link == Link::Started).collect()
    }

    /// What is due.
    pub(super) fn on_time(&mut self, now: Instant) {
        if self.signals.is_stopped() {
            return;
        }
        self.suspend_late(now);
        self.report_late(now);
        self.sweeps_late(now);
        for host in 0..self.hosts.len() {
            if matches!(self.hosts[host].link, Link::Connecting(until) if until <= now) {
                let message = format!(
                    "host {} did not answer within {} (launch.connect_timeout); last: {}",
                    self.host_name(host),
                    crate::settings::show_duration(self.plan.connect_timeout),
                    self.hosts[host].stage
                );
                if let Some(parent) = self.hosts[host].parent.filter(|_| self.has_another_way(host)) {
                    self.actions.push(Action::Leave(parent, host));
                    self.go_direct(now, host, &message);
                } else {
                    self.give_up(host);
                    self.fail(now, Failure::new(ExitCode::Unreachable, message));
                }
            }
        }
        if self.start_deadline().is_some_and(|until| until <= now) {
            let missing: Vec<usize> = (0..self.ranks.len()).filter(|r| self.ranks[*r].hello.is_none()).collect();
            let host = missing.first().map_or("", |rank| self.host_name(self.ranks[*rank].host));
            let who = match missing.as_slice() {
                [rank] => format!("rank {rank} on host {host}"),
                _ => format!("ranks {} (the first of them on host {host})", ranks::list(&missing)),
            };
            let message = format!(
                "{who} did not enter World::init within {} of the first rank (launch.start_timeout)",
                crate::settings::show_duration(self.plan.start_timeout.unwrap_or_default()),
            );
            self.report_and_fail(now, Failure::new(ExitCode::Timeout, message));
        }
        if self.job_deadline().is_some_and(|until| until <= now) {
            let limit = crate::settings::show_duration(self.plan.timeout.unwrap_or_default());
            let message = format!("the job did not end within {limit} (--timeout)");
            self.report_and_fail(now, Failure::new(ExitCode::Timeout, message));
        }
        self.tell_farewells(now);
        match self.phase {
            Phase::Settling(until) if until <= now => self.stop(now, libc::SIGTERM),
            Phase::Stopping(until) if until <= now => {
                for host in self.started() {
                    self.actions.push(Action::Notice(format!(
                        "host {} did not confirm in time that its processes ended (its agent is process {}); look there \
                         for processes with SPMD_JOB={} in their environment",
                        self.host_name(host),
                        self.hosts[host].agent_pid,
                        self.plan.start.job
                    )));
                    self.give_up(host);
                }
            }
            _ => {}
        }
    }

    /// A link is down.
    pub(super) fn ended(&mut self, now: Instant, host: usize, failure: Failure) {
        if self.has_another_way(host) {
            return self.go_direct(now, host, &failure.message);
        }
        self.signals.forget(host);
        let left = self.hosts[host].link == Link::Started && self.hosts[host].unguarded && self.interrupts < 3;
        match self.hosts[host].link {
            Link::Done | Link::Gone => self.hosts[host].link = Link::Gone,
            Link::Sweeping(_) => {
                self.hosts[host].link = Link::Gone;
                self.not_swept(host, &failure.message);
            }
            Link::Started if self.plan.keep_going && self.released && self.phase == Phase::Running => {
                self.hosts[host].link = Link::Gone;
                for rank in 0..self.ranks.len() {
                    if self.ranks[rank].host == host && !self.ranks[rank].exited {
                        (self.ranks[rank].exited, self.ranks[rank].ended) = (true, Some(now));
                        let who = self.describe(rank);
                        let failure = Failure::new(failure.exit, format!("{who} is lost: {}", failure.message));
                        self.go_on_without(rank, failure);
                    }
                }
            }
            _ => {
                self.hosts[host].link = Link::Gone;
                self.fail(now, failure);
            }
        }
        self.cut_off(now, host);
        if left {
            self.sweep(now, host);
        }
    }

    /// An agent has confirmed that nothing is left.
    pub(super) fn done(&mut self, now: Instant, host: usize) {
        self.hosts[host].link = Link::Done;
        let missing: Vec<usize> =
            (0..self.ranks.len()).filter(|r| self.ranks[*r].host == host && !self.ranks[*r].exited).collect();
        if !missing.is_empty() && self.outcome.is_none() {
            let message =
                format!("the agent on host {} ended before its ranks {}", self.host_name(host), ranks::list(&missing));
            self.fail(now, Failure::new(ExitCode::Internal, message));
        }
    }

    /// Whether an agent's frame still matters.
    pub(super) fn listens_to(&self, host: usize, frame: &FromAgent) -> bool {
        match self.hosts[host].link {
            Link::Started => !matches!(frame, FromAgent::Hello { .. }),
            Link::Connecting(_) => {
                matches!(frame, FromAgent::Hello { .. } | FromAgent::Node(_) | FromAgent::Warning { .. })
            }
            Link::Sweeping(_) => {
                matches!(frame, FromAgent::Hello { .. } | FromAgent::Done | FromAgent::Warning { .. })
            }
            Link::Ready => matches!(frame, FromAgent::Warning { .. }),
            Link::Gone | Link::Waiting | Link::Done => false,
        }
    }

    pub(super) fn check_end(&mut self) {
        if self.phase != Phase::Connecting {
            self.release_idle();
        }
        let over = self.hosts.iter().all(|h| matches!(h.link, Link::Done | Link::Gone));
        if over && self.phase != Phase::Finished {
            self.phase = Phase::Finished;
            if let Some(failure) = self.outcome.as_mut().filter(|_| self.failed > 1) {
                failure.message = format!("{} ranks failed, the first one: {}", self.failed, failure.message);
            }
            self.actions.push(Action::StopStdin);
            self.actions.push(Action::Finish);
        }
    }
}
