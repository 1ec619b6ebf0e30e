//! What a host looks like, as its agent describes it, and where a rank sits on it, as the launcher decided.
//!
//! Plain data: the agent reads the topology, the launcher decides, the rank is told. Knows nothing of hwloc.

use serde::{Deserialize, Serialize};

/// A host's processors, memory and devices. Indices of one list into another are positions; what the kernel calls
/// something is in the fields named `os`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// How many processor packages (sockets) there are.
    pub packages: u32,
    /// NUMA domains that have processors, in order.
    pub domains: Vec<Domain>,
    /// Last-level caches that several cores may share, in order.
    pub caches: Vec<Cache>,
    /// All cores in order, also those that may not be used.
    pub cores: Vec<Core>,
    /// Network devices; empty unless [`Node::devices_read`].
    pub nics: Vec<Nic>,
    /// GPUs; empty unless [`Node::devices_read`].
    pub gpus: Vec<Gpu>,
    /// Whether devices were looked for.
    pub devices_read: bool,
}

/// A NUMA domain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Domain {
    /// The kernel's number.
    pub os: u32,
    /// Its memory in bytes.
    pub bytes: u64,
    /// The package it belongs to.
    pub package: u32,
}

/// A last-level cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cache {
    /// Its size in bytes.
    pub bytes: u64,
}

/// A core.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Core {
    /// Its package.
    pub package: u32,
    /// Its NUMA domain.
    pub domain: u32,
    /// Its last-level cache, when there is one.
    pub cache: Option<u32>,
    /// How fast it is among the cores of a hybrid processor: higher is faster.
    pub efficiency: u32,
    /// Its hardware threads.
    pub threads: Vec<Thread>,
}

/// A hardware thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    /// The kernel's number.
    pub os: u32,
    /// Whether processes of the job may run on it.
    pub allowed: bool,
}

/// Where a device is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Location {
    /// Its PCI address, for example `0000:17:00.0`.
    pub pci: String,
    /// The NUMA domains it is near to; all or none: unknown.
    pub domains: Vec<u32>,
    /// The PCI bridges above it, outermost first: two devices are the nearer, the more of them they share.
    pub bridges: Vec<u32>,
}

/// A network device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nic {
    /// Its name: the RDMA device's (`mlx5_0`), else the interface's (`eth0`).
    pub name: String,
    /// The kernel's network interfaces on it.
    pub interfaces: Vec<String>,
    /// Whether it can do RDMA.
    pub rdma: bool,
    /// Whether a port of it is up.
    pub active: bool,
    /// Where it is.
    pub location: Location,
}

/// A GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// Its name, for example `cuda0` or the model.
    pub name: String,
    /// What it is known by everywhere, for example `GPU-5f2c…`.
    pub uuid: Option<String>,
    /// The variable by which its maker's libraries are told which GPUs a process may see.
    pub variable: Option<String>,
    /// Where it is.
    pub location: Location,
}

/// How much of the topology the launcher wants to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Detail {
    /// Processors and memory.
    Processors,
    /// These, and devices if the host has a GPU.
    Accelerators,
    /// These, and devices if the host has a GPU or a network device that can do RDMA.
    Fabric,
    /// These, and devices.
    Devices,
}

/// Where a rank sits on its host. The default: nowhere in particular.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// The hardware threads it is bound to, by the kernel's numbers in order; empty: it is not bound.
    pub cpus: Vec<u32>,
    /// The NUMA domain (the kernel's number) that all of them belong to, where there are several.
    pub domain: Option<u32>,
    /// Its network device.
    pub nic: Option<Chosen>,
    /// Its GPU.
    pub gpu: Option<Chosen>,
    /// A variable that hides all other GPUs from the rank, and its value; when that was asked for.
    pub sees_only: Option<(String, String)>,
}

/// A device that was chosen for a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chosen {
    /// The device's name.
    pub name: String,
    /// Its PCI address.
    pub pci: String,
    /// What it is known by everywhere, if that is known.
    pub uuid: Option<String>,
    /// How far it is from the rank, in words.
    pub distance: String,
    /// The same as a number: the smaller, the nearer.
    pub far: u32,
}

/// The network devices of all ranks, as far as they are known: the same on every rank.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Devices {
    /// Those that there are, each for the ranks that are as far from it.
    seen: Vec<SeenDevice>,
    /// For every rank its place in `seen`, counted from 1, or 0 where its device is not known; empty: none is known.
    #[serde(with = "super::runs")]
    of: Vec<u32>,
}

/// A network device, as ranks see it that are so far from it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SeenDevice {
    /// The device's name on its host.
    pub name: String,
    /// How far it is, in words.
    pub distance: String,
    /// The same as a number: the smaller, the nearer.
    pub far: u32,
}

impl Devices {
    /// From the device of each rank, in order.
    #[must_use]
    pub fn of_ranks<'a>(chosen: impl IntoIterator<Item = Option<&'a Chosen>>) -> Devices {
        let mut devices = Devices::default();
        let mut places = std::collections::HashMap::new();
        for chosen in chosen {
            let place = chosen.map_or(0, |Chosen { name, distance, far, .. }| {
                let seen = SeenDevice { name: name.clone(), distance: distance.clone(), far: *far };
                *places.entry(seen.clone()).or_insert_with(|| {
                    devices.seen.push(seen);
                    u32::try_from(devices.seen.len()).unwrap_or(0)
                })
            });
            devices.of.push(place);
        }
        if devices.seen.is_empty() { Devices::default() } else { devices }
    }

    /// The device of a rank, if it is known.
    #[must_use]
    pub fn get(&self, rank: usize) -> Option<&SeenDevice> {
        self.seen.get((*self.of.get(rank)? as usize).checked_sub(1)?)
    }
}

/// Numbers in order as the kernel writes them: `0-3,8`.
#[must_use]
pub fn cpu_list(numbers: &[u32]) -> String {
    let mut text = String::new();
    let mut rest = numbers;
    while let [first, tail @ ..] = rest {
        let run = (*first..).zip(rest).take_while(|(expected, number)| expected == *number).count();
        let last = rest[run - 1];
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(&first.to_string());
        if run > 1 {
            text.push_str(&format!("-{last}"));
        }
        rest = &tail[run - 1..];
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_the_kernel_writes_them() {
        assert_eq!(cpu_list(&[]), "");
        assert_eq!(cpu_list(&[5]), "5");
        assert_eq!(cpu_list(&[0, 1, 2, 3, 8, 10, 11]), "0-3,8,10-11");
    }

    #[test]
    fn devices_are_found_again_by_rank_and_none_where_none_is_known() {
        let chosen = |name: &str, far: u32| Chosen {
            name: name.into(),
            pci: String::new(),
            uuid: None,
            distance: format!("{far} away"),
            far,
        };
        let (near, far, other) = (chosen("mlx5_0", 0), chosen("mlx5_0", 2), chosen("mlx5_1", 0));
        let devices = Devices::of_ranks([Some(&near), None, Some(&far), Some(&other), Some(&near)]);
        let found: Vec<_> = (0..6).map(|rank| devices.get(rank).map(|seen| (&seen.name[..], seen.far))).collect();
        let (near, far, other) = (Some(("mlx5_0", 0)), Some(("mlx5_0", 2)), Some(("mlx5_1", 0)));
        assert_eq!(found, [near, None, far, other, near, None]);
        assert_eq!(Devices::of_ranks([None, None]), Devices::default());
    }
}
