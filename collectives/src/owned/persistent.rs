//! Collectives that are planned once and started many times.

use super::{Blocks, Prepared, prepare};
#[cfg(doc)]
use crate::collectives::Collectives;
use crate::collectives::sealed::Sealed;
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::operators::Op;
use crate::varied::{self, Checked};
use spmd::Communicator;
use spmd::comm::CollectiveRequest;
use spmd::element::Element;
use std::fmt;

/// Persistent collectives: arguments, buffers and plan are settled once, and each start gives a request.
///
/// Making one is collective, without messages but for those with `_v`: all ranks make the same ones in the same order. Each has a message space of
/// its own (as after [`Communicator::duplicate`]), so that ranks may start several in different orders. Lengths and
/// results are those of [`Collectives`].
///
/// ```
/// use spmd_collectives::prelude::*;
///
/// spmd::local::run(3, |world| {
///     let comm = world.communicator();
///     let mut sum = comm.all_reduce_init(vec![0; 4], Sum).unwrap();
///     for step in 0..3 {
///         sum.data_mut().fill(step + comm.rank());
///         let under_way = sum.start().unwrap();
///         // … compute …
///         sum = under_way.wait().unwrap();
///         assert_eq!(sum.result(), [3 * step + 3; 4]);
///     }
/// });
/// ```
///
/// # Errors
/// As for [`Collectives`].
pub trait PersistentCollectives: Sealed {
    /// [`Collectives::barrier`], to be started.
    ///
    /// # Errors
    /// See [`PersistentCollectives`].
    #[track_caller]
    fn barrier_init(&self) -> Result<PersistentCollective<u8>>;

    /// [`Collectives::broadcast`], to be started.
    ///
    /// # Errors
    /// See [`PersistentCollectives`].
    #[track_caller]
    fn broadcast_init<T: Element>(&self, data: Vec<T>, root: usize) -> Result<PersistentCollective<T>>;

    /// [`Collectives::reduce`], to be started.
    ///
    /// # Errors
    /// See [`PersistentCollectives`].
    #[track_caller]
    fn reduce_init<T: Element>(
        &self,
        data: Vec<T>,
        op: impl Op<T> + Send + 'static,
        root: usize,
    ) -> Result<PersistentCollective<T>>;

    /// [`Collectives::all_reduce`], to be started.
    ///
    /// # Errors
    /// See [`PersistentCollectives`].
    #[track_caller]
    fn all_reduce_init<T: Element>(
        &self,
        data: Vec<T>,
        op: impl Op<T> + Send + 'static,
    ) -> Result<PersistentCollective<T>>;

    /// [`Collectives::gather`], to be started.
    ///
    /// # Errors
    /// See [`PersistentCollectives`].
    #[track_caller]
    fn gather_init<T: Element>(&self, data: Vec<T>, root: usize) -> Result<PersistentCollective<T>>;

    /// [`Collectives::all_gather`], to be started.
    ///
    /// # Errors
    /// See [`PersistentCollectives`].
    #[track_caller]
    fn all_gather_init<T: Element>(&self, data: Vec<T>) -> Result<PersistentCollective<T>>;

    /// [`Collectives::scatter`], to be started.
    ///
    /// # Errors
    /// See [`PersistentCollectives`].
    #[track_caller]
    fn scatter_init<T: Element>(
        &self,
        data: Option<Vec<T>>,
        block: usize,
        root: usize,
    ) -> Result<PersistentCollective<T>>;

    /// [`Collectives::all_to_all`], to be started.
    ///
    /// # Errors
    /// See [`PersistentCollectives`].
    #[track_caller]
    fn all_to_all_init<T: Element>(&self, data: Vec<T>) -> Result<PersistentCollective<T>>;

    /// [`Collectives::reduce_scatter`], to be started.
    ///
    /// # Errors
    /// See [`PersistentCollectives`].
    #[track_caller]
    fn reduce_scatter_init<T: Element>(
        &self,
        data: Vec<T>,
        op: impl Op<T> + Send + 'static,
    ) -> Result<PersistentCollective<T>>;

