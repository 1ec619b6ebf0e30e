//! `cargo xtask experiment hint` and its like: a machine with two RDMA devices, and what is measured on it.

use crate::command::{Interrupts, cargo, line, root, target};
use crate::error::{Result, XtaskError};
use crate::say::say;
use crate::vm::plan;
use spmd_lab::LabError;
use spmd_lab::vm::{self, Copied, Job, Lab, Plan};
use std::fs::{self, File};
use std::io::stderr;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The experiments of the program `rdma`.
pub(crate) const NAMES: [&str; 5] = ["hint", "loss", "slow-receiver", "timeout", "figures"];
/// The lab that is made for them.
const LAB: &str = "experiment";
/// Where their records and pictures are, and the page with their tables, from the root.
const FOLDER: &str = "docs/rdma";
const PAGE: &str = "docs/rdma.md";

/// Measures, and writes the record, the picture and the tables of the page.
pub(crate) fn run(name: &str, options: &[String]) -> Result<()> {
    let interrupts = Interrupts::catch()?;
    say!("experiment: building rsrun and the measuring program");
    interrupts.run(&mut cargo(&["build", "--release", "--package", "rsrun", "--package", "rsbench"]))?;
    // The machine ends with this program, however that ends.
    let (lab, _) = vm::up(&Plan { tied: true, ..plan(1, LAB)? })?;
    let program = target().join("release/rdma");
    let record = root().join(FOLDER).join(format!("{name}.json"));
    let measured = measure(&lab, &interrupts, &program, name, options, &record);
    lab.down()?;
    measured?;
    let mut show = Command::new(&program);
    show.arg(name).arg("--show").arg(&record).args(["--page", PAGE]);
    show.arg("--plot").arg(record.with_extension("svg")).current_dir(root());
    interrupts.run(&mut show)
}

fn measure(
    lab: &Lab,
    interrupts: &Interrupts,
    program: &Path,
    name: &str,
    options: &[String],
    record: &Path,
) -> Result<()> {
    let mut command = Command::new(program);
    command.arg(name).args(options);
    let command = line(&command);
    say!("experiment: {command}");
    let machines = lab.machines();
    let mut job = Job::start(&machines[0], &command, &root())?;
    let new = record.with_extension("new");
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| XtaskError::Lab(LabError::File { path, source })
    };
    fs::create_dir_all(root().join(FOLDER)).map_err(failed(record))?;
    let mut said = Copied::to(File::create(&new).map_err(failed(&new))?);
    let terminal = stderr().as_fd().try_clone_to_owned().map_err(failed(Path::new("standard error")))?;
    let mut errors = Copied::to(terminal.into());
    let code = loop {
        let code = job.exit_code()?;
        job.copy_output(&mut said, &mut errors)?;
        match (code, interrupts.signal()) {
            (_, Some(signal)) => {
                let _ = fs::remove_file(&new);
                return Err(XtaskError::Interrupted(signal));
            }
            (Some(code), None) => break code,
            (None, None) => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    if code != 0 {
        let _ = fs::remove_file(&new);
        return Err(XtaskError::Usage(format!("{command} ended with {code} on the machine")));
    }
    fs::rename(&new, record).map_err(failed(record))
}
