//! The collectives as methods of a communicator.

mod communicator;

#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::operators::Op;
use spmd::element::Element;

pub(crate) mod sealed {
    pub trait Sealed {}
    impl Sealed for spmd::Communicator {}
}

/// Collective operations: every rank of the communicator makes the same call, in the same order as its other collective
/// calls.
///
/// Lengths are in elements. A call returns when this rank's part is done: except for [`barrier`](Collectives::barrier)
/// that does not mean that the others have been there. The algorithm follows from the number of ranks, the bytes and
/// the operator, or from the configuration (`--set collectives.all_reduce=ring`); see [`select`](crate::select).
///
/// # Errors
/// [`Error`] when the root does not exist, a buffer has the wrong length, the forced algorithm is not legal, or the
/// runtime fails.
///
/// Ranks that disagree on collective, element type, length, root or operator all get [`Error::Mismatch`], which names two
/// of them, their calls and where the program makes them: in this call, or in a later one of the same communicator where a
/// rank was done before it could know (one that only sends, such as the root of a broadcast). It is found by messages
/// of the wrong call, else after `collectives.check_after`, when those that wait tell each other their calls. From then
/// on every collective of the communicator fails with it. A rank that is in no collective of the communicator cannot be
/// asked; it is waited for, and named on standard error after `collectives.warn_after`.
pub trait Collectives: sealed::Sealed {
    /// Waits until every rank has entered.
    ///
    /// ```
    /// use spmd_collectives::prelude::*;
    /// use std::sync::atomic::{AtomicUsize, Ordering};
    ///
    /// let entered = AtomicUsize::new(0);
    /// spmd::local::run(3, |world| {
    ///     entered.fetch_add(1, Ordering::SeqCst);
    ///     world.communicator().barrier().unwrap();
    ///     assert_eq!(entered.load(Ordering::SeqCst), 3);
    /// });
    /// ```
    ///
    /// # Errors
    /// See [`Collectives`].
    #[track_caller]
    fn barrier(&self) -> Result<()>;

    /// Gives every rank the data of rank `root`. `data` has the same length on all ranks.
    ///
    /// ```
    /// use spmd_collectives::prelude::*;
    ///
    /// spmd::local::run(3, |world| {
    ///     let comm = world.communicator();
    ///     let mut data = if comm.rank() == 1 { [2.5, 3.5] } else { [0.0; 2] };
    ///     comm.broadcast(&mut data, 1).unwrap();
    ///     assert_eq!(data, [2.5, 3.5]);
    /// });
    /// ```
    ///
    /// # Errors
    /// See [`Collectives`].
    #[track_caller]
    fn broadcast<T: Element>(&self, data: &mut [T], root: usize) -> Result<()>;

    /// Combines the data of all ranks, element by element; rank `root` gets the result, the others `None`. `data` has
    /// the same length on all ranks.
    ///
    /// ```
    /// use spmd_collectives::prelude::*;
    ///
    /// let results = spmd::local::run(3, |world| {
    ///     let comm = world.communicator();
    ///     comm.reduce(&[comm.rank() as i32, 10], Sum, 0).unwrap()
    /// });
    /// assert_eq!(results, [Some(vec![3, 30]), None, None]);
    /// ```
    ///
    /// # Errors
    /// See [`Collectives`].
    #[track_caller]
    fn reduce<T: Element>(&self, data: &[T], op: impl Op<T>, root: usize) -> Result<Option<Vec<T>>>;

    /// As [`reduce`](Collectives::reduce), into a buffer as long as `data`, which the root must give and the others need
    /// not; theirs is left alone.
    ///
    /// # Errors
    /// See [`Collectives`].
    #[track_caller]
    fn reduce_into<T: Element>(&self, data: &[T], result: Option<&mut [T]>, op: impl Op<T>, root: usize) -> Result<()>;

    /// As [`reduce`](Collectives::reduce), the result where the root's data was; that of the others is left alone.
    ///
    /// # Errors
    /// See [`Collectives`].
    #[track_caller]
    fn reduce_in_place<T: Element>(&self, data: &mut [T], op: impl Op<T>, root: usize) -> Result<()>;

