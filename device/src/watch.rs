//! Whether the ranks of a communicator are still there, for those that cannot ask: kernels that wait.
//!
//! A GPU waits for words that peers write and hears nothing of the job; the thread that started the kernel is in the driver until
//! it ends. So a thread of its own looks now and then, whichever way leads to the peers. Knows no kernel.

use spmd::{Communicator, Error, Result};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

/// Time between two looks. Each is a round of progress and one system call: a ten-thousandth of a processor.
const EVERY: Duration = Duration::from_millis(20);

/// A thread that looks after the ranks of a communicator. Dropping it ends the thread.
#[derive(Debug)]
pub struct Watch {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Starts the thread. It calls `alarm` once, with the first error of [`Communicator::check_members`]: a member is lost, the
    /// communicator has been revoked, or the job is ending. After that it ends.
    ///
    /// # Errors
    /// When there is no thread.
    pub fn start(communicator: Communicator, alarm: impl FnOnce(Error) + Send + 'static) -> Result<Self> {
        let over = Arc::new(AtomicBool::new(false));
        let is_over = over.clone();
        let thread = std::thread::Builder::new()
            .name("device watch".into())
            .spawn(move || {
                while !is_over.load(Ordering::Acquire) {
                    if let Err(error) = communicator.check_members() {
                        return alarm(error);
                    }
                    std::thread::park_timeout(EVERY);
                }
            })
            .map_err(|error| Error::System { what: "starting the watch of a device".into(), error: error.into() })?;
        Ok(Watch { over, thread: Some(thread) })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let ended = thread.join();
            debug_assert!(ended.is_ok() || std::thread::panicking(), "the watch panicked");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spmd::local::Cluster;
    use std::sync::mpsc;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_communicator_that_is_revoked_raises_the_alarm_once_and_names_who_has_done_it() {
        for hosts in [1, 2] {
            let run = Cluster::new(3).hosts(hosts).run(|world| {
                let comm = world.communicator().duplicate().unwrap();
                comm.serve(&world.communicator());
                let (tell, hear) = mpsc::channel();
                let watch = Watch::start(comm, move |error| tell.send(error).unwrap()).unwrap();
                if world.rank() == 1 {
                    assert!(hear.recv_timeout(4 * EVERY).is_err(), "nothing has happened yet");
                    // Shrinking revokes, and ends what the watched communicator is for.
                    world.communicator().revoke().unwrap();
                }
                let error = hear.recv_timeout(LONG).unwrap();
                assert!(matches!(error, Error::Revoked { by: 1 }), "{error}");
                assert!(hear.recv_timeout(LONG).is_err(), "the thread has ended, so that nothing more can come");
                drop(watch);
            });
            run.unwrap();
        }
    }

    #[test]
    fn a_rank_that_leaves_in_order_is_no_loss() {
        spmd::local::run(2, |world| {
            let (tell, hear) = mpsc::channel();
            let watch = Watch::start(world.communicator(), move |error: Error| tell.send(error).unwrap()).unwrap();
            if world.rank() == 0 {
                let error = world.communicator().recv(&mut [0_u8], 1, 0).unwrap_err();
                assert!(matches!(error, Error::PeerFinished { peer: 1, .. }), "{error}");
                let heard = hear.recv_timeout(4 * EVERY);
                assert!(heard.is_err(), "{heard:?}");
            }
            drop(watch);
        });
    }
}
