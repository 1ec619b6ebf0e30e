//! Why RDMA cannot be used, or not any more. Each message names device, call and values, and the way out.

use std::io;

/// What the verbs layer returns.
pub(crate) type Result<T> = std::result::Result<T, VerbsError>;

/// RDMA cannot be used, or not any more.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VerbsError {
    #[error("libibverbs cannot be loaded: {reason}")]
    NoLibrary { reason: String },
    #[error("this host has no RDMA device")]
    NoDevice,
    #[error("verbs.device = {wanted}: {reason}")]
    Wanted { wanted: String, reason: String },
    #[error("no RDMA device can be used: {reasons}")]
    NoneUsable { reasons: String },
    #[error(
        "{device}: {bytes} bytes of memory cannot be registered: {source}; this process may lock {limit} (ulimit -l, \
         LimitMEMLOCK of sshd or slurmd)"
    )]
    MemoryLock { device: String, bytes: usize, limit: String, source: io::Error },
    #[error("{device}: {call} failed: {source}")]
    Call { device: String, call: &'static str, source: io::Error },
    #[error("{device}: the queue pair cannot be made {state}: {source}; given were {given}")]
    State { device: String, state: &'static str, given: String, source: io::Error },
    #[error("{device}: {name} is {value}, but {allowed}")]
    Attribute { device: String, name: &'static str, value: u64, allowed: String },
}
