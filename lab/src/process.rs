//! Processes as `/proc` shows them, and commands whose failure says what was run.
//!
//! A process is known by its id *and* its start time, so that a reused id is never killed by mistake.

use crate::{LabError, Result};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A process that cannot be confused with a later one of the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its id in the namespace of the caller.
    pub pid: u32,
    /// When it started, in clock ticks since boot.
    pub started: u64,
}

impl Process {
    /// The process with this id now, if there is one that is not a zombie.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name may hold blanks and brackets: fields count from the last bracket.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        if matches!(*fields.first()?, "Z" | "X") {
            return None;
        }
        Some(Self { pid, started: fields.get(19)?.parse().ok()? })
    }

    /// Whether this very process still runs.
    #[must_use]
    pub fn is_alive(self) -> bool {
        Self::of(self.pid) == Some(self)
    }

    /// Sends SIGKILL if this very process still runs, and takes its exit status if it was a child of ours.
    pub fn kill(self) {
        if self.is_alive() {
            self.signal(rustix::process::Signal::KILL);
        }
        self.reap();
    }

    /// Sends a signal; a process that is gone is no error.
    pub fn signal(self, signal: rustix::process::Signal) {
        if let Some(pid) = self.raw() {
            let _ = rustix::process::kill_process(pid, signal);
        }
    }

    /// Takes the exit status if the process was a child of ours and has ended.
    pub fn reap(self) {
        // Without an id `waitpid` would take the status of any child.
        if let Some(pid) = self.raw() {
            let _ = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::NOHANG);
        }
    }

    fn raw(self) -> Option<rustix::process::Pid> {
        rustix::process::Pid::from_raw(i32::try_from(self.pid).ok()?)
    }
}

/// As in a lab's state file: id and start time.
impl std::fmt::Display for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.pid, self.started)
    }
}

/// Reads what `Display` wrote, as two words.
pub(crate) fn from_words(pid: &str, started: &str) -> Option<Process> {
    Some(Process { pid: pid.parse().ok()?, started: started.parse().ok()? })
}

/// Gives every signal its default action in the process that this command starts, from its first instruction on.
///
/// A program inherits what its parent ignores, and stays deaf to it: `nohup` ignores SIGHUP, a shell without job control
/// SIGINT and SIGQUIT in what it starts in the background, and some CI systems start tests like that. Whoever starts a
/// program in order to interrupt it cannot leave that to chance. (`env --default-signal` does the same too late: a signal
/// that comes before `env` has run is lost.)
pub fn with_default_signals(command: &mut Command) -> &mut Command {
    crate::sys::with_default_signals(command)
}

/// Kills processes and waits until they are gone.
pub(crate) fn end(processes: &[Process]) -> Result<()> {
    for process in processes {
        process.kill();
    }
    let deadline = Instant::now() + Duration::from_secs(5);
    for process in processes {
        while process.is_alive() {
            if Instant::now() > deadline {
                let what = format!("process {} ({})", process.pid, command_of(process.pid));
                return Err(LabError::Survivor { what });
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        process.reap();
    }
    Ok(())
}

/// A process inside a process namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inside {
    /// The process, with its id outside the namespace.
    pub process: Process,
    /// Its id within the namespace; 1 is the namespace's first process.
    pub inner_pid: u32,
    /// Its arguments joined by blanks, or its name when it has none.
    pub command: String,
}

/// Every process whose process namespace is the one that `ns_file` (as `/proc/1/ns/pid`) names.
#[must_use]
pub fn in_namespace(ns_file: &Path) -> Vec<Inside> {
    let Ok(namespace) = fs::read_link(ns_file) else { return Vec::new() };
    let mut found = BTreeMap::new();
    for pid in all_pids() {
        if fs::read_link(format!("/proc/{pid}/ns/pid")).is_ok_and(|other| other == namespace)
            && let Some(process) = Process::of(pid)
        {
            let inside = Inside { process, inner_pid: inner_pid(pid), command: command_of(pid) };
            found.insert(pid, inside);
        }
    }
    found.into_values().collect()
}

/// The ids of all processes.
#[must_use]
pub fn all_pids() -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// The arguments of a process joined by blanks, or its name when it has none; empty when it is gone.
#[must_use]
pub fn command_of(pid: u32) -> String {
    let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let text = String::from_utf8_lossy(&arguments).replace('\0', " ").trim().to_owned();
    if text.is_empty() {
        fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned()
    } else {
        text
    }
}

fn inner_pid(pid: u32) -> u32 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    line.and_then(|ids| ids.split_whitespace().last()?.parse().ok()).unwrap_or(0)
}

