//! One memory on each GPU of a host, which every rank of the host maps: peers are reached by plain stores.
//!
//! Knows a communicator of ranks of one host. Whether mappings work is found out by trying, and the check of their contents
//! is left to `check`.

use crate::{
    agree::agree,
    driver::Gpu,
    error::{Error, Result},
    exchange,
    memory::{Mapping, Physical},
};
use spmd::Communicator;
use spmd_collectives::Collectives;
use std::{os::fd::AsFd, sync::Arc};

/// This rank's memory and its peers', mapped here.
#[derive(Debug)]
pub(crate) struct NearHeap {
    mappings: Vec<Mapping>,
    rank: usize,
    bytes: usize,
}

impl NearHeap {
    /// Takes `bytes` bytes on each GPU and maps them everywhere. The inner error is a reason that holds for all ranks alike.
    /// Collective.
    ///
    /// # Errors
    /// When a GPU has not so much memory, on all ranks: another kind of memory is only taken when it is asked for, which
    /// `way_out` says how to do.
    pub(crate) fn new(
        near: &Communicator,
        gpu: &Gpu,
        bytes: usize,
        way_out: &str,
    ) -> Result<std::result::Result<Self, String>> {
        let own = Physical::new(gpu, bytes).and_then(|own| Ok((own.export()?, Arc::new(own))));
        let (descriptor, own) = match agree(near, own)? {
            Ok(own) => own,
            Err(refused) if refused.wants_memory => {
                let reason = format!("{}; {way_out}", refused.reason);
                return Err(Error::Heap { operation: "Device::new", reason });
            }
            Err(refused) => return Ok(Err(refused.reason)),
        };
        let bytes = own.bytes();
        let all_bytes = near.all_gather(&[bytes as u64])?;
        if let Some(rank) = all_bytes.iter().position(|other| *other != bytes as u64) {
            let reason = format!("the GPU of rank {rank} has other page sizes than that of rank {}", near.rank());
            return Ok(agree(near, Err(Error::Way { way: "mapped".into(), reason }))?.map_err(|refused| refused.reason));
        }
        let descriptors = match agree(near, exchange::descriptors(near, descriptor.as_fd()))? {
            Ok(descriptors) => descriptors,
            Err(refused) => return Ok(Err(refused.reason)),
        };
        let mappings = descriptors
            .into_iter()
            .map(|descriptor| match descriptor {
                None => Mapping::new(gpu, own.clone()),
                Some(descriptor) => Mapping::new(gpu, Arc::new(Physical::import(gpu, descriptor.as_fd(), bytes)?)),
            })
            .collect::<Result<Vec<_>>>();
        let mappings = agree(near, mappings)?.map_err(|refused| refused.reason);
        Ok(mappings.map(|mappings| NearHeap { mappings, rank: near.rank(), bytes }))
    }

    /// Where a rank's memory is mapped here.
    pub(crate) fn address(&self, rank: usize) -> u64 {
        self.mappings[rank].address()
    }

    /// Where this rank's own memory is.
    pub(crate) fn own(&self) -> u64 {
        self.address(self.rank)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}
