//! Input, signals, reports and jobs that go on without a rank.

use super::*;
use spmd::memory::{Activity, Operation};

#[test]
fn input_for_all_is_read_as_fast_as_the_slowest_takes_it() {
    let mut job = plan(&[("a", Some(2)), ("b", Some(2))], None);
    job.start.stdin = StdinTarget::All;
    let mut w = World::begin(job);
    w.hello(0, 2);
    w.hello(1, 2);
    w.did();
    let taken = |rank: u32, bytes| FromAgent::StdinTaken { rank, bytes };
    for rank in 0..3 {
        w.say(rank / 2, taken(rank as u32, 100));
    }
    assert!(w.did().is_empty(), "the last rank has no room yet");
    w.say(1, taken(3, 40));
    assert_eq!(w.did(), ["read 40"]);
    w.event(Event::Stdin(vec![0; 40]));
    assert_eq!(w.did(), ["stdin 0 all 40", "stdin 1 all 40"]);
    // One that reads no more holds nobody up.
    w.say(1, taken(3, 0));
    assert_eq!(w.did(), ["read 60"]);
    w.exit(0, 0);
    w.say(0, taken(1, 10));
    w.say(1, taken(2, 10));
    assert_eq!(w.did(), ["read 10"]);
}

#[test]
fn input_for_nobody_or_for_a_rank_that_does_not_exist_is_not_read() {
    let mut job = plan(&[("a", Some(2)), ("b", Some(2))], None);
    job.start.stdin = StdinTarget::Rank(4);
    let mut w = World::begin(job.clone());
    w.hello(0, 2);
    w.hello(1, 2);
    assert_eq!(w.code(), 64);
    assert!(w.message().contains("--stdin 4") && w.message().contains("the last one is 3"), "{}", w.message());
    job.start.stdin = StdinTarget::None;
    let mut w = World::begin(job);
    w.hello(0, 2);
    w.hello(1, 2);
    w.did();
    w.say(0, FromAgent::StdinTaken { rank: 0, bytes: 10 });
    w.event(Event::Stdin(vec![1]));
    assert!(w.did().is_empty());
}

#[test]
fn a_rank_s_prompt_is_shown_when_somebody_may_wait_for_it() {
    let prompts = |job: Plan| {
        let mut job = Job::new(job, Instant::now());
        let now = Instant::now();
        job.begin(now);
        let hello = FromAgent::Hello { hostname: "x".into(), allowed_cores: 2, identity: "m".into(), pid: 1 };
        let actions = job.handle(now, Event::Frame(0, hello));
        actions.into_iter().find_map(|action| match action {
            Action::Send(_, ToAgent::Start(start)) => Some(start.prompts),
            _ => None,
        })
    };
    assert_eq!(prompts(plan(&[("a", Some(1))], None)), Some(Some(0)));
    assert_eq!(prompts(plan(&[("a", Some(2))], None)), Some(None));
    assert_eq!(prompts(Plan { interactive: true, ..plan(&[("a", Some(2))], None) }), Some(Some(0)));
}

#[test]
fn counts_of_signals_that_overlap_are_not_mixed() {
    let mut w = World::released();
    w.event(Event::Signal(libc::SIGUSR1));
    w.event(Event::Signal(libc::SIGUSR2));
    w.did();
    w.say(0, FromAgent::Signalled { count: 0 });
    w.say(0, FromAgent::Signalled { count: 2 });
    w.say(1, FromAgent::Signalled { count: 0 });
    assert_eq!(w.did(), ["notice SIGUSR1 reached no process"]);
    w.say(1, FromAgent::Signalled { count: 0 });
    assert!(w.did().is_empty(), "SIGUSR2 reached two");
    // Before any rank runs, and with a host that is gone.
    let mut w = World::begin(plan(&[("a", None)], None));
    w.event(Event::Signal(libc::SIGUSR1));
    assert_eq!(w.did()[1], "notice SIGUSR1 reached no process: no rank runs yet");
    let mut w = World::released();
    w.job.plan.keep_going = true;
    w.event(Event::Signal(libc::SIGUSR1));
    w.ended(1);
    w.did();
    w.say(0, FromAgent::Signalled { count: 0 });
    w.say(0, FromAgent::Signalled { count: 0 });
    assert!(w.did().len() <= 1);
}

#[test]
fn the_stop_key_stops_ranks_then_the_launcher_and_its_clock() {
    let mut w = World::begin(Plan { timeout: Some(5 * S), ..plan(&[("a", Some(2))], None) });
    w.hello(0, 2);
    w.did();
    w.pass(2 * S);
    w.event(Event::Signal(libc::SIGTSTP));
    assert_eq!(w.did(), ["signal 0 20"]);
    w.say(0, FromAgent::Signalled { count: 2 });
    assert_eq!(w.did(), ["stop self"]);
    w.pass(100 * S);
    assert_eq!(w.code(), 0, "time stands still");
    w.event(Event::Signal(libc::SIGCONT));
    assert_eq!(w.did(), ["signal 0 18"]);
    w.pass(2 * S);
    assert_eq!(w.code(), 0);
    w.pass(S);
    w.no_report();
    assert_eq!(w.code(), 124);
    // An agent that does not answer keeps nobody from the terminal.
    let mut w = World::released();
    w.event(Event::Signal(libc::SIGTSTP));
    w.did();
    assert_eq!(w.job.deadline(), Some(w.now + 500 * MS));
    w.pass(500 * MS);
    assert_eq!(w.did(), ["stop self"]);
    // Nor does a job without ranks.
    let mut w = World::begin(plan(&[("a", None)], None));
    w.event(Event::Signal(libc::SIGTSTP));
    assert_eq!(w.did()[1], "stop self");
}

