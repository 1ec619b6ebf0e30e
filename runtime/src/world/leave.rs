//! Leaving the world: dropping it waits until everything that this rank sends is on its way.

use super::{Lifeline, World};
use crate::{
    bootstrap::messages::FromRank,
    engine::operation::NoBuffers,
    error::{Error, Result},
    memory::Activity,
};
use std::time::{Duration, Instant};

/// A drop that waits longer than this for its peers says so.
const PATIENCE: Duration = Duration::from_secs(5);
/// For so long a drop asks all the time whether its last bytes have been taken.
const BRISK: Duration = Duration::from_millis(20);

impl World {
    /// Waits until everything that this rank sends is on its way, and says farewell.
    fn leave(&self) -> Result<()> {
        let runtime = &self.shared.runtime;
        let since = Instant::now();
        let mut said = false;
        let mut say = |what| {
            if !said && since.elapsed() > PATIENCE {
                said = true;
                eprintln!("rank {}: dropping the World waits for {what}", self.rank());
            }
        };
        runtime.lock().leave();
        runtime.wait(Activity::Leaving, &mut NoBuffers, |engine, _| {
            let unsent = engine.has_unsent();
            if unsent {
                say("messages that nobody has received yet");
            }
            (!unsent).then_some(Ok(()))
        })?;
        // A peer that is gone acknowledges nothing, but then its loss is found out.
        let begun = Instant::now();
        while !runtime.lock().finish()? {
            say("bytes that no peer's kernel has taken yet");
            runtime.poke()?;
            if begun.elapsed() < BRISK {
                rustix::thread::sched_yield();
            } else {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        runtime.publish(Activity::Finalized);
        match &self.lifeline {
            Lifeline::Agent(control) => control.say(&FromRank::Finalized),
            Lifeline::Threads(crew) => {
                crew.finish(self.rank());
                Ok(())
            }
            Lifeline::Alone => Ok(()),
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // While unwinding nothing is waited for, but nobody shall wait for this rank either.
            let mut engine = self.shared.runtime.lock();
            engine.withdraw_all();
            let _ = engine.finish();
            engine.fail(Error::WorldDropped { rank: self.rank() });
            drop(engine);
            self.tell(true);
            if let Lifeline::Threads(crew) = &self.lifeline {
                crew.fail(self.rank());
            }
            return;
        }
        if let Err(error) = self.leave() {
            eprintln!("rank {}: dropping the World: {error}", self.rank());
        }
        // A communicator may outlive the world, but is of no use any more.
        self.shared.runtime.lock().fail(Error::WorldDropped { rank: self.rank() });
        self.tell(true);
    }
}
