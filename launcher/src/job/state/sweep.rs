//! Hosts whose agent was killed together with its guard: nobody is left there to end what ranks had started. A second
//! agent is sent, which does only that.

use super::{Action, CONFIRM, Job, Link};
use spmd::bootstrap::messages::ToAgent;
use std::time::Instant;

impl Job {
    /// The guard of a host's agent has not ended in order: it did not see to it that nothing is left.
    pub(super) fn unguarded(&mut self, host: usize) {
        self.hosts[host].unguarded = self.hosts[host].link == Link::Started;
    }

    /// Sends an agent that ends what is left on a host. The job's end waits for it as long as for any agent.
    pub(super) fn sweep(&mut self, now: Instant, host: usize) {
        let until = now + self.plan.grace + CONFIRM;
        let state = &mut self.hosts[host];
        (state.unguarded, state.parent, state.link) = (false, None, Link::Sweeping(until));
        self.actions.push(Action::Connect(host));
    }

    /// The second agent is there.
    pub(super) fn begin_sweep(&mut self, host: usize) {
        let job = self.plan.start.job.clone();
        self.send(host, ToAgent::Sweep { job });
    }

    /// Nobody knows what is left on a host.
    pub(super) fn not_swept(&mut self, host: usize, reason: &str) {
        self.actions.push(Action::Notice(format!(
            "the agent on host {} and its guard were lost, and what is left there could not be ended ({reason}); look there \
             for processes with SPMD_JOB={} in their environment",
            self.host_name(host),
            self.plan.start.job
        )));
    }

    /// Sweeps that take too long are given up.
    pub(super) fn sweeps_late(&mut self, now: Instant) {
        for host in 0..self.hosts.len() {
            if matches!(self.hosts[host].link, Link::Sweeping(until) if until <= now) {
                let stage = self.hosts[host].stage.clone();
                self.not_swept(host, &format!("no answer in time; last: {stage}"));
                self.give_up(host);
            }
        }
    }
}
