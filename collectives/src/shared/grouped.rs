//! The ranks of each group on one host: two hops, of which the one inside the groups goes through memory.

use super::hops::{Between, Division, HopCounts, Hops};
use super::part::{Exchanged, Part};
use super::protocol::{Company, Data};
use crate::algorithms::{LARGEST_CHUNK, Shape};
use crate::execute::Execution;
use crate::groups::Groups;
use crate::operators::Op;
use crate::plan::{Plan, Wanted};
use crate::schedule::ScheduleError;
use crate::table::Table;
use spmd::comm::{Call, Machine, Room, State, Together};
use spmd::element::{Element, Signature};
use spmd::{Communicator, Error, Result};
use std::sync::{Arc, Mutex, PoisonError};

type Planned<T> = std::result::Result<T, ScheduleError>;

/// Bytes of the chunks of all ranks of a host at most.
const CHUNKS_OF_ALL: usize = 8 << 20;

/// Bytes of a chunk at most: the same on all ranks, which must agree on what a chunk is.
pub(crate) fn chunk_bytes(groups: &Groups) -> usize {
    (CHUNKS_OF_ALL / groups.widths().1.max(1)).clamp(16 << 10, LARGEST_CHUNK).next_multiple_of(4096)
}

/// What a communicator keeps.
#[derive(Debug)]
pub(crate) struct Grouped {
    hops: Hops<Room>,
    /// Calls of one communicator come one after another on every rank: locked for the whole call.
    counts: Mutex<HopCounts>,
    /// The ranks of this rank's group.
    members: Vec<usize>,
}

/// How a call is done, on one rank.
#[derive(Debug)]
pub(crate) struct HopPlan {
    pub(crate) mark: Signature,
    division: Division,
    /// What this rank, if it is a leader, does with its share of a chunk, and of the last one.
    between: Option<[Arc<Plan>; 2]>,
}

impl HopPlan {
    /// `name`: of the way in two hops. `most`: elements that a chunk has at most.
    pub(crate) fn new(
        wanted: &Wanted,
        name: &'static str,
        shape: &Shape<'_>,
        table: &Table,
        most: usize,
    ) -> Planned<HopPlan> {
        let Part { division, position, peers } = Part::new(wanted.collective, shape, most);
        let between = peers.map(|peers| {
            let Wanted { collective, element_bytes, commutative, .. } = *wanted;
            let exchanged = Exchanged { collective, element_bytes, commutative };
            let plan = |chunk: usize| {
                let share = division.share(position, division.range(chunk, shape.elements).len()).len();
                let schedule = exchanged.schedule(shape, share, table)?;
                Planned::Ok(Arc::new(Plan { peers: peers.clone(), ..Plan::new(wanted, name, schedule) }))
            };
            Planned::Ok([plan(0)?, plan(division.chunks(shape.elements) - 1)?])
        });
        Ok(HopPlan { mark: wanted.mark(name), division, between: between.transpose()? })
    }
}

impl Grouped {
    /// `None` where the ranks of a group share no memory. Collective.
    pub(crate) fn new(comm: &Communicator, groups: &Groups) -> Result<Option<Grouped>> {
        let members = groups.members(groups.of(comm.rank())).to_vec();
        let position = members.iter().position(|member| *member == comm.rank()).unwrap_or(0);
        let chunk = chunk_bytes(groups);
        let room = comm.room_of(&members, Hops::<Room>::bytes(chunk))?;
        Ok(room.map(|room| Grouped {
            hops: Hops::new(room, position, members.len(), chunk),
            counts: Mutex::default(),
            members,
        }))
    }

    /// Elements of a chunk at most.
    pub(crate) fn most(&self, element_bytes: usize) -> usize {
        self.hops.most(element_bytes)
    }

