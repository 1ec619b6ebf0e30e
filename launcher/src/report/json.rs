//! Reports for programs: one JSON object a line, with a member for each topic.

use super::{Topic, View};
use serde_json::{Map, Value, json};
use spmd::bootstrap::node::{Chosen, Node, cpu_list};

pub(super) fn line(view: &View<'_>, topics: &[Topic]) -> String {
    let mut object = Map::new();
    for topic in topics {
        let (name, value) = match topic {
            Topic::Hosts => ("hosts", hosts(view)),
            Topic::Map => ("map", map(view)),
            Topic::Bindings => ("bindings", bindings(view)),
            Topic::Nics => ("nics", nics(view)),
            Topic::Config => {
                let report = spmd::config::json(view.snapshot, spmd::config::Filter::Changed);
                // Keys and values are text: that cannot fail.
                ("config", serde_json::to_value(report).unwrap_or_default())
            }
            Topic::Picture => continue,
        };
        object.insert(name.to_string(), value);
    }
    format!("{}\n", Value::Object(object))
}

fn hosts(view: &View<'_>) -> Value {
    let host = |(at, host): (usize, &crate::placement::Host<'_>)| {
        json!({
            "name": host.name, "ranks": view.ranks_of(at).len(), "slots": host.slots, "cores": host.cores,
            "topology": host.node.map(node),
        })
    };
    view.hosts.iter().enumerate().map(host).collect()
}

fn node(node: &Node) -> Value {
    json!({
        "packages": node.packages,
        "numa_domains": node.domains.iter().map(|d| json!({"os": d.os, "bytes": d.bytes, "package": d.package}))
            .collect::<Vec<_>>(),
        "cores": node.cores.iter().map(|core| json!({
            "package": core.package, "numa": core.domain, "l3": core.cache,
            "threads": core.threads.iter().map(|t| t.os).collect::<Vec<_>>(),
            "allowed": core.threads.iter().filter(|t| t.allowed).map(|t| t.os).collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
        "nics": node.devices_read.then(|| node.nics.iter().map(|nic| json!({
            "name": nic.name, "interfaces": nic.interfaces, "rdma": nic.rdma, "active": nic.active,
            "pci": nic.location.pci, "numa": nic.location.domains,
        })).collect::<Vec<_>>()),
        "gpus": node.devices_read.then(|| node.gpus.iter().map(|gpu| json!({
            "name": gpu.name, "uuid": gpu.uuid, "pci": gpu.location.pci, "numa": gpu.location.domains,
        })).collect::<Vec<_>>()),
    })
}

fn map(view: &View<'_>) -> Value {
    let host = |(at, host): (usize, &crate::placement::Host<'_>)| {
        json!({
            "host": host.name, "ranks": view.ranks_of(at),
            "oversubscribed": view.plan.oversubscribed.get(at).copied().unwrap_or(false),
        })
    };
    view.hosts.iter().enumerate().map(host).collect()
}

fn bindings(view: &View<'_>) -> Value {
    let rank = |(rank, seat): (usize, &crate::placement::Seat)| {
        let kernel = view.kernel.and_then(|kernel| kernel.get(rank)).filter(|text| !text.is_empty());
        let planned = cpu_list(&seat.placement.cpus);
        json!({
            "rank": rank, "host": view.hosts[seat.host].name, "cores": seat.cores, "threads": planned,
            "memory_domain": seat.placement.domain, "kernel": kernel,
            "as_planned": kernel.map(|kernel| planned.is_empty() || planned == **kernel),
        })
    };
    view.plan.seats.iter().enumerate().map(rank).collect()
}

fn nics(view: &View<'_>) -> Value {
    let device = |chosen: &Option<Chosen>| {
        chosen.as_ref().map(|c| json!({"name": c.name, "pci": c.pci, "uuid": c.uuid, "distance": c.distance}))
    };
    let rank = |(rank, seat): (usize, &crate::placement::Seat)| {
        json!({
            "rank": rank, "host": view.hosts[seat.host].name,
            "nic": device(&seat.placement.nic), "gpu": device(&seat.placement.gpu),
        })
    };
    view.plan.seats.iter().enumerate().map(rank).collect()
}
