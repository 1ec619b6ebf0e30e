//! Words of a symmetric heap that are changed atomically, and signals: words that somebody waits for.

use super::{HeapBuffer, Reach};
use crate::{
    element::Element,
    engine::Engine,
    error::{Error, Result},
    memory::{
        Activity,
        heap::{Update, Width},
    },
};
use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

/// A word that can be changed atomically: `u32`, `i32`, `u64` and `i64`.
pub trait Atomic: Element + PartialOrd + private::Word {}

mod private {
    use crate::memory::heap::Width;

    /// A word as the memory sees it.
    pub trait Word {
        #[expect(private_interfaces, reason = "sealed")]
        const WIDTH: Width;
        fn to_bits(self) -> u64;
        fn from_bits(bits: u64) -> Self;
    }
}

macro_rules! words {
    ($($word:ty, $unsigned:ty, $width:ident;)*) => {$(
        impl private::Word for $word {
            #[expect(private_interfaces, reason = "sealed")]
            const WIDTH: Width = Width::$width;

            #[allow(clippy::cast_sign_loss, clippy::cast_lossless, trivial_numeric_casts, reason = "the same bits")]
            fn to_bits(self) -> u64 {
                self as $unsigned as u64
            }

            #[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "the same bits")]
            fn from_bits(bits: u64) -> Self {
                bits as $unsigned as $word
            }
        }
        impl Atomic for $word {}
    )*};
}

words! {
    u32, u32, Four;
    i32, u32, Four;
    u64, u64, Eight;
    i64, u64, Eight;
}

/// What a signal does with its word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalOp {
    /// Sets it.
    Set(u64),
    /// Adds to it, wrapping around.
    Add(u64),
}

impl SignalOp {
    pub(super) fn update(self) -> Update {
        match self {
            SignalOp::Set(value) => Update::Set(value),
            SignalOp::Add(value) => Update::Add(value),
        }
    }
}

/// What a signal's word must be for the wait to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    /// Equal to this.
    Equal(u64),
    /// Anything but this.
    NotEqual(u64),
    /// This or more.
    AtLeast(u64),
}

impl Compare {
    fn holds(self, value: u64) -> bool {
        match self {
            Compare::Equal(wanted) => value == wanted,
            Compare::NotEqual(unwanted) => value != unwanted,
            Compare::AtLeast(least) => value >= least,
        }
    }
}

impl<T: Atomic> HeapBuffer<T> {
    /// Where word `index` is, in bytes.
    fn word(&self, index: usize, operation: &'static str) -> Result<usize> {
        self.check(operation)?;
        if index >= self.len() {
            let reason = format!("word {index} where the buffer has {}", self.len());
            return Err(Error::Heap { operation, reason });
        }
        Ok(self.offset() + index * size_of::<T>())
    }

    /// Updates a word of `rank`; what was there before, where that is `wanted`.
    fn update(&self, index: usize, update: Update, rank: usize, wanted: bool, operation: &'static str) -> Result<T> {
        let at = self.word(index, operation)?;
        let heap = self.heap();
        heap.counters().updates.add();
        let before = match heap.reach(rank, operation)? {
            Reach::Mapped { part } => {
                let before = heap.memory.update(part, at, T::WIDTH, update);
                if update != Update::Fetch {
                    heap.has_changed(rank);
                    heap.wake(rank)?;
                }
                before
            }
            Reach::Records => {
                let communicator = &heap.communicator;
                let peer = communicator.world_rank(rank);
                let ask =
                    |engine: &mut Engine| engine.update(peer, heap.key, at, (T::WIDTH, update), wanted).transpose();
                let request = heap.wait(ask)?;
                if !wanted {
                    heap.pending[rank].store(true, Ordering::Relaxed);
                    // What can leave now leaves now, not when this rank next waits.
                    communicator.runtime().poke()?;
                    return Ok(T::zeroed());
                }
                let answer = heap.answer(request)?;
                answer.try_into().map_or(0, u64::from_ne_bytes)
            }
        };
        Ok(T::from_bits(before))
    }

