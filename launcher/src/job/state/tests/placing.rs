//! Hosts that are asked what they look like, plans that are shown, and kernels that see things differently.

use super::*;
use crate::placement::{BindTo, MapBy};
use crate::report::{self, Topic};
use spmd::bootstrap::node::{Core, Domain, Location, Nic, Thread};

/// So many cores in one domain.
fn node(cores: u32) -> Box<Node> {
    let thread = |os| Thread { os, allowed: true };
    let core = |os| Core { package: 0, domain: 0, cache: None, efficiency: 0, threads: vec![thread(os)] };
    Box::new(Node {
        packages: 1,
        domains: vec![Domain { os: 0, bytes: 0, package: 0 }],
        cores: (0..cores).map(core).collect(),
        ..Node::default()
    })
}

fn looking(hosts: &[(&str, Option<u32>)], ranks: Option<u32>) -> Plan {
    Plan { detail: Some(Detail::Fabric), ..plan(hosts, ranks) }
}

/// The processors that a host's agent was told to bind its ranks to.
fn bound(actions: &[Action], host: usize) -> Vec<Vec<u32>> {
    let start = actions.iter().find_map(|action| match action {
        Action::Send(at, ToAgent::Start(start)) if at[..] == [host] => Some(start),
        _ => None,
    });
    start.unwrap().placements.iter().map(|placement| placement.cpus.clone()).collect()
}

#[test]
fn a_job_starts_when_every_host_has_said_what_it_looks_like() {
    let mut w = World::begin(looking(&[("a", None), ("b", None)], None));
    w.did();
    w.hello(0, 2);
    w.hello(1, 3);
    assert_eq!(w.did(), ["describe 0 Fabric", "describe 1 Fabric"]);
    w.say(0, FromAgent::Node(Ok(node(2))));
    assert!(w.did().is_empty());
    let actions = w.job.handle(w.now, Event::Frame(1, FromAgent::Node(Ok(node(3)))));
    assert_eq!(bound(&actions, 0), [[0], [1]]);
    assert_eq!(bound(&actions, 1), [[0], [1], [2]]);
}

#[test]
fn every_agent_is_told_the_network_devices_of_all_ranks() {
    let with_nic = |cores: u32, name: &str| {
        let location = Location { domains: vec![0], ..Location::default() };
        let nic = Nic { name: name.into(), interfaces: vec![], rdma: true, active: true, location };
        Box::new(Node { nics: vec![nic], devices_read: true, ..*node(cores) })
    };
    let mut w = World::begin(looking(&[("a", None), ("b", None), ("c", None)], None));
    (0..3).for_each(|host| w.hello(host, 1));
    w.say(0, FromAgent::Node(Ok(with_nic(1, "mlx5_0"))));
    w.say(1, FromAgent::Node(Ok(node(1))));
    let actions = w.job.handle(w.now, Event::Frame(2, FromAgent::Node(Ok(with_nic(1, "mlx5_1")))));
    let starts: Vec<_> = actions
        .iter()
        .filter_map(|action| match action {
            Action::Send(_, ToAgent::Start(start)) => Some(start),
            _ => None,
        })
        .collect();
    assert_eq!(starts.len(), 3);
    for start in starts {
        let names = [0, 1, 2].map(|rank| start.devices.get(rank).map(|device| (&device.name[..], device.far)));
        assert_eq!(names, [Some(("mlx5_0", 0)), None, Some(("mlx5_1", 0))]);
    }
}

#[test]
fn a_host_that_cannot_look_runs_unbound_ranks_and_one_that_never_answers_is_given_up() {
    let mut w = World::begin(looking(&[("a", None)], None));
    w.hello(0, 2);
    w.did();
    let actions = w.job.handle(w.now, Event::Frame(0, FromAgent::Node(Err("hwloc: broken".into()))));
    assert_eq!(bound(&actions, 0), [[], []] as [[u32; 0]; 2]);
    assert!(
        actions.iter().any(|a| matches!(a, Action::Notice(text) if text.contains("host a") && text.contains("broken")))
    );
    let mut w = World::begin(looking(&[("a", None)], None));
    w.hello(0, 2);
    w.pass(9 * S);
    assert_eq!(w.code(), 69);
    assert!(w.message().contains("reading its topology"), "{}", w.message());
}

#[test]
fn a_rank_that_the_kernel_runs_elsewhere_is_named_once() {
    let mut w = World::begin(looking(&[("a", None)], None));
    w.hello(0, 2);
    w.say(0, FromAgent::Node(Ok(node(2))));
    w.did();
    let spawned = |rank, cpus: &str| FromAgent::Spawned { rank, pid: 9, cpus: cpus.to_string() };
    w.say(0, spawned(0, "0"));
    w.say(0, spawned(1, "0-1"));
    let notices: Vec<String> = w.did().into_iter().filter(|line| line.starts_with("notice")).collect();
    assert_eq!(
        notices,
        ["notice rank 1 on host a was to run on hardware threads 1, but the kernel lets it run on 0-1"]
    );
}

#[test]
fn a_plan_that_is_only_shown_starts_nothing_and_contacts_only_hosts_without_a_topology() {
    let shown = |ending| Plan {
        ending,
        topologies: vec![Some(*node(4)), None],
        shown: report::Options { topics: vec![Topic::Map], ..report::Options::default() },
        ..looking(&[("a", None), ("b", None)], Some(5))
    };
    let mut w = World::begin(shown(Ending::Plan));
    assert_eq!(w.did(), ["connect 1"]);
    w.hello(1, 2);
    w.say(1, FromAgent::Node(Ok(node(2))));
    w.event(Event::Ended(1, Failure::new(ExitCode::Internal, "closed")));
    let did = w.did();
    assert!(did.iter().all(|line| !line.starts_with("start")), "{did:?}");
    assert!(did.iter().any(|line| line.contains("ranks 0-3") && line.contains("ranks 4")), "{did:?}");
    assert!(w.finished && w.code() == 0);
    // Too many ranks fail as they would when the job ran.
    let mut w =
        World::begin(Plan { placement: Request { ranks: Some(7), ..Request::default() }, ..shown(Ending::Plan) });
    w.hello(1, 2);
    w.say(1, FromAgent::Node(Ok(node(2))));
    assert_eq!(w.code(), 75);
}

#[test]
fn every_host_is_contacted_when_ranks_go_to_all() {
    let hosts = &[("a", Some(4)), ("b", Some(4))];
    let map = |map| Plan { placement: Request { ranks: Some(2), map, ..Request::default() }, ..plan(hosts, None) };
    assert_eq!(World::begin(map(MapBy::Spread)).did(), ["connect 0"]);
    assert_eq!(World::begin(map(MapBy::Node)).did(), ["connect 0", "connect 1"]);
    let unbound = Request { bind: Some(BindTo::None), ..Request::default() };
    assert!(!unbound.needs_topology() && Request::default().needs_topology());
}
