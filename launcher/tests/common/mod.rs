//! What the launcher's tests share: running it with a time limit in a private home, and looking for what it left.
#![allow(dead_code, unreachable_pub, missing_docs, missing_debug_implementations)]

use spmd_lab::process::with_default_signals;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Longer than anything here may take; reaching it is a failure.
pub const LIMIT: Duration = Duration::from_secs(30);

/// A place of its own for one test: home, files, and a mark by which every process of its jobs can be found.
pub struct Place {
    pub home: tempfile::TempDir,
    pub mark: String,
}

impl Place {
    pub fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Self { home: tempfile::tempdir().unwrap(), mark: format!("rsrun-test-{}-{number}-", std::process::id()) }
    }

    /// `rsrun` in this place, without anything of the machine's own configuration, and with every signal at its default,
    /// also when the tests run under nohup or in the background.
    pub fn rsrun(&self) -> Command {
        let mut command = Command::new(binary());
        with_default_signals(&mut command);
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy();
            if name.starts_with("RSRUN_")
                || name.starts_with("SPMD_")
                || name.starts_with("XDG_")
                || name.starts_with("OMPI_")
            {
                command.env_remove(&*name);
            }
        }
        command.env("HOME", self.home.path()).env_remove("SSH_AUTH_SOCK");
        command.args(["-x", &format!("TEST_MARK={}", self.mark)]);
        command.stdin(Stdio::null());
        command
    }

    /// Runs `rsrun` with these words.
    pub fn run<S: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = S>) -> Ended {
        let mut command = self.rsrun();
        command.args(words);
        finish(start(&mut command))
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.home.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    /// An executable script.
    pub fn script(&self, name: &str, text: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt;
        let path = self.write(name, text);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// The processes that carry this place's mark in their environment or arguments.
    pub fn processes(&self) -> Vec<String> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let pid = entry.file_name().to_string_lossy().into_owned();
            if pid.parse::<u32>().is_err() || pid == std::process::id().to_string() {
                continue;
            }
            let read = |name: &str| std::fs::read(entry.path().join(name)).unwrap_or_default();
            let (arguments, environment) = (read("cmdline"), read("environ"));
            let has = |bytes: &[u8]| bytes.windows(self.mark.len()).any(|w| w == self.mark.as_bytes());
            if has(&arguments) || has(&environment) {
                found.push(format!("{pid} {}", String::from_utf8_lossy(&arguments).replace('\0', " ")));
            }
        }
        found
    }

    /// Fails when a process of this place is still there.
    #[track_caller]
    pub fn assert_nothing_left(&self) {
        let left = self.processes();
        assert!(left.is_empty(), "left behind: {left:#?}");
    }

    /// Waits until no process of this place is there (for deaths that nobody reports to us).
    #[track_caller]
    pub fn wait_until_nothing_left(&self) {
        wait_until("no process is left", || self.processes().is_empty());
    }
}

/// The launcher.
pub fn binary() -> &'static str {
    env!("CARGO_BIN_EXE_rsrun")
}

/// The program `examples/rank.rs`.
pub fn rank_program() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| example_program("rank")).clone()
}

/// The program `examples/fake_agent.rs`, a stand-in for agents.
pub fn fake_agent() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| example_program("fake_agent")).clone()
}

/// A program of `examples/`. Plain `cargo test` builds it along, `cargo test --test NAME` does not.
pub fn example_program(name: &str) -> PathBuf {
    let folder = Path::new(binary()).parent().unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    // The whole workspace, as in `cargo xtask test`: another choice of packages would build most crates once more.
    cargo.args(["build", "--quiet", "--workspace", "--example", name]);
    if folder.ends_with("release") {
        cargo.arg("--release");
    }
    assert!(cargo.status().unwrap().success(), "examples/{name}.rs cannot be built");
    folder.join("examples").join(name)
}

/// A run that has ended.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl Ended {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// The lines of standard error, but for one that depends on the machine of the tests: it may have fewer cores than a
    /// job has ranks.
    pub fn told(&self) -> impl Iterator<Item = &str> {
        self.stderr.lines().filter(|line| !line.contains("waiting gives way"))
    }

    /// The lines of standard output, sorted.
    pub fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.text().lines().map(str::to_string).collect();
        lines.sort();
        lines
    }

    #[track_caller]
    pub fn success(self) -> Self {
        assert_eq!(self.code, Some(0), "{self:?}");
        self
    }

    /// Fails unless the run ended with `code` and exactly one message, the last line, that holds all `parts`.
    #[track_caller]
    pub fn fails(self, code: i32, parts: &[&str]) -> Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        let messages: Vec<&str> = self.told().filter(|line| line.starts_with("rsrun: ")).collect();
        assert_eq!(messages.len(), 1, "one message: {self:?}");
        for part in parts {
            assert!(messages[0].contains(part), "`{part}` is not in: {}", messages[0]);
        }
        self
    }
}

/// Starts a command with its output kept.
pub fn start(command: &mut Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits for the end of a started command, at most [`LIMIT`].
#[track_caller]
pub fn finish(mut child: Child) -> Ended {
    let mut stdout = child.stdout.take().unwrap();
    let mut stderr = child.stderr.take().unwrap();
    let out = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        stdout.read_to_end(&mut bytes).map(|_| bytes)
    });
    let err = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        stderr.read_to_end(&mut bytes).map(|_| bytes)
    });
    let until = Instant::now() + LIMIT;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > until {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("rsrun did not end: {}", String::from_utf8_lossy(&err.join().unwrap().unwrap()));
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    Ended {
        code: status.code(),
        stdout: out.join().unwrap().unwrap(),
        stderr: String::from_utf8_lossy(&err.join().unwrap().unwrap()).into_owned(),
    }
}

/// Waits for so many lines of output and keeps the rest.
pub fn wait_for_lines(child: &mut Child, count: usize) -> Vec<String> {
    let mut reader = BufReader::with_capacity(1, child.stdout.take().unwrap());
    let mut lines = Vec::new();
    for _ in 0..count {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "the output ended after {lines:?}");
        lines.push(line);
    }
    child.stdout = Some(reader.into_inner());
    lines
}

/// Waits until something is true, at most [`LIMIT`].
#[track_caller]
pub fn wait_until(what: &str, mut is: impl FnMut() -> bool) {
    let until = Instant::now() + LIMIT;
    while !is() {
        assert!(Instant::now() < until, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The children of a process.
pub fn children(pid: u32) -> Vec<u32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

/// Sends a signal.
pub fn signal(pid: u32, signal: i32) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::from_named_raw(signal).unwrap()).unwrap();
}