    /// [`Collectives::scan`], to be started.
    ///
    /// # Errors
    /// See [`PersistentCollectives`].
    #[track_caller]
    fn scan_init<T: Element>(&self, data: Vec<T>, op: impl Op<T> + Send + 'static) -> Result<PersistentCollective<T>>;

    /// [`Collectives::exscan`], to be started.
    ///
    /// # Errors
    /// See [`PersistentCollectives`].
    #[track_caller]
    fn exscan_init<T: Element>(&self, data: Vec<T>, op: impl Op<T> + Send + 'static)
    -> Result<PersistentCollective<T>>;

    /// [`Collectives::gather_v`], to be started. The lengths are settled here: each rank always gives as many elements as
    /// `data` has now.
    ///
    /// Unlike the others this one waits for the other ranks, which tell each other their lengths, once.
    ///
    /// ```
    /// use spmd_collectives::prelude::*;
    ///
    /// spmd::local::run(3, |world| {
    ///     let comm = world.communicator();
    ///     let mut all = comm.gather_v_init(vec![0; comm.rank()], 0).unwrap();
    ///     for step in 0..3 {
    ///         all.data_mut().fill(step);
    ///         all = all.start().unwrap().wait().unwrap();
    ///         if comm.rank() == 0 {
    ///             assert_eq!(all.result(), [step; 3]);
    ///             assert_eq!(all.counts(), [0, 1, 2]);
    ///         }
    ///     }
    /// });
    /// ```
    ///
    /// # Errors
    /// See [`PersistentCollectives`].
    #[track_caller]
    fn gather_v_init<T: Element>(&self, data: Vec<T>, root: usize) -> Result<PersistentCollective<T>>;

    /// [`Collectives::scatter_v`], to be started, with lengths that are settled here: see
    /// [`gather_v_init`](PersistentCollectives::gather_v_init).
    ///
    /// # Errors
    /// See [`PersistentCollectives`]; [`Error::Counts`] at the root when there is not one count for each rank, or their sum
    /// is not the length of the data.
    #[track_caller]
    fn scatter_v_init<T: Element>(&self, data: Option<Blocks<T>>, root: usize) -> Result<PersistentCollective<T>>;

    /// [`Collectives::all_gather_v`], to be started, with lengths that are settled here: see
    /// [`gather_v_init`](PersistentCollectives::gather_v_init).
    ///
    /// # Errors
    /// See [`PersistentCollectives`].
    #[track_caller]
    fn all_gather_v_init<T: Element>(&self, data: Vec<T>) -> Result<PersistentCollective<T>>;

    /// [`Collectives::all_to_all_v`], to be started, with lengths that are settled here: see
    /// [`gather_v_init`](PersistentCollectives::gather_v_init).
    ///
    /// # Errors
    /// See [`PersistentCollectives`]; [`Error::Counts`] when there is not one count for each rank, or their sum is not the
    /// length of the data.
    #[track_caller]
    fn all_to_all_v_init<T: Element>(&self, data: Vec<T>, counts: Vec<usize>) -> Result<PersistentCollective<T>>;
}

/// A collective that is not under way: see [`PersistentCollectives`].
pub struct PersistentCollective<T> {
    comm: Communicator,
    prepared: Prepared<T>,
    /// It works in place: what this rank gives is where the result will be.
    in_place: bool,
    /// What this rank was told of lengths.
    counts: Vec<usize>,
}

impl<T: Element> PersistentCollective<T> {
    fn varied(checked: Checked<'_, Vec<T>>) -> Result<Self> {
        let comm = checked.call.comm;
        let (prepared, counts) = checked.prepare()?;
        Ok(PersistentCollective { counts, ..PersistentCollective::new(comm, prepared, false)? })
    }

    fn new(parent: &Communicator, prepared: Prepared<T>, in_place: bool) -> Result<Self> {
        let comm = parent.duplicate().map_err(|source| prepared.at.failed(source))?;
        comm.serve(parent);
        Ok(PersistentCollective { comm, prepared, in_place, counts: Vec::new() })
    }

    /// What this rank gives at the next start. In broadcast, all_reduce and scan, which work in place, it is the last
    /// result.
    #[must_use]
    pub fn data(&self) -> &[T] {
        if self.in_place { &self.prepared.execution.output } else { &self.prepared.execution.input }
    }

    /// What this rank gives at the next start, to be changed.
    #[must_use]
    pub fn data_mut(&mut self) -> &mut [T] {
        if self.in_place { &mut self.prepared.execution.output } else { &mut self.prepared.execution.input }
    }

    /// What came of the last start; empty on ranks that get nothing.
    #[must_use]
    pub fn result(&self) -> &[T] {
        &self.prepared.execution.output
    }

    /// In those with `_v`: how many elements of the result come from each rank, in rank order; in `scatter_v` how many there
    /// are. Empty on ranks that get nothing, and in the others.
    #[must_use]
    pub fn counts(&self) -> &[usize] {
        &self.counts
    }

    /// Starts it.
    ///
    /// # Errors
    /// As for [`Collectives`]; the collective is gone then.
    pub fn start(self) -> Result<CollectiveRequest<Self>> {
        let PersistentCollective { comm, prepared, in_place, counts } = self;
        let (call, at) = (prepared.call, prepared.at);
        let kept = comm.clone();
        prepared.start(&comm, move |mut execution| {
            execution.restart();
            PersistentCollective { comm: kept, prepared: Prepared { call, at, execution }, in_place, counts }
        })
    }
}

impl<T> fmt::Debug for PersistentCollective<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PersistentCollective").field("call", &self.prepared.call).finish_non_exhaustive()
    }
}

