//! The project's programs as tests run them: built first, with a time limit, their output kept in memory.
//!
//! Output goes to memory files, not to pipes: a process that outlives the program it was started by, which some tests
//! provoke, cannot make the reader wait.

use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// What `cargo build` needs to build `rsrun` and the examples, and nothing that only their tests need. The whole workspace
/// is chosen, because cargo builds crates once more for every other choice of packages that wants other features of them.
pub const BUILD: &[&str] = &[
    "build",
    "--workspace",
    "--bin",
    "rsrun",
    "--example",
    "hello",
    "--example",
    "pingpong",
    "--example",
    "train",
    "--example",
    "halo",
];

/// Where the programs were built.
#[derive(Clone, Debug)]
pub struct Programs {
    folder: PathBuf,
}

impl Programs {
    /// Builds `rsrun` and the examples in the profile of the calling test, unless they are up to date; `more` is added
    /// to the command line of `cargo build`.
    ///
    /// # Panics
    /// They do not build, or the caller is no test that cargo built.
    #[must_use]
    pub fn build(more: &[&str]) -> Self {
        // target/PROFILE/deps/TEST
        let test = std::env::current_exe().expect("a test knows its own path");
        let folder = test.ancestors().nth(2).expect("cargo puts tests two folders deep").to_owned();
        let programs = Self { folder };
        if std::env::var_os("SUDO_UID").is_some() {
            // Only the tests run as root; what cargo writes must stay the user's. `cargo xtask test` has built.
            return programs;
        }
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(BUILD).arg("--quiet").args(more);
        if programs.folder.ends_with("release") {
            cargo.arg("--release");
        }
        let status = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).status().expect("cargo runs");
        assert!(status.success(), "rsrun and the examples do not build");
        programs
    }

    /// The launcher.
    #[must_use]
    pub fn rsrun(&self) -> PathBuf {
        self.folder.join("rsrun")
    }

    /// An example.
    #[must_use]
    pub fn example(&self, name: &str) -> PathBuf {
        self.folder.join("examples").join(name)
    }

    /// `rsrun` with some arguments, without settings from the caller's environment or home.
    #[must_use]
    pub fn launch(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.rsrun());
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("RSRUN_") || text == "RDMA_LOW_LATENCY_HINT" || text == "XDG_CONFIG_HOME" {
                command.env_remove(&name);
            }
        }
        command.env("HOME", "/nonexistent").args(arguments);
        command
    }
}

/// What a program left when it ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The command line, for messages.
    pub command: String,
    /// How it ended.
    pub status: ExitStatus,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
    /// How long it ran.
    pub time: Duration,
}

impl Outcome {
    /// The exit code as a shell shows it: 128 + N after signal N.
    ///
    /// # Panics
    /// The program was stopped, not ended.
    #[must_use]
    pub fn code(&self) -> i32 {
        let signal = || self.status.signal().map(|signal| 128 + signal);
        self.status.code().or_else(signal).expect("it ended")
    }

    /// Itself, if the exit code was 0.
    ///
    /// # Panics
    /// It was not; the message holds everything the program said.
    #[must_use]
    pub fn succeeded(self) -> Self {
        assert_eq!(self.code(), 0, "{self}");
        self
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { command, status, stdout, stderr, time } = self;
        write!(f, "`{command}`: {status} after {time:.1?}\n--- stdout\n{stdout}\n--- stderr\n{stderr}")
    }
}

/// A program that runs.
#[derive(Debug)]
pub struct Running {
    command: String,
    child: Child,
    stdout: File,
    stderr: File,
    begun: Instant,
}

impl Running {
    /// Starts a program, with every signal at its default.
    ///
    /// # Panics
    /// It cannot be started.
    #[must_use]
    pub fn start(command: &mut Command) -> Self {
        Self::writing_to(command, None)
    }

