//! One collective call from arguments to result: checks, choice of the algorithm, schedule, execution.

use crate::algorithms::Collective;
use crate::error::{Error, Result};
use crate::execute;
use crate::operators::Op;
use crate::plan::{Plan, Plans, Wanted};
use spmd::Communicator;
use spmd::element::{Element, Signature};
use spmd::memory::Operation;

/// A call on this rank.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    pub(crate) comm: &'a Communicator,
    pub(crate) collective: Collective,
    /// The root; 0 where there is none.
    pub(crate) root: usize,
    /// Elements per rank: see [`Collective`].
    pub(crate) elements: usize,
}

impl Call<'_> {
    /// Checks buffers and root, chooses, and runs.
    pub(crate) fn run<T: Element>(&self, input: &[T], output: &mut [T], op: Option<&dyn Op<T>>) -> Result<()> {
        let Call { comm, collective, root, elements } = *self;
        let (rank, size) = (comm.rank(), comm.size());
        if root >= size {
            return Err(Error::NoSuchRoot { rank, collective, root, size });
        }
        let commutative = op.is_none_or(Op::is_commutative);
        let plans = comm.attribute(|| Plans::new(comm));
        let plan =
            plans.plan(comm, Wanted { collective, root, elements, element_bytes: size_of::<T>(), commutative })?;
        let Plan { schedule, algorithm, .. } = &*plan;
        for (buffer, expected, given) in
            [("input", schedule.lengths().input, input.len()), ("output", schedule.lengths().output, output.len())]
        {
            if expected != given {
                let expected_bytes = expected.saturating_mul(size_of::<T>());
                return Err(Error::Length { rank, collective, buffer, expected, expected_bytes, given });
            }
        }
        let bytes = elements.saturating_mul(size_of::<T>());
        let algorithm = algorithm.name;
        execute::run(comm, schedule, operation(collective), self.signature::<T>(algorithm), input, output, op).map_err(
            |source| match source {
                spmd::Error::TypeMismatch { source_rank: peer, .. }
                | spmd::Error::LengthMismatch { source_rank: peer, .. } => {
                    Error::Mismatch { rank, peer, collective, algorithm, elements, bytes }
                }
                source => Error::Runtime { rank, collective, algorithm, bytes, source },
            },
        )
    }

    /// Marks the messages of calls that fit together: all that decides what is sent where is in it, so that a message
    /// of another call is an error even where its length happens to fit.
    fn signature<T: Element>(&self, algorithm: &str) -> Signature {
        let (elements, root) = (self.elements as u64, self.root as u64);
        [elements & 0xffff_ffff, elements >> 32, root & 0xffff_ffff]
            .into_iter()
            .map(|number| Signature(u32::try_from(number).unwrap_or(u32::MAX)))
            .fold(T::signature().with(Signature::of_name(self.collective.name())), Signature::with)
            .with(Signature::of_name(algorithm))
    }
}

/// What the launcher's report calls it.
fn operation(collective: Collective) -> Operation {
    match collective {
        Collective::Barrier => Operation::Barrier,
        Collective::Broadcast => Operation::Broadcast,
        Collective::Reduce => Operation::Reduce,
        Collective::AllReduce => Operation::AllReduce,
        Collective::Gather => Operation::Gather,
        Collective::AllGather => Operation::AllGather,
        Collective::Scatter => Operation::Scatter,
        Collective::AllToAll => Operation::AllToAll,
    }
}
