//! How much may be sent to a peer unasked. Two budgets a pair of ranks and direction bound what a receiver must keep:
//! the bytes of eager messages, and the number of announcements, that no receive has matched yet.
//!
//! Pure: counts in, verdicts out. It knows neither records nor buffers.

/// What an eager message costs beside its bytes: about what the receiver keeps of a message that waits.
const ENVELOPE: usize = 64;
/// Announcements that a sender may make before any of them is matched, unless the receiver asks for more.
const ANNOUNCEMENTS: u32 = 256;

/// Both sides of the traffic with one peer, as this rank counts them.
#[derive(Debug)]
pub(crate) struct Flow {
    /// What eager messages may cost at once, the same on both sides.
    window: usize,
    /// Sent to the peer and not returned.
    used: usize,
    /// Announced to the peer and not answered.
    announced: u32,
    /// How many that may be.
    allowance: u32,
    /// From the peer: matched, and not returned yet.
    owed: usize,
    /// From the peer: eager messages that wait here for a receive.
    waiting: usize,
    /// From the peer: announcements that wait here for a receive.
    waiting_announcements: u32,
    /// How many the peer was allowed.
    granted: u32,
}

/// The peer does not keep to its budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overdrawn;

impl Flow {
    pub(crate) fn new(window: usize) -> Self {
        Flow {
            window,
            used: 0,
            announced: 0,
            allowance: ANNOUNCEMENTS,
            owed: 0,
            waiting: 0,
            waiting_announcements: 0,
            granted: ANNOUNCEMENTS,
        }
    }

    /// Whether an eager message of so many bytes may be sent now; it counts as sent then.
    pub(crate) fn try_send(&mut self, bytes: usize) -> bool {
        let used = self.used.saturating_add(bytes).saturating_add(ENVELOPE);
        let fits = used <= self.window;
        if fits {
            self.used = used;
        }
        fits
    }

    /// An eager message that counted as sent was not.
    pub(crate) fn take_back(&mut self, bytes: usize) {
        self.used -= bytes + ENVELOPE;
    }

    /// The peer has matched messages of this cost.
    pub(crate) fn returned(&mut self, cost: u64) -> Result<(), Overdrawn> {
        self.used = usize::try_from(cost).ok().and_then(|cost| self.used.checked_sub(cost)).ok_or(Overdrawn)?;
        Ok(())
    }

    /// Whether a message may be announced now; it counts as announced then.
    pub(crate) fn try_announce(&mut self) -> bool {
        let may = self.announced < self.allowance;
        self.announced += u32::from(may);
        may
    }

    /// An announcement was answered, or not made after all.
    pub(crate) fn answered(&mut self) -> Result<(), Overdrawn> {
        self.announced = self.announced.checked_sub(1).ok_or(Overdrawn)?;
        Ok(())
    }

    /// The peer wants to see more announcements.
    pub(crate) fn allowed(&mut self, more: u64) {
        self.allowance = self.allowance.saturating_add(u32::try_from(more).unwrap_or(u32::MAX));
    }

    /// An eager message of the peer waits for a receive.
    pub(crate) fn waits(&mut self, bytes: usize) -> Result<(), Overdrawn> {
        self.waiting = self.waiting.saturating_add(bytes).saturating_add(ENVELOPE);
        if self.waiting <= self.window { Ok(()) } else { Err(Overdrawn) }
    }

    /// An eager message of the peer that has waited meets its receive.
    pub(crate) fn waits_no_longer(&mut self, bytes: usize) {
        self.waiting = self.waiting.saturating_sub(bytes + ENVELOPE);
    }

    /// An eager message of the peer has met its receive: the cost to return to the peer, once that is worth a record.
    pub(crate) fn matched(&mut self, bytes: usize) -> Option<u64> {
        self.owed += bytes + ENVELOPE;
        (self.owed >= self.window / 2).then(|| std::mem::take(&mut self.owed) as u64)
    }

