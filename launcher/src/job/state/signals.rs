//! Signals that the launcher got and passes on, and how many processes they reached.

use super::{Action, CONFIRM, Job, Link, Phase};
use crate::exit::signal_name;
use spmd::bootstrap::messages::ToAgent;
use std::time::{Duration, Instant};

/// How long after a first SIGQUIT a second one is passed on.
const SECOND_QUIT: Duration = Duration::from_secs(2);
/// How long agents may take to say that their ranks were told to stop.
const STOP_LIMIT: Duration = Duration::from_millis(500);

/// Signals under way.
#[derive(Debug, Default)]
pub(super) struct Signals {
    sent: Vec<Sent>,
    last_quit: Option<Instant>,
    /// Until when ranks may confirm a stop; then this process stops in any case.
    stop_by: Option<Instant>,
    /// Since when this process has been stopped.
    stopped: Option<Instant>,
}

/// One signal and who has not answered yet.
#[derive(Debug)]
struct Sent {
    signal: i32,
    waiting: Vec<usize>,
    reached: u32,
}

impl Signals {
    /// Nothing is due while this process is stopped.
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.is_some()
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.stop_by
    }

    /// The job ends: it no longer stops.
    pub(super) fn forget_stop(&mut self) {
        self.stop_by = None;
    }

    /// A host that is gone answers nothing.
    pub(super) fn forget(&mut self, host: usize) {
        self.sent.iter_mut().for_each(|sent| sent.waiting.retain(|h| *h != host));
        self.sent.retain(|sent| !sent.waiting.is_empty());
    }
}

impl Job {
    /// Sends a signal to every rank that runs; `false`: there is none.
    pub(super) fn signal_all(&mut self, signal: i32) -> bool {
        let hosts = self.started();
        self.send_all(hosts.clone(), ToAgent::Signal { signal });
        let any = !hosts.is_empty();
        if any {
            self.signals.sent.push(Sent { signal, waiting: hosts, reached: 0 });
        }
        any
    }

    /// Passes a signal on to every rank.
    pub(super) fn forward(&mut self, signal: i32) {
        if matches!(self.phase, Phase::Stopping(_) | Phase::Finished) {
            return;
        }
        if !self.signal_all(signal) && tells(signal) {
            self.actions.push(Action::Notice(format!("{} reached no process: no rank runs yet", signal_name(signal))));
        }
    }

    /// How many processes a signal reached on one host. One that reached nobody must not pass for delivered.
    pub(super) fn signalled(&mut self, host: usize, count: u32) {
        // Agents answer in the order in which they were told.
        let Some(at) = self.signals.sent.iter().position(|sent| sent.waiting.contains(&host)) else { return };
        let sent = &mut self.signals.sent[at];
        sent.waiting.retain(|h| *h != host);
        sent.reached += count;
        if !sent.waiting.is_empty() {
            return;
        }
        let Sent { signal, reached, .. } = self.signals.sent.remove(at);
        if signal == libc::SIGTSTP && self.signals.stop_by.is_some() {
            self.stop_self();
        } else if reached == 0 && tells(signal) {
            self.actions.push(Action::Notice(format!("{} reached no process", signal_name(signal))));
        }
    }

    /// The first SIGQUIT shows where every rank is; a second one soon after is passed on.
    pub(super) fn quit(&mut self, now: Instant) {
        if self.signals.last_quit.replace(now).is_some_and(|last| now - last < SECOND_QUIT) {
            return self.forward(libc::SIGQUIT);
        }
        self.ask_for_report(now, None);
    }

    /// The terminal's stop key: the ranks first, then this process.
    pub(super) fn suspend(&mut self, now: Instant) {
        if matches!(self.phase, Phase::Stopping(_) | Phase::Finished) {
            return;
        }
        self.signals.stop_by = Some(now + STOP_LIMIT);
        if !self.signal_all(libc::SIGTSTP) {
            self.stop_self();
        }
    }

    /// An agent that does not answer does not keep the terminal from its user.
    pub(super) fn suspend_late(&mut self, now: Instant) {
        if self.signals.stop_by.is_some_and(|until| until <= now) {
            self.stop_self();
        }
    }

    fn stop_self(&mut self) {
        // The user's time stood still from the key on.
        self.signals.stopped = self.signals.stop_by.take().map(|until| until - STOP_LIMIT);
        self.actions.push(Action::StopSelf);
    }

    /// This process goes on, and so do its ranks. The time in between does not count.
    pub(super) fn resume(&mut self, now: Instant) {
        self.signals.stop_by = None;
        if let Some(since) = self.signals.stopped.take() {
            let stopped = now.saturating_duration_since(since);
            self.begun += stopped;
            self.first_hello = self.first_hello.map(|time| time + stopped);
            // What agents said meanwhile has not been read yet: nobody is late.
            if let Phase::Settling(until) | Phase::Stopping(until) = &mut self.phase {
                *until = (*until + stopped).min(now + self.plan.grace + CONFIRM);
            }
            for host in &mut self.hosts {
                // It may have begun while this process was stopped: it gets no more time than one that begins now.
                match &mut host.link {
                    Link::Connecting(until) => *until = (*until + stopped).min(now + self.plan.connect_timeout),
                    Link::Sweeping(until) => *until = (*until + stopped).min(now + self.plan.grace + CONFIRM),
                    _ => {}
                }
            }
        }
        if !matches!(self.phase, Phase::Stopping(_) | Phase::Finished) {
            self.signal_all(libc::SIGCONT);
        }
    }
}

/// Whether it matters to somebody that a signal reached nobody.
fn tells(signal: i32) -> bool {
    !matches!(signal, libc::SIGWINCH | libc::SIGCONT | libc::SIGKILL | libc::SIGTSTP)
}
