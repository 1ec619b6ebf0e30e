//! `cargo xtask lab vm`: machines with RDMA, from the command line.

use crate::command::{Interrupts, root, target};
use crate::error::{Result, XtaskError};
use crate::lab::{check_folder_name, folder};
use crate::say::say;
use crate::setup;
use lexopt::prelude::*;
use signal_hook::consts::SIGPIPE;
use spmd_lab::folder::{names, remove_remains};
use spmd_lab::vm::{self, Copied, Job, Lab, Plan};
use std::io::{stderr, stdout};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The folder of labs of machines, among the labs of hosts.
pub(crate) const KIND: &str = "vm";
/// The lab that `up` makes unless told another name.
const DEFAULT_NAME: &str = "vm";
/// How long a command has to end after an interrupt before it is killed.
const GRACE: Duration = Duration::from_secs(10);

/// What `lab vm` was asked for.
#[derive(Debug)]
pub(crate) enum Task {
    Up { machines: usize, name: String },
    Run { command: String, machine: usize, name: String },
    Status,
    Down { name: String },
}

/// Reads what follows `lab vm`; `None` asks for help.
pub(crate) fn parse(parser: &mut lexopt::Parser) -> Result<Option<Task>> {
    let Some(Value(verb)) = parser.next()? else { return Ok(None) };
    let verb = verb.string()?;
    let mut name = DEFAULT_NAME.to_owned();
    let mut machine = 1;
    let mut words = Vec::new();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("name") => name = parser.value()?.string()?,
            Long("machine") if verb == "run" => machine = parser.value()?.parse()?,
            Long("help") | Short('h') => return Ok(None),
            Value(word) => words.push(word.string()?),
            other => return Err(other.unexpected().into()),
        }
    }
    check_folder_name(&name)?;
    if name == "kernel" {
        return Err(XtaskError::Usage("'kernel' is no name for a lab: the machines' kernel is kept there".into()));
    }
    let no_words = || match words.first() {
        Some(word) => Err(XtaskError::Usage(format!("'lab vm {verb}' takes no '{word}'"))),
        None => Ok(()),
    };
    match (verb.as_str(), &words[..]) {
        ("up", [number]) => {
            let machines =
                number.parse().map_err(|_| XtaskError::Usage(format!("how many machines? '{number}' is no number")))?;
            Ok(Some(Task::Up { machines, name }))
        }
        ("up", _) => Err(XtaskError::Usage("how many machines? for example: lab vm up 2".into())),
        ("run", [command]) => Ok(Some(Task::Run { command: command.clone(), machine, name })),
        ("run", _) => Err(XtaskError::Usage("one command for the shell, in quotes: lab vm run 'rdma link'".into())),
        ("status", _) => no_words().map(|()| Some(Task::Status)),
        ("down", _) => no_words().map(|()| Some(Task::Down { name })),
        ("help", _) => Ok(None),
        _ => Err(XtaskError::Usage(format!("'lab vm {verb}': there are up, run, status and down"))),
    }
}

