//! What launcher and agents say to each other about hosts that are reached through an agent.

use super::messages::Bytes;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Hosts that an agent is to connect to for the launcher, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reach {
    /// A command instead of SSH (`launch.agent`).
    pub command: Option<String>,
    /// The SSH client (`launch.ssh`).
    pub ssh: String,
    /// How long a host may take to say hello (`launch.connect_timeout`).
    pub timeout: Duration,
    /// How long a host that does not listen is tried (`launch.wait_for_hosts`).
    pub patience: Duration,
    /// Where the agent's program is on every host.
    pub executable: Bytes,
    /// The hosts.
    pub hosts: Vec<Onward>,
}

/// One host that an agent is to connect to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Onward {
    /// Its number in the launcher's list.
    pub host: u32,
    /// Its name or address.
    pub name: String,
    /// The user to log in as.
    pub user: Option<String>,
    /// The SSH port.
    pub port: Option<u16>,
    /// The private key to log in with, a path on the agent's host.
    pub identity: Option<Bytes>,
    /// The file of host keys, a path on the agent's host.
    pub known_hosts: Option<Bytes>,
}

/// What comes from a host that is reached through another agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromBelow {
    /// What the connection is doing.
    Stage(String),
    /// A [`FromAgent`](super::messages::FromAgent), encoded; never one from below itself.
    Message(#[serde(with = "serde_bytes")] Bytes),
    /// The connection that ends now leads to a host where nobody has seen to it that nothing is left.
    Unguarded,
    /// The connection is down, and why.
    Ended(String),
}
