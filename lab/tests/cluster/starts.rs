//! Jobs that go well.

use crate::Test;
use crate::cluster::{Cluster, LIMIT};
use spmd_lab::programs::run;
use std::collections::BTreeSet;

pub(crate) const TESTS: &[Test] = &[
    ("eight ranks train on three hosts and read more than nine of ten held-out digits", train_on_three_hosts),
    ("ninety-six ranks train on three hosts from the hostfile that the lab wrote", ninety_six_ranks),
    ("ranks number themselves over the hosts in the order of the hostfile", numbering),
    ("pingpong between two hosts delivers every byte", pingpong_between_hosts),
    ("a plate cut over three hosts gives the same bits as one computed alone", halo_on_three_hosts),
    ("ranks of one host talk over TCP when shared memory is not allowed", tcp_only),
    ("the exit code of a rank is the exit code of the launcher", exit_code),
];

fn train_on_three_hosts(cluster: &Cluster) {
    let outcome = cluster.launch(3, &["-n", "8", &cluster.example("train")]).succeeded();
    assert!(outcome.stdout.contains("identical on all ranks (8)"), "{outcome}");
    assert_eq!(outcome.stdout.lines().filter(|line| line.starts_with("epoch ")).count(), 40, "{outcome}");
}

fn ninety_six_ranks(cluster: &Cluster) {
    let hostfile = cluster.lab.hostfile().display().to_string();
    let mut command = cluster.programs.launch(&["-n", "96", "-hostfile", &hostfile, &cluster.example("train")]);
    let outcome = run(&mut command, LIMIT * 3).succeeded();
    assert!(outcome.stdout.contains("identical on all ranks (96)"), "{outcome}");
}

fn numbering(cluster: &Cluster) {
    let outcome = cluster.launch(2, &["-n", "5", &cluster.example("hello")]).succeeded();
    let said: BTreeSet<&str> = outcome.stdout.lines().filter_map(|line| line.split(", process").next()).collect();
    let expected = [
        "rank 0 of 5 on node1",
        "rank 1 of 5 on node1",
        "rank 2 of 5 on node2",
        "rank 3 of 5 on node2",
        "rank 4 of 5 on node3",
    ];
    assert_eq!(said, BTreeSet::from(expected), "{outcome}");
}

fn pingpong_between_hosts(cluster: &Cluster) {
    let outcome = cluster.launch(1, &["-n", "2", &cluster.example("pingpong")]).succeeded();
    assert!(outcome.stdout.contains("ranks 0 and 1") && outcome.stdout.contains("1048576"), "{outcome}");
}

fn halo_on_three_hosts(cluster: &Cluster) {
    let outcome = cluster.launch(2, &["-n", "6", &cluster.example("halo")]).succeeded();
    assert!(outcome.stdout.contains("on 6 ranks: the same bits"), "{outcome}");
}

fn tcp_only(cluster: &Cluster) {
    let setting = ["--set", "transport.allow=tcp", "-n", "4"];
    let outcome = cluster.launch(2, &[&setting[..], &[&cluster.example("halo")]].concat()).succeeded();
    assert!(outcome.stdout.contains("on 4 ranks: the same bits"), "{outcome}");
}

fn exit_code(cluster: &Cluster) {
    let outcome = cluster.launch(1, &["-n", "3", "sh", "-c", "[ $SPMD_RANK = 1 ] && exit 42; sleep 30"]);
    assert_eq!(outcome.code(), 42, "{outcome}");
    assert!(outcome.stderr.contains("10.77."), "the host is named: {outcome}");
}
