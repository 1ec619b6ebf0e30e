//! What a less careful launcher would have read on this host: variables and configuration files.
//!
//! They change nothing; each is named, so that nobody wonders why.

use crate::settings;
use spmd::bootstrap::messages::Start;
use spmd::config;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

/// One line for each stray variable and file: those that the launcher has not read with the same content.
pub(super) fn find(environment: &[(OsString, OsString)], start: &Start) -> Vec<String> {
    let mut found = variables(environment, start);
    for path in std::iter::once(config::system_file()).chain(config::user_file(environment)) {
        // A file that cannot be read, or is none, would not have been used either; a named pipe would never end.
        if !std::fs::metadata(&path).is_ok_and(|found| found.is_file()) {
            continue;
        }
        let Ok(content) = std::fs::read(&path) else { continue };
        if !start.files_read.contains(&settings::file_hash(&content)) {
            found.push(format!("the configuration file {}", path.display()));
        }
    }
    found
}

fn variables(environment: &[(OsString, OsString)], start: &Start) -> Vec<String> {
    let mut found: Vec<String> = environment
        .iter()
        .filter(|(name, _)| config::is_configuration_variable(name))
        .filter(|(name, value)| {
            !start.variables_read.iter().any(|(n, v)| n == name.as_bytes() && v == value.as_bytes())
        })
        .map(|(name, value)| {
            format!("{}={} in the environment", name.to_string_lossy(), shown(&value.to_string_lossy()))
        })
        .collect();
    found.sort();
    found
}

/// In one line and not too long.
fn shown(value: &str) -> String {
    let mut text: String = value.chars().take(80).map(|c| if c.is_control() { '?' } else { c }).collect();
    if value.chars().nth(80).is_some() {
        text.push('…');
    }
    text
}

/// The environment that ranks inherit from the agent: without anything of rsrun's, which is the launcher's alone, and
/// without traces of a job in which the agent itself may run.
pub(super) fn clean(environment: Vec<(OsString, OsString)>) -> Vec<(OsString, OsString)> {
    environment
        .into_iter()
        .filter(|(name, _)| !config::is_configuration_variable(name) && !name.as_bytes().starts_with(b"SPMD_"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use spmd::bootstrap::messages::{JobKey, StdinTarget};
    use spmd::config::Snapshot;

    fn start(variables_read: &[(&str, &str)]) -> Start {
        Start {
            job: String::new(),
            key: JobKey([0; 32]),
            snapshot: Snapshot::defaults(),
            host_of: vec![],
            hosts: std::sync::Arc::default(),
            host: 0,
            apps: vec![],
            app_of: vec![],
            files_read: vec![],
            variables_read: variables_read
                .iter()
                .map(|(n, v)| (n.as_bytes().to_vec(), v.as_bytes().to_vec()))
                .collect(),
            oversubscribed: false,
            placements: Vec::new(),
            devices: std::sync::Arc::default(),
            stdin: StdinTarget::None,
            prompts: None,
            output_window: 0,
            survives: false,
        }
    }

    fn environment(variables: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
        variables.iter().map(|(n, v)| ((*n).into(), (*v).into())).collect()
    }

    #[test]
    fn a_variable_is_a_stray_unless_the_launcher_read_the_same_value() {
        let here = environment(&[("RSRUN_B", "2"), ("RSRUN_A", "1"), ("PATH", "/bin"), ("RDMA_LOW_LATENCY_HINT", "9")]);
        assert_eq!(
            variables(&here, &start(&[("RSRUN_A", "1"), ("RSRUN_B", "3")])),
            ["RDMA_LOW_LATENCY_HINT=9 in the environment", "RSRUN_B=2 in the environment"]
        );
    }

    #[test]
    fn ranks_inherit_nothing_of_rsrun() {
        let kept = clean(environment(&[("RSRUN_A", "1"), ("SPMD_RANK", "3"), ("PATH", "/bin")]));
        assert_eq!(kept, environment(&[("PATH", "/bin")]));
    }

    #[test]
    fn a_value_is_shown_in_one_line() {
        assert_eq!(shown("a\nb"), "a?b");
        assert!(shown(&"x".repeat(1000)).chars().count() == 81);
    }

    #[test]
    fn the_users_file_is_a_stray_unless_the_launcher_read_one_with_the_same_content() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("rsrun/config.toml");
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, "[shm]\nring_bytes = 4096\n").unwrap();
        let here = environment(&[("XDG_CONFIG_HOME", home.path().to_str().unwrap())]);
        let name = format!("the configuration file {}", file.display());
        assert!(find(&here, &start(&[])).contains(&name));
        let mut known = start(&[]);
        known.files_read.push(settings::file_hash(b"[shm]\nring_bytes = 4096\n"));
        assert!(!find(&here, &known).contains(&name));
    }
}
