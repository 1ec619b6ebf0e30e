//! Two hops against flat algorithms and against other libraries, on hosts whose links are the bottleneck.
//!
//! The program `two-hop` (`bench/src/bin/two_hop.rs`) measures; here are the ways to reduce, the times, and what is
//! shown of them. Starts nothing.

pub mod calibrate;
pub mod cases;
pub mod constants;
pub mod predict;
pub mod record;
pub mod report;
