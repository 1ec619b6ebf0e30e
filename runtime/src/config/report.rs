//! A snapshot for people and for programs: what `rsrun config` prints.
//!
//! Pure text and plain structures; knows nothing of terminals or files.

use super::keys::TABLE;
use super::snapshot::{Entry, Snapshot, Source, Value, quoted};
use serde::Serialize;
use std::fmt::Write;

/// Which keys are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filter<'a> {
    /// Every key.
    All,
    /// Keys that some layer has set, even to the default.
    Changed,
    /// These keys, by their own names.
    Only(&'a [&'a str]),
}

impl Filter<'_> {
    fn admits(self, entry: &Entry) -> bool {
        match self {
            Self::All => true,
            Self::Changed => entry.source != Source::Default,
            Self::Only(keys) => keys.contains(&entry.key.as_str()),
        }
    }
}

/// A table of key, value, source, and what was overridden (strongest first), one line per key.
pub fn table(snapshot: &Snapshot, filter: Filter<'_>) -> String {
    let mut rows = vec![["key", "value", "source", "overrode"].map(str::to_string)];
    for entry in snapshot.entries().iter().filter(|entry| filter.admits(entry)) {
        let overrode = entry.overrode.iter().rev().map(|(value, source)| format!("{} ({source})", quoted(value)));
        rows.push([
            entry.key.clone(),
            quoted(&entry.value),
            entry.source.to_string(),
            overrode.collect::<Vec<_>>().join(", "),
        ]);
    }
    if rows.len() == 1 {
        return "every key has its default\n".to_string();
    }
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let (key, value, source) = (width(0), width(1), width(2));
    let mut text = String::new();
    for row in &rows {
        let line = format!("{:key$}  {:value$}  {:source$}  {}", row[0], row[1], row[2], row[3]);
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Everything about one key, by its name or an alias; `None`: there is no such key.
pub fn describe(snapshot: &Snapshot, name: &str) -> Option<String> {
    let (entry, spec) = snapshot.entries().iter().zip(TABLE).nth(super::keys::position(name)?)?;
    let mut text = format!("{} = {} ({})\n", entry.key, quoted(&entry.value), entry.source);
    for (value, source) in entry.overrode.iter().rev() {
        text += &format!("  overrode  {} ({source})\n", quoted(value));
    }
    for line in spec.doc.trim().lines() {
        text += &format!("  {}\n", line.trim());
    }
    text += &format!("  default   {}\n  allowed   {}\n", quoted(&spec.kind.default_value()), spec.kind.allowed());
    let names = std::iter::once(spec.environment()).chain(spec.environment_aliases.iter().map(ToString::to_string));
    text += &format!("  variable  {}\n", names.collect::<Vec<_>>().join(", "));
    if !spec.aliases.is_empty() {
        text += &format!("  also      {}\n", spec.aliases.join(", "));
    }
    Some(text + &format!("  read by   {}\n", spec.reader))
}

/// The snapshot for programs; serialises to JSON, see [`json`].
#[derive(Debug, Serialize)]
pub struct JsonReport<'a> {
    /// The snapshot's hash in hexadecimal, of all keys whatever the filter.
    pub hash: String,
    /// The keys in the order of the table.
    pub keys: Vec<JsonEntry<'a>>,
}

/// One key for programs.
#[derive(Debug, Serialize)]
pub struct JsonEntry<'a> {
    /// The dotted name.
    pub key: &'a str,
    /// `flag`, `count`, `bytes`, `duration`, `choice`, `list` or `text`.
    pub kind: &'static str,
    /// What it does.
    pub doc: &'static str,
    /// The values it takes, in words.
    pub allowed: String,
    /// The value in force.
    #[serde(flatten)]
    pub value: JsonValue<'a>,
    /// Weaker values, weakest first.
    pub overrode: Vec<JsonValue<'a>>,
}

/// A value and its source for programs.
#[derive(Debug, Serialize)]
pub struct JsonValue<'a> {
    /// A truth value, a number (bytes; nanoseconds of a duration) or a string.
    pub value: Plain<'a>,
    /// The value in human units, as every layer accepts it.
    pub text: String,
    /// The source.
    pub source: JsonSource<'a>,
}

/// A value without its type.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Plain<'a> {
    /// A flag.
    Flag(bool),
    /// A count, bytes, or nanoseconds.
    Number(u64),
    /// A choice, list or text.
    Text(&'a str),
}

/// A source for programs: `{"layer": "file", "path": …, "line": …}`.
#[derive(Debug, Serialize)]
#[serde(tag = "layer", rename_all = "snake_case")]
pub enum JsonSource<'a> {
    /// The built-in default.
    Default,
    /// A file.
    File {
        /// The file.
        path: &'a str,
        /// The line, from 1.
        line: u32,
    },
    /// The launcher's environment.
    Environment {
        /// The variable.
        name: &'a str,
    },
    /// The command line.
    CommandLine {
        /// The option.
        option: &'a str,
    },
}

/// The snapshot for programs: serialise the result, for example with `serde_json`.
pub fn json<'a>(snapshot: &'a Snapshot, filter: Filter<'_>) -> JsonReport<'a> {
    let mut hash = String::with_capacity(64);
    for byte in snapshot.hash() {
        write!(hash, "{byte:02x}").expect("a String takes everything");
    }
    let entries = snapshot.entries().iter().zip(TABLE).filter(|(entry, _)| filter.admits(entry));
    let keys = entries
        .map(|(entry, spec)| JsonEntry {
            key: &entry.key,
            kind: spec.kind.word(),
            doc: spec.doc.trim(),
            allowed: spec.kind.allowed(),
            value: json_value(&entry.value, &entry.source),
            overrode: entry.overrode.iter().map(|(value, source)| json_value(value, source)).collect(),
        })
        .collect();
    JsonReport { hash, keys }
}

fn json_value<'a>(value: &'a Value, source: &'a Source) -> JsonValue<'a> {
    JsonValue {
        value: match value {
            Value::Flag(flag) => Plain::Flag(*flag),
            Value::Count(number) | Value::Bytes(number) => Plain::Number(*number),
            // No range of the table reaches the 584 years that fit.
            Value::Duration(time) => Plain::Number(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)),
            Value::Text(text) => Plain::Text(text),
        },
        text: value.to_string(),
        source: match source {
            Source::Default => JsonSource::Default,
            Source::File { path, line } => JsonSource::File { path, line: *line },
            Source::Environment { name } => JsonSource::Environment { name },
            Source::CommandLine { option } => JsonSource::CommandLine { option },
        },
    }
}
