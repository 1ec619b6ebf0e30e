//! Compressed aggregation for training: exact inside a group, only the largest entries between groups, and what is kept
//! back is added to the next gradient.
//!
//! Top-k with error feedback (S. U. Stich, J.-B. Cordonnier, M. Jaggi, "Sparsified SGD with memory", 2018; Y. Lin et al.,
//! "Deep gradient compression", 2018) at the boundary of the groups of the collectives in two hops: links between hosts
//! are what is slow. The threshold is kept over several steps (S. Li, T. Hoefler, "Near-optimal sparse allreduce for
//! distributed deep learning", 2022). A wrapper of the collectives: it sends nothing by itself.

mod sparse;
mod threshold;

pub use threshold::Gradient;

use crate::collectives::Collectives;
use crate::error::{Error, Result};
use crate::operators::{Op, Sum};
use crate::plan;
use crate::schedule::Side;
use spmd::Communicator;
use spmd::memory::Operation;
use threshold::Threshold;

/// How much is sent, and how often that is thought over.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TopK {
    /// The share of the entries that each group sends, above 0 and at most 1.
    pub keep: f64,
    /// Steps for which a threshold is used before it is chosen anew. It is chosen earlier when it lets through less than half
    /// or more than twice of what it should.
    pub reuse: usize,
}

impl Default for TopK {
    /// A hundredth of the entries, and a threshold for 16 steps.
    fn default() -> Self {
        TopK { keep: 0.01, reuse: 16 }
    }
}

/// Adds gradients up over all ranks, step after step; see the module's words.
///
/// ```
/// use spmd_collectives::compress::{Compressed, TopK};
///
/// // Two groups of two ranks.
/// let cluster = spmd::local::Cluster::new(4).set("collectives.group_size", "2");
/// cluster.run(|world| {
///     let comm = world.communicator();
///     let mut sum = Compressed::<i64>::new(&comm, 100, TopK { keep: 0.02, reuse: 1 }).unwrap();
///     let mut gradient = vec![1; 100];
///     gradient[7] = 1000;
///     gradient[9] = 2000;
///     sum.all_reduce(&mut gradient).unwrap();
///     assert_eq!((gradient[7], gradient[9], gradient[8]), (4000, 8000, 0));
///     // What each group keeps back, with its first rank.
///     if comm.rank() % 2 == 0 {
///         assert_eq!((sum.residual()[7], sum.residual()[8]), (0, 2));
///     }
/// }).unwrap();
/// ```
#[derive(Debug)]
pub struct Compressed<T> {
    length: usize,
    /// The ranks of this rank's group, and which of them leads.
    inside: Communicator,
    leader: usize,
    /// The leaders of all groups, on each of them.
    leaders: Option<Communicator>,
    /// There is more than one group.
    is_divided: bool,
    /// On leaders: what the group has not sent.
    residual: Vec<T>,
    threshold: Threshold,
    traffic: Traffic,
}

/// What a leader has sent to the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Steps whose entries went as a list.
    pub sparse_steps: u64,
    /// Steps in which lists would have been larger than everything.
    pub dense_steps: u64,
    /// Bytes of this group's share of the lists, or of everything.
    pub bytes: u64,
}

