//! How long it takes to start and end a job, next to a bare start of as many processes and to other launchers.
//!
//! Every command is run once a round, all in turn, so that what else the machine does hits all of them; the medians of
//! the rounds are printed. Open MPI and MPICH take part when their compilers `mpicc.openmpi` and `mpicc.mpich` are there.
//!
//!     cargo build --release -p rsrun -p rsbench && target/release/start --ranks 2,16,96
//!
//! With `--hostfile` everything is measured over those hosts, too. The other launchers then connect with `ssh`, which is
//! given the file `ssh_config` beside the hostfile, if there is one: so does `cargo xtask lab netns up 3` write it.

#![deny(clippy::print_stdout, clippy::print_stderr, reason = "they panic when nobody reads: see `output`")]

use clap::Parser;
use rsbench::hosts::Hosts;
use rsbench::output;
use rsbench::port::Failure;
use spmd::prelude::*;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// Time of the start and end of a job, in milliseconds, and memory.
#[derive(Debug, Parser)]
#[command(name = "start")]
struct Options {
    /// Numbers of ranks
    #[arg(long, value_delimiter = ',', default_value = "1,2,16,96,256")]
    ranks: Vec<usize>,

    /// Rounds; the median of each command is printed
    #[arg(long, default_value_t = 9)]
    runs: usize,

    /// Above so many ranks the other launchers, which may take a minute there, are left out
    #[arg(long, default_value_t = 96)]
    peers_up_to: usize,

    /// Measure over these hosts, too: a hostfile of rsrun
    #[arg(long)]
    hostfile: Option<PathBuf>,
}

/// What each of them runs.
const C_PROGRAM: &str = "#include <mpi.h>\nint main(int c, char **v) { MPI_Init(&c, &v); MPI_Finalize(); return 0; }\n";

fn main() -> ExitCode {
    output::end("start", run().map(|()| ExitCode::SUCCESS))
}

