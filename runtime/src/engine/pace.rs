//! How a call that waits spends its time: spinning, giving way, sleeping. Knows no engine and nothing that is waited for.

use std::time::{Duration, Instant};

/// Times a rank that shares its processor yields before it sleeps.
const YIELDS: u32 = 4;
/// Spins between two looks at the clock. At each, the processor is offered to others: the kernel may have put the very
/// rank that is waited for on the same processor, and would let it wait for a whole scheduler tick.
const SPINS_PER_CLOCK: u32 = 64;

/// How blocked calls wait (`wait.policy` and `wait.spin`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// Spin this long (and let others run now and then), then sleep.
    SpinThenSleep(Duration),
    /// Let other processes run a few times, then sleep: for hosts with more ranks than processors.
    YieldThenSleep,
    /// Never leave the processor.
    Spin,
    /// Let other processes run, but never sleep.
    Yield,
}

impl Waiting {
    /// Whether a rank that waits sleeps at once, or nearly so.
    pub(crate) fn sleeps_often(self) -> bool {
        matches!(self, Waiting::YieldThenSleep) || self == Waiting::SpinThenSleep(Duration::ZERO)
    }
}

/// Where a waiting call is in its policy.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Looks that found nothing since something moved.
    pub(super) idle: u32,
    since: Option<Instant>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    Spin,
    Yield,
    Sleep,
}

impl Pace {
    /// Something moved: begin anew.
    pub(super) fn restart(&mut self) {
        *self = Pace::default();
    }

    pub(super) fn next(&mut self, waiting: Waiting) -> Next {
        self.idle = self.idle.saturating_add(1);
        match waiting {
            Waiting::Spin => Next::Spin,
            Waiting::Yield => Next::Yield,
            Waiting::YieldThenSleep if self.idle <= YIELDS => Next::Yield,
            Waiting::YieldThenSleep => Next::Sleep,
            Waiting::SpinThenSleep(_) if !self.idle.is_multiple_of(SPINS_PER_CLOCK) => Next::Spin,
            Waiting::SpinThenSleep(limit) => {
                let since = *self.since.get_or_insert_with(Instant::now);
                if since.elapsed() < limit { Next::Yield } else { Next::Sleep }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(waiting: Waiting, count: usize) -> Vec<Next> {
        let mut pace = Pace::default();
        (0..count).map(|_| pace.next(waiting)).collect()
    }

    #[test]
    fn a_rank_that_shares_its_processor_never_spins() {
        let steps = steps(Waiting::YieldThenSleep, 10);
        assert!(steps.iter().all(|next| *next != Next::Spin));
        assert_eq!(steps.last(), Some(&Next::Sleep));
    }

    #[test]
    fn a_rank_with_its_own_processor_spins_and_sleeps_only_when_its_time_is_up() {
        let steps_of_a_long_spin = steps(Waiting::SpinThenSleep(Duration::MAX), 1000);
        assert!(!steps_of_a_long_spin.contains(&Next::Sleep));
        assert!(steps_of_a_long_spin.iter().filter(|next| **next == Next::Spin).count() > 900);
        assert!(steps(Waiting::SpinThenSleep(Duration::ZERO), 1000).contains(&Next::Sleep));
    }

    #[test]
    fn spin_and_yield_never_sleep() {
        for waiting in [Waiting::Spin, Waiting::Yield] {
            assert!(!steps(waiting, 1000).contains(&Next::Sleep));
        }
    }
}