#[test]
fn the_first_quit_shows_where_ranks_are_and_a_second_one_is_passed_on() {
    let mut w = World::running();
    w.init(0);
    w.exit(1, 3);
    w.job.outcome = None;
    w.job.phase = Phase::Running;
    w.did();
    w.event(Event::Signal(libc::SIGQUIT));
    assert_eq!(w.did(), ["report 0", "report 1"]);
    w.say(0, FromAgent::Report { ranks: vec![(0, Activity::Init)] });
    assert!(w.did().is_empty());
    let all_reduce = Activity::Collective { operation: Operation::AllReduce, number: 17 };
    w.say(1, FromAgent::Report { ranks: vec![(2, all_reduce), (3, all_reduce)] });
    let did = w.did();
    for part in [
        "rank 0 on a (pid 100): in World::init\n",
        "rank 1 on a (pid 101): gone, exited with code 3\n",
        "ranks 2-3: in all_reduce number 17\n",
    ] {
        assert!(did[0].starts_with("show state of job") && did[0].contains(part), "{did:?}");
    }
    w.pass(S);
    w.event(Event::Signal(libc::SIGQUIT));
    assert_eq!(w.did(), ["signal 0 3", "signal 1 3"]);
    // A host that is still being connected to is named with what it is doing.
    let mut w = World::begin(plan(&[("a", None)], None));
    w.event(Event::Stage(0, "connecting to 10.0.0.2:22".into()));
    w.did();
    w.event(Event::Signal(libc::SIGQUIT));
    assert!(w.did()[0].contains("host a: connecting to 10.0.0.2:22"));
}

#[test]
fn where_ranks_are_can_be_read_by_programs() {
    let mut plan = plan(&[("a", Some(2)), ("b", None)], Some(2));
    plan.shown.format = crate::report::Format::Json;
    let mut w = World::begin(plan);
    w.hello(0, 2);
    w.did();
    w.event(Event::Signal(libc::SIGQUIT));
    w.say(0, FromAgent::Report { ranks: vec![] });
    let did = w.did();
    let shown = did.iter().find_map(|text| text.strip_prefix("show ")).unwrap();
    let state: serde_json::Value = serde_json::from_str(shown).unwrap();
    assert_eq!(state["state"]["ranks"][1]["place"], "not started");
    assert_eq!(state["state"]["ranks"][1]["host"], "a");
}

#[test]
fn a_job_may_go_on_without_a_rank_and_its_first_failure_still_decides() {
    let mut w = World::released();
    w.job.plan.keep_going = true;
    w.exit(2, 7);
    let did = w.did();
    assert_eq!(did[0], "notice rank 2 on host b (pid 102) exited with code 7; the other ranks go on");
    assert_eq!(did[1..], ["lost 0 2", "lost 1 2"]);
    w.kill(3, 9);
    w.pass(10 * S);
    for rank in 0..2 {
        w.finalize(rank);
        w.exit(rank, 0);
    }
    w.done(0);
    w.done(1);
    assert!(w.finished);
    assert_eq!(w.code(), 7);
}

#[test]
fn a_job_that_goes_on_survives_a_host_but_not_an_abort_or_a_rank_that_never_comes() {
    let mut w = World::released();
    w.job.plan.keep_going = true;
    w.ended(1);
    let did = w.did();
    assert_eq!(did.len(), 4, "{did:?}");
    assert!(did[0].contains("rank 2 on host b (pid 102) is lost: host 1 lost"), "{did:?}");
    w.finalize(0);
    w.say(0, FromAgent::RankAbort { rank: 1, code: 5, message: "enough".into() });
    assert_eq!(w.did(), ["stop 0"]);
    assert_eq!(w.code(), 70);
    let mut w = World::running();
    w.job.plan.keep_going = true;
    w.init(0);
    w.did();
    w.exit(3, 4);
    assert_eq!(w.did()[1..], ["refuse 0", "refuse 1", "stop 0", "stop 1"]);
    assert_eq!(w.code(), 4);
}

#[test]
fn ranks_that_still_run_are_told_of_those_that_have_left_and_nobody_when_all_leave_together() {
    let mut w = World::released();
    w.finalize(0);
    w.finalize(2);
    assert_eq!(w.did(), [""; 0]);
    assert_eq!(w.job.deadline(), Some(w.now + 250 * MS));
    w.pass(250 * MS);
    assert_eq!(w.did(), ["finished 0 [0, 2]", "finished 1 [0, 2]"]);
    w.finalize(1);
    w.exit(0, 0);
    w.exit(1, 0);
    w.pass(S);
    assert_eq!(w.did(), ["finished 1 [1]"], "on host a nobody runs any more");
    w.finalize(3);
    for rank in [2, 3] {
        w.exit(rank, 0);
    }
    w.pass(S);
    assert_eq!(w.did(), [""; 0]);

    let mut w = World::released();
    (0..4).for_each(|rank| w.finalize(rank));
    w.pass(S);
    assert_eq!(w.did(), [""; 0]);
}
