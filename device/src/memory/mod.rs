//! Memory of a GPU that several ranks map, and memory of the host that the GPU sees.
//!
//! Knows the driver, and nothing of ranks.

mod physical;
mod pinned;
mod registered;

pub(crate) use physical::{Mapping, Physical};
pub(crate) use pinned::Pinned;
pub(crate) use registered::Registered;