/// Runs a program to its end and returns its standard output.
///
/// # Errors
/// The program could not be started or did not exit with 0; the message holds the command and its standard error.
pub fn output(program: &str, arguments: &[&str]) -> Result<String> {
    run(Command::new(program).args(arguments), "")
}

/// As [`output`], with `input` as the program's standard input.
///
/// # Errors
/// As [`output`].
pub fn run(command: &mut Command, input: &str) -> Result<String> {
    let line = describe(command);
    let failed = |reason: String| LabError::Command { command: line.clone(), reason };
    let mut child = command
        .stdin(if input.is_empty() { Stdio::null() } else { Stdio::piped() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| failed(error.to_string()))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that ended without reading shows its own reason below.
        let _ = stdin.write_all(input.as_bytes());
    }
    let result = child.wait_with_output().map_err(|error| failed(error.to_string()))?;
    if result.status.success() {
        return Ok(String::from_utf8_lossy(&result.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&result.stderr).trim().to_owned();
    Err(failed(if said.is_empty() { result.status.to_string() } else { said }))
}

fn describe(command: &Command) -> String {
    let arguments = command.get_args().map(|argument| argument.to_string_lossy());
    std::iter::once(command.get_program().to_string_lossy()).chain(arguments).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_itself_and_not_another_of_the_same_id() {
        let me = Process::of(std::process::id()).expect("this process runs");
        assert!(me.is_alive());
        assert!(!Process { started: me.started + 1, ..me }.is_alive());
    }

    #[test]
    fn a_killed_child_is_gone_and_no_zombie() {
        let mut child = Command::new("sleep").arg("60").spawn().expect("sleep starts");
        let process = Process::of(child.id()).expect("it runs");
        process.kill();
        // `wait` fails when `kill` has taken the status already, and takes it otherwise.
        let _ = child.wait();
        assert!(!process.is_alive());
        assert!(!Path::new(&format!("/proc/{}", process.pid)).exists());
    }

    #[test]
    fn this_process_is_in_its_own_namespace() {
        let all = in_namespace(Path::new("/proc/self/ns/pid"));
        assert!(all.iter().any(|inside| inside.process.pid == std::process::id()));
    }

    #[test]
    fn a_failing_command_says_what_was_run_and_what_it_said() {
        let error = output("sh", &["-c", "echo no such thing >&2; exit 3"]).expect_err("it fails");
        let text = error.to_string();
        assert!(text.contains("sh -c"), "{text}");
        assert!(text.contains("no such thing"), "{text}");
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = output("no-such-program-here", &[]).expect_err("it is missing");
        assert!(error.to_string().contains("no-such-program-here"), "{error}");
    }

    #[test]
    fn a_program_begins_with_every_signal_at_its_default_whatever_the_tests_ignore() {
        // Once more, by a process that ignores what a background job of a script ignores.
        const AGAIN: &str = "SPMD_LAB_TEST_IGNORES";
        if std::env::var_os(AGAIN).is_none() {
            let test = std::env::current_exe().expect("a test knows its own path");
            let mut env = Command::new("env");
            env.args(["--ignore-signal=INT", "--ignore-signal=QUIT", "--ignore-signal=USR1"]).arg(test).env(AGAIN, "1");
            env.args(["--exact", std::thread::current().name().expect("tests have names")]);
            let result = env.output().expect("env starts");
            assert!(result.status.success(), "{}", String::from_utf8_lossy(&result.stdout));
            return;
        }
        let ignored = |command: &mut Command| {
            let result = command.args(["SigIgn", "/proc/self/status"]).output().expect("grep starts");
            let line = String::from_utf8_lossy(&result.stdout).into_owned();
            let mask = line.split_whitespace().nth(1).and_then(|mask| u64::from_str_radix(mask, 16).ok());
            // 32 and 33 belong to the C library: nobody can change them.
            mask.unwrap_or_else(|| panic!("no mask: {line}")) & !(3 << 31)
        };
        assert_eq!(ignored(&mut Command::new("grep")), 1 << 1 | 1 << 2 | 1 << 9);
        assert_eq!(ignored(with_default_signals(&mut Command::new("grep"))), 0);
    }
}
