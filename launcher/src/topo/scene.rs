//! What is drawn, before anyone asks how: the parts of a host inside each other, with their words.

use crate::placement::Seat;
use crate::placement::devices::candidates;
use crate::report::View;
use spmd::bootstrap::node::{Chosen, Location, Node, cpu_list};

/// A host.
#[derive(Debug)]
pub(super) struct Scene {
    pub(super) title: String,
    pub(super) packages: Vec<Package>,
    /// Devices of which nobody knows where they are.
    pub(super) elsewhere: Vec<Device>,
    /// A line for each rank: number, words.
    pub(super) ranks: Vec<(u32, String)>,
}

#[derive(Debug)]
pub(super) struct Package {
    pub(super) title: String,
    pub(super) domains: Vec<Domain>,
    /// Devices that are near to several of its domains.
    pub(super) devices: Vec<Device>,
}

#[derive(Debug)]
pub(super) struct Domain {
    pub(super) title: String,
    pub(super) caches: Vec<Cache>,
    pub(super) devices: Vec<Device>,
}

#[derive(Debug)]
pub(super) struct Cache {
    pub(super) title: Option<String>,
    pub(super) cores: Vec<Core>,
}

#[derive(Debug)]
pub(super) struct Core {
    pub(super) number: usize,
    /// The kernel's numbers of its hardware threads.
    pub(super) threads: String,
    pub(super) allowed: bool,
    /// Only some of its hardware threads may be used.
    pub(super) partly: bool,
    pub(super) ranks: Vec<u32>,
}

#[derive(Debug)]
pub(super) struct Device {
    pub(super) name: String,
    pub(super) pci: String,
    pub(super) gpu: bool,
    /// Why no rank gets it, if so.
    pub(super) unused: Option<&'static str>,
    pub(super) ranks: Vec<u32>,
}

/// Every host of a job; a host that nobody has described is left out.
pub(super) fn scenes(view: &View<'_>) -> Vec<Scene> {
    let hosts = view.hosts.iter().enumerate();
    hosts.filter_map(|(at, host)| Some(scene(view, at, host.name, host.node?))).collect()
}

fn scene(view: &View<'_>, host: usize, name: &str, node: &Node) -> Scene {
    let seats: Vec<(u32, &Seat)> = (0..).zip(&view.plan.seats).filter(|(_, seat)| seat.host == host).collect();
    let on_core = |core: usize| -> Vec<u32> {
        seats.iter().filter(|(_, seat)| seat.cores.contains(&core)).map(|(rank, _)| *rank).collect()
    };
    let core = |at: usize| {
        let threads = &node.cores[at].threads;
        let allowed = threads.iter().filter(|thread| thread.allowed).count();
        let mut numbers: Vec<u32> = threads.iter().map(|thread| thread.os).collect();
        numbers.sort_unstable();
        Core {
            number: at,
            threads: cpu_list(&numbers),
            allowed: allowed > 0,
            partly: allowed > 0 && allowed < threads.len(),
            ranks: on_core(at),
        }
    };
    let domain = |number: u32| {
        let inside: Vec<usize> = (0..node.cores.len()).filter(|at| node.cores[*at].domain == number).collect();
        let mut caches: Vec<(Option<u32>, Cache)> = Vec::new();
        for at in inside {
            let cache = node.cores[at].cache;
            if caches.last().is_none_or(|(last, _)| *last != cache) {
                let title = cache.and_then(|n| node.caches.get(n as usize)).map(|c| format!("L3 {}", size(c.bytes)));
                caches.push((cache, Cache { title, cores: Vec::new() }));
            }
            if let Some((_, last)) = caches.last_mut() {
                last.cores.push(core(at));
            }
        }
        let bytes = node.domains[number as usize].bytes;
        let memory = if bytes > 0 { format!("  {}", size(bytes)) } else { String::new() };
        Domain {
            title: format!("NUMA {number}{memory}"),
            caches: caches.into_iter().map(|(_, cache)| cache).collect(),
            devices: devices(node, &seats, |location| location.domains == [number]),
        }
    };
    let within = |location: &Location, package: u32| {
        location.domains.len() > 1
            && location.domains.iter().all(|domain| node.domains[*domain as usize].package == package)
    };
    let package = |number: u32| {
        let domains = (0..node.domains.len()).filter_map(|at| u32::try_from(at).ok());
        Package {
            title: format!("package {number}"),
            domains: domains.filter(|at| node.domains[*at as usize].package == number).map(domain).collect(),
            devices: devices(node, &seats, |location| within(location, number)),
        }
    };
    let elsewhere = devices(node, &seats, |location| {
        location.domains.len() != 1 && !(0..node.packages).any(|package| within(location, package))
    });
    let usable = node.cores.iter().filter(|core| core.threads.iter().any(|t| t.allowed)).count();
    let cores = match node.cores.len() {
        all if all == usable => format!("{all} cores"),
        all => format!("{usable} of {all} cores may be used"),
    };
    let title = format!(
        "{name}: {}, {}, {cores}",
        count(node.packages as usize, "package"),
        count(node.domains.len(), "NUMA domain")
    );
    Scene {
        title,
        packages: (0..node.packages).map(package).collect(),
        elsewhere,
        ranks: seats.iter().map(|(rank, seat)| (*rank, words(seat))).collect(),
    }
}

