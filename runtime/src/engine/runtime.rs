//! What all communicators of a rank share: its engine behind a lock, and what a call hears of the rest of the job when it
//! takes that lock.

use super::{Engine, lock::Lock, operation::NoBuffers, pace::Waiting};
use crate::error::{Error, Result};
use crate::memory::{Activity, Segment};
use crate::trace::{self, Recorder, What};
use std::{
    os::fd::OwnedFd,
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
};

/// The epoll token of the eventfd that wakes this rank. Transports use tokens above [`FIRST_FREE_TOKEN`].
pub(crate) const WAKE_TOKEN: u64 = 0;
/// The epoll token of the control socket to the agent.
pub(crate) const CONTROL_TOKEN: u64 = 1;
/// The epoll token of the eventfd by which a thread of this rank wakes another.
pub(crate) const BELL_TOKEN: u64 = 2;
/// The epoll token of the descriptor that tells of RDMA completions.
pub(crate) const COMPLETION_TOKEN: u64 = 3;
/// The first token that a transport may use.
pub(crate) const FIRST_FREE_TOKEN: u64 = 16;

/// Calls that find nothing and do not wait between two looks at the lifeline.
const LISTEN_EVERY: u32 = 256;

/// What all communicators of a rank share.
pub(crate) struct Runtime {
    engine: Mutex<Engine>,
    /// Threads that wait while another one sleeps on the descriptors, and how many such sleeps have ended.
    pub(super) others: Condvar,
    pub(super) sleeps: Mutex<u64>,
    /// Every descriptor that can end a wait is registered here.
    pub(super) poller: Arc<OwnedFd>,
    pub(super) waiting: Waiting,
    idle_pokes: AtomicU32,
    /// What there is to know of the rest of the job.
    lifeline: Box<dyn Fn() -> Vec<News> + Send + Sync>,
    /// How much of the news that the segment counts has been listened to.
    heard: AtomicU64,
    /// See [`Engine::trouble`].
    trouble: Arc<AtomicBool>,
    /// Where this rank says what it is doing, and its place there.
    pub(super) board: Option<(Arc<Segment>, usize)>,
    /// Records calls, when that is asked for.
    pub(super) recorder: Option<Arc<Recorder>>,
}

/// A call or a whole operation that is recorded from here until it is dropped, if anything is.
#[derive(Debug)]
pub(crate) struct Span<'a> {
    recorded: Option<(&'a Recorder, u64)>,
    what: What,
}

impl Drop for Span<'_> {
    fn drop(&mut self) {
        if let Some((recorder, began)) = self.recorded {
            recorder.ended(began, self.what);
        }
    }
}

/// News of the rest of the job.
#[derive(Clone, Debug)]
pub(crate) enum News {
    /// Nothing works any more.
    Fatal(Error),
    /// A rank is gone, and the job goes on.
    Lost {
        /// Its rank in the world.
        peer: usize,
        /// How it was lost.
        reason: String,
    },
    /// A rank has dropped its world. What it has sent may still be on its way.
    Finished {
        /// Its rank in the world.
        peer: usize,
    },
}

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runtime").field("waiting", &self.waiting).finish_non_exhaustive()
    }
}

impl Runtime {
    pub(crate) fn new(
        engine: Engine,
        poller: Arc<OwnedFd>,
        waiting: Waiting,
        lifeline: Box<dyn Fn() -> Vec<News> + Send + Sync>,
        board: Option<(Arc<Segment>, usize)>,
    ) -> Self {
        let (recorder, trouble) = (engine.recorder.clone(), engine.trouble());
        Runtime {
            engine: Mutex::new(engine),
            others: Condvar::new(),
            sleeps: Mutex::new(0),
            poller,
            waiting,
            idle_pokes: AtomicU32::new(0),
            lifeline,
            heard: AtomicU64::new(0),
            trouble,
            board,
            recorder,
        }
    }

