//! Where every rank is: for a job that does not end.

use super::{Action, Job, Link, Phase};
use crate::exit::{Failure, signal_name};
use crate::report::Format;
use serde_json::json;
use spmd::bootstrap::messages::{Exit, ToAgent};
use spmd::memory::Activity;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How long agents may take to say what their ranks are doing.
const LIMIT: Duration = Duration::from_millis(500);
/// How many lines a report has at most.
const LINES: usize = 24;

/// A report that is being made.
#[derive(Debug)]
pub(super) struct Report {
    /// Agents that have not answered.
    waiting: Vec<usize>,
    pub(super) until: Instant,
    activities: HashMap<usize, Activity>,
    /// Why the job ends after it.
    then: Option<Failure>,
}

impl Job {
    /// Whether the job ends as soon as the report is there.
    pub(super) fn is_reported(&self) -> bool {
        self.report.as_ref().is_some_and(|report| report.then.is_some())
    }

    /// Ends the job after a report.
    pub(super) fn report_and_fail(&mut self, now: Instant, failure: Failure) {
        self.ask_for_report(now, Some(failure));
    }

    /// Asks the agents what their ranks are doing.
    pub(super) fn ask_for_report(&mut self, now: Instant, then: Option<Failure>) {
        if let Some(report) = &mut self.report {
            // One is on its way.
            report.then = report.then.take().or(then);
            return;
        }
        let waiting = self.started();
        self.send_all(waiting.clone(), ToAgent::Report);
        self.report = Some(Report { waiting, until: now + LIMIT, activities: HashMap::new(), then });
        self.report_if_complete(now);
    }

    /// What one agent says.
    pub(super) fn reported(&mut self, now: Instant, host: usize, ranks: Vec<(u32, Activity)>) {
        let Some(report) = &mut self.report else { return };
        report.waiting.retain(|h| *h != host);
        report.activities.extend(ranks.into_iter().map(|(rank, activity)| (rank as usize, activity)));
        self.report_if_complete(now);
    }

    /// What is missing by now is left out.
    pub(super) fn report_late(&mut self, now: Instant) {
        if let Some(report) = &mut self.report
            && (report.until <= now || report.waiting.iter().all(|host| self.hosts[*host].link != Link::Started))
        {
            report.waiting.clear();
            self.report_if_complete(now);
        }
    }

    fn report_if_complete(&mut self, now: Instant) {
        let Some(report) = self.report.take_if(|report| report.waiting.is_empty()) else { return };
        let ending = matches!(self.phase, Phase::Stopping(_) | Phase::Finished);
        if !ending || report.then.is_none() {
            let text = match self.plan.shown.format {
                Format::Text => self.report_text(now, &report.activities),
                Format::Json => self.report_json(now, &report.activities),
            };
            self.actions.push(Action::Show(text));
        }
        if let Some(failure) = report.then {
            self.fail(now, failure);
        }
    }

    fn report_text(&self, now: Instant, activities: &HashMap<usize, Activity>) -> String {
        let time = (now - self.begun).as_secs_f64();
        let mut lines: Vec<String> = Vec::new();
        for (index, host) in self.hosts.iter().enumerate() {
            if matches!(host.link, Link::Waiting | Link::Connecting(_)) {
                lines.push(format!("host {}: {}", self.host_name(index), host.stage));
            }
        }
        // Ranks that are at the same place, in the order of the first of each.
        let mut places: Vec<(String, Vec<usize>)> = Vec::new();
        for rank in 0..self.ranks.len() {
            let place = self.place_of(rank, activities.get(&rank).copied());
            match places.iter_mut().find(|(text, _)| *text == place) {
                Some((_, ranks)) => ranks.push(rank),
                None => places.push((place, vec![rank])),
            }
        }
        lines.extend(places.into_iter().map(|(place, ranks)| {
            let word = if ranks.len() == 1 { "rank" } else { "ranks" };
            let on = match ranks[..] {
                [one] => format!(" on {} (pid {})", self.host_name(self.ranks[one].host), self.ranks[one].pid),
                _ => String::new(),
            };
            format!("{word} {}{on}: {place}", super::ranks::ranges(&ranks))
        }));
        let rest = lines.len().saturating_sub(LINES);
        lines.truncate(LINES);
        if rest > 0 {
            lines.push(format!("and {rest} lines more"));
        }
        let mut text = format!("state of job {} after {time:.1} s:\n", self.plan.start.job);
        for line in lines {
            text.push_str(&format!("  {line}\n"));
        }
        text
    }

    /// The same for programs: one JSON object, every rank by itself.
    fn report_json(&self, now: Instant, activities: &HashMap<usize, Activity>) -> String {
        let host =
            |(index, host): (usize, &super::HostState)| json!({"host": self.host_name(index), "stage": host.stage});
        let waiting = |(_, host): &(usize, &super::HostState)| matches!(host.link, Link::Waiting | Link::Connecting(_));
        let rank = |rank: usize| {
            let state = &self.ranks[rank];
            json!({
                "rank": rank, "host": self.host_name(state.host), "pid": state.pid,
                "place": self.place_of(rank, activities.get(&rank).copied()),
            })
        };
        let state = json!({
            "job": self.plan.start.job,
            "seconds": (now - self.begun).as_secs_f64(),
            "hosts_waited_for": self.hosts.iter().enumerate().filter(waiting).map(host).collect::<Vec<_>>(),
            "ranks": (0..self.ranks.len()).map(rank).collect::<Vec<_>>(),
        });
        format!("{}\n", json!({"state": state}))
    }

    fn place_of(&self, rank: usize, activity: Option<Activity>) -> String {
        let state = &self.ranks[rank];
        match (state.exit, activity) {
            (Some(Exit::Code(code)), _) => format!("gone, exited with code {code}"),
            (Some(Exit::Signal { signal, .. }), _) => format!("gone, killed by {}", signal_name(signal)),
            _ if state.exited => "lost with its agent".to_string(),
            _ if state.pid == 0 => "not started".to_string(),
            _ if state.finalized => "finalized, still running".to_string(),
            _ if state.hello.is_some() && !self.released => "in World::init".to_string(),
            (None, Some(activity)) => activity.to_string(),
            (None, None) => "unknown, its agent did not answer in time".to_string(),
        }
    }
}