fn run() -> Result<(), Failure> {
    match std::env::args().nth(1).as_deref() {
        Some("rank") => {
            World::init()?;
            return Ok(());
        }
        Some("hold") => return hold(),
        _ => {}
    }
    let options = Options::parse();
    let own = std::env::current_exe()?;
    let rsrun = own.with_file_name("rsrun");
    if !rsrun.is_file() {
        return Err(format!("{} is not there: cargo build --release -p rsrun", rsrun.display()).into());
    }
    // Beside this program, which every host must see anyway.
    let folder = own.with_file_name(format!("rsbench-start-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let hosts = options.hostfile.as_deref().map(|file| Hosts::new(file, &folder)).transpose();
    let result = hosts.and_then(|hosts| measure(&options, &rsrun, &own, &peers(&folder), hosts.as_ref()));
    std::fs::remove_dir_all(&folder)?;
    result
}

/// A rank that stays until it is ended.
fn hold() -> Result<(), Failure> {
    let world = World::init()?;
    output::line(format_args!("ready {}", world.rank()))?;
    std::thread::sleep(Duration::from_secs(120));
    Ok(())
}

/// Another launcher with its program.
struct Peer {
    name: &'static str,
    launcher: &'static str,
    options: &'static [&'static str],
    program: PathBuf,
}

fn peers(folder: &Path) -> Vec<Peer> {
    let source = folder.join("init.c");
    let all = [
        ("Open MPI", "mpirun.openmpi", &["--oversubscribe", "--allow-run-as-root"][..], "mpicc.openmpi"),
        ("MPICH", "mpiexec.hydra", &[], "mpicc.mpich"),
    ];
    let found = all.into_iter().filter_map(|(name, launcher, options, compiler)| {
        std::fs::write(&source, C_PROGRAM).ok()?;
        let program = folder.join(name.replace(' ', "-"));
        let built = Command::new(compiler).arg("-o").arg(&program).arg(&source).stderr(Stdio::null()).status();
        built.is_ok_and(|status| status.success()).then_some(Peer { name, launcher, options, program })
    });
    found.collect()
}

fn measure(options: &Options, rsrun: &Path, own: &Path, peers: &[Peer], hosts: Option<&Hosts>) -> Result<(), Failure> {
    let words = |list: &[&str]| list.iter().map(OsString::from).collect::<Vec<_>>();
    let processors = std::thread::available_parallelism()?;
    output::line(format_args!("{processors} processors; medians of {} rounds in ms", options.runs))?;
    for &ranks in &options.ranks {
        let n = ranks.to_string();
        let mut commands: Vec<(String, Vec<OsString>)> = Vec::new();
        let mut add = |name: String, start: Vec<OsString>, rest: Vec<OsString>| {
            commands.push((name, start.into_iter().chain(rest).collect()));
        };
        let ours = || vec![rsrun.into(), "-n".into(), OsString::from(&n)];
        let rank = vec![own.into(), OsString::from("rank")];
        add("rsrun true".into(), ours(), words(&["true"]));
        add("rsrun init".into(), ours(), rank.clone());
        if let Some(hosts) = hosts {
            let start = [ours(), vec!["-hostfile".into(), hosts.file().into()]].concat();
            add("rsrun init, hosts".into(), start, rank.clone());
        }
        for peer in peers.iter().filter(|_| ranks <= options.peers_up_to) {
            // Some hang now and then.
            let start = || [words(&["timeout", "60", peer.launcher]), words(peer.options), words(&["-n", &n])].concat();
            add(format!("{} true", peer.name), start(), words(&["true"]));
            add(format!("{} init", peer.name), start(), vec![peer.program.clone().into()]);
            if let Some(hosts) = hosts {
                let start = [start(), hosts.options(peer.launcher.contains("hydra"))].concat();
                add(format!("{} init, hosts", peer.name), start, vec![peer.program.clone().into()]);
            }
        }
        let mut times: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for _ in 0..options.runs {
            times.entry("bare").or_default().push(bare(ranks)?);
            for (name, command) in &commands {
                match once(command) {
                    Ok(time) => times.entry(name).or_default().push(time),
                    Err(error) if name.starts_with("rsrun") => return Err(error),
                    Err(error) => output::note(format_args!("{name}: {error}")),
                }
            }
        }
        let median = |name: &str| times.get(name).map(|times| median(times));
        output::line(format_args!("\n{ranks} ranks"))?;
        output::line(format_args!("  {:<24}{:>10.1}", "bare start of true", median("bare").unwrap_or_default()))?;
        for (name, _) in &commands {
            match median(name) {
                Some(time) => output::line(format_args!("  {name:<24}{time:>10.1}"))?,
                None => output::line(format_args!("  {name:<24}{:>10}", "failed"))?,
            }
        }
        if let (Some(init), Some(bare)) = (median("rsrun init"), median("bare")) {
            output::line(format_args!("  rsrun init / bare start      {:>6.2}", init / bare))?;
            let fastest =
                |what: &str| peers.iter().filter_map(|peer| median(&format!("{} {what}", peer.name))).reduce(f64::min);
            if let Some(fastest) = fastest("init") {
                output::line(format_args!("  rsrun init / faster peer     {:>6.3}", init / fastest))?;
            }
            if let (Some(ours), Some(fastest)) = (median("rsrun init, hosts"), fastest("init, hosts")) {
                output::line(format_args!("  over hosts / faster peer     {:>6.3}", ours / fastest))?;
            }
        }
        if let Some(hosts) = hosts {
            let mut phases = Command::new(rsrun);
            phases.args(["--phases", "-n", &n, "-hostfile"]).arg(hosts.file()).arg(own).arg("rank");
            let told = phases.stdin(Stdio::null()).output()?.stderr;
            let told = String::from_utf8_lossy(&told);
            for line in told.lines().filter(|line| line.contains("phases:")) {
                output::line(format_args!("  over hosts: {line}"))?;
            }
        }
        memory(rsrun, own, ranks)?;
    }
    Ok(())
}

fn median(times: &[f64]) -> f64 {
    let mut times = times.to_vec();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// As many processes as ranks, all started, then all waited for.
fn bare(ranks: usize) -> Result<f64, Failure> {
    let begun = Instant::now();
    let children: Result<Vec<_>, _> = (0..ranks).map(|_| Command::new("/bin/true").spawn()).collect();
    for mut child in children? {
        child.wait()?;
    }
    Ok(begun.elapsed().as_secs_f64() * 1e3)
}

fn once(command: &[OsString]) -> Result<f64, Failure> {
    let begun = Instant::now();
    let output = Command::new(&command[0]).args(&command[1..]).stdin(Stdio::null()).output()?;
    let time = begun.elapsed().as_secs_f64() * 1e3;
    if !output.status.success() {
        return Err(format!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(time)
}

/// What launcher, agent and ranks keep for themselves while all ranks are in their world.
fn memory(rsrun: &Path, own: &Path, ranks: usize) -> Result<(), Failure> {
    let mut command = Command::new(rsrun);
    command.arg("-n").arg(ranks.to_string()).arg(own).arg("hold").stdin(Stdio::null()).stdout(Stdio::piped());
    let mut launcher = command.stderr(Stdio::null()).spawn()?;
    let mut output = BufReader::new(launcher.stdout.take().ok_or("no output")?);
    let mut line = String::new();
    for _ in 0..ranks {
        line.clear();
        output.read_line(&mut line)?;
    }
    let guard = children(launcher.id());
    let agent: Vec<u32> = guard.iter().flat_map(|pid| children(*pid)).collect();
    let of_ranks: Vec<u32> = agent.iter().flat_map(|pid| children(*pid)).collect();
    let mut each: Vec<f64> = of_ranks.iter().map(|pid| private(*pid)).collect();
    each.sort_by(f64::total_cmp);
    let agent: f64 = agent.iter().chain(&guard).map(|pid| private(*pid)).sum();
    output::line(format_args!(
        "  private memory: launcher {:.1} MB, agent and its guard {agent:.1} MB, a rank {:.2} MB (largest {:.2})",
        private(launcher.id()),
        each.get(each.len() / 2).copied().unwrap_or_default(),
        each.last().copied().unwrap_or_default(),
    ))?;
    launcher.kill()?;
    launcher.wait()?;
    // The agents end their ranks when the launcher is gone; the pipe ends with the last of them.
    output.read_to_end(&mut Vec::new())?;
    Ok(())
}

/// The children of all threads of a process.
fn children(pid: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()).collect()
}

/// Megabytes that only this process has.
fn private(pid: u32) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let kilobytes = text.lines().filter(|line| line.starts_with("Private_"));
    let numbers = kilobytes.filter_map(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok());
    numbers.sum::<f64>() / 1024.0
}
