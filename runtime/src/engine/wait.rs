//! Waiting: spin a little, then yield, then sleep on the rank's descriptors.

use super::{
    Engine,
    lock::Lock,
    operation::{Buffers, NoBuffers},
};
use crate::error::{Context, Error, Result};
use crate::memory::{Activity, Segment};
use crate::trace::{self, Recorder, What};
use rustix::{
    buffer::spare_capacity,
    event::{Timespec, epoll},
};
use std::{
    os::fd::OwnedFd,
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
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

/// Times a rank that shares its processor yields before it sleeps.
const YIELDS: u32 = 4;
/// Spins between two looks at the clock. At each, the processor is offered to others: the kernel may have put the very
/// rank that is waited for on the same processor, and would let it wait for a whole scheduler tick.
const SPINS_PER_CLOCK: u32 = 64;
/// Turns that a rank which shares its processor gives to others before it looks for messages meanwhile, and may sleep: with
/// many ranks on few processors the one that is waited for comes late in a round of all of them.
const SHORT_YIELDS: u32 = 256;
/// Spins of a rank with a processor of its own before that.
const SHORT_SPINS: u32 = 1024;
/// Spins between two times that other threads of the rank get their turn: the lock costs as much as a look.
const SPINS_PER_TURN: u32 = 8;
/// Idle rounds of a rank that does not sleep between two looks at its lifeline.
const LIFELINE_EVERY: u32 = 1 << 14;
/// Calls that find nothing and do not wait between two looks at the lifeline.
const LISTEN_EVERY: u32 = 256;
/// A sleep ends at the latest after this, in case a peer died before it could wake us.
const LONGEST_SLEEP: Duration = Duration::from_millis(500);

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
pub(crate) struct Pace {
    idle: u32,
    since: Option<Instant>,
}

#[derive(Debug, PartialEq, Eq)]
enum Next {
    Spin,
    Yield,
    Sleep,
}

impl Pace {
    /// Something moved: begin anew.
    pub(crate) fn restart(&mut self) {
        *self = Pace::default();
    }

    fn next(&mut self, waiting: Waiting) -> Next {
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

/// What all communicators of a rank share.
pub(crate) struct Runtime {
    engine: Mutex<Engine>,
    /// Threads that wait while another one sleeps on the descriptors, and how many such sleeps have ended.
    others: Condvar,
    sleeps: Mutex<u64>,
    /// Every descriptor that can end a wait is registered here.
    poller: Arc<OwnedFd>,
    waiting: Waiting,
    idle_pokes: AtomicU32,
    /// What there is to know of the rest of the job.
    lifeline: Box<dyn Fn() -> Vec<News> + Send + Sync>,
    /// Where this rank says what it is doing, and its place there.
    board: Option<(Arc<Segment>, usize)>,
    /// Records calls, when that is asked for.
    recorder: Option<Arc<Recorder>>,
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

/// Says what this rank is doing once it waits, and takes it back.
struct Notice<'a> {
    board: Option<&'a (Arc<Segment>, usize)>,
    activity: Activity,
    posted: bool,
    runtime: &'a Runtime,
    blocked: Option<Span<'a>>,
}

impl Notice<'_> {
    fn post(&mut self) {
        self.posted = true;
        if let Some((segment, place)) = self.board {
            segment.publish(*place, self.activity);
        }
        if self.runtime.recorder.is_some() {
            self.blocked = Some(self.runtime.span(What::Blocked));
        }
    }
}

impl Drop for Notice<'_> {
    fn drop(&mut self) {
        if self.posted
            && let Some((segment, place)) = self.board
        {
            segment.publish(*place, Activity::Computing);
        }
    }
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
        let recorder = engine.recorder.clone();
        Runtime {
            engine: Mutex::new(engine),
            others: Condvar::new(),
            sleeps: Mutex::new(0),
            poller,
            waiting,
            idle_pokes: AtomicU32::new(0),
            lifeline,
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

    fn listen(&self, engine: &mut Engine) {
        for news in (self.lifeline)() {
            match news {
                News::Fatal(error) => engine.fail(error),
                News::Lost { peer, reason } => engine.lose(peer, reason),
                News::Finished { peer } => engine.peer_finished(peer),
            }
        }
    }

    /// The engine, for a step that does not wait. A thread that panicked with the lock has left nothing half done that
    /// others rely on: operations are moved by single assignments.
    pub(crate) fn lock(&self) -> Lock<'_> {
        Lock::new(self.engine.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Makes progress until `done` gives a result. `activity`: what this call is, for whoever asks while it waits.
    pub(crate) fn wait<R, B: Buffers>(
        &self,
        activity: Activity,
        buffers: &mut B,
        mut done: impl FnMut(&mut Engine, &mut B) -> Option<Result<R>>,
    ) -> Result<R> {
        // The operation that a collective's wait belongs to is recorded as a whole.
        let own = !matches!(activity, Activity::Collective { .. });
        let _span = (self.recorder.is_some() && own).then(|| self.span(What::Call(activity)));
        let mut engine = self.lock();
        // The first look: an operation that completed at once needs no progress.
        let seen = engine.news();
        match done(&mut engine, buffers) {
            Some(result) => result,
            None => self.wait_from(engine, seen, activity, buffers, done),
        }
    }

    /// The rest of [`Runtime::wait`]: nothing had been done when the news was `seen`.
    fn wait_from<'a, R, B: Buffers>(
        &'a self,
        mut engine: Lock<'a>,
        mut seen: u64,
        activity: Activity,
        buffers: &mut B,
        mut done: impl FnMut(&mut Engine, &mut B) -> Option<Result<R>>,
    ) -> Result<R> {
        let mut pace = Pace::default();
        let mut notice = Notice { board: self.board.as_ref(), activity, posted: false, runtime: self, blocked: None };
        // Those that wait long look at the clock, too.
        let mut is_due = false;
        loop {
            let moved = engine.progress(buffers)?;
            if engine.news() != seen || is_due {
                seen = engine.news();
                if let Some(result) = done(&mut engine, buffers) {
                    return result;
                }
            }
            if moved {
                is_due = false;
                pace.restart();
                continue;
            }
            let slept;
            (engine, slept) = self.pause(engine, &mut pace, &mut notice, buffers, LONGEST_SLEEP, &mut || false)?;
            is_due = slept || pace.idle.is_multiple_of(LIFELINE_EVERY);
        }
    }

    /// Whether ranks of this host share processors, so that one that waits gives way to the others.
    pub(crate) fn shares_processors(&self) -> bool {
        matches!(self.waiting, Waiting::YieldThenSleep | Waiting::Yield)
    }

    /// Waits shortly for something in memory that peers change, without the engine: for what comes at once if the peers are
    /// about as far as this rank. Whether it came.
    pub(crate) fn wait_shortly(&self, ready: &mut dyn FnMut() -> bool) -> bool {
        let gives_way = self.shares_processors();
        for _ in 0..if gives_way { SHORT_YIELDS } else { SHORT_SPINS } {
            if ready() {
                return true;
            }
            if gives_way {
                rustix::thread::sched_yield();
            } else {
                std::hint::spin_loop();
            }
        }
        ready()
    }

    /// Makes progress until `ready` finds something in memory that peers change without a record, or until `deadline`:
    /// then `None`. `context`: the communicator that all this is about; it ends when that is revoked.
    pub(crate) fn wait_for_memory<R>(
        &self,
        context: u64,
        activity: Activity,
        deadline: Option<Instant>,
        mut ready: impl FnMut() -> Option<R>,
    ) -> Result<Option<R>> {
        if let Some(found) = ready() {
            return Ok(Some(found));
        }
        self.wait_for_either(context, activity, deadline, &mut NoBuffers, ready, |_, _| None)
    }

    /// As [`Runtime::wait_for_memory`], and also until `done` gives a result, as [`Runtime::wait`] does.
    pub(crate) fn wait_for_either<R, B: Buffers>(
        &self,
        context: u64,
        activity: Activity,
        deadline: Option<Instant>,
        buffers: &mut B,
        mut ready: impl FnMut() -> Option<R>,
        mut done: impl FnMut(&mut Engine, &mut B) -> Option<Result<R>>,
    ) -> Result<Option<R>> {
        let mut pace = Pace::default();
        let mut notice = Notice { board: self.board.as_ref(), activity, posted: false, runtime: self, blocked: None };
        let mut engine = self.lock();
        // An operation that completes at once needs no progress.
        let mut is_due = true;
        let mut seen = engine.news();
        loop {
            if engine.news() != seen || is_due {
                seen = engine.news();
                if let Some(result) = done(&mut engine, buffers) {
                    return result.map(Some);
                }
            }
            let moved = engine.progress(buffers)?;
            if let Some(found) = ready() {
                return Ok(Some(found));
            }
            engine.check_open(context)?;
            let left = deadline.map_or(LONGEST_SLEEP, |at| at.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return Ok(None);
            }
            if moved {
                is_due = false;
                pace.restart();
                continue;
            }
            let slept;
            let longest = left.min(LONGEST_SLEEP);
            let mut found = || ready().is_some();
            (engine, slept) = self.pause(engine, &mut pace, &mut notice, buffers, longest, &mut found)?;
            is_due = slept || pace.idle.is_multiple_of(LIFELINE_EVERY);
        }
    }

    /// Nothing has moved: spins, yields or sleeps, as the policy says; whether it slept. For `longest` and `ready` see
    /// [`Runtime::sleep`].
    fn pause<'a>(
        &'a self,
        mut engine: Lock<'a>,
        pace: &mut Pace,
        notice: &mut Notice<'_>,
        buffers: &mut dyn Buffers,
        longest: Duration,
        ready: &mut dyn FnMut() -> bool,
    ) -> Result<(Lock<'a>, bool)> {
        if !notice.posted {
            notice.post();
        }
        if pace.idle % LIFELINE_EVERY == LIFELINE_EVERY - 1 {
            self.listen(&mut engine);
        }
        match pace.next(self.waiting) {
            Next::Spin => {
                engine.waits.spins += 1;
                if !pace.idle.is_multiple_of(SPINS_PER_TURN) {
                    return Ok((engine, false));
                }
                drop(engine);
                std::hint::spin_loop();
                Ok((self.lock(), false))
            }
            Next::Yield => {
                engine.waits.yields += 1;
                drop(engine);
                rustix::thread::sched_yield();
                Ok((self.lock(), false))
            }
            Next::Sleep => Ok((self.sleep(engine, buffers, longest, ready)?, true)),
        }
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

    /// Sleeps until a descriptor or another thread has news, and not when `ready` finds that it need not: it is asked once
    /// peers know that this rank sleeps.
    fn sleep<'a>(
        &'a self,
        mut engine: Lock<'a>,
        buffers: &mut dyn Buffers,
        longest: Duration,
        ready: &mut dyn FnMut() -> bool,
    ) -> Result<Lock<'a>> {
        if engine.sleeper {
            // The sleeper has said so to peers: what they changed before is seen here, what they change later wakes it.
            if ready() {
                return Ok(engine);
            }
            return Ok(self.rest(engine, longest));
        }
        engine.arm(true);
        let progressed = engine.progress_all(buffers);
        let limit = match &progressed {
            Ok(false) if !ready() => {
                engine.next_departure().map_or(longest, |at| at.saturating_duration_since(Instant::now()).min(longest))
            }
            _ => Duration::ZERO,
        };
        let mut slept = Ok(false);
        if !limit.is_zero() {
            engine.sleeper = true;
            engine.waits.sleeps += 1;
            drop(engine);
            slept = self.sleep_on_descriptors(limit);
            engine = self.lock();
            engine.sleeper = false;
            engine.silence();
            *self.sleeps.lock().unwrap_or_else(PoisonError::into_inner) += 1;
            self.others.notify_all();
        }
        engine.arm(false);
        progressed?;
        if slept? {
            self.listen(&mut engine);
        }
        Ok(engine)
    }

    /// Lets the thread that sleeps have the engine until its sleep is over, or for so long at most.
    fn rest<'a>(&'a self, engine: Lock<'a>, longest: Duration) -> Lock<'a> {
        let sleeps = || self.sleeps.lock().unwrap_or_else(PoisonError::into_inner);
        // Counted under the engine's lock: this sleep has not ended before.
        let before = *sleeps();
        drop(engine);
        drop(self.others.wait_timeout_while(sleeps(), longest, |ended| *ended == before));
        self.lock()
    }

    /// Whether it is time to ask for news of the rest of the job: the control socket has some, or nothing has happened for
    /// long.
    fn sleep_on_descriptors(&self, limit: Duration) -> Result<bool> {
        let mut events = Vec::with_capacity(16);
        let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(limit.subsec_nanos()) };
        match epoll::wait(&*self.poller, spare_capacity(&mut events), Some(&timeout)) {
            Ok(0) => return Ok(true),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("waiting for messages (epoll_pwait2)"),
        }
        Ok(events.iter().any(|event| event.data.u64() == CONTROL_TOKEN))
    }
}

impl Engine {
    /// Announces to peers that this rank sleeps, or no longer does.
    pub(super) fn arm(&mut self, asleep: bool) {
        for route in &mut self.routes.routes {
            if asleep {
                route.transport.arm();
            } else {
                route.transport.disarm();
            }
        }
    }

    /// Memory of this rank has changed that another thread of it may wait for.
    pub(crate) fn announce(&mut self) {
        self.core.news += 1;
        self.tell_sleeper(true);
    }

    /// Memory of this peer has changed that it may wait for.
    pub(crate) fn nudge(&mut self, peer: usize) -> Result<()> {
        self.transport(peer).nudge(peer)
    }

    /// The sleep is over: the next one must not end at once.
    fn silence(&mut self) {
        if std::mem::take(&mut self.rung) {
            let _ = rustix::io::read(&self.bell, &mut [0_u8; 8]);
        }
    }

    /// Progress that leaves no transport out: the last look before sleeping.
    fn progress_all(&mut self, buffers: &mut dyn Buffers) -> Result<bool> {
        self.polls = u32::MAX;
        self.progress(buffers)
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
