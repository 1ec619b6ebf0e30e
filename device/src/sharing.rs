//! Ranks that share a GPU: how many blocks each may have at once, and whether that is worth a warning.
//!
//! Pure but for asking: what every rank's GPU is, is gathered, so that all ranks come to the same.

use crate::{
    collectives::MAX_BLOCKS,
    driver::{Gpu, failed},
    error::Result,
};
use spmd::Communicator;
use spmd_collectives::Collectives;

/// Words that a rank says of its GPU: processors, the number that names it (two), its own process, and whether processes share
/// the GPU through MPS ([`WITH_MPS`] and the others).
const WORDS: usize = 5;
const WITHOUT_MPS: u64 = 0;
const WITH_MPS: u64 = 1;
const UNKNOWN: u64 = 2;

/// Which GPU every rank has.
#[derive(Debug)]
pub(crate) struct Sharing {
    gpus: Vec<[u64; WORDS]>,
}

impl Sharing {
    /// Asks all ranks. Collective.
    pub(crate) fn new(communicator: &Communicator, gpu: &Gpu) -> Result<Self> {
        let mut mine = [0_u64; WORDS];
        mine[0] = u64::from(gpu.processors()?);
        let uuid = gpu.context.uuid().map_err(failed("asking for the GPU's number"))?;
        bytemuck::cast_slice_mut::<u64, u8>(&mut mine[1..3])
            .iter_mut()
            .zip(uuid.bytes)
            .for_each(|(byte, other)| *byte = other.cast_unsigned().to_ne_bytes()[0]);
        mine[3] = u64::from(std::process::id());
        mine[4] = match gpu.has_mps() {
            Some(true) => WITH_MPS,
            Some(false) => WITHOUT_MPS,
            None => UNKNOWN,
        };
        let all = communicator.all_gather(&mine)?;
        Ok(Sharing { gpus: all.as_chunks::<WORDS>().0.to_vec() })
    }

    /// The ranks that have the GPU of rank `rank`.
    fn with(&self, rank: usize) -> impl Iterator<Item = usize> {
        let same = move |other: &usize| self.gpus[*other][1..3] == self.gpus[rank][1..3];
        (0..self.gpus.len()).filter(same)
    }

    /// The most blocks of a collective's kernel, the same on all ranks, because blocks of the same number wait for each
    /// other: so many that the kernels of all ranks that share a GPU fit on it at once, one block a processor.
    pub(crate) fn most_blocks(&self) -> u32 {
        let least = (0..self.gpus.len()).map(|rank| self.gpus[rank][0] / self.with(rank).count() as u64).min();
        u32::try_from(least.unwrap_or(1).clamp(1, MAX_BLOCKS as u64)).unwrap_or(1)
    }

    /// What is to be said about processes whose kernels cannot run on their GPU at the same time, though they wait for each other.
    pub(crate) fn warning(&self) -> Option<String> {
        let process = |rank: usize| self.gpus[rank][3];
        let first = (0..self.gpus.len()).find(|rank| {
            self.gpus[*rank][4] == WITHOUT_MPS && self.with(*rank).any(|other| process(other) != process(*rank))
        })?;
        let ranks: Vec<u32> = self.with(first).filter_map(|rank| u32::try_from(rank).ok()).collect();
        Some(format!(
            "ranks {} share a GPU without MPS, so that their kernels take turns of milliseconds and wait for each other as \
             long: start NVIDIA's daemon before the job (nvidia-cuda-mps-control -d; CUDA_MPS_PIPE_DIRECTORY, if it is set, \
             must be so for the ranks, too), or run as many ranks on a host as it has GPUs",
            spmd::bootstrap::node::cpu_list(&ranks)
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ranks as `(processors, GPU, process, MPS)`.
    fn sharing(gpus: &[(u64, u64, u64, u64)]) -> Sharing {
        Sharing { gpus: gpus.iter().map(|&(count, gpu, process, mps)| [count, 7, gpu, process, mps]).collect() }
    }

    #[test]
    fn ranks_that_share_a_gpu_share_its_processors() {
        assert_eq!(sharing(&[(132, 1, 1, 1), (132, 2, 2, 1)]).most_blocks(), 132);
        assert_eq!(sharing(&[(132, 1, 1, 1), (132, 1, 2, 1), (132, 1, 3, 1), (144, 2, 4, 1)]).most_blocks(), 44);
        assert_eq!(sharing(&[(132, 1, 1, 1), (132, 1, 2, 1), (108, 5, 3, 1)]).most_blocks(), 66);
        assert_eq!(sharing(&[(500, 1, 1, 1)]).most_blocks(), 256);
        assert_eq!(sharing(&[(2, 1, 1, 1), (2, 1, 2, 1), (2, 1, 3, 1)]).most_blocks(), 1);
    }

    #[test]
    fn processes_on_one_gpu_without_mps_are_named_with_the_way_out() {
        let warning = sharing(&[(132, 1, 1, 0), (132, 2, 2, 0), (132, 2, 3, 0), (132, 2, 4, 0)]).warning().unwrap();
        assert!(warning.starts_with("ranks 1-3 share a GPU without MPS"), "{warning}");
        assert!(warning.contains("nvidia-cuda-mps-control -d"), "{warning}");
    }

    #[test]
    fn nothing_is_said_where_kernels_can_run_at_once_or_nobody_knows() {
        for fine in [
            // A GPU each; MPS; threads of one process; a driver that does not say.
            [(132, 1, 1, 0), (132, 2, 2, 0)],
            [(132, 1, 1, 1), (132, 1, 2, 1)],
            [(132, 1, 1, 0), (132, 1, 1, 0)],
            [(132, 1, 1, 2), (132, 1, 2, 2)],
        ] {
            assert_eq!(sharing(&fine).warning(), None, "{fine:?}");
        }
    }
}
