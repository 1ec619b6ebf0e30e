//! Arguments of the calls that own their buffers to a [`Prepared`] call, one function a collective.

use super::{BoxedOp, Prepared};
use crate::algorithms::Collective;
use crate::call::{Call, block, room};
use crate::error::Result;
use spmd::Communicator;
use spmd::element::Element;

#[track_caller]
pub(super) fn barrier(comm: &Communicator) -> Result<Prepared<u8>> {
    Prepared::new(&Call::new::<u8>(comm, Collective::Barrier, 0, 0), Vec::new(), Vec::new(), None)
}

#[track_caller]
pub(super) fn broadcast<T: Element>(comm: &Communicator, data: Vec<T>, root: usize) -> Result<Prepared<T>> {
    Prepared::new(&Call::new::<T>(comm, Collective::Broadcast, root, data.len()), Vec::new(), data, None)
}

#[track_caller]
pub(super) fn reduce<T: Element>(
    comm: &Communicator,
    data: Vec<T>,
    op: BoxedOp<T>,
    root: usize,
) -> Result<Prepared<T>> {
    let call = Call::new::<T>(comm, Collective::Reduce, root, data.len());
    let result = bytemuck::zeroed_vec(if comm.rank() == root { data.len() } else { 0 });
    Prepared::new(&call, data, result, Some(op))
}

#[track_caller]
pub(super) fn all_reduce<T: Element>(comm: &Communicator, data: Vec<T>, op: BoxedOp<T>) -> Result<Prepared<T>> {
    Prepared::new(&Call::new::<T>(comm, Collective::AllReduce, 0, data.len()), Vec::new(), data, Some(op))
}

#[track_caller]
pub(super) fn gather<T: Element>(comm: &Communicator, data: Vec<T>, root: usize) -> Result<Prepared<T>> {
    let call = Call::new::<T>(comm, Collective::Gather, root, data.len());
    let all = if comm.rank() == root { room(&call, data.len())? } else { Vec::new() };
    Prepared::new(&call, data, all, None)
}

#[track_caller]
pub(super) fn all_gather<T: Element>(comm: &Communicator, data: Vec<T>) -> Result<Prepared<T>> {
    let call = Call::new::<T>(comm, Collective::AllGather, 0, data.len());
    let all = room(&call, data.len())?;
    Prepared::new(&call, data, all, None)
}

#[track_caller]
pub(super) fn scatter<T: Element>(
    comm: &Communicator,
    data: Option<Vec<T>>,
    block: usize,
    root: usize,
) -> Result<Prepared<T>> {
    let call = Call::new::<T>(comm, Collective::Scatter, root, block);
    Prepared::new(&call, call.at_root("input", data)?, bytemuck::zeroed_vec(block), None)
}

#[track_caller]
pub(super) fn all_to_all<T: Element>(comm: &Communicator, data: Vec<T>) -> Result<Prepared<T>> {
    let call = Call::new::<T>(comm, Collective::AllToAll, 0, block(comm, Collective::AllToAll, &data)?);
    let received = bytemuck::zeroed_vec(data.len());
    Prepared::new(&call, data, received, None)
}

#[track_caller]
pub(super) fn reduce_scatter<T: Element>(comm: &Communicator, data: Vec<T>, op: BoxedOp<T>) -> Result<Prepared<T>> {
    let block = block(comm, Collective::ReduceScatter, &data)?;
    let call = Call::new::<T>(comm, Collective::ReduceScatter, 0, block);
    Prepared::new(&call, data, bytemuck::zeroed_vec(block), Some(op))
}

#[track_caller]
pub(super) fn scan<T: Element>(comm: &Communicator, data: Vec<T>, op: BoxedOp<T>) -> Result<Prepared<T>> {
    Prepared::new(&Call::new::<T>(comm, Collective::Scan, 0, data.len()), Vec::new(), data, Some(op))
}

#[track_caller]
pub(super) fn exscan<T: Element>(comm: &Communicator, data: Vec<T>, op: BoxedOp<T>) -> Result<Prepared<T>> {
    let call = Call::new::<T>(comm, Collective::Exscan, 0, data.len());
    let before = bytemuck::zeroed_vec(if comm.rank() > 0 { data.len() } else { 0 });
    Prepared::new(&call, data, before, Some(op))
}
