//! The collectives as methods of a communicator.

use crate::algorithms::Collective;
use crate::call::Call;
use crate::error::{Error, Result};
use crate::operators::Op;
use spmd::Communicator;
use spmd::element::Element;

mod sealed {
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
/// runtime fails. Ranks that disagree on collective, element type, length, root or kind of operator never get each
/// other's data: a rank that receives a message of another call gets [`Error::Mismatch`], and one that waits for a
/// message that nobody sends gets an error once the other rank has left.
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
    fn reduce<T: Element>(&self, data: &[T], op: impl Op<T>, root: usize) -> Result<Option<Vec<T>>>;

    /// As [`reduce`](Collectives::reduce), into a buffer as long as `data`, which the root must give and the others need
    /// not; theirs is left alone.
    ///
    /// # Errors
    /// See [`Collectives`].
    fn reduce_into<T: Element>(&self, data: &[T], result: Option<&mut [T]>, op: impl Op<T>, root: usize) -> Result<()>;

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
    fn all_reduce<T: Element>(&self, data: &mut [T], op: impl Op<T>) -> Result<()>;

    /// As [`all_reduce`](Collectives::all_reduce), into another buffer of the same length.
    ///
    /// # Errors
    /// See [`Collectives`].
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
    fn gather<T: Element>(&self, data: &[T], root: usize) -> Result<Option<Vec<T>>>;

    /// As [`gather`](Collectives::gather), into a buffer of `size * data.len()` elements, which the root must give and
    /// the others need not; theirs is left alone.
    ///
    /// # Errors
    /// See [`Collectives`].
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
    fn all_gather<T: Element>(&self, data: &[T]) -> Result<Vec<T>>;

    /// As [`all_gather`](Collectives::all_gather), into a buffer of `size * data.len()` elements.
    ///
    /// # Errors
    /// See [`Collectives`].
    fn all_gather_into<T: Element>(&self, data: &[T], all: &mut [T]) -> Result<()>;

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
    fn all_to_all<T: Element>(&self, data: &[T]) -> Result<Vec<T>>;

    /// As [`all_to_all`](Collectives::all_to_all), into another buffer of the same length.
    ///
    /// # Errors
    /// See [`Collectives`].
    fn all_to_all_into<T: Element>(&self, data: &[T], received: &mut [T]) -> Result<()>;

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
    fn reduce_scatter<T: Element>(&self, data: &[T], op: impl Op<T>) -> Result<Vec<T>>;

    /// As [`reduce_scatter`](Collectives::reduce_scatter), into a buffer of `data.len() / size` elements.
    ///
    /// # Errors
    /// See [`Collectives`].
    fn reduce_scatter_into<T: Element>(&self, data: &[T], block: &mut [T], op: impl Op<T>) -> Result<()>;

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
    fn scan<T: Element>(&self, data: &mut [T], op: impl Op<T>) -> Result<()>;

    /// As [`scan`](Collectives::scan), into another buffer of the same length.
    ///
    /// # Errors
    /// See [`Collectives`].
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
    fn exscan<T: Element>(&self, data: &[T], op: impl Op<T>) -> Result<Option<Vec<T>>>;
}

impl Collectives for Communicator {
    fn barrier(&self) -> Result<()> {
        call(self, Collective::Barrier, 0, 0).run::<u8>(&[], &mut [], None)
    }

    fn broadcast<T: Element>(&self, data: &mut [T], root: usize) -> Result<()> {
        call(self, Collective::Broadcast, root, data.len()).run(&[], data, None)
    }

    fn reduce<T: Element>(&self, data: &[T], op: impl Op<T>, root: usize) -> Result<Option<Vec<T>>> {
        let mut result = (self.rank() == root).then(|| bytemuck::zeroed_vec(data.len()));
        self.reduce_into(data, result.as_deref_mut(), op, root)?;
        Ok(result)
    }

    fn reduce_into<T: Element>(&self, data: &[T], result: Option<&mut [T]>, op: impl Op<T>, root: usize) -> Result<()> {
        let call = call(self, Collective::Reduce, root, data.len());
        call.run(data, at_root(&call, "output", result)?, Some(&op))
    }

    fn all_reduce<T: Element>(&self, data: &mut [T], op: impl Op<T>) -> Result<()> {
        call(self, Collective::AllReduce, 0, data.len()).run(&[], data, Some(&op))
    }

    fn all_reduce_into<T: Element>(&self, data: &[T], result: &mut [T], op: impl Op<T>) -> Result<()> {
        if data.len() == result.len() {
            result.copy_from_slice(data);
        }
        call(self, Collective::AllReduce, 0, data.len()).run(&[], result, Some(&op))
    }

