//! The tree of agents: which host is reached through which, and what happens when that does not work.
//!
//! The first hosts are connected to directly, all others through the agent of an earlier one. What cannot be reached
//! through another host is connected to directly, and stays so.

use super::{Action, Job, Link, Phase};
use crate::exit::{ExitCode, Failure};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// How hosts are reached when they are not all connected to directly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    /// How many hosts the launcher and each agent connect to.
    pub radix: usize,
    /// For each host whether it is the launcher's own machine: nobody else can reach it under that name.
    pub local: Vec<bool>,
}

/// The parent of each of `count` hosts in order; `None`: the launcher itself.
pub(super) fn parents(count: usize, radix: usize) -> impl Iterator<Item = Option<usize>> {
    (0..count).map(move |at| at.checked_sub(radix).map(|rest| rest / radix))
}

impl Job {
    /// Decides for every host that waits through which it is reached.
    pub(super) fn plant(&mut self) {
        let Some(tree) = &self.plan.tree else { return };
        let waits = |host: &usize| self.hosts[*host].link == Link::Waiting && !tree.local[*host];
        let members: Vec<usize> = (0..self.hosts.len()).filter(waits).collect();
        for (host, parent) in members.iter().zip(parents(members.len(), tree.radix)) {
            self.hosts[*host].parent = parent.map(|parent| members[parent]);
        }
    }

    /// Whether a host is reached through another one.
    pub fn is_through(&self, host: usize) -> bool {
        self.hosts[host].parent.is_some()
    }

    /// The directly connected host through which a host is reached; itself when it is one.
    pub fn root(&self, host: usize) -> usize {
        let mut root = host;
        while let Some(parent) = self.hosts[root].parent {
            root = parent;
        }
        root
    }

    /// All hosts that are reached through this one.
    fn below(&self, host: usize) -> Vec<usize> {
        let mut found = vec![host];
        let mut at = 0;
        while at < found.len() {
            let children = (0..self.hosts.len()).filter(|child| self.hosts[*child].parent == Some(found[at]));
            found.extend(children.collect::<Vec<_>>());
            at += 1;
        }
        found.split_off(1)
    }

    /// Connects to waiting hosts: directly as far as the window allows, and through every agent that is there.
    pub(super) fn connect_next(&mut self, now: Instant) {
        let busy = self.hosts.iter().filter(|h| matches!(h.link, Link::Connecting(_)) && h.parent.is_none()).count();
        let mut free = self.plan.window.saturating_sub(busy);
        let mut reach: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for host in 0..self.hosts.len() {
            if self.hosts[host].link != Link::Waiting {
                continue;
            }
            match self.hosts[host].parent {
                None if free > 0 => {
                    free -= 1;
                    self.actions.push(Action::Connect(host));
                }
                Some(parent) if self.hosts[parent].is_there() => reach.entry(parent).or_default().push(host),
                _ => continue,
            }
            self.hosts[host].link = Link::Connecting(now + self.plan.connect_timeout);
        }
        self.actions.extend(reach.into_iter().map(|(parent, hosts)| Action::Reach(parent, hosts)));
    }

    /// Whether the end of a connection is no failure yet, because there is another way.
    pub(super) fn has_another_way(&self, host: usize) -> bool {
        let state = &self.hosts[host];
        let starting = self.phase == Phase::Connecting && self.outcome.is_none();
        starting && (state.parent.is_some() || state.is_there() && !self.below(host).is_empty())
    }

    /// A host is not reached through another one, or not reached any more: from now on directly. An agent that was lost
    /// takes those along that were reached through it, and does not connect for others again.
    pub(super) fn go_direct(&mut self, now: Instant, host: usize, reason: &str) {
        let mut lost = vec![host];
        if self.hosts[host].is_there() {
            lost.extend(self.below(host));
        }
        if !std::mem::replace(&mut self.went_direct, true) {
            let name = self.host_name(self.hosts[host].parent.unwrap_or(host));
            self.actions.push(Action::Notice(format!(
                "not every host is reached through another one (launch.tree), so rsrun connects to those itself; the first \
                 time through host {name}: {reason}"
            )));
        }
        for host in lost {
            let state = &mut self.hosts[host];
            state.parent = None;
            if matches!(state.link, Link::Connecting(_) | Link::Ready) {
                state.link = Link::Waiting;
                state.agent_pid = 0;
                state.node = None;
            }
        }
        self.connect_next(now);
    }

    /// The agent of a host is gone, and with it the way to those below.
    pub(super) fn cut_off(&mut self, now: Instant, host: usize) {
        for further in self.below(host) {
            if matches!(self.hosts[further].link, Link::Connecting(_) | Link::Ready | Link::Started) {
                let (name, relay) = (self.host_name(further), self.host_name(host));
                let text = format!("host {name} was reached through host {relay}, whose agent was lost");
                self.ended(now, further, Failure::new(ExitCode::Internal, text));
            }
        }
    }

    /// Gives up agents without ranks, unless ranks are reached through them.
    pub(super) fn release_idle(&mut self) {
        let mut needed: BTreeSet<usize> = BTreeSet::new();
        for host in self.started() {
            let mut at = self.hosts[host].parent;
            while let Some(parent) = at.filter(|parent| needed.insert(*parent)) {
                at = self.hosts[parent].parent;
            }
        }
        for host in 0..self.hosts.len() {
            if self.hosts[host].link == Link::Ready && !needed.contains(&host) {
                self.give_up(host);
            }
        }
    }

    /// Ends the connection to a host.
    pub(super) fn give_up(&mut self, host: usize) {
        self.hosts[host].link = Link::Gone;
        self.actions.push(match self.hosts[host].parent {
            Some(parent) => Action::Leave(parent, host),
            None => Action::Close(host),
        });
    }
}
