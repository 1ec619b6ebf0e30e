//! Who of the ranks of a host sleeps: whoever has changed something that they may wait for looks, and wakes them.
//!
//! A sleeper raises its flag before it looks at its memory for the last time, and whoever changes that memory looks at the flag
//! afterwards (Dekker's pattern): each needs a fence between. Where the kernel has membarrier(2) the sleeper, who has the
//! time, makes everybody pass theirs, and those that look need none.

use super::Segment;
use rustix::thread::{MembarrierCommand, membarrier, membarrier_query};
use std::sync::OnceLock;
use std::sync::atomic::{Ordering, compiler_fence, fence};

/// Whether this process passes the barriers that others make: asked for once.
fn is_registered() -> bool {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    *REGISTERED.get_or_init(|| {
        membarrier_query().contains_command(MembarrierCommand::GlobalExpedited)
            && membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok()
    })
}

/// Looks at the flags of others, after something has been changed.
#[derive(Debug)]
pub(crate) struct Looks<'a> {
    segment: &'a Segment,
    has_fenced: bool,
}

impl Looks<'_> {
    /// Whether the rank at `place` sleeps, or may be about to.
    #[inline]
    pub(crate) fn sleeps(&mut self, place: usize) -> bool {
        if is_registered() && self.segment.makes_barriers(place).load(Ordering::Acquire) != 0 {
            compiler_fence(Ordering::SeqCst);
        } else if !self.has_fenced {
            fence(Ordering::SeqCst);
            self.has_fenced = true;
        }
        self.segment.sleeping(place).load(Ordering::Relaxed) != 0
    }
}

impl Segment {
    /// What has been changed before this is seen by those that look as if they did not sleep.
    #[inline]
    pub(crate) fn looks(&self) -> Looks<'_> {
        Looks { segment: self, has_fenced: false }
    }

    /// From now on the rank at `place`, which is this one, makes barriers before it sleeps, if it can.
    pub(crate) fn make_barriers(&self, place: usize) {
        if is_registered() {
            self.makes_barriers(place).store(1, Ordering::Release);
        }
    }

    /// The rank at `place`, which is this one, is about to sleep: what it looks at afterwards is new, or whoever changes it wakes
    /// it.
    pub(crate) fn arm(&self, place: usize) {
        let sleeping = self.sleeping(place);
        if sleeping.load(Ordering::Relaxed) != 0 {
            // Said before, and nobody has rung the bell since.
            return;
        }
        sleeping.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.makes_barriers(place).load(Ordering::Relaxed) != 0 {
            // It was there when we registered, and takes no memory.
            let _ = membarrier(MembarrierCommand::GlobalExpedited);
        }
    }
}
