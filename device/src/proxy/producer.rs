//! A producer on the CPU: what `spmd_proxy.cuh` does in a kernel, for threads of the host and for tests without a GPU.

use super::{layout::Request, memory::Ring, ring};
use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

/// Puts requests into a ring. Any number of them may share one.
#[derive(Clone, Debug)]
pub struct Producer {
    ring: Arc<Ring>,
    limit: Duration,
}

/// Why a request was not taken or not completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProducerError {
    /// The proxy took nothing for too long.
    #[error("the proxy has done nothing for {waited:?}: its thread is stuck or has no processor")]
    Stalled {
        /// The limit.
        waited: Duration,
    },
    /// The proxy could not carry out a request.
    #[error("the proxy could not carry out request {position} of the ring; Proxy::stop says why")]
    Failed {
        /// Which.
        position: u64,
    },
    /// Another producer has given up and left a hole.
    #[error("another producer has given up: the ring is finished")]
    Finished,
}

impl Producer {
    /// A producer whose waits end after `limit`.
    #[must_use]
    pub fn new(ring: Arc<Ring>, limit: Duration) -> Self {
        Producer { ring, limit }
    }

    /// Puts a request into the ring; its position. What the caller had written before is visible to the proxy.
    ///
    /// # Errors
    /// When there is no room within the limit, or the ring has failed.
    pub fn push(&self, request: &Request) -> Result<u64, ProducerError> {
        let words = request.encode();
        if self.ring.failed_word().load(Ordering::Acquire) != 0 {
            return Err(self.reason());
        }
        let pushed = ring::push(&self.ring, &words, self.waiting());
        if pushed.is_err() {
            self.ring.failed_word().store(1, Ordering::Release);
        }
        pushed
    }

    /// Waits until the place of a request is free again: a put's source may be changed.
    ///
    /// # Errors
    /// When that takes longer than the limit, or the ring has failed.
    pub fn wait_taken(&self, position: u64) -> Result<(), ProducerError> {
        let mut wait = self.waiting();
        while self.ring.taken_word().load(Ordering::Acquire) <= position {
            wait()?;
        }
        Ok(())
    }

    /// Waits until a request is complete: bytes that it gets are there, and what a quiet waits for is visible.
    ///
    /// # Errors
    /// When that takes longer than the limit, or the ring has failed.
    pub fn wait_completed(&self, position: u64) -> Result<(), ProducerError> {
        let mut wait = self.waiting();
        while self.ring.completed_word().load(Ordering::Acquire) <= position {
            wait()?;
        }
        Ok(())
    }

    fn reason(&self) -> ProducerError {
        match self.ring.error_word().load(Ordering::Acquire) {
            0 => ProducerError::Finished,
            position => ProducerError::Failed { position: position - 1 },
        }
    }

    fn waiting(&self) -> impl FnMut() -> Result<(), ProducerError> {
        let mut begun = None;
        let mut rounds = 0_u32;
        move || {
            if self.ring.error_word().load(Ordering::Acquire) != 0
                || self.ring.failed_word().load(Ordering::Acquire) != 0
            {
                return Err(self.reason());
            }
            rounds = rounds.wrapping_add(1);
            if !rounds.is_multiple_of(64) {
                std::hint::spin_loop();
                return Ok(());
            }
            std::thread::yield_now();
            let begun = *begun.get_or_insert_with(Instant::now);
            if begun.elapsed() > self.limit {
                return Err(ProducerError::Stalled { waited: self.limit });
            }
            Ok(())
        }
    }
}
