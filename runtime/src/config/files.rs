//! Reads the configuration files: the only part of the configuration that touches the file system.
//!
//! Only the launcher calls it. Knows where files are, not what stands in them.

use super::error::{ConfigError, Problem};
use super::layers::{FileLayer, Layers};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The largest configuration file in bytes: a larger one is something else.
pub const MAX_FILE_BYTES: u64 = 1 << 20;

/// The administrator's file.
pub fn system_file() -> PathBuf {
    PathBuf::from("/etc/rsrun/config.toml")
}

/// The user's file: `rsrun/config.toml` in `$XDG_CONFIG_HOME`, or else in `$HOME/.config`. `None` without either; a
/// relative directory is ignored, as the XDG specification wants it.
pub fn user_file(environment: &[(OsString, OsString)]) -> Option<PathBuf> {
    let directory = |name: &str| {
        let (_, value) = environment.iter().find(|(variable, _)| variable == OsStr::new(name))?;
        Some(PathBuf::from(value)).filter(|path| path.is_absolute())
    };
    let directory = directory("XDG_CONFIG_HOME").or_else(|| Some(directory("HOME")?.join(".config")))?;
    Some(directory.join("rsrun/config.toml"))
}

/// Reads the system's file, the user's file and `job`, the file of this job. The result also carries `environment`, and
/// lacks only the command line.
///
/// # Errors
/// Every file that exists but cannot be read, is no regular file, is larger than [`MAX_FILE_BYTES`] or is not UTF-8, and
/// a missing job file. A missing system or user file is none.
pub fn load_files(job: Option<&Path>, environment: Vec<(OsString, OsString)>) -> Result<Layers, ConfigError> {
    load(&system_file(), job, environment)
}

pub(super) fn load(
    system: &Path,
    job: Option<&Path>,
    environment: Vec<(OsString, OsString)>,
) -> Result<Layers, ConfigError> {
    let mut problems = Vec::new();
    let system = layer(system, true, &mut problems);
    let user = user_file(&environment).and_then(|path| layer(&path, true, &mut problems));
    let job = job.and_then(|path| layer(path, false, &mut problems));
    ConfigError::check(problems)?;
    Ok(Layers { system, user, job, environment, command_line: Vec::new() })
}

fn layer(path: &Path, may_be_missing: bool, problems: &mut Vec<Problem>) -> Option<FileLayer> {
    match read(path) {
        Ok(text) => Some(FileLayer { path: path.to_path_buf(), text }),
        // A file where a directory of the path should be, or a directory that is somebody else's (HOME after a change of
        // user, in containers): there is no configuration file for us.
        Err(_) if may_be_missing && is_missing(path) => None,
        Err(error) => {
            problems.push(Problem::File { path: path.to_path_buf(), reason: error.to_string() });
            None
        }
    }
}

fn is_missing(path: &Path) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
    std::fs::metadata(path).is_err_and(|error| matches!(error.kind(), NotFound | NotADirectory | PermissionDenied))
}

fn read(path: &Path) -> io::Result<String> {
    // Before it is opened: opening a named pipe would wait for a writer.
    let kind = std::fs::metadata(path)?;
    if kind.is_dir() {
        return Err(io::Error::other("it is a directory: name a TOML file"));
    }
    if !kind.is_file() {
        return Err(io::Error::other("it is no regular file: name a TOML file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(io::Error::other(format!("it is larger than {MAX_FILE_BYTES} bytes: is it a configuration file?")));
    }
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let line = error.as_bytes()[..valid].iter().filter(|byte| **byte == b'\n').count() + 1;
        io::Error::other(format!("line {line} is not valid UTF-8"))
    })
}
