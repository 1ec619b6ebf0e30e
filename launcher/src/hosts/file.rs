//! The hostfile: one host a line.
//!
//! `HOST [slots=N] [group=NAME] [user=NAME] [port=N] [identity=FILE] [known_hosts=FILE]`, where HOST is a host word (see
//! `entry`) and files are relative to the hostfile. The first field is always a host, so that a host may be called
//! `slots` or `cpu`. `#` begins a comment at the start of a word.

use super::{HostSpec, entry};
use crate::input;
use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// The most hosts that a hostfile may name.
const MAX_HOSTS: usize = 1 << 18;
/// How many characters of a line stand before and behind what is wrong with it.
const AROUND: usize = 60;

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
        // Of a long line only what is around the place.
        let from = (column - 1).saturating_sub(AROUND);
        let width = (*width).min(AROUND);
        let (before, behind) = (
            if from > 0 { "…" } else { "" },
            if text.chars().nth(column + width + AROUND).is_some() { "…" } else { "" },
        );
        // Tabs would move the caret; control characters would move the cursor.
        let shown: String = text
            .chars()
            .skip(from)
            .take(column - from + width + AROUND)
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        write!(
            f,
            "{path}:{line}:{column}: {}\n  {number} | {before}{shown}{behind}\n  {margin} | {}{}",
            input::fit(message),
            " ".repeat(column - 1 - from + before.chars().count()),
            "^".repeat(width)
        )
    }
}

/// Reads and parses the hostfile at `path`.
pub fn read(path: &Path) -> Result<Vec<HostSpec>, HostfileError> {
    let name = path.display().to_string();
    let bytes = input::bytes(path).map_err(|reason| HostfileError::Read { path: name.clone(), reason })?;
    parse(&name, &bytes)
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
        if hosts.len() > MAX_HOSTS {
            let message = format!("up to this line the file names more than {MAX_HOSTS} hosts");
            return Err(syntax(path, number, text, 0, text.len(), &message));
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
    let host = entry::parse(first).map_err(|e| {
        let hint = first_word_hint(first).map_or_else(String::new, |hint| format!(": {hint}"));
        (at + e.start, at + e.end, e.message + hint.as_str())
    })?;
    let (mut slots, mut user, mut port, mut group) = (host.slots, host.user, host.port, None);
    let (mut identity, mut known_hosts) = (None, None);
    for (at, word) in words {
        let bad = |message: String| (at, at + word.len(), message);
        let Some((key, value)) = word.split_once('=') else {
            let hint = if word.bytes().all(|b| b.is_ascii_digit()) {
                format!(": did you mean slots={word}?")
            } else if word == "\\" {
                ": a line does not go on in the next one".to_string()
            } else if text[at + word.len()..].trim_start().starts_with('=') {
                format!(": there are no blanks around `=`: write {word}=VALUE")
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
            "group" if value.chars().any(char::is_control) => {
                return Err(value_error("the name of a group has no control characters".to_string()));
            }
            "group" => group.replace(value.to_string()).is_some(),
            "identity" | "known_hosts" if value.is_empty() => {
                return Err(value_error("the file has no name".to_string()));
            }
            "identity" => identity.replace(beside(path, value)).is_some(),
            "known_hosts" => known_hosts.replace(beside(path, value)).is_some(),
            _ => {
                let hint = word_hint(key, value).unwrap_or_else(|| format!("known are {WORDS}"));
                return Err(bad(format!("unknown word `{key}=`: {hint}")));
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

/// What to say of a first word that is no host, but something in the hostfiles of other launchers.
fn first_word_hint(word: &str) -> Option<&'static str> {
    match word {
        _ if word.starts_with("//") || word.starts_with("/*") => Some("comments begin with #"),
        _ if word.starts_with('^') => Some("a host is left out by leaving its line out"),
        _ if word.starts_with("+n") || word.starts_with("+e") => {
            Some("hosts have names here; positions like +n0 are for rankfiles")
        }
        _ if word.ends_with('\\') => Some("a line does not go on in the next one"),
        _ if word.contains('#') => Some("a comment needs a blank before its #"),
        _ if word.contains(',') && !word.contains('[') => Some("write one host a line"),
        _ => None,
    }
}

/// The same for a word behind the host.
fn word_hint(key: &str, value: &str) -> Option<String> {
    match key.replace('_', "-").as_str() {
        "slot" | "cpu" | "cpus" | "count" | "cores" | "np" | "ppn" | "procs" | "ncpus" => {
            Some(format!("did you mean slots={value}?"))
        }
        "max-slots" | "slots-max" | "cpu-max" | "max-cpu" | "count-max" | "max-count" => {
            Some("no host gets more than its slots=N, unless --oversubscribe is given".to_string())
        }
        "username" | "login" => Some(format!("did you mean user={value}?")),
        "binding" | "map" => Some("that is for all hosts: see --bind-to and --map-by".to_string()),
        _ => None,
    }
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
