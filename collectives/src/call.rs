//! One collective call from arguments to result: checks, choice of the algorithm, schedule, execution.

use crate::algorithms::Collective;
use crate::error::{Error, Result};
use crate::execute;
use crate::operators::Op;
use crate::plan::{Plan, Plans, Wanted};
use crate::schedule::{Schedule, ScheduleError};
use spmd::Communicator;
use spmd::element::{Element, Signature};
use spmd::memory::Operation;

/// A call on this rank.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    pub(crate) comm: &'a Communicator,
    pub(crate) collective: Collective,
    /// What the program called, in errors and reports.
    pub(crate) operation: Operation,
    /// The root; 0 where there is none.
    pub(crate) root: usize,
    /// Elements per rank: see [`Collective`].
    pub(crate) elements: usize,
}

impl<'a> Call<'a> {
    pub(crate) fn new(comm: &'a Communicator, collective: Collective, root: usize, elements: usize) -> Call<'a> {
        Call { comm, collective, operation: operation(collective), root, elements }
    }

    /// Checks buffers and root, chooses, and runs.
    pub(crate) fn run<T: Element>(&self, input: &[T], output: &mut [T], op: Option<&dyn Op<T>>) -> Result<()> {
        let Call { comm, collective, operation, root, elements } = *self;
        let (rank, size) = (comm.rank(), comm.size());
        if root >= size {
            return Err(Error::NoSuchRoot { rank, collective: operation, root, size });
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
                return Err(Error::Length { rank, collective: operation, buffer, expected, expected_bytes, given });
            }
        }
        self.follow(schedule, algorithm.name, input, output, op)
    }

    /// Runs a schedule made for these buffers.
    pub(crate) fn follow<T: Element>(
        &self,
        schedule: &Schedule,
        algorithm: &'static str,
        input: &[T],
        output: &mut [T],
        op: Option<&dyn Op<T>>,
    ) -> Result<()> {
        let Call { comm, operation: collective, elements, .. } = *self;
        let (rank, bytes) = (comm.rank(), elements.saturating_mul(size_of::<T>()));
        execute::run(comm, schedule, collective, self.signature::<T>(algorithm), input, output, op).map_err(|source| {
            match source {
                spmd::Error::TypeMismatch { source_rank: peer, .. }
                | spmd::Error::LengthMismatch { source_rank: peer, .. } => {
                    Error::Mismatch { rank, peer, collective, algorithm, elements, bytes }
                }
                source => Error::Runtime { rank, collective, algorithm, bytes, source },
            }
        })
    }

    /// The buffer that only the root needs: an error where it is missing there, an empty one on other ranks.
    pub(crate) fn at_root<B: Default>(&self, buffer: &'static str, given: Option<B>) -> Result<B> {
        let rank = self.comm.rank();
        match given {
            _ if rank != self.root => Ok(B::default()),
            Some(given) => Ok(given),
            None => Err(Error::MissingAtRoot { rank, collective: self.operation, buffer }),
        }
    }

    pub(crate) fn no_schedule(&self, source: ScheduleError) -> Error {
        let Call { comm, operation: collective, elements, .. } = *self;
        Error::Schedule { rank: comm.rank(), collective, elements, source }
    }

    /// Marks the messages of calls that fit together: all that decides what is sent where is in it, so that a message
    /// of another call is an error even where its length happens to fit.
    fn signature<T: Element>(&self, algorithm: &str) -> Signature {
        let (elements, root) = (self.elements as u64, self.root as u64);
        [elements & 0xffff_ffff, elements >> 32, root & 0xffff_ffff]
            .into_iter()
            .map(|number| Signature(u32::try_from(number).unwrap_or(u32::MAX)))
            .fold(T::signature().with(Signature::of_name(self.operation.name())), Signature::with)
            .with(Signature::of_name(algorithm))
    }
}

/// What the launcher's report calls it.
pub(crate) fn operation(collective: Collective) -> Operation {
    match collective {
        Collective::Barrier => Operation::Barrier,
        Collective::Broadcast => Operation::Broadcast,
        Collective::Reduce => Operation::Reduce,
        Collective::AllReduce => Operation::AllReduce,
        Collective::Gather => Operation::Gather,
        Collective::AllGather => Operation::AllGather,
        Collective::Scatter => Operation::Scatter,
        Collective::AllToAll => Operation::AllToAll,
        Collective::ReduceScatter => Operation::ReduceScatter,
        Collective::Scan => Operation::Scan,
        Collective::Exscan => Operation::Exscan,
    }
}
