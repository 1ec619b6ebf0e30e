//! `spmd`: the runtime of rsrun, an MPI-style SPMD runtime for RDMA clusters.

pub mod bootstrap;
pub mod config;
pub mod element;
mod error;
pub mod memory;

pub use element::Element;
pub use error::{Error, Result, SystemError};
pub use spmd_derive::Element;
