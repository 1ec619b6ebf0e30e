//! The agent's parent: a process that does nothing but outlive it.
//!
//! When the agent is killed, everything it had started becomes a child of the guard (a child subreaper), which kills
//! it all: also what a wrapper script left behind, what changed its session, and what cleared its environment. When
//! the guard is killed, the agent notices and ends the job.

use super::descendants;
use crate::exit::{ExitCode, signal_name};
use crate::sys::{self, Fork};
use rustix::process::{Pid, WaitOptions, set_child_subreaper, waitpid};
use std::io::Write;
use std::time::Duration;

/// How long the guard tries to end what is left.
const LIMIT: Duration = Duration::from_secs(1);

/// Forks; returns in the child, with the guard's process id. The guard itself never returns.
///
/// # Errors
/// When the kernel refuses.
pub(super) fn enter() -> std::io::Result<Pid> {
    let guard = rustix::process::getpid();
    set_child_subreaper(Some(guard))?;
    match sys::fork()? {
        Fork::Child => {
            set_child_subreaper(Some(rustix::process::getpid()))?;
            Ok(guard)
        }
        Fork::Parent(agent) => std::process::exit(i32::from(guard_over(agent))),
    }
}

/// Waits for the agent's end, ends what it left, and tells how it ended.
fn guard_over(agent: Pid) -> u8 {
    let status = loop {
        match waitpid(Some(agent), WaitOptions::empty()) {
            Ok(Some((_, status))) => break Some(status),
            Err(rustix::io::Errno::INTR) | Ok(None) => {}
            Err(_) => break None,
        }
    };
    let clean = descendants::end_all(LIMIT, None, |_, _| {});
    let mut stderr = std::io::stderr();
    if !clean {
        let _ = writeln!(stderr, "processes of the job could not be killed");
    }
    match status.map(|s| (s.exit_status(), s.terminating_signal())) {
        Some((Some(code), _)) => u8::try_from(code).unwrap_or(u8::MAX),
        Some((_, Some(signal))) => {
            let _ =
                writeln!(stderr, "the agent process {} was killed by {}", agent.as_raw_nonzero(), signal_name(signal));
            ExitCode::Internal.number()
        }
        _ => ExitCode::Internal.number(),
    }
}
