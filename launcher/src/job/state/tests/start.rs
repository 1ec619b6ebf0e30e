//! From the first connection to the release of all ranks from `World::init`.

use super::*;
use spmd::config::{self, CommandLineSetting, Layers};

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
fn levels_of_groups_that_the_hostfile_does_not_have_end_the_job_before_ranks_start() {
    let set =
        |key: &str, value: &str| CommandLineSetting { option: "--set".into(), key: key.into(), value: value.into() };
    let layers = Layers { command_line: vec![set("collectives.groups", "host,group")], ..Layers::default() };
    for racks in [[None, None], [Some("r1"), Some("r2")]] {
        let mut plan = plan(&[("a", Some(2)), ("b", Some(2))], None);
        plan.start.snapshot = config::resolve(&layers).unwrap();
        plan.hosts.iter_mut().zip(racks).for_each(|(host, rack)| host.group = rack.map(String::from));
        let mut w = World::begin(plan);
        w.hello(0, 2);
        w.hello(1, 2);
        if racks[0].is_some() {
            assert!(w.did().iter().any(|action| action.starts_with("start 0")), "{:?}", w.did());
        } else {
            assert_eq!(w.code(), 65);
            assert!(w.message().contains("collectives.groups = host,group: ") && w.message().contains("group=NAME"));
        }
    }
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