    /// As [`Running::start`], with standard output elsewhere than in what is kept.
    fn writing_to(command: &mut Command, elsewhere: Option<Stdio>) -> Self {
        let memory = |name: &str| File::from(memfd_create(name, MemfdFlags::CLOEXEC).expect("memory for output"));
        let (stdout, stderr) = (memory("stdout"), memory("stderr"));
        let share = |file: &File| Stdio::from(file.try_clone().expect("one more descriptor"));
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        let text = words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
        command.stdin(Stdio::null()).stderr(share(&stderr));
        command.stdout(elsewhere.unwrap_or_else(|| share(&stdout)));
        let child = crate::process::with_default_signals(command).spawn();
        let child = child.unwrap_or_else(|error| panic!("`{text}` does not start: {error}"));
        Self { command: text, child, stdout, stderr, begun: Instant::now() }
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it wrote to standard output until now.
    #[must_use]
    pub fn stdout(&self) -> String {
        content(&self.stdout)
    }

    /// What it wrote to standard error until now.
    #[must_use]
    pub fn stderr(&self) -> String {
        content(&self.stderr)
    }

    /// Waits until its standard output contains a text.
    ///
    /// # Panics
    /// It ends before, or the limit passes.
    pub fn wait_for(&mut self, text: &str, limit: Duration) {
        while !self.stdout().contains(text) {
            let ended = matches!(self.child.try_wait(), Ok(Some(_)));
            if (ended && !self.stdout().contains(text)) || self.begun.elapsed() > limit {
                let _ = self.child.kill();
                panic!(
                    "`{}` did not say '{text}' within {limit:?}\n--- stdout\n{}\n--- stderr\n{}",
                    self.command,
                    self.stdout(),
                    self.stderr()
                );
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// It runs on past the limit: then it is killed, and the message holds what it said.
    #[must_use]
    pub fn finish(mut self, limit: Duration) -> Outcome {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait().expect("a child can be waited for") {
                let time = self.begun.elapsed();
                let (stdout, stderr) = (self.stdout(), self.stderr());
                return Outcome { command: self.command, status, stdout, stderr, time };
            }
            if Instant::now() > deadline {
                let _ = self.child.kill();
                let _ = self.child.wait();
                panic!(
                    "`{}` runs longer than {limit:?}\n--- stdout\n{}\n--- stderr\n{}",
                    self.command,
                    self.stdout(),
                    self.stderr()
                );
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Runs a program to its end.
///
/// # Panics
/// As [`Running::start`] and [`Running::finish`].
#[must_use]
pub fn run(command: &mut Command, limit: Duration) -> Outcome {
    Running::start(command).finish(limit)
}

/// Runs a program to its end whose standard output is a pipe that nobody reads, as behind `| head -1` from the second line on.
///
/// # Panics
/// As [`run`].
#[must_use]
pub fn run_without_reader(command: &mut Command, limit: Duration) -> Outcome {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    Running::writing_to(command, Some(writer.into())).finish(limit)
}

/// Processes that run one of some programs.
#[must_use]
pub fn processes_of(programs: &[&Path]) -> Vec<(u32, String)> {
    let runs = |pid: &u32| {
        let exe = std::fs::read_link(format!("/proc/{pid}/exe"));
        exe.is_ok_and(|exe| programs.contains(&exe.as_path()))
    };
    crate::process::all_pids().into_iter().filter(runs).map(|pid| (pid, crate::process::command_of(pid))).collect()
}

fn content(file: &File) -> String {
    let mut bytes = Vec::new();
    let mut buffer = [0_u8; 4096];
    while let Ok(count @ 1..) = file.read_at(&mut buffer, bytes.len() as u64) {
        bytes.extend_from_slice(&buffer[..count]);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(20);

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn output_and_exit_code_are_kept() {
        let outcome = run(&mut shell("echo out; echo err >&2; exit 7"), LIMIT);
        assert_eq!((outcome.code(), &*outcome.stdout, &*outcome.stderr), (7, "out\n", "err\n"));
    }

    #[test]
    fn a_signal_counts_as_128_and_its_number() {
        assert_eq!(run(&mut shell("kill -KILL $$"), LIMIT).code(), 137);
    }

    #[test]
    fn a_grandchild_that_holds_the_output_does_not_delay_the_end() {
        let outcome = run(&mut shell("sleep 30 & echo $!"), LIMIT);
        assert!(outcome.time < LIMIT);
        let pid = outcome.stdout.trim().parse().expect("a process id");
        crate::process::Process::of(pid).expect("it still sleeps").kill();
    }

    #[test]
    #[should_panic(expected = "runs longer than")]
    fn a_program_that_does_not_end_is_killed_and_named() {
        let _ = run(&mut shell("echo begun; exec sleep 30"), Duration::from_millis(200));
    }
}
