//! Calls whose ranks give different numbers of elements: first everyone learns the counts, then the data moves. Both are one
//! call: a [`Varied`] machine does one after the other, on buffers that are borrowed or owned.

use crate::algorithms::{Collective, varied};
use crate::call::{Call, Place};
use crate::compose::{Builder, Group};
use crate::error::{Error, Result};
use crate::execute::Execution;
use crate::owned::BoxedOp;
use crate::plan::{Plan, Wanted};
use crate::schedule::ScheduleError;
use spmd::Communicator;
use spmd::comm::{self, Machine, Port, State};
use spmd::element::{Element, Signature};
use spmd::memory::Operation;
use std::sync::Arc;

/// Labels of messages with data; those of messages with counts lie below.
const DATA: u32 = 1 << 31;

/// One of the collectives.
#[derive(Debug)]
struct Kind {
    /// Ranks tell their counts as in this collective.
    collective: Collective,
    operation: Operation,
    /// The way that the data goes.
    algorithm: &'static str,
    emit: Emit,
}

/// Makes the schedule of the data for a group: root, counts that this rank has given and counts that it was told.
type Emit = fn(&mut Builder, &Group<'_>, usize, &[usize], &[usize]) -> std::result::Result<(), ScheduleError>;

static GATHER: Kind = Kind {
    collective: Collective::Gather,
    operation: Operation::GatherV,
    algorithm: "linear",
    emit: |b, group, root, _, told| {
        let all = varied::Cuts::new(b.output(), told)?;
        varied::gather(b, group, root, b.input(), (group.rank() == root).then_some(&all));
        Ok(())
    },
};

static SCATTER: Kind = Kind {
    collective: Collective::Scatter,
    operation: Operation::ScatterV,
    algorithm: "linear",
    emit: |b, group, root, given, _| {
        let all = varied::Cuts::new(b.input(), given)?;
        varied::scatter(b, group, root, (group.rank() == root).then_some(&all), b.output());
        Ok(())
    },
};

static ALL_GATHER: Kind = Kind {
    collective: Collective::AllGather,
    operation: Operation::AllGatherV,
    algorithm: "ring",
    emit: |b, group, _, _, told| {
        let all = varied::Cuts::new(b.output(), told)?;
        varied::all_gather(b, group, b.input(), &all);
        Ok(())
    },
};

static ALL_TO_ALL: Kind = Kind {
    collective: Collective::AllToAll,
    operation: Operation::AllToAllV,
    algorithm: "pairwise",
    emit: |b, group, _, given, told| {
        let (sent, received) = (varied::Cuts::new(b.input(), given)?, varied::Cuts::new(b.output(), told)?);
        varied::all_to_all(b, group, &sent, &received);
        Ok(())
    },
};

/// Arguments that have been checked: a call with its data, which has not begun.
pub(crate) struct Checked<'a, I> {
    pub(crate) call: Call<'a>,
    kind: &'static Kind,
    input: I,
    /// The counts that this rank gives.
    given: Vec<usize>,
    /// How many it is told.
    told: usize,
}

#[track_caller]
pub(crate) fn gather_v<T: Element, I: AsRef<[T]>>(comm: &Communicator, data: I, root: usize) -> Checked<'_, I> {
    let told = if comm.rank() == root { comm.size() } else { 0 };
    let given = vec![data.as_ref().len()];
    Checked { call: call::<T>(comm, &GATHER, root), kind: &GATHER, input: data, given, told }
}

#[track_caller]
pub(crate) fn scatter_v<T: Element, I: AsRef<[T]> + Default>(
    comm: &Communicator,
    data: Option<(I, Vec<usize>)>,
    root: usize,
) -> Result<Checked<'_, I>> {
    let call = call::<T>(comm, &SCATTER, root);
    let (input, given) = call.at_root("input", data)?;
    if comm.rank() == root {
        check_counts(&call, input.as_ref(), &given)?;
    }
    Ok(Checked { call, kind: &SCATTER, input, given, told: 1 })
}

