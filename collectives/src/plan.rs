//! What a communicator's collective calls have in common: the groups of its ranks, and the schedules made so far.
//!
//! A training step calls the same collectives with the same lengths again and again: choosing and building is done for
//! the first call alone. Moves no data.

use crate::algorithms::{Collective, Shape};
use crate::call::{Call, operation};
use crate::error::{Error, Result};
use crate::execute::Order;
use crate::explain::Explanation;
use crate::groups::Groups;
use crate::guard::guard;
use crate::leaders;
use crate::levels::{Levels, LevelsError};
use crate::schedule::Schedule;
use crate::select::{AUTO, Choice, Request, select};
use crate::shared::{self, Shared};
use crate::table::{Table, TableError};
use rustc_hash::FxHashMap;
use spmd::Communicator;
use spmd::config::{Key, keys};
use spmd::element::Signature;
use spmd::memory::Operation;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Schedules are kept up to this many steps together: 64 bytes each, so a few MB.
const KEPT_STEPS: usize = 1 << 16;

/// What decides which schedule a call gets, apart from the communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Wanted {
    pub(crate) collective: Collective,
    /// What the program called.
    pub(crate) operation: Operation,
    pub(crate) root: usize,
    pub(crate) elements: usize,
    pub(crate) element_bytes: usize,
    pub(crate) commutative: bool,
    /// The operator's name; empty where there is none.
    pub(crate) operator: &'static str,
}

impl Wanted {
    /// Marks the messages of calls that fit together, but for the element type: all that decides what is sent where is in
    /// it, so that a message of another call is an error even where its length happens to fit.
    pub(crate) fn mark(&self, algorithm: &str) -> Signature {
        let (elements, root) = (self.elements as u64, self.root as u64);
        [elements & 0xffff_ffff, elements >> 32, root & 0xffff_ffff]
            .into_iter()
            .map(|number| Signature(u32::try_from(number).unwrap_or(u32::MAX)))
            .chain([self.operator, algorithm].map(Signature::of_name))
            .fold(Signature::of_name(self.operation.name()), Signature::with)
    }
}

/// How a call is done on this rank.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The algorithm's name.
    pub(crate) algorithm: &'static str,
    pub(crate) schedule: Schedule,
    pub(crate) order: Order,
    /// See [`Wanted::mark`].
    pub(crate) mark: Signature,
}

impl Plan {
    pub(crate) fn new(wanted: &Wanted, algorithm: &'static str, schedule: Schedule) -> Plan {
        let (order, mark) = (Order::new(&schedule), wanted.mark(algorithm));
        Plan { algorithm, schedule, order, mark }
    }
}

/// The plans of a communicator, kept as its attribute.
#[derive(Debug)]
pub(crate) struct Plans {
    groups: std::result::Result<Groups, LevelsError>,
    table: std::result::Result<Table, TableError>,
    /// Made in the first blocking call; none where ranks share no memory.
    shared: OnceLock<Option<Shared>>,
    /// Which collectives the configuration lets use it.
    may_share: Vec<Collective>,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    plans: FxHashMap<Wanted, Arc<Plan>>,
    steps: usize,
}

impl Plans {
    pub(crate) fn new(comm: &Communicator) -> Plans {
        let table = Table::parse(&comm.snapshot().get(keys::COLLECTIVES_TABLE));
        let lets = |collective: &Collective| {
            let forced = comm.snapshot().get(key(*collective));
            shared::has(*collective) && (forced == AUTO || forced == shared::NAME)
        };
        let may_share = Collective::ALL.into_iter().filter(lets).collect();
        let names = comm.hosts().iter().map(|host| host.group.as_deref());
        let groups = of_levels(comm, |levels| levels.check(names)).map(|()| groups(comm));
        Plans { groups, table, shared: OnceLock::new(), may_share, kept: Mutex::default() }
    }

    /// The memory that the ranks share, which the first blocking call makes, whatever it is: so all ranks do.
    pub(crate) fn memory(&self, call: &Call<'_>) -> Result<Option<&Shared>> {
        if let Some(made) = self.shared.get() {
            return Ok(made.as_ref());
        }
        let made = match self.may_share.is_empty() {
            true => None,
            false => Shared::new(call.comm).map_err(|source| call.failed::<u8>(shared::NAME, source))?,
        };
        Ok(self.shared.get_or_init(|| made).as_ref())
    }

    /// Whether the configuration lets a collective use that memory.
    pub(crate) fn may_share(&self, collective: Collective) -> bool {
        self.may_share.contains(&collective)
    }

