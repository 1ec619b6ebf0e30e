//! Starts the ranks of every library through its own launcher, in turn, and collects their runs.

use crate::hosts::Hosts;
use crate::measure::{Plan, Transport};
use crate::peers::{Installed, Start};
use crate::port::Failure;
use crate::record::Run;
use rustix::process::{Pid, Signal, getppid, kill_process_group, set_parent_process_death_signal};
use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The name of this project's library among the others.
pub const OWN: &str = "rsrun";

/// What to start.
#[derive(Clone, Debug)]
pub struct Job {
    /// How many ranks.
    pub ranks: usize,
    /// On which hosts; without any, on this one.
    pub hosts: Option<Hosts>,
    /// What they measure.
    pub plan: Plan,
    /// How often each library has its turn.
    pub turns: usize,
    /// Other libraries.
    pub peers: Vec<Installed>,
    /// More options for `rsrun`.
    pub options: Vec<OsString>,
    /// How long one run may take.
    pub limit: Duration,
}

/// Runs every library in every turn. `tell` hears what is about to be done.
///
/// # Errors
/// A run of our own failed. A peer that fails is named to `complain` and left out from then on.
pub fn run(job: &Job, mut tell: impl FnMut(&str), mut complain: impl FnMut(&str)) -> Result<Vec<Run>, Failure> {
    let rsrun = rsrun()?;
    let own = std::env::current_exe()?;
    let plan = OsString::from(serde_json::to_string(&job.plan)?);
    let start = Start {
        ranks: job.ranks,
        // Hosts may be parts of one machine, which would all choose the same core.
        bound: job.hosts.is_none() && job.ranks <= std::thread::available_parallelism().map_or(1, usize::from),
        transport: job.plan.transport.unwrap_or(if job.hosts.is_some() { Transport::Tcp } else { Transport::Shm }),
        hosts: job.hosts.as_ref(),
    };
    let mut peers: Vec<&Installed> = job.peers.iter().collect();
    let mut runs = Vec::new();
    for turn in 0..job.turns {
        // Ours first in one turn, last in the next: whatever a run leaves behind hits everyone.
        let order: Vec<Option<&Installed>> = std::iter::once(None).chain(peers.iter().copied().map(Some)).collect();
        let order: Vec<_> = if turn % 2 == 0 { order } else { order.into_iter().rev().collect() };
        for peer in order {
            let name = peer.map_or(OWN, |peer| peer.peer.name);
            tell(&format!("turn {} of {}: {name}", turn + 1, job.turns));
            let command = match peer {
                Some(peer) => peer.command(start, std::slice::from_ref(&plan)),
                None => {
                    let mut command = Command::new(&rsrun);
                    command.args(["-n", &job.ranks.to_string()]).args(&job.options);
                    if start.transport == Transport::Tcp {
                        command.args(["--set", "transport.allow=tcp"]);
                    }
                    match start.hosts {
                        Some(hosts) => command.arg("-hostfile").arg(hosts.file()).args(["--bind-to", "none"]),
                        None if start.bound => &mut command,
                        None => command.arg("--oversubscribe"),
                    };
                    command.arg(&own).arg("rank").arg(&plan);
                    command
                }
            };
            let launcher = command.get_program().to_string_lossy();
            match (once(&launcher, &mut leashed(&own, &command), job.limit), peer) {
                (Ok(mut run), peer) => {
                    name.clone_into(&mut run.library);
                    run.turn = turn;
                    if let Some(peer) = peer {
                        run.settings = peer.settings(start);
                        let options = peer.options(start).join(OsStr::new(" "));
                        run.settings.insert("launcher".into(), options.to_string_lossy().into_owned());
                    }
                    runs.push(run);
                }
                (Err(error), None) => return Err(error),
                (Err(error), Some(failed)) => {
                    complain(&format!("{name} is left out from here on: {error}"));
                    peers.retain(|other| other.peer.name != failed.peer.name);
                }
            }
        }
    }
    Ok(runs)
}

/// The launcher beside this program.
fn rsrun() -> Result<PathBuf, Failure> {
    let path = std::env::current_exe()?.with_file_name("rsrun");
    if path.is_file() {
        return Ok(path);
    }
    Err(format!("{} is not there: cargo build --release -p rsrun -p rsbench", path.display()).into())
}

/// The same command by way of [`leash`] of the program `own`: a launcher outlives this program in no way, however this one ends.
fn leashed(own: &Path, command: &Command) -> Command {
    let mut leashed = Command::new(own);
    leashed.arg("leash").arg(std::process::id().to_string()).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => leashed.env(name, value),
            None => leashed.env_remove(name),
        };
    }
    leashed
}

