#![expect(clippy::cast_possible_truncation, reason = "ranks of a test are small numbers")]

mod life;

use super::*;
use crate::placement::Request;
use spmd::bootstrap::messages::{Exit, Hello, JobKey, Release, SpawnFailure, StdinTarget};
use spmd::config::{Snapshot, Value};

mod placing;
mod tree;

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

#[test]
fn a_job_connects_maps_starts_releases_and_ends() {
    let mut w = World::begin(plan(&[("a", Some(2)), ("b", None)], None));
    assert_eq!(w.did(), ["connect 0", "connect 1"]);
    w.hello(1, 1);
    assert!(w.did().is_empty());
    w.hello(0, 8);
    assert_eq!(
        w.did(),
        [r#"start 0 as 0 of ["a", "b"] ranks [0, 0, 1]"#, r#"start 1 as 1 of ["a", "b"] ranks [0, 0, 1]"#]
    );
    for rank in [2, 0, 1] {
        w.init(rank);
    }
    assert_eq!(w.did(), ["release 0 3", "release 1 3"]);
    for rank in 0..3 {
        w.finalize(rank);
        w.exit(rank, 0);
    }
    w.done(0);
    assert!(!w.finished);
    w.done(1);
    assert!(w.finished);
    assert_eq!(w.code(), 0);
}

#[test]
fn programs_that_never_enter_init_are_fine() {
    let mut w = World::running();
    (0..4).for_each(|rank| w.exit(rank, 0));
    w.done(0);
    w.done(1);
    assert!(w.finished);
    assert_eq!(w.code(), 0);
}

#[test]
fn no_more_connections_than_the_window_are_made_at_once() {
    let mut w = World::begin(Plan { window: 2, ..plan(&[("a", None), ("b", None), ("c", None), ("d", None)], None) });
    assert_eq!(w.did(), ["connect 0", "connect 1"]);
    w.hello(1, 1);
    assert_eq!(w.did(), ["connect 2"]);
    w.hello(0, 1);
    assert_eq!(w.did(), ["connect 3"]);
}

#[test]
fn hosts_that_get_no_rank_are_not_contacted_and_not_part_of_the_job() {
    let mut w = World::begin(plan(&[("a", Some(0)), ("b", None), ("c", None), ("d", Some(1))], Some(2)));
    assert_eq!(w.did(), ["connect 1", "connect 2"]);
    w.hello(1, 4);
    w.hello(2, 4);
    assert_eq!(w.did(), [r#"start 1 as 0 of ["b"] ranks [0, 0]"#, "close 2"]);
}

#[test]
fn without_named_hosts_this_machine_takes_every_rank_and_says_when_they_are_too_many() {
    let mut w = World::begin(Plan { hosts_named: false, ..plan(&[("localhost", None)], Some(3)) });
    w.hello(0, 2);
    assert_eq!(w.did()[1], r#"start 0 as 0 of ["localhost"] ranks [0, 0, 0] oversubscribed"#);
    let mut w = World::begin(Plan { hosts_named: false, ..plan(&[("localhost", None)], None) });
    w.hello(0, 2);
    assert_eq!(w.did()[1], r#"start 0 as 0 of ["localhost"] ranks [0, 0]"#);
}

#[test]
fn more_ranks_than_slots_are_refused_with_the_numbers_of_each_host() {
    // At once and before any connection when everything is known …
    let w = World::begin(plan(&[("a", Some(2)), ("b", Some(1))], Some(4)));
    assert_eq!(w.done, ["finish"]);
    assert_eq!(w.code(), 75);
    assert!(w.message().contains("4 ranks") && w.message().contains("a: 2, b: 1"), "{}", w.message());
    // … and after it otherwise.
    let mut w = World::begin(plan(&[("a", None), ("b", Some(1))], Some(4)));
    w.hello(0, 2);
    w.hello(1, 9);
    assert_eq!(w.code(), 75);
    assert!(w.message().contains("a: 2, b: 1"), "{}", w.message());
    let mut w = World::begin(Plan {
        placement: Request { ranks: Some(2), oversubscribe: true, ..Request::default() },
        ..plan(&[("a", Some(1))], None)
    });
    w.hello(0, 1);
    assert_eq!(w.did()[1], r#"start 0 as 0 of ["a"] ranks [0, 0] oversubscribed"#);
}

#[test]
fn two_names_for_one_machine_are_refused_unless_an_own_command_starts_agents() {
    for allowed in [false, true] {
        let mut w =
            World::begin(Plan { same_machine_allowed: allowed, ..plan(&[("a", Some(2)), ("b", Some(2))], None) });
        for host in 0..2 {
            let hello = FromAgent::Hello { hostname: "x".into(), allowed_cores: 3, identity: "same".into(), pid: 1 };
            w.say(host, hello);
        }
        if allowed {
            // The machine has three cores for four ranks.
            assert!(w.did()[2].ends_with("oversubscribed"));
        } else {
            assert_eq!(w.code(), 65);
            assert!(w.message().contains("a (hosts:a) and b (hosts:b) are the same machine"), "{}", w.message());
        }
    }
}

#[test]
fn a_host_that_does_not_answer_is_named_with_what_it_was_doing() {
    let mut w = World::begin(plan(&[("a", None), ("b", None)], None));
    w.event(Event::Stage(1, "connecting to 10.0.0.2:22".into()));
    w.hello(0, 1);
    w.pass(7 * S);
    assert_eq!(w.code(), 0);
    assert_eq!(w.job.deadline(), Some(w.now + S));
    w.pass(S);
    assert_eq!(w.code(), 69);
    for part in ["host b", "8s", "connecting to 10.0.0.2:22"] {
        assert!(w.message().contains(part), "{}", w.message());
    }
    assert!(w.finished, "{:?}", w.done);
}

#[test]
fn a_link_that_fails_before_hello_gives_its_own_reason() {
    let mut w = World::begin(plan(&[("a", None), ("b", None)], None));
    w.did();
    w.event(Event::Ended(1, Failure::new(ExitCode::NotFound, "host b: no rsrun there")));
    assert_eq!((w.code(), w.message()), (127, "host b: no rsrun there"));
    assert_eq!(w.did(), ["close 0", "finish"]);
}

#[test]
fn the_first_failing_rank_decides_and_everything_is_stopped() {
    let mut w = World::released();
    w.exit(2, 7);
    assert!(w.did().is_empty(), "a more telling reason may still come");
    w.exit(3, 9);
    w.pass(SETTLE);
    assert_eq!(w.did(), ["stop 0", "stop 1"]);
    w.kill(0, 15);
    w.kill(1, 15);
    w.done(0);
    w.done(1);
    assert!(w.finished);
    assert_eq!((w.code(), w.message()), (7, "rank 2 on host b (pid 102) exited with code 7"));
}

#[test]
fn a_killed_rank_is_the_reason_for_those_that_noticed_it_first() {
    let mut w = World::released();
    w.exit(2, 1);
    w.pass(50 * MS);
    w.kill(0, 9);
    assert_eq!(w.did(), ["stop 0", "stop 1"]);
    assert_eq!(w.code(), 137);
    assert!(w.message().contains("rank 0 on host a (pid 100) was killed by SIGKILL"), "{}", w.message());
    // The same for an agent that is lost.
    let mut w = World::released();
    w.exit(2, 1);
    w.ended(0);
    assert_eq!((w.code(), w.message()), (70, "host 0 lost"));
    // But not later than that.
    let mut w = World::released();
    w.exit(2, 1);
    w.pass(SETTLE);
    w.kill(0, 15);
    assert_eq!(w.code(), 1);
}

#[test]
fn when_all_ranks_have_ended_nothing_is_waited_for() {
    let mut w = World::running();
    w.exit(0, 0);
    w.exit(1, 0);
    w.exit(2, 0);
    w.exit(3, 3);
    assert_eq!(w.did(), ["stop 0", "stop 1"]);
    w.done(0);
    w.done(1);
    assert!(w.finished);
    assert_eq!(w.code(), 3);
}

#[test]
fn a_rank_that_left_without_finalizing_failed() {
    let mut w = World::released();
    w.exit(1, 0);
    w.pass(SETTLE);
    assert_eq!(w.code(), 76);
    assert!(w.message().contains("rank 1 on host a"), "{}", w.message());
    // A rank that was killed before is the better reason.
    let mut w = World::released();
    w.exit(1, 0);
    w.kill(3, 11);
    assert_eq!(w.code(), 139);
}

#[test]
fn a_rank_that_never_enters_init_while_others_wait_is_named() {
    for exit_first in [false, true] {
        let mut w = World::running();
        if exit_first {
            w.exit(3, 0);
            assert_eq!(w.code(), 0);
        }
        w.init(0);
        if !exit_first {
            w.exit(3, 0);
        }
        assert_eq!(w.code(), 71);
        assert!(
            w.message().contains("rank 3 on host b") && w.message().contains("rank 0 on host a"),
            "{}",
            w.message()
        );
        assert_eq!(w.did(), ["refuse 0", "refuse 1", "stop 0", "stop 1"]);
    }
}

#[test]
fn ranks_that_never_come_are_listed_when_the_time_is_over() {
    let mut w = World::running();
    w.pass(100 * S);
    assert_eq!(w.code(), 0, "the time counts from the first rank");
    w.init(1);
    w.pass(59 * S);
    assert_eq!(w.code(), 0);
    w.pass(S);
    w.no_report();
    assert_eq!(w.code(), 124);
    assert!(w.message().contains("ranks 0, 2, 3") && w.message().contains("1min"), "{}", w.message());
    // Zero means no limit.
    let mut w = World::running();
    w.job.plan.start_timeout = None;
    w.init(1);
    assert_eq!(w.job.deadline(), None);
}

#[test]
fn disagreement_is_refused_before_anyone_is_released() {
    let mut w = World::running();
    w.init(0);
    w.init(1);
    w.init(2);
    w.init_with(3, vec![("low_latency.size_hint".into(), Value::Bytes(8192))]);
    assert_eq!(w.did(), ["refuse 0", "refuse 1", "stop 0", "stop 1"]);
    assert_eq!(w.code(), 71);
    for part in ["low_latency.size_hint", "rank 3 on host b has 8KiB", "rank 0 on host a has not set it"] {
        assert!(w.message().contains(part), "{}", w.message());
    }
}

#[test]
fn abort_other_versions_and_spawn_failures_have_their_codes() {
    let spawn = |kind| FromAgent::SpawnFailed { rank: 3, reason: "/no/app".into(), kind };
    let cases = [
        (FromAgent::RankAbort { rank: 3, code: 5, message: "bad input".into() }, 5, "bad input"),
        (FromAgent::RankAbort { rank: 3, code: 0, message: "x".into() }, 1, "rank 3 on host b"),
        (FromAgent::RankVersion { rank: 3, protocol: 99, version: "9.9".into() }, 76, "version 9.9 with protocol 99"),
        (spawn(SpawnFailure::NotFound), 127, "host b: rank 3 cannot be started: /no/app"),
        (spawn(SpawnFailure::NotExecutable), 126, "/no/app"),
        (spawn(SpawnFailure::Directory), 73, "/no/app"),
        (spawn(SpawnFailure::Other), 70, "/no/app"),
        (FromAgent::Failed { reason: "no memory".into() }, 70, "host b: no memory"),
    ];
    for (frame, code, text) in cases {
        let mut w = World::running();
        w.say(1, frame);
        assert_eq!(w.code(), code, "{}", w.message());
        assert!(w.message().contains(text), "{}", w.message());
        assert_eq!(w.did(), ["stop 0", "stop 1"]);
    }
}

#[test]
fn an_interrupt_is_legal_in_every_state() {
    // While connecting.
    let mut w = World::begin(Plan { window: 1, ..plan(&[("a", None), ("b", None)], None) });
    w.event(Event::Signal(libc::SIGINT));
    assert_eq!(w.did(), ["connect 0", "close 0", "finish"]);
    assert_eq!(w.code(), 130);
    // While ranks are started, and while some wait in init.
    for waiting in [false, true] {
        let mut w = World::running();
        if waiting {
            w.init(0);
        }
        w.event(Event::Signal(libc::SIGINT));
        assert_eq!(w.did(), ["stop 0 with 2", "stop 1 with 2"], "ranks get the signal itself first");
        assert_eq!(w.code(), 130);
    }
    // While a report is made, and while this process is about to stop.
    let mut w = World::released();
    w.event(Event::Signal(libc::SIGQUIT));
    w.event(Event::Signal(libc::SIGTSTP));
    w.did();
    w.event(Event::Signal(libc::SIGINT));
    assert_eq!(w.did(), ["stop 0 with 2", "stop 1 with 2"]);
    for host in [0, 1] {
        w.say(host, FromAgent::Signalled { count: 2 });
        w.done(host);
    }
    assert!(w.finished && w.done.iter().all(|did| !did.contains("self")), "{:?}", w.done);
    // While running, settling and stopping.
    for settling in [false, true] {
        let mut w = World::released();
        if settling {
            w.exit(0, 1);
        }
        w.event(Event::Signal(libc::SIGTERM));
        assert_eq!(w.did(), ["stop 0", "stop 1"]);
        assert_eq!(w.code(), 143);
        w.event(Event::Signal(libc::SIGINT));
        assert_eq!(w.did(), ["signal 0 9", "signal 1 9"], "the second one kills at once");
        assert_eq!(w.code(), 143, "the first reason counts");
        w.event(Event::Signal(libc::SIGINT));
        assert_eq!(w.did(), ["close 0", "close 1", "finish"], "the third one leaves");
    }
    // When the job already ends for another reason, the first one kills.
    let mut w = World::released();
    w.kill(0, 11);
    w.did();
    w.event(Event::Signal(libc::SIGINT));
    assert_eq!(w.did(), ["signal 0 9", "signal 1 9"]);
    assert_eq!(w.code(), 139);
}

#[test]
fn an_agent_that_never_confirms_is_given_up_and_named() {
    let mut w = World::released();
    w.kill(0, 9);
    w.done(0);
    w.did();
    w.pass(S);
    assert!(w.did().is_empty());
    w.pass(CONFIRM);
    let did = w.did();
    assert!(did[0].starts_with("notice host b did not confirm"), "{did:?}");
    assert_eq!(did[1..], ["close 1", "finish"]);
}

#[test]
fn an_agent_lost_at_any_time_ends_the_job_unless_it_was_done() {
    let mut w = World::released();
    w.ended(1);
    assert_eq!((w.code(), w.message()), (70, "host 1 lost"));
    assert_eq!(w.did(), ["stop 0"]);
    w.done(0);
    assert!(w.finished);
    let mut w = World::running();
    w.exit(0, 0);
    w.exit(1, 0);
    w.done(0);
    w.ended(0);
    assert_eq!(w.code(), 0);
    // Done too early is no success.
    let mut w = World::running();
    w.done(1);
    assert_eq!(w.code(), 70);
    assert!(w.message().contains("ranks 2, 3"), "{}", w.message());
}

#[test]
fn the_time_limit_counts_from_the_beginning() {
    let mut w = World::begin(Plan { timeout: Some(5 * S), ..plan(&[("a", Some(1))], None) });
    w.pass(3 * S);
    w.hello(0, 1);
    w.did();
    w.pass(2 * S);
    assert_eq!(w.did(), ["report 0"]);
    w.no_report();
    assert_eq!(w.code(), 124);
    assert!(w.message().contains("5s"), "{}", w.message());
    let did = w.did();
    assert!(did[0].contains("rank 0 on a (pid 0): not started"), "{did:?}");
    assert_eq!(did[1], "stop 0");
}

#[test]
fn standard_input_goes_to_rank_0_as_fast_as_it_takes_it() {
    let mut w = World::begin(plan(&[("a", Some(2)), ("b", Some(2))], None));
    w.hello(0, 2);
    w.hello(1, 2);
    w.did();
    w.say(1, FromAgent::Spawned { rank: 2, pid: 5, cpus: String::new() });
    w.say(0, FromAgent::Spawned { rank: 0, pid: 5, cpus: String::new() });
    assert!(w.did().is_empty(), "nothing is read unless the rank has room");
    w.say(0, FromAgent::StdinTaken { rank: 0, bytes: 100 });
    assert_eq!(w.did(), ["read 100"]);
    w.event(Event::Stdin(vec![1; 10]));
    w.event(Event::Stdin(vec![]));
    assert_eq!(w.did(), ["stdin 0 0 10", "stdin 0 0 0"]);
    w.say(0, FromAgent::StdinTaken { rank: 0, bytes: 10 });
    assert_eq!(w.did(), ["read 10"]);
    w.exit(0, 0);
    w.event(Event::Stdin(vec![1; 10]));
    assert!(w.did().is_empty());
}

#[test]
fn a_signal_that_reaches_nobody_is_told() {
    let mut w = World::released();
    w.event(Event::Signal(libc::SIGUSR1));
    assert_eq!(w.did(), ["signal 0 10", "signal 1 10"]);
    w.say(0, FromAgent::Signalled { count: 0 });
    w.say(1, FromAgent::Signalled { count: 2 });
    assert!(w.did().is_empty());
    w.event(Event::Signal(libc::SIGUSR1));
    w.say(0, FromAgent::Signalled { count: 0 });
    w.say(1, FromAgent::Signalled { count: 0 });
    assert_eq!(w.did()[2], "notice SIGUSR1 reached no process");
}

#[test]
fn a_stray_is_told_once_with_the_value_that_counts() {
    let mut w = World::running();
    let stray = || FromAgent::Stray { what: "RSRUN_EAGER_LIMIT=1 in the environment".into() };
    w.say(1, stray());
    w.say(1, stray());
    assert_eq!(
        w.did(),
        [
            "notice host b: ignored RSRUN_EAGER_LIMIT=1 in the environment (the launcher's snapshot decides: eager.limit = \
          8KiB from default)"
        ]
    );
}

#[test]
fn an_agent_may_speak_only_of_its_own_ranks() {
    for rank in [0, 99] {
        let mut w = World::running();
        w.say(1, FromAgent::Exited { rank, exit: Exit::Code(0) });
        assert_eq!(w.code(), 70);
        assert!(w.message().contains("host b"), "{}", w.message());
    }
}

#[test]
fn output_that_nobody_reads_ends_the_job() {
    let mut w = World::released();
    w.event(Event::OutputBroken(rustix::io::Errno::PIPE));
    assert_eq!(w.code(), 141);
    assert_eq!(w.did(), ["stop 0", "stop 1"]);
}

#[test]
fn output_that_cannot_be_written_after_the_end_is_no_success_and_hides_no_failure() {
    let broken = || Event::OutputBroken(rustix::io::Errno::NOSPC);
    for (code, event, outcome) in
        [(0, broken(), 70), (0, Event::Signal(libc::SIGTERM), 143), (3, broken(), 3), (3, Event::Signal(2), 3)]
    {
        let mut w = World::released();
        for rank in 0..w.job.ranks.len() {
            w.finalize(rank);
            w.exit(rank, code);
        }
        (0..2).for_each(|host| w.done(host));
        w.did();
        w.event(event);
        assert_eq!((w.code(), w.did()), (outcome, Vec::<String>::new()));
    }
}

#[test]
fn output_that_cannot_be_written_ends_the_job_and_says_why() {
    let mut w = World::released();
    w.event(Event::OutputBroken(rustix::io::Errno::NOSPC));
    assert_eq!(w.code(), 70);
    assert!(w.message().contains("No space left"), "{}", w.message());
    assert_eq!(w.did(), ["stop 0", "stop 1"]);
}

#[test]
fn what_an_agent_and_its_guard_left_is_ended_by_another_agent() {
    let mut w = World::running();
    w.event(Event::Unguarded(1));
    w.ended(1);
    assert_eq!(w.did(), ["stop 0", "connect 1"]);
    w.done(0);
    assert!(!w.finished);
    w.hello(1, 2);
    assert_eq!(w.did(), ["sweep 1 job"]);
    w.done(1);
    assert!(w.finished);
    assert_eq!((w.code(), w.message()), (70, "host 1 lost"));
    assert!(w.job.deadline().is_none());
}

#[test]
fn a_host_that_cannot_be_swept_is_named_and_waited_for_no_longer_than_for_an_agent() {
    for late in [true, false] {
        let mut w = World::running();
        w.event(Event::Unguarded(1));
        w.ended(1);
        w.done(0);
        w.did();
        w.event(Event::Stage(1, "connecting to it".into()));
        if late {
            w.pass(S + CONFIRM);
        } else {
            w.ended(1);
        }
        assert!(w.finished);
        let told = w.did();
        for part in ["host b", "SPMD_JOB=job", if late { "connecting to it" } else { "host 1 lost" }] {
            assert!(told[0].contains(part), "{told:?}");
        }
        assert_eq!(w.message(), "host 1 lost");
    }
}

#[test]
fn a_job_that_goes_on_sweeps_after_a_lost_agent_and_so_does_none_that_is_to_leave_at_once() {
    let mut w = World::begin(Plan { keep_going: true, ..plan(&[("a", Some(2)), ("b", Some(2))], None) });
    w.hello(0, 2);
    w.hello(1, 2);
    (0..4).for_each(|rank| w.init(rank));
    w.did();
    w.event(Event::Unguarded(1));
    w.ended(1);
    assert!(w.did().contains(&"connect 1".to_string()));
    w.hello(1, 2);
    w.done(1);
    assert!(!w.finished, "the others go on");
    let mut w = World::running();
    (0..3).for_each(|_| w.event(Event::Signal(libc::SIGINT)));
    assert!(w.finished);
}

/// Random events in random order: whatever happens, a job that is interrupted and given time ends, once, and its
/// outcome is never lost.
mod any_order {
    use super::*;
    use proptest::prelude::*;

    fn step() -> impl Strategy<Value = (u8, usize, i32)> {
        (0..22_u8, 0..4_usize, 0..3_i32)
    }

    proptest! {
        #[test]
        fn a_job_always_ends_and_only_once(
            steps in proptest::collection::vec(step(), 0..60),
            keep_going in any::<bool>(),
            chain in any::<bool>()
        ) {
            // The second host directly, or through the first one.
            let tree = chain.then(|| Tree { radix: 1, local: vec![false; 2] });
            let mut w = World::begin(Plan { keep_going, tree, ..plan(&[("a", Some(2)), ("b", None)], None) });
            let mut failed = false;
            for (kind, n, code) in steps {
                let host = n % 2;
                match kind {
                    0 | 1 => w.hello(host, 2),
                    2 => w.init(n),
                    3 => w.finalize(n),
                    4 => w.exit(n, code),
                    5 => w.kill(n, 9),
                    6 => w.done(host),
                    7 => w.ended(host),
                    8 => w.pass(100 * MS),
                    9 => w.event(Event::Signal(libc::SIGINT)),
                    10 => w.event(Event::Stdin(vec![1])),
                    13 => w.event(Event::Unguarded(host)),
                    14 => w.event(Event::Signal(libc::SIGTSTP)),
                    15 => w.event(Event::Signal(libc::SIGCONT)),
                    16 => w.event(Event::Signal(libc::SIGQUIT)),
                    17 => w.say(host, FromAgent::Signalled { count: 1 }),
                    18 => w.say(host, FromAgent::StdinTaken { rank: n as u32, bytes: 5 }),
                    19 => w.say(host, FromAgent::Report { ranks: vec![(n as u32, spmd::memory::Activity::Computing)] }),
                    11 => w.say(host, FromAgent::Spawned { rank: n as u32, pid: 5, cpus: String::new() }),
                    12 => w.event(Event::Signal(libc::SIGUSR2)),
                    _ => w.pass(10 * S),
                }
                prop_assert!(!failed || w.code() != 0, "a failure was forgotten");
                failed = w.code() != 0;
                if w.finished {
                    prop_assert!(w.job.deadline().is_none());
                }
            }
            w.event(Event::Signal(libc::SIGCONT));
            w.event(Event::Signal(libc::SIGTERM));
            w.pass(3 * S);
            prop_assert!(w.finished, "{:?}", w.job);
        }
    }
}
