//! The same again and again: always a success, never a trace.

use crate::Test;
use crate::cluster::{Cluster, LIMIT};
use spmd_lab::programs::run;

pub(crate) const TESTS: &[Test] = &[
    ("two hundred runs of eight ranks on one host are two hundred successes without a trace", two_hundred_runs),
    ("twenty runs over three hosts are twenty successes without a trace", twenty_runs_over_hosts),
];

fn two_hundred_runs(cluster: &Cluster) {
    // On a host of its own: no other program uses its /tmp, /dev/shm and process table.
    let host = &cluster.hosts()[0];
    for round in 1..=200 {
        let mut command = host.command("env").expect("the host is up");
        command.args(["-i", "HOME=/nonexistent", "PATH=/usr/bin:/bin"]).arg(cluster.programs.rsrun());
        command.args(["-n", "8", "-host", "localhost:8"]).arg(cluster.programs.example("hello"));
        let outcome = run(&mut command, LIMIT);
        assert_eq!(outcome.code(), 0, "run {round}: {outcome}");
        assert_eq!(outcome.stdout.lines().count(), 8, "run {round}: {outcome}");
        // On a machine with few cores that is told, and nothing else.
        let mut told = outcome.stderr.lines().filter(|line| !line.contains("waiting gives way"));
        assert_eq!(told.next(), None, "run {round}: {outcome}");
        if round % 20 == 0 {
            cluster.expect_nothing_left();
        }
    }
}

fn twenty_runs_over_hosts(cluster: &Cluster) {
    for round in 1..=20 {
        let outcome = cluster.launch(3, &["-n", "8", &cluster.example("hello")]);
        assert_eq!(outcome.code(), 0, "run {round}: {outcome}");
        assert_eq!(outcome.stdout.lines().count(), 8, "run {round}: {outcome}");
        cluster.expect_nothing_left();
    }
}
