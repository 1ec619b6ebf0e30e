//! The machine we run on.

use super::{Node, builder, convert};
use hwlocality::topology::builder::BuildFlags;
use rustix::thread::CpuSet;
use spmd::bootstrap::node::{Detail, Gpu, Nic};
use std::collections::HashSet;
use std::fs;

/// How many cores this process may use: a core counts if any of its hardware threads is allowed.
///
/// At least 1. Reads only what the kernel says about threads of a core: every job starts with this.
pub fn allowed_cores() -> u32 {
    let Some(allowed) = allowed() else {
        return u32::try_from(std::thread::available_parallelism().map_or(1, usize::from)).unwrap_or(u32::MAX);
    };
    let core = |cpu: &usize| {
        let of = |file: &str| fs::read_to_string(format!("/sys/devices/system/cpu/cpu{cpu}/topology/{file}"));
        // Some virtual machines describe no cores: then a processing unit is one.
        of("core_cpus_list").or_else(|_| of("thread_siblings_list")).unwrap_or_else(|_| cpu.to_string())
    };
    let cores: HashSet<String> = numbers(&allowed).iter().map(core).collect();
    u32::try_from(cores.len().max(1)).unwrap_or(u32::MAX)
}

/// Where this process may run: its affinity, which the kernel keeps inside the cpuset of its control group.
fn allowed() -> Option<CpuSet> {
    rustix::thread::sched_getaffinity(None).ok()
}

fn numbers(set: &CpuSet) -> Vec<usize> {
    (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect()
}

/// Where the kernel lets a process run, as it writes it (`0-3,8`); empty when that cannot be found out.
pub fn affinity_of(pid: rustix::process::Pid) -> String {
    let numbers = rustix::thread::sched_getaffinity(Some(pid)).map(|set| numbers(&set)).unwrap_or_default();
    let numbers: Vec<u32> = numbers.into_iter().filter_map(|cpu| u32::try_from(cpu).ok()).collect();
    spmd::bootstrap::node::cpu_list(&numbers)
}

/// Describes this machine.
///
/// # Errors
/// In words, when hwloc cannot look.
pub fn read(detail: Detail) -> Result<Node, String> {
    let devices = match detail {
        Detail::Processors => false,
        Detail::Accelerators => has_gpu(),
        Detail::Fabric => has_gpu() || has_entry("/sys/class/infiniband"),
        Detail::Devices => true,
    };
    let topology =
        builder(BuildFlags::ASSUME_THIS_SYSTEM, devices)?.build().map_err(|error| format!("hwloc: {error}"))?;
    let allowed = allowed().ok_or("the kernel does not say which processors may be used")?;
    let may_use = |os: u32| (os as usize) < CpuSet::MAX_CPU && allowed.is_set(os as usize);
    let mut node = convert::node(&topology, devices, may_use);
    node.nics.iter_mut().for_each(complete_nic);
    node.gpus.iter_mut().for_each(complete_gpu);
    Ok(node)
}

/// Whether a driver of GPUs is loaded: much cheaper than to look at every PCI device.
fn has_gpu() -> bool {
    has_entry("/proc/driver/nvidia/gpus") || has_entry("/sys/class/kfd/kfd/topology/nodes")
}

fn has_entry(folder: &str) -> bool {
    fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some())
}

/// hwloc does not say whether an interface is up.
fn complete_nic(nic: &mut Nic) {
    if nic.rdma {
        return;
    }
    let up = |name: &String| {
        let state = fs::read_to_string(format!("/sys/class/net/{name}/operstate")).unwrap_or_default();
        // Some drivers do not know, and are used all the same.
        matches!(state.trim(), "up" | "unknown")
    };
    nic.active = nic.interfaces.iter().any(up);
}

/// hwloc knows a GPU's identity only with the vendor's library; the driver tells it in a file.
fn complete_gpu(gpu: &mut Gpu) {
    if gpu.uuid.is_some() {
        return;
    }
    let path = format!("/proc/driver/nvidia/gpus/{}/information", gpu.location.pci);
    let text = fs::read_to_string(path).unwrap_or_default();
    let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).map(|value| value.trim().to_string());
    gpu.uuid = value("GPU UUID:");
    if let Some(model) = value("Model:") {
        gpu.name = model;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_at_least_one_core_and_not_more_than_processing_units_allowed() {
        let cores = allowed_cores();
        assert!(cores >= 1);
        assert!(cores <= rustix::thread::sched_getaffinity(None).unwrap().count());
    }

    #[test]
    fn the_description_has_exactly_the_processors_that_we_may_use() {
        let node = read(Detail::Devices).unwrap();
        let mut described: Vec<usize> = Vec::new();
        for core in &node.cores {
            assert!(core.package < node.packages && (core.domain as usize) < node.domains.len());
            described.extend(core.threads.iter().filter(|t| t.allowed).map(|t| t.os as usize));
        }
        described.sort_unstable();
        assert_eq!(described, numbers(&allowed().unwrap()));
        let usable = node.cores.iter().filter(|core| core.threads.iter().any(|t| t.allowed)).count();
        assert_eq!(usable, allowed_cores() as usize);
    }
}
