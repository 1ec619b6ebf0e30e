//! The experiment: reductions over hosts with slow links, flat and in two hops, beside Open MPI and MPICH.
//!
//! Every turn starts each of them once, in turn; a round's time is that of the rank that took longest from a barrier on.
//! `cargo xtask experiment two-hop` makes the hosts and limits their links first.

use clap::Parser;
use rsbench::experiment::cases::{CASES, Case, Library};
use rsbench::experiment::record::{Collective, Times};
use rsbench::experiment::report;
use rsbench::hosts::Hosts;
use rsbench::port::Failure;
use rsbench::sizes;
use spmd::prelude::*;
use spmd_collectives::prelude::*;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// Reductions over hosts with slow links: flat, in two hops, and those of other libraries.
#[derive(Debug, Parser)]
#[command(name = "two-hop")]
struct Options {
    /// Hosts to measure over: a hostfile of rsrun
    #[arg(long, required_unless_present = "show")]
    hostfile: Option<PathBuf>,

    /// Number of ranks
    #[arg(long, default_value_t = 96)]
    ranks: usize,

    /// Bytes of each rank
    #[arg(long, default_value = "64K,512K,4M")]
    sizes: String,

    /// How often each way to reduce has its turn
    #[arg(long, default_value_t = 3)]
    turns: usize,

    /// Rounds of each size in a turn
    #[arg(long, default_value_t = 2)]
    rounds: usize,

    /// Only the ways with one of these words in their title, as "all_reduce: flat"
    #[arg(long, value_delimiter = ';')]
    only: Vec<String>,

    /// Seconds for one of them in a turn; what takes longer is left out
    #[arg(long, default_value_t = 90)]
    limit: u64,

    /// Keep the times in this file, with those that it has already
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,

    /// Draw the medians as SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,

    /// Measure nothing, show the record
    #[arg(long, requires = "record")]
    show: bool,
}

/// What a rank of ours and one of an MPI writes in front of a time: collective, bytes, seconds.
const MARKER: &str = "two-hop:";

