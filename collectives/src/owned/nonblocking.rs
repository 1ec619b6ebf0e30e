//! Collectives that are started and waited for later.

use super::{Blocks, prepare};
#[cfg(doc)]
use crate::collectives::Collectives;
use crate::collectives::sealed::Sealed;
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::operators::Op;
use crate::varied;
use spmd::Communicator;
use spmd::comm::CollectiveRequest;
use spmd::element::Element;

/// Non-blocking collectives: each returns a request at once, which gives the result when it is waited for or tested, alone
/// or together with other requests ([`Communicator::wait_any`] and its like).
///
/// They count as calls in the order in which they are started, blocking ones included: all ranks start the same ones in the
/// same order. Several may be under way; they may be waited for in any order. Whatever call of this rank makes progress
/// carries all of them on, and no other: a rank that computes for long makes none.
///
/// The buffers are the request's until it is complete. Dropping a request does not stop the operation. Lengths and
/// results are those of [`Collectives`].
///
/// ```
/// use spmd_collectives::prelude::*;
///
/// spmd::local::run(3, |world| {
///     let comm = world.communicator();
///     let sum = comm.iall_reduce(vec![comm.rank() as f32; 1000], Sum).unwrap();
///     let all = comm.iall_gather(vec![comm.rank()]).unwrap();
///     // … compute …
///     assert_eq!(all.wait().unwrap(), [0, 1, 2]);
///     assert_eq!(sum.wait().unwrap(), vec![3.0; 1000]);
/// });
/// ```
///
/// # Errors
/// As for [`Collectives`]. What is found out only after the start is reported by the request, as an [`spmd::Error`].
pub trait NonBlockingCollectives: Sealed {
    /// Complete when every rank has started its own: [`Collectives::barrier`].
    ///
    /// # Errors
    /// See [`NonBlockingCollectives`].
    #[track_caller]
    fn ibarrier(&self) -> Result<CollectiveRequest<()>>;

    /// Gives the data of rank `root`: [`Collectives::broadcast`]. `data` has the same length on all ranks.
    ///
    /// # Errors
    /// See [`NonBlockingCollectives`].
    #[track_caller]
    fn ibroadcast<T: Element>(&self, data: Vec<T>, root: usize) -> Result<CollectiveRequest<Vec<T>>>;

    /// Gives rank `root` what all data combine to, the others `None`: [`Collectives::reduce`].
    ///
    /// # Errors
    /// See [`NonBlockingCollectives`].
    #[track_caller]
    fn ireduce<T: Element>(
        &self,
        data: Vec<T>,
        op: impl Op<T> + Send + 'static,
        root: usize,
    ) -> Result<CollectiveRequest<Option<Vec<T>>>>;

    /// Gives what all data combine to, in the buffer that held this rank's: [`Collectives::all_reduce`].
    ///
    /// # Errors
    /// See [`NonBlockingCollectives`].
    #[track_caller]
    fn iall_reduce<T: Element>(
        &self,
        data: Vec<T>,
        op: impl Op<T> + Send + 'static,
    ) -> Result<CollectiveRequest<Vec<T>>>;

    /// Gives rank `root` the data of all ranks, the others `None`: [`Collectives::gather`].
    ///
    /// # Errors
    /// See [`NonBlockingCollectives`].
    #[track_caller]
    fn igather<T: Element>(&self, data: Vec<T>, root: usize) -> Result<CollectiveRequest<Option<Vec<T>>>>;

    /// Gives the data of all ranks: [`Collectives::all_gather`].
    ///
    /// # Errors
    /// See [`NonBlockingCollectives`].
    #[track_caller]
    fn iall_gather<T: Element>(&self, data: Vec<T>) -> Result<CollectiveRequest<Vec<T>>>;

    /// Gives this rank's block, of `block` elements, of the data of rank `root`, which alone gives some:
    /// [`Collectives::scatter`].
    ///
    /// # Errors
    /// See [`NonBlockingCollectives`].
    #[track_caller]
    fn iscatter<T: Element>(
        &self,
        data: Option<Vec<T>>,
        block: usize,
        root: usize,
    ) -> Result<CollectiveRequest<Vec<T>>>;

