//! `cargo xtask peers setup`: other libraries for `rsbench` to measure, and its program `rsbench-mpi` built against each.
//!
//! How a peer is started and with which settings is `bench/src/peers.rs`, by the same names.

use crate::command::{Interrupts, cargo, line, target};
use crate::error::{Result, XtaskError};
use crate::packages::PEER_PACKAGES;
use crate::say::say;
use crate::setup;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// A library.
struct Peer {
    name: &'static str,
    origin: Origin,
}

enum Origin {
    /// The distribution's, with the name of its compiler in `PATH`.
    System(&'static str),
    /// Python packages, with `mpicc` in the environment's `bin`.
    Python(&'static [&'static str]),
}

const PEERS: &[Peer] = &[
    Peer { name: "openmpi", origin: Origin::System("mpicc.openmpi") },
    Peer { name: "mpich", origin: Origin::System("mpicc.mpich") },
    Peer { name: "openmpi5", origin: Origin::Python(&["openmpi==5.*"]) },
    Peer { name: "mpich5", origin: Origin::Python(&["mpich==5.*"]) },
    Peer { name: "intel", origin: Origin::Python(&["impi-rt", "impi-devel"]) },
];

/// Installs and builds these peers, or all.
pub(crate) fn setup(names: &[String]) -> Result<ExitCode> {
    if let Some(unknown) = names.iter().find(|name| PEERS.iter().all(|peer| peer.name != **name)) {
        let known: Vec<&str> = PEERS.iter().map(|peer| peer.name).collect();
        return Err(XtaskError::Usage(format!("no peer '{unknown}'; there are {}", known.join(", "))));
    }
    setup::run()?;
    setup::install(PEER_PACKAGES)?;
    let interrupts = Interrupts::catch()?;
    let folder = folder();
    let mut failed = Vec::new();
    for peer in PEERS.iter().filter(|peer| names.is_empty() || names.iter().any(|name| name == peer.name)) {
        say!("\npeers: {}", peer.name);
        match install(peer, &folder.join(peer.name), &interrupts)
            .and_then(|mpicc| build(peer, &mpicc, &folder, &interrupts))
        {
            Ok(()) => {}
            Err(error @ XtaskError::Interrupted(_)) => return Err(error),
            Err(error) => {
                say!("peers: {} cannot be had: {error}", peer.name);
                failed.push(peer.name);
            }
        }
    }
    if failed.is_empty() {
        say!("\npeers: ready. cargo build --release -p rsrun -p rsbench && target/release/rsbench latency --peer all");
        return Ok(ExitCode::SUCCESS);
    }
    say!("\npeers: without {}", failed.join(", "));
    Ok(ExitCode::FAILURE)
}

/// Where `rsbench` looks for peers.
fn folder() -> PathBuf {
    target().join("peers")
}

/// Makes the library available; the path of its compiler.
fn install(peer: &Peer, own: &Path, interrupts: &Interrupts) -> Result<PathBuf> {
    let packages = match peer.origin {
        Origin::System(mpicc) => return Ok(mpicc.into()),
        Origin::Python(packages) => packages,
    };
    // One environment for each: their files have the same names.
    let python = own.join("python");
    let mpicc = python.join("bin/mpicc");
    if !mpicc.is_file() {
        interrupts.run(Command::new("python3").args(["-m", "venv"]).arg(&python))?;
        let mut pip = Command::new(python.join("bin/pip"));
        pip.args(["install", "--quiet", "--disable-pip-version-check"]).args(packages);
        say!("peers: {}", line(&pip));
        interrupts.run(&mut pip)?;
    }
    Ok(mpicc)
}

/// Builds the program and puts it where `rsbench` looks for it.
fn build(peer: &Peer, mpicc: &Path, folder: &Path, interrupts: &Interrupts) -> Result<()> {
    // One build folder for all: only what knows the MPI is built again for each. Its build scripts do not notice that
    // another MPICC was chosen, so that what they made has to go.
    let build = folder.join("build");
    let mut clean = cargo(&["clean", "--quiet", "--release", "--package", "mpi-sys", "--package", "mpi"]);
    let mut program =
        cargo(&["build", "--quiet", "--release", "--package", "rsbench", "--features", "mpi", "--bin", "rsbench-mpi"]);
    program.env("MPICC", mpicc);
    if peer.name == "intel" {
        // Its compiler is a script that must be told where it is.
        program.env("I_MPI_ROOT", folder.join(peer.name).join("python"));
    }
    for command in [&mut clean, &mut program] {
        command.env("CARGO_TARGET_DIR", &build);
    }
    interrupts.run(&mut clean)?;
    say!("peers: MPICC={} {}", mpicc.display(), line(&program));
    interrupts.run(&mut program)?;
    let own = folder.join(peer.name);
    let copy = std::fs::create_dir_all(&own)
        .and_then(|()| std::fs::copy(build.join("release/rsbench-mpi"), own.join("rsbench-mpi")));
    copy.map(drop).map_err(|source| XtaskError::Start { command: format!("copy to {}", own.display()), source })
}
