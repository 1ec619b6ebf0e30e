//! Hosts whose agent was killed together with its guard.

use super::*;

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
fn a_job_that_goes_on_without_a_host_sweeps_it_and_one_that_is_to_leave_at_once_waits_for_no_sweep() {
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
    w.event(Event::Unguarded(1));
    w.ended(1);
    (0..3).for_each(|_| w.event(Event::Signal(libc::SIGINT)));
    assert!(w.finished);
}
