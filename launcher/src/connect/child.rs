//! A child process with three pipes, started without copying the launcher: with a thread for each of a thousand hosts a
//! copy takes milliseconds, and all of them stand in line for it.

use crate::sys;
use rustix::process::{Pid, WaitOptions, WaitStatus, waitpid};
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A running or ended child, and our ends of its streams.
#[derive(Debug)]
pub(super) struct Child {
    pub(super) pid: Pid,
    pub(super) stdin: Option<File>,
    pub(super) stdout: Option<File>,
    pub(super) stderr: Option<File>,
    status: Option<WaitStatus>,
}

/// How a command is started, besides what it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Start<'a> {
    /// What it is told to be called, if not by its path.
    pub(super) name: Option<&'a str>,
    /// Its soft limit of open files.
    pub(super) open_files: Option<u64>,
    /// It dies when the calling thread does.
    pub(super) dies_with_us: bool,
    /// What it inherits besides its streams.
    pub(super) inherited: Option<&'a OwnedFd>,
}

impl Child {
    /// Starts `command` in a process group of its own. Of the command its program, arguments and environment count.
    ///
    /// # Errors
    /// What the kernel says, `exec` included.
    pub(super) fn start(command: &Command, how: &Start<'_>) -> io::Result<Self> {
        let (stdin_child, stdin) = pipe()?;
        let (stdout, stdout_child) = pipe()?;
        let (stderr, stderr_child) = pipe()?;
        let file = text(find(command.get_program())?.as_os_str())?;
        let own_name = how.name.map_or(command.get_program(), OsStr::new);
        let arguments: Vec<CString> =
            std::iter::once(own_name).chain(command.get_args()).map(text).collect::<io::Result<_>>()?;
        let mut variables: Vec<_> = std::env::vars_os().collect();
        for (name, value) in command.get_envs() {
            variables.retain(|(n, _)| n != name);
            variables.extend(value.map(|value| (name.to_os_string(), value.to_os_string())));
        }
        let variable = |(name, value): &(std::ffi::OsString, std::ffi::OsString)| {
            CString::new([name.as_bytes(), b"=", value.as_bytes()].concat()).map_err(io::Error::from)
        };
        let environment: Vec<CString> = variables.iter().map(variable).collect::<io::Result<_>>()?;
        let pid = sys::child::spawn(&sys::child::Child {
            file: &file,
            arguments: &arguments.iter().map(CString::as_c_str).collect::<Vec<_>>(),
            environment: &environment.iter().map(CString::as_c_str).collect::<Vec<_>>(),
            directory: c".",
            streams: [stdin_child.as_fd(), stdout_child.as_fd(), stderr_child.as_fd()],
            inherited: how.inherited.map(AsFd::as_fd).as_slice(),
            open_files: how.open_files.map(sys::open_files_for_children),
            dies_with_us: how.dies_with_us,
            binding: None,
        })?;
        Ok(Self {
            pid,
            stdin: Some(stdin.into()),
            stdout: Some(stdout.into()),
            stderr: Some(stderr.into()),
            status: None,
        })
    }

    /// How it ended, if it has.
    pub(super) fn ended(&mut self) -> Option<WaitStatus> {
        while self.status.is_none() {
            match waitpid(Some(self.pid), WaitOptions::NOHANG) {
                Ok(Some((_, status))) => self.status = Some(status),
                Err(rustix::io::Errno::INTR) => {}
                Ok(None) | Err(_) => break,
            }
        }
        self.status
    }
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?)
}

fn text(text: &OsStr) -> io::Result<CString> {
    Ok(CString::new(text.as_bytes())?)
}

/// The file of a command: with a slash it is one, else it is looked for in `PATH`.
fn find(program: &OsStr) -> io::Result<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Ok(program.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    let executable = |file: &Path| file.is_file() && rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok();
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|file| executable(file))
        .ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))
}
