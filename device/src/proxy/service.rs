//! The proxy thread: takes descriptors in order, carries them out, and says how far it is.
//!
//! A GPU cannot wake a thread, so the thread looks; the longer nothing comes, the less often. Knows the ring and the
//! carrier, and nothing of who produces.

use super::{
    carrier::Carrier,
    layout::{Request, WORDS},
    memory::Ring,
    ring::Consumer,
};
use rustix::thread::{CpuSet, sched_setaffinity};
use spmd::{Error, Pending, Placement, Result};
use std::{
    collections::VecDeque,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// The most descriptors between two looks at everything else.
const BATCH: usize = 32;
/// Rounds without work between two rounds of progress, where peers' operations on this rank need it.
const PROGRESS_EVERY: u32 = 16;
/// The same where nothing needs it but news of the job.
const LISTEN_EVERY: u32 = 4096;
/// Rounds without work between two times that the processor is offered to others, and the clock is looked at.
const SPINS: u32 = 64;
/// After so long without work the thread begins to nap.
const BRISK: Duration = Duration::from_millis(20);
/// How long a nap is: what the first descriptor after a pause may wait.
const NAP: Duration = Duration::from_micros(50);

/// What a proxy has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Descriptors carried out.
    pub descriptors: u64,
    /// Rounds that found at least one.
    pub batches: u64,
    /// Naps for want of work.
    pub naps: u64,
}

/// A thread that carries out what producers put into a ring. Dropping it stops the thread; what was in the ring is done
/// before.
///
/// # Order
/// Requests are carried out in the order of the ring. A producer's requests are in the ring in the order in which it made
/// them, and those of two producers that have synchronized in the order of that. A signal covers every put to the same
/// rank that is before it in the ring, whoever made it (a strong signal).
#[derive(Debug)]
pub struct Proxy {
    ring: Arc<Ring>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<(Counters, Result<()>)>>,
    /// Why the thread has given up, once it has.
    reason: Arc<OnceLock<String>>,
    /// The processor that the thread is bound to.
    processor: Option<u32>,
}

impl Proxy {
    /// Starts the thread for a ring of `entries` descriptors, rounded up to a power of two.
    ///
    /// A rank that the launcher has bound, next to its GPU, to more than one hardware thread keeps the last one for the
    /// proxy; any other leaves the choice to the kernel.
    ///
    /// # Errors
    /// When there is no memory for the ring, or no thread.
    pub fn start(carrier: Carrier, entries: usize, placement: &Placement) -> Result<Self> {
        let ring = Arc::new(Ring::new(entries).map_err(|error| system("making the ring of a proxy", error))?);
        let stop = Arc::new(AtomicBool::new(false));
        let processor = processor(placement);
        let reason = Arc::new(OnceLock::new());
        let worker = Worker {
            reason: reason.clone(),
            consumer: Consumer::new(ring.clone(), 0),
            ring: ring.clone(),
            carrier,
            pending: VecDeque::new(),
            counters: Counters::default(),
            stop: stop.clone(),
            is_bound: processor.is_some(),
        };
        let thread = std::thread::Builder::new()
            .name("device proxy".into())
            .spawn(move || worker.run(processor))
            .map_err(|error| system("starting the thread of a proxy", error))?;
        Ok(Proxy { ring, stop, thread: Some(thread), reason, processor })
    }

    /// The ring, for producers.
    #[must_use]
    pub fn ring(&self) -> &Arc<Ring> {
        &self.ring
    }

    /// Why the proxy has given up, if it has: whatever was asked of it since then is not done.
    #[must_use]
    pub fn failure(&self) -> Option<&str> {
        self.reason.get().map(String::as_str)
    }

    /// The processor that the thread is bound to, by the kernel's number; none: the kernel chooses.
    #[must_use]
    pub fn processor(&self) -> Option<u32> {
        self.processor
    }

    /// Carries out what is in the ring, completes it, and ends the thread.
    ///
    /// # Errors
    /// Why a request could not be carried out: nothing after it was.
    ///
    /// # Panics
    /// With the panic of the thread.
    pub fn stop(mut self) -> Result<Counters> {
        let (counters, result) = self.end().expect("it is stopped once");
        result.map(|()| counters)
    }

    fn end(&mut self) -> Option<(Counters, Result<()>)> {
        self.stop.store(true, Ordering::Release);
        self.thread.take().map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // Whoever wants to know of errors calls `stop`; kernels have seen the ring's error word.
            let _ = self.end();
        }
    }
}

