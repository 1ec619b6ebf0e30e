//! `cargo xtask`: what a person types on a fresh clone. It installs what is missing, then builds and runs.
//!
//! It must build within seconds from few crates, and knows the rest of the project only by the commands it runs.

#![deny(clippy::print_stdout, clippy::print_stderr, reason = "they panic when nobody reads: see `say`")]

mod command;
mod demo;
mod device;
mod ends;
mod error;
mod experiment;
mod fuzz;
mod help;
mod lab;
mod nvrtc;
mod packages;
mod peers;
mod rdma;
mod say;
mod setup;
mod system;
mod test;
mod vm;

use error::{Result, XtaskError};
use lexopt::prelude::*;
use say::say;
use signal_hook::consts::SIGPIPE;
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    match parse(lexopt::Parser::from_env()).and_then(Task::run) {
        Ok(code) => code,
        Err(error) => {
            if !matches!(error, XtaskError::Interrupted(SIGPIPE)) {
                let _ = writeln!(std::io::stderr(), "xtask: {error}");
            }
            ExitCode::from(error.exit_code())
        }
    }
}

/// What was asked for.
#[derive(Debug)]
enum Task {
    Help(&'static str),
    Setup,
    Demo,
    Test(test::Options),
    Deny,
    Device(std::path::PathBuf),
    Fuzz(fuzz::Options),
    LabUp(lab::Up),
    LabDown { name: String },
    LabStatus,
    Vm(vm::Task),
    Ends(ends::Options),
    PeersSetup(Vec<String>),
    Experiment { name: String, options: Vec<String> },
}

impl Task {
    fn run(self) -> Result<ExitCode> {
        match self {
            Self::Help(text) => say!("{}", text.trim_end()),
            Self::Setup => drop(setup::run()?),
            Self::Demo => return demo::run(),
            Self::Test(options) => return test::run(&options),
            Self::Deny => return test::deny(),
            Self::Device(folder) => device::pack(&folder)?,
            Self::Fuzz(options) => fuzz::run(&options)?,
            Self::LabUp(up) => lab::up(&up)?,
            Self::LabDown { name } => lab::down(&name)?,
            Self::LabStatus => lab::status()?,
            Self::Vm(task) => return task.run(),
            Self::Ends(options) => ends::run(&options)?,
            Self::PeersSetup(names) => return peers::setup(&names),
            Self::Experiment { name, options } if rdma::NAMES.contains(&name.as_str()) => rdma::run(&name, &options)?,
            Self::Experiment { options, .. } => experiment::run(&options)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn parse(mut parser: lexopt::Parser) -> Result<Task> {
    let Some(name) = word(&mut parser)? else { return Ok(Task::Help(help::ALL)) };
    let (task, about) = match name.as_str() {
        "help" => (Task::Help(help::ALL), help::ALL),
        "setup" => (Task::Setup, help::SETUP),
        "demo" => (Task::Demo, help::DEMO),
        "deny" => (Task::Deny, help::DENY),
        "test" => return parse_test(&mut parser),
        "device" => {
            return match word(&mut parser)?.as_deref() {
                None | Some("help") => Ok(Task::Help(help::DEVICE)),
                Some(folder) => Ok(Task::Device(folder.into())),
            };
        }
        "fuzz" => return parse_fuzz(&mut parser),
        "lab" => return parse_lab(&mut parser),
        "peers" => return parse_peers(&mut parser),
        "experiment" => return parse_experiment(&mut parser),
        other => {
            return Err(XtaskError::Usage(format!(
                "no task '{other}'; there are setup, demo, test, fuzz, peers, device, experiment, deny and lab"
            )));
        }
    };
    match word(&mut parser)?.as_deref() {
        None => Ok(task),
        Some("help") => Ok(Task::Help(about)),
        Some(other) => Err(XtaskError::Usage(format!("{name} takes no argument, not '{other}'"))),
    }
}

fn parse_test(parser: &mut lexopt::Parser) -> Result<Task> {
    let mut options = test::Options::default();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("help") | Short('h') => return Ok(Task::Help(help::TEST)),
            Long("list") => options.list = true,
            Value(step) => options.only.push(step.string()?),
            other => return Err(other.unexpected().into()),
        }
    }
    Ok(Task::Test(options))
}

/// What follows the name of the experiment is for the program that measures.
fn parse_experiment(parser: &mut lexopt::Parser) -> Result<Task> {
    let Some(name) = word(parser)?.filter(|name| name != "help") else { return Ok(Task::Help(help::EXPERIMENT)) };
    if name != "two-hop" && !rdma::NAMES.contains(&name.as_str()) {
        let others = rdma::NAMES.join(", ");
        return Err(XtaskError::Usage(format!("no experiment '{name}'; there are two-hop, {others}")));
    }
    let options = parser.raw_args()?.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>();
    if options.iter().any(|word| word == "--help" || word == "-h") {
        return Ok(Task::Help(help::EXPERIMENT));
    }
    Ok(Task::Experiment { name, options })
}

fn parse_peers(parser: &mut lexopt::Parser) -> Result<Task> {
    match word(parser)?.as_deref() {
        Some("ends") => {}
        Some("setup") => {
            let mut names = Vec::new();
            while let Some(name) = word(parser)? {
                if name == "help" {
                    return Ok(Task::Help(help::PEERS));
                }
                names.push(name);
            }
            return Ok(Task::PeersSetup(names));
        }
        None | Some("help") => return Ok(Task::Help(help::PEERS)),
        Some(other) => {
            return Err(XtaskError::Usage(format!("'peers {other}': there are 'peers setup' and 'peers ends'")));
        }
    }
    let mut options = ends::Options::default();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("runs") => options.runs = parser.value()?.parse::<usize>()?.max(1),
            Long("ranks") => {
                let list = parser.value()?.string()?;
                options.ranks = list
                    .split(',')
                    .map(|ranks| {
                        ranks.parse().map_err(|_| XtaskError::Usage(format!("--ranks {list}: for example 2,16")))
                    })
                    .collect::<Result<_>>()?;
            }
            Long("hostfile") => options.hostfile = Some(parser.value()?.into()),
            Long("help") | Short('h') => return Ok(Task::Help(help::PEERS)),
            other => return Err(other.unexpected().into()),
        }
    }
    Ok(Task::Ends(options))
}

