//! The end of a communicator, which one rank decides for all.

use super::Communicator;
use crate::{engine::operation::NoBuffers, error::Result};

impl Communicator {
    /// Ends this communicator on all its ranks: every operation on it that is under way, and every later one, returns
    /// [`Error::Revoked`](crate::Error::Revoked) there, whatever its kind. What is left is [`Communicator::shrink`], which
    /// gives the ranks that are left a new one (`MPI_Comm_revoke` of user-level failure mitigation).
    ///
    /// A rank that has heard of a loss and will not answer on this communicator any more so wakes those that wait for it.
    /// `shrink` does it by itself; this is for those that want it earlier, to clean up before. One rank calls it, or
    /// several; further calls do nothing. It waits for nobody: others learn of it when they next make progress, also if
    /// this rank dies meanwhile, provided that it has told one of them.
    ///
    /// An operation that is complete already keeps its result, one that could not complete on another rank may have
    /// completed here. Buffers of symmetric heaps stay, with what is put there; waiting for a signal ends.
    /// Communicators that were made from this one are others and go on, but for those that a library made to serve it
    /// ([`Communicator::serve`]).
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd::local::run(3, |world| {
    ///     let comm = world.communicator();
    ///     if comm.rank() == 2 {
    ///         comm.revoke().unwrap();
    ///     } else {
    ///         // Rank 1 waits for rank 0, which waits for rank 2.
    ///         let error = comm.recv(&mut [0_u8], [2, 0][comm.rank()], 0).unwrap_err();
    ///         assert!(matches!(error, Error::Revoked { by: 2 }), "{error}");
    ///     }
    ///     assert_eq!(comm.shrink().unwrap().size(), 3);
    /// });
    /// ```
    ///
    /// # Errors
    /// When the job is ending.
    pub fn revoke(&self) -> Result<()> {
        let mut engine = self.runtime().lock();
        engine.revoke(self.inner.context);
        // What can leave now leaves now, not when this rank next waits.
        engine.progress(&mut NoBuffers).map(drop)
    }

    /// From now on this communicator is revoked together with `parent`, from which it was made: for libraries that keep
    /// communicators of their own to do the work of one of the program. Each of its ranks calls it right after making it.
    pub fn serve(&self, parent: &Communicator) {
        self.runtime().lock().serve(self.inner.context, parent.inner.context);
    }

    /// Whether this communicator can go on with all of its members: makes one round of progress, hears the news of the job,
    /// and gives the error that a call would get that waits for everybody. For whoever waits for something that no call of
    /// the runtime sees, such as the kernels of a device, and must not wait for ever. A member that has dropped its `World`
    /// in order is no error: what it had to give has come.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd::local::run(3, |world| {
    ///     let comm = world.communicator();
    ///     if comm.rank() == 2 {
    ///         return comm.revoke().unwrap();
    ///     }
    ///     while comm.check_members().is_ok() {}
    ///     assert!(matches!(comm.check_members(), Err(Error::Revoked { by: 2 })));
    /// });
    /// ```
    ///
    /// # Errors
    /// When a member is lost, when the communicator has been revoked, or when the job is ending.
    pub fn check_members(&self) -> Result<()> {
        let (context, members) = (self.inner.context, &self.inner.members);
        self.runtime().look_up(|engine| engine.check_members(context, members))
    }

    /// Whether nobody has revoked it.
    pub(super) fn check_open(&self) -> Result<()> {
        self.runtime().lock().check_open(self.inner.context)
    }
}
