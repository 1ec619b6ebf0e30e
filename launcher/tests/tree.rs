//! Hosts that are reached through each other's agents: everything that works without a tree works in one, and nothing is
//! left when any process of it dies.
#![expect(clippy::cast_possible_truncation, reason = "bytes of a pattern")]

mod common;

use common::{Ended, Place, fake_agent, finish, rank_program, start, wait_for_lines, wait_until};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// Seven hosts at radix 2: n1 and n2, below n1 n3 and n4, below n2 n5 and n6, below n3 n7.
const HOSTS: &str = "n[1-7]:1";

/// A place with a script that stands in for `ssh` on every host: `$1` is the host, `$2` the agent's command line, `$HOP`
/// the way that led here.
struct Tree {
    place: Place,
    agent: PathBuf,
}

impl Tree {
    fn new(script: &str) -> Self {
        let place = Place::new();
        let agent = place.script("agent", &format!("#!/bin/sh\n{script}\nHOP=$HOP/$1 exec sh -c \"$2\"\n"));
        Self { place, agent }
    }

    fn rsrun(&self, words: &[&str]) -> Command {
        let mut command = self.place.rsrun();
        command.arg("--launch-agent").arg(&self.agent);
        command.args(["--set", "launch.tree=on", "--set", "launch.tree_radix=2"]).args(words);
        command
    }

    fn run(&self, words: &[&str]) -> Ended {
        finish(start(&mut self.rsrun(words)))
    }

    /// A job of seven ranks that wait, with a child each, seen to run.
    fn waiting(&self, words: &[&str]) -> Child {
        let script = "setsid sleep 600 & echo ready; sleep 601; true";
        let mut child = start(&mut self.rsrun(&[words, &["-host", HOSTS, "sh", "-c", script]].concat()));
        wait_for_lines(&mut child, 7);
        child
    }

    /// The agents, guards or relays (`--agent`, `--relay`) of this place, each with the way that leads to it.
    fn processes(&self, kind: &str) -> Vec<(u32, String)> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let read = |name: &str| std::fs::read(entry.path().join(name)).unwrap_or_default();
            let Ok(pid) = entry.file_name().to_string_lossy().parse() else { continue };
            let environment = String::from_utf8_lossy(&read("environ")).into_owned();
            let has = |text: &str| environment.split('\0').any(|variable| variable == text);
            if read("cmdline").split(|b| *b == 0).nth(1) == Some(kind.as_bytes())
                && has(&format!("HOME={}", self.place.home.path().display()))
            {
                let way = environment.split('\0').find_map(|variable| variable.strip_prefix("HOP="));
                found.push((pid, way.unwrap_or_default().to_string()));
            }
        }
        found
    }

    /// The guard and the agent (in this order) of the host to which this way leads.
    fn agent_of(&self, way: &str) -> [u32; 2] {
        let there = self.processes("--agent").into_iter().filter(|(_, w)| w == way);
        let both: Vec<u32> = there.map(|(pid, _)| pid).collect();
        let guard = *both.iter().find(|pid| common::children(**pid).iter().any(|child| both.contains(child))).unwrap();
        let agent = *both.iter().find(|pid| **pid != guard).unwrap();
        [guard, agent]
    }

    #[track_caller]
    fn wait_until_nothing_left(&self) {
        self.place.wait_until_nothing_left();
        wait_until("no agent and no relay is left", || {
            self.processes("--agent").is_empty() && self.processes("--relay").is_empty()
        });
    }
}

