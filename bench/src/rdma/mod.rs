//! RDMA in the lab: size hints, loss, slow receivers, time-outs, and figures beside those of other programs.
//!
//! The program `rdma` (`bench/src/bin/rdma`) measures on a machine that has two devices; here are what it found and what is
//! shown of it. Starts nothing.

pub mod record;
pub mod report;
