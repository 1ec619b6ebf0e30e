//! How a job ended, as a file for programs: written once, at the end, whatever the end is.

use super::lines::utc;
use super::state::Job;
use crate::exit::{ExitCode, Failure, signal_name};
use serde_json::{Value, json};
use spmd::bootstrap::messages::Exit;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What is known of the job so far.
#[derive(Debug)]
pub(super) struct Status {
    begun: SystemTime,
    /// Its name, once it has one.
    pub(super) job: Option<String>,
    ranks: Vec<Value>,
}

impl Status {
    /// A job that begins now.
    pub(super) fn begin() -> Self {
        Self { begun: SystemTime::now(), job: None, ranks: Vec::new() }
    }

    /// What became of the ranks.
    pub(super) fn ranks(&mut self, job: &Job) {
        let time = |since: Option<Duration>| since.map(|since| shown(self.begun + since));
        let ranks = job.ranks().into_iter().enumerate().map(|(rank, end)| {
            let (code, signal, core) = match end.exit {
                Some(Exit::Code(code)) => (Some(code), None, false),
                Some(Exit::Signal { signal, core }) => (None, Some(signal), core),
                None => (None, None, false),
            };
            json!({
                "rank": rank,
                "host": end.host,
                "pid": end.pid,
                "exit_code": code,
                "signal": signal,
                "signal_name": signal.map(signal_name),
                "core_dumped": core,
                "started": time(end.started),
                "ended": time(end.ended),
            })
        });
        self.ranks = ranks.collect();
    }

    fn json(&self, failure: Option<&Failure>) -> Value {
        json!({
            "job": self.job,
            "exit_code": failure.map_or(ExitCode::Success, |failure| failure.exit).number(),
            "reason": failure.map(|failure| failure.message.as_str()),
            "begun": shown(self.begun),
            "ended": shown(SystemTime::now()),
            "ranks": self.ranks,
        })
    }

    /// Writes it so that nobody ever reads half of it.
    pub(super) fn write(&self, to: &Destination, failure: Option<&Failure>) -> io::Result<()> {
        to.write((serde_json::to_string_pretty(&self.json(failure))? + "\n").as_bytes())
    }
}

/// Where something is written to at the end.
#[derive(Debug)]
pub(crate) enum Destination {
    /// A file that is replaced as a whole: written under another name beside it first.
    File { file: PathBuf, temporary: PathBuf },
    /// A terminal, a pipe or a device: nothing that could be replaced.
    Stream(PathBuf),
}

impl Destination {
    /// Finds out, before anything runs, whether `file` can be written at the end. A symbolic link stays and its target is
    /// written.
    ///
    /// # Errors
    /// When it cannot.
    pub(crate) fn find(file: &Path) -> io::Result<Self> {
        let file = match std::fs::canonicalize(file) {
            Ok(file) => {
                let kind = std::fs::metadata(&file)?.file_type();
                if kind.is_dir() {
                    return Err(io::Error::other("it is a directory: name a file"));
                }
                if !kind.is_file() {
                    return Ok(Self::Stream(file));
                }
                file
            }
            // What `/dev/stdout` means may have no name of its own.
            Err(_) if std::fs::metadata(file).is_ok() => return Ok(Self::Stream(file.to_path_buf())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => file.to_path_buf(),
            Err(error) => return Err(error),
        };
        let name = file.file_name().ok_or_else(|| io::Error::other("this is not the name of a file"))?;
        let mut own = name.to_os_string();
        own.push(format!(".{}", std::process::id()));
        let temporary = file.with_file_name(own);
        create(&temporary, b"")?;
        std::fs::remove_file(&temporary)?;
        Ok(Self::File { file, temporary })
    }

    /// Writes to it, all or nothing where it is a file.
    pub(crate) fn write(&self, content: &[u8]) -> io::Result<()> {
        match self {
            Self::File { file, temporary } => {
                let written = create(temporary, content).and_then(|()| std::fs::rename(temporary, file));
                if written.is_err() {
                    let _ = std::fs::remove_file(temporary);
                }
                written
            }
            Self::Stream(file) => std::fs::OpenOptions::new().append(true).open(file)?.write_all(content),
        }
    }
}

fn create(file: &Path, content: &[u8]) -> io::Result<()> {
    let mut open = std::fs::File::create_new(file)?;
    open.write_all(content)?;
    open.sync_all()
}

fn shown(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    utc(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_as_a_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("status.json");
        std::fs::write(&file, "old").unwrap();
        let status = Status { job: Some("cafe".into()), ..Status::begin() };
        let to = |file: &Path| Destination::find(file);
        status.write(&to(&file).unwrap(), Some(&Failure::new(ExitCode::Rank(7), "rank 1 exited"))).unwrap();
        let read: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        assert_eq!(
            (&read["job"], &read["exit_code"], &read["reason"]),
            (&"cafe".into(), &7.into(), &"rank 1 exited".into())
        );
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
        // A directory cannot be replaced by a file.
        let taken = folder.path().join("taken");
        std::fs::create_dir(&taken).unwrap();
        assert!(to(&taken).unwrap_err().to_string().contains("directory"));
        assert!(to(&folder.path().join("none/file")).is_err());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "nothing else is left");
    }

    #[test]
    fn a_link_stays_a_link_and_what_is_no_file_is_not_replaced_by_one() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link, pipe) = (folder.path().join("f"), folder.path().join("l"), folder.path().join("p"));
        std::fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink("f", &link).unwrap();
        Status::begin().write(&Destination::find(&link).unwrap(), None).unwrap();
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        assert!(std::fs::read_to_string(&file).unwrap().contains("exit_code"));
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert!(matches!(Destination::find(&pipe).unwrap(), Destination::Stream(_)));
        assert!(matches!(Destination::find(Path::new("/dev/null")).unwrap(), Destination::Stream(_)));
        Status::begin().write(&Destination::find(Path::new("/dev/null")).unwrap(), None).unwrap();
        assert!(!std::fs::metadata("/dev/null").unwrap().is_file());
    }
}