    pub(crate) fn run<T: Element>(
        &self,
        comm: &Communicator,
        plan: &HopPlan,
        call: Call,
        input: &[T],
        output: &mut [T],
        op: Option<&dyn Op<T>>,
    ) -> Result<()> {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let is_root = call.root == Some(comm.rank());
        let data = match call.root {
            // Within the group; what matters is whether it is this rank.
            Some(_) if op.is_none() => Data::From(if is_root { self.hops.position() } else { usize::MAX }, output),
            Some(_) => Data::To(input, is_root.then_some(output)),
            None => Data::Both(output),
        };
        let mut company = Leaders {
            together: comm.together(call),
            members: &self.members,
            collects: matches!(data, Data::To(..)),
            is_root,
            op,
            plans: plan.between.as_ref(),
            chunks: plan.division.chunks(data.length()),
            machine: None,
            last: false,
        };
        company.together.moves(data.length() * size_of::<T>());
        let mark = u64::from(call.fingerprint.0);
        self.hops.run(&mut counts, &mut company, mark, &plan.division, data, op)?;
        company.together.done()
    }
}

/// A schedule of leaders on what they exchange.
type Exchange<'a, T> = Execution<Arc<Plan>, Vec<T>, Vec<T>, &'a dyn Op<T>, T>;

/// The others as a rank of a group sees them, and leaders of other groups.
struct Leaders<'a, T> {
    together: Together<'a>,
    /// The ranks of the communicator that the group has.
    members: &'a [usize],
    /// Whether one rank gets the result, and whether that is this one.
    collects: bool,
    is_root: bool,
    op: Option<&'a dyn Op<T>>,
    plans: Option<&'a [Arc<Plan>; 2]>,
    chunks: usize,
    /// What leaders do with the chunk under way.
    machine: Option<Exchange<'a, T>>,
    /// Whether it is that of the last chunk.
    last: bool,
}

impl<T: Element> Company for Leaders<'_, T> {
    type Error = Error;

    fn wait(&mut self, missing: impl Fn(usize) -> bool, mut ready: impl FnMut() -> bool) -> Result<()> {
        let members = self.members;
        let missing = |rank: usize| members.binary_search(&rank).is_ok_and(&missing);
        if let Some(machine) = self.machine.as_mut().filter(|machine| machine.state() != State::Done) {
            self.together.wait_with(machine, missing, &mut ready)?;
        }
        match self.plans {
            // The exchange may have been first.
            _ if ready() => Ok(()),
            Some(_) => self.together.wait(missing, ready),
            // For leaders, and they for those of other hosts.
            None => self.together.wait_far(missing, ready),
        }
    }

    fn wake(&mut self, positions: impl IntoIterator<Item = usize>) -> Result<()> {
        let members = self.members;
        self.together.wake(positions.into_iter().map(|position| members[position]))
    }

    fn differs(&mut self, position: usize) -> Error {
        self.together.differs(self.members[position])
    }
}

impl<T: Element> Between<T> for Leaders<'_, T> {
    fn begin(&mut self, chunk: usize, value: Vec<T>) -> Result<()> {
        let is_last = chunk + 1 == self.chunks;
        let (input, output) = match self.collects {
            true => {
                let result = bytemuck::zeroed_vec(if self.is_root { value.len() } else { 0 });
                (value, result)
            }
            false => (Vec::new(), value),
        };
        match &mut self.machine {
            // The same schedule on other data.
            Some(machine) if self.last == is_last => {
                (machine.input, machine.output) = (input, output);
                machine.restart();
            }
            machine => {
                let plans = self.plans.unwrap_or_else(|| unreachable!("only leaders exchange"));
                let plan = Arc::clone(&plans[usize::from(is_last)]);
                *machine = Some(Execution::new(plan, input, output, self.op));
                self.last = is_last;
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<Vec<T>> {
        let Some(machine) = &mut self.machine else { return Ok(Vec::new()) };
        self.together.wait_with(machine, |_| false, || false)?;
        Ok(std::mem::take(if self.collects && !self.is_root { &mut machine.input } else { &mut machine.output }))
    }
}