/// The last hardware thread of a rank that has several.
fn processor(placement: &Placement) -> Option<u32> {
    placement.cpus.last().copied().filter(|_| placement.cpus.len() > 1)
}

fn system(what: &str, error: std::io::Error) -> Error {
    Error::System { what: what.into(), error: error.into() }
}

struct Worker {
    consumer: Consumer<Arc<Ring>>,
    ring: Arc<Ring>,
    carrier: Carrier,
    /// What is still under way, with the position of its descriptor.
    pending: VecDeque<(u64, Pending)>,
    counters: Counters,
    stop: Arc<AtomicBool>,
    reason: Arc<OnceLock<String>>,
    /// Whether it has a processor of its own.
    is_bound: bool,
}

impl Worker {
    fn run(mut self, processor: Option<u32>) -> (Counters, Result<()>) {
        if let Some(processor) = processor {
            let mut set = CpuSet::new();
            set.set(usize::try_from(processor).unwrap_or(0));
            // Only a matter of speed: a processor that has gone offline is no reason to fail.
            let _ = sched_setaffinity(None, &set);
        }
        let result = self.serve();
        if let Err(error) = &result {
            // Before the ring says so: whoever reads there that it failed finds why.
            let _ = self.reason.set(error.to_string());
            let failed = self.pending.front().map_or(self.consumer.next(), |(position, _)| position + 1);
            self.ring.error_word().store(failed.max(1), Ordering::Release);
        }
        (self.counters, result)
    }

    fn serve(&mut self) -> Result<()> {
        let progress_every = if self.carrier.needs_progress() { PROGRESS_EVERY } else { LISTEN_EVERY };
        let mut idle = 0_u32;
        let mut since = Instant::now();
        loop {
            // Before the look at the ring: what was put there before the stop is still found.
            let is_last = self.stop.load(Ordering::Acquire);
            let found = self.batch()?;
            let waits = self.settle()?;
            if found {
                idle = 0;
                continue;
            }
            if is_last && !waits {
                return self.carrier.progress();
            }
            idle = idle.saturating_add(1);
            if waits || idle.is_multiple_of(progress_every) {
                self.carrier.progress()?;
            }
            if idle == 1 {
                since = Instant::now();
            }
            if !idle.is_multiple_of(SPINS) {
                std::hint::spin_loop();
            } else if waits || since.elapsed() < BRISK {
                // A processor of its own has nobody to be offered to.
                if !self.is_bound {
                    std::thread::yield_now();
                }
            } else {
                self.counters.naps += 1;
                std::thread::sleep(NAP);
                self.carrier.progress()?;
                // After the next look there is a nap again, unless something has come.
                idle -= 1;
            }
        }
    }

    /// Carries out what is there, up to a batch; whether that was anything.
    fn batch(&mut self) -> Result<bool> {
        let mut words = [0; WORDS];
        let mut count = 0;
        while count < BATCH && self.consumer.take(&mut words) {
            count += 1;
            let position = self.consumer.next() - 1;
            let request = Request::decode(&words).map_err(|what| Error::Heap {
                operation: "a request of a kernel",
                reason: format!(
                    "descriptor {position} of the ring has {what}: the kernel was built with another header"
                ),
            })?;
            if let Some(pending) = self.carrier.carry(&request)? {
                self.pending.push_back((position, pending));
                // A producer waits for it: it leaves now.
                break;
            }
        }
        if count == 0 {
            return Ok(false);
        }
        self.counters.descriptors += count as u64;
        self.counters.batches += 1;
        if self.carrier.needs_progress() {
            self.carrier.progress()?;
        }
        Ok(true)
    }

    /// Says how far everything is; whether something is still under way.
    fn settle(&mut self) -> Result<bool> {
        while let Some((_, pending)) = self.pending.front_mut() {
            if !pending.is_done()? {
                break;
            }
            self.pending.pop_front();
        }
        let taken = self.consumer.next();
        let completed = self.pending.front().map_or(taken, |(position, _)| *position);
        // Producers read these lines over the bus: they are written only when something has changed.
        if self.ring.taken_word().load(Ordering::Relaxed) != taken {
            self.consumer.publish();
        }
        if self.ring.completed_word().load(Ordering::Relaxed) != completed {
            self.ring.completed_word().store(completed, Ordering::Release);
        }
        Ok(!self.pending.is_empty())
    }
}
