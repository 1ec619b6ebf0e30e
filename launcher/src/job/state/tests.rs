//! The job as a specification: what a [`World`] says and what the job does, one file for each part of its life.
#![expect(clippy::cast_possible_truncation, reason = "ranks of a test are small numbers")]

mod any_order;
mod ending;
mod life;
mod placing;
mod start;
mod streams;
mod sweep;
mod tree;

use super::*;
use crate::placement::Request;
use spmd::bootstrap::messages::{Exit, Hello, JobKey, Release, SpawnFailure, StdinTarget};
use spmd::config::{Snapshot, Value};

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

/// A job whose world is this test: it says what happens and looks at what is done.
struct World {
    job: Job,
    now: Instant,
    done: Vec<String>,
    finished: bool,
}

fn plan(hosts: &[(&str, Option<u32>)], ranks: Option<u32>) -> Plan {
    let spec = |(name, slots): &(&str, Option<u32>)| HostSpec {
        name: (*name).to_string(),
        slots: *slots,
        place: format!("hosts:{name}"),
        ..HostSpec::this_machine()
    };
    Plan {
        hosts: hosts.iter().map(spec).collect(),
        placement: Request { ranks, ..Request::default() },
        detail: None,
        topologies: vec![],
        shown: crate::report::Options::default(),
        ending: Ending::Run,
        apps: vec![PlannedApp { ranks, ..PlannedApp::default() }],
        hosts_named: true,
        same_machine_allowed: false,
        start: Start {
            job: "job".into(),
            key: JobKey([1; 32]),
            snapshot: Snapshot::defaults(),
            host_of: vec![],
            hosts: std::sync::Arc::default(),
            host: 0,
            apps: vec![],
            app_of: vec![],
            files_read: vec![],
            variables_read: vec![],
            oversubscribed: false,
            placements: vec![],
            devices: std::sync::Arc::default(),
            stdin: StdinTarget::Rank(0),
            prompts: None,
            output_window: 1 << 16,
            survives: false,
        },
        snapshot_hash: [7; 32],
        window: 64,
        tree: None,
        connect_timeout: 8 * S,
        start_timeout: Some(60 * S),
        grace: S,
        timeout: None,
        keep_going: false,
        interactive: false,
    }
}

impl World {
    fn begin(plan: Plan) -> Self {
        let now = Instant::now();
        let mut world = Self { job: Job::new(plan, now), now, done: vec![], finished: false };
        let actions = world.job.begin(now);
        world.note(actions);
        world
    }

    /// Two hosts with two slots each, four ranks that run.
    fn running() -> Self {
        let mut world = Self::begin(plan(&[("a", Some(2)), ("b", Some(2))], None));
        world.hello(0, 2);
        world.hello(1, 2);
        for rank in 0..4 {
            world.say(rank / 2, FromAgent::Spawned { rank: rank as u32, pid: 100 + rank as u32, cpus: String::new() });
        }
        world.done.clear();
        world
    }

    /// As [`World::running`], with every rank released from `World::init`.
    fn released() -> Self {
        let mut world = Self::running();
        (0..4).for_each(|rank| world.init(rank));
        world.done.clear();
        world
    }

