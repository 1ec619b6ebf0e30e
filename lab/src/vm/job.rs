//! Commands on a machine: a folder in its share says what to run, a line on a serial port says when.

use super::Machine;
use crate::folder::remove_folder;
use crate::{LabError, Result};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Between two looks at a job's files.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// The machine's main script answers at once, unless the machine is very busy.
const ANSWER: Duration = Duration::from_secs(60);

/// A command that runs on a machine. Dropped before it has ended, it is killed there.
#[derive(Debug)]
pub struct Job {
    machine: Machine,
    name: String,
    folder: PathBuf,
    ended: bool,
}

impl Job {
    /// Starts a shell command on a machine, in a directory (or the repository, when the machine does not see it).
    ///
    /// # Errors
    /// The machine is gone, does not answer, or its files cannot be written.
    pub fn start(machine: &Machine, command: &str, directory: &Path) -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = machine.share().join("jobs").join(&name);
        fs::create_dir_all(&folder).map_err(LabError::file(&folder))?;
        let write = |name: &str, text: &str| {
            let path = folder.join(name);
            fs::write(&path, text).map_err(LabError::file(&path))
        };
        write("command", &format!("{command}\n"))?;
        write("directory", &format!("{}\n", directory.display()))?;
        write("stdout", "")?;
        write("stderr", "")?;
        let job = Self { machine: machine.clone(), name, folder, ended: false };
        job.say("start", "")?;
        Ok(job)
    }

    /// Its exit code, once it has ended.
    ///
    /// # Errors
    /// The machine has ended before it.
    pub fn exit_code(&mut self) -> Result<Option<u8>> {
        if let Ok(text) = fs::read_to_string(self.folder.join("code")) {
            self.ended = true;
            return text.trim().parse().map(Some).map_err(|_| self.failed(&format!("no exit code: '{text}'")));
        }
        if self.machine.is_up() { Ok(None) } else { Err(self.machine.failed("it ended while a command ran")) }
    }

    /// Copies what it has written since the last call.
    ///
    /// # Errors
    /// The machine has ended, or the output cannot be written.
    pub fn copy_output(&self, stdout: &mut Copied, stderr: &mut Copied) -> Result<()> {
        stdout.copy(&self.folder.join("stdout"))?;
        stderr.copy(&self.folder.join("stderr"))
    }

    /// Sends a signal (`TERM`, `INT`) to everything that it has started.
    ///
    /// # Errors
    /// The machine does not answer.
    pub fn signal(&self, signal: &str) -> Result<()> {
        self.say("stop", signal)
    }

    /// Waits for its end: exit code, standard output, standard error.
    ///
    /// # Errors
    /// The machine ends before, or the limit passes.
    pub fn finish(mut self, limit: Duration) -> Result<(u8, String, String)> {
        let deadline = Instant::now() + limit;
        let code = loop {
            if let Some(code) = self.exit_code()? {
                break code;
            }
            if Instant::now() > deadline {
                let (stdout, stderr) = (self.text("stdout"), self.text("stderr"));
                return Err(self.failed(&format!("a command runs longer than {limit:?}\n{stdout}\n{stderr}")));
            }
            std::thread::sleep(LOOK_EVERY);
        };
        Ok((code, self.text("stdout"), self.text("stderr")))
    }

    fn text(&self, name: &str) -> String {
        String::from_utf8_lossy(&fs::read(self.folder.join(name)).unwrap_or_default()).into_owned()
    }

    fn failed(&self, reason: &str) -> LabError {
        LabError::Job { machine: self.machine.name.clone(), reason: reason.to_owned() }
    }

    /// Says one line to the machine's main script and waits for its answer: only then has the line arrived.
    fn say(&self, verb: &str, more: &str) -> Result<()> {
        let line = self.machine.line();
        let failed = |what: &'static str| {
            let machine = self.machine.name.clone();
            move |error: std::io::Error| LabError::Job { machine, reason: format!("{what}: {error}") }
        };
        let mut stream = connect(&line).map_err(failed("its line cannot be reached"))?;
        stream.set_read_timeout(Some(ANSWER)).map_err(failed("its line"))?;
        writeln!(stream, "{verb} {} {more}", self.name).map_err(failed("it takes no command"))?;
        let answer = format!("done {verb} {}", self.name);
        for said in BufReader::new(stream).lines() {
            if said.map_err(failed("it does not answer"))?.trim() == answer {
                return Ok(());
            }
        }
        Err(self.failed("it closed its line"))
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if !self.ended && self.machine.is_up() {
            // It is of no use to anybody any more; when the machine does not answer, `down` ends both.
            let _ = self.signal("KILL");
        }
        let _ = remove_folder(&self.folder);
    }
}

/// Output of a job that is passed on while it runs.
#[derive(Debug)]
pub struct Copied {
    to: File,
    at: u64,
}

impl Copied {
    /// Passes on to this file from the beginning.
    #[must_use]
    pub fn to(to: File) -> Self {
        Self { to, at: 0 }
    }

    fn copy(&mut self, from: &Path) -> Result<()> {
        use std::os::unix::fs::FileExt as _;
        let file = File::open(from).map_err(LabError::file(from))?;
        let mut buffer = [0; 1 << 16];
        while let count @ 1.. = file.read_at(&mut buffer, self.at).map_err(LabError::file(from))? {
            self.to.write_all(&buffer[..count]).map_err(LabError::file("standard output"))?;
            self.at += count as u64;
        }
        Ok(())
    }
}

/// Connects to a unix socket whose path may be longer than the 107 bytes of its address: by way of its folder.
fn connect(path: &Path) -> std::io::Result<UnixStream> {
    use std::os::fd::AsRawFd as _;
    let folder = File::open(path.parent().unwrap_or(Path::new("/")))?;
    let name = path.file_name().unwrap_or_default();
    UnixStream::connect(Path::new(&format!("/proc/self/fd/{}", folder.as_raw_fd())).join(name))
}
