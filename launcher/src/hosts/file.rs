//! The hostfile: one host a line.
//!
//! `HOST [slots=N] [group=NAME] [user=NAME] [port=N] [identity=FILE] [known_hosts=FILE]`, where HOST is a host word (see
//! `entry`) and files are relative to the hostfile. The first field is always a host, so that a host may be called
//! `slots` or `cpu`. `#` begins a comment at the start of a word.

use super::{HostSpec, entry};
use std::collections::HashMap;
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The largest hostfile in bytes.
const MAX_BYTES: u64 = 16 << 20;

/// A hostfile that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostfileError {
    /// The file cannot be read.
    #[error("the hostfile {path} cannot be read: {reason}")]
    Read {
        /// The file.
        path: String,
        /// Why.
        reason: String,
    },
    /// Something in the file is wrong.
    #[error("{0}")]
    Syntax(Box<SyntaxError>),
    /// The file names no host.
    #[error("the hostfile {path} names no host: write one a line, for example `n1 slots=4`")]
    Empty {
        /// The file.
        path: String,
    },
    /// A host is named twice.
    #[error("{path}:{second}: the host {host} is already on line {first}: give each host one line, with all its slots")]
    Duplicate {
        /// The file.
        path: String,
        /// The host.
        host: String,
        /// The line that named it first, counted from 1.
        first: usize,
        /// The line that names it again.
        second: usize,
    },
}

/// What is wrong, and where.
#[derive(Debug, PartialEq, Eq)]
pub struct SyntaxError {
    /// The file as the user named it.
    pub path: String,
    /// The line, counted from 1.
    pub line: usize,
    /// The column in characters, counted from 1.
    pub column: usize,
    /// How many characters are wrong, at least 1.
    pub width: usize,
    /// What is wrong.
    pub message: String,
    /// The offending line.
    pub text: String,
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, line, column, width, message, text } = self;
        let number = line.to_string();
        let margin = " ".repeat(number.len());
        // Tabs would move the caret; control characters would move the cursor.
        let shown: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        write!(
            f,
            "{path}:{line}:{column}: {message}\n  {number} | {shown}\n  {margin} | {}{}",
            " ".repeat(column - 1),
            "^".repeat(*width)
        )
    }
}

/// Reads and parses the hostfile at `path`.
pub fn read(path: &Path) -> Result<Vec<HostSpec>, HostfileError> {
    let name = path.display().to_string();
    let failed = |reason: String| HostfileError::Read { path: name.clone(), reason };
    let file = std::fs::File::open(path).map_err(|e| failed(describe(&e)))?;
    if file.metadata().map_err(|e| failed(describe(&e)))?.is_dir() {
        return Err(failed("it is a directory".to_string()));
    }
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(|e| failed(describe(&e)))?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(failed(format!("it is larger than {} MiB", MAX_BYTES >> 20)));
    }
    parse(&name, &bytes)
}

fn describe(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "No such file".to_string(),
        std::io::ErrorKind::PermissionDenied => "Permission denied".to_string(),
        _ => error.to_string(),
    }
}

/// Parses a hostfile's bytes; `path` is for messages.
pub fn parse(path: &str, bytes: &[u8]) -> Result<Vec<HostSpec>, HostfileError> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let mut hosts = Vec::new();
    let mut seen = HashMap::new();
    for (index, raw) in bytes.split(|b| *b == b'\n').enumerate() {
        let number = index + 1;
        let raw = raw.strip_suffix(b"\r").unwrap_or(raw);
        let text = std::str::from_utf8(raw).map_err(|error| {
            let good = String::from_utf8_lossy(&raw[..error.valid_up_to()]);
            syntax(path, number, &String::from_utf8_lossy(raw), good.len(), good.len() + 1, "this is not UTF-8 text")
        })?;
        let specs = parse_line(path, number, text)
            .map_err(|(start, end, message)| syntax(path, number, text, start, end, &message))?;
        for spec in specs {
            if let Some(first) = seen.insert(spec.identity(), number) {
                return Err(HostfileError::Duplicate {
                    path: path.to_string(),
                    host: spec.name,
                    first,
                    second: number,
                });
            }
            hosts.push(spec);
        }
    }
    if hosts.is_empty() {
        return Err(HostfileError::Empty { path: path.to_string() });
    }
    Ok(hosts)
}

/// A file that the hostfile names: relative to the hostfile.
fn beside(hostfile: &str, file: &str) -> PathBuf {
    Path::new(hostfile).parent().unwrap_or(Path::new("")).join(file)
}

/// The words after the host.
const WORDS: &str = "slots=N, group=NAME, user=NAME, port=N, identity=FILE and known_hosts=FILE";

type LineError = (usize, usize, String);

fn parse_line(path: &str, number: usize, text: &str) -> Result<Vec<HostSpec>, LineError> {
    let mut words = words(text);
    let Some((at, first)) = words.next() else {
        return Ok(Vec::new());
    };
    let host = entry::parse(first).map_err(|e| (at + e.start, at + e.end, e.message))?;
    let (mut slots, mut user, mut port, mut group) = (host.slots, host.user, host.port, None);
    let (mut identity, mut known_hosts) = (None, None);
    for (at, word) in words {
        let bad = |message: String| (at, at + word.len(), message);
        let Some((key, value)) = word.split_once('=') else {
            let hint = if word.bytes().all(|b| b.is_ascii_digit()) {
                format!(": did you mean slots={word}?")
            } else {
                format!(": after the host come {WORDS}")
            };
            return Err(bad(format!("unexpected `{word}`{hint}")));
        };
        let value_error = |message: String| (at + key.len() + 1, at + word.len().max(key.len() + 2), message);
        let twice = match key {
            "slots" => slots.replace(entry::parse_slots(value).map_err(value_error)?).is_some(),
            "port" => port.replace(entry::parse_port(value).map_err(value_error)?).is_some(),
            "user" => {
                entry::check_user(value).map_err(value_error)?;
                user.replace(value.to_string()).is_some()
            }
            "group" if value.is_empty() => return Err(value_error("the group has no name".to_string())),
            "group" => group.replace(value.to_string()).is_some(),
            "identity" | "known_hosts" if value.is_empty() => {
                return Err(value_error("the file has no name".to_string()));
            }
            "identity" => identity.replace(beside(path, value)).is_some(),
            "known_hosts" => known_hosts.replace(beside(path, value)).is_some(),
            _ => {
                return Err(bad(format!("unknown word `{key}=`: known are {WORDS}")));
            }
        };
        if twice {
            return Err(bad(format!("{key} is given twice on this line")));
        }
    }
    let spec = |name: String| HostSpec {
        name,
        slots,
        user: user.clone(),
        port,
        group: group.clone(),
        identity: identity.clone(),
        known_hosts: known_hosts.clone(),
        place: format!("{path}:{number}"),
    };
    Ok(host.names.into_iter().map(spec).collect())
}

/// The blank-separated words of a line with their byte offsets, up to a word that begins with `#`.
fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.split_whitespace()
        .map(|word| (word.as_ptr() as usize - text.as_ptr() as usize, word))
        .take_while(|(_, word)| !word.starts_with('#'))
}

fn syntax(path: &str, line: usize, text: &str, start: usize, end: usize, message: &str) -> HostfileError {
    let start = floor(text, start);
    let end = floor(text, end).max(start);
    HostfileError::Syntax(Box::new(SyntaxError {
        path: path.to_string(),
        line,
        column: text[..start].chars().count() + 1,
        width: text[start..end].chars().count().max(1),
        message: message.to_string(),
        text: text.to_string(),
    }))
}

/// The largest character boundary at or below `at`.
fn floor(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