    /// Combines the data of all ranks, element by element, in place. `data` has the same length on all ranks, and all
    /// get the same bits.
    ///
    /// ```
    /// use spmd_collectives::prelude::*;
    ///
    /// spmd::local::run(4, |world| {
    ///     let comm = world.communicator();
    ///     let mut gradient = vec![0.5f32 * comm.rank() as f32; 1000];
    ///     comm.all_reduce(&mut gradient, Sum).unwrap();
    ///     assert_eq!(gradient, vec![3.0; 1000]);
    ///
    ///     // An operator of one's own, in rank order: the first rank that has a value.
    ///     let mut first = [if comm.rank() < 2 { 0 } else { comm.rank() }];
    ///     comm.all_reduce(&mut first, custom(|a, b| if a != 0 { a } else { b })).unwrap();
    ///     assert_eq!(first, [2]);
    /// });
    /// ```
    ///
    /// # Errors
    /// See [`Collectives`].
    #[track_caller]
    fn all_reduce<T: Element>(&self, data: &mut [T], op: impl Op<T>) -> Result<()>;

    /// As [`all_reduce`](Collectives::all_reduce), into another buffer of the same length.
    ///
    /// # Errors
    /// See [`Collectives`].
    #[track_caller]
    fn all_reduce_into<T: Element>(&self, data: &[T], result: &mut [T], op: impl Op<T>) -> Result<()>;

    /// Gives rank `root` the data of all ranks, one after another in rank order; the others get `None`. `data` has the
    /// same length on all ranks.
    ///
    /// ```
    /// use spmd_collectives::prelude::*;
    ///
    /// let results = spmd::local::run(3, |world| {
    ///     let comm = world.communicator();
    ///     comm.gather(&[comm.rank(), 7], 2).unwrap()
    /// });
    /// assert_eq!(results, [None, None, Some(vec![0, 7, 1, 7, 2, 7])]);
    /// ```
    ///
    /// # Errors
    /// See [`Collectives`].
    #[track_caller]
    fn gather<T: Element>(&self, data: &[T], root: usize) -> Result<Option<Vec<T>>>;

    /// As [`gather`](Collectives::gather), into a buffer of `size * data.len()` elements, which the root must give and
    /// the others need not; theirs is left alone.
    ///
    /// # Errors
    /// See [`Collectives`].
    #[track_caller]
    fn gather_into<T: Element>(&self, data: &[T], all: Option<&mut [T]>, root: usize) -> Result<()>;

    /// Gives every rank the data of all ranks, one after another in rank order. `data` has the same length on all ranks.
    ///
    /// ```
    /// use spmd_collectives::prelude::*;
    ///
    /// spmd::local::run(3, |world| {
    ///     let comm = world.communicator();
    ///     assert_eq!(comm.all_gather(&[10 * comm.rank()]).unwrap(), [0, 10, 20]);
    /// });
    /// ```
    ///
    /// # Errors
    /// See [`Collectives`].
    #[track_caller]
    fn all_gather<T: Element>(&self, data: &[T]) -> Result<Vec<T>>;

    /// As [`all_gather`](Collectives::all_gather), into a buffer of `size * data.len()` elements.
    ///
    /// # Errors
    /// See [`Collectives`].
    #[track_caller]
    fn all_gather_into<T: Element>(&self, data: &[T], all: &mut [T]) -> Result<()>;

    /// As [`all_gather`](Collectives::all_gather), in a buffer of `size * n` elements in which this rank's own n are at their
    /// place already.
    ///
    /// # Errors
    /// See [`Collectives`].
    #[track_caller]
    fn all_gather_in_place<T: Element>(&self, all: &mut [T]) -> Result<()>;

    /// Gives each rank its block of the data of rank `root`: rank r gets elements `r * n .. (r + 1) * n` where n is the
    /// length of `block`, the same on all ranks. The root must give `data`, of `size * n` elements; the others need not.
    ///
    /// ```
    /// use spmd_collectives::prelude::*;
    ///
    /// spmd::local::run(3, |world| {
    ///     let comm = world.communicator();
    ///     let all = [1, 2, 3, 4, 5, 6];
    ///     let mut mine = [0; 2];
    ///     comm.scatter((comm.rank() == 0).then_some(&all[..]), &mut mine, 0).unwrap();
    ///     assert_eq!(mine, all[2 * comm.rank()..][..2]);
    /// });
    /// ```
    ///
    /// # Errors
    /// See [`Collectives`].
    #[track_caller]
    fn scatter<T: Element>(&self, data: Option<&[T]>, block: &mut [T], root: usize) -> Result<()>;

