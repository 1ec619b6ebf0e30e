//! Where every rank sits: its host, its processors, its network device, its GPU.
//!
//! Pure: descriptions of hosts and a request in, a plan or a reason out. The same code decides for hosts that are there
//! and for topologies from files, so that a plan can be looked at before there is anything to run on.

mod arrange;
mod bind;
pub mod devices;
mod pool;
pub mod rankfile;
pub mod request;
#[cfg(test)]
mod tests;

use crate::exit::{ExitCode, Failure};
use crate::map;
use pool::Pool;
pub use request::{BindTo, GpuBind, MapBy, RankBy, Request, Resource};
use spmd::bootstrap::node::{Node, Placement};

/// A host as placement sees it.
#[derive(Clone, Debug, Default)]
pub struct Host<'a> {
    /// Its name, for messages.
    pub name: &'a str,
    /// Where it was written, for messages.
    pub place: &'a str,
    /// How many ranks it takes at most, if the user said so.
    pub slots: Option<u32>,
    /// How many cores may be used there.
    pub cores: u32,
    /// Hosts with the same word share their processors.
    pub machine: &'a str,
    /// What it looks like; `None`: unknown, so that nothing can be bound there.
    pub node: Option<&'a Node>,
}

/// Where every rank sits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// By rank.
    pub seats: Vec<Seat>,
    /// For each host: more ranks than processors, so that waiting must not spin.
    pub oversubscribed: Vec<bool>,
    /// What the user should know, a line each.
    pub warnings: Vec<String>,
}

/// Where a rank sits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Seat {
    /// Position of its host.
    pub host: usize,
    /// What the rank is told.
    pub placement: Placement,
    /// Positions of the cores it is bound to, in the host's description.
    pub cores: Vec<usize>,
    /// Position of its network device in the host's description.
    pub nic: Option<usize>,
    /// Position of its GPU.
    pub gpu: Option<usize>,
}

/// A rank before it has its number.
#[derive(Clone, Debug, Default)]
struct Draft {
    host: usize,
    /// Its position in the order in which ranks were dealt.
    dealt: usize,
    /// Its position among the ranks of its host, in the order in which they were dealt.
    turn: usize,
    /// The object of its host that it was mapped to, and its position among those ranks.
    object: usize,
    turn_on_object: usize,
    seat: Seat,
}

