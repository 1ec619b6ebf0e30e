//! Why a lab could not be made, used or taken down, with the way out in each message.

use std::path::PathBuf;

/// What the lab's functions return.
pub type Result<T> = std::result::Result<T, LabError>;

/// A lab could not be made, used or taken down.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// The caller may not make namespaces.
    #[error("this needs the right to make network, mount and process namespaces (root, CAP_SYS_ADMIN): {reason}")]
    NoRights {
        /// What was tried and what the system said.
        reason: String,
    },
    /// A lab of this name is up, with another number of hosts.
    #[error("the lab '{name}' is up with {have} hosts, not {want}: take it down first (cargo xtask lab {kind} down)")]
    OtherSize {
        /// What the lab is made of: the word after `cargo xtask lab`.
        kind: &'static str,
        /// The lab.
        name: String,
        /// Hosts it has.
        have: usize,
        /// Hosts asked for.
        want: usize,
    },
    /// A number of hosts that does not fit into the lab's network.
    #[error("{wanted} hosts: a lab has 1 to {most} of them")]
    HostCount {
        /// Hosts asked for.
        wanted: usize,
        /// The most that fit.
        most: usize,
    },
    /// A program that the lab needs ended badly or could not be started.
    #[error("`{command}` failed: {reason}")]
    Command {
        /// The command line.
        command: String,
        /// Its last words, or why it did not start.
        reason: String,
    },
    /// A file or directory could not be read or written.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The state file does not say what this version writes.
    #[error(
        "{path}:{line}: not a line of a lab's state: '{text}' (end the processes it names, then remove the folder)"
    )]
    State {
        /// The state file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The offending text.
        text: String,
    },
    /// A host did not come up.
    #[error("host {host} did not come up: {reason}\n{log}")]
    Host {
        /// The host.
        host: String,
        /// What was waited for.
        reason: String,
        /// The end of its log.
        log: String,
    },
    /// Something that machines need is not on this host.
    #[error("{what} is missing: {way_out}")]
    Missing {
        /// What it is.
        what: String,
        /// How to get it.
        way_out: String,
    },
    /// A job on a machine could not be started or followed.
    #[error("machine {machine}: {reason}")]
    Job {
        /// The machine.
        machine: String,
        /// What happened.
        reason: String,
    },
    /// No network of the lab's range is free.
    #[error("every network from 10.77.0.0/24 to 10.77.255.0/24 is in use on this machine")]
    NoNetwork,
    /// Something survived `down`.
    #[error("still there after five seconds: {what}")]
    Survivor {
        /// What was left.
        what: String,
    },
}

impl LabError {
    /// Attaches a path to an I/O error.
    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }
}