    fn gather<T: Element>(&self, data: &[T], root: usize) -> Result<Option<Vec<T>>> {
        let mut all = match self.rank() == root {
            true => Some(room(self, Collective::Gather, data)?),
            false => None,
        };
        self.gather_into(data, all.as_deref_mut(), root)?;
        Ok(all)
    }

    fn gather_into<T: Element>(&self, data: &[T], all: Option<&mut [T]>, root: usize) -> Result<()> {
        let call = call(self, Collective::Gather, root, data.len());
        call.run(data, at_root(&call, "output", all)?, None)
    }

    fn all_gather<T: Element>(&self, data: &[T]) -> Result<Vec<T>> {
        let mut all = room(self, Collective::AllGather, data)?;
        self.all_gather_into(data, &mut all)?;
        Ok(all)
    }

    fn all_gather_into<T: Element>(&self, data: &[T], all: &mut [T]) -> Result<()> {
        call(self, Collective::AllGather, 0, data.len()).run(data, all, None)
    }

    fn scatter<T: Element>(&self, data: Option<&[T]>, block: &mut [T], root: usize) -> Result<()> {
        let call = call(self, Collective::Scatter, root, block.len());
        call.run(at_root(&call, "input", data)?, block, None)
    }

    fn all_to_all<T: Element>(&self, data: &[T]) -> Result<Vec<T>> {
        let mut received = bytemuck::zeroed_vec(data.len());
        self.all_to_all_into(data, &mut received)?;
        Ok(received)
    }

    fn all_to_all_into<T: Element>(&self, data: &[T], received: &mut [T]) -> Result<()> {
        let block = block(self, Collective::AllToAll, data)?;
        call(self, Collective::AllToAll, 0, block).run(data, received, None)
    }

    fn reduce_scatter<T: Element>(&self, data: &[T], op: impl Op<T>) -> Result<Vec<T>> {
        let mut result = bytemuck::zeroed_vec(block(self, Collective::ReduceScatter, data)?);
        self.reduce_scatter_into(data, &mut result, op)?;
        Ok(result)
    }

    fn reduce_scatter_into<T: Element>(&self, data: &[T], result: &mut [T], op: impl Op<T>) -> Result<()> {
        let block = block(self, Collective::ReduceScatter, data)?;
        call(self, Collective::ReduceScatter, 0, block).run(data, result, Some(&op))
    }

    fn scan<T: Element>(&self, data: &mut [T], op: impl Op<T>) -> Result<()> {
        call(self, Collective::Scan, 0, data.len()).run(&[], data, Some(&op))
    }

    fn scan_into<T: Element>(&self, data: &[T], result: &mut [T], op: impl Op<T>) -> Result<()> {
        if data.len() == result.len() {
            result.copy_from_slice(data);
        }
        call(self, Collective::Scan, 0, data.len()).run(&[], result, Some(&op))
    }

    fn exscan<T: Element>(&self, data: &[T], op: impl Op<T>) -> Result<Option<Vec<T>>> {
        let mut before = (self.rank() > 0).then(|| bytemuck::zeroed_vec(data.len()));
        let result = before.as_deref_mut().unwrap_or_default();
        call(self, Collective::Exscan, 0, data.len()).run(data, result, Some(&op))?;
        Ok(before)
    }
}

fn call(comm: &Communicator, collective: Collective, root: usize, elements: usize) -> Call<'_> {
    Call { comm, collective, root, elements }
}

/// The buffer that only the root needs: an error where it is missing there, an empty one on other ranks.
fn at_root<B: Default>(call: &Call<'_>, buffer: &'static str, given: Option<B>) -> Result<B> {
    let rank = call.comm.rank();
    match given {
        _ if rank != call.root => Ok(B::default()),
        Some(given) => Ok(given),
        None => Err(Error::MissingAtRoot { rank, collective: call.collective, buffer }),
    }
}

/// The length of a block of data that has one for each rank.
fn block<T>(comm: &Communicator, collective: Collective, data: &[T]) -> Result<usize> {
    let (rank, size, given) = (comm.rank(), comm.size(), data.len());
    match given.is_multiple_of(size) {
        true => Ok(given / size),
        false => Err(Error::NotDivisible { rank, collective, size, given }),
    }
}

/// Room for the data of all ranks.
fn room<T: Element>(comm: &Communicator, collective: Collective, data: &[T]) -> Result<Vec<T>> {
    let (rank, elements) = (comm.rank(), data.len());
    let total = elements.checked_mul(comm.size()).ok_or(Error::Schedule {
        rank,
        collective,
        elements,
        source: crate::schedule::ScheduleError::TooLarge,
    })?;
    Ok(bytemuck::zeroed_vec(total))
}
