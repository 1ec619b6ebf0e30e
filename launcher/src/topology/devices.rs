//! Network devices and GPUs in hwloc's tree.
//!
//! One PCI function is one device, whatever names the kernel's drivers give it: an RDMA device and its network interface
//! are one network device.

use super::{number, processors};
use hwlocality::Topology;
use hwlocality::object::TopologyObject;
use hwlocality::object::attributes::{ObjectAttributes, PCIDeviceAttributes};
use hwlocality::object::types::{OSDeviceType, ObjectType};
use spmd::bootstrap::node::{Gpu, Location, Nic, Node};
use std::collections::HashMap;

/// PCI classes of graphics and compute accelerators.
const DISPLAY: std::ops::RangeInclusive<u16> = 0x0300..=0x0302;
const ACCELERATOR: u16 = 0x1200;
/// Vendors whose display devices compute. Those of others drive screens, as the console of a server does.
const NVIDIA: u16 = 0x10de;
const AMD: u16 = 0x1002;

/// Adds devices to the description of a host.
pub(super) fn find(topology: &Topology, domain_of: &HashMap<u32, u32>, node: &mut Node) {
    let mut bridges: Vec<u64> = Vec::new();
    for pci in topology.objects_with_type(ObjectType::PCIDevice) {
        let Some(ObjectAttributes::PCIDevice(attributes)) = pci.attributes() else { continue };
        let location = locate(pci, attributes, domain_of, node.domains.len(), &mut bridges);
        let systems = os_devices(pci);
        let of = |kind: OSDeviceType| systems.iter().filter(move |(k, _)| *k == kind).map(|(_, object)| *object);
        let interfaces: Vec<String> = of(OSDeviceType::Network).filter_map(name).collect();
        let rdma = of(OSDeviceType::OpenFabrics).next();
        if let Some(name) = rdma.and_then(name).or_else(|| interfaces.first().cloned()) {
            let active = rdma.is_none_or(has_active_port);
            node.nics.push(Nic { name, interfaces, rdma: rdma.is_some(), active, location });
        } else if is_gpu(attributes) {
            let system = of(OSDeviceType::CoProcessor).next().or_else(|| of(OSDeviceType::GPU).next());
            let uuid = systems.iter().find_map(|(_, object)| info(object, &["NVIDIAUUID", "AMDUUID", "UUID"]));
            let model = || pci.name().map(|n| n.to_string_lossy().into_owned());
            let name = system.and_then(name).or_else(model).unwrap_or_else(|| format!("gpu{}", node.gpus.len()));
            let variable = match attributes.vendor_id() {
                NVIDIA => Some("CUDA_VISIBLE_DEVICES".to_string()),
                AMD => Some("ROCR_VISIBLE_DEVICES".to_string()),
                _ => None,
            };
            node.gpus.push(Gpu { name, uuid, variable, location });
        }
    }
    let place = |location: &Location| (location.domains.first().copied(), location.pci.clone());
    node.nics.sort_by_key(|nic| place(&nic.location));
    node.gpus.sort_by_key(|gpu| place(&gpu.location));
}

fn is_gpu(pci: &PCIDeviceAttributes) -> bool {
    let class = pci.class_id();
    class == ACCELERATOR || (DISPLAY.contains(&class) && [NVIDIA, AMD].contains(&pci.vendor_id()))
}

fn locate(
    object: &TopologyObject,
    pci: &PCIDeviceAttributes,
    domain_of: &HashMap<u32, u32>,
    domains: usize,
    bridges: &mut Vec<u64>,
) -> Location {
    let near = object.first_non_io_ancestor().map(processors).unwrap_or_default();
    let mut near: Vec<u32> = near.iter().filter_map(|os| domain_of.get(os)).copied().collect();
    near.sort_unstable();
    near.dedup();
    if near.len() == domains && domains > 1 {
        // The whole machine: nobody knows where.
        near.clear();
    }
    let mut chain: Vec<u32> = object
        .ancestors()
        .filter(|ancestor| ancestor.object_type() == ObjectType::Bridge)
        .map(|bridge| {
            let id = bridge.global_persistent_index();
            number(bridges.iter().position(|known| *known == id).unwrap_or_else(|| {
                bridges.push(id);
                bridges.len() - 1
            }))
        })
        .collect();
    chain.reverse();
    let pci = format!("{:04x}:{:02x}:{:02x}.{:x}", pci.domain(), pci.bus_id(), pci.bus_device(), pci.function());
    Location { pci, domains: near, bridges: chain }
}

/// What the operating system calls the device; virtual devices (virtio) hang one level lower.
fn os_devices(pci: &TopologyObject) -> Vec<(OSDeviceType, &TopologyObject)> {
    let mut found = Vec::new();
    let mut open: Vec<&TopologyObject> = pci.io_children().collect();
    while let Some(object) = open.pop() {
        if let Some(ObjectAttributes::OSDevice(device)) = object.attributes() {
            found.push((device.device_type(), object));
            open.extend(object.io_children());
        }
    }
    found.sort_by_key(|(_, object)| object.logical_index());
    found
}

fn name(object: &TopologyObject) -> Option<String> {
    object.name().map(|name| name.to_string_lossy().into_owned())
}

fn info(object: &TopologyObject, keys: &[&str]) -> Option<String> {
    keys.iter().find_map(|key| object.info(key)).map(|value| value.to_string_lossy().into_owned())
}

/// hwloc writes down the state of each port of an RDMA device; 4 is active. Silence is no objection.
fn has_active_port(rdma: &TopologyObject) -> bool {
    let mut states = rdma.infos().iter().filter(|info| {
        let name = info.name().to_string_lossy();
        name.starts_with("Port") && name.ends_with("State")
    });
    let Some(first) = states.next() else { return true };
    std::iter::once(first).chain(states).any(|info| info.value().to_bytes().first() == Some(&b'4'))
}
