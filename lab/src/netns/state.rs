//! What a lab leaves written so that a later command can find it and take it down: one line a process.

use crate::process::{Process, from_words};
use crate::{LabError, Result};
use std::fmt::Write as _;
use std::path::Path;

/// The recorded state of a lab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct State {
    /// The third number of its network, 10.77.*N*.0/24.
    pub(super) network: u8,
    /// Who logs in to its hosts.
    pub(super) user: String,
    /// Holds the namespace with the bridge.
    pub(super) switch: Process,
    /// For each host, in order, the `unshare` whose death ends the host.
    pub(super) hosts: Vec<Process>,
}

impl State {
    pub(super) fn to_text(&self) -> String {
        let mut text = format!("network {}\nuser {}\n", self.network, self.user);
        let _ = writeln!(text, "switch {}", self.switch);
        for host in &self.hosts {
            let _ = writeln!(text, "host {host}");
        }
        text
    }

    /// Reads what [`State::to_text`] wrote; `path` is for messages only.
    pub(super) fn from_text(text: &str, path: &Path) -> Result<Self> {
        let mut network = None;
        let mut user = None;
        let mut switch = None;
        let mut hosts = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let wrong = || LabError::State { path: path.to_owned(), line: index + 1, text: line.to_owned() };
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                ["network", number] => network = Some(number.parse().map_err(|_| wrong())?),
                ["user", name] => user = Some(name.to_owned()),
                [kind @ ("switch" | "host"), pid, started] => {
                    let process = from_words(pid, started).ok_or_else(wrong)?;
                    if kind == "switch" { switch = Some(process) } else { hosts.push(process) }
                }
                _ => return Err(wrong()),
            }
        }
        let (Some(network), Some(user), Some(switch)) = (network, user, switch) else {
            let text = "(network, user or switch is missing)".to_owned();
            return Err(LabError::State { path: path.to_owned(), line: text.lines().count(), text });
        };
        Ok(Self { network, user, switch, hosts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> State {
        State {
            network: 4,
            user: "ada".into(),
            switch: Process { pid: 10, started: 99 },
            hosts: vec![Process { pid: 11, started: 100 }, Process { pid: 13, started: 101 }],
        }
    }

    #[test]
    fn what_was_written_is_read_back() {
        let state = some();
        assert_eq!(State::from_text(&state.to_text(), Path::new("state")).expect("it parses"), state);
    }

    #[test]
    fn a_damaged_line_is_named_with_file_and_number() {
        let text = some().to_text() + "host eleven 5\n";
        let error = State::from_text(&text, Path::new("x/state")).expect_err("a word for a number");
        assert!(error.to_string().contains("x/state:6"), "{error}");
        assert!(error.to_string().contains("host eleven 5"), "{error}");
    }

    #[test]
    fn a_state_without_its_switch_is_refused() {
        assert!(State::from_text("network 1\nuser ada\n", Path::new("state")).is_err());
    }
}
