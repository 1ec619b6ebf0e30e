//! Any one process of a job dies: the rest ends, on every host, and the exit code says why.

use crate::Test;
use crate::cluster::{Cluster, LIMIT, own_lines};
use rustix::process::Signal;
use spmd_lab::process::{Inside, Process};
use spmd_lab::programs::{Outcome, Running};
use std::time::Duration;

pub(crate) const TESTS: &[Test] = &[
    ("a killed rank ends the job with 137 and is named", kill_rank),
    ("a killed rank 0 ends the job with 137 and is named", kill_first_rank),
    ("a killed agent ends the job with 70 and its host is named", kill_agent),
    ("a killed guard of an agent ends the job with 70 and its host is named", kill_guard),
    ("an agent and its guard that are killed together leave no child of a wrapper behind", kill_agent_and_guard),
    ("a killed launcher leaves nothing on any host", kill_launcher),
    ("an interrupted launcher ends the job with 130", interrupt_launcher),
    ("a terminated launcher ends the job with 143", terminate_launcher),
    ("a host that goes away ends the job", kill_host_connection),
];

/// In this time a job is over after one of its processes died.
pub(crate) const OVER: Duration = Duration::from_secs(6);

/// Six ranks on three hosts that would train for hours, seen to run.
pub(crate) fn training(cluster: &Cluster, options: &[&str]) -> Running {
    let train = cluster.example("train");
    let mut command = cluster.launcher(2, &[options, &["-n", "6", &train, "10000000"]].concat());
    let mut running = Running::start(&mut command);
    running.wait_for("epoch  3 ", LIMIT);
    running
}

/// The processes on host `host` (from 0) whose command line contains `text`: one at least.
pub(crate) fn find_all(cluster: &Cluster, host: usize, text: &str) -> Vec<Process> {
    let name = &cluster.hosts()[host].name;
    let fits = |(on, inside): &(String, Inside)| on == name && inside.command.contains(text);
    let found = cluster.strangers().into_iter().filter(fits).map(|(_, inside)| inside.process);
    let found: Vec<Process> = found.collect();
    assert!(!found.is_empty(), "no '{text}' on {name}: {:#?}", cluster.strangers());
    found
}

/// The two processes of the agent on a host: its guard, then the agent that the guard has started.
pub(crate) fn agent(cluster: &Cluster, host: usize) -> [Process; 2] {
    find_all(cluster, host, "rsrun --agent").try_into().expect("two processes")
}

pub(crate) fn expect_message(outcome: &Outcome, words: &[&str]) {
    let last = own_lines(outcome).last().copied().unwrap_or_default();
    for word in words {
        assert!(last.contains(word), "the last line names {word}: {outcome}");
    }
}

fn kill_rank(cluster: &Cluster) {
    let job = training(cluster, &[]);
    // Ranks 2 and 3 are on the second host.
    find_all(cluster, 1, "examples/train")[0].kill();
    let outcome = job.finish(OVER);
    assert_eq!(outcome.code(), 137, "{outcome}");
    expect_message(&outcome, &["rank", "SIGKILL", &cluster.hosts()[1].address]);
}

fn kill_first_rank(cluster: &Cluster) {
    let job = training(cluster, &[]);
    let of_rank_0 = |process: &Process| {
        let environment = std::fs::read(format!("/proc/{}/environ", process.pid)).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == b"SPMD_RANK=0")
    };
    let ranks = cluster.strangers().into_iter().filter(|(_, inside)| inside.command.contains("examples/train"));
    let first = ranks.map(|(_, inside)| inside.process).find(of_rank_0).expect("rank 0 runs");
    first.kill();
    let outcome = job.finish(OVER);
    assert_eq!(outcome.code(), 137, "{outcome}");
    expect_message(&outcome, &["rank 0", "SIGKILL", &cluster.hosts()[0].address]);
}

fn kill_agent(cluster: &Cluster) {
    let job = training(cluster, &[]);
    agent(cluster, 1)[1].kill();
    let outcome = job.finish(OVER);
    assert_eq!(outcome.code(), 70, "{outcome}");
    expect_message(&outcome, &["agent", &cluster.hosts()[1].address]);
}

fn kill_guard(cluster: &Cluster) {
    let job = training(cluster, &[]);
    agent(cluster, 1)[0].kill();
    let outcome = job.finish(OVER);
    assert_eq!(outcome.code(), 70, "{outcome}");
    expect_message(&outcome, &["agent", &cluster.hosts()[1].address]);
}

fn kill_agent_and_guard(cluster: &Cluster) {
    // Children of a wrapper do not die with the agent, and nobody on the host knows them any more.
    let script = "sleep 600 & setsid sleep 601 & echo ready $SPMD_RANK; sleep 602; true";
    let mut job = Running::start(&mut cluster.launcher(1, &["-n", "3", "sh", "-c", script]));
    (0..3).for_each(|rank| job.wait_for(&format!("ready {rank}"), LIMIT));
    let [guard, inner] = agent(cluster, 1);
    for signal in [Signal::STOP, Signal::KILL] {
        guard.signal(signal);
        inner.signal(signal);
    }
    let outcome = job.finish(OVER);
    assert_eq!(outcome.code(), 70, "{outcome}");
    expect_message(&outcome, &["agent", &cluster.hosts()[1].address]);
}

fn kill_launcher(cluster: &Cluster) {
    let job = training(cluster, &[]);
    Process::of(job.pid()).expect("it runs").signal(Signal::KILL);
    let outcome = job.finish(OVER);
    assert_eq!(outcome.code(), 137, "{outcome}");
}

fn interrupt_launcher(cluster: &Cluster) {
    let job = training(cluster, &[]);
    Process::of(job.pid()).expect("it runs").signal(Signal::INT);
    let outcome = job.finish(OVER);
    assert_eq!(outcome.code(), 130, "{outcome}");
}

fn terminate_launcher(cluster: &Cluster) {
    let job = training(cluster, &[]);
    Process::of(job.pid()).expect("it runs").signal(Signal::TERM);
    let outcome = job.finish(OVER);
    assert_eq!(outcome.code(), 143, "{outcome}");
}

fn kill_host_connection(cluster: &Cluster) {
    let job = training(cluster, &[]);
    // What serves this connection: one process for root, two for another user.
    for sshd in find_all(cluster, 2, "sshd:") {
        sshd.kill();
    }
    let outcome = job.finish(OVER);
    assert_eq!(outcome.code(), 70, "{outcome}");
    expect_message(&outcome, &[&cluster.hosts()[2].address]);
}
