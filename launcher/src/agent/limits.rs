//! How many files agent and ranks have open, and whether the limits allow it.
//!
//! Pure: numbers in, a limit or a message with all of them out. Checked before anything is started: a rank that runs out
//! of descriptors in the middle of its work says something far less helpful.

/// What the agent has open for each rank: two outputs, the control socket, the bell that wakes it.
const AGENT_EACH: u64 = 4;
/// What the agent has open besides.
const AGENT_OWN: u64 = 32;
/// What a rank has open besides the bells of its host and connections: streams, boot record, control socket, memory,
/// epoll, listener, and what the program itself opens.
const RANK_OWN: u64 = 40;

/// The limits of open files on this host and the numbers of ranks, here and elsewhere.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// The soft limit that ranks would have without us.
    pub(super) soft: Option<u64>,
    /// The hard limit; `None`: there is none.
    pub(super) hard: Option<u64>,
    /// Ranks of this host.
    pub(super) local: u64,
    /// Ranks of other hosts.
    pub(super) far: u64,
}

impl Limits {
    /// Whether agent and ranks can work.
    ///
    /// # Errors
    /// What is needed and what is there.
    pub(super) fn check(&self) -> Result<(), String> {
        let Some(hard) = self.hard else { return Ok(()) };
        let local = self.local;
        let (agent, rank) = (AGENT_EACH * local + AGENT_OWN, local + RANK_OWN);
        let (need, how) = if agent >= rank {
            (agent, format!("{AGENT_EACH} for each and {AGENT_OWN} more"))
        } else {
            (rank, format!("each rank one for each and {RANK_OWN} more"))
        };
        if need <= hard {
            return Ok(());
        }
        Err(format!(
            "{local} ranks need {need} open files ({how}), and the hard limit there is {hard} (ulimit -Hn): raise it, or \
             spread the ranks over more hosts"
        ))
    }

    /// The limit for ranks: as it would be without us, or as much more as they need to reach every other rank.
    pub(super) fn for_ranks(&self) -> Option<libc::rlimit> {
        let need = self.local + self.far + RANK_OWN;
        let soft = self.soft?.max(need).min(self.hard.unwrap_or(u64::MAX));
        Some(libc::rlimit { rlim_cur: soft, rlim_max: self.hard.unwrap_or(libc::RLIM_INFINITY) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(soft: u64, hard: u64, local: u64, far: u64) -> Limits {
        Limits { soft: Some(soft), hard: Some(hard), local, far }
    }

    #[test]
    fn too_low_a_limit_is_refused_with_the_numbers() {
        assert_eq!(limits(64, 96, 16, 0).check(), Ok(()));
        let message = limits(64, 95, 16, 0).check().unwrap_err();
        for part in ["16 ranks", "96 open files", "is 95", "4 for each and 32"] {
            assert!(message.contains(part), "{part} is not in: {message}");
        }
        let message = limits(16, 37, 1, 0).check().unwrap_err();
        assert!(message.contains("41 open files (each rank one for each and 40 more)"), "{message}");
        assert_eq!(Limits { hard: None, ..limits(1, 1, 10_000, 0) }.check(), Ok(()));
    }

    #[test]
    fn ranks_keep_their_soft_limit_unless_they_need_more() {
        let soft = |limits: Limits| limits.for_ranks().map(|limit| limit.rlim_cur);
        assert_eq!(soft(limits(1024, 4096, 256, 256)), Some(1024));
        assert_eq!(soft(limits(1024, 4096, 256, 2000)), Some(2296));
        assert_eq!(soft(limits(1024, 4096, 256, 9000)), Some(4096));
        assert_eq!(soft(Limits { soft: None, ..limits(0, 0, 1, 1) }), None);
    }
}