/// The same loop for an MPI: program COLLECTIVE ROUNDS BYTES...
const C_PROGRAM: &str = include_str!("two_hop.c");

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, word, collective, rounds, sizes @ ..] = arguments.as_slice()
        && word == "rank"
    {
        let collective = Collective::of_name(collective).ok_or("rank takes reduce or all_reduce")?;
        let sizes = sizes.iter().map(|bytes| bytes.parse()).collect::<Result<Vec<usize>, _>>()?;
        return rank(collective, rounds.parse()?, &sizes);
    }
    let options = Options::parse();
    let mut times = match &options.record {
        Some(path) if path.exists() => Times::from_text(&std::fs::read_to_string(path)?)
            .map_err(|error| format!("{}: {error}", path.display()))?,
        _ => Times::default(),
    };
    if let (Some(file), false) = (&options.hostfile, options.show) {
        // Beside this program, which every host must see anyway.
        let own = std::env::current_exe()?;
        let folder = own.with_file_name(format!("two-hop-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let result = Hosts::new(file, &folder).and_then(|hosts| measure(&options, &own, &folder, &hosts, &mut times));
        std::fs::remove_dir_all(&folder)?;
        result?;
    }
    print!("{}", report::table(&times));
    if let Some(path) = &options.plot {
        std::fs::write(path, report::svg(&times)?).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}

/// A rank of ours. Values are small whole numbers, so that every order of adding gives the same sum.
fn rank(collective: Collective, rounds: usize, sizes: &[usize]) -> Result<(), Failure> {
    let world = World::init()?;
    let comm = world.communicator();
    let (rank, size) = (comm.rank(), comm.size());
    let value = |rank: usize, index: usize| ((rank + index) % 8) as f32;
    let sums: Vec<f32> = (0..8).map(|index| (0..size).map(|rank| value(rank, index)).sum()).collect();
    for &bytes in sizes {
        let data: Vec<f32> = (0..bytes / 4).map(|index| value(rank, index)).collect();
        let mut result = vec![0.0f32; data.len()];
        // The first round makes connections and schedules; it is checked and not counted.
        for round in 0..=rounds {
            result.copy_from_slice(&data);
            comm.barrier()?;
            let begun = Instant::now();
            match collective {
                Collective::Reduce => comm.reduce_into(&data, (rank == 0).then_some(&mut result[..]), Sum, 0)?,
                Collective::AllReduce => comm.all_reduce(&mut result, Sum)?,
            }
            let took = begun.elapsed().as_secs_f64();
            if (rank == 0 || collective == Collective::AllReduce)
                && let Some(wrong) = (0..result.len()).find(|&index| result[index].to_bits() != sums[index % 8].to_bits())
            {
                return Err(format!("element {wrong} is {} instead of {}", result[wrong], sums[wrong % 8]).into());
            }
            let longest = comm.gather(&[took], 0)?.map(|all| all.into_iter().fold(0.0, f64::max));
            if let Some(longest) = longest.filter(|_| round > 0) {
                println!("{MARKER} {bytes} {longest:.6}");
            }
        }
    }
    Ok(())
}

fn measure(
    options: &Options,
    own: &Path,
    folder: &Path,
    hosts: &Hosts,
    times: &mut Times,
) -> Result<(), Failure> {
    let rsrun = own.with_file_name("rsrun");
    if !rsrun.is_file() {
        return Err(format!("{} is not there: cargo build --release -p rsrun", rsrun.display()).into());
    }
    let sizes = sizes::parse(&options.sizes)?;
    let wanted = |case: &&Case| options.only.is_empty() || options.only.iter().any(|word| case.title().contains(word));
    let mut left_out: Vec<String> = Vec::new();
    for turn in 0..options.turns {
        for case in CASES.iter().filter(wanted) {
            let sizes: Vec<usize> = sizes.iter().copied().filter(|bytes| *bytes <= case.up_to).collect();
            if left_out.contains(&case.title()) || sizes.is_empty() {
                continue;
            }
            eprintln!("turn {} of {}: {}", turn + 1, options.turns, case.title());
            let Some(start) = start(case, &rsrun, own, folder, hosts, options.ranks)? else {
                eprintln!("    left out: its launcher or compiler is not installed (cargo xtask peers setup)");
                left_out.push(case.title());
                continue;
            };
            match once(options, case, start, &sizes) {
                Ok(found) => found.into_iter().for_each(|(bytes, seconds)| times.add(case, bytes, seconds)),
                Err(error) if matches!(case.library, Library::Own(_)) => return Err(error),
                Err(error) => {
                    eprintln!("    left out: {error}");
                    left_out.push(case.title());
                }
            }
            if let Some(path) = &options.record {
                std::fs::write(path, times.to_text()).map_err(|error| format!("{}: {error}", path.display()))?;
            }
        }
    }
    Ok(())
}

/// The command that starts the ranks of a case, up to the arguments of the program; `None` where a peer is missing.
fn start(
    case: &Case,
    rsrun: &Path,
    own: &Path,
    folder: &Path,
    hosts: &Hosts,
    ranks: usize,
) -> Result<Option<Vec<OsString>>, Failure> {
    let text = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
    let n = ranks.to_string();
    let (launcher, compiler, options) = match case.library {
        Library::Own(settings) => {
            let mut command: Vec<OsString> = vec![rsrun.into()];
            command.extend(text(&["-n", &n, "-hostfile"]));
            command.push(hosts.file().into());
            settings.iter().for_each(|setting| command.extend(text(&["--set", setting])));
            command.push(own.into());
            command.push("rank".into());
            return Ok(Some(command));
        }
        Library::OpenMpi(options) => {
            let mut all = text(&["--oversubscribe", "--allow-run-as-root", "--bind-to", "none"]);
            all.extend(text(&["--mca", "pml", "ob1", "--mca", "btl", "self,vader,tcp"]));
            all.extend(text(options));
            ("mpirun.openmpi", "mpicc.openmpi", all)
        }
        Library::Mpich => ("mpiexec.hydra", "mpicc.mpich", Vec::new()),
    };
    let program = folder.join(compiler.replace('.', "-"));
    if !program.is_file() {
        let source = folder.join("two_hop.c");
        std::fs::write(&source, C_PROGRAM)?;
        let built = Command::new(compiler).arg("-O2").arg("-o").arg(&program).arg(&source).stderr(Stdio::null()).status();
        if !built.is_ok_and(|status| status.success()) {
            return Ok(None);
        }
    }
    let mut command = text(&[launcher]);
    command.extend(options);
    command.extend(hosts.options(launcher));
    command.extend(text(&["-n", &n]));
    command.push(program.into());
    Ok(Some(command))
}

/// Runs a case to its end; sizes and seconds of its rounds.
fn once(options: &Options, case: &Case, start: Vec<OsString>, sizes: &[usize]) -> Result<Vec<(usize, f64)>, Failure> {
    let mut command = Command::new("timeout");
    command.args(["--kill-after", "5", &options.limit.to_string()]).args(start);
    command.args([case.collective.name(), &options.rounds.to_string()]).args(sizes.iter().map(usize::to_string));
    let output = command.stdin(Stdio::null()).output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        let last: Vec<&str> = errors.lines().rev().filter(|line| !line.trim().is_empty()).take(5).collect();
        let reason = last.into_iter().rev().collect::<Vec<_>>().join("\n    ");
        return Err(format!("{} ({}; {} s at most)\n    {reason}", case.title(), output.status, options.limit).into());
    }
    let said = String::from_utf8_lossy(&output.stdout);
    let found: Vec<(usize, f64)> = said
        .lines()
        .filter_map(|line| {
            let mut words = line.strip_prefix(MARKER)?.split_whitespace();
            Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
        })
        .collect();
    if found.len() == sizes.len() * options.rounds {
        return Ok(found);
    }
    Err(format!("{}: {} times instead of {}", case.title(), found.len(), sizes.len() * options.rounds).into())
}