    fn note(&mut self, actions: Vec<Action>) {
        // A message to several is noted as one to each.
        let single = |action| match action {
            Action::Send(hosts, message) => {
                hosts.into_iter().map(|host| Action::Send(vec![host], message.clone())).collect()
            }
            action => vec![action],
        };
        for action in actions.into_iter().flat_map(single) {
            self.done.push(match action {
                Action::Connect(host) => format!("connect {host}"),
                Action::Close(host) => format!("close {host}"),
                Action::Reach(parent, hosts) => format!("reach {hosts:?} through {parent}"),
                Action::Leave(parent, host) => format!("leave {host} through {parent}"),
                Action::Notice(text) => format!("notice {text}"),
                Action::Report(text) | Action::Picture(text) => format!("report {text}"),
                Action::ReadStdin(bytes) => format!("read {bytes}"),
                Action::StopStdin | Action::Placed(_) => continue,
                Action::Show(text) => format!("show {text}"),
                Action::StopSelf => "stop self".to_string(),
                Action::Finish => {
                    assert!(!self.finished, "a job ends once");
                    self.finished = true;
                    "finish".to_string()
                }
                Action::Send(hosts, message) => match (hosts[0], message) {
                    (host, ToAgent::Start(start)) => {
                        let names: Vec<_> = start.hosts.iter().map(|h| h.name.as_str()).collect();
                        let over = if start.oversubscribed { " oversubscribed" } else { "" };
                        format!("start {host} as {} of {names:?} ranks {:?}{over}", start.host, start.host_of)
                    }
                    (host, ToAgent::Release(Release { addresses })) => format!("release {host} {}", addresses.len()),
                    (host, ToAgent::Refuse { .. }) => format!("refuse {host}"),
                    (host, ToAgent::Stdin { rank, data }) => {
                        format!("stdin {host} {} {}", rank.map_or("all".to_string(), |r| r.to_string()), data.len())
                    }
                    (host, ToAgent::OutputTaken { rank, bytes }) => format!("taken {host} {rank} {bytes}"),
                    (host, ToAgent::Report) => format!("report {host}"),
                    (host, ToAgent::RankLost { rank, .. }) => format!("lost {host} {rank}"),
                    (host, ToAgent::RanksFinished { ranks }) => format!("finished {host} {ranks:?}"),
                    (host, ToAgent::Signal { signal }) => format!("signal {host} {signal}"),
                    (host, ToAgent::Describe(detail)) => format!("describe {host} {detail:?}"),
                    (host, ToAgent::Stop { signal: libc::SIGTERM }) => format!("stop {host}"),
                    (host, ToAgent::Stop { signal }) => format!("stop {host} with {signal}"),
                    (host, ToAgent::Sweep { job }) => format!("sweep {host} {job}"),
                    (_, ToAgent::Reach(_) | ToAgent::Leave { .. } | ToAgent::Below { .. }) => {
                        unreachable!("made when actions are carried out")
                    }
                },
            });
        }
    }

    fn event(&mut self, event: Event) {
        let actions = self.job.handle(self.now, event);
        self.note(actions);
    }

    fn say(&mut self, host: usize, frame: FromAgent) {
        self.event(Event::Frame(host, frame));
    }

    fn hello(&mut self, host: usize, cores: u32) {
        let identity = format!("machine {host}");
        self.say(host, FromAgent::Hello { hostname: "x".into(), allowed_cores: cores, identity, pid: 1 });
    }

    fn init(&mut self, rank: usize) {
        self.init_with(rank, vec![]);
    }

    fn init_with(&mut self, rank: usize, program: Vec<(String, Value)>) {
        let hello = Hello { pid: 100 + rank as u32, snapshot: [7; 32], program, addresses: vec![] };
        self.say(rank / 2, FromAgent::RankHello { rank: rank as u32, hello });
    }

    fn finalize(&mut self, rank: usize) {
        self.say(rank / 2, FromAgent::RankFinalized { rank: rank as u32 });
    }

    fn exit(&mut self, rank: usize, code: i32) {
        self.say(rank / 2, FromAgent::Exited { rank: rank as u32, exit: Exit::Code(code) });
    }

    fn kill(&mut self, rank: usize, signal: i32) {
        let exit = Exit::Signal { signal, core: false };
        self.say(rank / 2, FromAgent::Exited { rank: rank as u32, exit });
    }

    fn done(&mut self, host: usize) {
        self.say(host, FromAgent::Done);
    }

    fn ended(&mut self, host: usize) {
        self.event(Event::Ended(host, Failure::new(ExitCode::Internal, format!("host {host} lost"))));
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.event(Event::Tick);
    }

    /// Agents do not say in time what their ranks are doing.
    fn no_report(&mut self) {
        self.pass(500 * MS);
    }

    fn did(&mut self) -> Vec<String> {
        std::mem::take(&mut self.done)
    }

    fn code(&self) -> u8 {
        self.job.outcome().map_or(0, |f| f.exit.number())
    }

    fn message(&self) -> &str {
        self.job.outcome().map_or("", |f| f.message.as_str())
    }
}
