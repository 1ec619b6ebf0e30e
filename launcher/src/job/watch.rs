//! How far the start of a job has come: for the progress line and for `--phases`.
//!
//! Pure: is told what happens and when, and decides nothing.

use super::state::{Action, Event};
use crate::count;
use spmd::bootstrap::messages::{FromAgent, ToAgent};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// When the first and the last of several things happened.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    count: usize,
    first: Option<Instant>,
    last: Option<Instant>,
}

impl Span {
    fn note(&mut self, now: Instant) {
        self.count += 1;
        self.first.get_or_insert(now);
        self.last = Some(now);
    }
}

/// What has happened so far.
#[derive(Debug)]
pub(super) struct Watch {
    begun: Instant,
    /// The first connection was begun.
    connecting: Option<Instant>,
    /// What each host that is being connected to is doing.
    waiting: BTreeMap<usize, String>,
    /// Hosts that may be needed, as far as connections were begun.
    asked: BTreeSet<usize>,
    agents: Span,
    /// Agents were told to start, and with how many bytes.
    told: Span,
    told_bytes: usize,
    ranks: usize,
    spawned: Span,
    hellos: Span,
    in_init: Vec<bool>,
    released: Option<Instant>,
    exited: Span,
}

impl Watch {
    pub(super) fn new(begun: Instant) -> Self {
        Self {
            begun,
            connecting: None,
            waiting: BTreeMap::new(),
            asked: BTreeSet::new(),
            agents: Span::default(),
            told: Span::default(),
            told_bytes: 0,
            ranks: 0,
            spawned: Span::default(),
            hellos: Span::default(),
            in_init: Vec::new(),
            released: None,
            exited: Span::default(),
        }
    }

    pub(super) fn event(&mut self, now: Instant, event: &Event) {
        match event {
            Event::Stage(host, stage) => {
                if let Some(doing) = self.waiting.get_mut(host) {
                    doing.clone_from(stage);
                }
            }
            Event::Ended(host, _) => drop(self.waiting.remove(host)),
            Event::Frame(host, frame) => match frame {
                // Later ones are no part of the start.
                FromAgent::Hello { .. } if self.told.count == 0 => {
                    self.waiting.remove(host);
                    self.agents.note(now);
                }
                FromAgent::Spawned { .. } => self.spawned.note(now),
                FromAgent::RankHello { rank, .. } => {
                    if let Some(seen) = self.in_init.get_mut(*rank as usize)
                        && !std::mem::replace(seen, true)
                    {
                        self.hellos.note(now);
                    }
                }
                FromAgent::Exited { .. } => self.exited.note(now),
                _ => {}
            },
            _ => {}
        }
    }

    /// `bytes`: the length of what is sent.
    pub(super) fn action(&mut self, now: Instant, action: &Action, bytes: usize) {
        match action {
            Action::Connect(host) => {
                self.connecting.get_or_insert(now);
                self.asked.insert(*host);
                self.waiting.insert(*host, String::new());
            }
            Action::Reach(_, hosts) => {
                self.asked.extend(hosts);
                self.waiting.extend(hosts.iter().map(|host| (*host, String::new())));
            }
            Action::Send(_, ToAgent::Start(start)) => {
                self.told.note(now);
                self.told_bytes += bytes;
                self.ranks = start.host_of.len();
                self.in_init.resize(self.ranks, false);
            }
            Action::Send(_, ToAgent::Release(_)) => drop(self.released.get_or_insert(now)),
            _ => {}
        }
    }

    /// The start is over: every rank is in its world, or runs a program that has none.
    pub(super) fn is_over(&self) -> bool {
        let all_run = self.ranks > 0 && self.spawned.count >= self.ranks;
        self.released.is_some() || self.exited.count > 0 || (all_run && self.hellos.count == 0)
    }