    /// An announcement of the peer waits for a receive; `true` when the peer may make no further ones now.
    pub(crate) fn announcement_waits(&mut self) -> Result<bool, Overdrawn> {
        self.waiting_announcements += 1;
        if self.waiting_announcements > self.granted { Err(Overdrawn) } else { Ok(self.is_stuck()) }
    }

    /// An announcement of the peer is answered.
    pub(crate) fn announcement_answered(&mut self) {
        self.waiting_announcements = self.waiting_announcements.saturating_sub(1);
    }

    /// The peer may have messages that it cannot announce.
    pub(crate) fn is_stuck(&self) -> bool {
        self.waiting_announcements >= self.granted
    }

    /// Lets the peer announce as many again: a receive waits for something that has not come. Returns how many.
    pub(crate) fn grant(&mut self) -> u64 {
        let more = self.granted;
        self.granted = self.granted.saturating_add(more);
        u64::from(more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Two sides and a channel between them: whatever the order, what waits stays within the window, what is matched
        /// comes back, and when all is matched at least half a window is free.
        #[test]
        fn what_waits_is_bounded_and_what_is_matched_comes_back(
            window in 200..5000_usize,
            steps in proptest::collection::vec((0..3_u8, 0..700_usize), 0..400),
        ) {
            let (mut sender, mut receiver) = (Flow::new(window), Flow::new(window));
            let mut waiting = std::collections::VecDeque::new();
            for (step, bytes) in steps {
                match step {
                    0 => if sender.try_send(bytes) {
                        prop_assert_eq!(receiver.waits(bytes), Ok(()));
                        waiting.push_back(bytes);
                    },
                    1 => if sender.try_send(bytes) {
                        sender.take_back(bytes);
                    },
                    _ => if let Some(bytes) = waiting.pop_front() {
                        receiver.waits_no_longer(bytes);
                        if let Some(cost) = receiver.matched(bytes) {
                            prop_assert_eq!(sender.returned(cost), Ok(()));
                        }
                    },
                }
                let held: usize = waiting.iter().map(|bytes| bytes + ENVELOPE).sum();
                prop_assert!(held <= window);
            }
            for bytes in waiting {
                receiver.waits_no_longer(bytes);
                if let Some(cost) = receiver.matched(bytes) {
                    prop_assert_eq!(sender.returned(cost), Ok(()));
                }
            }
            prop_assert!(sender.used <= window / 2);
            prop_assert_eq!(sender.returned(window as u64), Err(Overdrawn));
        }
    }

    #[test]
    fn a_message_that_costs_more_than_the_window_is_never_sent_unasked() {
        let mut flow = Flow::new(1000);
        assert!(!flow.try_send(1000 - ENVELOPE + 1));
        assert!(!flow.try_send(usize::MAX));
        assert!(flow.try_send(1000 - ENVELOPE));
        assert!(!flow.try_send(0));
    }

    #[test]
    fn announcements_stop_at_the_allowance_and_go_on_when_one_is_answered_or_more_are_wanted() {
        let (mut sender, mut receiver) = (Flow::new(1000), Flow::new(1000));
        for number in 1..=ANNOUNCEMENTS {
            assert!(sender.try_announce());
            assert_eq!(receiver.announcement_waits(), Ok(number == ANNOUNCEMENTS));
        }
        assert!(!sender.try_announce());
        receiver.announcement_answered();
        assert!(!receiver.is_stuck());
        assert_eq!(sender.answered(), Ok(()));
        assert!(sender.try_announce());
        assert_eq!(receiver.announcement_waits(), Ok(true));
        sender.allowed(receiver.grant());
        for _ in 0..ANNOUNCEMENTS {
            assert!(sender.try_announce());
            assert!(receiver.announcement_waits().is_ok());
        }
        assert!(!sender.try_announce() && receiver.is_stuck());
        assert_eq!(receiver.announcement_waits(), Err(Overdrawn));
        assert_eq!(Flow::new(1).answered(), Err(Overdrawn));
    }
}
