//! The configuration as a specification.

mod files;
mod keys;
mod layers;
mod problems;
mod properties;
mod readers;
mod reports;
mod snapshot;
mod units;

use super::*;
use std::ffi::OsString;

/// A file of a job with this text.
fn file(path: &str, text: impl Into<String>) -> FileLayer {
    FileLayer { path: path.into(), text: text.into() }
}

fn set(key: &str, value: &str) -> CommandLineSetting {
    option("--set", key, value)
}

fn option(option: &str, key: &str, value: &str) -> CommandLineSetting {
    CommandLineSetting { option: option.into(), key: key.into(), value: value.into() }
}

fn variable(name: &str, value: &str) -> (OsString, OsString) {
    (name.into(), value.into())
}

/// A snapshot of `--set` options alone.
fn with_set(settings: &[(&str, &str)]) -> Result<Snapshot, ConfigError> {
    let command_line = settings.iter().map(|(key, value)| set(key, value)).collect();
    resolve(&Layers { command_line, ..Layers::default() })
}

/// A snapshot of a job file alone.
fn with_file(text: &str) -> Result<Snapshot, ConfigError> {
    resolve(&Layers { job: Some(file("job.toml", text)), ..Layers::default() })
}

/// The lines of the error, of which there must be one.
fn lines(result: Result<Snapshot, ConfigError>) -> Vec<String> {
    result.unwrap_err().to_string().lines().map(str::to_string).collect()
}
