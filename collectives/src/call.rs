//! One collective call from arguments to result: checks, choice of the algorithm, schedule, execution.

use crate::algorithms::{Collective, Shape};
use crate::error::{Error, Result};
use crate::execute;
use crate::operators::Op;
use crate::price::Model;
use crate::select::{Choice, Request, select};
use spmd::Communicator;
use spmd::config::{Key, keys};
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
        let request = Request { collective, size, elements, element_bytes: size_of::<T>(), commutative };
        let Choice { algorithm, segment, .. } =
            select(&request, &comm.snapshot().get(key(collective)), &Model::ASSUMED)?;
        let schedule = algorithm
            .schedule(&Shape { rank, size, root, elements, segment })
            .map_err(|source| Error::Schedule { rank, collective, elements, source })?;
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
        execute::run(comm, &schedule, operation(collective), self.signature::<T>(algorithm), input, output, op).map_err(
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

/// The configuration key that forces an algorithm.
fn key(collective: Collective) -> Key<String> {
    match collective {
        Collective::Barrier => keys::COLLECTIVES_BARRIER,
        Collective::Broadcast => keys::COLLECTIVES_BROADCAST,
        Collective::Reduce => keys::COLLECTIVES_REDUCE,
        Collective::AllReduce => keys::COLLECTIVES_ALL_REDUCE,
        Collective::Gather => keys::COLLECTIVES_GATHER,
        Collective::AllGather => keys::COLLECTIVES_ALL_GATHER,
        Collective::Scatter => keys::COLLECTIVES_SCATTER,
        Collective::AllToAll => keys::COLLECTIVES_ALL_TO_ALL,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::select::AUTO;
    use spmd::config::Kind;

    #[test]
    fn the_configuration_offers_exactly_the_algorithms_that_there_are() {
        for collective in Collective::ALL {
            let spec = keys::TABLE.iter().find(|spec| spec.name == format!("collectives.{collective}")).unwrap();
            let Kind::Choice { default, choices } = &spec.kind else { panic!("{} is no choice", spec.name) };
            assert_eq!(*default, AUTO);
            let mut offered = choices.to_vec();
            let mut there_are: Vec<&str> = collective.algorithms().iter().map(|algorithm| algorithm.name).collect();
            there_are.push(AUTO);
            offered.sort_unstable();
            there_are.sort_unstable();
            assert_eq!(offered, there_are, "{}", spec.name);
        }
    }
}
