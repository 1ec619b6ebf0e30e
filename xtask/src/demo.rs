//! `cargo xtask demo`: eight ranks on three hosts of this machine, or on this machine alone when it has to be.

use crate::command::{Interrupts, cargo, line, root, target};
use crate::error::Result;
use crate::lab::{self, Up};
use crate::say::say;
use crate::setup;
use crate::system::Rights;
use spmd_lab::netns::{self, Lab};
use spmd_lab::programs::BUILD;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

const RANKS: &str = "8";

pub(crate) fn run() -> Result<ExitCode> {
    setup::run()?;
    let interrupts = Interrupts::catch()?;
    say!("demo: building rsrun and the examples");
    interrupts.run(cargo(BUILD).arg("--release"))?;

    // Three slots a host, so that eight ranks need all three.
    let up = Up { hosts: 3, slots: 3, name: "demo".into(), user: None, link: None };
    let raised = Lab::open(&lab::folder(&up.name))?.filter(Lab::is_whole);
    let rights = Rights::of_caller();
    let lab = match (raised, rights) {
        (Some(lab), _) => lab,
        (None, Rights::None) => {
            say!("demo: making hosts needs the rights of root. An administrator can run, once:\n");
            say!("    {}\n", up.for_administrator());
            return alone(&interrupts);
        }
        (None, Rights::Root) if netns::check_rights().is_err() => {
            say!("demo: root may not make namespaces here. In a container, start it with more rights:\n");
            say!("    docker run --privileged …\n");
            return alone(&interrupts);
        }
        (None, rights) => {
            say!("demo: bringing up three hosts");
            lab::raise(&up, rights == Rights::Root)?
        }
    };
    let result = on_hosts(&interrupts, &lab);
    // A lab that an administrator made stays for the next time.
    if rights == Rights::None {
        say!("demo: leaving the lab '{}' up", up.name);
    } else {
        lab::down(&up.name)?;
    }
    result?;
    say!("demo: done. `cargo xtask lab netns up 3` makes hosts to try your own program on");
    Ok(ExitCode::SUCCESS)
}

fn on_hosts(interrupts: &Interrupts, lab: &Lab) -> Result<()> {
    for host in lab.hosts() {
        say!("    {:<8} {}", host.name, host.address);
    }
    let hostfile = short(lab.hostfile());
    let mut command = Command::new(program("rsrun"));
    command.args(["-n", RANKS, "-hostfile"]).arg(hostfile).arg(program("examples/train")).current_dir(root());
    say!("demo: {}", line(&command));
    interrupts.run(&mut command)
}

fn alone(interrupts: &Interrupts) -> Result<ExitCode> {
    let mut command = Command::new(program("rsrun"));
    command.args(["-n", RANKS, "-host"]).arg(format!("localhost:{RANKS}")).arg(program("examples/train"));
    say!("demo: on this machine alone, over shared memory: {}", line(&command));
    interrupts.run(command.current_dir(root()))?;
    Ok(ExitCode::SUCCESS)
}

fn program(name: &str) -> PathBuf {
    short(target().join("release").join(name))
}

/// A path as a person in the repository's root would type it.
fn short(path: PathBuf) -> PathBuf {
    path.strip_prefix(root()).map(ToOwned::to_owned).unwrap_or(path)
}
