//! The words of the command line before clap sees them: where options stop, and long options with one dash.
//!
//! The table of options is clap's own, so that none can be forgotten here.

use super::{OnFailure, foreign};
use crate::job::lines::Tag;
use spmd::bootstrap::messages::StdinTarget;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::time::Duration;

/// The command line, split where the program begins.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Split {
    /// Options and their values, long options with two dashes.
    pub(super) options: Vec<OsString>,
    /// The program and its arguments.
    pub(super) program: Vec<OsString>,
    /// `--` stands before the program.
    pub(super) marked: bool,
}

/// Splits at the first word that is neither an option nor an option's value. `--` ends the options, too.
pub(super) fn split(command: &clap::Command, words: Vec<OsString>) -> Split {
    let mut split = Split::default();
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        let bytes = word.as_bytes();
        if bytes == b"--" {
            split.marked = true;
            split.program = words.collect();
            break;
        }
        if bytes.len() < 2 || bytes[0] != b'-' {
            split.program = std::iter::once(word).chain(words).collect();
            break;
        }
        let (option, takes) = understand(command, bytes);
        split.options.push(OsString::from_vec(option));
        split.options.extend(words.by_ref().take(takes));
    }
    split
}

/// The option as clap wants it, and how many words after it are its values.
fn understand(command: &clap::Command, word: &[u8]) -> (Vec<u8>, usize) {
    // `--n 4`, as Open MPI has it, too: options of one letter may have two dashes.
    let word = match word {
        [b'-', b'-', _] | [b'-', b'-', _, b'=', ..] => &word[1..],
        _ => word,
    };
    let name_at = if word.starts_with(b"--") { 2 } else { 1 };
    let end = word.iter().position(|b| *b == b'=').unwrap_or(word.len());
    let name = String::from_utf8_lossy(&word[name_at..end]);
    let values = |arg: &clap::Arg| match arg.get_action().takes_values() {
        true => arg.get_num_args().map_or(1, |range| range.min_values()),
        false => 0,
    };
    let long = command.get_arguments().find(|arg| {
        arg.get_long() == Some(&*name) || arg.get_all_aliases().is_some_and(|aliases| aliases.contains(&&*name))
    });
    if let Some(arg) = long.filter(|_| name_at == 2 || name.chars().count() > 1) {
        // -hostfile → --hostfile
        let dashed = [b"--".as_slice(), &word[name_at..]].concat();
        return (dashed, if end < word.len() { 0 } else { values(arg) });
    }
    if let Some(digits) = glued(command, &name) {
        let (long, number) = name.split_at(digits);
        return (format!("--{long}={number}").into_bytes(), 0);
    }
    // `-npernode 2` is another launcher's option, not `-n` with a strange number.
    let short = name.chars().next().filter(|_| name_at == 1 && foreign::find(&name).is_none());
    let arg = command.get_arguments().find(|arg| {
        short.is_some_and(|c| {
            arg.get_short() == Some(c) || arg.get_all_short_aliases().is_some_and(|aliases| aliases.contains(&c))
        })
    });
    match arg {
        Some(arg) if values(arg) > 0 => (word.to_vec(), if word.len() == 2 { values(arg) } else { 0 }),
        // `-hostfil` is a misspelt long option, not `-h` with more letters: clap knows what is like it.
        _ if word.len() > 2 && name_at == 1 => ([b"-".as_slice(), word].concat(), 0),
        _ => (word.to_vec(), 0),
    }
}

/// Where the number begins in `np4` or `ppn2`: a long option with its value glued to it, as one may write `-n4`.
fn glued(command: &clap::Command, name: &str) -> Option<usize> {
    let long = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let counts = |arg: &clap::Arg| arg.get_action().takes_values() && arg.get_num_args().is_none_or(|n| n == 1.into());
    let is_long = |arg: &&clap::Arg| {
        arg.get_long() == Some(long) || arg.get_all_aliases().is_some_and(|aliases| aliases.contains(&long))
    };
    let known = long.len() > 1 && command.get_arguments().find(is_long).is_some_and(counts);
    (known && long.len() < name.len()).then_some(long.len())
}

/// The most ranks of a job.
pub(super) const MAX_RANKS: u32 = 1_000_000;

/// The value of `-n`.
pub(super) fn count(text: &str) -> Result<u32, String> {
    match text.parse::<u32>() {
        Ok(0) => Err("at least one rank is needed".to_string()),
        Ok(ranks) if ranks <= MAX_RANKS => Ok(ranks),
        _ => Err(format!("the number of ranks is a whole number from 1 to {MAX_RANKS}")),
    }
}

/// The value of `--timeout`: seconds, or a number with ms, s, min or h.
pub(super) fn time(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 =
        text[..digits].parse().map_err(|_| format!("`{text}` is not a time: write 30, 90s, 5min or 2h"))?;
    let seconds = match text[digits..].trim() {
        "" | "s" => 1.0,
        "ms" => 0.001,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        unit => return Err(format!("`{unit}` is not a unit of time: write ms, s, min or h")),
    };
    Duration::try_from_secs_f64(number * seconds)
        .ok()
        .filter(|time| !time.is_zero())
        .ok_or_else(|| format!("`{text}` is not a possible time limit"))
}

/// The value of `--stdin`.
pub(super) fn stdin(text: &str) -> Result<StdinTarget, String> {
    match text {
        "none" => Ok(StdinTarget::None),
        "all" => Ok(StdinTarget::All),
        rank => rank.parse().map(StdinTarget::Rank).map_err(|_| "write a rank, all or none".to_string()),
    }
}

/// The value of `--tag`.
pub(super) fn tag(text: &str) -> Result<Tag, String> {
    match text {
        "rank" => Ok(Tag::Rank),
        "host" => Ok(Tag::Host),
        _ => Err("write --tag, --tag=rank or --tag=host".to_string()),
    }
}

/// The value of `--on-failure`.
pub(super) fn on_failure(text: &str) -> Result<OnFailure, String> {
    match text {
        "abort" => Ok(OnFailure::Abort),
        "continue" => Ok(OnFailure::Continue),
        _ => Err("write abort or continue".to_string()),
    }
}

/// What is said of an option, or of an option's value, that another launcher has.
pub(super) fn foreign(error: &clap::Error) -> Option<String> {
    use clap::error::{ContextKind, ContextValue, ErrorKind};
    if let (Some(ContextValue::String(option)), Some(ContextValue::String(value))) =
        (error.get(ContextKind::InvalidArg), error.get(ContextKind::InvalidValue))
    {
        // `--bind-to <WHAT>`
        let option = option.split(' ').next()?.trim_start_matches('-');
        return foreign::value(option, value);
    }
    let (ErrorKind::UnknownArgument, Some(ContextValue::String(option))) =
        (error.kind(), error.get(ContextKind::InvalidArg))
    else {
        return None;
    };
    Some(foreign::find(option.trim_start_matches('-'))?.message(option))
}

/// clap's message without its decoration, in one line; `name` is whose help is pointed to.
pub(super) fn one_line(text: &str, name: &str) -> String {
    let text = text.trim().trim_start_matches("error:").trim();
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let mut message = lines.next().unwrap_or("wrong command line").to_string();
    for line in lines {
        if line.starts_with("Usage:") || line.starts_with("For more information") {
            break;
        }
        message.push_str(if message.ends_with(':') { " " } else { "; " });
        message.push_str(line.trim_start_matches("tip:").trim());
    }
    message.push_str(&format!(" (see {name} --help)"));
    message
}