    /// Sends block j of `data` to rank j and returns the blocks from all ranks in rank order. `data` has the same length
    /// on all ranks, a multiple of the number of ranks.
    ///
    /// ```
    /// use spmd_collectives::prelude::*;
    ///
    /// spmd::local::run(3, |world| {
    ///     let comm = world.communicator();
    ///     let mine = [10, 11, 12].map(|value| value + 100 * comm.rank());
    ///     let r = comm.rank();
    ///     assert_eq!(comm.all_to_all(&mine).unwrap(), [10 + r, 110 + r, 210 + r]);
    /// });
    /// ```
    ///
    /// # Errors
    /// See [`Collectives`].
    #[track_caller]
    fn all_to_all<T: Element>(&self, data: &[T]) -> Result<Vec<T>>;

    /// As [`all_to_all`](Collectives::all_to_all), into another buffer of the same length.
    ///
    /// # Errors
    /// See [`Collectives`].
    #[track_caller]
    fn all_to_all_into<T: Element>(&self, data: &[T], received: &mut [T]) -> Result<()>;

    /// As [`all_to_all`](Collectives::all_to_all), the blocks received where those sent were.
    ///
    /// # Errors
    /// See [`Collectives`].
    #[track_caller]
    fn all_to_all_in_place<T: Element>(&self, data: &mut [T]) -> Result<()>;

    /// Combines the data of all ranks, element by element, and gives rank i block i of the result. `data` has the same
    /// length on all ranks, a multiple of the number of ranks.
    ///
    /// ```
    /// use spmd_collectives::prelude::*;
    ///
    /// spmd::local::run(3, |world| {
    ///     let comm = world.communicator();
    ///     let block = comm.reduce_scatter(&[1, 10, 100], Sum).unwrap();
    ///     assert_eq!(block, [[3], [30], [300]][comm.rank()]);
    /// });
    /// ```
    ///
    /// # Errors
    /// See [`Collectives`].
    #[track_caller]
    fn reduce_scatter<T: Element>(&self, data: &[T], op: impl Op<T>) -> Result<Vec<T>>;

    /// As [`reduce_scatter`](Collectives::reduce_scatter), into a buffer of `data.len() / size` elements.
    ///
    /// # Errors
    /// See [`Collectives`].
    #[track_caller]
    fn reduce_scatter_into<T: Element>(&self, data: &[T], block: &mut [T], op: impl Op<T>) -> Result<()>;

    /// As [`reduce_scatter`](Collectives::reduce_scatter), the result in the front of `data`; the rest is left alone.
    ///
    /// # Errors
    /// See [`Collectives`].
    #[track_caller]
    fn reduce_scatter_in_place<T: Element>(&self, data: &mut [T], op: impl Op<T>) -> Result<()>;

    /// Combines the data of the ranks up to and with this one, element by element and in rank order, in place. `data` has
    /// the same length on all ranks.
    ///
    /// ```
    /// use spmd_collectives::prelude::*;
    ///
    /// spmd::local::run(3, |world| {
    ///     let comm = world.communicator();
    ///     let mut sum = [comm.rank() + 1];
    ///     comm.scan(&mut sum, Sum).unwrap();
    ///     assert_eq!(sum, [[1], [3], [6]][comm.rank()]);
    /// });
    /// ```
    ///
    /// # Errors
    /// See [`Collectives`].
    #[track_caller]
    fn scan<T: Element>(&self, data: &mut [T], op: impl Op<T>) -> Result<()>;

    /// As [`scan`](Collectives::scan), into another buffer of the same length.
    ///
    /// # Errors
    /// See [`Collectives`].
    #[track_caller]
    fn scan_into<T: Element>(&self, data: &[T], result: &mut [T], op: impl Op<T>) -> Result<()>;

