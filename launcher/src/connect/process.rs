//! An agent behind a child process: the local agent itself, `ssh`, or any other command.
//!
//! Carries bytes between the child's pipes and the link; decides how long a child may take to go away.

use super::child::{Child, Start};
use super::waiting::{is_ready, poll_for};
use super::{Outgoing, Session, command, retry};
use crate::exit::{ExitCode, Failure};
use rustix::event::{PollFd, PollFlags};
use rustix::process::{PidfdFlags, Signal, WaitStatus, kill_process_group, pidfd_open};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::process::Command;
use std::time::Duration;

/// How long a local agent may take to clean up after the end of its input.
const LOCAL_END: Duration = Duration::from_millis(2500);
/// How long another command may take to end after the end of its output.
const EXTERNAL_END: Duration = Duration::from_millis(500);
/// How long one that leads to an agent may take after the end of its input: as long as agents take to end their ranks.
const EXTERNAL_CLOSE: Duration = Duration::from_millis(1000);

/// Whose child it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The agent itself: cleans up when its input ends, must not be killed before.
    Local,
    /// A command that leads to an agent: dies with us, is killed when it does not end with the link.
    External,
}

/// Why the pumping ended.
enum End {
    OutputClosed,
    Closed,
    Failed(Failure),
}

pub(super) fn run(session: &mut Session, command: &Command, kind: Kind) -> Failure {
    let program = command.get_program().to_string_lossy().into_owned();
    session.intake.stage(if kind == Kind::Local {
        "starting the agent".to_string()
    } else {
        format!("running {program}")
    });
    let start = Start {
        name: (kind == Kind::Local).then_some(command::OWN_NAME),
        open_files: session.how.open_files,
        dies_with_us: kind == Kind::External,
        inherited: session.how.stdin.as_deref().filter(|_| kind == Kind::Local),
    };
    let mut child = match Child::start(command, &start) {
        Ok(child) => child,
        Err(error) => {
            let host = &session.spec.name;
            return Failure::new(ExitCode::Unreachable, format!("host {host}: `{program}` cannot be run: {error}"));
        }
    };
    let end = pump(session, &mut child).unwrap_or_else(|error| {
        End::Failed(Failure::new(ExitCode::Internal, format!("host {}: {error}", session.spec.name)))
    });
    drop(child.stdin.take());
    let patience = match (kind, &end) {
        (Kind::Local, _) => LOCAL_END,
        (Kind::External, End::OutputClosed) => EXTERNAL_END,
        (Kind::External, _) if session.intake.stream.is_open() => EXTERNAL_CLOSE,
        (Kind::External, _) => Duration::ZERO,
    };
    let status = end_child(&mut child, patience);
    // What the command said on its way out explains it best; it is there already.
    if let Some(mut stderr) = child.stderr.take() {
        let mut rest = [0_u8; 4096];
        while let Ok(n @ 1..) = stderr.read(&mut rest) {
            session.intake.error_output(&rest[..n]);
        }
    }
    let described = describe(status);
    let code = status.and_then(|s| s.exit_status());
    match end {
        End::Failed(failure) => failure,
        _ if session.intake.stream.is_open() => session.lost(&described, code),
        _ => {
            if kind == Kind::External {
                session.cause = retry::cause(code, &session.intake.said());
            }
            session.not_started(&format!("`{program}` {described}"), code)
        }
    }
}

fn pump(session: &mut Session, child: &mut Child) -> io::Result<End> {
    let (Some(mut stdout), Some(stderr)) = (child.stdout.take(), child.stderr.as_mut()) else {
        return Err(io::Error::other("the child has no pipes"));
    };
    for fd in [stdout.as_fd(), stderr.as_fd()] {
        rustix::io::ioctl_fionbio(fd, true)?;
    }
    if let Some(stdin) = &child.stdin {
        rustix::io::ioctl_fionbio(stdin, true)?;
    }
    let mut outgoing = Outgoing::default();
    let mut buffer = vec![0_u8; 64 << 10];
    let mut stderr_open = true;
    loop {
        if session.inbox.take(&mut outgoing) {
            return Ok(End::Closed);
        }
        if let Some(stdin) = &mut child.stdin
            && outgoing.flush(|bytes| stdin.write(bytes)).is_err()
        {
            // The agent does not listen any more. What it said last still counts, so reading goes on.
            child.stdin = None;
        }
        let mut fds = vec![PollFd::new(&session.inbox.waker, PollFlags::IN)];
        let mut add = |fd, flags| {
            fds.push(PollFd::from_borrowed_fd(fd, flags));
            fds.len() - 1
        };
        let out_at = Some(add(stdout.as_fd(), PollFlags::IN));
        let err_at = stderr_open.then(|| add(stderr.as_fd(), PollFlags::IN));
        if let Some(stdin) = child.stdin.as_ref().filter(|_| !outgoing.is_empty()) {
            add(stdin.as_fd(), PollFlags::OUT);
        }
        poll_for(&mut fds, None)?;
        let ready = |at: Option<usize>| at.is_some_and(|at| is_ready(&fds[at]));
        let (out_ready, err_ready) = (ready(out_at), ready(err_at));
        drop(fds);
        if err_ready {
            match stderr.read(&mut buffer) {
                Ok(0) => stderr_open = false,
                Ok(n) => session.intake.error_output(&buffer[..n]),
                Err(error) if would_block(&error) => {}
                Err(_) => stderr_open = false,
            }
        }
        if out_ready {
            match stdout.read(&mut buffer) {
                Ok(0) => return Ok(End::OutputClosed),
                Ok(n) => {
                    if let Err(error) = session.intake.output(&buffer[..n]) {
                        return Ok(End::Failed(session.not_understood(&error)));
                    }
                }
                Err(error) if would_block(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

fn would_block(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Waits for the child, bounded, and kills what does not go.
fn end_child(child: &mut Child, patience: Duration) -> Option<WaitStatus> {
    if let Some(status) = wait(child, patience) {
        return Some(status);
    }
    let _ = kill_process_group(child.pid, Signal::KILL);
    wait(child, Duration::from_secs(1))
}

fn wait(child: &mut Child, patience: Duration) -> Option<WaitStatus> {
    if let Some(status) = child.ended() {
        return Some(status);
    }
    let pidfd = pidfd_open(child.pid, PidfdFlags::empty()).ok()?;
    let mut fds = [PollFd::new(&pidfd, PollFlags::IN)];
    poll_for(&mut fds, Some(patience)).ok()?;
    child.ended()
}

fn describe(status: Option<WaitStatus>) -> String {
    match status.map(|s| (s.exit_status(), s.terminating_signal())) {
        Some((Some(code), _)) => format!("ended with exit code {code}"),
        Some((_, Some(signal))) => format!("was killed by {}", crate::exit::signal_name(signal)),
        _ => "did not end".to_string(),
    }
}
