//! `spmd`: the runtime of rsrun, an MPI-style SPMD runtime for RDMA clusters.

pub mod bootstrap;
pub mod config;
