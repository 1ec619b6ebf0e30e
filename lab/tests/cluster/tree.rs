//! Hosts that are reached through another host's agent.

use crate::Test;
use crate::cluster::{Cluster, LIMIT, own_lines};
use crate::kills::{OVER, agent, expect_message, find_all, training};
use rustix::process::Signal;
use spmd_lab::process::Process;
use spmd_lab::programs::{Outcome, run};

pub(crate) const TESTS: &[Test] = &[
    ("the third host of a binary tree is reached through the first one", through_the_first),
    ("a host to which the first one has no key is reached by the launcher, which says so once", without_key),
    ("eight ranks train on three hosts of a tree", train),
    ("a killed agent of a tree's inner host ends the job with 70 and its host is named", kill_inner_agent),
    ("a killed agent at a tree's leaf ends the job with 70 and its host is named", kill_leaf_agent),
    ("a connection inside a tree that breaks ends the job", kill_inner_connection),
    ("a killed relay ends the job", kill_relay),
    ("a killed launcher of a tree leaves nothing on any host", kill_launcher),
    ("an interrupted launcher of a tree ends the job with 130", interrupt_launcher),
];

const TREE: [&str; 4] = ["--set", "launch.tree=on", "--set", "launch.tree_radix=2"];

/// From where each of three ranks' hosts was connected to.
fn clients(outcome: &Outcome) -> Vec<String> {
    let mut lines: Vec<&str> = outcome.stdout.lines().collect();
    lines.sort_unstable();
    lines.iter().map(|line| line.split(' ').nth(1).unwrap_or_default().to_string()).collect()
}

const WHO: [&str; 5] = ["-n", "3", "sh", "-c", "echo $SPMD_RANK $SSH_CONNECTION"];

fn through_the_first(cluster: &Cluster) {
    for client in ["launch.ssh=builtin", "launch.ssh=command"] {
        let outcome = cluster.launch(1, &[&TREE[..], &["--set", client], &WHO].concat()).succeeded();
        let clients = clients(&outcome);
        assert_eq!(clients[0], clients[1], "both are connected to by the launcher: {outcome}");
        assert_eq!(clients[2], cluster.hosts()[0].address, "{outcome}");
        assert!(own_lines(&outcome).is_empty(), "{outcome}");
    }
}

fn without_key(cluster: &Cluster) {
    let lab = cluster.lab.hostfile().with_file_name("");
    for file in ["id_ed25519", "known_hosts"] {
        std::fs::copy(lab.join(file), cluster.private.join(file)).expect("the lab has keys");
    }
    let text = std::fs::read_to_string(cluster.lab.hostfile()).expect("the lab has a hostfile");
    let hostfile = cluster.private.join("hosts");
    std::fs::write(&hostfile, text.replace("slots=32", "slots=1")).expect("a folder in /tmp");
    let hostfile = hostfile.display().to_string();
    let words = [&["-hostfile", &hostfile][..], &TREE, &WHO].concat();
    let outcome = run(&mut cluster.programs.launch(&words), LIMIT).succeeded();
    let clients = clients(&outcome);
    assert!(clients[0] == clients[1] && clients[1] == clients[2], "{outcome}");
    let lines = own_lines(&outcome);
    assert_eq!(lines.len(), 1, "{outcome}");
    for part in ["through host", &cluster.hosts()[0].address, &cluster.hosts()[2].address, "launch.tree"] {
        assert!(lines[0].contains(part), "{part}: {outcome}");
    }
}

fn train(cluster: &Cluster) {
    let program = cluster.example("train");
    let outcome = cluster.launch(3, &[&TREE[..], &["-n", "8", &program]].concat()).succeeded();
    assert!(outcome.stdout.contains("identical on all ranks (8)"), "{outcome}");
}

fn kill_inner_agent(cluster: &Cluster) {
    let job = training(cluster, &TREE);
    agent(cluster, 0)[1].kill();
    let outcome = job.finish(OVER);
    assert_eq!(outcome.code(), 70, "{outcome}");
    expect_message(&outcome, &["agent", &cluster.hosts()[0].address]);
}

fn kill_leaf_agent(cluster: &Cluster) {
    let job = training(cluster, &TREE);
    agent(cluster, 2)[1].kill();
    let outcome = job.finish(OVER);
    assert_eq!(outcome.code(), 70, "{outcome}");
    expect_message(&outcome, &["agent", &cluster.hosts()[2].address]);
}

fn kill_inner_connection(cluster: &Cluster) {
    let job = training(cluster, &TREE);
    for sshd in find_all(cluster, 2, "sshd:") {
        sshd.kill();
    }
    let outcome = job.finish(OVER);
    assert_eq!(outcome.code(), 70, "{outcome}");
    expect_message(&outcome, &[&cluster.hosts()[2].address]);
}

fn kill_relay(cluster: &Cluster) {
    let job = training(cluster, &TREE);
    find_all(cluster, 0, "rsrun --relay")[0].kill();
    let outcome = job.finish(OVER);
    assert_eq!(outcome.code(), 70, "{outcome}");
    expect_message(&outcome, &[&cluster.hosts()[2].address]);
}

fn kill_launcher(cluster: &Cluster) {
    let job = training(cluster, &TREE);
    Process::of(job.pid()).expect("it runs").signal(Signal::KILL);
    assert_eq!(job.finish(OVER).code(), 137);
}

fn interrupt_launcher(cluster: &Cluster) {
    let job = training(cluster, &TREE);
    Process::of(job.pid()).expect("it runs").signal(Signal::INT);
    let outcome = job.finish(OVER);
    assert_eq!(outcome.code(), 130, "{outcome}");
}
