//! Starting one rank.
//!
//! Everything that can be refused is found out with a reason in words: the directory, the program, its permissions.

use super::boot::{self, Shared};
use super::limits::Limits;
use super::wrap;
use crate::sys;
use rustix::fs::{Access, access};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use spmd::bootstrap::messages::{App, BOOT_FD_VARIABLE, CONTROL_FD_VARIABLE, SpawnFailure, Start};
use std::ffi::{CStr, CString, OsStr, OsString};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

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
    pub(super) limits: Limits,
    pub(super) reached_at: Option<IpAddr>,
    /// The ranks of this host.
    pub(super) local: Vec<u32>,
    programs: Vec<Program>,
    null: OwnedFd,
}

/// One program of this host, as `exec` wants it.
#[derive(Debug)]
struct Program {
    file: CString,
    /// What it is told to be called, and its arguments.
    arguments: Vec<CString>,
    environment: Vec<CString>,
    directory: CString,
    /// The file of the command in front of it, if there is one.
    wrapper: Option<CString>,
}

impl Program {
    /// Finds everything on this host. `inherited`: the environment that ranks inherit from the agent.
    fn new(app: &App, inherited: &[(OsString, OsString)]) -> Result<Self, Refusal> {
        let directory = PathBuf::from(OsStr::from_bytes(&app.directory));
        check_directory(&directory)?;
        let mut environment = inherited.to_vec();
        let mut set = |name: &OsStr, value: &OsStr| {
            environment.retain(|(n, _)| n != name);
            environment.push((name.to_os_string(), value.to_os_string()));
        };
        set(OsStr::new("PWD"), directory.as_os_str());
        for (name, value) in &app.environment {
            set(OsStr::from_bytes(name), OsStr::from_bytes(value));
        }
        let path = environment.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.clone());
        let file = find_program(OsStr::from_bytes(&app.program), &directory, path.as_deref())?;
        let wrapper = match app.wrap.first() {
            Some(word) => Some(find_program(OsStr::from_bytes(word), &directory, path.as_deref())?),
            None => None,
        };
        let variable = |(name, value): &(OsString, OsString)| text([name.as_bytes(), b"=", value.as_bytes()].concat());
        let arguments = std::iter::once(&app.program).chain(&app.arguments);
        Ok(Self {
            file: text(file.into_os_string().into_vec())?,
            arguments: arguments.map(|word| text(word.clone())).collect::<Result<_, _>>()?,
            environment: environment.iter().map(variable).collect::<Result<_, _>>()?,
            directory: text(app.directory.clone())?,
            wrapper: wrapper.map(|file| text(file.into_os_string().into_vec())).transpose()?,
        })
    }
}

/// The name in `NAME=VALUE`.
fn name(variable: &CStr) -> &[u8] {
    variable.to_bytes().split(|byte| *byte == b'=').next().unwrap_or_default()
}

/// A text for the kernel.
fn text(bytes: impl Into<Vec<u8>>) -> Result<CString, Refusal> {
    CString::new(bytes).map_err(|error| {
        let shown = String::from_utf8_lossy(&error.into_vec()).replace('\0', "\\0");
        Refusal::new(SpawnFailure::Other, format!("`{shown}` contains a zero byte, which no program can be given"))
    })
}

impl<'a> Launch<'a> {
    /// Finds programs and directories.
    pub(super) fn new(
        start: &'a Start,
        shared: Shared,
        environment: &[(OsString, OsString)],
        limits: Limits,
        reached_at: Option<IpAddr>,
        local: Vec<u32>,
    ) -> Result<Self, Refusal> {
        let programs = start.apps.iter().map(|app| Program::new(app, environment)).collect::<Result<_, _>>()?;
        let null = std::fs::File::open("/dev/null")
            .map_err(|error| Refusal::new(SpawnFailure::Other, format!("/dev/null: {error}")))?;
        Ok(Self { start, shared, limits, reached_at, local, programs, null: null.into() })
    }

