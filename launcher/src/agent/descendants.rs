//! Every process below this one, and the end of them all.
//!
//! Works because agent and guard are child subreapers: whatever a rank starts and abandons becomes their child, so
//! "no child left" means "nothing left".

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, kill_process, pidfd_open};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// How often it is looked for what is left of a job.
const SWEEPS: u32 = 20;

/// All processes below `root`, nearest first, but `spared` and what is below it.
pub(super) fn of(root: Pid, spared: Option<Pid>) -> Vec<Pid> {
    let mut found = Vec::new();
    let mut next = vec![root];
    while let Some(parent) = next.pop() {
        let mut children = children(parent);
        children.retain(|pid| Some(*pid) != spared);
        found.extend(children.iter().copied());
        next.extend(children);
    }
    found
}

/// The children of all threads of a process.
fn children(parent: Pid) -> Vec<Pid> {
    let mut found = Vec::new();
    let tasks = format!("/proc/{}/task", parent.as_raw_nonzero());
    for task in std::fs::read_dir(tasks).into_iter().flatten().flatten() {
        let text = match std::fs::read_to_string(task.path().join("children")) {
            Ok(text) => text,
            // A kernel without these files: look at everyone's parent.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && task.path().exists() => {
                return children_by_search(parent);
            }
            Err(_) => continue,
        };
        found.extend(text.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)));
    }
    found
}

fn children_by_search(parent: Pid) -> Vec<Pid> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
    pids.filter(|pid| parent_of(*pid) == Some(parent)).collect()
}

fn parent_of(pid: Pid) -> Option<Pid> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    // The name in parentheses may contain anything; the state and the parent's id come after the last one.
    let after = stat.rsplit_once(')')?.1;
    Pid::from_raw(after.split_whitespace().nth(1)?.parse().ok()?)
}

/// Kills every process on this machine that has this job's name in its environment: what is left when an agent and its
/// guard are killed at the same moment, and nobody inherits their children who knows of them.
pub(super) fn end_job(job: &str) {
    let mark = format!("SPMD_JOB={job}");
    // A process has no environment for a moment while it begins another program, and children may have been born behind
    // our back: two looks in a row must find nothing.
    let mut clean = 0;
    for _ in 0..SWEEPS {
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let mut found = false;
        for pid in entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)) {
            let environment = std::fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero())).unwrap_or_default();
            if environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes()) {
                found |= kill_process(pid, Signal::KILL).is_ok();
            }
        }
        clean = if found { 0 } else { clean + 1 };
        if clean == 2 {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Kills every process below this one and reaps it, but `spared` and what is below that. `reaped` is told of each child
/// that ended. `false`: some process is still there after `limit`.
pub(super) fn end_all(limit: Duration, spared: Option<Pid>, mut reaped: impl FnMut(Pid, i32)) -> bool {
    let until = Instant::now() + limit;
    // Without a spared child the kernel says that none is left; with one, two looks in a row must find nothing.
    let mut clean = 0;
    loop {
        if reap(&mut reaped) {
            return true;
        }
        let left = of(rustix::process::getpid(), spared);
        clean = if left.is_empty() && spared.is_some() { clean + 1 } else { 0 };
        if clean == 2 {
            return true;
        }
        for pid in &left {
            let _ = kill_process(*pid, Signal::KILL);
        }
        let now = Instant::now();
        if now >= until {
            return reap(&mut reaped);
        }
        // Any death is worth another look; so is a short while, for a child that was born between the two.
        if clean == 0 {
            wait_for_any(&left, (until - now).min(Duration::from_millis(20)));
        }
    }
}

/// Reaps every child that has ended; `true` when no child is left.
pub(super) fn reap(reaped: &mut impl FnMut(Pid, i32)) -> bool {
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) => reaped(pid, status.as_raw()),
            Ok(None) => return false,
            Err(Errno::INTR) => {}
            // ECHILD.
            Err(_) => return true,
        }
    }
}

fn wait_for_any(pids: &[Pid], limit: Duration) {
    let open: Vec<OwnedFd> =
        pids.iter().take(64).filter_map(|pid| pidfd_open(*pid, PidfdFlags::empty()).ok()).collect();
    let mut fds: Vec<PollFd<'_>> = open.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    let timeout = Timespec::try_from(limit).ok();
    let _ = poll(&mut fds, timeout.as_ref());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_and_grandchildren_are_found() {
        // The first shell waits for the second, which waits for its input to end.
        let mut child = std::process::Command::new("/bin/sh")
            .args(["-c", "/bin/sh -c 'echo ready; read x'; true"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.as_mut().unwrap()), &mut line).unwrap();
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        let grandchildren = of(pid, None);
        assert_eq!(grandchildren.len(), 1, "{grandchildren:?}");
        assert_eq!(parent_of(grandchildren[0]), Some(pid));
        assert_eq!(children_by_search(pid), grandchildren);
        assert!(of(pid, Some(grandchildren[0])).is_empty());
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(of(pid, None).is_empty());
    }
}
