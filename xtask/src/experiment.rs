//! `cargo xtask experiment two-hop`: hosts with slow links, and what reductions take on them.

use crate::command::{Interrupts, cargo, line, root, target};
use crate::error::Result;
use crate::lab::{self, Up};
use crate::setup;
use crate::system::Rights;
use spmd_lab::netns::Link;
use std::process::Command;

/// Twelve hosts of eight ranks. 200 Mbit/s are little enough that twelve such links keep two cores less than half busy.
fn hosts() -> Up {
    Up {
        hosts: 12,
        slots: 8,
        name: "two-hop".into(),
        user: None,
        link: Some(Link { mbit: 200, queue: 100 }),
    }
}

pub(crate) fn run(options: &[String]) -> Result<()> {
    setup::run()?;
    let interrupts = Interrupts::catch()?;
    println!("experiment: building rsrun and the measuring program");
    interrupts.run(&mut cargo(&["build", "--release", "--package", "rsrun", "--package", "rsbench"]))?;
    let up = hosts();
    println!("experiment: bringing up {} hosts with slow links", up.hosts);
    let lab = lab::raise(&up, Rights::of_caller() == Rights::Root)?;
    let mut command = Command::new(target().join("release/two-hop"));
    command.arg("--hostfile").arg(lab.hostfile()).arg("--plot").arg("docs/two-hop.svg").args(options);
    println!("experiment: {}", line(&command));
    let result = interrupts.run(command.current_dir(root()));
    lab::down(&up.name)?;
    result
}