#[track_caller]
pub(crate) fn all_gather_v<T: Element, I: AsRef<[T]>>(comm: &Communicator, data: I) -> Checked<'_, I> {
    let given = vec![data.as_ref().len()];
    Checked { call: call::<T>(comm, &ALL_GATHER, 0), kind: &ALL_GATHER, input: data, given, told: comm.size() }
}

#[track_caller]
pub(crate) fn all_to_all_v<T: Element, I: AsRef<[T]>>(
    comm: &Communicator,
    data: I,
    counts: Vec<usize>,
) -> Result<Checked<'_, I>> {
    let call = call::<T>(comm, &ALL_TO_ALL, 0);
    check_counts(&call, data.as_ref(), &counts)?;
    Ok(Checked { call, kind: &ALL_TO_ALL, input: data, given: counts, told: comm.size() })
}

#[track_caller]
fn call<'a, T: Element>(comm: &'a Communicator, kind: &Kind, root: usize) -> Call<'a> {
    Call::varied::<T>(comm, kind.collective, kind.operation, root)
}

/// There is one count for each rank, and together they are all of the data.
fn check_counts<T>(call: &Call<'_>, data: &[T], counts: &[usize]) -> Result<()> {
    let size = call.comm.size();
    let sum = counts.iter().try_fold(0usize, |sum, count| sum.checked_add(*count));
    match counts.len() == size && sum == Some(data.len()) {
        true => Ok(()),
        false => Err(Error::Counts {
            rank: call.comm.rank(),
            collective: call.operation,
            counts: counts.len(),
            size,
            sum,
            given: data.len(),
        }),
    }
}

impl<I> Checked<'_, I> {
    /// Does it, out of the data: what comes, and the counts that this rank is told.
    pub(crate) fn run<T: Element>(self) -> Result<(Vec<T>, Vec<usize>)>
    where
        I: AsRef<[T]>,
    {
        let call = self.call;
        call.make_memory::<T>()?;
        let at = self.at::<T>();
        let (shown, mut machine) = self.machine()?;
        call.comm.run(shown, &mut machine).map_err(|source| at.failed(source))?;
        Ok(machine.results())
    }

    /// What errors say of it.
    pub(crate) fn at<T: Element>(&self) -> Place
    where
        I: AsRef<[T]>,
    {
        self.call.at(self.kind.algorithm, size_of_val(self.input.as_ref()))
    }

    /// The call as it is shown, and what does it.
    pub(crate) fn machine<T: Element>(self) -> Result<(comm::Call, Varied<I, T>)>
    where
        I: AsRef<[T]>,
    {
        let Checked { call, kind, input, given, told } = self;
        let told = vec![0; told];
        let plan = call.plan(&given, &told, None)?;
        let shown = call.shown(plan.mark, kind.algorithm, "");
        let part = Part::new(&call, kind);
        let counting = Execution::new(plan, given, told, None);
        Ok((shown, Varied { part, counting, input: Some(input), moving: None, failed: None }))
    }

    /// Tells and is told the counts, and no more.
    pub(crate) fn settle<T: Element>(self) -> Result<Settled<I, T>>
    where
        I: AsRef<[T]>,
    {
        let at = self.at::<T>();
        let Checked { call, kind, input, given, told } = self;
        let mut told = vec![0; told];
        call.make_memory::<T>()?;
        let plan = call.plan(&given, &told, None)?;
        // The counts of a call that moves data at once are another call's.
        let shown = call.shown(plan.mark.with(Signature::of_name("counts")), "counts", "");
        let mut counting = Execution::new(plan, &given[..], &mut told[..], None::<BoxedOp<usize>>);
        call.comm.run(shown, &mut counting).map_err(|source| at.failed(source))?;
        let (plan, output) = Part::new(&call, kind).plan(input.as_ref().len(), &given, &told)?;
        Ok(Settled { input, plan, output, told })
    }
}

/// A call whose counts are known.
pub(crate) struct Settled<I, T> {
    pub(crate) input: I,
    pub(crate) plan: Arc<Plan>,
    /// Room for what comes.
    pub(crate) output: Vec<T>,
    /// The counts that this rank was told.
    pub(crate) told: Vec<usize>,
}