/// Places all ranks.
///
/// # Errors
/// Not enough slots or cores ([`ExitCode::Slots`]), or a rankfile that does not fit the hosts ([`ExitCode::Data`]).
pub fn plan(hosts: &[Host<'_>], request: &Request) -> Result<Plan, Failure> {
    if let MapBy::Rankfile(entries) = &request.map {
        return rankfile::plan(hosts, entries, request);
    }
    let order = deal(hosts, request)?;
    let mut by_host: Vec<Vec<Draft>> = vec![Vec::new(); hosts.len()];
    for (dealt, host) in order.into_iter().enumerate() {
        let turn = by_host[host].len();
        by_host[host].push(Draft { host, dealt, turn, seat: Seat { host, ..Seat::default() }, ..Draft::default() });
    }
    let ranks: Vec<usize> = by_host.iter().map(Vec::len).collect();
    let several_hosts = ranks.iter().filter(|ranks| **ranks > 0).count() > 1;
    let mut plan = Plan { oversubscribed: vec![false; hosts.len()], ..Plan::default() };
    let mut crowded: Vec<(Vec<usize>, usize, usize)> = Vec::new();
    let mut drafts: Vec<Draft> = Vec::new();
    for pool in Pool::all(hosts, &ranks, request) {
        // Host by host: consecutive ranks of a host sit next to each other.
        let mut here: Vec<Draft> = pool.hosts.iter().flat_map(|host| std::mem::take(&mut by_host[*host])).collect();
        if here.len() > pool.capacity {
            pool.hosts.iter().for_each(|host| plan.oversubscribed[*host] = true);
            crowded.push((pool.hosts.clone(), here.len(), pool.capacity));
        } else {
            plan.warnings.extend(too_wide(hosts, &pool, here.len(), request)?);
        }
        if request.map == MapBy::Nic && pool.node.is_none_or(|node| devices::candidates(node).is_empty()) {
            let name = hosts[pool.hosts[0]].name;
            plan.warnings.push(format!("host {name} has no active network device: its ranks are not mapped to any"));
        }
        let groups = arrange::arrange(&pool, &mut here, request, several_hosts);
        if let Some(node) = pool.node {
            bind::bind(&pool, node, &groups, &mut here, request);
        }
        // Devices are each host's own, even where processors are shared.
        for own in here.chunk_by_mut(|a, b| a.host == b.host) {
            if let Some(node) = hosts[own[0].host].node {
                devices::choose(node, own);
            }
        }
        drafts.extend(here);
    }
    plan.warnings.extend(crowding(hosts, &crowded));
    number(&mut drafts, request.rank);
    plan.seats = drafts.into_iter().map(|draft| draft.seat).collect();
    devices::hide_others(hosts, &mut plan.seats, request)?;
    Ok(plan)
}

/// Ranks that fit one by one, but not with as many cores as each is to have.
fn too_wide(hosts: &[Host<'_>], pool: &Pool<'_>, ranks: usize, request: &Request) -> Result<Option<String>, Failure> {
    let per_rank = request.per_rank() as usize;
    if ranks * per_rank <= pool.capacity || pool.node.is_none() {
        return Ok(None);
    }
    let text = format!(
        "host {}: {ranks} ranks of {per_rank} {} each need {}, but only {} may be used there",
        hosts[pool.hosts[0]].name,
        request.unit(),
        ranks * per_rank,
        pool.capacity
    );
    if request.oversubscribe {
        return Ok(Some(format!("{text}: no rank is bound there")));
    }
    let way_out = "lower -n or --cpus-per-rank, add hosts, or allow it with --oversubscribe";
    Err(Failure::new(ExitCode::Slots, format!("{text}: {way_out}")))
}

/// One warning, however many hosts have more ranks than processors.
fn crowding(hosts: &[Host<'_>], crowded: &[(Vec<usize>, usize, usize)]) -> Option<String> {
    let (members, ranks, capacity) = crowded.first()?;
    let names: Vec<&str> = members.iter().take(3).map(|host| hosts[*host].name).collect();
    let more = crowded.iter().map(|(members, ..)| members.len()).sum::<usize>() - names.len();
    let more = if more > 0 { format!(" (and {more} more hosts)") } else { String::new() };
    let (who, names) =
        if members.len() > 1 { ("the machine of hosts", names.join(", ")) } else { ("host", names.join("")) };
    Some(format!(
        "{who} {names}{more} has {ranks} ranks for {capacity} cores: ranks are not bound there, and waiting gives way \
         instead of spinning"
    ))
}

/// The host of every rank, in the order in which ranks are dealt out.
fn deal(hosts: &[Host<'_>], request: &Request) -> Result<Vec<usize>, Failure> {
    let slots = slots(hosts, request);
    if let MapBy::PerResource(count, resource) = request.map {
        return deal_per_resource(hosts, request, count, resource);
    }
    let dealt = map::map(&slots, request.ranks, request.oversubscribe)
        .map_err(|error| not_enough(hosts, &slots, error.ranks, request))?;
    if request.map != MapBy::Node {
        return Ok(dealt.into_iter().map(|host| host as usize).collect());
    }
    // One rank a host in turn, until slots are full; then, if that is allowed, in turn again.
    let mut left: Vec<usize> = slots.iter().map(|slots| *slots as usize).collect();
    let mut order = Vec::with_capacity(dealt.len());
    while order.len() < dealt.len() {
        if left.iter().all(|left| *left == 0) {
            left = slots.iter().map(|slots| *slots as usize).collect();
        }
        for (host, left) in left.iter_mut().enumerate().filter(|(_, left)| **left > 0) {
            if order.len() < dealt.len() {
                *left -= 1;
                order.push(host);
            }
        }
    }
    Ok(order)
}

/// Whether there are slots enough, when they are known before anything else is.
///
/// # Errors
/// [`ExitCode::Slots`].
pub fn check_slots(hosts: &[Host<'_>], request: &Request) -> Result<(), Failure> {
    deal(hosts, request).map(drop)
}

/// How many ranks each host takes.
pub fn slots(hosts: &[Host<'_>], request: &Request) -> Vec<u32> {
    let of = |host: &Host<'_>| {
        host.slots.unwrap_or_else(|| {
            let units = match host.node {
                Some(node) => u32::try_from(pool::units(node, request.bind).len()).unwrap_or(u32::MAX),
                None => host.cores,
            };
            units / request.per_rank()
        })
    };
    hosts.iter().map(of).collect()
}

fn deal_per_resource(
    hosts: &[Host<'_>],
    request: &Request,
    count: u32,
    resource: Resource,
) -> Result<Vec<usize>, Failure> {
    let mut order = Vec::new();
    for (at, host) in hosts.iter().enumerate() {
        let resources = if host.slots == Some(0) { 0 } else { pool::resources(host, resource) };
        let ranks = count as usize * resources;
        if let Some(slots) = host.slots.filter(|slots| ranks > *slots as usize && !request.oversubscribe) {
            let text = format!(
                "host {}: {count} ranks for each {} make {ranks}, but it has {slots} slots: lower the count, give it more \
                 slots, or allow it with --oversubscribe",
                host.name,
                resource.name()
            );
            return Err(Failure::new(ExitCode::Slots, text));
        }
        order.extend(std::iter::repeat_n(at, ranks));
    }
    let wanted = request.ranks.map_or(order.len(), |ranks| ranks as usize);
    if order.is_empty() || wanted > order.len() {
        let text = format!(
            "{wanted} ranks were asked for, but {count} for each {} make only {} on {}: lower -n or add hosts",
            resource.name(),
            order.len(),
            crate::count(hosts.len(), "host")
        );
        return Err(Failure::new(ExitCode::Slots, text));
    }
    order.truncate(wanted);
    Ok(order)
}

/// More ranks than slots, told with the numbers of each host.
fn not_enough(hosts: &[Host<'_>], slots: &[u32], ranks: u32, request: &Request) -> Failure {
    let mut list: Vec<String> = hosts.iter().zip(slots).map(|(h, slots)| format!("{}: {slots}", h.name)).collect();
    let rest = list.len().saturating_sub(8);
    list.truncate(8);
    if rest > 0 {
        list.push(format!("and {rest} more hosts"));
    }
    let of = match request.per_rank() {
        1 => String::new(),
        n => format!(" of {n} {}", request.unit()),
    };
    let total = slots.iter().fold(0_u32, |sum, s| sum.saturating_add(*s));
    if total == 0 {
        let (place, hosts) = (hosts.first().map_or("", |h| h.place), list.join(", "));
        let text = format!("the hosts have 0 slots ({hosts}; see {place}): give at least one host a slot");
        return Failure::new(ExitCode::Slots, text);
    }
    let message = format!(
        "{ranks} ranks{of} were asked for, but there are only {total} slots ({}): lower -n, add hosts or slots, or allow \
         it with --oversubscribe",
        list.join(", ")
    );
    Failure::new(ExitCode::Slots, message)
}

/// Puts ranks into the order of their numbers. Without a wish that is the order in which they were dealt.
fn number(drafts: &mut [Draft], by: Option<RankBy>) {
    match by {
        None => drafts.sort_by_key(|d| d.dealt),
        Some(RankBy::Slot) => drafts.sort_by_key(|d| (d.host, d.turn)),
        Some(RankBy::Node) => drafts.sort_by_key(|d| (d.turn, d.host)),
        Some(RankBy::Fill) => drafts.sort_by_key(|d| (d.host, d.object, d.turn_on_object)),
        Some(RankBy::Span) => drafts.sort_by_key(|d| (d.turn_on_object, d.host, d.object)),
    }
}
