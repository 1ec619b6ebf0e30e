//! `rsbench`: the command line. Started by `rsrun` it is a rank and measures; started by hand it starts the ranks of every
//! library that takes part, in turn.

#![deny(clippy::print_stdout, clippy::print_stderr, reason = "they panic when nobody reads: see `output`")]

mod cli;
mod progress;

use clap::Parser;
use cli::{Arguments, Command, Comparison, Options, Tuning};
use progress::Progress;
use rsbench::hosts::Hosts;
use rsbench::measure::{Plan, Transport};
use rsbench::peers::{self, Installed, PEERS};
use rsbench::port::{Failure, own::Own};
use rsbench::rank::{Event, Library};
use rsbench::record::{Record, Run, SCHEMA};
use rsbench::report::{plot, text};
use rsbench::{archive, driver};
use rsbench::{file, output};
use spmd::config::keys::TRANSPORT_ALLOW;
use spmd::prelude::*;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Rank { plan } => as_rank_of_driver(&plan),
        Command::Leash { parent, program } => driver::leash(parent, &program).map(|never| match never {}),
        Command::Compare(comparison) => compare(&comparison),
        Command::Tune(tuning) => tune(&tuning),
        Command::Peers { peers_folder } => list_peers(&peers_folder.unwrap_or_else(peers::default_folder)),
        Command::Show { file, json, plot } => show(&file, json, plot.as_ref()),
        command => match command.measurement() {
            Some((plan, options)) if std::env::var_os(spmd::bootstrap::messages::BOOT_FD_VARIABLE).is_some() => {
                as_rank(plan, &options)
            }
            Some((plan, options)) => drive(plan, &options),
            None => Ok(ExitCode::FAILURE),
        },
    };
    output::end("rsbench", done)
}

