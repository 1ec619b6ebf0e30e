//! What the launcher knows of one rank.

use spmd::bootstrap::messages::Hello;

#[derive(Clone, Debug)]
pub(super) struct Rank {
    /// Index of its host in the plan.
    pub(super) host: usize,
    pub(super) pid: u32,
    /// Where the kernel lets it run.
    pub(super) cpus: String,
    /// What it said when it entered `World::init`.
    pub(super) hello: Option<Hello>,
    pub(super) finalized: bool,
    pub(super) exited: bool,
}

impl Rank {
    pub(super) fn new(host: usize) -> Self {
        Self { host, pid: 0, cpus: String::new(), hello: None, finalized: false, exited: false }
    }
}

/// `3, 5, 7` or `3, 5, 7 and 20 more`.
pub(super) fn list(ranks: &[usize]) -> String {
    let shown: Vec<String> = ranks.iter().take(8).map(ToString::to_string).collect();
    match ranks.len() - shown.len() {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
