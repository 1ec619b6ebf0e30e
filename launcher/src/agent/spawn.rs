//! Starting one rank.
//!
//! Everything that can be refused is found out with a reason in words: the directory, the program, its permissions.

use super::boot::{self, Shared};
use crate::sys;
use rustix::fs::{Access, access};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use spmd::bootstrap::messages::{BOOT_FD_VARIABLE, CONTROL_FD_VARIABLE, SpawnFailure, Start};
use std::ffi::{OsStr, OsString};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// How many bytes a rank's standard input holds.
const STDIN_PIPE: usize = 16 << 10;

/// Why a rank could not be started.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) kind: SpawnFailure,
    pub(super) reason: String,
}

impl Refusal {
    fn new(kind: SpawnFailure, reason: String) -> Self {
        Self { kind, reason }
    }
}

/// A started rank's process id and our ends of its streams.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) pid: u32,
    pub(super) stdin: Option<OwnedFd>,
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
    pub(super) control: OwnedFd,
}

/// What is the same for all ranks of this host.
#[derive(Debug)]
pub(super) struct Launch<'a> {
    pub(super) start: &'a Start,
    pub(super) shared: Shared,
    /// The environment that ranks inherit from the agent.
    pub(super) environment: Vec<(OsString, OsString)>,
    pub(super) open_files: Option<u64>,
    pub(super) reached_at: Option<IpAddr>,
    /// The ranks of this host.
    pub(super) local: Vec<u32>,
    program: PathBuf,
    directory: PathBuf,
}

impl<'a> Launch<'a> {
    /// Finds the program and the directory.
    pub(super) fn new(
        start: &'a Start,
        shared: Shared,
        mut environment: Vec<(OsString, OsString)>,
        open_files: Option<u64>,
        reached_at: Option<IpAddr>,
        local: Vec<u32>,
    ) -> Result<Self, Refusal> {
        let directory = PathBuf::from(OsStr::from_bytes(&start.directory));
        check_directory(&directory)?;
        let mut set = |name: &OsStr, value: &OsStr| {
            environment.retain(|(n, _)| n != name);
            environment.push((name.to_os_string(), value.to_os_string()));
        };
        set(OsStr::new("PWD"), directory.as_os_str());
        for (name, value) in &start.environment {
            set(OsStr::from_bytes(name), OsStr::from_bytes(value));
        }
        let path = environment.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.clone());
        let program = find_program(OsStr::from_bytes(&start.program), &directory, path.as_deref())?;
        Ok(Self { start, shared, environment, open_files, reached_at, local, program, directory })
    }

    /// Starts the rank at `index` of this host's ranks.
    /// `given`: its standard input, read by the rank itself.
    pub(super) fn spawn(&self, index: usize, given: Option<OwnedFd>) -> Result<Started, Refusal> {
        let other = |error: io::Error| Refusal::new(SpawnFailure::Other, error.to_string());
        let rank = self.local[index];
        let (stdout, stdout_child) = pipe().map_err(other)?;
        let (stderr, stderr_child) = pipe().map_err(other)?;
        let fed = given.is_none() && self.start.stdin.includes(rank);
        let stdin = if fed { Some(pipe().map_err(other)?) } else { None };
        if let Some((read, _)) = &stdin {
            // Little is read ahead of the rank; a kernel that refuses reads more.
            let _ = rustix::pipe::fcntl_setpipe_size(read, STDIN_PIPE);
        }
        let (control, control_child) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .map_err(|e| other(e.into()))?;
        let placement = self.start.placements.get(index).cloned().unwrap_or_default();
        let binding = sys::Binding::new(&placement.cpus, placement.domain);
        let sees_only = placement.sees_only.clone();
        let boot = self.shared.boot(self.start, rank, placement, self.reached_at);
        let record = boot::record(&boot).map_err(other)?;

        let mut command = Command::new(&self.program);
        command.arg0(OsStr::from_bytes(&self.start.program));
        command.args(self.start.arguments.iter().map(|a| OsStr::from_bytes(a)));
        command.current_dir(&self.directory).env_clear();
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.envs(sees_only);
        command.env(BOOT_FD_VARIABLE, record.as_raw_fd().to_string());
        command.env(CONTROL_FD_VARIABLE, control_child.as_raw_fd().to_string());
        let numbers = [
            ("SPMD_RANK", rank as usize),
            ("SPMD_SIZE", self.start.host_of.len()),
            ("SPMD_LOCAL_RANK", index),
            ("SPMD_LOCAL_SIZE", self.local.len()),
        ];
        command.envs(numbers.map(|(name, number)| (name, number.to_string())));
        command.env("SPMD_JOB", &self.start.job);
        let (stdin, stdin_child) = match stdin {
            Some((read, write)) => (Some(write), Stdio::from(read)),
            None => (None, given.map_or_else(Stdio::null, Stdio::from)),
        };
        command.stdin(stdin_child).stdout(stdout_child).stderr(stderr_child).process_group(0);
        let mut inherited = self.shared.inherited();
        inherited.extend([record.as_raw_fd(), control_child.as_raw_fd()]);
        sys::prepare_rank(&mut command, self.open_files, inherited, binding);

        let child = command.spawn().map_err(|error| self.refused(&error))?;
        for fd in [Some(&stdout), Some(&stderr), Some(&control), stdin.as_ref()].into_iter().flatten() {
            rustix::io::ioctl_fionbio(fd, true).map_err(|e| other(e.into()))?;
        }
        Ok(Started { pid: child.id(), stdin, stdout, stderr, control })
    }

    /// What `exec` said.
    fn refused(&self, error: &io::Error) -> Refusal {
        let program = self.program.display();
        match error.raw_os_error() {
            Some(libc::ENOENT) => Refusal::new(
                SpawnFailure::NotFound,
                format!("{program}: the program, or the interpreter it names, does not exist"),
            ),
            Some(libc::EACCES | libc::ENOEXEC | libc::EPERM) => {
                Refusal::new(SpawnFailure::NotExecutable, format!("{program} cannot be executed: {error}"))
            }
            _ => Refusal::new(SpawnFailure::Other, format!("{program}: {error}")),
        }
    }
}

