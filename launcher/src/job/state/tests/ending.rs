//! Failures, interrupts and lost agents: how a job ends, and with which code.

use super::*;

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
fn an_agent_may_speak_only_of_its_own_ranks() {
    for rank in [0, 99] {
        let mut w = World::running();
        w.say(1, FromAgent::Exited { rank, exit: Exit::Code(0) });
        assert_eq!(w.code(), 70);
        assert!(w.message().contains("host b"), "{}", w.message());
    }
}
