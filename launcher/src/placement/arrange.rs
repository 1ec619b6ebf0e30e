//! Which object of a host each of its ranks is mapped to.

use super::pool::{Pool, Unit, place};
use super::{BindTo, Draft, MapBy, Request, Resource, devices};
use std::collections::HashMap;

/// The objects that ranks are mapped to: positions of units, by object.
pub(super) type Groups = Vec<Vec<usize>>;

/// Maps the ranks of a pool, which come in the order of their hosts and turns. `several_hosts`: the job's messages use
/// the network, so that its devices count.
pub(super) fn arrange(pool: &Pool<'_>, seats: &mut [Draft], request: &Request, several_hosts: bool) -> Groups {
    let groups = objects(pool, seats.len(), request, several_hosts);
    let per_rank = request.per_rank() as usize;
    let capacity: Vec<usize> = groups.iter().map(|units| units.len() / per_rank).collect();
    let chosen: Vec<usize> = match &request.map {
        MapBy::Spread | MapBy::Node | MapBy::PerResource(_, Resource::Node) => {
            // As many on each, and neighbours next to each other.
            let mut chosen = in_turn(&capacity, seats.len());
            chosen.sort_unstable();
            chosen
        }
        MapBy::PerResource(count, _) => {
            seats.iter().map(|seat| (seat.turn / *count as usize).min(groups.len() - 1)).collect()
        }
        _ => in_turn(&capacity, seats.len()),
    };
    let mut turns: HashMap<(usize, usize), usize> = HashMap::new();
    for (seat, object) in seats.iter_mut().zip(chosen) {
        let turn = turns.entry((seat.host, object)).or_default();
        (seat.object, seat.turn_on_object) = (object, *turn);
        *turn += 1;
    }
    groups
}

/// Objects in turn; those that are full are passed over as long as there is room elsewhere.
fn in_turn(capacity: &[usize], seats: usize) -> Vec<usize> {
    let mut taken = vec![0; capacity.len()];
    let mut chosen = Vec::with_capacity(seats);
    while chosen.len() < seats {
        let open: Vec<usize> = (0..capacity.len()).filter(|at| taken[*at] < capacity[*at]).collect();
        let open = if open.is_empty() { (0..capacity.len()).collect() } else { open };
        for object in open {
            if chosen.len() < seats {
                taken[object] += 1;
                chosen.push(object);
            }
        }
    }
    chosen
}

fn objects(pool: &Pool<'_>, seats: usize, request: &Request, several_hosts: bool) -> Groups {
    let by = |resource| group(&pool.units, |unit| place(unit, resource));
    let groups = match request.map {
        MapBy::Spread | MapBy::Node | MapBy::PerResource(_, Resource::Node) => {
            homes(pool, seats * request.per_rank() as usize, several_hosts)
        }
        MapBy::Package | MapBy::PerResource(_, Resource::Package) => by(Resource::Package),
        MapBy::Numa | MapBy::PerResource(_, Resource::Numa) => by(Resource::Numa),
        MapBy::L3 | MapBy::PerResource(_, Resource::L3) => by(Resource::L3),
        MapBy::PerResource(_, Resource::Core) => by(Resource::Core),
        MapBy::Core if request.bind == Some(BindTo::Hwthread) => by(Resource::Core),
        MapBy::Nic => near_nics(pool),
        MapBy::Slot | MapBy::Core | MapBy::Rankfile(_) => by(Resource::Node),
    };
    if groups.is_empty() { vec![(0..pool.units.len()).collect()] } else { groups }
}

/// Units by object, objects in the order of their first unit.
fn group(units: &[Unit], key: impl Fn(&Unit) -> usize) -> Groups {
    let mut groups: Vec<(usize, Vec<usize>)> = Vec::new();
    for (at, unit) in units.iter().enumerate() {
        let key = key(unit);
        match groups.iter_mut().find(|(k, _)| *k == key) {
            Some((_, members)) => members.push(at),
            None => groups.push((key, vec![at])),
        }
    }
    groups.into_iter().map(|(_, members)| members).collect()
}

/// The NUMA domains that the default spreads over: those with network devices when they have room enough, only fast
/// cores when there are enough of them.
fn homes(pool: &Pool<'_>, needed: usize, several_hosts: bool) -> Groups {
    let best = pool.units.iter().map(|unit| unit.efficiency).max().unwrap_or(0);
    let with_nics: Vec<u32> = match pool.node.filter(|_| several_hosts) {
        Some(node) => devices::candidates(node).iter().flat_map(|at| node.nics[*at].location.domains.clone()).collect(),
        None => Vec::new(),
    };
    let wishes: [&dyn Fn(&Unit) -> bool; 3] = [
        &|unit| unit.efficiency == best && with_nics.contains(&unit.domain),
        &|unit| with_nics.contains(&unit.domain),
        &|unit| unit.efficiency == best,
    ];
    let numa = |wish: &dyn Fn(&Unit) -> bool| -> Groups {
        let mut groups = group(&pool.units, |unit| place(unit, Resource::Numa));
        groups.iter_mut().for_each(|members| members.retain(|at| wish(&pool.units[*at])));
        groups.retain(|members| !members.is_empty());
        groups
    };
    let enough = |groups: &Groups| groups.iter().map(Vec::len).sum::<usize>() >= needed.max(1);
    wishes.iter().map(|wish| numa(wish)).find(enough).unwrap_or_else(|| {
        let mut all = numa(&|_| true);
        all.iter_mut().for_each(|members| members.sort_by_key(|at| std::cmp::Reverse(pool.units[*at].efficiency)));
        all
    })
}

/// For each network device that may be used the units near it; all units when nobody knows where it is.
fn near_nics(pool: &Pool<'_>) -> Groups {
    let Some(node) = pool.node else { return Vec::new() };
    let near = |at: &usize| -> Vec<usize> {
        let domains = &node.nics[*at].location.domains;
        let units = (0..pool.units.len()).filter(|unit| domains.contains(&pool.units[*unit].domain));
        let units: Vec<usize> = units.collect();
        if units.is_empty() { (0..pool.units.len()).collect() } else { units }
    };
    devices::candidates(node).iter().map(near).collect()
}
