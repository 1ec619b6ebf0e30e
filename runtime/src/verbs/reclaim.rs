//! Which work requests of a send queue are done. Pure: numbers in, numbers out.
//!
//! A request without a completion of its own is done when a later one that has one is. So that the queue can never fill
//! up with requests that nothing will ever report, every so many requests ask for a completion, and so does every one
//! after which a quarter of the ring would be unreported.

use std::collections::VecDeque;

/// Requests between two that ask for a completion, at most.
const MOST_SILENT: u32 = 64;

/// The send queue of one queue pair, and the ring of bytes that its requests read from.
#[derive(Debug)]
pub(crate) struct SendQueue {
    depth: u32,
    /// Every so many requests ask for a completion.
    every: u32,
    /// Units of the ring that may go unreported.
    most_units: u64,
    /// Requests posted, and of those reported as done.
    posted: u64,
    done: u64,
    /// Units of the ring written, as far as they are reported as sent.
    sent: u64,
    /// Since the last request that asked.
    silent: u32,
    silent_from: u64,
    /// The next request asks, whatever comes before it.
    ask_next: bool,
    /// What each completion that was asked for reports: requests and units until then.
    asked: VecDeque<(u64, u64)>,
}

impl SendQueue {
    /// A queue of `depth` requests over a ring of `units`. `all`: every request asks for a completion.
    pub(crate) fn new(depth: u32, units: u64, all: bool) -> Self {
        let every = if all { 1 } else { (depth / 2).clamp(1, MOST_SILENT) };
        SendQueue {
            depth,
            every,
            most_units: units / 4,
            posted: 0,
            done: 0,
            sent: 0,
            silent: 0,
            silent_from: 0,
            ask_next: false,
            asked: VecDeque::new(),
        }
    }

    /// Requests that can be posted now.
    pub(crate) fn room(&self) -> u32 {
        let busy = u32::try_from(self.posted - self.done).expect("never more than its depth");
        self.depth - busy
    }

    /// The number of the last request posted.
    pub(crate) fn posted(&self) -> u64 {
        self.posted
    }

    /// Whether the request of this number is done, as far as is known.
    pub(crate) fn is_done(&self, number: u64) -> bool {
        self.done >= number
    }

    /// Units of the ring that are sent for good: those before may be written again.
    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    /// Takes one more request, after which `units` of the ring are written in all; whether it must ask for a completion.
    ///
    /// # Panics
    /// There is no room.
    pub(crate) fn post(&mut self, units: u64) -> bool {
        assert!(self.room() > 0, "a full send queue takes no request");
        self.posted += 1;
        self.silent += 1;
        let ask = self.ask_next || self.silent >= self.every || units - self.silent_from >= self.most_units;
        if ask {
            self.ask_next = false;
            self.silent = 0;
            self.silent_from = units;
            self.asked.push_back((self.posted, units));
        }
        ask
    }

    /// Whether requests were posted after the last that asked for a completion.
    pub(crate) fn has_silent(&self) -> bool {
        self.silent > 0
    }

    /// The next request asks, whatever comes before it.
    pub(crate) fn ask_next(&mut self) {
        self.ask_next = true;
    }

    /// A completion has come: the oldest that was asked for.
    ///
    /// # Errors
    /// None was asked for.
    pub(crate) fn complete(&mut self) -> Result<(), &'static str> {
        let (done, sent) = self.asked.pop_front().ok_or("a completion that was not asked for")?;
        self.done = done;
        self.sent = sent;
        Ok(())
    }

    /// Whether everything posted is done.
    pub(crate) fn is_idle(&self) -> bool {
        self.posted == self.done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_request_asks_at_least_every_half_queue_and_at_least_every_sixty_four() {
        for (depth, most) in [(1, 1), (2, 1), (16, 8), (100, 50), (1024, 64)] {
            let mut queue = SendQueue::new(depth, u64::MAX, false);
            let mut silent = 0;
            for _ in 0..300 {
                if queue.room() == 0 {
                    queue.complete().unwrap();
                }
                silent = if queue.post(0) { 0 } else { silent + 1 };
                assert!(silent < most, "depth {depth}");
            }
        }
    }

    #[test]
    fn with_signal_all_every_request_asks() {
        let mut queue = SendQueue::new(64, 1024, true);
        assert!((0..64).all(|_| queue.post(0)));
    }

    #[test]
    fn a_completion_that_nobody_asked_for_is_an_error() {
        let mut queue = SendQueue::new(64, 1024, false);
        assert!(queue.complete().is_err());
        assert!(!queue.post(1));
        assert!(queue.complete().is_err());
    }

    proptest! {
        /// Whatever is posted and completed in between: when the queue or the ring is full, a completion is under way that
        /// makes room.
        #[test]
        fn it_never_waits_for_what_nothing_reports(
            depth in 1_u32..300, steps in prop::collection::vec((0_u64..100, any::<bool>(), any::<bool>()), 1..600),
        ) {
            let units = 256;
            let mut queue = SendQueue::new(depth, units, false);
            let (mut written, mut under_way) = (0, 0_u32);
            for (size, completes, asks) in steps {
                if completes && under_way > 0 {
                    queue.complete().unwrap();
                    under_way -= 1;
                }
                if asks {
                    queue.ask_next();
                }
                let fits = written + size - queue.sent() <= units;
                if queue.room() == 0 || !fits {
                    prop_assert!(under_way > 0 || (queue.room() > 0 && written - queue.sent() <= units / 4));
                    continue;
                }
                written += size;
                under_way += u32::from(queue.post(written));
            }
            while under_way > 0 {
                queue.complete().unwrap();
                under_way -= 1;
            }
            prop_assert_eq!(queue.is_idle(), !queue.has_silent());
            prop_assert!(queue.room() >= depth - depth / 2);
        }
    }
}
