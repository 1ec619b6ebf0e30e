//! Hosts as pictures: packages, NUMA domains, caches, cores, devices, and which rank sits where.
//!
//! Pure: a view of the job in, text or SVG out.

mod scene;
pub mod svg;
pub mod terminal;
