//! From hwloc's tree to the compact description.
//!
//! hwloc's tree has many shapes (memory at any level, groups, missing cores); the description has one.

use super::{devices, number, processors};
use hwlocality::Topology;
use hwlocality::object::attributes::ObjectAttributes;
use hwlocality::object::types::ObjectType;
use spmd::bootstrap::node::{Cache, Core, Domain, Node, Thread};
use std::collections::HashMap;

/// Describes a topology. `allowed`: whether processes of the job may run on the hardware thread with this number.
pub(super) fn node(topology: &Topology, with_devices: bool, allowed: impl Fn(u32) -> bool) -> Node {
    let package_of = positions(topology, ObjectType::Package);
    let cache_of = positions(topology, ObjectType::L3Cache);
    let efficiency_of = efficiencies(topology);

    // Memory without processors (behind a link, or a second kind of memory beside the first) is nobody's home.
    let mut domain_of: HashMap<u32, u32> = HashMap::new();
    let mut domains = Vec::new();
    for object in topology.objects_with_type(ObjectType::NUMANode) {
        let own: Vec<u32> = processors(object).into_iter().filter(|os| !domain_of.contains_key(os)).collect();
        if own.is_empty() {
            continue;
        }
        let package = own.first().and_then(|os| package_of.get(os)).copied().unwrap_or(0);
        let bytes = match object.attributes() {
            Some(ObjectAttributes::NUMANode(memory)) => memory.local_memory().map_or(0, u64::from),
            _ => 0,
        };
        domain_of.extend(own.iter().map(|os| (*os, number(domains.len()))));
        domains.push(Domain { os: number(object.os_index().unwrap_or(domains.len())), bytes, package });
    }
    if domains.is_empty() {
        domains.push(Domain { os: 0, bytes: 0, package: 0 });
    }

    let cores: Vec<Core> = core_sets(topology)
        .into_iter()
        .filter_map(|threads| {
            let first = threads.first()?;
            Some(Core {
                package: package_of.get(first).copied().unwrap_or(0),
                domain: domain_of.get(first).copied().unwrap_or(0),
                cache: cache_of.get(first).copied(),
                efficiency: efficiency_of.get(first).copied().unwrap_or(0),
                threads: threads.iter().map(|os| Thread { os: *os, allowed: allowed(*os) }).collect(),
            })
        })
        .collect();
    let size = |attributes| match attributes {
        Some(ObjectAttributes::Cache(cache)) => cache.size().map_or(0, u64::from),
        _ => 0,
    };
    let caches: Vec<Cache> = topology
        .objects_with_type(ObjectType::L3Cache)
        .map(|object| Cache { bytes: size(object.attributes()) })
        .collect();
    let packages = number(topology.objects_with_type(ObjectType::Package).count()).max(1);
    let mut node = Node { packages, domains, caches, cores, devices_read: with_devices, ..Node::default() };
    if with_devices {
        devices::find(topology, &domain_of, &mut node);
    }
    node
}

/// The hardware threads of each core. Some virtual machines describe no cores: then a thread is one.
fn core_sets(topology: &Topology) -> Vec<Vec<u32>> {
    let of = |kind| topology.objects_with_type(kind).map(processors).collect::<Vec<_>>();
    let cores = of(ObjectType::Core);
    if cores.is_empty() { of(ObjectType::PU) } else { cores }
}

/// For each hardware thread the position of the object of this kind that it is in.
fn positions(topology: &Topology, kind: ObjectType) -> HashMap<u32, u32> {
    let objects = topology.objects_with_type(kind).enumerate();
    objects.flat_map(|(at, object)| processors(object).into_iter().map(move |os| (os, number(at)))).collect()
}

/// How fast each hardware thread is among those of a hybrid processor.
fn efficiencies(topology: &Topology) -> HashMap<u32, u32> {
    let mut found = HashMap::new();
    for kind in topology.cpu_kinds().into_iter().flatten() {
        let Some(efficiency) = kind.efficiency else { continue };
        for index in kind.cpuset.iter_set() {
            if let Ok(os) = u32::try_from(usize::from(index)) {
                found.insert(os, number(efficiency));
            }
        }
    }
    found
}
