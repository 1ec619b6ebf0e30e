//! One collective call from arguments to result: checks, choice of the algorithm, schedule, execution.

use crate::algorithms::Collective;
use crate::error::{Error, Result};
use crate::execute::Execution;
use crate::operators::Op;
use crate::plan::{Plan, Plans, Wanted, Way};
use crate::schedule::{Schedule, ScheduleError};
use crate::shared::{self, Grouped, HopPlan, Shared};
use spmd::Communicator;
use spmd::comm;
use spmd::element::{Element, Signature};
use spmd::memory::Operation;
use std::panic::Location;
use std::sync::Arc;

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
    /// The type of the program's elements.
    element: Option<Signature>,
    /// Where the program makes the call.
    place: &'static Location<'static>,
}

impl<'a> Call<'a> {
    /// A call with elements of type `T`.
    #[track_caller]
    pub(crate) fn new<T: Element>(
        comm: &'a Communicator,
        collective: Collective,
        root: usize,
        elements: usize,
    ) -> Call<'a> {
        let element = (collective != Collective::Barrier).then(T::signature);
        Call { comm, collective, operation: operation(collective), root, elements, element, place: Location::caller() }
    }

    /// A call in which each rank has its own number of elements, all of which tell theirs as in `collective`.
    #[track_caller]
    pub(crate) fn varied<T: Element>(
        comm: &'a Communicator,
        collective: Collective,
        operation: Operation,
        root: usize,
    ) -> Call<'a> {
        Call { operation, ..Call::new::<T>(comm, collective, root, 1) }
    }

    /// Checks buffers and root, chooses, and runs.
    pub(crate) fn run<T: Element>(&self, input: &[T], output: &mut [T], op: Option<&dyn Op<T>>) -> Result<()> {
        let plans = self.comm.attribute(|| Plans::new(self.comm));
        match plans.way(self, self.wanted::<T>(op))? {
            Way::Shared(shared) => self.in_memory(shared, input, output, op),
            Way::Grouped(grouped, plan) => {
                self.check_output::<T>(output)?;
                self.hop(grouped, &plan, input, output, op)
            }
            Way::Messages => {
                let plan = self.plan(input, output, op)?;
                self.follow(&plan, input, output, op)
            }
        }
    }

    /// As [`Call::run`] of an all_reduce whose result goes elsewhere: where all ranks share memory the data is read where it is.
    pub(crate) fn run_into<T: Element>(&self, data: &[T], result: &mut [T], op: &dyn Op<T>) -> Result<()> {
        let plans = self.comm.attribute(|| Plans::new(self.comm));
        if let Way::Shared(shared) = plans.way(self, self.wanted::<T>(Some(op)))? {
            return self.in_memory(shared, data, result, Some(op));
        }
        if data.len() == result.len() {
            result.copy_from_slice(data);
        }
        self.run(&[], result, Some(op))
    }

    /// Checks what the caller of a collective that works in memory gives for the result.
    fn check_output<T: Element>(&self, output: &[T]) -> Result<()> {
        let Call { comm, collective, operation, root, elements: expected, .. } = *self;
        let (rank, given, buffer) = (comm.rank(), output.len(), "output");
        let has_output = collective != Collective::Reduce || rank == root;
        if !has_output || given == expected {
            return Ok(());
        }
        let expected_bytes = expected.saturating_mul(size_of::<T>());
        Err(Error::Length { rank, collective: operation, buffer, expected, expected_bytes, given })
    }

    /// Checks buffers and root, and runs in the memory that all ranks share.
    pub(crate) fn in_memory<T: Element>(
        &self,
        shared: &Shared,
        input: &[T],
        output: &mut [T],
        op: Option<&dyn Op<T>>,
    ) -> Result<()> {
        let Call { comm, collective, operation, root, .. } = *self;
        let (rank, size) = (comm.rank(), comm.size());
        if root >= size {
            return Err(Error::NoSuchRoot { rank, collective: operation, root, size });
        }
        self.check_output(output)?;
        let wanted = self.wanted::<T>(op);
        let entered = shared.enter(comm, &wanted);
        let call = self.shown(entered.mark, shared::NAME, wanted.operator);
        match (collective, op) {
            (Collective::Broadcast, _) => entered.broadcast(call, output, root),
            (Collective::Reduce, Some(op)) => entered.reduce(call, input, (rank == root).then_some(output), op),
            (Collective::AllReduce, Some(op)) if input.is_empty() => entered.all_reduce(call, output, op),
            (Collective::AllReduce, Some(op)) => entered.reduce(call, input, Some(output), op),
            _ => entered.barrier(call),
        }
        .map_err(|source| self.failed::<T>(shared::NAME, source))
    }

    /// Checks buffers and root, and chooses.
    pub(crate) fn plan<T: Element>(&self, input: &[T], output: &[T], op: Option<&dyn Op<T>>) -> Result<Arc<Plan>> {
        let Call { comm, operation: collective, root, .. } = *self;
        let (rank, size) = (comm.rank(), comm.size());
        if root >= size {
            return Err(Error::NoSuchRoot { rank, collective, root, size });
        }
        let plan = comm.attribute(|| Plans::new(comm)).plan(comm, self.wanted::<T>(op))?;
        let lengths = plan.schedule.lengths();
        for (buffer, expected, given) in
            [("input", lengths.input, input.len()), ("output", lengths.output, output.len())]
        {
            if expected != given {
                let expected_bytes = expected.saturating_mul(size_of::<T>());
                return Err(Error::Length { rank, collective, buffer, expected, expected_bytes, given });
            }
        }
        Ok(plan)
    }

    /// A plan that is not the collective's own, but made for this call.
    pub(crate) fn plan_of(&self, algorithm: &'static str, schedule: Schedule) -> Plan {
        Plan::new(&self.wanted::<u8>(None), algorithm, schedule)
    }

    /// Makes the memory of ranks that share it, which the first blocking call of a communicator does, whatever it is.
    pub(crate) fn make_memory<T: Element>(&self) -> Result<()> {
        self.comm.attribute(|| Plans::new(self.comm)).way(self, self.wanted::<T>(None)).map(drop)
    }

    pub(crate) fn wanted<T: Element>(&self, op: Option<&dyn Op<T>>) -> Wanted {
        Wanted {
            collective: self.collective,
            operation: self.operation,
            root: self.root,
            elements: self.elements,
            element_bytes: size_of::<T>(),
            commutative: op.is_none_or(Op::is_commutative),
            operator: op.map_or("", Op::name),
        }
    }

    /// Runs a plan made for these buffers.
    pub(crate) fn follow<T: Element>(
        &self,
        plan: &Plan,
        input: &[T],
        output: &mut [T],
        op: Option<&dyn Op<T>>,
    ) -> Result<()> {
        let shown = self.shown(plan.mark, plan.algorithm, op.map_or("", Op::name));
        let mut execution = Execution::new(plan, input, output, op);
        self.comm.run(shown, &mut execution).map_err(|source| self.failed::<T>(plan.algorithm, source))
    }

    /// The same in two hops, of which the inner one goes through memory.
    pub(crate) fn hop<T: Element>(
        &self,
        grouped: &Grouped,
        plan: &HopPlan,
        input: &[T],
        output: &mut [T],
        op: Option<&dyn Op<T>>,
    ) -> Result<()> {
        let shown = self.shown(plan.mark, shared::IN_TWO_HOPS, op.map_or("", Op::name));
        let done = grouped.run(self.comm, plan, shown, input, output, op);
        done.map_err(|source| self.failed::<T>(shared::IN_TWO_HOPS, source))
    }

    /// What errors say of it.
    pub(crate) fn at(&self, algorithm: &'static str, bytes: usize) -> Place {
        Place { rank: self.comm.rank(), collective: self.operation, algorithm, bytes }
    }

    pub(crate) fn failed<T: Element>(&self, algorithm: &'static str, source: spmd::Error) -> Error {
        self.at(algorithm, self.elements.saturating_mul(size_of::<T>())).failed(source)
    }

    /// The call as the ranks compare and show it.
    pub(crate) fn shown(&self, mark: Signature, algorithm: &'static str, operator: &'static str) -> comm::Call {
        let is_varied = self.operation != operation(self.collective);
        comm::Call {
            operation: self.operation,
            fingerprint: self.element.map_or(mark, |element| mark.with(element)),
            algorithm,
            elements: (self.element.is_some() && !is_varied).then_some(self.elements),
            element: self.element,
            root: self.collective.is_rooted().then_some(self.root),
            operator,
            place: self.place,
        }
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
}

/// What errors say of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    rank: usize,
    collective: Operation,
    algorithm: &'static str,
    bytes: usize,
}

impl Place {
    pub(crate) fn failed(self, source: spmd::Error) -> Error {
        let Place { rank, collective, algorithm, bytes } = self;
        Error::of_runtime(rank, collective, algorithm, bytes, source)
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

/// The length of a block of data that has one for each rank.
pub(crate) fn block<T>(comm: &Communicator, collective: Collective, data: &[T]) -> Result<usize> {
    let (rank, size, given) = (comm.rank(), comm.size(), data.len());
    match given.is_multiple_of(size) {
        true => Ok(given / size),
        false => Err(Error::NotDivisible { rank, collective: operation(collective), size, given }),
    }
}

/// Room for so many elements of each rank.
pub(crate) fn room<T: Element>(call: &Call<'_>, each: usize) -> Result<Vec<T>> {
    let total = each.checked_mul(call.comm.size());
    Ok(bytemuck::zeroed_vec(total.ok_or_else(|| call.no_schedule(ScheduleError::TooLarge))?))
}