/// This rank's part of a call, before the counts are known.
#[derive(Clone, Copy, Debug)]
struct Part {
    kind: &'static Kind,
    rank: usize,
    size: usize,
    wanted: Wanted,
}

impl Part {
    fn new(call: &Call<'_>, kind: &'static Kind) -> Part {
        Part { kind, rank: call.comm.rank(), size: call.comm.size(), wanted: call.wanted::<u8>(None) }
    }

    /// The plan of the data, and room for what comes.
    fn plan<T: Element>(self, input: usize, given: &[usize], told: &[usize]) -> Result<(Arc<Plan>, Vec<T>)> {
        let Part { kind, rank, size, wanted } = self;
        let length = told.iter().try_fold(0usize, |sum, count| sum.checked_add(*count));
        let fits = |length: &usize| length.checked_mul(size_of::<T>()).is_some_and(|bytes| bytes < isize::MAX as usize);
        let made = length.filter(fits).ok_or(ScheduleError::TooLarge).and_then(|length| {
            let mut b = Builder::new(rank, size, input, length);
            (kind.emit)(&mut b, &Group::all(rank, size), wanted.root, given, told)?;
            Ok((b.finish()?, length))
        });
        let (schedule, length) = made.map_err(|source| {
            let elements = length.unwrap_or(usize::MAX);
            Error::Schedule { rank, collective: kind.operation, elements, source }
        })?;
        let plan = Plan { first_label: DATA, ..Plan::new(&wanted, kind.algorithm, schedule) };
        Ok((Arc::new(plan), bytemuck::zeroed_vec(length)))
    }
}

/// A schedule under way.
type Schedule<I, T> = Execution<Arc<Plan>, I, Vec<T>, BoxedOp<T>, T>;

/// A call under way: counts, then data.
pub(crate) struct Varied<I, T> {
    part: Part,
    counting: Schedule<Vec<usize>, usize>,
    /// The data as long as the counts are not known.
    input: Option<I>,
    moving: Option<Schedule<I, T>>,
    /// No plan could be made.
    failed: Option<Error>,
}

impl<I: AsRef<[T]>, T: Element> Varied<I, T> {
    /// What has come, and the counts that this rank was told.
    pub(crate) fn results(self) -> (Vec<T>, Vec<usize>) {
        (self.moving.map(|moving| moving.output).unwrap_or_default(), self.counting.output)
    }
}

impl<I: AsRef<[T]>, T: Element> Machine for Varied<I, T> {
    fn source(&self, op: u32) -> &[u8] {
        match &self.moving {
            Some(moving) => moving.source(op),
            None => self.counting.source(op),
        }
    }

    fn destination(&mut self, op: u32) -> &mut [u8] {
        match &mut self.moving {
            Some(moving) => moving.destination(op),
            None => self.counting.destination(op),
        }
    }

    fn begin(&mut self, port: &mut Port<'_>) -> spmd::Result<()> {
        match (&mut self.moving, self.failed.take()) {
            (_, Some(error)) => Err(error.into()),
            (Some(moving), None) => moving.begin(port),
            (None, None) => self.counting.begin(port),
        }
    }

    fn complete(&mut self, op: u32) {
        match &mut self.moving {
            Some(moving) => moving.complete(op),
            None => self.counting.complete(op),
        }
    }

    fn state(&self) -> State {
        match (&self.moving, self.counting.state()) {
            (Some(moving), _) => moving.state(),
            // The plan is to be made.
            (None, State::Done) => State::Works,
            (None, counting) => counting,
        }
    }

    fn work(&mut self) {
        if let Some(moving) = &mut self.moving {
            return moving.work();
        }
        if self.counting.state() != State::Done {
            return self.counting.work();
        }
        // All operations of the counts are complete: their numbers are free.
        let Some(input) = self.input.take() else { return };
        match self.part.plan(input.as_ref().len(), &self.counting.input, &self.counting.output) {
            Ok((plan, output)) => self.moving = Some(Execution::new(plan, input, output, None)),
            Err(error) => self.failed = Some(error),
        }
    }
}