    /// Reads word `index` of `rank` atomically.
    ///
    /// # Errors
    /// When there is no such word or rank, or the rank is lost.
    pub fn fetch(&self, index: usize, rank: usize) -> Result<T> {
        self.update(index, Update::Fetch, rank, true, "HeapBuffer::fetch")
    }

    /// Sets word `index` of `rank` atomically. Does not wait for it to be done.
    ///
    /// # Errors
    /// As for [`HeapBuffer::fetch`].
    pub fn set(&self, index: usize, value: T, rank: usize) -> Result<()> {
        self.update(index, Update::Set(value.to_bits()), rank, false, "HeapBuffer::set").map(drop)
    }

    /// Adds to word `index` of `rank` atomically, wrapping around, without waiting for it to be done.
    ///
    /// # Errors
    /// As for [`HeapBuffer::fetch`].
    pub fn add(&self, index: usize, value: T, rank: usize) -> Result<()> {
        self.update(index, Update::Add(value.to_bits()), rank, false, "HeapBuffer::add").map(drop)
    }

    /// Adds to word `index` of `rank` atomically, wrapping around; what was there before.
    ///
    /// # Errors
    /// As for [`HeapBuffer::fetch`].
    pub fn fetch_add(&self, index: usize, value: T, rank: usize) -> Result<T> {
        self.update(index, Update::Add(value.to_bits()), rank, true, "HeapBuffer::fetch_add")
    }

    /// Sets word `index` of `rank` atomically; what was there before.
    ///
    /// # Errors
    /// As for [`HeapBuffer::fetch`].
    pub fn swap(&self, index: usize, value: T, rank: usize) -> Result<T> {
        self.update(index, Update::Set(value.to_bits()), rank, true, "HeapBuffer::swap")
    }

    /// Sets word `index` of `rank` to `new` if it is `old`, atomically; what was there before.
    ///
    /// # Errors
    /// As for [`HeapBuffer::fetch`].
    pub fn compare_swap(&self, index: usize, old: T, new: T, rank: usize) -> Result<T> {
        let update = Update::CompareSwap(old.to_bits(), new.to_bits());
        self.update(index, update, rank, true, "HeapBuffer::compare_swap")
    }
}

impl HeapBuffer<u64> {
    /// Raises signal `index` of `rank`. Whoever has seen it sees everything that this rank had put to that rank before.
    ///
    /// # Errors
    /// As for [`HeapBuffer::fetch`].
    pub fn signal(&self, index: usize, op: SignalOp, rank: usize) -> Result<()> {
        self.update(index, op.update(), rank, false, "HeapBuffer::signal").map(drop)
    }

    /// Waits until signal `index` of this rank's own memory is as wanted, and returns it. Other messages of this rank make
    /// progress meanwhile.
    ///
    /// # Errors
    /// [`Error::SignalTimeout`] when it is not within `timeout`; when the heap's communicator is revoked; when the job ends. A signal says nothing of who raises
    /// it, so that without a limit a rank that is lost is waited for as long as the job goes on.
    pub fn wait_signal(&self, index: usize, wanted: Compare, timeout: Option<Duration>) -> Result<u64> {
        let at = self.word(index, "HeapBuffer::wait_signal")?;
        let memory = &self.heap().memory;
        let look = || memory.update(memory.own(), at, Width::Eight, Update::Fetch);
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let ready = || Some(look()).filter(|value| wanted.holds(*value));
        let runtime = self.heap().communicator.runtime();
        let found = runtime.wait_for_memory(self.heap().communicator.context(), Activity::Signal, deadline, ready)?;
        found.ok_or_else(|| Error::SignalTimeout {
            rank: self.heap().communicator.rank(),
            index,
            wanted: format!("{wanted:?}"),
            found: look(),
            waited: timeout.unwrap_or_default(),
        })
    }
}

impl<T: Element> HeapBuffer<T> {
    /// [`put`](Self::put), then a [`signal`](HeapBuffer::signal) to the same rank.
    ///
    /// # Errors
    /// As for both.
    pub fn put_signal(
        &self,
        data: &[T],
        rank: usize,
        signal: &HeapBuffer<u64>,
        index: usize,
        op: SignalOp,
    ) -> Result<()> {
        signal.check("signal")?;
        self.put(data, rank)?;
        signal.signal(index, op, rank)
    }
}