    /// Combines the data of the ranks before this one, element by element and in rank order; rank 0, before which there
    /// is none, gets `None`. `data` has the same length on all ranks.
    ///
    /// ```
    /// use spmd_collectives::prelude::*;
    ///
    /// // Where each rank's items begin when all are put one after another.
    /// let starts = spmd::local::run(3, |world| {
    ///     let comm = world.communicator();
    ///     comm.exscan(&[10 * (comm.rank() + 1)], Sum).unwrap()
    /// });
    /// assert_eq!(starts, [None, Some(vec![10]), Some(vec![30])]);
    /// ```
    ///
    /// # Errors
    /// See [`Collectives`].
    #[track_caller]
    fn exscan<T: Element>(&self, data: &[T], op: impl Op<T>) -> Result<Option<Vec<T>>>;

    /// As [`exscan`](Collectives::exscan), in place; that of rank 0 is left alone.
    ///
    /// # Errors
    /// See [`Collectives`].
    #[track_caller]
    fn exscan_in_place<T: Element>(&self, data: &mut [T], op: impl Op<T>) -> Result<()>;

    /// Gives rank `root` the data of all ranks, one after another in rank order, and how many elements each gave; the
    /// others get `None`. Every rank may give another number of elements, also none.
    ///
    /// ```
    /// use spmd_collectives::prelude::*;
    ///
    /// let results = spmd::local::run(3, |world| {
    ///     let comm = world.communicator();
    ///     comm.gather_v(&vec![comm.rank(); comm.rank()], 0).unwrap()
    /// });
    /// assert_eq!(results, [Some((vec![1, 2, 2], vec![0, 1, 2])), None, None]);
    /// ```
    ///
    /// # Errors
    /// See [`Collectives`].
    #[track_caller]
    fn gather_v<T: Element>(&self, data: &[T], root: usize) -> Result<Option<(Vec<T>, Vec<usize>)>>;

    /// Gives each rank its block of the data of rank `root`, which gives the data and how many elements of it each rank
    /// gets, one block after another in rank order; the others give `None`.
    ///
    /// ```
    /// use spmd_collectives::prelude::*;
    ///
    /// let blocks = spmd::local::run(3, |world| {
    ///     let comm = world.communicator();
    ///     let all: (&[u8], &[usize]) = (&[7, 8, 9], &[2, 0, 1]);
    ///     comm.scatter_v((comm.rank() == 1).then_some(all), 1).unwrap()
    /// });
    /// assert_eq!(blocks, [vec![7, 8], vec![], vec![9]]);
    /// ```
    ///
    /// # Errors
    /// See [`Collectives`]; [`Error::Counts`] at the root when there is not one count for each rank, or their sum is not
    /// the length of the data.
    #[track_caller]
    fn scatter_v<T: Element>(&self, data: Option<(&[T], &[usize])>, root: usize) -> Result<Vec<T>>;

    /// Gives every rank the data of all ranks, one after another in rank order, and how many elements each gave. Every
    /// rank may give another number of elements, also none.
    ///
    /// ```
    /// use spmd_collectives::prelude::*;
    ///
    /// spmd::local::run(3, |world| {
    ///     let comm = world.communicator();
    ///     let mine = vec![comm.rank(); comm.rank()];
    ///     assert_eq!(comm.all_gather_v(&mine).unwrap(), (vec![1, 2, 2], vec![0, 1, 2]));
    /// });
    /// ```
    ///
    /// # Errors
    /// See [`Collectives`].
    #[track_caller]
    fn all_gather_v<T: Element>(&self, data: &[T]) -> Result<(Vec<T>, Vec<usize>)>;

    /// Sends `counts[j]` elements to each rank j, one block after another in `data`, and returns the blocks from all
    /// ranks in rank order and how many elements each has.
    ///
    /// ```
    /// use spmd_collectives::prelude::*;
    ///
    /// spmd::local::run(2, |world| {
    ///     let comm = world.communicator();
    ///     let (data, counts) = if comm.rank() == 0 { (vec![1, 2, 3], [1, 2]) } else { (vec![4], [1, 0]) };
    ///     let received = comm.all_to_all_v(&data, &counts).unwrap();
    ///     assert_eq!(received, if comm.rank() == 0 { (vec![1, 4], vec![1, 1]) } else { (vec![2, 3], vec![2, 0]) });
    /// });
    /// ```
    ///
    /// # Errors
    /// See [`Collectives`]; [`Error::Counts`] when there is not one count for each rank, or their sum is not the length
    /// of the data.
    #[track_caller]
    fn all_to_all_v<T: Element>(&self, data: &[T], counts: &[usize]) -> Result<(Vec<T>, Vec<usize>)>;
}
