//! The network device and the GPU of each rank: the nearest, and among equals the one that the fewest ranks have.

use super::{Draft, GpuBind, Host, Request, Seat};
use crate::exit::{ExitCode, Failure};
use spmd::bootstrap::node::{Chosen, Location, Node};

/// How far a device is from a rank, nearest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Distance {
    /// In the rank's NUMA domain.
    Domain,
    /// In its package.
    Package,
    /// In another package.
    Far,
    /// The device's place or the rank's is not known.
    Unknown,
}

impl Distance {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Domain => "same NUMA domain",
            Self::Package => "same package, another NUMA domain",
            Self::Far => "another package",
            Self::Unknown => "distance unknown",
        }
    }
}

/// The network devices that ranks may get: active ones, and where there is RDMA only those that can do it.
pub fn candidates(node: &Node) -> Vec<usize> {
    let active =
        |rdma: bool| (0..node.nics.len()).filter(move |at| node.nics[*at].active && node.nics[*at].rdma == rdma);
    let rdma: Vec<usize> = active(true).collect();
    if rdma.is_empty() { active(false).collect() } else { rdma }
}

/// How far a device is from these cores.
pub fn distance(node: &Node, cores: &[usize], device: &Location) -> Distance {
    let Some(first) = cores.first().map(|core| &node.cores[*core]) else { return Distance::Unknown };
    if node.domains.len() == 1 {
        return Distance::Domain;
    }
    let own =
        |of: fn(&spmd::bootstrap::node::Core) -> u32| cores.iter().all(|core| of(&node.cores[*core]) == of(first));
    let packages = device.domains.iter().map(|domain| node.domains[*domain as usize].package);
    if device.domains.is_empty() || !own(|core| core.package) {
        Distance::Unknown
    } else if own(|core| core.domain) && device.domains.contains(&first.domain) {
        Distance::Domain
    } else if packages.clone().any(|package| package == first.package) {
        Distance::Package
    } else {
        Distance::Far
    }
}

/// How many PCI bridges two devices share, when that is a switch of their own and not only the way to the processor.
fn shared_switch(a: &Location, b: &Location) -> usize {
    let shared = a.bridges.iter().zip(&b.bridges).take_while(|(a, b)| a == b).count();
    if shared > 1 { shared } else { 0 }
}

/// Chooses devices for the ranks of a host, in this order.
pub(super) fn choose(node: &Node, seats: &mut [Draft]) {
    let nics = candidates(node);
    let (mut nic_users, mut gpu_users) = (vec![0_usize; node.nics.len()], vec![0_usize; node.gpus.len()]);
    for draft in seats {
        let seat = &mut draft.seat;
        seat.gpu = (0..node.gpus.len())
            .min_by_key(|at| (distance(node, &seat.cores, &node.gpus[*at].location), gpu_users[*at]));
        let gpu = seat.gpu.map(|at| &node.gpus[at]);
        let near_gpu = |at: usize| gpu.map_or(0, |gpu| shared_switch(&node.nics[at].location, &gpu.location));
        seat.nic = nics.iter().copied().min_by_key(|at| {
            let far = distance(node, &seat.cores, &node.nics[*at].location);
            (far, std::cmp::Reverse(near_gpu(*at)), nic_users[*at])
        });
        let chosen = |name: &str, uuid: Option<&String>, location: &Location, cores: &[usize]| Chosen {
            name: name.to_string(),
            pci: location.pci.clone(),
            uuid: uuid.cloned(),
            distance: distance(node, cores, location).words().to_string(),
            far: distance(node, cores, location) as u32,
        };
        if let Some(at) = seat.nic {
            nic_users[at] += 1;
            seat.placement.nic = Some(chosen(&node.nics[at].name, None, &node.nics[at].location, &seat.cores));
        }
        if let Some(at) = seat.gpu {
            gpu_users[at] += 1;
            let gpu = &node.gpus[at];
            seat.placement.gpu = Some(chosen(&gpu.name, gpu.uuid.as_ref(), &gpu.location, &seat.cores));
        }
    }
}

/// Lets each rank see only its own GPU, if that was asked for: by identity, for numbers mean something else in every
/// container and to every library.
pub(super) fn hide_others(hosts: &[Host<'_>], seats: &mut [Seat], request: &Request) -> Result<(), Failure> {
    if request.gpus == GpuBind::None {
        return Ok(());
    }
    for (rank, seat) in seats.iter_mut().enumerate() {
        let host = &hosts[seat.host];
        let wrong = |why: String| {
            Failure::new(
                ExitCode::Slots,
                format!("--gpu-bind: host {} {why}, so rank {rank} cannot have one", host.name),
            )
        };
        let gpu = host.node.zip(seat.gpu).map(|(node, at)| &node.gpus[at]);
        let gpu = gpu.ok_or_else(|| wrong("has no GPU that was found".to_string()))?;
        let identity = gpu.variable.clone().zip(gpu.uuid.clone());
        seat.placement.sees_only = Some(identity.ok_or_else(|| {
            wrong(format!("does not tell the identity of its GPU {} ({})", gpu.name, gpu.location.pci))
        })?);
    }
    Ok(())
}
