//! What the launcher knows of one rank.

use spmd::bootstrap::messages::{Exit, Hello};
use std::time::Instant;

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
    /// How it ended, if its agent said so.
    pub(super) exit: Option<Exit>,
    pub(super) started: Option<Instant>,
    pub(super) ended: Option<Instant>,
    /// How many bytes of standard input it has had room for so far; `None`: it reads no more.
    pub(super) input: Option<u64>,
}

impl Rank {
    pub(super) fn new(host: usize) -> Self {
        Self {
            host,
            pid: 0,
            cpus: String::new(),
            hello: None,
            finalized: false,
            exited: false,
            exit: None,
            started: None,
            ended: None,
            input: Some(0),
        }
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

/// `0-3, 7`.
pub(super) fn ranges(ranks: &[usize]) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for rank in ranks {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *rank => *last = *rank,
            _ => runs.push((*rank, *rank)),
        }
    }
    let shown: Vec<String> = runs
        .iter()
        .take(8)
        .map(|(first, last)| if first == last { first.to_string() } else { format!("{first}-{last}") })
        .collect();
    match runs.len() - shown.len() {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::ranges;

    #[test]
    fn neighbours_are_joined() {
        assert_eq!(ranges(&[0, 1, 2, 5, 7, 8]), "0-2, 5, 7-8");
        assert_eq!(ranges(&[3]), "3");
        let every_other: Vec<usize> = (0..20).map(|n| 2 * n).collect();
        assert!(ranges(&every_other).ends_with("14 and 12 more"));
    }
}
