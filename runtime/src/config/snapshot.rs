//! The resolved values, with the source of each, and their hash.
//!
//! A [`Snapshot`] is complete and valid however it was made: a decoded one is checked against the key table, so reading
//! a key cannot fail. Nothing here knows how layers become a snapshot.

use super::error::shown;
use super::keys::TABLE;
use super::spec::{Key, Setting};
use super::units;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt;
use std::time::Duration;

/// The first bytes under the hash: another encoding gets another version.
const HASH_DOMAIN: &[u8] = b"rsrun configuration snapshot, version 1\0";

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
    /// One of a fixed set of words, a list of words separated by commas, or free text.
    Text(String),
}

/// In human units, as the key's layers accept it.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => f.pad(if *flag { "true" } else { "false" }),
            Self::Count(number) => f.pad(&number.to_string()),
            Self::Bytes(bytes) => f.pad(&units::format_size(*bytes)),
            Self::Duration(time) => f.pad(&units::format_duration(*time)),
            Self::Text(text) => f.pad(text),
        }
    }
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

/// `default`, `/etc/rsrun/config.toml:3`, `environment RSRUN_EAGER_LIMIT` or `command line --set`.
impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.pad("default"),
            Self::File { path, line } => f.pad(&format!("{}:{line}", shown(path))),
            Self::Environment { name } => f.pad(&format!("environment {}", shown(name))),
            Self::CommandLine { option } => f.pad(&format!("command line {}", shown(option))),
        }
    }
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
#[serde(try_from = "Unchecked")]
pub struct Snapshot {
    /// One per row of the table, in its order, each valid for its row.
    entries: Vec<Entry>,
}

/// A snapshot as it arrives: same shape, nothing checked.
#[derive(Deserialize)]
#[serde(rename = "Snapshot")]
struct Unchecked {
    entries: Vec<Entry>,
}

impl TryFrom<Unchecked> for Snapshot {
    type Error = SnapshotError;

    fn try_from(unchecked: Unchecked) -> Result<Self, SnapshotError> {
        Self::try_from(unchecked.entries)
    }
}

/// A list of entries is not a snapshot of this program's keys.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// Other keys than this program has, or in another order.
    #[error(
        "the configuration snapshot has the key `{found}` where this program has `{expected}`: it comes from another version of rsrun, use one version everywhere"
    )]
    Keys {
        /// The key of this program, or `(nothing more)`.
        expected: String,
        /// The key in the snapshot, or `(nothing more)`.
        found: String,
    },
    /// A value that its key does not allow.
    #[error("the configuration snapshot holds a wrong value for {key}: {reason}; allowed: {allowed}")]
    Value {
        /// The key.
        key: &'static str,
        /// What is wrong with the value.
        reason: String,
        /// What the key takes.
        allowed: String,
    },
}

impl TryFrom<Vec<Entry>> for Snapshot {
    type Error = SnapshotError;

    fn try_from(entries: Vec<Entry>) -> Result<Self, SnapshotError> {
        for place in 0..TABLE.len().max(entries.len()) {
            let expected = TABLE.get(place).map(|spec| spec.name);
            let found = entries.get(place).map(|entry| entry.key.as_str());
            if expected != found {
                let name = |name: Option<&str>| name.map_or_else(|| "(nothing more)".to_string(), shown);
                return Err(SnapshotError::Keys { expected: name(expected), found: name(found) });
            }
        }
        for (spec, entry) in TABLE.iter().zip(&entries) {
            for value in std::iter::once(&entry.value).chain(entry.overrode.iter().map(|(value, _)| value)) {
                spec.kind.check(value).map_err(|reason| SnapshotError::Value {
                    key: spec.name,
                    reason,
                    allowed: spec.kind.allowed(),
                })?;
            }
        }
        Ok(Self { entries })
    }
}

impl Snapshot {
    /// Every key at its built-in default.
    pub fn defaults() -> Self {
        let entries = TABLE
            .iter()
            .map(|spec| Entry {
                key: spec.name.to_string(),
                value: spec.kind.default_value(),
                source: Source::Default,
                overrode: Vec::new(),
            })
            .collect();
        Self { entries }
    }

    /// Puts `value` over the present one of the row at `index` of the table. The caller has checked the value.
    pub(super) fn set(&mut self, index: usize, value: Value, source: Source) {
        let entry = &mut self.entries[index];
        let weaker = (std::mem::replace(&mut entry.value, value), std::mem::replace(&mut entry.source, source));
        entry.overrode.push(weaker);
    }

    /// The value of `key`: bytes and counts as `u64`, choices, lists and texts as `String`.
    pub fn get<T: Setting>(&self, key: Key<T>) -> T {
        T::from_value(&self.entries[key.index].value)
            .expect("every snapshot has one valid entry per row, and a handle has the type of its row")
    }

    /// All entries, in the order of the key table.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// SHA-256 of a canonical encoding of all keys and values: equal for equal values, wherever they came from.
    pub fn hash(&self) -> [u8; 32] {
        hash_of(self.entries.iter().map(|entry| (entry.key.as_str(), &entry.value)).collect())
    }

    /// The keys on which two snapshots differ, with both values, in the order of the table.
    pub fn difference(&self, other: &Self) -> Vec<Difference> {
        self.entries
            .iter()
            .zip(&other.entries)
            .filter(|(mine, theirs)| mine.value != theirs.value)
            .map(|(mine, theirs)| Difference {
                key: mine.key.clone(),
                mine: mine.value.clone(),
                theirs: theirs.value.clone(),
            })
            .collect()
    }
}

/// The hash over pairs of key and value: the domain, the number of pairs, then every pair in the order of the keys, as
/// the key's length and bytes, a tag for the type, and the value. All numbers are `u64`, little-endian.
pub(super) fn hash_of(mut pairs: Vec<(&str, &Value)>) -> [u8; 32] {
    fn number(hasher: &mut Sha256, number: u64) {
        hasher.update(number.to_le_bytes());
    }
    fn text(hasher: &mut Sha256, text: &str) {
        number(hasher, text.len() as u64);
        hasher.update(text);
    }

    pairs.sort_by_key(|(key, _)| *key);
    let mut hasher = Sha256::new_with_prefix(HASH_DOMAIN);
    number(&mut hasher, pairs.len() as u64);
    for (key, value) in pairs {
        text(&mut hasher, key);
        match value {
            Value::Flag(flag) => {
                hasher.update([0]);
                number(&mut hasher, u64::from(*flag));
            }
            Value::Count(count) => {
                hasher.update([1]);
                number(&mut hasher, *count);
            }
            Value::Bytes(bytes) => {
                hasher.update([2]);
                number(&mut hasher, *bytes);
            }
            Value::Duration(time) => {
                hasher.update([3]);
                number(&mut hasher, time.as_secs());
                number(&mut hasher, u64::from(time.subsec_nanos()));
            }
            Value::Text(word) => {
                hasher.update([4]);
                text(&mut hasher, word);
            }
        }
    }
    hasher.finalize().into()
}

/// A key on which two snapshots differ.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The key's dotted name.
    pub key: String,
    /// The value in the snapshot that was asked.
    pub mine: Value,
    /// The value in the other one.
    pub theirs: Value,
}

/// `eager.limit is 8KiB here and 4KiB there`.
impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {} here and {} there", self.key, quoted(&self.mine), quoted(&self.theirs))
    }
}

/// The value for a message or a table: an empty text is visible, control characters are escaped.
pub(super) fn quoted(value: &Value) -> String {
    match value {
        Value::Text(text) if text.is_empty() => "\"\"".to_string(),
        value => shown(&value.to_string()),
    }
}