fn devices(node: &Node, seats: &[(u32, &Seat)], here: impl Fn(&Location) -> bool) -> Vec<Device> {
    let usable = candidates(node);
    let users = |wanted: &dyn Fn(&Seat) -> bool| -> Vec<u32> {
        seats.iter().filter(|(_, seat)| wanted(seat)).map(|(rank, _)| *rank).collect()
    };
    let nics = node.nics.iter().enumerate().filter(|(_, nic)| here(&nic.location)).map(|(at, nic)| Device {
        name: match nic.interfaces.first().filter(|interface| **interface != nic.name) {
            Some(interface) => format!("{} ({interface})", nic.name),
            None => nic.name.clone(),
        },
        pci: nic.location.pci.clone(),
        gpu: false,
        unused: match (nic.active, usable.contains(&at)) {
            (false, _) => Some("down"),
            (true, false) => Some("no RDMA"),
            (true, true) => None,
        },
        ranks: users(&|seat| seat.nic == Some(at)),
    });
    let gpus = node.gpus.iter().enumerate().filter(|(_, gpu)| here(&gpu.location)).map(|(at, gpu)| Device {
        name: gpu.name.clone(),
        pci: gpu.location.pci.clone(),
        gpu: true,
        unused: None,
        ranks: users(&|seat| seat.gpu == Some(at)),
    });
    // By address: what hangs on one switch stands side by side.
    let mut all: Vec<Device> = nics.chain(gpus).collect();
    all.sort_by(|a, b| a.pci.cmp(&b.pci));
    all
}

fn words(seat: &Seat) -> String {
    let bound = match seat.cores.as_slice() {
        [] => "not bound".to_string(),
        [core] => format!("core {core}"),
        cores => {
            format!("cores {}", cpu_list(&cores.iter().filter_map(|c| u32::try_from(*c).ok()).collect::<Vec<_>>()))
        }
    };
    let device = |kind: &str, chosen: &Option<Chosen>| match chosen {
        // GPUs of one model have one name.
        Some(chosen) if kind == "GPU" => format!(", GPU {} {} ({})", chosen.name, chosen.pci, chosen.distance),
        Some(chosen) => format!(", {kind} {} ({})", chosen.name, chosen.distance),
        None => String::new(),
    };
    bound + &device("NIC", &seat.placement.nic) + &device("GPU", &seat.placement.gpu)
}

fn count(n: usize, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

/// Bytes in the largest unit that leaves at least one.
fn size(bytes: u64) -> String {
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    match units.iter().find(|(bits, _)| bytes >> bits > 0) {
        Some((bits, unit)) => {
            // One decimal, rounded; whole numbers without it.
            let tenths = (u128::from(bytes) * 10 + (1_u128 << (bits - 1))) >> bits;
            if tenths.is_multiple_of(10) || tenths > 1000 {
                format!("{} {unit}", tenths / 10)
            } else {
                format!("{}.{} {unit}", tenths / 10, tenths % 10)
            }
        }
        None => format!("{bytes} B"),
    }
}
