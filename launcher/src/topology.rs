//! The processors of this machine that we may use.
//!
//! The seed of placement: today it only counts. Everything comes from hwloc, already restricted to the cpuset that the
//! kernel allows us.

use hwlocality::Topology;
use hwlocality::object::types::ObjectType;
use hwlocality::topology::builder::{BuildFlags, TypeFilter};

/// How many cores this process may use: a core counts if any of its hardware threads is allowed.
///
/// At least 1. Falls back on what the standard library knows when hwloc cannot look.
pub fn allowed_cores() -> u32 {
    let cores = count().unwrap_or_else(|_| std::thread::available_parallelism().map_or(1, usize::from));
    u32::try_from(cores.max(1)).unwrap_or(u32::MAX)
}

fn count() -> Result<usize, Box<dyn std::error::Error>> {
    let topology = Topology::builder()
        .with_flags(BuildFlags::RESTRICT_CPU_TO_THIS_PROCESS | BuildFlags::ASSUME_THIS_SYSTEM)?
        .with_common_type_filter(TypeFilter::KeepNone)?
        .with_type_filter(ObjectType::Core, TypeFilter::KeepAll)?
        .build()?;
    let cores = topology.objects_with_type(ObjectType::Core).count();
    let units = topology.objects_with_type(ObjectType::PU).count();
    // Some virtual machines describe no cores: then a processing unit is one.
    Ok(if cores > 0 { cores } else { units })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_at_least_one_core_and_not_more_than_processing_units_allowed() {
        let cores = allowed_cores();
        assert!(cores >= 1);
        let allowed = std::thread::available_parallelism().unwrap().get();
        // available_parallelism also honours cgroup quotas, which hwloc does not see.
        let mask = rustix::thread::sched_getaffinity(None).unwrap().count();
        assert!(cores <= mask.max(u32::try_from(allowed).unwrap()), "{cores} cores, {mask} in the mask");
    }
}
