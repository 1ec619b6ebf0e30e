//! How the launcher's way of connecting is told to an agent that connects for it, and understood there.
//!
//! Only translates. What the user's own files say (SSH configuration, keys, known hosts) is not part of it: an agent uses
//! what it finds on its own host.

use super::{How, SshClient};
use crate::hosts::HostSpec;
use spmd::bootstrap::onward::{Onward, Reach};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

impl SshClient {
    /// The client that `launch.ssh` names.
    pub fn named(word: &str) -> Self {
        match word {
            "builtin" => Self::Builtin,
            "command" => Self::Command,
            _ => Self::Auto,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Builtin => "builtin",
            Self::Command => "command",
        }
    }
}

impl How {
    /// The message that makes an agent connect to these hosts in the same way.
    pub fn reach<'a>(&self, hosts: impl Iterator<Item = (u32, &'a HostSpec)>) -> Reach {
        // It has another working directory.
        let file = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
        let bytes = |path: &Path| path.as_os_str().as_bytes().to_vec();
        let onward = |(host, spec): (u32, &HostSpec)| Onward {
            host,
            name: spec.name.clone(),
            user: spec.user.clone(),
            port: spec.port,
            identity: spec.identity.as_ref().map(|path| bytes(&file(path))),
            known_hosts: spec.known_hosts.as_ref().map(|path| bytes(&file(path))),
        };
        Reach {
            command: self.agent_command.clone(),
            ssh: self.ssh.name().to_string(),
            timeout: self.timeout,
            patience: self.patience,
            executable: bytes(&self.executable),
            hosts: hosts.map(onward).collect(),
        }
    }

    /// The way that a launcher told. `open_files`: the soft limit that was in force here.
    pub fn told(reach: &Reach, open_files: Option<u64>) -> Self {
        Self {
            agent_command: reach.command.clone(),
            ssh: SshClient::named(&reach.ssh),
            timeout: reach.timeout,
            patience: reach.patience,
            executable: path(&reach.executable),
            open_files,
            // No host that is reached from here is this machine.
            own_hostname: String::new(),
            stdin: None,
        }
    }
}

/// A host that a launcher named.
pub fn host(onward: &Onward) -> HostSpec {
    HostSpec {
        name: onward.name.clone(),
        slots: None,
        user: onward.user.clone(),
        port: onward.port,
        group: None,
        identity: onward.identity.as_deref().map(path),
        known_hosts: onward.known_hosts.as_deref().map(path),
        place: "launch.tree".to_string(),
    }
}

fn path(bytes: &[u8]) -> PathBuf {
    OsString::from_vec(bytes.to_vec()).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn an_agent_connects_in_the_way_of_the_launcher() {
        let how = How {
            agent_command: Some("rsh {host}".into()),
            ssh: SshClient::Command,
            timeout: Duration::from_secs(3),
            patience: Duration::from_secs(1),
            executable: "/opt/rsrun".into(),
            open_files: Some(64),
            own_hostname: "here".into(),
            stdin: None,
        };
        let spec = HostSpec {
            user: Some("ann".into()),
            port: Some(2222),
            identity: Some("/keys/id".into()),
            known_hosts: Some("known".into()),
            ..HostSpec::this_machine()
        };
        let reach = how.reach([(7, &spec)].into_iter());
        let there = How::told(&reach, Some(128));
        assert_eq!((there.agent_command, there.ssh), (how.agent_command, how.ssh));
        assert_eq!((there.timeout, there.patience), (how.timeout, how.patience));
        assert_eq!((there.executable, there.open_files), (how.executable, Some(128)));
        assert_eq!(there.own_hostname, "");
        let found = host(&reach.hosts[0]);
        assert_eq!((found.name, found.user, found.port), (spec.name, spec.user, spec.port));
        assert_eq!(found.identity, spec.identity);
        assert_eq!(found.known_hosts, Some(std::env::current_dir().unwrap().join("known")));
        assert_eq!(reach.hosts[0].host, 7);
    }
}