/// Becomes a launcher that is asked to end, as `kill` does, which lets it end its ranks, when its parent `parent` is gone.
/// Ranks of some libraries spin for ever otherwise. Comes back only with an error.
///
/// # Errors
/// The parent is gone, or the program cannot be started.
pub fn leash(parent: u32, program: &[OsString]) -> Result<Infallible, Failure> {
    set_parent_process_death_signal(Some(Signal::TERM))?;
    // It may have died before the line above took effect.
    let alive = getppid().is_some_and(|now| u32::try_from(now.as_raw_nonzero().get()) == Ok(parent));
    let (program, arguments) = program.split_first().filter(|_| alive).ok_or("rsbench itself starts launchers so")?;
    let error = Command::new(program).args(arguments).exec();
    Err(format!("{}: {error}", program.display()).into())
}

/// Runs a launcher of that name to its end and finds the run in what its rank 0 wrote.
fn once(name: &str, command: &mut Command, limit: Duration) -> Result<Run, Failure> {
    // Files, not pipes: a process that outlives its launcher cannot make us wait.
    let memory = || rustix::fs::memfd_create("output", rustix::fs::MemfdFlags::CLOEXEC).map(File::from);
    let (mut output, mut errors) = (memory()?, memory()?);
    command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(errors.try_clone()?).process_group(0);
    let mut child = command.spawn().map_err(|error| format!("{name}: {error}"))?;
    let until = Instant::now() + limit;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if Instant::now() > until {
            end(&mut child)?;
            break None;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let content = |file: &mut File| -> Result<String, Failure> {
        let mut bytes = Vec::new();
        file.rewind()?;
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let (said, complained) = (content(&mut output)?, content(&mut errors)?);
    let last = || {
        let lines = complained.lines().chain(said.lines());
        let lines: Vec<&str> =
            lines.filter(|line| !line.trim().is_empty() && !line.starts_with(crate::MARKER)).collect();
        lines[lines.len().saturating_sub(12)..].join("\n    ")
    };
    match status {
        None => Err(format!("{name} took longer than {} s (--limit)\n    {}", limit.as_secs(), last()).into()),
        Some(status) if !status.success() => Err(format!("{name} failed ({status})\n    {}", last()).into()),
        Some(_) => {
            let text = said.lines().find_map(|line| line.strip_prefix(crate::MARKER));
            let text = text.ok_or_else(|| format!("{name} ended without a result\n    {}", last()))?;
            Ok(serde_json::from_str(text)?)
        }
    }
}

/// Ends a launcher with all that it started: first by asking, which lets it end its ranks.
fn end(child: &mut std::process::Child) -> Result<(), Failure> {
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or("a process has an id")?;
    let _ = kill_process_group(group, Signal::TERM);
    for _ in 0..400 {
        if child.try_wait()?.is_some() {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    // Also what the launcher has left.
    let _ = kill_process_group(group, Signal::KILL);
    child.wait()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::samples::record;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_run_is_found_among_what_launchers_and_libraries_say() {
        let run = record(&[("rsrun", 0.05, 0.2)]).runs.remove(0);
        let text = serde_json::to_string(&run).expect("it can be written");
        let found = once(
            "sh",
            &mut shell(&format!("echo hello; echo '{}{text}'; echo bye", crate::MARKER)),
            Duration::from_secs(60),
        );
        assert_eq!(found.expect("it is there"), run);
    }

    #[test]
    fn a_failure_shows_what_the_launcher_said() {
        let error =
            once("sh", &mut shell("echo no network >&2; exit 3"), Duration::from_secs(60)).expect_err("it failed");
        assert!(error.to_string().contains("exit status: 3") && error.to_string().contains("no network"), "{error}");
        let error = once("sh", &mut shell("true"), Duration::from_secs(60)).expect_err("it says nothing");
        assert!(error.to_string().contains("without a result"), "{error}");
    }

    #[test]
    fn a_run_that_hangs_is_ended_with_all_that_it_started() {
        let error =
            once("sh", &mut shell("sleep 4321 & echo $!; wait"), Duration::from_millis(300)).expect_err("it hangs");
        let text = error.to_string();
        assert!(text.contains("longer than"), "{text}");
        let pid = text.lines().last().expect("the pid").trim();
        // Gone, or a zombie that somebody else has to collect.
        let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        assert!(state.is_empty() || state.contains(") Z "), "{state}");
    }
}
