//! Topologies from files in hwloc's XML (`lstopo FILE.xml`), for hosts that are not reachable.

use super::{Node, builder, convert};
use hwlocality::topology::builder::BuildFlags;
use std::path::Path;

/// Reads a file that hwloc wrote; the allowed set is the one recorded there.
///
/// # Errors
/// In words, with the path.
pub fn read(path: &Path) -> Result<Node, String> {
    let shown = path.display();
    // hwloc's own message would not tell a missing file from a wrong one.
    let text = crate::input::text(path).map_err(|reason| format!("the topology {shown} cannot be read: {reason}"))?;
    if !text.contains("<topology") {
        return Err(format!("the topology {shown} is not hwloc's XML: make one on the host with lstopo FILE.xml"));
    }
    let wrong = |error: &dyn std::fmt::Display| format!("the topology {shown}: hwloc cannot read it: {error}");
    let topology = builder(BuildFlags::empty(), true)?
        .from_xml(&text)
        .map_err(|error| wrong(&error))?
        .build()
        .map_err(|error| wrong(&error))?;
    let allowed = topology.allowed_cpuset();
    Ok(convert::node(&topology, true, |os| allowed.is_set(os as usize)))
}
