//! Whether what one GPU stores through a mapping arrives: a driver that permits a mapping is no proof (PCIe bridges with
//! access control send such stores elsewhere, or drop them).

#![expect(unsafe_code, reason = "launches kernels")]

use crate::{
    agree::agree,
    context::KernelContext,
    device::address,
    driver::{Gpu, failed},
    error::Result,
};
use cudarc::{
    driver::{CudaStream, LaunchConfig, PushKernelArg},
    nvrtc::Ptx,
};
use spmd::Communicator;
use spmd_collectives::Collectives;
use std::sync::Arc;

/// `CHECK_WORDS` of the kernels: words of each row.
pub(crate) const ROW_WORDS: usize = 512;

/// Every rank stores a pattern at every other, reads it back through the mapping, and looks at what came from the others.
/// Uses the front of the heap, which it leaves zero. The inner error holds for all ranks alike. Collective.
pub(crate) fn arrives(
    communicator: &Communicator,
    gpu: &Gpu,
    stream: &Arc<CudaStream>,
    context: &KernelContext,
) -> Result<std::result::Result<(), String>> {
    let size = communicator.size();
    let module = gpu.context.load_module(Ptx::from_src(include_str!("../kernels/ptx/check.ptx")));
    let module = module.map_err(failed("loading the check of mapped memory"))?;
    let function = |name: &str| module.load_function(name).map_err(failed("loading the check of mapped memory"));
    let (write, read) = (function("spmd_check_write")?, function("spmd_check_read")?);
    let launch = LaunchConfig { grid_dim: (context.size, 1, 1), block_dim: (128, 1, 1), shared_mem_bytes: 0 };
    // Different in every job, so that what an earlier one left proves nothing.
    let mut seed = [u64::from(std::process::id()) << 32 | u64::from(context.rank)];
    communicator.broadcast(&mut seed, 0)?;
    let wrong = stream.alloc_zeros::<u32>(size).map_err(failed("taking memory of the GPU"))?;
    let wrong_address = address(&wrong, stream);
    // SAFETY: the arguments are those of the kernels in kernels/check.cu; the rows are within the reserved front of the heap.
    unsafe { stream.launch_builder(&write).arg(context).arg(&context.heap).arg(&seed[0]).launch(launch) }
        .map_err(failed("launching the check of mapped memory"))?;
    let written = stream.synchronize().map_err(failed("storing to mapped memory"));
    if let Err(refused) = agree(communicator, written)? {
        return Ok(Err(refused.reason));
    }
    let mut read = stream.launch_builder(&read);
    let read = read.arg(context).arg(&context.heap).arg(&seed[0]).arg(&wrong_address);
    // SAFETY: as above.
    unsafe { read.launch(launch) }.map_err(failed("launching the check of mapped memory"))?;
    let counts = stream.clone_dtoh(&wrong).map_err(failed("reading mapped memory"));
    let counts = match agree(communicator, counts)? {
        Ok(counts) => counts,
        Err(refused) => return Ok(Err(refused.reason)),
    };
    let all = communicator.all_gather(&counts)?;
    // SAFETY: the rows are this rank's own memory, and everybody has looked at them.
    unsafe { cudarc::driver::result::memset_d8_async(context.heap, 0, size * ROW_WORDS * 8, stream.cu_stream()) }
        .map_err(failed("clearing the front of the heap"))?;
    stream.synchronize().map_err(failed("clearing the front of the heap"))?;
    communicator.barrier()?;
    Ok(match all.iter().position(|count| *count != 0) {
        None => Ok(()),
        Some(at) => Err(format!(
            "what ranks {} and {} store at each other does not arrive ({} of {} words wrong), though the driver permits \
             it: is access control (ACS) on for a PCIe bridge between them?",
            at % size,
            at / size,
            all[at],
            2 * ROW_WORDS
        )),
    })
}
