//! Settings that lie around on one host change nothing and are named.

use crate::Test;
use crate::cluster::{Cluster, own_lines};
use spmd_lab::programs::Outcome;
use std::path::Path;

pub(crate) const TESTS: &[Test] = &[
    ("a variable set by one host's sshd changes nothing and is named in one line", variable_from_sshd),
    ("a variable set by one host's shell profile changes nothing and is named in one line", variable_from_profile),
    ("the size hint's own variable on one host changes nothing and is named in one line", hint_variable),
    ("a configuration file in one host's /etc changes nothing and is named in one line", system_file),
    ("a configuration file in one host's home changes nothing and is named in one line", user_file),
];

fn variable_from_sshd(cluster: &Cluster) {
    let host = &cluster.hosts()[1];
    // Were it read, ranks of this host could not reach the others.
    let stray = [("RSRUN_TRANSPORT_ALLOW".to_owned(), "shm".to_owned())];
    host.set_stray_variables(&stray).expect("sshd takes new variables");
    let outcome = hello(cluster);
    host.set_stray_variables(&[]).expect("sshd forgets them");
    expect_named(&outcome, &host.address, &["RSRUN_TRANSPORT_ALLOW"]);
}

fn variable_from_profile(cluster: &Cluster) {
    let host = &cluster.hosts()[2];
    let profile = host.home().join(".bashrc");
    std::fs::write(&profile, "export RSRUN_SHM_RING_BYTES=no-number\n").expect("the home can be written");
    let outcome = hello(cluster);
    std::fs::remove_file(profile).expect("it is there");
    expect_named(&outcome, &host.address, &["RSRUN_SHM_RING_BYTES"]);
}

fn hint_variable(cluster: &Cluster) {
    let host = &cluster.hosts()[0];
    let stray = [("RDMA_LOW_LATENCY_HINT".to_owned(), "4096".to_owned())];
    host.set_stray_variables(&stray).expect("sshd takes new variables");
    let outcome = hello(cluster);
    host.set_stray_variables(&[]).expect("sshd forgets them");
    expect_named(&outcome, &host.address, &["RDMA_LOW_LATENCY_HINT"]);
}

fn system_file(cluster: &Cluster) {
    let host = &cluster.hosts()[1];
    let folder = host.root().join("etc/rsrun");
    let outcome = with_file(cluster, &folder, "transport.allow = \"shm\"\n");
    expect_named(&outcome, &host.address, &["/etc/rsrun/config.toml"]);
}

fn user_file(cluster: &Cluster) {
    let host = &cluster.hosts()[2];
    let folder = host.home().join(".config/rsrun");
    let outcome = with_file(cluster, &folder, "this is no configuration\n");
    expect_named(&outcome, &host.address, &["rsrun/config.toml"]);
}

fn with_file(cluster: &Cluster, folder: &Path, text: &str) -> Outcome {
    std::fs::create_dir_all(folder).expect("the host's files can be written");
    std::fs::write(folder.join("config.toml"), text).expect("the host's files can be written");
    let outcome = hello(cluster);
    std::fs::remove_dir_all(folder).expect("it is there");
    outcome
}

fn hello(cluster: &Cluster) -> Outcome {
    cluster.launch(2, &["-n", "6", &cluster.example("hello")])
}

/// The job went well, and exactly one line names the host and the stray setting.
fn expect_named(outcome: &Outcome, host: &str, words: &[&str]) {
    let outcome = outcome.clone().succeeded();
    assert_eq!(outcome.stdout.lines().filter(|line| line.starts_with("rank ")).count(), 6, "{outcome}");
    let lines = own_lines(&outcome);
    assert_eq!(lines.len(), 1, "one line: {outcome}");
    assert!(lines[0].contains(host), "the line names {host}: {outcome}");
    for word in words {
        assert!(lines[0].contains(word), "the line names {word}: {outcome}");
    }
}