    /// Starts the rank at `index` of this host's ranks.
    /// `given`: its standard input, read by the rank itself.
    pub(super) fn spawn(&self, index: usize, given: Option<OwnedFd>) -> Result<Started, Refusal> {
        let other = |error: io::Error| Refusal::new(SpawnFailure::Other, error.to_string());
        let rank = self.local[index];
        let app = self.start.app_of.get(index).copied().unwrap_or(0) as usize;
        let (Some(program), Some(app)) = (self.programs.get(app), self.start.apps.get(app)) else {
            return Err(Refusal::new(SpawnFailure::Other, "the launcher named no program for it".to_string()));
        };
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

        let own = [
            format!("{BOOT_FD_VARIABLE}={}", record.as_raw_fd()),
            format!("{CONTROL_FD_VARIABLE}={}", control_child.as_raw_fd()),
            format!("SPMD_RANK={rank}"),
            format!("SPMD_SIZE={}", self.start.host_of.len()),
            format!("SPMD_LOCAL_RANK={index}"),
            format!("SPMD_LOCAL_SIZE={}", self.local.len()),
            format!("SPMD_JOB={}", self.start.job),
        ];
        let own = own.into_iter().chain(sees_only.iter().map(|(name, value)| format!("{name}={value}")));
        let own = own.map(text).collect::<Result<Vec<_>, _>>()?;
        // What is set here counts, not what the agent or the user had under the same name.
        let inherited = program.environment.iter().filter(|theirs| own.iter().all(|own| name(own) != name(theirs)));
        let environment: Vec<&CStr> = inherited.chain(&own).map(CString::as_c_str).collect();
        let wrap = match &program.wrapper {
            Some(file) if wrap::applies(&app.wrap_ranks, rank) => {
                let mut words = vec![];
                for word in &app.wrap {
                    words.push(text(wrap::fill(word, rank, self.start.host_of.len()))?);
                }
                // The wrapper must find the program without our help.
                words.push(program.file.clone());
                Some((file, words))
            }
            _ => None,
        };
        let (stdin_child, stdin) = match stdin {
            Some((read, write)) => (Some(read), Some(write)),
            None => (given, None),
        };
        let (file, first) = match &wrap {
            Some((file, words)) => (*file, words.as_slice()),
            None => (&program.file, &program.arguments[..1]),
        };
        let arguments: Vec<&CStr> = first.iter().chain(&program.arguments[1..]).map(CString::as_c_str).collect();
        let pid = sys::child::spawn(&sys::child::Child {
            file,
            arguments: &arguments,
            environment: &environment,
            directory: &program.directory,
            streams: [stdin_child.as_ref().unwrap_or(&self.null).as_fd(), stdout_child.as_fd(), stderr_child.as_fd()],
            inherited: &[record.as_fd(), control_child.as_fd()],
            open_files: self.limits.for_ranks(),
            dies_with_us: true,
            binding: Some(&binding),
        })
        .map_err(|error| refused(file, &error))?;
        for fd in [Some(&stdout), Some(&stderr), Some(&control), stdin.as_ref()].into_iter().flatten() {
            rustix::io::ioctl_fionbio(fd, true).map_err(|e| other(e.into()))?;
        }
        Ok(Started { pid: pid.as_raw_nonzero().get().unsigned_abs(), stdin, stdout, stderr, control })
    }
}

/// What `exec` said.
fn refused(file: &CStr, error: &io::Error) -> Refusal {
    let program = file.to_string_lossy();
    match error.raw_os_error() {
        Some(libc::ENOENT) => Refusal::new(
            SpawnFailure::NotFound,
            format!("{program}: the program, or the interpreter it names, does not exist"),
        ),
        Some(libc::ENOEXEC) => Refusal::new(
            SpawnFailure::NotExecutable,
            format!("{program} is no program of this machine's kind; a script begins with a line like #!/bin/sh"),
        ),
        Some(libc::EACCES | libc::EPERM) => {
            Refusal::new(SpawnFailure::NotExecutable, format!("{program} cannot be executed: {error}"))
        }
        Some(libc::E2BIG) => Refusal::new(
            SpawnFailure::Other,
            format!("{program}: arguments and environment together are too long for the kernel (see getconf ARG_MAX)"),
        ),
        _ => Refusal::new(SpawnFailure::Other, format!("{program}: {error}")),
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
        let shown = program.display();
        let way_out = if program.as_bytes().contains(&b' ') {
            "the program and each of its arguments are words of their own, without quotes around all of them"
                .to_string()
        } else if program.as_bytes().contains(&b'=') {
            format!("to set a variable for every rank write -x {shown}")
        } else {
            format!("write its path, for example ./{shown}")
        };
        Refusal::new(
            SpawnFailure::NotFound,
            format!("the program {shown} was not found in PATH ({}): {way_out}", path.display()),
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
        for (program, way_out) in [("prog -x", "words of their own"), ("A=1", "-x A=1"), ("none", "./none")] {
            let reason = find(program, Some("/bin")).unwrap_err().reason;
            assert!(reason.contains(way_out), "{reason}");
        }
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
