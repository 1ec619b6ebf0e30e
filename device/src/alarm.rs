//! What a kernel has found wrong, and whether kernels are to end their waits: the record that host and kernels share.
//!
//! Knows the record's memory, and nothing of who raises the alarm.

use crate::{
    context::{ErrorRecord, STOP_ASKED, STOP_LOST, STOP_NOT},
    driver::Gpu,
    error::Result,
    memory::Pinned,
};
use std::{
    mem::offset_of,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// How long a kernel may take from claiming the record to completing it.
const COMPLETION: Duration = Duration::from_secs(1);

/// The record, and why waits end.
#[derive(Debug)]
pub(crate) struct Alarm {
    record: Pinned<ErrorRecord>,
    stop: Mutex<Stop>,
}

#[derive(Debug, Default)]
struct Stop {
    /// The program wants kernels to end.
    asked: bool,
    /// Ranks are not all there any more, which is for ever.
    loss: Option<spmd::Error>,
}

impl Stop {
    /// What kernels are told.
    fn word(&self) -> u32 {
        match self {
            Stop { loss: Some(_), .. } => STOP_LOST,
            Stop { asked: true, .. } => STOP_ASKED,
            Stop { .. } => STOP_NOT,
        }
    }
}

impl Alarm {
    pub(crate) fn new(gpu: &Gpu) -> Result<Self> {
        Ok(Alarm { record: Pinned::new(gpu)?, stop: Mutex::default() })
    }

    /// Where kernels see the record.
    pub(crate) fn address(&self) -> u64 {
        self.record.address()
    }

    /// Has kernels end their waits, or lets them wait again.
    pub(crate) fn ask(&self, stop: bool) {
        self.change(|state| state.asked = stop);
    }

    /// Has kernels end their waits from now on.
    pub(crate) fn lose(&self, error: spmd::Error) {
        self.change(|state| {
            state.loss.get_or_insert(error);
        });
    }

    /// Why ranks are not all there any more.
    pub(crate) fn loss(&self) -> Option<spmd::Error> {
        self.stop().loss.clone()
    }

    /// What a kernel has recorded, if any has; the record is free again then.
    pub(crate) fn take(&self) -> Option<ErrorRecord> {
        let mut found = self.record.read();
        if found.code == 0 {
            return None;
        }
        let begun = Instant::now();
        while found.complete == 0 && begun.elapsed() < COMPLETION {
            found = self.record.read();
        }
        // Under the lock, so that what is written to `stop` meanwhile stays.
        let stop = self.stop();
        self.record.write(ErrorRecord { stop: stop.word(), ..ErrorRecord::default() });
        Some(found)
    }

    fn stop(&self) -> MutexGuard<'_, Stop> {
        self.stop.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Stop)) {
        let mut stop = self.stop();
        change(&mut stop);
        self.record.write_word(offset_of!(ErrorRecord, stop), stop.word());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_is_for_ever_and_comes_before_what_the_program_asks_for() {
        let mut stop = Stop::default();
        assert_eq!(stop.word(), STOP_NOT);
        stop.asked = true;
        assert_eq!(stop.word(), STOP_ASKED);
        stop.loss = Some(spmd::Error::Revoked { by: 3 });
        assert_eq!(stop.word(), STOP_LOST);
        stop.asked = false;
        assert_eq!(stop.word(), STOP_LOST);
    }
}
