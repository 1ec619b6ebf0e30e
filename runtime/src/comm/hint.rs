//! The size hint of a communicator: agreed upon by its ranks, kept once messages have gone by it.

use super::Communicator;
use crate::{
    config::{self, keys},
    error::{Error, Result},
    hint::{HintApplies, HintOn, SizeHint},
    memory::Operation,
};
use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

/// A hint that was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Requested {
    pub(crate) bytes: usize,
    /// Where: a layer of the configuration, or a call.
    pub(crate) source: String,
}

/// The hint of one communicator.
#[derive(Debug)]
pub(super) struct Hint {
    /// In bytes; every message reads it.
    bytes: AtomicUsize,
    /// Messages have gone by it.
    used: AtomicBool,
    own: Mutex<Requested>,
    /// What communicators get that are made from this one.
    children: Mutex<Requested>,
}

impl Hint {
    pub(super) fn new(requested: Requested) -> Self {
        Hint {
            bytes: requested.bytes.into(),
            used: false.into(),
            own: Mutex::new(requested.clone()),
            children: Mutex::new(requested),
        }
    }

    /// For a message that is about to be sent. From now on the hint stays.
    pub(super) fn of_message(&self) -> usize {
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
        self.bytes.load(Ordering::Relaxed)
    }

    pub(super) fn of_children(&self) -> Requested {
        self.children.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn own(&self) -> Requested {
        self.own.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, requested: Requested, own_too: bool) {
        if own_too {
            self.bytes.store(requested.bytes, Ordering::Relaxed);
            *self.own.lock().unwrap_or_else(PoisonError::into_inner) = requested.clone();
        }
        *self.children.lock().unwrap_or_else(PoisonError::into_inner) = requested;
    }
}

impl Communicator {
    /// The size hint of this communicator: what was asked for, where, and what it comes to on each transport that reaches
    /// another of its ranks.
    #[must_use]
    pub fn low_latency_size_hint(&self) -> SizeHint {
        let Requested { bytes, source } = self.inner.hint.own();
        let engine = self.runtime().lock();
        let mut transports: Vec<HintOn> = Vec::new();
        for (_, &peer) in self.inner.members.iter().enumerate().filter(|(rank, _)| *rank != self.inner.rank) {
            let on = HintOn::new(engine.limits(peer), bytes);
            if transports.iter().all(|other| other.transport != on.transport) {
                transports.push(on);
            }
        }
        SizeHint { requested: bytes as u64, source, transports }
    }

    /// Promises that most messages of this communicator are at most `bytes` bytes (0: promises nothing). Collective: every
    /// rank must give the same value.
    ///
    /// Connections do not change their recipe while messages are under way on them: a communicator that any of its ranks
    /// has used keeps its hint, and the new one holds for communicators made from it. The result says which. See
    /// [`size_hint_for_gradients`](crate::size_hint_for_gradients) for a value, and
    /// [`Communicator::low_latency_size_hint`] for what it comes to.
    ///
    /// ```no_run
    /// # fn main() -> spmd::Result<()> {
    /// # use spmd::prelude::*;
    /// let world = World::builder().low_latency_size_hint(16 << 10).init()?;
    /// let hint = world.low_latency_size_hint();
    /// println!("{} of {} bytes: {hint}", hint.effective(), hint.requested);
    ///
    /// let gradients = world.communicator().duplicate()?;
    /// let bytes = spmd::size_hint_for_gradients(&[4 << 20, 64 << 10], world.size());
    /// let _ = gradients.set_low_latency_size_hint(bytes)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// On every rank: [`Error::Disagreement`] when ranks give different values, [`Error::Setting`] when the value is not
    /// in the range of the key `low_latency.size_hint`. Nothing changes then. When a rank is lost.
    pub fn set_low_latency_size_hint(&self, bytes: u64) -> Result<HintApplies> {
        const OPERATION: &str = "set_low_latency_size_hint";
        let used = self.inner.hint.used.load(Ordering::Relaxed);
        let all = self.gather_words(Operation::SizeHint, [bytes, u64::from(used), 0])?;
        let first = all[0][0];
        if let Some((rank, [value, ..])) = all.iter().enumerate().find(|(_, [value, ..])| *value != first) {
            return Err(Error::Disagreement { operation: OPERATION, rank, value: *value, first });
        }
        config::program_setting(keys::LOW_LATENCY_SIZE_HINT.name, &bytes.to_string())
            .map_err(|error| Error::Setting { reason: error.to_string() })?;
        let used = all.iter().any(|[_, used, _]| *used != 0);
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        self.inner.hint.set(Requested { bytes, source: OPERATION.to_string() }, !used);
        Ok(if used { HintApplies::ToNewCommunicators } else { HintApplies::Now })
    }
}
