//! `rsbench-mpi`: a measuring rank over an MPI. `rsbench` starts it through the MPI's own launcher.
//!
//!     mpirun -n 2 rsbench-mpi '{"pattern":"latency","sizes":[8], …}'

#![deny(clippy::print_stdout, clippy::print_stderr, reason = "they panic when nobody reads: see `output`")]

use rsbench::output;
use rsbench::port::{Failure, mpi::Mpi};
use rsbench::rank::{self, Library};
use std::process::ExitCode;

fn main() -> ExitCode {
    output::end("rsbench-mpi", run().map(|()| ExitCode::SUCCESS))
}

fn run() -> Result<(), Failure> {
    let usage = "rsbench-mpi PLAN: a plan as JSON, as rsbench gives it";
    let plan = serde_json::from_str(&std::env::args().nth(1).ok_or(usage)?)?;
    let mut port = Mpi::start()?;
    let library = Library { version: Mpi::version(), ..Library::default() };
    if let Some(run) = rank::run(&mut port, &plan, library, |_| {})? {
        output::line(format_args!("{}{}", rsbench::MARKER, serde_json::to_string(&run)?))?;
    }
    Ok(())
}
