//! The resolved values, with the source of each, and their hash.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A value of one key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Value {
    /// `true` or `false`.
    Flag(bool),
    /// A plain number.
    Count(u64),
    /// A size in bytes.
    Bytes(u64),
    /// A time.
    Duration(Duration),
    /// One of a fixed set of words, or free text.
    Text(String),
}

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Source {
    /// The built-in default of the key table.
    Default,
    /// A line of a configuration file.
    File {
        /// The file, as it was opened.
        path: String,
        /// The line, counted from 1.
        line: u32,
    },
    /// An environment variable of the launcher.
    Environment {
        /// The variable.
        name: String,
    },
    /// An option of the launcher's command line.
    CommandLine {
        /// The option as typed, for example `--set`.
        option: String,
    },
}

/// One key with its value, its source, and what it overrode.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// The key's dotted name.
    pub key: String,
    /// The value in force.
    pub value: Value,
    /// Where that value came from.
    pub source: Source,
    /// Values of weaker layers that were overridden, weakest first.
    pub overrode: Vec<(Value, Source)>,
}

/// The resolved configuration of a job: one value per key, the same on every rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    entries: Vec<Entry>,
}