    /// Records what happens from now on until the result is dropped.
    pub(crate) fn span(&self, what: What) -> Span<'_> {
        Span { recorded: self.recorder.as_deref().map(|recorder| (recorder, trace::now())), what }
    }

    /// What records calls, if anything does.
    pub(crate) fn recorder(&self) -> Option<&Recorder> {
        self.recorder.as_deref()
    }

    /// Says what this rank is doing until it says something else.
    pub(crate) fn publish(&self, activity: Activity) {
        if let Some((segment, place)) = &self.board {
            segment.publish(*place, activity);
        }
    }

    pub(super) fn listen(&self, engine: &mut Engine) {
        for news in (self.lifeline)() {
            match news {
                News::Fatal(error) => engine.fail(error),
                News::Lost { peer, reason } => engine.lose(peer, reason),
                News::Finished { peer } => engine.peer_finished(peer),
            }
        }
    }

    /// Whether the segment tells of news that nobody has listened to.
    #[inline]
    fn has_news(&self) -> bool {
        self.board.as_ref().is_some_and(|(segment, _)| segment.news() != self.heard.load(Ordering::Relaxed))
    }

    /// Listens to what others have to say of the rest of the job, and takes in what peers that are gone have left behind.
    #[cold]
    fn hear(&self, engine: &mut Engine) {
        if let Some((segment, _)) = &self.board {
            self.heard.store(segment.news(), Ordering::Relaxed);
        }
        self.listen(engine);
        // What goes wrong is the next call's to report.
        let _ = engine.progress(&mut NoBuffers);
    }

    /// Whether the memory of a peer, which is mapped here, may be accessed: whether the peer is there. For operations that
    /// do not need the engine otherwise.
    #[inline]
    pub(crate) fn check(&self, peer: usize, operation: &'static str) -> Result<()> {
        if self.has_news() || self.trouble.load(Ordering::Relaxed) {
            return self.check_closely(peer, operation);
        }
        Ok(())
    }

    #[cold]
    fn check_closely(&self, peer: usize, operation: &'static str) -> Result<()> {
        let mut engine = self.lock();
        if engine.is_departure_due() {
            engine.progress(&mut NoBuffers)?;
        }
        engine.check(peer, operation)
    }

    /// The engine, for a step that does not wait. Whatever a call does first, it hears of the rest of the job. A thread that panicked with the lock has left nothing half done that
    /// others rely on: operations are moved by single assignments.
    #[inline]
    pub(crate) fn lock(&self) -> Lock<'_> {
        let mut engine = Lock::new(self.engine.lock().unwrap_or_else(PoisonError::into_inner));
        if self.has_news() {
            self.hear(&mut engine);
        }
        engine
    }

    /// Whether ranks of this host share processors, so that one that waits gives way to the others.
    pub(crate) fn shares_processors(&self) -> bool {
        matches!(self.waiting, Waiting::YieldThenSleep | Waiting::Yield)
    }

    /// One round of progress without waiting. A program that polls hears of the rest of the job here, too.
    pub(crate) fn poke(&self) -> Result<()> {
        let mut engine = self.lock();
        let moved = engine.progress(&mut NoBuffers)?;
        if !moved && self.idle_pokes.fetch_add(1, Ordering::Relaxed) % LISTEN_EVERY == LISTEN_EVERY - 1 {
            self.listen(&mut engine);
        }
        Ok(())
    }

    /// The same, and in any case what there is to know of the rest of the job; then what `check` finds.
    pub(crate) fn look_up(&self, check: impl FnOnce(&Engine) -> Result<()>) -> Result<()> {
        let mut engine = self.lock();
        self.listen(&mut engine);
        engine.progress(&mut NoBuffers)?;
        check(&engine)
    }
}

impl Engine {
    /// Memory of this rank has changed that another thread of it may wait for.
    pub(crate) fn announce(&mut self) {
        self.core.news += 1;
        self.tell_sleeper(true);
    }

    /// Memory of this peer has changed that it may wait for.
    pub(crate) fn nudge(&mut self, peer: usize) -> Result<()> {
        self.transport(peer).nudge(peer)
    }
}