fn parse_fuzz(parser: &mut lexopt::Parser) -> Result<Task> {
    let mut options = fuzz::Options::default();
    while let Some(argument) = word(parser)? {
        match argument.parse() {
            Ok(seconds) => options.seconds = seconds,
            Err(_) if argument == "help" => return Ok(Task::Help(help::FUZZ)),
            Err(_) => options.only = Some(argument),
        }
    }
    Ok(Task::Fuzz(options))
}

fn parse_lab(parser: &mut lexopt::Parser) -> Result<Task> {
    match word(parser)?.as_deref() {
        Some("netns") => {}
        Some(vm::KIND) => return Ok(vm::parse(parser)?.map_or(Task::Help(help::LAB), Task::Vm)),
        None | Some("help") => return Ok(Task::Help(help::LAB)),
        Some(other) => {
            return Err(XtaskError::Usage(format!("no lab '{other}'; there are 'lab netns' and 'lab vm'")));
        }
    }
    match word(parser)?.as_deref() {
        Some("up") => parse_up(parser),
        Some("down") => {
            let mut name = lab::DEFAULT_NAME.to_owned();
            while let Some(argument) = parser.next()? {
                match argument {
                    Long("name") => name = parser.value()?.string()?,
                    Long("help") | Short('h') => return Ok(Task::Help(help::LAB)),
                    other => return Err(other.unexpected().into()),
                }
            }
            Ok(Task::LabDown { name })
        }
        Some("status") => {
            if word(parser)?.is_some() {
                Ok(Task::Help(help::LAB))
            } else {
                Ok(Task::LabStatus)
            }
        }
        None | Some("help") => Ok(Task::Help(help::LAB)),
        Some(other) => Err(XtaskError::Usage(format!("'lab netns {other}': there are up, down and status"))),
    }
}

fn parse_up(parser: &mut lexopt::Parser) -> Result<Task> {
    let mut up = lab::Up::default();
    let (mut hosts, mut mbit, mut queue) = (None, None, None);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("name") => up.name = parser.value()?.string()?,
            Long("slots") => up.slots = parser.value()?.parse()?,
            Long("user") => up.user = Some(parser.value()?.string()?),
            Long("mbit") => mbit = Some(parser.value()?.parse()?),
            Long("queue") => queue = Some(parser.value()?.parse()?),
            Long("help") | Short('h') => return Ok(Task::Help(help::LAB)),
            Value(number) if hosts.is_none() => hosts = Some(number.parse()?),
            other => return Err(other.unexpected().into()),
        }
    }
    up.link = match (mbit, queue) {
        (None, Some(_)) => return Err(XtaskError::Usage("--queue is that of links with --mbit".into())),
        (None, None) => None,
        (Some(mbit), queue) => Some(spmd_lab::netns::Link { mbit, queue: queue.unwrap_or(100) }),
    };
    up.hosts = hosts.ok_or_else(|| XtaskError::Usage("how many hosts? for example: lab netns up 3".into()))?;
    Ok(Task::LabUp(up))
}

/// The next word; `--help` and `-h` read as the word `help`.
fn word(parser: &mut lexopt::Parser) -> Result<Option<String>> {
    match parser.next()? {
        None => Ok(None),
        Some(Long("help") | Short('h')) => Ok(Some("help".to_owned())),
        Some(Value(value)) => Ok(Some(value.string()?)),
        Some(other) => Err(other.unexpected().into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<Task> {
        parse(lexopt::Parser::from_args(words))
    }

    #[test]
    fn a_word_that_no_task_takes_is_an_error_and_not_ignored() {
        assert!(matches!(parsed(&["demo"]), Ok(Task::Demo)));
        assert!(matches!(parsed(&["demo", "--help"]), Ok(Task::Help(help::DEMO))));
        let error = parsed(&["demo", "4"]).expect_err("there is no such argument");
        assert_eq!(error.exit_code(), 64);
        assert!(error.to_string().contains("demo takes no argument, not '4'"), "{error}");
    }
}
