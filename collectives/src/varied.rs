//! Calls whose ranks give different numbers of elements: first everyone learns the counts, then the data moves.

use crate::algorithms::{Collective, varied};
use crate::call::Call;
use crate::compose::{Builder, Group};
use crate::error::{Error, Result};
use crate::schedule::{Schedule, ScheduleError};
use spmd::Communicator;
use spmd::element::Element;
use spmd::memory::Operation;

#[track_caller]
pub(crate) fn gather_v<T: Element>(
    comm: &Communicator,
    data: &[T],
    root: usize,
) -> Result<Option<(Vec<T>, Vec<usize>)>> {
    let call = Call::varied::<T>(comm, Collective::Gather, Operation::GatherV, root);
    let here = comm.rank() == root;
    let mut counts = vec![0; if here { comm.size() } else { 0 }];
    call.run(&[data.len()], &mut counts, None)?;
    let mut all = room(&call, &counts)?;
    let schedule = schedule(&call, data.len(), all.len(), |b, group| {
        let all = varied::Cuts::new(b.output(), &counts)?;
        varied::gather(b, group, root, b.input(), here.then_some(&all));
        Ok(())
    })?;
    call.follow(&call.plan_of("linear", schedule), data, &mut all, None)?;
    Ok(here.then_some((all, counts)))
}

#[track_caller]
pub(crate) fn scatter_v<T: Element>(
    comm: &Communicator,
    data: Option<(&[T], &[usize])>,
    root: usize,
) -> Result<Vec<T>> {
    let call = Call::varied::<T>(comm, Collective::Scatter, Operation::ScatterV, root);
    let here = comm.rank() == root;
    let (data, counts) = call.at_root("input", data)?;
    if here {
        check_counts(&call, data, counts)?;
    }
    let mut count = [0];
    call.run(counts, &mut count, None)?;
    let mut block = room(&call, &count)?;
    let schedule = schedule(&call, data.len(), block.len(), |b, group| {
        let all = varied::Cuts::new(b.input(), counts)?;
        varied::scatter(b, group, root, here.then_some(&all), b.output());
        Ok(())
    })?;
    call.follow(&call.plan_of("linear", schedule), data, &mut block, None)?;
    Ok(block)
}

#[track_caller]
pub(crate) fn all_gather_v<T: Element>(comm: &Communicator, data: &[T]) -> Result<(Vec<T>, Vec<usize>)> {
    let call = Call::varied::<T>(comm, Collective::AllGather, Operation::AllGatherV, 0);
    let mut counts = vec![0; comm.size()];
    call.run(&[data.len()], &mut counts, None)?;
    let mut all = room(&call, &counts)?;
    let schedule = schedule(&call, data.len(), all.len(), |b, group| {
        let all = varied::Cuts::new(b.output(), &counts)?;
        varied::all_gather(b, group, b.input(), &all);
        Ok(())
    })?;
    call.follow(&call.plan_of("ring", schedule), data, &mut all, None)?;
    Ok((all, counts))
}

#[track_caller]
pub(crate) fn all_to_all_v<T: Element>(
    comm: &Communicator,
    data: &[T],
    counts: &[usize],
) -> Result<(Vec<T>, Vec<usize>)> {
    let call = Call::varied::<T>(comm, Collective::AllToAll, Operation::AllToAllV, 0);
    check_counts(&call, data, counts)?;
    let mut from = vec![0; comm.size()];
    call.run(counts, &mut from, None)?;
    let mut received = room(&call, &from)?;
    let schedule = schedule(&call, data.len(), received.len(), |b, group| {
        let (sent, received) = (varied::Cuts::new(b.input(), counts)?, varied::Cuts::new(b.output(), &from)?);
        varied::all_to_all(b, group, &sent, &received);
        Ok(())
    })?;
    call.follow(&call.plan_of("pairwise", schedule), data, &mut received, None)?;
    Ok((received, from))
}

/// There is one count for each rank, and together they are all of the data.
fn check_counts<T>(call: &Call<'_>, data: &[T], counts: &[usize]) -> Result<()> {
    let size = call.comm.size();
    let sum = counts.iter().try_fold(0usize, |sum, count| sum.checked_add(*count));
    match counts.len() == size && sum == Some(data.len()) {
        true => Ok(()),
        false => Err(Error::Counts {
            rank: call.comm.rank(),
            collective: call.operation,
            counts: counts.len(),
            size,
            sum,
            given: data.len(),
        }),
    }
}

/// Room for blocks of so many elements.
fn room<T: Element>(call: &Call<'_>, counts: &[usize]) -> Result<Vec<T>> {
    let length = counts.iter().try_fold(0usize, |sum, count| sum.checked_add(*count));
    let length =
        length.filter(|length| length.checked_mul(size_of::<T>()).is_some_and(|bytes| bytes < isize::MAX as usize));
    Ok(bytemuck::zeroed_vec(length.ok_or_else(|| call.no_schedule(ScheduleError::TooLarge))?))
}

fn schedule(
    call: &Call<'_>,
    input: usize,
    output: usize,
    emit: impl FnOnce(&mut Builder, &Group<'_>) -> std::result::Result<(), ScheduleError>,
) -> Result<Schedule> {
    let (rank, size) = (call.comm.rank(), call.comm.size());
    let mut b = Builder::new(rank, size, input, output);
    emit(&mut b, &Group::all(rank, size)).and_then(|()| b.finish()).map_err(|source| call.no_schedule(source))
}
