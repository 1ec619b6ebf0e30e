//! Which processors each rank is bound to.

use super::arrange::Groups;
use super::pool::{Pool, place};
use super::{BindTo, Draft, MapBy, Request, Resource};
use spmd::bootstrap::node::Node;

/// Binds the ranks of a pool, each within the object that it is mapped to as far as that has room.
pub(super) fn bind(pool: &Pool<'_>, node: &Node, groups: &Groups, seats: &mut [Draft], request: &Request) {
    let per_rank = request.per_rank() as usize;
    let crowded = seats.len() * per_rank > pool.capacity;
    let packed = matches!(request.map, MapBy::Slot | MapBy::Core) || request.cpus_per_rank.is_some();
    let widened = match request.bind {
        Some(BindTo::None) => return,
        Some(BindTo::L3) => Some(Resource::L3),
        Some(BindTo::Numa) => Some(Resource::Numa),
        Some(BindTo::Package) => Some(Resource::Package),
        Some(BindTo::Core | BindTo::Hwthread) | None => None,
    };
    let units: Vec<Vec<usize>> = match (crowded, widened) {
        // More ranks than cores, but wide objects can be shared.
        (true, Some(_)) => {
            let one = |seat: &Draft| {
                let group = &groups[seat.object];
                group.get(seat.turn_on_object % group.len().max(1)).copied().into_iter().collect()
            };
            seats.iter().map(one).collect()
        }
        (true, None) => return,
        (false, None) if request.bind.is_none() && !packed && apart(groups) => {
            let shares = shares(groups, seats);
            // More ranks on an object than it has cores, while there are free ones elsewhere.
            if shares.iter().any(Vec::is_empty) { single(pool, groups, seats, per_rank) } else { shares }
        }
        (false, _) => single(pool, groups, seats, per_rank),
    };
    for (seat, mut own) in seats.iter_mut().zip(units) {
        if let Some(resource) = widened {
            let places: Vec<usize> = own.iter().map(|at| place(&pool.units[*at], resource)).collect();
            own = (0..pool.units.len()).filter(|at| places.contains(&place(&pool.units[*at], resource))).collect();
        }
        let mut cpus: Vec<u32> = own.iter().flat_map(|at| pool.units[*at].cpus.clone()).collect();
        cpus.sort_unstable();
        let mut cores: Vec<usize> = own.iter().map(|at| pool.units[*at].core).collect();
        cores.sort_unstable();
        cores.dedup();
        seat.seat.placement.domain = domain(node, &cores);
        seat.seat.placement.cpus = cpus;
        seat.seat.cores = cores;
    }
}

/// The kernel's number of the one domain that all these cores belong to, where there are several.
pub(super) fn domain(node: &Node, cores: &[usize]) -> Option<u32> {
    let first = node.cores.get(*cores.first()?)?.domain;
    let one = node.domains.len() > 1 && cores.iter().all(|core| node.cores[*core].domain == first);
    one.then(|| node.domains[first as usize].os)
}

/// Whether no two objects share a core, unless they are made of the same ones.
fn apart(groups: &Groups) -> bool {
    let overlap = |a: &Vec<usize>, b: &Vec<usize>| a != b && a.iter().any(|unit| b.contains(unit));
    !groups.iter().enumerate().any(|(at, a)| groups[at + 1..].iter().any(|b| overlap(a, b)))
}

/// Each rank an equal, connected share of its object.
fn shares(groups: &Groups, seats: &[Draft]) -> Vec<Vec<usize>> {
    let same = |a: usize, b: usize| groups[a] == groups[b];
    let share = |(at, seat): (usize, &Draft)| -> Vec<usize> {
        let units = &groups[seat.object];
        let peers: Vec<usize> = (0..seats.len()).filter(|s| same(seats[*s].object, seat.object)).collect();
        let place = peers.iter().position(|peer| *peer == at).unwrap_or(0);
        // What cannot be divided stays free: ranks that work at one pace gain nothing when some have more.
        let start = place * units.len() / peers.len();
        units[start..start + units.len() / peers.len()].to_vec()
    };
    seats.iter().enumerate().map(share).collect()
}

/// Each rank so many units that nobody else has: of its object, else of what is nearest to it.
fn single(pool: &Pool<'_>, groups: &Groups, seats: &[Draft], per_rank: usize) -> Vec<Vec<usize>> {
    let mut taken = vec![false; pool.units.len()];
    // Ranks that fit come first, so that a rank that does not takes nobody's place.
    let mut own: Vec<Vec<usize>> = vec![Vec::new(); seats.len()];
    for fits in [true, false] {
        for (seat, own) in seats.iter().zip(&mut own).filter(|(_, own)| own.is_empty()) {
            let group = &groups[seat.object];
            let mut free: Vec<usize> = group.iter().copied().filter(|at| !taken[*at]).collect();
            if free.len() < per_rank {
                if fits {
                    continue;
                }
                let home = group.first().map(|at| &pool.units[*at]);
                let mut others: Vec<usize> =
                    (0..pool.units.len()).filter(|at| !taken[*at] && !free.contains(at)).collect();
                others.sort_by_key(|at| home.is_some_and(|home| home.package != pool.units[*at].package));
                free.extend(others);
            }
            free.truncate(per_rank);
            free.iter().for_each(|at| taken[*at] = true);
            *own = free;
        }
    }
    own
}