impl Task {
    pub(crate) fn run(self) -> Result<ExitCode> {
        match self {
            Self::Up { machines, name } => up(machines, &name)?,
            Self::Run { command, machine, name } => return run(&command, machine, &name),
            Self::Status => status()?,
            Self::Down { name } => down(&name)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn of(name: &str) -> PathBuf {
    folder(KIND).join(name)
}

/// What a lab of machines is made of.
pub(crate) fn plan(machines: usize, name: &str) -> Result<Plan> {
    let mut plan = Plan { machines, ..Plan::new(of(name), root()) };
    if vm::check().is_err() {
        setup::run()?;
    }
    if !target().starts_with(root()) {
        std::fs::create_dir_all(target()).map_err(|source| spmd_lab::LabError::File { path: target(), source })?;
        plan.trees.push(target());
    }
    Ok(plan)
}

fn up(machines: usize, name: &str) -> Result<()> {
    let (lab, fresh) = vm::up(&plan(machines, name)?)?;
    if !fresh {
        say!("lab: '{name}' is up already");
    }
    print_use(&lab);
    Ok(())
}

/// The lab of this name, whole.
fn find(name: &str) -> Result<Lab> {
    let missing = || XtaskError::Usage(format!("no machines are up under the name '{name}': cargo xtask lab vm up 1"));
    let lab = Lab::open(&of(name))?.ok_or_else(missing)?;
    if lab.is_whole() {
        return Ok(lab);
    }
    let dead: Vec<String> = lab.machines().into_iter().filter(|m| !m.is_up()).map(|m| m.name).collect();
    Err(XtaskError::Usage(format!(
        "of '{name}' {} is dead: cargo xtask lab vm up {}",
        dead.join(", "),
        lab.machines().len()
    )))
}

/// Runs a command on a machine; its exit code is ours.
fn run(command: &str, machine: usize, name: &str) -> Result<ExitCode> {
    let lab = find(name)?;
    let machines = lab.machines();
    let machine = machine.checked_sub(1).and_then(|index| machines.get(index)).ok_or_else(|| {
        XtaskError::Usage(format!("there is no machine {machine}: '{name}' has 1 to {}", machines.len()))
    })?;
    let interrupts = Interrupts::catch()?;
    let directory = std::env::current_dir().unwrap_or_else(|_| root());
    let mut job = Job::start(machine, command, &directory)?;
    // Duplicates, so that nothing is buffered between the machine and whoever reads.
    let copied = |stream: std::os::fd::BorrowedFd<'_>| {
        let stream = stream.try_clone_to_owned();
        stream
            .map(|stream| Copied::to(stream.into()))
            .map_err(|source| XtaskError::Lab(spmd_lab::LabError::File { path: "standard output".into(), source }))
    };
    let (mut out, mut err) = (copied(stdout().as_fd())?, copied(stderr().as_fd())?);
    let mut stopped = None;
    loop {
        let code = job.exit_code()?;
        let copied = job.copy_output(&mut out, &mut err);
        // Nobody reads any more: that stops the command like any interrupt.
        if interrupts.signal() != Some(SIGPIPE) {
            copied?;
        }
        match (code, interrupts.signal(), stopped) {
            (_, Some(signal), None) => {
                job.signal("TERM")?;
                stopped = Some((signal, Instant::now()));
            }
            // Dropping the job kills what is left of it.
            (code, _, Some((signal, since))) if code.is_some() || since.elapsed() > GRACE => {
                return Err(XtaskError::Interrupted(signal));
            }
            (Some(code), ..) => return Ok(ExitCode::from(code)),
            _ => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

fn down(name: &str) -> Result<()> {
    let Some(lab) = Lab::open(&of(name))? else {
        let had = remove_remains(&of(name))?;
        say!("lab: '{name}' is not up{}", if had { "; removed what was left of it" } else { "" });
        return Ok(());
    };
    let machines = lab.machines().len();
    lab.down()?;
    say!("lab: '{name}' is down (machines: {machines})");
    Ok(())
}

fn status() -> Result<()> {
    let mut some = false;
    for name in names(&folder(KIND)) {
        let Some(lab) = Lab::open(&of(&name))? else { continue };
        some = true;
        print_use(&lab);
    }
    if !some {
        say!("lab: no machines are up; cargo xtask lab vm up 2 makes two");
    }
    Ok(())
}

fn print_use(lab: &Lab) {
    let name = lab.name();
    say!("lab '{name}', machines with RDMA:");
    let machines = lab.machines();
    for machine in &machines {
        let state = if machine.is_up() { "up" } else { "DEAD: take the lab down" };
        let second = if machines.len() == 1 { ", 10.88.0.2 on a second device" } else { "" };
        say!("    {:<6} {:<11} {state}{second}", machine.name, machine.address);
    }
    let option = if name == DEFAULT_NAME { String::new() } else { format!(" --name {name}") };
    let hosts = lab.hostfile();
    let hosts = hosts.strip_prefix(root()).unwrap_or(&hosts).display();
    say!("  cargo xtask lab vm run{option} 'ibv_devinfo'");
    say!(
        "  cargo xtask lab vm run{option} 'target/release/rsrun -n 8 -hostfile {hosts} target/release/examples/train'"
    );
    say!("  cargo xtask lab vm down{option}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<Option<Task>> {
        parse(&mut lexopt::Parser::from_args(words))
    }

    #[test]
    fn a_command_is_one_word_for_the_shell_and_may_begin_with_anything() {
        let task = parsed(&["run", "--machine", "2", "rdma link; exit 3"]).expect("it parses");
        assert!(matches!(task, Some(Task::Run { command, machine: 2, .. }) if command == "rdma link; exit 3"));
        let error = parsed(&["run", "rdma", "link"]).expect_err("two words");
        assert!(error.to_string().contains("in quotes"), "{error}");
    }

    #[test]
    fn a_number_of_machines_and_a_known_verb_are_needed() {
        assert!(matches!(parsed(&["up", "2"]), Ok(Some(Task::Up { machines: 2, .. }))));
        assert!(matches!(parsed(&[]), Ok(None)));
        for (words, part) in [
            (&["up"][..], "lab vm up 2"),
            (&["up", "two"], "'two' is no number"),
            (&["status", "now"], "takes no 'now'"),
            (&["fly"], "there are up, run, status and down"),
            (&["down", "--name", "../x"], "no name for a lab"),
            (&["up", "1", "--name", "kernel"], "no name for a lab"),
        ] {
            let error = parsed(words).expect_err("it is refused");
            assert!(error.to_string().contains(part), "{error}");
        }
    }
}
