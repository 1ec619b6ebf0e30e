//! Waiting: spin a little, then yield, then sleep on the rank's descriptors.

use super::{
    Engine, Runtime,
    lock::Lock,
    operation::{Buffers, NoBuffers},
    pace::{Next, Pace},
    runtime::{CONTROL_TOKEN, Span},
};
use crate::error::{Context, Result};
use crate::memory::{Activity, Segment};
use crate::trace::What;
use rustix::{
    buffer::spare_capacity,
    event::{Timespec, epoll},
};
use std::{
    sync::{Arc, PoisonError},
    time::{Duration, Instant},
};

/// Turns that a rank which shares its processor gives to others before it looks for messages meanwhile, and may sleep: with
/// many ranks on few processors the one that is waited for comes late in a round of all of them.
const SHORT_YIELDS: u32 = 256;
/// Spins of a rank with a processor of its own before that.
const SHORT_SPINS: u32 = 1024;
/// Spins between two times that other threads of the rank get their turn: the lock costs as much as a look.
const SPINS_PER_TURN: u32 = 8;
/// Idle rounds of a rank that does not sleep between two looks at its lifeline.
const LIFELINE_EVERY: u32 = 1 << 14;
/// A sleep ends at the latest after this, in case a peer died before it could wake us.
const LONGEST_SLEEP: Duration = Duration::from_millis(500);

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

impl Runtime {
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
