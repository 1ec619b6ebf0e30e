//! Which hosts a job may use, and how many ranks each takes.
//!
//! Pure: text in, [`HostSpec`]s or an error with line and column out. Knows nothing of connections; whether a host
//! exists is found out later.

mod entry;
pub mod file;
pub mod list;

pub use file::HostfileError;
use std::path::PathBuf;

/// One host as the user asked for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostSpec {
    /// The name or address, as written (IPv6 without brackets).
    pub name: String,
    /// How many ranks it takes; `None`: as many as it has allowed cores.
    pub slots: Option<u32>,
    /// The user to log in as, if given.
    pub user: Option<String>,
    /// The SSH port, if given.
    pub port: Option<u16>,
    /// The rack or switch it belongs to, if given.
    pub group: Option<String>,
    /// The private key to log in with, instead of those of the user's configuration.
    pub identity: Option<PathBuf>,
    /// The file in which the host's key must stand, instead of those of the user's configuration.
    pub known_hosts: Option<PathBuf>,
    /// Where it was written, for messages: `hosts.txt:3` or `-host`.
    pub place: String,
}

impl HostSpec {
    const DEFAULT_PLACE: &str = "default";

    /// This machine, with as many slots as allowed cores.
    pub fn this_machine() -> Self {
        Self {
            name: "localhost".to_string(),
            slots: None,
            user: None,
            port: None,
            group: None,
            identity: None,
            known_hosts: None,
            place: Self::DEFAULT_PLACE.to_string(),
        }
    }

    /// Whether nobody named this host: it is this machine because no host was given.
    pub fn is_default(&self) -> bool {
        self.place == Self::DEFAULT_PLACE
    }

    /// Whether this is the machine we run on, named without user and port.
    pub fn is_local(&self, own_hostname: &str) -> bool {
        self.user.is_none() && self.port.is_none() && (self.name == "localhost" || self.name == own_hostname)
    }

    /// What makes two entries the same host: name and port.
    fn identity(&self) -> (String, Option<u16>) {
        (self.name.to_ascii_lowercase(), self.port)
    }
}
