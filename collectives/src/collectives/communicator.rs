//! What the methods of the trait do: arguments to a [`Call`]. Knows no algorithm and moves no data.

use super::Collectives;
use crate::algorithms::Collective;
use crate::call::{Call, block, room};
use crate::error::Result;
use crate::operators::Op;
use crate::varied;
use spmd::Communicator;
use spmd::element::Element;

impl Collectives for Communicator {
    fn barrier(&self) -> Result<()> {
        Call::new::<u8>(self, Collective::Barrier, 0, 0).run::<u8>(&[], &mut [], None)
    }

    fn broadcast<T: Element>(&self, data: &mut [T], root: usize) -> Result<()> {
        Call::new::<T>(self, Collective::Broadcast, root, data.len()).run(&[], data, None)
    }

    fn reduce<T: Element>(&self, data: &[T], op: impl Op<T>, root: usize) -> Result<Option<Vec<T>>> {
        let mut result = (self.rank() == root).then(|| bytemuck::zeroed_vec(data.len()));
        self.reduce_into(data, result.as_deref_mut(), op, root)?;
        Ok(result)
    }

    fn reduce_into<T: Element>(&self, data: &[T], result: Option<&mut [T]>, op: impl Op<T>, root: usize) -> Result<()> {
        let call = Call::new::<T>(self, Collective::Reduce, root, data.len());
        call.run(data, call.at_root("output", result)?, Some(&op))
    }

    fn reduce_in_place<T: Element>(&self, data: &mut [T], op: impl Op<T>, root: usize) -> Result<()> {
        let own = data.to_vec();
        self.reduce_into(&own, Some(data), op, root)
    }

    fn all_reduce<T: Element>(&self, data: &mut [T], op: impl Op<T>) -> Result<()> {
        Call::new::<T>(self, Collective::AllReduce, 0, data.len()).run(&[], data, Some(&op))
    }

    fn all_reduce_into<T: Element>(&self, data: &[T], result: &mut [T], op: impl Op<T>) -> Result<()> {
        Call::new::<T>(self, Collective::AllReduce, 0, data.len()).run_into(data, result, &op)
    }

    fn gather<T: Element>(&self, data: &[T], root: usize) -> Result<Option<Vec<T>>> {
        let call = Call::new::<T>(self, Collective::Gather, root, data.len());
        let mut all = if self.rank() == root { Some(room(&call, data.len())?) } else { None };
        call.run(data, all.as_deref_mut().unwrap_or_default(), None)?;
        Ok(all)
    }

    fn gather_into<T: Element>(&self, data: &[T], all: Option<&mut [T]>, root: usize) -> Result<()> {
        let call = Call::new::<T>(self, Collective::Gather, root, data.len());
        call.run(data, call.at_root("output", all)?, None)
    }

    fn all_gather<T: Element>(&self, data: &[T]) -> Result<Vec<T>> {
        let call = Call::new::<T>(self, Collective::AllGather, 0, data.len());
        let mut all = room(&call, data.len())?;
        call.run(data, &mut all, None)?;
        Ok(all)
    }

    fn all_gather_into<T: Element>(&self, data: &[T], all: &mut [T]) -> Result<()> {
        Call::new::<T>(self, Collective::AllGather, 0, data.len()).run(data, all, None)
    }

    fn all_gather_in_place<T: Element>(&self, all: &mut [T]) -> Result<()> {
        let block = block(self, Collective::AllGather, all)?;
        let own = all[self.rank() * block..][..block].to_vec();
        self.all_gather_into(&own, all)
    }

    fn scatter<T: Element>(&self, data: Option<&[T]>, block: &mut [T], root: usize) -> Result<()> {
        let call = Call::new::<T>(self, Collective::Scatter, root, block.len());
        call.run(call.at_root("input", data)?, block, None)
    }

    fn all_to_all<T: Element>(&self, data: &[T]) -> Result<Vec<T>> {
        let mut received = bytemuck::zeroed_vec(data.len());
        self.all_to_all_into(data, &mut received)?;
        Ok(received)
    }

    fn all_to_all_into<T: Element>(&self, data: &[T], received: &mut [T]) -> Result<()> {
        let block = block(self, Collective::AllToAll, data)?;
        Call::new::<T>(self, Collective::AllToAll, 0, block).run(data, received, None)
    }

    fn all_to_all_in_place<T: Element>(&self, data: &mut [T]) -> Result<()> {
        let own = data.to_vec();
        self.all_to_all_into(&own, data)
    }

    fn reduce_scatter<T: Element>(&self, data: &[T], op: impl Op<T>) -> Result<Vec<T>> {
        let mut result = bytemuck::zeroed_vec(block(self, Collective::ReduceScatter, data)?);
        self.reduce_scatter_into(data, &mut result, op)?;
        Ok(result)
    }

    fn reduce_scatter_into<T: Element>(&self, data: &[T], result: &mut [T], op: impl Op<T>) -> Result<()> {
        let block = block(self, Collective::ReduceScatter, data)?;
        Call::new::<T>(self, Collective::ReduceScatter, 0, block).run(data, result, Some(&op))
    }

    fn reduce_scatter_in_place<T: Element>(&self, data: &mut [T], op: impl Op<T>) -> Result<()> {
        let block = block(self, Collective::ReduceScatter, data)?;
        let own = data.to_vec();
        self.reduce_scatter_into(&own, &mut data[..block], op)
    }

    fn scan<T: Element>(&self, data: &mut [T], op: impl Op<T>) -> Result<()> {
        Call::new::<T>(self, Collective::Scan, 0, data.len()).run(&[], data, Some(&op))
    }

    fn scan_into<T: Element>(&self, data: &[T], result: &mut [T], op: impl Op<T>) -> Result<()> {
        if data.len() == result.len() {
            result.copy_from_slice(data);
        }
        Call::new::<T>(self, Collective::Scan, 0, data.len()).run(&[], result, Some(&op))
    }

    fn exscan<T: Element>(&self, data: &[T], op: impl Op<T>) -> Result<Option<Vec<T>>> {
        let mut before = (self.rank() > 0).then(|| bytemuck::zeroed_vec(data.len()));
        let result = before.as_deref_mut().unwrap_or_default();
        Call::new::<T>(self, Collective::Exscan, 0, data.len()).run(data, result, Some(&op))?;
        Ok(before)
    }

    fn exscan_in_place<T: Element>(&self, data: &mut [T], op: impl Op<T>) -> Result<()> {
        let own = data.to_vec();
        let result = if self.rank() > 0 { data } else { &mut [] };
        Call::new::<T>(self, Collective::Exscan, 0, own.len()).run(&own, result, Some(&op))
    }

    fn gather_v<T: Element>(&self, data: &[T], root: usize) -> Result<Option<(Vec<T>, Vec<usize>)>> {
        let here = self.rank() == root;
        varied::gather_v(self, data, root).run().map(|results| here.then_some(results))
    }

    fn scatter_v<T: Element>(&self, data: Option<(&[T], &[usize])>, root: usize) -> Result<Vec<T>> {
        let data = data.map(|(data, counts)| (data, counts.to_vec()));
        Ok(varied::scatter_v(self, data, root)?.run()?.0)
    }

    fn all_gather_v<T: Element>(&self, data: &[T]) -> Result<(Vec<T>, Vec<usize>)> {
        varied::all_gather_v(self, data).run()
    }

    fn all_to_all_v<T: Element>(&self, data: &[T], counts: &[usize]) -> Result<(Vec<T>, Vec<usize>)> {
        varied::all_to_all_v(self, data, counts.to_vec())?.run()
    }
}
