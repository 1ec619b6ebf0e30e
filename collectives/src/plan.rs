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
use crate::shared::{self, Grouped, HopPlan, IN_TWO_HOPS, Shared};
use crate::table::{Rule, Table, TableError};
use rustc_hash::FxHashMap;
use spmd::Communicator;
use spmd::config::{Key, keys};
use spmd::element::Signature;
use spmd::memory::Operation;
use std::io::Write as _;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Schedules are kept up to this many steps together: 64 bytes each, so a few MB.
const KEPT_STEPS: usize = 1 << 16;

/// Ways of calls that are kept.
const KEPT_WAYS: usize = 1 << 10;

/// Larger elements are sent.
const LARGEST_SHARED: usize = 1024;

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
    /// The ranks of the communicator that the schedule's ranks stand for; none where they are the same.
    pub(crate) peers: Vec<usize>,
    /// Added to the labels of all messages: a call that does several plans keeps theirs apart.
    pub(crate) first_label: u32,
}

impl Plan {
    pub(crate) fn peer(&self, rank: usize) -> usize {
        self.peers.get(rank).copied().unwrap_or(rank)
    }

    pub(crate) fn new(wanted: &Wanted, algorithm: &'static str, schedule: Schedule) -> Plan {
        let (order, mark) = (Order::new(&schedule), wanted.mark(algorithm));
        Plan { algorithm, schedule, order, mark, peers: Vec::new(), first_label: 0 }
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
    /// Those of them that use it whatever the call, with nothing to say about it: no rule of the table is for one.
    share_always: Vec<Collective>,
    /// The same for the memory of each group.
    grouped: OnceLock<Option<Grouped>>,
    kept: Mutex<Kept>,
}

/// How a blocking call is done.
pub(crate) enum Way<'a> {
    /// In memory that all ranks share.
    Shared(&'a Shared),
    /// In the memory of each group, and by messages between them.
    Grouped(&'a Grouped, Arc<HopPlan>),
    /// By messages.
    Messages,
}

#[derive(Debug, Default)]
struct Kept {
    plans: FxHashMap<Wanted, Arc<Plan>>,
    steps: usize,
    /// Of calls that block, where there is a choice that depends on the call.
    ways: FxHashMap<Wanted, KeptWay>,
}

/// As [`Way`].
#[derive(Clone, Debug)]
enum KeptWay {
    Shared,
    Grouped(Arc<HopPlan>),
    Messages,
}

impl Plans {
    pub(crate) fn new(comm: &Communicator) -> Plans {
        let table = Table::parse(&comm.snapshot().get(keys::COLLECTIVES_TABLE));
        let lets = |collective: &Collective| {
            let forced = comm.snapshot().get(key(*collective));
            shared::has(*collective) && (forced == AUTO || forced == shared::NAME)
        };
        let may_share: Vec<Collective> = Collective::ALL.into_iter().filter(lets).collect();
        let names = comm.hosts().iter().map(|host| host.group.as_deref());
        let groups = of_levels(comm, |levels| levels.check(names)).map(|()| groups(comm));
        let share_always = match (&groups, &table) {
            // What is wrong with them is reported where a plan is made.
            (Err(_), _) => may_share.clone(),
            (Ok(groups), Ok(table)) if !explains(comm) => {
                let is_ruled = |collective: &Collective| {
                    comm.snapshot().get(key(*collective)) == AUTO
                        && table.concerning(*collective, groups).next().is_some()
                };
                may_share.iter().copied().filter(|collective| !is_ruled(collective)).collect()
            }
            _ => Vec::new(),
        };
        let (shared, grouped) = (OnceLock::new(), OnceLock::new());
        Plans { groups, table, shared, may_share, share_always, grouped, kept: Mutex::default() }
    }

    /// How a blocking call with elements of so many bytes is done.
    pub(crate) fn way(&self, call: &Call<'_>, wanted: Wanted) -> Result<Way<'_>> {
        let shared = self.memory(call)?;
        let grouped = self.memory_of_groups(call)?;
        if wanted.element_bytes > LARGEST_SHARED {
            return Ok(Way::Messages);
        }
        if let Some(shared) = shared
            && self.share_always.contains(&call.collective)
        {
            return Ok(Way::Shared(shared));
        }
        if shared.is_none() && grouped.is_none() || !shared::has(call.collective) {
            return Ok(Way::Messages);
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let way = match kept.ways.get(&wanted) {
            Some(way) => way.clone(),
            None => {
                if kept.ways.len() > KEPT_WAYS {
                    kept.ways.clear();
                }
                let way = self.decide(call, wanted, shared.is_some(), grouped)?;
                kept.ways.entry(wanted).or_insert(way).clone()
            }
        };
        Ok(match (way, shared, grouped) {
            (KeptWay::Shared, Some(shared), _) => Way::Shared(shared),
            (KeptWay::Grouped(plan), _, Some(grouped)) => Way::Grouped(grouped, plan),
            _ => Way::Messages,
        })
    }

    /// The way of a call that may go through memory.
    fn decide(&self, call: &Call<'_>, wanted: Wanted, has_shared: bool, grouped: Option<&Grouped>) -> Result<KeptWay> {
        let Call { comm, root, elements, .. } = *call;
        let (rank, size) = (comm.rank(), comm.size());
        // The ordinary way reports it.
        if root >= size {
            return Ok(KeptWay::Messages);
        }
        let groups = with_memory(self.groups.clone()?, has_shared, grouped.is_some());
        let forced = comm.snapshot().get(key(wanted.collective));
        let Choice { algorithm, parameters, .. } = self.choose(comm, &wanted, &groups, &forced, true)?;
        Ok(match (algorithm.name, grouped) {
            (shared::NAME, _) => KeptWay::Shared,
            (IN_TWO_HOPS, Some(grouped)) => {
                let shape = Shape { rank, size, root, elements, groups: &groups, parameters };
                let table = self.table.as_ref().map_err(Clone::clone)?;
                let plan = HopPlan::new(&wanted, algorithm.name, &shape, table, grouped.most(wanted.element_bytes));
                KeptWay::Grouped(Arc::new(plan.map_err(|source| call.no_schedule(source))?))
            }
            _ => KeptWay::Messages,
        })
    }

    /// A plan in the memory of groups as it is told, for [`crate::tune`].
    pub(crate) fn hop_plan_of(
        &self,
        call: &Call<'_>,
        wanted: &Wanted,
        name: &'static str,
        shape: &Shape<'_>,
        table: &Table,
    ) -> Result<(&Grouped, HopPlan)> {
        let grouped =
            self.memory_of_groups(call)?.unwrap_or_else(|| unreachable!("{name} is legal for such groups only"));
        let plan = HopPlan::new(wanted, name, shape, table, grouped.most(wanted.element_bytes));
        Ok((grouped, plan.map_err(|source| call.no_schedule(source))?))
    }

    /// The groups, with the memory that all ranks or those of each group have in common. Collective.
    pub(crate) fn groups_and_memory(&self, call: &Call<'_>) -> Result<Groups> {
        let groups = self.groups.clone()?;
        let has_shared = self.memory(call)?.is_some();
        Ok(with_memory(groups, has_shared, self.memory_of_groups(call)?.is_some()))
    }

    /// The memory of each group, which the first blocking call makes where the ranks of a group are on one host, unless all
    /// ranks share memory and neither key nor rule wants it.
    fn memory_of_groups(&self, call: &Call<'_>) -> Result<Option<&Grouped>> {
        if let Some(made) = self.grouped.get() {
            return Ok(made.as_ref());
        }
        let comm = call.comm;
        let wants = |name: &str| {
            let mut all = Collective::ALL.into_iter().filter(|collective| shared::has(*collective));
            all.any(|collective| comm.snapshot().get(key(collective)) == name)
        };
        // What is wrong with them is reported where a plan is made.
        let Ok(groups) = &self.groups else { return Ok(None) };
        let on_one_host = |group: usize| {
            let members = groups.members(group);
            members.iter().all(|rank| comm.host_of(*rank) == comm.host_of(members[0]))
        };
        let has_shared = matches!(self.shared.get(), Some(Some(_)));
        let names_it = |rule: &Rule| rule.algorithm == IN_TWO_HOPS;
        let is_ruled = self.table.as_ref().is_ok_and(|table| table.rules.iter().any(names_it));
        let made = match groups.are_two_levels()
            && (wants(IN_TWO_HOPS) || wants(AUTO) && (!has_shared || is_ruled))
            && (0..groups.count()).all(on_one_host)
        {
            true => Grouped::new(comm, groups).map_err(|source| call.failed::<u8>(IN_TWO_HOPS, source))?,
            false => None,
        };
        Ok(self.grouped.get_or_init(|| made).as_ref())
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

    /// The plan of a call, made now or before.
    pub(crate) fn plan(&self, comm: &Communicator, wanted: Wanted) -> Result<Arc<Plan>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(plan) = kept.plans.get(&wanted) {
            return Ok(Arc::clone(plan));
        }
        // Whoever found that messages are best for it has said so.
        let is_told = matches!(kept.ways.get(&wanted), Some(KeptWay::Messages));
        let plan = Arc::new(self.make(comm, wanted, !is_told)?);
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

    fn make(&self, comm: &Communicator, wanted: Wanted, tell: bool) -> Result<Plan> {
        let Wanted { collective, root, elements, .. } = wanted;
        let (rank, size) = (comm.rank(), comm.size());
        let groups = self.groups.as_ref().map_err(Clone::clone)?;
        let forced = match comm.snapshot().get(key(collective)) {
            // Of calls that do not block, and of a rank alone.
            forced if forced == shared::NAME && (size == 1 || matches!(self.shared.get(), Some(Some(_)))) => {
                AUTO.into()
            }
            forced if forced == IN_TWO_HOPS && matches!(self.grouped.get(), Some(Some(_))) => AUTO.into(),
            forced => forced,
        };
        let Choice { algorithm, parameters, .. } = self.choose(comm, &wanted, groups, &forced, tell)?;
        let schedule = algorithm
            .schedule(&Shape { rank, size, root, elements, groups, parameters })
            .map_err(|source| Error::Schedule { rank, collective: operation(collective), elements, source })?;
        Ok(Plan::new(&wanted, algorithm.name, schedule))
    }

    /// The way of a call among such groups, with the parameters that are used; explained if it is to be told and that is asked
    /// for.
    fn choose(
        &self,
        comm: &Communicator,
        wanted: &Wanted,
        groups: &Groups,
        forced: &str,
        tell: bool,
    ) -> Result<Choice> {
        let Wanted { collective, elements, element_bytes, commutative, .. } = *wanted;
        let snapshot = comm.snapshot();
        let table = self.table.as_ref().map_err(Clone::clone)?;
        let request = Request { collective, groups, elements, element_bytes, commutative };
        let choice = select(&request, forced, table)?;
        let mut parameters = choice.parameters;
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
        let parameters = parameters.led(collective, choice.algorithm, groups);
        let (parameters, limited) = guard(collective, groups, table, parameters);
        let choice = Choice { parameters, ..choice };
        if tell && explains(comm) {
            let explain = snapshot.get(keys::REPORT_EXPLAIN);
            let leaders = leaders::explain(groups, parameters.leaders, |rank| comm.device_of(rank));
            let explanation = Explanation { request, choice, limited, leaders: &leaders };
            if explain == "text" {
                // That nobody reads it any more is no error of a call.
                let _ = writeln!(std::io::stderr(), "{explanation}");
            } else {
                comm.explain_choice(&explanation.entry());
            }
        }
        Ok(choice)
    }
}

/// Whether this rank says what it takes: the first one, where that is asked for.
fn explains(comm: &Communicator) -> bool {
    comm.rank() == 0 && comm.snapshot().get(keys::REPORT_EXPLAIN) != "off"
}

/// Groups with the memory that there is: of all ranks, of each group.
fn with_memory(groups: Groups, of_all: bool, of_each: bool) -> Groups {
    let groups = if of_all { groups.with_memory_of_all() } else { groups };
    if of_each { groups.with_memory() } else { groups }
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
    fn without_a_launcher_the_first_rank_writes_what_it_chooses_into_the_file() {
        use crate::prelude::*;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ways.json");
        spmd::local::Cluster::new(3)
            .set("report.explain", path.to_str().unwrap())
            .run(|world| {
                let comm = world.communicator();
                for _ in 0..2 {
                    comm.all_gather(&[1_u16; 8]).unwrap();
                    comm.duplicate().unwrap().all_gather(&[1_u16; 8]).unwrap();
                }
            })
            .unwrap();
        let ways: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!((&ways["rank"], &ways["size"]), (&0.into(), &3.into()));
        let [entry] = &ways["collectives"].as_array().unwrap()[..] else { panic!("{ways:#}") };
        assert_eq!(
            (&entry["rank"], &entry["collective"], &entry["bytes"]),
            (&0.into(), &"all_gather".into(), &16.into())
        );
        // That a file cannot be written any more is no error of a call, but one of the beginning.
        let cluster = spmd::local::Cluster::new(2).set("report.explain", path.to_str().unwrap());
        let results = cluster.run(|world| {
            let comm = world.communicator();
            comm.barrier().unwrap();
            if comm.rank() == 0 {
                std::fs::remove_file(&path).unwrap();
                std::fs::create_dir(&path).unwrap();
            }
            comm.all_gather(&[1_u16]).unwrap()
        });
        assert_eq!(results.unwrap(), [[1, 1], [1, 1]]);
        let error = cluster.run(|_| ()).unwrap_err().to_string();
        assert!(error.contains("ways.json (report.explain)"), "{error}");
    }

    #[test]
    fn the_configuration_offers_exactly_the_algorithms_that_there_are() {
        for collective in Collective::ALL {
            let spec = keys::TABLE.iter().find(|spec| spec.name == format!("collectives.{collective}")).unwrap();
            let Kind::Choice { default, choices } = &spec.kind else { panic!("{} is no choice", spec.name) };
            assert_eq!(*default, AUTO);
            let mut offered = choices.to_vec();
            let mut there_are: Vec<&str> = collective.algorithms().iter().map(|algorithm| algorithm.name).collect();
            there_are.push(AUTO);
            assert_eq!(shared::has(collective), there_are.contains(&shared::NAME), "{collective}");
            offered.sort_unstable();
            there_are.sort_unstable();
            assert_eq!(offered, there_are, "{}", spec.name);
        }
    }
}
