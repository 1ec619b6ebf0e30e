//! Running other programs with their output on the terminal, and ending in order when a signal comes.

use crate::error::{Result, XtaskError};
use crate::say::nobody_reads;
use signal_hook::consts::{SIGHUP, SIGINT, SIGPIPE, SIGTERM};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The repository's root.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// The build folder, from the place of this very program in it (`target/debug/xtask`).
pub(crate) fn target() -> PathBuf {
    let exe = std::env::current_exe().unwrap_or_default();
    exe.ancestors().nth(2).map_or_else(|| root().join("target"), Path::to_owned)
}

/// `cargo` in the repository's root.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new("cargo");
    command.args(arguments).current_dir(root());
    // The variables that `cargo run` sets for this program would make every build of another package look changed.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") || text == "CARGO" {
            command.env_remove(&name);
        }
    }
    command
}

/// The command line as a person would type it.
pub(crate) fn line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| quoted(&word.to_string_lossy())).collect::<Vec<_>>().join(" ")
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Interrupts caught from now on, so that what was brought up can be taken down before this program ends. That nobody reads
/// what it prints any more (SIGPIPE) is one, too.
#[derive(Clone, Debug)]
pub(crate) struct Interrupts(Arc<AtomicUsize>);

impl Interrupts {
    pub(crate) fn catch() -> Result<Self> {
        let caught = Arc::new(AtomicUsize::new(0));
        for signal in [SIGINT, SIGTERM, SIGHUP, SIGPIPE] {
            let number = usize::try_from(signal).unwrap_or_default();
            signal_hook::flag::register_usize(signal, Arc::clone(&caught), number).map_err(XtaskError::Signals)?;
        }
        Ok(Self(caught))
    }

    /// The signal that has come, if any.
    pub(crate) fn signal(&self) -> Option<i32> {
        i32::try_from(self.0.load(Ordering::SeqCst)).ok().filter(|signal| *signal != 0)
    }

    /// Runs a command to its end.
    ///
    /// An interrupt from the keyboard reaches the command too; another signal is passed on to it. Either way it has ten
    /// seconds to end.
    ///
    /// # Errors
    /// It could not be started, failed, or a signal came.
    pub(crate) fn run(&self, command: &mut Command) -> Result<()> {
        let status = self.status(command)?;
        match status.success() {
            true => Ok(()),
            false if nobody_reads() => Err(XtaskError::Interrupted(SIGPIPE)),
            false => Err(XtaskError::Failed { command: line(command), status }),
        }
    }

    /// As [`Interrupts::run`], with a failure as a status instead of an error.
    pub(crate) fn status(&self, command: &mut Command) -> Result<ExitStatus> {
        if let Some(signal) = self.signal() {
            return Err(XtaskError::Interrupted(signal));
        }
        let text = line(command);
        let start_error = |source| XtaskError::Start { command: text.clone(), source };
        let mut child = command.spawn().map_err(start_error)?;
        loop {
            if let Some(status) = child.try_wait().map_err(start_error)? {
                return self.signal().map_or(Ok(status), |signal| Err(XtaskError::Interrupted(signal)));
            }
            if let Some(signal) = self.signal() {
                stop(&mut child, signal);
                return Err(XtaskError::Interrupted(signal));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Gives a child ten seconds to end after a signal.
fn stop(child: &mut Child, signal: i32) {
    if signal != SIGINT
        && let Some(pid) = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw)
    {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
    for _ in 0..500 {
        if matches!(child.try_wait(), Ok(Some(_)) | Err(_)) {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let _ = child.kill();
    let _ = child.wait();
}