    /// The plan of a call, made now or before.
    pub(crate) fn plan(&self, comm: &Communicator, wanted: Wanted) -> Result<Arc<Plan>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(plan) = kept.plans.get(&wanted) {
            return Ok(Arc::clone(plan));
        }
        let plan = Arc::new(self.make(comm, wanted)?);
        let steps = plan.schedule.steps().len();
        if kept.steps + steps > KEPT_STEPS {
            *kept = Kept::default();
        }
        if steps <= KEPT_STEPS {
            kept.steps += steps;
            kept.plans.insert(wanted, Arc::clone(&plan));
        }
        Ok(plan)
    }

    fn make(&self, comm: &Communicator, wanted: Wanted) -> Result<Plan> {
        let Wanted { collective, root, elements, element_bytes, commutative, .. } = wanted;
        let (rank, size, snapshot) = (comm.rank(), comm.size(), comm.snapshot());
        let groups = self.groups.as_ref().map_err(Clone::clone)?;
        let table = self.table.as_ref().map_err(Clone::clone)?;
        let request = Request { collective, groups, elements, element_bytes, commutative };
        let forced = match snapshot.get(key(collective)) {
            // Of calls that do not block, and of a rank alone.
            forced if forced == shared::NAME && (size == 1 || matches!(self.shared.get(), Some(Some(_)))) => {
                AUTO.into()
            }
            forced => forced,
        };
        let choice = select(&request, &forced, table)?;
        let (algorithm, mut parameters) = (choice.algorithm, choice.parameters);
        for (key, place) in [
            (keys::COLLECTIVES_CHUNK_BYTES, &mut parameters.chunk),
            (keys::COLLECTIVES_SEGMENT_BYTES, &mut parameters.segment),
        ] {
            match snapshot.get(key) {
                0 => {}
                bytes => *place = (to_usize(bytes) / element_bytes.max(1)).max(1),
            }
        }
        match to_usize(snapshot.get(keys::COLLECTIVES_LEADERS)) {
            // What the table says, or one.
            1 => {}
            leaders => parameters.leaders = leaders,
        }
        let (parameters, limited) = guard(collective, groups, table, parameters);
        if rank == 0 && snapshot.get(keys::REPORT_EXPLAIN) != "off" {
            let leaders = &leaders::explain(groups, parameters.leaders, |rank| comm.device_of(rank));
            eprintln!("{}", Explanation { request, choice: Choice { parameters, ..choice }, limited, leaders });
        }
        let schedule = algorithm
            .schedule(&Shape { rank, size, root, elements, groups, parameters })
            .map_err(|source| Error::Schedule { rank, collective: operation(collective), elements, source })?;
        Ok(Plan::new(&wanted, algorithm.name, schedule))
    }
}

fn to_usize(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// The groups of a communicator's ranks, as the configuration says.
pub(crate) fn groups(comm: &Communicator) -> Groups {
    let hosts: Vec<usize> = (0..comm.size()).map(|rank| comm.host_of(rank)).collect();
    let groups = of_levels(comm, |levels| levels.divide(&hosts, |host| comm.hosts()[host].group.as_deref()));
    leaders::by_device(groups, |rank| (hosts[rank], comm.device_of(rank)))
}

/// What the configuration says about groups.
fn of_levels<R>(comm: &Communicator, then: impl FnOnce(Levels<'_>) -> R) -> R {
    let (words, width) =
        (comm.snapshot().get(keys::COLLECTIVES_GROUPS), comm.snapshot().get(keys::COLLECTIVES_GROUP_SIZE));
    then(Levels { words: &words, width: to_usize(width) })
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
        Collective::ReduceScatter => keys::COLLECTIVES_REDUCE_SCATTER,
        Collective::Scan => keys::COLLECTIVES_SCAN,
        Collective::Exscan => keys::COLLECTIVES_EXSCAN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spmd::config::{Kind, keys};

    #[test]
    fn the_configuration_offers_exactly_the_algorithms_that_there_are() {
        for collective in Collective::ALL {
            let spec = keys::TABLE.iter().find(|spec| spec.name == format!("collectives.{collective}")).unwrap();
            let Kind::Choice { default, choices } = &spec.kind else { panic!("{} is no choice", spec.name) };
            assert_eq!(*default, AUTO);
            let mut offered = choices.to_vec();
            let mut there_are: Vec<&str> = collective.algorithms().iter().map(|algorithm| algorithm.name).collect();
            there_are.push(AUTO);
            if shared::has(collective) {
                there_are.push(shared::NAME);
            }
            offered.sort_unstable();
            there_are.sort_unstable();
            assert_eq!(offered, there_are, "{}", spec.name);
        }
    }
}
