//! `cargo xtask experiment two-hop`: hosts with slow links, and what reductions take on them.

use crate::command::{Interrupts, cargo, line, root, target};
use crate::error::{Result, XtaskError};
use crate::lab::{self, Up};
use crate::say::say;
use crate::setup;
use crate::system::Rights;
use spmd_lab::netns::Link;
use std::process::Command;

/// Twelve hosts of eight ranks. At 100 Mbit/s two cores just keep up with all links at work both ways.
fn hosts() -> Up {
    Up { hosts: 12, slots: 8, name: "two-hop".into(), user: None, link: Some(Link { mbit: 100, queue: 100 }) }
}

pub(crate) fn run(options: &[String]) -> Result<()> {
    if options.iter().any(|option| option == "--show") {
        let reason = "--show needs no hosts: target/release/two-hop --show --record docs/two-hop.json";
        return Err(XtaskError::Usage(reason.into()));
    }
    setup::run()?;
    let interrupts = Interrupts::catch()?;
    say!("experiment: building rsrun and the measuring program");
    interrupts.run(&mut cargo(&["build", "--release", "--package", "rsrun", "--package", "rsbench"]))?;
    let up = hosts();
    say!("experiment: bringing up {} hosts with slow links", up.hosts);
    // A run of its own: what another one measured does not count.
    let record = root().join("docs/two-hop.json");
    if record.exists() {
        std::fs::remove_file(&record).map_err(|source| XtaskError::Usage(format!("{}: {source}", record.display())))?;
    }
    let lab = lab::raise(&up, Rights::of_caller() == Rights::Root)?;
    let mut command = Command::new(target().join("release/two-hop"));
    command.arg("--hostfile").arg(lab.hostfile());
    command.args(["--width", &up.slots.to_string()]);
    if let Some(link) = up.link {
        command.args(["--queue", &link.queue.to_string()]);
    }
    command.args(["--plot", "docs/two-hop.svg", "--record"]).arg(record).args(options);
    say!("experiment: {}", line(&command));
    let result = interrupts.run(command.current_dir(root()));
    lab::down(&up.name)?;
    result
}