impl<T: Gradient> Compressed<T> {
    /// For gradients of `length` elements. Collective. Groups are those of the collectives in two hops
    /// (`collectives.groups`, `collectives.group_size`); with one group nothing is kept back.
    ///
    /// # Errors
    /// [`Error::Compression`] when `top_k.keep` is not above 0 and at most 1, or `length` does not fit into 32 bits. When a
    /// rank is lost.
    pub fn new(comm: &Communicator, length: usize, top_k: TopK) -> Result<Compressed<T>> {
        let wrong = |reason: String| Error::Compression { rank: comm.rank(), reason };
        let threshold = Threshold::new(length, top_k).map_err(wrong)?;
        if u32::try_from(length).is_err() {
            return Err(wrong(format!(
                "{length} elements, but places are counted in 32 bits: cut the gradient in parts"
            )));
        }
        let groups = plan::groups(comm);
        let group = groups.of(comm.rank());
        let place = |rank: usize| i64::try_from(rank).unwrap_or(i64::MAX);
        let split = |color: Option<usize>| {
            let color = color.map(|color| u32::try_from(color).unwrap_or(u32::MAX));
            let failed = |source| Error::of_runtime(comm.rank(), Operation::Split, "linear", 0, source);
            comm.split(color, place(comm.rank()))
                .map_err(failed)
                .inspect(|made| made.iter().for_each(|made| made.serve(comm)))
        };
        let Some(inside) = split(Some(group))? else {
            unreachable!("whoever gives a colour gets a communicator");
        };
        let leader = groups.lead(group, 0);
        let leaders = split((inside.rank() == leader).then_some(0))?;
        let residual = if leaders.is_some() { bytemuck::zeroed_vec(length) } else { Vec::new() };
        let (is_divided, traffic) = (groups.count() > 1, Traffic::default());
        Ok(Compressed { length, inside, leader, leaders, is_divided, residual, threshold, traffic })
    }

    /// Adds up the gradients of all ranks, as far as the groups send theirs now; all ranks get the same bits. The sum of
    /// everything that came out and of the residuals of all leaders is the sum of all gradients: exactly for integers,
    /// for floats up to the rounding of the additions.
    ///
    /// # Errors
    /// As for [`Collectives`]; [`Error::Length`] when the gradient is not as long as was said.
    pub fn all_reduce(&mut self, gradient: &mut [T]) -> Result<()> {
        if gradient.len() != self.length {
            let (rank, expected) = (self.inside.rank(), self.length);
            let (collective, buffer) = (Operation::AllReduce, "gradient");
            let expected_bytes = expected.saturating_mul(size_of::<T>());
            return Err(Error::Length { rank, collective, buffer, expected, expected_bytes, given: gradient.len() });
        }
        if !self.is_divided {
            return self.inside.all_reduce(gradient, Sum);
        }
        let sum = self.inside.reduce(gradient, Sum, self.leader)?;
        if let (Some(leaders), Some(sum)) = (self.leaders.clone(), sum) {
            Sum.apply(&mut self.residual, &sum, Side::Right);
            self.between(&leaders, gradient)?;
        }
        self.inside.broadcast(gradient, self.leader)
    }

    /// Sends what is large enough to the other leaders, and adds up what all of them send.
    fn between(&mut self, leaders: &Communicator, total: &mut [T]) -> Result<()> {
        let chosen = self.threshold.choose(&self.residual);
        let counts = leaders.all_gather(&[chosen.len()])?;
        let entries = counts.iter().fold(0, |sum: usize, count| sum.saturating_add(*count));
        if sparse::is_larger_than_dense::<T>(entries, self.length) {
            total.copy_from_slice(&self.residual);
            self.residual.fill(T::zeroed());
            self.traffic.dense_steps += 1;
            self.traffic.bytes += size_of_val(total) as u64;
            return leaders.all_reduce(total, Sum);
        }
        let list = sparse::take(&mut self.residual, &chosen);
        self.traffic.sparse_steps += 1;
        self.traffic.bytes += list.len() as u64;
        let (lists, lengths) = leaders.all_gather_v(&list)?;
        total.fill(T::zeroed());
        let mut rest = &lists[..];
        // In the order of the leaders on all of them, so that all have the same bits.
        for (from, length) in lengths.into_iter().enumerate() {
            let (list, after) = rest.split_at(length);
            sparse::add(total, list).map_err(|reason| {
                let rank = leaders.rank();
                Error::Compression { rank, reason: format!("the entries of leader {from} are wrong: {reason}") }
            })?;
            rest = after;
        }
        Ok(())
    }

    /// What this rank's group has kept back so far; empty on ranks that do not lead.
    #[must_use]
    pub fn residual(&self) -> &[T] {
        &self.residual
    }

    /// What this rank has sent to other leaders so far; nothing on ranks that do not lead.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        self.traffic
    }
}
