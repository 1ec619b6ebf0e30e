//! The ranks whose memory this rank's GPU maps, where it does not map all ranks': what the first hop of a collective needs.
//!
//! Makes the memory and proves it; falls back to a group of its own for every rank where that does not work.

use super::hops::Hops;
use crate::{
    agree::agree,
    check,
    context::{KernelContext, PeerEntry, Way},
    device::{address, set_peers},
    driver::{Gpu, failed},
    error::{Error, Result},
    near::NearHeap,
};
use cudarc::driver::{CudaSlice, CudaStream};
use spmd::{Communicator, config::keys};
use spmd_collectives::{groups::Groups, tune};
use std::sync::Arc;

/// What to do when a GPU has no room for a group's memory.
const WAY_OUT: &str =
    "it is for collectives among ranks whose GPUs map each other: free some, or put fewer ranks on a GPU";

/// A group's memory, and what kernels get to reach it.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) context: KernelContext,
    /// Why ranks of a host do not map each other, though they would be a group.
    pub(crate) apart: Option<String>,
    _peers: CudaSlice<u64>,
    _copy: CudaSlice<u64>,
    _heap: NearHeap,
}

/// The groups of ranks that map each other where not all do: those of the configuration within each host. A way that is
/// asked for holds between all ranks but those that the configuration says are a group.
pub(crate) fn groups(communicator: &Communicator, asked: bool) -> Groups {
    let named = communicator.snapshot().get(keys::COLLECTIVES_GROUP_SIZE) > 0;
    if asked && !named {
        return Groups::apart(communicator.size());
    }
    let groups = tune::groups(communicator);
    Groups::by_label((0..communicator.size()).map(|rank| (communicator.host_of(rank), groups.of(rank))))
}

impl Group {
    /// Makes a group's memory, by a context that says everything else. Collective over all ranks.
    pub(crate) fn new(
        communicator: &Communicator,
        gpu: &Gpu,
        stream: &Arc<CudaStream>,
        context: &KernelContext,
        groups: Groups,
    ) -> Result<(Self, Hops)> {
        let are_apart = groups.count() == communicator.size();
        let refused = match Self::with(communicator, gpu, stream, context, groups)? {
            Ok(made) => return Ok(made),
            Err(refused) if are_apart => return Err(Error::Way { way: "mapped".into(), reason: refused }),
            Err(refused) => refused,
        };
        let alone = Self::with(communicator, gpu, stream, context, Groups::apart(communicator.size()))?;
        let (mut group, hops) = alone.map_err(|reason| Error::Way { way: "mapped".into(), reason })?;
        group.apart = Some(refused);
        Ok((group, hops))
    }

    fn with(
        communicator: &Communicator,
        gpu: &Gpu,
        stream: &Arc<CudaStream>,
        context: &KernelContext,
        groups: Groups,
    ) -> Result<std::result::Result<(Self, Hops), String>> {
        let hops = Hops::new(groups);
        let colour = u32::try_from(hops.groups().of(communicator.rank())).unwrap_or(u32::MAX);
        let within = communicator.split(Some(colour), 0)?.expect("every rank is in a group");
        let made = match NearHeap::new(&within, gpu, hops.near_bytes(), WAY_OUT)? {
            Ok(heap) => Self::prove(&within, gpu, stream, context, heap)?,
            Err(reason) => Err(reason),
        };
        let made = made.map_err(|reason| Error::Way { way: "mapped".into(), reason });
        Ok(agree(communicator, made)?.map(|group| (group, hops)).map_err(|refused| refused.reason))
    }

    /// Whether what the ranks of the group store at each other arrives.
    fn prove(
        within: &Communicator,
        gpu: &Gpu,
        stream: &Arc<CudaStream>,
        context: &KernelContext,
        heap: NearHeap,
    ) -> Result<std::result::Result<Self, String>> {
        let mut copy =
            stream.alloc_zeros::<u64>(size_of::<KernelContext>() / 8).map_err(failed("taking memory of the GPU"))?;
        let number = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
        let mut context = KernelContext {
            rank: number(within.rank()),
            size: number(within.size()),
            copy: address(&copy, stream),
            ..*context
        };
        let entry = |rank| PeerEntry { base: heap.address(rank), way: Way::Mapped as u32, ..PeerEntry::default() };
        let entries: Vec<PeerEntry> = (0..within.size()).map(entry).collect();
        let peers = set_peers(&mut context, &mut copy, stream, &entries, heap.own(), heap.bytes())?;
        let arrives = check::arrives(within, gpu, stream, &context)?;
        Ok(arrives.map(|()| Group { context, apart: None, _peers: peers, _copy: copy, _heap: heap }))
    }
}