/// A pipe whose reading end comes first.
fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(pipe_with(PipeFlags::CLOEXEC)?)
}

fn check_directory(directory: &Path) -> Result<(), Refusal> {
    let refused = |why: String| {
        Err(Refusal::new(SpawnFailure::Directory, format!("the working directory {} {why}", directory.display())))
    };
    match std::fs::metadata(directory) {
        Ok(found) if !found.is_dir() => refused("is not a directory".to_string()),
        Ok(_) if access(directory, Access::EXEC_OK).is_err() => refused("may not be entered".to_string()),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            refused("does not exist there: give one that does with -wdir DIR".to_string())
        }
        Err(error) => refused(format!("cannot be used: {error}")),
    }
}

/// The program's file: an absolute path, a path with a slash from `directory`, or a name to find in `path`.
fn find_program(program: &OsStr, directory: &Path, path: Option<&OsStr>) -> Result<PathBuf, Refusal> {
    if program.as_bytes().contains(&b'/') {
        // Without the dots of `./app`, which would only stand in messages.
        let file: PathBuf = directory.join(program).components().collect();
        return match check_program(&file) {
            Ok(()) => Ok(file),
            Err(refusal) => Err(refusal),
        };
    }
    let path = path.unwrap_or(OsStr::new("/usr/local/bin:/usr/bin:/bin"));
    let mut not_executable = None;
    for folder in std::env::split_paths(path) {
        let file = directory.join(folder).join(program);
        match check_program(&file) {
            Ok(()) => return Ok(file),
            Err(refusal) if refusal.kind == SpawnFailure::NotExecutable && file.is_file() => {
                not_executable.get_or_insert(refusal);
            }
            Err(_) => {}
        }
    }
    Err(not_executable.unwrap_or_else(|| {
        Refusal::new(
            SpawnFailure::NotFound,
            format!(
                "the program {} was not found in PATH ({}): write its path, for example ./{0}",
                program.display(),
                path.display()
            ),
        )
    }))
}

fn check_program(file: &Path) -> Result<(), Refusal> {
    let shown = file.display();
    let not_executable = |why: &str| Err(Refusal::new(SpawnFailure::NotExecutable, format!("{shown} {why}")));
    match std::fs::metadata(file) {
        Ok(found) if found.is_dir() => not_executable("is a directory, not a program"),
        Ok(_) if access(file, Access::EXEC_OK).is_err() => {
            not_executable("is not executable: give it the permission with chmod +x")
        }
        Ok(_) => Ok(()),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Err(Refusal::new(
                SpawnFailure::NotFound,
                format!("the program {shown} does not exist there: build it, or copy it to this path on every host"),
            ))
        }
        Err(error) => Err(Refusal::new(SpawnFailure::NotExecutable, format!("{shown} cannot be used: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn kind(result: Result<PathBuf, Refusal>) -> SpawnFailure {
        result.unwrap_err().kind
    }

    #[test]
    fn a_program_is_found_by_path_from_the_directory_or_in_path() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("prog");
        std::fs::write(&file, "#!/bin/sh\n").unwrap();
        let find = |name: &str, path: Option<&str>| find_program(name.as_ref(), folder.path(), path.map(OsStr::new));
        let message = find("./prog", None).unwrap_err();
        assert_eq!(message.kind, SpawnFailure::NotExecutable);
        assert!(message.reason.contains("prog is not executable"), "{}", message.reason);
        assert_eq!(kind(find("prog", folder.path().to_str())), SpawnFailure::NotExecutable);
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(find("./prog", None).unwrap(), file);
        assert_eq!(find(file.to_str().unwrap(), None).unwrap(), file);
        assert_eq!(find("prog", folder.path().to_str()).unwrap(), file);
        assert_eq!(find("sh", Some("/nowhere:/bin")).unwrap(), Path::new("/bin/sh"));
        assert_eq!(kind(find("prog", Some("/bin"))), SpawnFailure::NotFound);
        assert_eq!(kind(find("./none", None)), SpawnFailure::NotFound);
        assert_eq!(kind(find("/", None)), SpawnFailure::NotExecutable);
    }

    #[test]
    fn a_directory_that_cannot_be_used_is_named() {
        let folder = tempfile::tempdir().unwrap();
        check_directory(folder.path()).unwrap();
        let missing = check_directory(&folder.path().join("none")).unwrap_err();
        assert_eq!(missing.kind, SpawnFailure::Directory);
        assert!(missing.reason.contains("/none does not exist"), "{}", missing.reason);
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert_eq!(check_directory(&file).unwrap_err().kind, SpawnFailure::Directory);
    }
}
