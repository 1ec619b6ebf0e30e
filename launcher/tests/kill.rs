//! `kill -9` of any one process: nothing is left, and the exit code says why.

mod common;

use common::{Place, children, finish, rank_program, signal, start, wait_until};
use std::process::Child;

/// A job whose ranks are wrappers with children, one of which has left its session and its environment.
const WRAPPERS: &str = "sleep 600 & env -i setsid sleep 601 & sleep 602; true";

struct Job {
    place: Place,
    launcher: Child,
    guard: u32,
    agent: u32,
    ranks: Vec<u32>,
}

fn job(words: &[&str]) -> Job {
    let place = Place::new();
    let mut command = place.rsrun();
    command.args(["-n", "2"]).args(words);
    let launcher = start(&mut command);
    let one = |pid: u32| {
        let mut found = 0;
        wait_until("a child", || {
            found = children(pid).first().copied().unwrap_or(0);
            found != 0
        });
        found
    };
    let guard = one_of_threads(launcher.id());
    let agent = one(guard);
    wait_until("two ranks", || children(agent).len() == 2);
    let ranks = children(agent);
    Job { place, launcher, guard, agent, ranks }
}

/// The child of any thread: the launcher starts agents from a thread of its own.
fn one_of_threads(pid: u32) -> u32 {
    let mut found = 0;
    wait_until("the agent", || {
        for task in std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten() {
            let text = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
            if let Some(child) = text.split_whitespace().next() {
                found = child.parse().unwrap();
            }
        }
        found != 0
    });
    found
}

impl Job {
    fn wrappers() -> Self {
        let job = job(&["sh", "-c", WRAPPERS]);
        for rank in &job.ranks {
            wait_until("their children", || children(*rank).len() == 3);
        }
        job
    }

    /// Every process that belongs to the job now, found by parentage.
    fn all(&self) -> Vec<u32> {
        let mut all = vec![self.guard];
        let mut at = 0;
        while at < all.len() {
            all.extend(children(all[at]));
            at += 1;
        }
        all
    }
}

fn alive(pid: u32) -> bool {
    // A zombie has no command line.
    std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty())
}

#[test]
fn of_a_rank() {
    let job = Job::wrappers();
    let all = job.all();
    assert!(all.len() >= 10, "{all:?}");
    signal(job.ranks[1], libc::SIGKILL);
    let ended = finish(job.launcher);
    let pid = format!("pid {}", job.ranks[1]);
    ended.fails(137, &["rank 1 on host localhost", &pid, "SIGKILL"]);
    assert!(!all.iter().any(|pid| alive(*pid)));
    job.place.assert_nothing_left();
}

#[test]
fn of_the_agent() {
    let job = Job::wrappers();
    let all = job.all();
    signal(job.agent, libc::SIGKILL);
    let ended = finish(job.launcher);
    let pid = format!("the agent process {} was killed by SIGKILL", job.agent);
    ended.fails(70, &["agent on host localhost was lost", &pid]);
    assert!(!all.iter().any(|pid| alive(*pid)));
    job.place.assert_nothing_left();
}

#[test]
fn of_the_guard() {
    let job = Job::wrappers();
    let all = job.all();
    signal(job.guard, libc::SIGKILL);
    finish(job.launcher).fails(70, &["localhost", "guard"]);
    // The agent is nobody's child now: nobody waits for it but us.
    wait_until("all are gone", || !all.iter().any(|pid| alive(*pid)));
    job.place.assert_nothing_left();
}

#[test]
fn of_agent_and_guard_at_the_same_moment() {
    let job = job(&["sh", "-c", "sleep 600 & setsid sleep 601 & sleep 602; true"]);
    for rank in &job.ranks {
        wait_until("their children", || children(*rank).len() == 3);
    }
    let all = job.all();
    for kill in [libc::SIGSTOP, libc::SIGKILL] {
        signal(job.guard, kill);
        signal(job.agent, kill);
    }
    finish(job.launcher).fails(70, &["agent on host localhost was lost"]);
    wait_until("all are gone", || !all.iter().any(|pid| alive(*pid)));
    job.place.wait_until_nothing_left();
}

#[test]
fn of_the_launcher() {
    let mut job = Job::wrappers();
    let all = job.all();
    job.launcher.kill().unwrap();
    job.launcher.wait().unwrap();
    wait_until("all are gone", || !all.iter().any(|pid| alive(*pid)));
    job.place.wait_until_nothing_left();
}

#[test]
fn of_a_rank_in_a_world_that_others_wait_in() {
    let program = rank_program();
    let job = job(&[program.to_str().unwrap(), "wait"]);
    signal(job.ranks[0], libc::SIGKILL);
    finish(job.launcher).fails(137, &["rank 0", "SIGKILL"]);
    job.place.assert_nothing_left();
}

#[test]
fn of_an_agent_whose_ranks_ignore_everything() {
    let job = job(&["sh", "-c", "trap '' TERM HUP INT; sleep 600; sleep 600"]);
    for rank in &job.ranks {
        wait_until("their children", || children(*rank).len() == 1);
    }
    let all = job.all();
    signal(job.agent, libc::SIGKILL);
    finish(job.launcher).fails(70, &["localhost"]);
    assert!(!all.iter().any(|pid| alive(*pid)));
}

#[test]
fn of_a_launcher_that_its_agent_has_not_spoken_to_yet() {
    use std::process::{Command, Stdio};
    for (stdin, stdout) in [(true, false), (false, true), (false, false)] {
        let mut command = Command::new(common::binary());
        command.args(["--agent", "nonce"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut agent = command.spawn().unwrap();
        let kept = (agent.stdin.take().filter(|_| stdin), agent.stdout.take().filter(|_| stdout));
        wait_until("the agent ends", || agent.try_wait().unwrap().is_some());
        drop(kept);
        assert_eq!(agent.wait().unwrap().code(), Some(70));
    }
}