fn pattern(size: u32) -> Vec<u8> {
    (0..size).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

#[test]
fn ranks_run_on_the_hosts_in_order_and_are_one_world() {
    let tree = Tree::new("");
    let ended = tree.run(&["-host", HOSTS, "sh", "-c", "echo $SPMD_RANK $HOP"]).success();
    let ways = ["0 /n1", "1 /n2", "2 /n1/n3", "3 /n1/n4", "4 /n2/n5", "5 /n2/n6", "6 /n1/n3/n7"];
    assert_eq!(ended.lines(), ways);
    let rank = rank_program();
    let ended = tree.run(&["-host", HOSTS, rank.to_str().unwrap(), "sum"]).success();
    assert_eq!(ended.lines().len(), 7);
    assert!(ended.told().next().is_none(), "{ended:?}");
    tree.wait_until_nothing_left();
}

#[test]
fn output_is_complete_and_by_lines_from_every_depth() {
    let tree = Tree::new("");
    let script = "i=0; while [ $i -lt 20000 ]; do echo $SPMD_RANK line $i; i=$((i+1)); done; printf end$SPMD_RANK";
    let ended = tree.run(&["--tag", "-host", HOSTS, "sh", "-c", script]).success();
    let text = ended.text();
    for rank in 0..7 {
        let own: Vec<&str> = text.lines().filter(|line| line.starts_with(&format!("[{rank}] "))).collect();
        for (number, line) in own.iter().take(20_000).enumerate() {
            assert_eq!(*line, format!("[{rank}] {rank} line {number}"));
        }
        assert_eq!(own[20_000], format!("[{rank}] end{rank}"));
    }
}

#[test]
fn input_reaches_the_deepest_rank_and_every_rank_byte_by_byte() {
    let tree = Tree::new("");
    let feed = |words: &[&str]| {
        let mut child = start(tree.rsrun(words).stdin(Stdio::piped()));
        let mut stdin = child.stdin.take().unwrap();
        let writer = std::thread::spawn(move || drop(stdin.write_all(&pattern(1 << 20))));
        let ended = finish(child);
        writer.join().unwrap();
        ended.success()
    };
    let ended = feed(&["--stdin", "6", "-host", HOSTS, "sh", "-c", "test $SPMD_RANK = 6 && exec cat; true"]);
    assert!(ended.stdout == pattern(1 << 20), "{}", ended.stdout.len());
    let ended = feed(&["--stdin", "all", "-host", HOSTS, "sh", "-c", "wc -c"]);
    assert_eq!(ended.lines(), ["1048576"; 7]);
}

#[test]
fn signals_reach_every_rank_and_are_counted() {
    let tree = Tree::new("");
    let script = "trap 'echo got it; exit 0' USR1; echo ready; while :; do sleep 0.02; done";
    let mut child = start(&mut tree.rsrun(&["-host", HOSTS, "sh", "-c", script]));
    wait_for_lines(&mut child, 7);
    common::signal(child.id(), libc::SIGUSR1);
    let ended = finish(child).success();
    assert_eq!(ended.lines(), ["got it"; 7]);
    // A signal that reached fewer than all would be told.
    assert!(!ended.stderr.contains("reached no"), "{ended:?}");
}

#[test]
fn the_first_failure_decides_the_exit_code_at_every_depth() {
    let tree = Tree::new("");
    for (rank, host) in [(1, "n2"), (3, "n4"), (6, "n7")] {
        let script = format!("test $SPMD_RANK = {rank} && exit 42; sleep 600 & wait");
        let ended = tree.run(&["-host", HOSTS, "sh", "-c", &script]);
        ended.fails(42, &[&format!("rank {rank} on host {host}")]);
        tree.wait_until_nothing_left();
    }
    tree.run(&["-host", HOSTS, "/no/such/program"]).fails(127, &["/no/such/program"]);
    tree.wait_until_nothing_left();
}

#[test]
fn a_time_out_shows_where_the_ranks_of_every_host_are_and_leaves_nothing() {
    let tree = Tree::new("");
    let rank = rank_program();
    let ended = tree.run(&["--timeout", "2s", "-host", HOSTS, rank.to_str().unwrap(), "wait"]);
    assert_eq!(ended.code, Some(124), "{ended:?}");
    assert!(ended.stderr.contains("ranks 0-6: computing"), "{ended:?}");
    tree.wait_until_nothing_left();
}

#[test]
fn an_interrupt_ends_ranks_of_every_host_that_ignore_it() {
    let tree = Tree::new("");
    let script = "trap '' INT TERM; echo ready; sleep 600; sleep 600";
    let words = ["--set", "launch.grace=200ms", "-host", HOSTS, "sh", "-c", script];
    let mut child = start(&mut tree.rsrun(&words));
    wait_for_lines(&mut child, 7);
    common::signal(child.id(), libc::SIGINT);
    finish(child).fails(130, &["interrupted by SIGINT"]);
    tree.wait_until_nothing_left();
}

#[test]
fn a_killed_agent_guard_or_relay_at_any_depth_ends_the_job_and_leaves_nothing() {
    let tree = Tree::new("");
    for (way, host) in [("/n1", "n1"), ("/n1/n3", "n3"), ("/n1/n3/n7", "n7")] {
        for which in 0..2 {
            let child = tree.waiting(&[]);
            common::signal(tree.agent_of(way)[which], libc::SIGKILL);
            finish(child).fails(70, &[&format!("host {host}")]);
            tree.wait_until_nothing_left();
        }
    }
    for (way, host) in [("/n1", "n3"), ("/n1/n3", "n7")] {
        let child = tree.waiting(&[]);
        let relay = tree.processes("--relay").into_iter().find(|(_, w)| w == way).unwrap().0;
        common::signal(relay, libc::SIGKILL);
        finish(child).fails(70, &[&format!("host {host}"), "gone"]);
        tree.wait_until_nothing_left();
    }
}

#[test]
fn an_agent_and_its_guard_that_are_killed_together_leave_nothing() {
    let tree = Tree::new("");
    for way in ["/n1", "/n1/n3", "/n2/n5"] {
        let child = tree.waiting(&[]);
        let both = tree.agent_of(way);
        for kill in [libc::SIGSTOP, libc::SIGKILL] {
            both.iter().for_each(|pid| common::signal(*pid, kill));
        }
        finish(child).fails(70, &["agent on host", &way[way.len() - 2..]]);
        tree.wait_until_nothing_left();
    }
}

#[test]
fn a_killed_launcher_leaves_nothing_on_any_host() {
    let tree = Tree::new("");
    let mut child = tree.waiting(&[]);
    child.kill().unwrap();
    child.wait().unwrap();
    tree.wait_until_nothing_left();
}

#[test]
fn a_killed_rank_at_any_depth_is_named() {
    let tree = Tree::new("");
    let script = "test $SPMD_RANK = 6 && kill -9 $$; sleep 600";
    tree.run(&["-host", HOSTS, "sh", "-c", script]).fails(137, &["rank 6 on host n7", "SIGKILL"]);
    tree.wait_until_nothing_left();
}

#[test]
fn hosts_that_another_one_cannot_reach_are_reached_directly_and_that_is_said_once() {
    for (refusal, reason) in [
        ("echo 'Permission denied (publickey).' >&2; exit 255", "Permission denied"),
        ("echo 'no route' >&2; exit 1", "no route"),
        ("exec sh -c \"exec /opt/none$(echo $2 | cut -d' ' -f2)\"", "not found"),
        ("sleep 600", "did not answer"),
    ] {
        let tree = Tree::new(&format!("case $HOP$1 in /n1n[34]) {refusal};; esac"));
        let set = ["--set", "launch.connect_timeout=3s"];
        let ended = tree.run(&[&set[..], &["-host", HOSTS, "sh", "-c", "echo $SPMD_RANK $HOP"]].concat()).success();
        let ways = ["0 /n1", "1 /n2", "2 /n3", "3 /n4", "4 /n2/n5", "5 /n2/n6", "6 /n3/n7"];
        assert_eq!(ended.lines(), ways, "{reason}");
        let told: Vec<&str> = ended.told().collect();
        assert_eq!(told.len(), 1, "{told:?}");
        for part in ["through host n1", reason, "itself", "launch.tree"] {
            assert!(told[0].contains(part), "{part}: {told:?}");
        }
        tree.wait_until_nothing_left();
    }
}

#[test]
fn a_host_that_nobody_can_reach_gives_its_own_reason() {
    let tree = Tree::new("test $1 = n7 && { echo 'Permission denied (publickey).' >&2; exit 255; }");
    let ended = tree.run(&["-host", HOSTS, "true"]);
    assert_eq!(ended.code, Some(69), "{ended:?}");
    let last = ended.told().last().unwrap_or_default().to_string();
    assert!(last.contains("host n7") && last.contains("Permission denied"), "{last}");
    tree.wait_until_nothing_left();
}

#[test]
fn an_agent_that_dies_when_it_is_to_connect_for_others_is_started_again_without_them() {
    let place = Place::new();
    let agent = format!("{} --only n1 --drop-reach", fake_agent().display());
    let words = ["--set", "launch.tree=on", "--set", "launch.tree_radix=2", "-host", HOSTS, "true"];
    let ended = place.run(["--launch-agent", &agent].iter().chain(&words)).success();
    let told: Vec<&str> = ended.told().collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("through host n1") && told[0].contains("the machine is full"), "{told:?}");
}