/// A rank of a job that is tuned.
fn tune(tuning: &Tuning) -> Result<ExitCode, Failure> {
    let world = World::init()?;
    if world.rank() == 0 {
        file::check(&tuning.output)?;
    }
    let (sizes, rounds) = tuning.plan();
    let Some(found) = rsbench::tune::collectives(&world.communicator(), &sizes, rounds)? else {
        return Ok(ExitCode::SUCCESS);
    };
    output::note(found.report.trim_end());
    let text = format!("# rsbench tune collectives, {} ranks\n{}", world.communicator().size(), found.table);
    match &tuning.output {
        None => output::text(text)?,
        Some(path) => file::write(path, &text)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// A rank that the driver has started: its plan comes as JSON, and so goes its run.
fn as_rank_of_driver(plan: &str) -> Result<ExitCode, Failure> {
    let plan: Plan =
        serde_json::from_str(plan).map_err(|error| format!("rank takes a plan from rsbench itself: {error}"))?;
    if let Some(run) = measure(plan, None, |_, _| {})? {
        output::line(format_args!("{}{}", rsbench::MARKER, serde_json::to_string(&run)?))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A rank that a person has started through `rsrun`.
fn as_rank(plan: Plan, options: &Options) -> Result<ExitCode, Failure> {
    if let Some(option) = options.first_for_driver() {
        return Err(format!("{option} is for rsbench without rsrun: there it starts the ranks itself").into());
    }
    let (time, table) = (now(), !options.json);
    let progress = Progress::new();
    // The other ranks count on this one, whether somebody reads or not.
    let mut shown = Ok(());
    let mut show = |text: String| {
        if shown.is_ok() {
            shown = output::text(text);
        }
    };
    let run = measure(plan.clone(), options.plot.as_ref(), |plan, event| match event {
        Event::Begun(run) if table => show(text::head(plan, run)),
        Event::Size(bytes) => progress.show(&rsbench::sizes::text(bytes)),
        Event::Row(row) => {
            progress.clear();
            if table {
                show(text::row(row));
            }
        }
        Event::Begun(_) => {}
    })?;
    shown?;
    let Some(run) = run else { return Ok(ExitCode::SUCCESS) };
    let record = finish(time, plan, vec![run]);
    if options.json {
        output::line(serde_json::to_string(&record)?)?;
    }
    // On the host of rank 0, which may not be where the job was started: only where that is asked for.
    keep(&record, options, options.archive.clone())?;
    Ok(ExitCode::SUCCESS)
}

/// `plot`: what rank 0 is to draw afterwards.
fn measure(
    mut plan: Plan,
    plot: Option<&PathBuf>,
    mut tell: impl FnMut(&Plan, Event<'_>),
) -> Result<Option<Run>, Failure> {
    let world = World::init()?;
    if world.rank() == 0 {
        file::check(plot)?;
    }
    let snapshot = world.snapshot();
    if !snapshot.get(TRANSPORT_ALLOW).contains("shm") {
        plan.transport = Some(Transport::Tcp);
    }
    let set = snapshot.entries().iter().filter(|entry| entry.source != spmd::config::Source::Default);
    let library = Library {
        name: driver::OWN.into(),
        version: env!("CARGO_PKG_VERSION").into(),
        settings: set.map(|entry| (entry.key.clone(), entry.value.to_string())).collect(),
    };
    let mut port = Own::new(world.communicator());
    rsbench::rank::run(&mut port, &plan, library, |event| tell(&plan, event))
}

/// Starts the ranks of every library in turn.
fn drive(plan: Plan, options: &Options) -> Result<ExitCode, Failure> {
    let ranks = options.ranks.unwrap_or(2);
    rsbench::patterns::fits(plan.pattern, ranks)?;
    file::check(&options.plot)?;
    let folder = options.peers_folder.clone().unwrap_or_else(peers::default_folder);
    let peers = chosen(&options.peers, &folder)?;
    let time = now();
    // The other launchers' hostfiles and their way to connect, as long as they run.
    let files = options.hosts.is_some().then(beside_this_program).transpose()?;
    let hosts = match (&options.hosts, &files) {
        (Some(file), Some(folder)) => Some(Hosts::new(file, folder.path())?),
        _ => None,
    };
    let job = driver::Job {
        ranks,
        hosts,
        plan,
        turns: options.turns.unwrap_or(if peers.is_empty() { 1 } else { 5 }) as usize,
        peers,
        options: options.rsrun.iter().flat_map(|words| words.split_whitespace().map(Into::into)).collect(),
        limit: Duration::from_secs(options.limit),
    };
    let progress = Progress::new();
    let runs = driver::run(
        &job,
        |what| progress.show(what),
        |what| {
            progress.clear();
            output::note(format_args!("rsbench: {what}"));
        },
    );
    progress.clear();
    let record = finish(time, job.plan, runs?);
    let shown =
        if options.json { output::line(serde_json::to_string(&record)?) } else { output::text(text::record(&record)) };
    // What has taken its time is kept also when nobody has read to the end.
    let archive = if options.no_archive { None } else { options.archive.clone().or_else(archive::default_folder) };
    keep(&record, options, archive)?;
    shown.map(|()| ExitCode::SUCCESS)
}

/// A folder that every host sees as it sees this program, which `/tmp` need not be.
fn beside_this_program() -> Result<tempfile::TempDir, Failure> {
    let own = std::env::current_exe()?;
    let folder = own.parent().ok_or("this program lies in no folder")?;
    let made = tempfile::Builder::new().prefix("rsbench-hosts-").tempdir_in(folder);
    made.map_err(|error| format!("a folder for other launchers in {}: {error}", folder.display()).into())
}

/// The peers that were asked for; `all` takes those that are there.
fn chosen(names: &[String], folder: &Path) -> Result<Vec<Installed>, Failure> {
    let mut chosen: Vec<Installed> = Vec::new();
    let mut add = |peer: Installed| {
        if chosen.iter().all(|other| other.peer.name != peer.peer.name) {
            chosen.push(peer);
        }
    };
    for name in names {
        if name == "all" {
            for peer in PEERS {
                match peer.find(folder) {
                    Ok(found) => add(found),
                    Err(missing) => {
                        let name = peer.name;
                        output::note(format_args!("rsbench: without {name}: {missing} (cargo xtask peers setup)"));
                    }
                }
            }
            continue;
        }
        let peer = PEERS.iter().find(|peer| peer.name == name).ok_or_else(|| {
            let known: Vec<&str> = PEERS.iter().map(|peer| peer.name).collect();
            format!("no peer '{name}'; there are {} and all", known.join(", "))
        })?;
        add(peer
            .find(folder)
            .map_err(|missing| format!("{name} is not installed: {missing} (cargo xtask peers setup)"))?);
    }
    Ok(chosen)
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

fn finish(time: u64, plan: Plan, runs: Vec<Run>) -> Record {
    Record {
        schema: SCHEMA,
        time,
        command: std::env::args().collect(),
        revision: archive::revision(),
        machine: archive::this_machine(),
        plan,
        runs,
    }
}

/// Draws and stores a record.
fn keep(record: &Record, options: &Options, folder: Option<PathBuf>) -> Result<(), Failure> {
    if let Some(path) = &options.plot {
        draw(record, path)?;
    }
    if let Some(folder) = folder {
        match archive::store(&folder, record) {
            Ok(path) => output::note(format_args!("rsbench: kept as {}", path.display())),
            // What was measured has been shown; only a folder that was asked for is worth failing for.
            Err(error) if options.archive.is_some() => return Err(error),
            Err(error) => output::note(format_args!("rsbench: not kept: {error} (--archive DIR, or --no-archive)")),
        }
    }
    Ok(())
}

fn draw(record: &Record, path: &Path) -> Result<(), Failure> {
    Ok(file::write(path, &plot::svg(record)?)?)
}

fn show(file: &Path, json: bool, plot: Option<&PathBuf>) -> Result<ExitCode, Failure> {
    let record = archive::load(file)?;
    plot.map_or(Ok(()), |path| draw(&record, path))?;
    if json {
        output::line(serde_json::to_string_pretty(&record)?)?;
    } else {
        output::line(format_args!(
            "{} on {} ({}, Linux {}, processors {}){}",
            record.command.join(" "),
            record.machine.host,
            record.machine.processor,
            record.machine.kernel,
            record.machine.processors,
            record.revision.as_ref().map_or(String::new(), |revision| format!(", revision {revision}")),
        ))?;
        output::text(text::record(&record))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn compare(comparison: &Comparison) -> Result<ExitCode, Failure> {
    let rows = archive::compare(&archive::load(&comparison.a)?, &archive::load(&comparison.b)?)?;
    if comparison.json {
        output::line(serde_json::to_string(&rows)?)?;
    } else {
        output::text(text::compared(&rows))?;
    }
    let Some(limit) = comparison.fail_above else { return Ok(ExitCode::SUCCESS) };
    let failed: Vec<_> = rows.iter().filter(|row| row.fails(limit)).collect();
    for row in &failed {
        let size = rsbench::sizes::text(row.bytes);
        output::note(format_args!("rsbench: {} at {size} costs {:.2} of before", row.library, row.cost));
    }
    Ok(if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(3) })
}

fn list_peers(folder: &Path) -> Result<ExitCode, Failure> {
    for peer in PEERS {
        let state = match peer.find(folder) {
            Ok(_) => "ready".to_owned(),
            Err(missing) => format!("missing: {missing}"),
        };
        output::line(format_args!("{:<10} {:<58} {state}", peer.name, peer.about))?;
    }
    output::line("\nto install what is missing: cargo xtask peers setup")?;
    Ok(ExitCode::SUCCESS)
}
