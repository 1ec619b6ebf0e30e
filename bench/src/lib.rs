//! `rsbench`: what two or more ranks reach, next to the floor of the machine and to other libraries.
//!
//! In the manner of perftest and the OSU benchmarks: warm-up rounds, then measured ones, and the whole distribution (P50,
//! P99, P99.9, worst) instead of a mean. The loops are generic over a [`port`], so that this project's library and an MPI
//! do the identical thing; a measuring [`rank`] runs them, and the program around it starts the ranks of every library in
//! turn. Knows only the public interface of the runtime.

#![deny(clippy::print_stdout, clippy::print_stderr, reason = "they panic when nobody reads: see `output`")]

pub mod archive;
pub mod driver;
pub mod experiment;
pub mod file;
pub mod floors;
pub mod hosts;
pub mod measure;
pub mod output;
pub mod patterns;
pub mod peers;
pub mod port;
pub mod rank;
pub mod rdma;
pub mod record;
pub mod report;
pub mod sizes;
pub mod tune;
pub mod turns;

/// What rank 0 of a run that was started by the driver writes in front of its [`record::Run`], on a line of its own:
/// launchers and libraries may say things, too.
pub const MARKER: &str = "rsbench-run: ";
