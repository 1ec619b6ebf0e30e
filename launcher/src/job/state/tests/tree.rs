//! Hosts that are reached through each other.

use super::*;
use crate::job::state::tree::parents;

/// Hosts with one slot each.
fn hosts(names: &[&'static str], radix: usize) -> Plan {
    let list: Vec<(&str, Option<u32>)> = names.iter().map(|name| (*name, Some(1))).collect();
    Plan { tree: Some(Tree { radix, local: vec![false; names.len()] }), ..plan(&list, None) }
}

/// Seven hosts in a binary tree that have all said hello.
fn started() -> World {
    let mut w = World::begin(hosts(&["a", "b", "c", "d", "e", "f", "g"], 2));
    (0..7).for_each(|host| w.hello(host, 1));
    w.did();
    w
}

impl World {
    fn notices(&self) -> Vec<&str> {
        self.done.iter().filter(|text| text.starts_with("notice")).map(String::as_str).collect()
    }
}

#[test]
fn the_launcher_and_every_agent_connect_to_as_many_hosts_as_the_radix() {
    for (count, radix) in [(1, 2), (2, 2), (7, 2), (1000, 32), (5, 1)] {
        let parents: Vec<_> = parents(count, radix).collect();
        for at in 0..count {
            assert!(parents.iter().filter(|parent| **parent == Some(at)).count() <= radix);
            assert!(parents[at].is_none_or(|parent| parent < at), "a parent comes first");
        }
        assert_eq!(parents.iter().filter(|parent| parent.is_none()).count(), radix.min(count));
    }
}

#[test]
fn hosts_are_reached_through_earlier_ones_as_soon_as_those_are_there() {
    let mut w = World::begin(hosts(&["a", "b", "c", "d", "e", "f", "g"], 2));
    assert_eq!(w.did(), ["connect 0", "connect 1"]);
    w.hello(1, 1);
    assert_eq!(w.did(), ["reach [4, 5] through 1"]);
    w.hello(0, 1);
    assert_eq!(w.did(), ["reach [2, 3] through 0"]);
    w.hello(2, 1);
    assert_eq!(w.did(), ["reach [6] through 2"]);
    for host in [6, 5, 4] {
        w.hello(host, 1);
        assert!(w.did().is_empty());
    }
    w.hello(3, 1);
    assert_eq!(w.did().len(), 7, "every host is told to start");
    assert_eq!([0, 1, 3, 4, 6].map(|host| w.job.root(host)), [0, 1, 0, 1, 0]);
}

#[test]
fn the_window_counts_the_launchers_own_connections_only() {
    let mut w = World::begin(Plan { window: 1, ..hosts(&["a", "b", "c", "d", "e"], 2) });
    assert_eq!(w.did(), ["connect 0"]);
    w.hello(0, 1);
    assert_eq!(w.did(), ["connect 1", "reach [2, 3] through 0"]);
}

#[test]
fn a_host_of_the_launchers_own_machine_is_neither_reached_through_others_nor_are_they_through_it() {
    let mut plan = hosts(&["a", "localhost", "b", "c"], 1);
    plan.tree = Some(Tree { radix: 1, local: vec![false, true, false, false] });
    let mut w = World::begin(plan);
    assert_eq!(w.did(), ["connect 0", "connect 1"]);
    w.hello(0, 1);
    assert_eq!(w.did(), ["reach [2] through 0"]);
}

#[test]
fn what_cannot_be_reached_through_a_host_is_connected_to_directly_and_that_is_said_once() {
    let mut w = World::begin(hosts(&["a", "b", "c", "d", "e"], 2));
    w.hello(0, 1);
    w.hello(1, 1);
    w.did();
    w.event(Event::Ended(2, Failure::new(ExitCode::Unreachable, "host c: permission denied")));
    w.event(Event::Ended(4, Failure::new(ExitCode::NotFound, "host e: no rsrun there")));
    let notices = w.notices();
    assert_eq!(notices.len(), 1);
    for part in ["host a: host c: permission denied", "itself", "launch.tree"] {
        assert!(notices[0].contains(part), "{notices:?}");
    }
    assert!(w.done.contains(&"connect 2".to_string()) && w.done.contains(&"connect 4".to_string()), "{:?}", w.done);
    assert!(!w.job.is_through(2) && w.job.is_through(3));
    // There is no third way.
    w.event(Event::Ended(2, Failure::new(ExitCode::Unreachable, "host c: permission denied")));
    assert_eq!((w.code(), w.message()), (69, "host c: permission denied"));
}

#[test]
fn hosts_behind_one_that_had_to_be_reached_directly_are_still_reached_through_it() {
    let mut w = World::begin(hosts(&["a", "b", "c"], 1));
    w.hello(0, 1);
    w.ended(1);
    w.did();
    w.hello(1, 1);
    assert_eq!(w.did(), ["reach [2] through 1"]);
}

#[test]
fn a_host_that_does_not_answer_through_another_is_tried_directly_with_the_whole_time() {
    let mut w = World::begin(hosts(&["a", "b"], 1));
    w.hello(0, 1);
    w.did();
    w.pass(8 * S);
    assert_eq!(w.done[0], "leave 1 through 0");
    assert!(w.notices()[0].contains("host b did not answer within 8s"), "{:?}", w.done);
    assert_eq!(w.done[2], "connect 1");
    w.pass(7 * S);
    assert_eq!(w.code(), 0);
    w.pass(S);
    assert_eq!(w.code(), 69);
    assert!(w.finished);
}

#[test]
fn an_agent_that_dies_while_others_are_reached_through_it_is_started_again_without_them() {
    let mut w = World::begin(hosts(&["a", "b", "c", "d"], 1));
    (0..3).for_each(|host| w.hello(host, 1));
    w.did();
    w.ended(0);
    assert_eq!(w.notices().len(), 1);
    assert_eq!(w.done[1..], ["connect 0", "connect 1", "connect 2", "connect 3"]);
    (0..4).for_each(|host| w.hello(host, 1));
    assert_eq!(w.did().iter().filter(|text| text.starts_with("start")).count(), 4);
    // Alone it has no other way.
    let mut w = World::begin(hosts(&["a", "b"], 1));
    w.hello(0, 1);
    w.ended(0);
    w.hello(0, 1);
    w.ended(0);
    assert_eq!(w.code(), 70);
}

#[test]
fn an_agent_that_is_lost_takes_those_below_along_and_is_the_one_that_is_named() {
    let mut w = started();
    w.ended(0);
    assert_eq!((w.code(), w.message()), (70, "host 0 lost"));
    // Hosts 2, 3 and 6 are gone with it.
    assert_eq!(w.did(), ["stop 1", "stop 2", "stop 3", "stop 4", "stop 5", "stop 6"]);
    for host in [1, 4, 5] {
        assert!(!w.finished);
        w.done(host);
    }
    assert!(w.finished);
}

#[test]
fn ranks_behind_a_lost_agent_are_lost_for_those_that_go_on() {
    let mut w = World::begin(Plan { keep_going: true, ..hosts(&["a", "b", "c"], 1) });
    (0..3).for_each(|host| w.hello(host, 1));
    for rank in 0..3 {
        let hello = Hello { pid: 100, snapshot: [7; 32], program: vec![], addresses: vec![] };
        w.say(rank, FromAgent::RankHello { rank: rank as u32, hello });
    }
    w.did();
    w.ended(1);
    let lost: Vec<_> = w.did().into_iter().filter(|text| text.starts_with("lost 0")).collect();
    assert_eq!(lost, ["lost 0 1", "lost 0 2"]);
    w.say(0, FromAgent::RankFinalized { rank: 0 });
    w.say(0, FromAgent::Exited { rank: 0, exit: Exit::Code(0) });
    w.done(0);
    assert!(w.finished);
    assert_eq!(w.code(), 70);
}

#[test]
fn an_agent_that_has_ended_its_own_ranks_is_needed_by_those_below() {
    let mut w = started();
    w.exit(0, 0);
    w.done(0);
    assert!(!w.did().iter().any(|text| text.starts_with("close")));
    w.ended(0);
    assert_eq!(w.code(), 70);
    assert!(w.message().contains("host c was reached through host a"), "{}", w.message());
}

#[test]
fn an_agent_without_ranks_stays_as_long_as_ranks_are_reached_through_it() {
    // Slots are found out: b has none left for a rank.
    let mut plan = hosts(&["a", "b", "c"], 1);
    plan.placement = Request { ranks: Some(2), map: placement::MapBy::Node, ..Request::default() };
    plan.hosts[1].slots = None;
    plan.apps[0].ranks = Some(2);
    let mut w = World::begin(plan);
    w.hello(0, 1);
    w.hello(1, 0);
    w.hello(2, 1);
    let did = w.did();
    assert!(did.iter().any(|text| text.starts_with("start 2")), "{did:?}");
    assert!(!did.iter().any(|text| text.starts_with("leave 1")), "{did:?}");
    for rank in [0, 2] {
        w.done(rank);
    }
    assert!(w.finished, "{:?}", w.done);
    assert!(w.did().contains(&"leave 1 through 0".to_string()));
}

#[test]
fn an_interrupt_while_connecting_ends_the_job_at_once() {
    let mut w = World::begin(hosts(&["a", "b", "c", "d"], 1));
    w.hello(0, 1);
    w.hello(1, 1);
    w.did();
    w.event(Event::Signal(libc::SIGINT));
    assert!(w.finished, "{:?}", w.done);
    assert_eq!(w.code(), 130);
    assert!(w.done.contains(&"close 0".to_string()) && w.done.contains(&"leave 2 through 1".to_string()));
}