    /// Gives the blocks that all ranks have for this one: [`Collectives::all_to_all`].
    ///
    /// # Errors
    /// See [`NonBlockingCollectives`].
    #[track_caller]
    fn iall_to_all<T: Element>(&self, data: Vec<T>) -> Result<CollectiveRequest<Vec<T>>>;

    /// Gives this rank's block of what all data combine to: [`Collectives::reduce_scatter`].
    ///
    /// # Errors
    /// See [`NonBlockingCollectives`].
    #[track_caller]
    fn ireduce_scatter<T: Element>(
        &self,
        data: Vec<T>,
        op: impl Op<T> + Send + 'static,
    ) -> Result<CollectiveRequest<Vec<T>>>;

    /// Gives what the data of the ranks up to this one combine to: [`Collectives::scan`].
    ///
    /// # Errors
    /// See [`NonBlockingCollectives`].
    #[track_caller]
    fn iscan<T: Element>(&self, data: Vec<T>, op: impl Op<T> + Send + 'static) -> Result<CollectiveRequest<Vec<T>>>;

    /// Gives what the data of the ranks before this one combine to, rank 0 `None`: [`Collectives::exscan`].
    ///
    /// # Errors
    /// See [`NonBlockingCollectives`].
    #[track_caller]
    fn iexscan<T: Element>(
        &self,
        data: Vec<T>,
        op: impl Op<T> + Send + 'static,
    ) -> Result<CollectiveRequest<Option<Vec<T>>>>;

    /// Gives rank `root` the data of all ranks and how many elements each gave, the others `None`:
    /// [`Collectives::gather_v`]. The ranks tell their lengths on the way.
    ///
    /// ```
    /// use spmd_collectives::prelude::*;
    ///
    /// let results = spmd::local::run(3, |world| {
    ///     let comm = world.communicator();
    ///     let all = comm.igather_v(vec![comm.rank(); comm.rank()], 0).unwrap();
    ///     // … compute …
    ///     all.wait().unwrap()
    /// });
    /// assert_eq!(results, [Some((vec![1, 2, 2], vec![0, 1, 2])), None, None]);
    /// ```
    ///
    /// # Errors
    /// See [`NonBlockingCollectives`].
    #[track_caller]
    fn igather_v<T: Element>(&self, data: Vec<T>, root: usize) -> Result<CollectiveRequest<Option<Blocks<T>>>>;

    /// Gives each rank its block of the data of rank `root`, which alone gives data and how many elements of it each rank
    /// gets: [`Collectives::scatter_v`].
    ///
    /// # Errors
    /// See [`NonBlockingCollectives`]; [`Error::Counts`] at the root when there is not one count for each rank, or their
    /// sum is not the length of the data.
    #[track_caller]
    fn iscatter_v<T: Element>(&self, data: Option<Blocks<T>>, root: usize) -> Result<CollectiveRequest<Vec<T>>>;

    /// Gives the data of all ranks and how many elements each gave: [`Collectives::all_gather_v`].
    ///
    /// # Errors
    /// See [`NonBlockingCollectives`].
    #[track_caller]
    fn iall_gather_v<T: Element>(&self, data: Vec<T>) -> Result<CollectiveRequest<Blocks<T>>>;

    /// Sends `counts[j]` elements to each rank j, and gives the blocks from all ranks and how many elements each has:
    /// [`Collectives::all_to_all_v`].
    ///
    /// # Errors
    /// See [`NonBlockingCollectives`]; [`Error::Counts`] when there is not one count for each rank, or their sum is not the
    /// length of the data.
    #[track_caller]
    fn iall_to_all_v<T: Element>(&self, data: Vec<T>, counts: Vec<usize>) -> Result<CollectiveRequest<Blocks<T>>>;
}

impl NonBlockingCollectives for Communicator {
    fn ibarrier(&self) -> Result<CollectiveRequest<()>> {
        prepare::barrier(self)?.start(self, drop)
    }