    /// Where the start stands, in one line. `name`: of a host.
    pub(super) fn line<'a>(&self, name: impl Fn(usize) -> &'a str) -> String {
        if self.ranks == 0 {
            let next = self.waiting.iter().next();
            let who = next.map(|(host, doing)| match doing.as_str() {
                "" => format!("; waiting for {}", name(*host)),
                doing => format!("; waiting for {}: {doing}", name(*host)),
            });
            let asked = self.asked.len();
            return format!("{} of {asked} hosts connected{}", self.agents.count, who.unwrap_or_default());
        }
        if self.spawned.count < self.ranks {
            let (hosts, ranks) = (count(self.told.count, "host"), count(self.ranks, "rank"));
            return format!("{hosts}, {} of {ranks} started", self.spawned.count);
        }
        let missing = self.in_init.iter().position(|seen| !seen);
        let who = missing.map(|rank| format!("; waiting for rank {rank}")).unwrap_or_default();
        format!("{} started, {} in World::init{who}", count(self.ranks, "rank"), self.hellos.count)
    }

    /// How long each phase took: its name, what belongs to it, its time.
    fn phases(&self, now: Instant) -> Vec<(&'static str, String, Duration)> {
        let begun_connecting = self.connecting.unwrap_or(self.begun);
        let first = match self.agents.first.filter(|_| self.agents.count > 1) {
            Some(first) => {
                format!(" (the first after {})", milliseconds(first.saturating_duration_since(begun_connecting)))
            }
            None => String::new(),
        };
        let each = self.told_bytes.checked_div(self.ranks).unwrap_or(0);
        let phases = [
            ("preparing", String::new(), self.connecting),
            ("connecting", format!(" {}{first}", count(self.agents.count, "host")), self.agents.last),
            ("mapping and telling", format!(" ({} bytes, {each} a rank)", self.told_bytes), self.told.last),
            ("starting", format!(" {}", count(self.spawned.count, "rank")), self.spawned.last),
            ("entering World::init", String::new(), self.released),
            ("running", String::new(), self.exited.last),
            ("ending", String::new(), Some(now)),
        ];
        let mut at = self.begun;
        let mut taken = Vec::new();
        for (name, about, until) in phases {
            let Some(until) = until else { continue };
            taken.push((name, about, until.saturating_duration_since(at)));
            at = until.max(at);
        }
        taken
    }

    /// The phases in one line for people.
    pub(super) fn report(&self, now: Instant) -> String {
        let each = |(name, about, time)| format!("{name}{about} {}", milliseconds(time));
        let parts: Vec<String> = self.phases(now).into_iter().map(each).collect();
        format!("phases: {}; together {}", parts.join(", "), milliseconds(now.saturating_duration_since(self.begun)))
    }

    /// The phases for programs: one JSON object, times in seconds.
    pub(super) fn report_json(&self, now: Instant) -> serde_json::Value {
        let each = |(name, _, time): (&str, String, Duration)| serde_json::json!({"phase": name, "seconds": time.as_secs_f64()});
        serde_json::json!({
            "phases": self.phases(now).into_iter().map(each).collect::<Vec<_>>(),
            "together": now.saturating_duration_since(self.begun).as_secs_f64(),
            "hosts": self.agents.count,
            "ranks": self.spawned.count,
            "bytes_told": self.told_bytes,
        })
    }
}

fn milliseconds(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use spmd::bootstrap::messages::Hello;

    const MS: Duration = Duration::from_millis(1);

    fn agent(host: usize) -> Event {
        let (hostname, identity) = (String::new(), String::new());
        Event::Frame(host, FromAgent::Hello { hostname, allowed_cores: 1, identity, pid: 1 })
    }

    fn spawned(rank: u32) -> Event {
        Event::Frame(0, FromAgent::Spawned { rank, pid: 1, cpus: String::new() })
    }

    fn hello(rank: u32) -> Event {
        let hello = Hello { pid: 1, snapshot: [0; 32], program: vec![], addresses: vec![] };
        Event::Frame(0, FromAgent::RankHello { rank, hello })
    }

    fn line(watch: &Watch) -> String {
        watch.line(|host| ["a", "b"][host])
    }

    #[test]
    fn the_line_says_how_far_the_start_is_and_what_is_waited_for() {
        let now = Instant::now();
        let mut watch = Watch::new(now);
        watch.action(now, &Action::Connect(0), 0);
        watch.action(now, &Action::Connect(1), 0);
        watch.event(now, &Event::Stage(1, "connecting to 10.0.0.2:22".into()));
        assert_eq!(line(&watch), "0 of 2 hosts connected; waiting for a");
        watch.event(now + MS, &agent(0));
        assert_eq!(line(&watch), "1 of 2 hosts connected; waiting for b: connecting to 10.0.0.2:22");
        watch.event(now + 2 * MS, &agent(1));
        (watch.ranks, watch.in_init) = (2, vec![false; 2]);
        watch.told.note(now + 2 * MS);
        watch.event(now + 3 * MS, &spawned(0));
        assert_eq!(line(&watch), "1 host, 1 of 2 ranks started");
        watch.event(now + 4 * MS, &spawned(1));
        // Perhaps a program without a world.
        assert!(watch.is_over());
        watch.event(now + 5 * MS, &hello(1));
        assert!(!watch.is_over());
        assert_eq!(line(&watch), "2 ranks started, 1 in World::init; waiting for rank 0");
        watch.released = Some(now + 6 * MS);
        assert!(watch.is_over());
        let report = watch.report(now + 9 * MS);
        for part in [
            "connecting 2 hosts (the first after 1.0 ms) 2.0 ms",
            "starting 2 ranks 2.0 ms",
            "entering World::init 2.0 ms",
            "ending 3.0 ms",
            "together 9.0 ms",
        ] {
            assert!(report.contains(part), "{part} is not in: {report}");
        }
        let report = watch.report_json(now + 9 * MS);
        assert_eq!((&report["hosts"], &report["ranks"], &report["together"]), (&2.into(), &2.into(), &0.009.into()));
        assert_eq!(report["phases"][0], serde_json::json!({"phase": "preparing", "seconds": 0.0}));
    }
}
