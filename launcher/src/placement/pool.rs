//! The processors that ranks are placed on: of one host, or of several that are the same machine.

use super::{BindTo, Host, Request, Resource};
use spmd::bootstrap::node::Node;
use std::collections::{HashMap, HashSet};

/// What is dealt out: a core with its allowed hardware threads, or one hardware thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unit {
    /// Position of the core in the description.
    pub(super) core: usize,
    pub(super) package: u32,
    pub(super) domain: u32,
    pub(super) cache: Option<u32>,
    pub(super) efficiency: u32,
    /// The kernel's numbers.
    pub(super) cpus: Vec<u32>,
}

/// All that may be used on a host, in order.
pub(super) fn units(node: &Node, bind: Option<BindTo>) -> Vec<Unit> {
    let mut units = Vec::new();
    for (at, core) in node.cores.iter().enumerate() {
        let cpus: Vec<u32> = core.threads.iter().filter(|t| t.allowed).map(|t| t.os).collect();
        let unit = |cpus: Vec<u32>| Unit {
            core: at,
            package: core.package,
            domain: core.domain,
            cache: core.cache,
            efficiency: core.efficiency,
            cpus,
        };
        match bind {
            Some(BindTo::Hwthread) => units.extend(cpus.into_iter().map(|cpu| unit(vec![cpu]))),
            _ if cpus.is_empty() => {}
            _ => units.push(unit(cpus)),
        }
    }
    units
}

/// How many of a resource a host has, counting only where ranks may run.
pub(super) fn resources(host: &Host<'_>, resource: Resource) -> usize {
    let Some(node) = host.node else {
        return if resource == Resource::Core { host.cores as usize } else { 1 };
    };
    let units = units(node, None);
    units.iter().map(|unit| place(unit, resource)).collect::<HashSet<_>>().len()
}

/// Which object of a kind a unit belongs to. Without a last-level cache its NUMA domain takes that place.
pub(super) fn place(unit: &Unit, resource: Resource) -> usize {
    match resource {
        Resource::Node => 0,
        Resource::Package => unit.package as usize,
        Resource::Numa => unit.domain as usize,
        Resource::L3 => unit.cache.unwrap_or(unit.domain) as usize,
        Resource::Core => unit.core,
    }
}

/// Hosts that share processors, and these.
#[derive(Debug)]
pub(super) struct Pool<'a> {
    pub(super) hosts: Vec<usize>,
    /// What it looks like; `None`: unknown, or not the same for all of its hosts.
    pub(super) node: Option<&'a Node>,
    pub(super) units: Vec<Unit>,
    /// How many ranks can run at once.
    pub(super) capacity: usize,
}

impl<'a> Pool<'a> {
    /// Divides the hosts that have ranks into pools.
    pub(super) fn all(hosts: &[Host<'a>], ranks: &[usize], request: &Request) -> Vec<Self> {
        let mut machines: Vec<(&str, Vec<usize>)> = Vec::new();
        let mut known: HashMap<&str, usize> = HashMap::new();
        for (at, host) in hosts.iter().enumerate().filter(|(at, _)| ranks[*at] > 0) {
            let group = *known.entry(host.machine).or_insert_with(|| {
                machines.push((host.machine, Vec::new()));
                machines.len() - 1
            });
            machines[group].1.push(at);
        }
        machines.into_iter().flat_map(|(_, members)| Self::of_machine(hosts, members, request)).collect()
    }

    fn of_machine(hosts: &[Host<'a>], members: Vec<usize>, request: &Request) -> Vec<Self> {
        let nodes: Option<Vec<&Node>> = members.iter().map(|at| hosts[*at].node).collect();
        let Some(nodes) = nodes else {
            let capacity = members.iter().map(|at| hosts[*at].cores as usize).max().unwrap_or(0).max(1);
            return vec![Self { hosts: members, node: None, units: Vec::new(), capacity }];
        };
        if nodes.iter().all(|node| node.cores == nodes[0].cores) {
            let units = units(nodes[0], request.bind);
            return vec![Self { hosts: members, node: Some(nodes[0]), capacity: units.len().max(1), units }];
        }
        // Containers: each may have its own part of the machine.
        let parts: Vec<Vec<Unit>> = nodes.iter().map(|node| units(node, request.bind)).collect();
        let cpus = parts.iter().flatten().flat_map(|unit| &unit.cpus);
        let distinct: HashSet<u32> = cpus.clone().copied().collect();
        if distinct.len() == cpus.count() {
            let each = members.into_iter().zip(nodes).zip(parts);
            let pool = |((at, node), units): ((usize, &'a Node), Vec<Unit>)| Self {
                hosts: vec![at],
                node: Some(node),
                capacity: units.len().max(1),
                units,
            };
            return each.map(pool).collect();
        }
        // Parts that overlap: who would sit where cannot be told apart, so nobody is bound.
        let most = parts.iter().map(Vec::len).max().unwrap_or(0).max(1);
        vec![Self { hosts: members, node: None, units: Vec::new(), capacity: most }]
    }
}