    fn ibroadcast<T: Element>(&self, data: Vec<T>, root: usize) -> Result<CollectiveRequest<Vec<T>>> {
        prepare::broadcast(self, data, root)?.start(self, |done| done.output)
    }

    fn ireduce<T: Element>(
        &self,
        data: Vec<T>,
        op: impl Op<T> + Send + 'static,
        root: usize,
    ) -> Result<CollectiveRequest<Option<Vec<T>>>> {
        let here = self.rank() == root;
        prepare::reduce(self, data, Box::new(op), root)?.start(self, move |done| here.then_some(done.output))
    }

    fn iall_reduce<T: Element>(
        &self,
        data: Vec<T>,
        op: impl Op<T> + Send + 'static,
    ) -> Result<CollectiveRequest<Vec<T>>> {
        prepare::all_reduce(self, data, Box::new(op))?.start(self, |done| done.output)
    }

    fn igather<T: Element>(&self, data: Vec<T>, root: usize) -> Result<CollectiveRequest<Option<Vec<T>>>> {
        let here = self.rank() == root;
        prepare::gather(self, data, root)?.start(self, move |done| here.then_some(done.output))
    }

    fn iall_gather<T: Element>(&self, data: Vec<T>) -> Result<CollectiveRequest<Vec<T>>> {
        prepare::all_gather(self, data)?.start(self, |done| done.output)
    }

    fn iscatter<T: Element>(
        &self,
        data: Option<Vec<T>>,
        block: usize,
        root: usize,
    ) -> Result<CollectiveRequest<Vec<T>>> {
        prepare::scatter(self, data, block, root)?.start(self, |done| done.output)
    }

    fn iall_to_all<T: Element>(&self, data: Vec<T>) -> Result<CollectiveRequest<Vec<T>>> {
        prepare::all_to_all(self, data)?.start(self, |done| done.output)
    }

    fn ireduce_scatter<T: Element>(
        &self,
        data: Vec<T>,
        op: impl Op<T> + Send + 'static,
    ) -> Result<CollectiveRequest<Vec<T>>> {
        prepare::reduce_scatter(self, data, Box::new(op))?.start(self, |done| done.output)
    }

    fn iscan<T: Element>(&self, data: Vec<T>, op: impl Op<T> + Send + 'static) -> Result<CollectiveRequest<Vec<T>>> {
        prepare::scan(self, data, Box::new(op))?.start(self, |done| done.output)
    }

    fn iexscan<T: Element>(
        &self,
        data: Vec<T>,
        op: impl Op<T> + Send + 'static,
    ) -> Result<CollectiveRequest<Option<Vec<T>>>> {
        let any = self.rank() > 0;
        prepare::exscan(self, data, Box::new(op))?.start(self, move |done| any.then_some(done.output))
    }

    fn igather_v<T: Element>(&self, data: Vec<T>, root: usize) -> Result<CollectiveRequest<Option<Blocks<T>>>> {
        let here = self.rank() == root;
        varied::gather_v(self, data, root).start(move |all, counts| here.then_some((all, counts)))
    }

    fn iscatter_v<T: Element>(&self, data: Option<Blocks<T>>, root: usize) -> Result<CollectiveRequest<Vec<T>>> {
        varied::scatter_v(self, data, root)?.start(|block, _| block)
    }

    fn iall_gather_v<T: Element>(&self, data: Vec<T>) -> Result<CollectiveRequest<Blocks<T>>> {
        varied::all_gather_v(self, data).start(|all, counts| (all, counts))
    }

    fn iall_to_all_v<T: Element>(&self, data: Vec<T>, counts: Vec<usize>) -> Result<CollectiveRequest<Blocks<T>>> {
        varied::all_to_all_v(self, data, counts)?.start(|received, counts| (received, counts))
    }
}
