//! What can be wrong with a configuration, each with its place and the way out.
//!
//! All problems of all layers are collected before anything is reported. Knows nothing of how layers are read.

use std::fmt;
use std::path::PathBuf;

/// A terminal shows about as many; a file that is no configuration at all can have very many.
pub(super) const MAX_LINES: usize = 40;

/// Everything that is wrong with the configuration; `Display` gives one line per problem, in the order of the layers,
/// and the number of those beyond 40.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", lines(.problems))]
pub struct ConfigError {
    problems: Vec<Problem>,
}

impl ConfigError {
    /// The error that carries `problems`, or nothing when there is none.
    pub(super) fn check(problems: Vec<Problem>) -> Result<(), Self> {
        if problems.is_empty() { Ok(()) } else { Err(Self { problems }) }
    }

    /// Each problem by itself: at least one.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }
}

impl From<Problem> for ConfigError {
    fn from(problem: Problem) -> Self {
        Self { problems: vec![problem] }
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// No key has this name.
    #[error("{place}: unknown key `{}`: {hint}", shown(.name))]
    UnknownKey {
        /// Where it stands.
        place: Place,
        /// The name as written.
        name: String,
        /// The nearest known name, or where to find all of them.
        hint: String,
    },
    /// The value does not fit the key.
    #[error("{place}: {key} = `{}`: {reason}; allowed: {allowed}", shown(.text))]
    BadValue {
        /// Where the value stands.
        place: Place,
        /// The key's own name.
        key: &'static str,
        /// The value as written.
        text: String,
        /// What is wrong with it.
        reason: String,
        /// What the key takes.
        allowed: String,
    },
    /// One layer gives one key two values, under two names.
    #[error("{}: {second}, but {first} in {}, and both name the key {key}: keep one of them", .second.place, .first.place)]
    Conflict {
        /// The key's own name.
        key: &'static str,
        /// The first value in the order of the layer.
        first: Box<Written>,
        /// The second one.
        second: Box<Written>,
    },
    /// A section of a file that holds nothing and that no key belongs to, or a key written as a section.
    #[error("{place}: `{}` {reason}", shown(.name))]
    Section {
        /// Where it stands.
        place: Place,
        /// The name as written.
        name: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// An environment variable is not UTF-8.
    #[error("environment {}: the variable is not valid UTF-8: correct it or unset it", shown(.variable))]
    NotUtf8 {
        /// The variable's name, invalid bytes replaced.
        variable: String,
    },
    /// A file is not TOML.
    #[error("{place}: {message}: `{}`", shown(.line))]
    Syntax {
        /// Where the parser stopped.
        place: Place,
        /// What the parser said.
        message: String,
        /// The line at that place.
        line: String,
    },
    /// A file could not be read.
    #[error("cannot read the configuration file {}: {reason}", shown(&.path.to_string_lossy()))]
    File {
        /// The file.
        path: PathBuf,
        /// Why not, and what to do.
        reason: String,
    },
}

/// A value under the name it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Where it stands.
    pub place: Place,
    /// The name as written.
    pub name: String,
    /// The value in human units.
    pub value: String,
}

/// `` `eager.limit` is 8KiB ``, without the place.
impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is {}", shown(&self.name), shown(&self.value))
    }
}

/// Where a name or a value stands.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Place {
    /// In a file.
    File {
        /// The file, as it was opened.
        path: PathBuf,
        /// The line, counted from 1.
        line: u32,
        /// The column in characters, counted from 1.
        column: u32,
    },
    /// In a variable of the launcher's environment.
    Environment {
        /// The variable's name.
        name: String,
    },
    /// On the launcher's command line.
    CommandLine {
        /// The option as typed, for example `--set`.
        option: String,
    },
    /// In the program.
    Program,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, line, column } => write!(f, "{}:{line}:{column}", shown(&path.to_string_lossy())),
            Self::Environment { name } => write!(f, "environment {}", shown(name)),
            Self::CommandLine { option } => write!(f, "command line {}", shown(option)),
            Self::Program => f.write_str("set by the program"),
        }
    }
}

/// `text` fit for one line of a message: control characters escaped, at most 120 characters.
pub(super) fn shown(text: &str) -> String {
    const LIMIT: usize = 120;
    let mut line = String::new();
    for (count, character) in text.chars().enumerate() {
        if count == LIMIT {
            line.push('…');
            break;
        }
        if character.is_control() {
            line.extend(character.escape_default());
        } else {
            line.push(character);
        }
    }
    line
}

fn lines(problems: &[Problem]) -> String {
    let mut lines: Vec<_> = problems.iter().take(MAX_LINES).map(ToString::to_string).collect();
    if problems.len() > MAX_LINES {
        lines.push(format!("and {} more problems of the configuration", problems.len() - MAX_LINES));
    }
    lines.join("\n")
}
