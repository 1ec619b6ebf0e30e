//! Reports for people.

use super::{Topic, View};
use crate::placement::devices::candidates;
use spmd::bootstrap::node::{Chosen, Node, cpu_list};

pub(super) fn topic(view: &View<'_>, topic: Topic) -> String {
    match topic {
        Topic::Hosts => section("hosts", &hosts(view)),
        Topic::Map => section("map", &map(view)),
        Topic::Bindings => section(
            if view.kernel.is_some() { "bindings, as the kernel has them" } else { "bindings" },
            &bindings(view),
        ),
        Topic::Nics => section("nics", &nics(view)),
        Topic::Config => format!("config\n{}", spmd::config::table(view.snapshot, spmd::config::Filter::Changed)),
        Topic::Picture => crate::topo::terminal::draw(view),
    }
}

/// A heading and a table whose columns are as wide as they must be.
fn section(heading: &str, rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let length = |text: &String| text.chars().count();
    let widths: Vec<usize> =
        (0..columns).map(|at| rows.iter().filter_map(|row| row.get(at)).map(length).max().unwrap_or(0)).collect();
    let mut text = format!("{heading}\n");
    for row in rows {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        text.push_str(format!("  {}", cells.join("  ")).trim_end());
        text.push('\n');
    }
    text
}

fn row(cells: &[&str]) -> Vec<String> {
    cells.iter().map(ToString::to_string).collect()
}

fn hosts(view: &View<'_>) -> Vec<Vec<String>> {
    let mut rows = vec![row(&["host", "ranks", "slots", "cores", "packages", "NUMA domains", "NICs", "GPUs"])];
    for (at, host) in view.hosts.iter().enumerate() {
        let slots = host.slots.map_or_else(|| "by cores".to_string(), |slots| slots.to_string());
        let mut cells = vec![host.name.to_string(), view.ranks_of(at).len().to_string(), slots];
        match host.node {
            Some(node) => {
                let usable = node.cores.iter().filter(|core| core.threads.iter().any(|t| t.allowed)).count();
                let cores = match node.cores.len() {
                    all if all == usable => all.to_string(),
                    all => format!("{usable} of {all}"),
                };
                cells.extend([cores, node.packages.to_string(), node.domains.len().to_string()]);
                cells.extend(devices(node));
            }
            None => cells.push(host.cores.to_string()),
        }
        rows.push(cells);
    }
    rows
}

fn devices(node: &Node) -> [String; 2] {
    if !node.devices_read {
        return ["not read".to_string(), "not read".to_string()];
    }
    let usable = candidates(node);
    let nics = match usable.len() {
        all if all == node.nics.len() => all.to_string(),
        usable => format!("{usable} of {}", node.nics.len()),
    };
    [nics, node.gpus.len().to_string()]
}

fn map(view: &View<'_>) -> Vec<Vec<String>> {
    let line = |(at, host): (usize, &crate::placement::Host<'_>)| {
        let ranks = view.ranks_of(at);
        let over = if view.plan.oversubscribed.get(at) == Some(&true) { "more ranks than cores" } else { "" };
        let list = if ranks.is_empty() { "no rank".to_string() } else { format!("ranks {}", cpu_list(&ranks)) };
        row(&[host.name, &list, over])
    };
    view.hosts.iter().enumerate().map(line).collect()
}

/// Numbers in order, without repetition, as a list.
pub(crate) fn list(numbers: impl Iterator<Item = usize>) -> String {
    let mut numbers: Vec<u32> = numbers.filter_map(|n| u32::try_from(n).ok()).collect();
    numbers.sort_unstable();
    numbers.dedup();
    cpu_list(&numbers)
}

fn bindings(view: &View<'_>) -> Vec<Vec<String>> {
    let mut heading = row(&["rank", "host", "package", "NUMA", "cores", "hardware threads", "memory"]);
    if view.kernel.is_some() {
        heading.extend(row(&["kernel"]));
    }
    let mut rows = vec![heading];
    for (rank, seat) in view.plan.seats.iter().enumerate() {
        let host = &view.hosts[seat.host];
        let planned = cpu_list(&seat.placement.cpus);
        let mut cells = vec![rank.to_string(), host.name.to_string()];
        match host.node.filter(|_| !seat.cores.is_empty()) {
            Some(node) => {
                cells.push(list(seat.cores.iter().map(|core| node.cores[*core].package as usize)));
                cells.push(list(seat.cores.iter().map(|core| node.cores[*core].domain as usize)));
                cells.push(list(seat.cores.iter().copied()));
                cells.push(planned.clone());
            }
            None => cells.extend(row(&["-", "-", "-", "not bound"])),
        }
        cells.push(seat.placement.domain.map_or_else(|| "first touch".to_string(), |n| format!("domain {n} first")));
        if let Some(kernel) = view.kernel {
            let is = kernel.get(rank).copied().unwrap_or_default();
            cells.push(match is {
                "" => "had ended already".to_string(),
                _ if is == planned => format!("{is} as planned"),
                _ if planned.is_empty() => is.to_string(),
                _ => format!("{is} DIFFERENT from the plan"),
            });
        }
        rows.push(cells);
    }
    rows
}

fn nics(view: &View<'_>) -> Vec<Vec<String>> {
    let mut rows = vec![row(&["rank", "host", "NIC", "PCI address", "distance", "GPU", "PCI address", "distance"])];
    for (rank, seat) in view.plan.seats.iter().enumerate() {
        let mut cells = vec![rank.to_string(), view.hosts[seat.host].name.to_string()];
        let device = |chosen: &Option<Chosen>| match chosen {
            Some(chosen) => [chosen.name.clone(), chosen.pci.clone(), chosen.distance.clone()],
            None => ["none".to_string(), "-".to_string(), "-".to_string()],
        };
        cells.extend(device(&seat.placement.nic));
        cells.extend(device(&seat.placement.gpu));
        rows.push(cells);
    }
    rows
}
