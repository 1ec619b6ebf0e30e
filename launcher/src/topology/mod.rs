//! What a host looks like: read from the machine by its agent, or from a file that hwloc wrote.
//!
//! Both give the same [`Node`], so that placement is decided by the same code for both. Decides nothing.

mod convert;
mod devices;
pub mod live;
pub mod xml;

pub use live::allowed_cores;
pub use spmd::bootstrap::node::Node;

use hwlocality::Topology;
use hwlocality::object::TopologyObject;
use hwlocality::object::types::ObjectType;
use hwlocality::topology::builder::{BuildFlags, TopologyBuilder, TypeFilter};

/// A builder that keeps what a [`Node`] describes and nothing else: what is not asked for costs no time.
fn builder(flags: BuildFlags, devices: bool) -> Result<TopologyBuilder, String> {
    let keep = || -> Result<TopologyBuilder, Box<dyn std::error::Error>> {
        let mut builder = Topology::builder()
            .with_flags(flags | BuildFlags::INCLUDE_DISALLOWED)?
            .with_common_type_filter(TypeFilter::KeepNone)?;
        for kind in [ObjectType::Package, ObjectType::L3Cache, ObjectType::Core] {
            builder = builder.with_type_filter(kind, TypeFilter::KeepAll)?;
        }
        // hwloc moves memory up to what is left: without its group a NUMA domain would seem to have all cores of a package.
        builder = builder.with_type_filter(ObjectType::Group, TypeFilter::KeepStructure)?;
        if devices {
            builder = builder.with_io_type_filter(TypeFilter::KeepImportant)?;
        }
        Ok(builder)
    };
    keep().map_err(|error| format!("hwloc: {error}"))
}

/// The processors of an object, by the kernel's numbers.
fn processors(object: &TopologyObject) -> Vec<u32> {
    let numbers = object.cpuset().into_iter().flat_map(|set| set.iter_set().collect::<Vec<_>>());
    numbers.filter_map(|index| u32::try_from(usize::from(index)).ok()).collect()
}

/// A list's length or position as the description counts.
fn number(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}
