//! Several networks of which some lead nowhere, and networks that fall silent.

use crate::Test;
use crate::cluster::{Cluster, LIMIT};
use spmd_lab::netns::Host;
use spmd_lab::programs::Running;
use std::time::{Duration, Instant};

pub(crate) const TESTS: &[Test] = &[
    ("ranks find the network that leads to the other host", dead_bridges),
    ("a network that leads nowhere is named when it is the only one allowed", only_a_dead_bridge),
    ("a silent host is found within the heartbeat and named", silent_host),
];

/// A bridge without anything behind it on every host; removed when dropped.
struct DeadBridges {
    hosts: Vec<Host>,
}

impl DeadBridges {
    /// The address of each host's bridge, by the host's number from 1.
    fn new(cluster: &Cluster, address: impl Fn(usize) -> String) -> Self {
        let bridges = DeadBridges { hosts: cluster.hosts() };
        for (number, host) in (1..).zip(&bridges.hosts) {
            for line in [
                "link add dead0 type bridge".to_string(),
                format!("addr add {} dev dead0", address(number)),
                "link set dead0 up".to_string(),
            ] {
                ip(host, &line);
            }
        }
        bridges
    }
}

impl Drop for DeadBridges {
    fn drop(&mut self) {
        for host in &self.hosts {
            let _ = host.in_network("ip", &["link", "del", "dead0"]);
        }
    }
}

fn ip(host: &Host, line: &str) {
    let words: Vec<&str> = line.split(' ').collect();
    host.in_network("ip", &words).unwrap_or_else(|error| panic!("ip {line} on {}: {error}", host.name));
}

fn dead_bridges(cluster: &Cluster) {
    // The same address everywhere, as container engines make it; then another one on each host, where every packet is lost.
    for address in [(|_| "172.17.0.1/16".to_string()) as fn(usize) -> String, |number| format!("10.99.0.{number}/16")] {
        let _bridges = DeadBridges::new(cluster, address);
        // With the live network named last, and left to be found.
        for set in ["tcp.interfaces=dead0,eth0", "tcp.interfaces="] {
            let outcome = cluster.launch(1, &["-n", "3", "--set", set, &cluster.example("hello")]);
            assert_eq!(outcome.code(), 0, "{set}: {outcome}");
        }
        let outcome = cluster.launch(1, &["-n", "3", "--set", "tcp.interfaces=^dead0", &cluster.example("hello")]);
        assert_eq!(outcome.code(), 0, "{outcome}");
    }
}

fn only_a_dead_bridge(cluster: &Cluster) {
    let _bridges = DeadBridges::new(cluster, |number| format!("10.99.0.{number}/16"));
    let set = ["--set", "tcp.interfaces=10.99.0.0/16", "--set", "tcp.connect_timeout=500ms"];
    let outcome = cluster.launch(1, &[&["-n", "2"], &set[..], &[&cluster.example("hello")]].concat());
    assert_ne!(outcome.code(), 0, "{outcome}");
    assert!(outcome.stderr.contains("is lost: cannot connect to it: 10.99.0."), "{outcome}");
}

fn silent_host(cluster: &Cluster) {
    let hosts = cluster.hosts();
    let arguments = ["-n", "2", "--set", "heartbeat.timeout=3s", &cluster.example("train"), "10000000"];
    let mut job = Running::start(&mut cluster.launcher(1, &arguments));
    job.wait_for("epoch  3 ", LIMIT);
    // Nothing from the second host reaches the first one any more; the launcher reaches both.
    let route = format!("route add blackhole {}/32", hosts[0].address);
    ip(&hosts[1], &route);
    let since = Instant::now();
    let outcome = job.finish(LIMIT);
    ip(&hosts[1], &route.replace(" add ", " del "));
    assert_eq!(outcome.code(), 1, "{outcome}");
    let lost = outcome.stderr.contains("rank 1 on host") || outcome.stderr.contains("rank 0 on host");
    assert!(lost && outcome.stderr.contains("is lost"), "{outcome}");
    // Three seconds of silence, three in which the launcher might know better, and a machine that does other things.
    assert!(since.elapsed() < Duration::from_secs(25), "{outcome}");
}
