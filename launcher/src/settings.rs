//! The configuration of the job: where the layers come from, and what the launcher itself reads out of it.
//!
//! The key table, the layers' rules and all texts are `spmd::config`'s; this is only the launcher's use of it.

use crate::exit::{ExitCode, Failure};
use crate::input;
use spmd::bootstrap::messages::Bytes;
use spmd::config::{self, CommandLineSetting, Layers, Snapshot, Value, keys};
use spmd_collectives::levels::Levels;
use spmd_collectives::table::Table;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

/// The resolved configuration, and what it was made from.
#[derive(Clone, Debug)]
pub struct Settings {
    /// One value for each key.
    pub snapshot: Snapshot,
    /// SHA-256 of every configuration file that was read.
    pub files_read: Vec<[u8; 32]>,
    /// The environment variables that were read.
    pub variables_read: Vec<(Bytes, Bytes)>,
}

/// Reads all layers and resolves them.
///
/// # Errors
/// Everything that is wrong in any layer, with file and line.
pub fn load(job_file: Option<&Path>, command_line: Vec<CommandLineSetting>) -> Result<Settings, Failure> {
    let wrong = |error: config::ConfigError| Failure::new(ExitCode::Data, error.to_string());
    let environment: Vec<(OsString, OsString)> = std::env::vars_os().collect();
    let mut layers = Layers { command_line, ..config::load_files(job_file, environment).map_err(wrong)? };
    let mut snapshot = config::resolve(&layers).map_err(wrong)?;
    let table = snapshot.get(keys::COLLECTIVES_TABLE_FILE);
    if !table.is_empty() {
        // First, so that a table given by name still wins.
        layers.command_line.insert(0, tuning_table(&table)?);
        snapshot = config::resolve(&layers).map_err(wrong)?;
    }
    let files = [&layers.system, &layers.user, &layers.job];
    let variables = layers.environment.iter().filter(|(name, _)| config::is_configuration_variable(name));
    Ok(Settings {
        snapshot,
        files_read: files.into_iter().flatten().map(|file| file_hash(file.text.as_bytes())).collect(),
        variables_read: variables.map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec())).collect(),
    })
}

/// The tuning table of collectives in a file, as a setting: the ranks' hosts need not have the file.
fn tuning_table(path: &str) -> Result<CommandLineSetting, Failure> {
    let wrong = |reason: String| {
        Failure::new(ExitCode::Data, format!("{} = {path}: {reason}", keys::COLLECTIVES_TABLE_FILE.name))
    };
    let text = input::text(Path::new(path)).map_err(wrong)?;
    let table = Table::parse(&text).map_err(|error| wrong(error.to_string()))?;
    let value = table.to_string().trim_end().replace('\n', ";");
    Ok(CommandLineSetting { option: format!("table {path}"), key: keys::COLLECTIVES_TABLE.name.into(), value })
}

/// Whether a job on hosts of these groups (the hostfile's `group=`) has the levels of groups that collectives are to use:
/// said here, before ranks start, and not first by their first collective.
///
/// # Errors
/// It does not: what is missing, and what to write.
pub fn check_levels<'a>(snapshot: &Snapshot, groups: impl IntoIterator<Item = Option<&'a str>>) -> Result<(), Failure> {
    let width = usize::try_from(snapshot.get(keys::COLLECTIVES_GROUP_SIZE)).unwrap_or(usize::MAX);
    let levels = Levels { words: &snapshot.get(keys::COLLECTIVES_GROUPS), width };
    levels.check(groups).map_err(|error| Failure::new(ExitCode::Data, error.to_string()))
}

/// What identifies a configuration file's content.
pub fn file_hash(content: &[u8]) -> [u8; 32] {
    use sha2::Digest as _;
    sha2::Sha256::digest(content).into()
}

/// A time as users write it.
pub fn show_duration(time: Duration) -> String {
    Value::Duration(time).to_string()
}

/// What the snapshot says instead of a stray variable `NAME=value …`: `: shm.ring_bytes = 4MiB from default`, or
/// nothing when that is no key.
pub fn decided(snapshot: &Snapshot, stray: &str) -> String {
    let Some((name, _)) = stray.split_once('=') else { return String::new() };
    let named = |spec: &&config::KeySpec| spec.environment() == name || spec.environment_aliases.contains(&name);
    let entry =
        keys::TABLE.iter().find(named).and_then(|spec| snapshot.entries().iter().find(|entry| entry.key == spec.name));
    entry.map_or_else(String::new, |entry| format!(": {} = {} from {}", entry.key, entry.value, entry.source))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stray_variable_is_answered_by_the_key_it_would_have_set() {
        let snapshot = Snapshot::defaults();
        assert_eq!(
            decided(&snapshot, "RSRUN_SHM_RING_BYTES=4096 in the environment"),
            ": shm.ring_bytes = 4MiB from default"
        );
        assert_eq!(
            decided(&snapshot, "RDMA_LOW_LATENCY_HINT=1 in the environment"),
            ": low_latency.size_hint = 0 from default"
        );
        assert_eq!(decided(&snapshot, "RSRUN_NO_SUCH=1"), "");
        assert_eq!(decided(&snapshot, "the file /etc/rsrun/config.toml"), "");
    }
}