#[test]
fn hosts_that_drop_connections_are_reached_through_others_too() {
    let place = Place::new();
    let agent = format!("{} --fail-first 2 --count {}", fake_agent().display(), place.home.path().display());
    let words = ["--set", "launch.tree=on", "--set", "launch.tree_radix=2", "-host", HOSTS, "true"];
    let ended = place.run(["--launch-agent", &agent].iter().chain(&words)).success();
    assert_eq!(ended.told().count(), 0, "{ended:?}");
}

#[test]
fn an_interrupt_at_any_time_of_the_start_leaves_nothing() {
    let tree = Tree::new("");
    for step in 0..12 {
        let mut child = start(&mut tree.rsrun(&["-host", HOSTS, "sleep", "600"]));
        std::thread::sleep(std::time::Duration::from_millis(step * 15));
        common::signal(child.id(), libc::SIGINT);
        wait_until("rsrun ends", || child.try_wait().unwrap().is_some());
        tree.wait_until_nothing_left();
    }
}

#[test]
fn a_thousand_hosts_start_through_each_other() {
    let place = Place::new();
    let agent = fake_agent().display().to_string();
    let words = ["--phases", "--set", "launch.connect_timeout=25s", "-host", "n[0001-1000]:1", "true"];
    // So many hosts are a tree by default.
    let ended = place.run(["--launch-agent", &agent].iter().chain(&words)).success();
    assert!(ended.stderr.contains("starting 1000 ranks"), "{ended:?}");
    assert!(!ended.stderr.contains("launch.tree"), "{ended:?}");
}