impl PersistentCollectives for Communicator {
    fn barrier_init(&self) -> Result<PersistentCollective<u8>> {
        PersistentCollective::new(self, prepare::barrier(self)?, false)
    }

    fn broadcast_init<T: Element>(&self, data: Vec<T>, root: usize) -> Result<PersistentCollective<T>> {
        PersistentCollective::new(self, prepare::broadcast(self, data, root)?, true)
    }

    fn reduce_init<T: Element>(
        &self,
        data: Vec<T>,
        op: impl Op<T> + Send + 'static,
        root: usize,
    ) -> Result<PersistentCollective<T>> {
        PersistentCollective::new(self, prepare::reduce(self, data, Box::new(op), root)?, false)
    }

    fn all_reduce_init<T: Element>(
        &self,
        data: Vec<T>,
        op: impl Op<T> + Send + 'static,
    ) -> Result<PersistentCollective<T>> {
        PersistentCollective::new(self, prepare::all_reduce(self, data, Box::new(op))?, true)
    }

    fn gather_init<T: Element>(&self, data: Vec<T>, root: usize) -> Result<PersistentCollective<T>> {
        PersistentCollective::new(self, prepare::gather(self, data, root)?, false)
    }

    fn all_gather_init<T: Element>(&self, data: Vec<T>) -> Result<PersistentCollective<T>> {
        PersistentCollective::new(self, prepare::all_gather(self, data)?, false)
    }

    fn scatter_init<T: Element>(
        &self,
        data: Option<Vec<T>>,
        block: usize,
        root: usize,
    ) -> Result<PersistentCollective<T>> {
        PersistentCollective::new(self, prepare::scatter(self, data, block, root)?, false)
    }

    fn all_to_all_init<T: Element>(&self, data: Vec<T>) -> Result<PersistentCollective<T>> {
        PersistentCollective::new(self, prepare::all_to_all(self, data)?, false)
    }

    fn reduce_scatter_init<T: Element>(
        &self,
        data: Vec<T>,
        op: impl Op<T> + Send + 'static,
    ) -> Result<PersistentCollective<T>> {
        PersistentCollective::new(self, prepare::reduce_scatter(self, data, Box::new(op))?, false)
    }

    fn scan_init<T: Element>(&self, data: Vec<T>, op: impl Op<T> + Send + 'static) -> Result<PersistentCollective<T>> {
        PersistentCollective::new(self, prepare::scan(self, data, Box::new(op))?, true)
    }

    fn exscan_init<T: Element>(
        &self,
        data: Vec<T>,
        op: impl Op<T> + Send + 'static,
    ) -> Result<PersistentCollective<T>> {
        PersistentCollective::new(self, prepare::exscan(self, data, Box::new(op))?, false)
    }

    fn gather_v_init<T: Element>(&self, data: Vec<T>, root: usize) -> Result<PersistentCollective<T>> {
        PersistentCollective::varied(varied::gather_v(self, data, root))
    }

    fn scatter_v_init<T: Element>(&self, data: Option<Blocks<T>>, root: usize) -> Result<PersistentCollective<T>> {
        PersistentCollective::varied(varied::scatter_v(self, data, root)?)
    }

    fn all_gather_v_init<T: Element>(&self, data: Vec<T>) -> Result<PersistentCollective<T>> {
        PersistentCollective::varied(varied::all_gather_v(self, data))
    }

    fn all_to_all_v_init<T: Element>(&self, data: Vec<T>, counts: Vec<usize>) -> Result<PersistentCollective<T>> {
        PersistentCollective::varied(varied::all_to_all_v(self, data, counts)?)
    }
}
