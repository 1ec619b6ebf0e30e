//! The experiment: reductions over hosts with slow links, flat and in two hops, beside Open MPI, and what the simulator says.
//!
//! Every turn starts each of them once, in turn; a round's time is that of the rank that took longest from a barrier on.
//! `cargo xtask experiment two-hop` makes the hosts and limits their links first.

#![deny(clippy::print_stdout, clippy::print_stderr, reason = "they panic when nobody reads: see `output`")]

use clap::Parser;
use rsbench::experiment::cases::{CASES, Case, Library, Ranks, TOP_K};
use rsbench::experiment::constants::{self, Measured};
use rsbench::experiment::record::{Collective, Record};
use rsbench::experiment::{calibrate, predict, report};
use rsbench::hosts::Hosts;
use rsbench::port::Failure;
use rsbench::sizes;
use rsbench::{file, output};
use spmd::prelude::*;
use spmd_collectives::compress::{Compressed, TopK};
use spmd_collectives::prelude::*;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

/// Reductions over hosts with slow links: flat, in two hops, and those of other libraries.
#[derive(Debug, Parser)]
#[command(name = "two-hop")]
struct Options {
    /// Hosts to measure over: a hostfile of rsrun
    #[arg(long, required_unless_present = "show")]
    hostfile: Option<PathBuf>,

    /// Ranks of each host
    #[arg(long, default_value_t = 8)]
    width: usize,

    /// Packets of 1,514 bytes that wait at a port of the switch at most, for the simulator
    #[arg(long)]
    queue: Option<u32>,

    /// One turn of one round, and of the slowest ways no large sizes: about ten minutes
    #[arg(long, conflicts_with_all = ["turns", "rounds"])]
    quick: bool,

    /// Bytes of each rank
    #[arg(long, default_value = "64K,512K,4M")]
    sizes: String,

    /// How often each way to reduce has its turn
    #[arg(long, default_value_t = 3)]
    turns: usize,

    /// Rounds of the largest sizes in a turn; of smaller ones up to sixteen times as many, as they vary more and take less
    #[arg(long, default_value_t = 2)]
    rounds: usize,

    /// Only the ways with one of these words in their title, as "all_reduce: flat"
    #[arg(long, value_delimiter = ';')]
    only: Vec<String>,

    /// Seconds for one of them in a turn; what takes longer is left out
    #[arg(long, default_value_t = 150)]
    limit: u64,

    /// Keep constants and times in this file as JSON, with those that it has already
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,

    /// Draw the medians as SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,

    /// Measure nothing; show the record, and keep it with what the simulator says now. Takes --record and --plot alone
    #[arg(long, requires = "record", conflicts_with_all = MEASURING)]
    show: bool,
}

/// Options for measuring.
const MEASURING: [&str; 9] = ["hostfile", "width", "queue", "quick", "sizes", "turns", "rounds", "only", "limit"];

/// What a rank of ours and one of an MPI writes in front of a time: collective, bytes, seconds.
const MARKER: &str = "two-hop:";

/// What rank 0 writes in front of the constants.
const CONSTANTS: &str = "two-hop constants:";

/// The same loop for an MPI: program COLLECTIVE [BYTES ROUNDS]...
const C_PROGRAM: &str = include_str!("two_hop.c");

fn main() -> ExitCode {
    output::end("two-hop", run().map(|()| ExitCode::SUCCESS))
}

fn run() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, word, what] = arguments.as_slice()
        && (word.as_str(), what.as_str()) == ("rank", "constants")
    {
        let world = World::init()?;
        if let Some(found) = constants::measure(&world.communicator())? {
            output::line(format_args!("{CONSTANTS} {}", serde_json::to_string(&found)?))?;
        }
        world.communicator().barrier()?;
        return Ok(());
    }
    if let [_, word, collective, sizes @ ..] = arguments.as_slice()
        && word == "rank"
    {
        let numbers: Vec<usize> = sizes.iter().map(|number| number.parse()).collect::<Result<_, _>>()?;
        let (sizes, []) = numbers.as_chunks::<2>() else { return Err("rank takes BYTES and ROUNDS, in pairs".into()) };
        if collective == TOP_K {
            return rank_top_k(sizes);
        }
        let collective = Collective::of_name(collective).ok_or("rank takes reduce, all_reduce or all_reduce_top_k")?;
        return rank(collective, sizes);
    }
    let mut options = Options::parse();
    if options.quick {
        (options.turns, options.rounds) = (1, 1);
    }
    let mut record = match &options.record {
        Some(path) if path.exists() => Record::from_text(&std::fs::read_to_string(path)?)
            .map_err(|error| format!("{}: {error}", path.display()))?,
        Some(path) if options.show => return Err(format!("{}: there is no such record", path.display()).into()),
        _ => Record::default(),
    };
    file::check(options.record.iter().chain(&options.plot))?;
    if let (Some(file), false) = (&options.hostfile, options.show) {
        // Beside this program, which every host must see anyway.
        let own = std::env::current_exe()?;
        let folder = own.with_file_name(format!("two-hop-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let result = Hosts::new(file, &folder).and_then(|hosts| measure(&options, &own, &folder, &hosts, &mut record));
        std::fs::remove_dir_all(&folder)?;
        result?;
    }
    calibrate::record(&mut record);
    predict::all(&mut record);
    keep(&options, &record)?;
    if let Some(path) = &options.plot {
        file::write(path, &report::svg(&record)?)?;
    }
    output::line(format_args!(
        "{} hosts of {} ranks; ms, in brackets how many times as long as two hops, pipelined",
        record.hosts, record.ranks_a_host
    ))?;
    output::text(format_args!("{}\n{}", report::table(&record), report::predictions(&record)))?;
    if let Some(constants) = &record.constants {
        let queue = record.queue.map(|bytes| format!(" --queue {:.0}", bytes / 1514.0)).unwrap_or_default();
        let ranks = format!("--ranks {} --group {}{queue}", record.hosts * record.ranks_a_host, record.ranks_a_host);
        output::line(format_args!("to simulate these hosts: rsrun simulate {ranks} {} ...", constants.options()))?;
    }
    Ok(())
}

/// A rank of ours: sizes in bytes, each with its number of rounds. Values are small whole numbers, so that every order of adding gives the same sum.
fn rank(collective: Collective, sizes: &[[usize; 2]]) -> Result<(), Failure> {
    let world = World::init()?;
    let comm = world.communicator();
    let (rank, size) = (comm.rank(), comm.size());
    let value = |rank: usize, index: usize| ((rank + index) % 8) as f32;
    let sums: Vec<f32> = (0..8).map(|index| (0..size).map(|rank| value(rank, index)).sum()).collect();
    for &[bytes, rounds] in sizes {
        let data: Vec<f32> = (0..bytes / 4).map(|index| value(rank, index)).collect();
        let mut result = vec![0.0f32; data.len()];
        // A size's first round makes connections and touches memory; it is not counted.
        for round in 0..=rounds {
            result.copy_from_slice(&data);
            comm.barrier()?;
            let begun = Instant::now();
            match collective {
                Collective::Reduce => comm.reduce_into(&data, (rank == 0).then_some(&mut result[..]), Sum, 0)?,
                Collective::AllReduce => comm.all_reduce(&mut result, Sum)?,
            }
            let took = begun.elapsed().as_secs_f64();
            // Whoever is done waits, instead of taking the processor from those that are not.
            comm.barrier()?;
            if (rank == 0 || collective == Collective::AllReduce)
                && let Some(wrong) =
                    (0..result.len()).find(|&index| result[index].to_bits() != sums[index % 8].to_bits())
            {
                return Err(format!("element {wrong} is {} instead of {}", result[wrong], sums[wrong % 8]).into());
            }
            let longest = comm.gather(&[took], 0)?.map(|all| all.into_iter().fold(0.0, f64::max));
            if let Some(longest) = longest.filter(|_| round > 0) {
                output::line(format_args!("{MARKER} {bytes} {longest:.6}"))?;
            }
        }
    }
    Ok(())
}

/// As [`rank`], of a compressed sum: one element of a hundred is large, and goes at once; the others are kept back.
fn rank_top_k(sizes: &[[usize; 2]]) -> Result<(), Failure> {
    const EVERY: usize = 100;
    let world = World::init()?;
    let comm = world.communicator();
    let (rank, size) = (comm.rank(), comm.size());
    let value = |rank: usize, index: usize| match index % EVERY {
        0 => 4096.0 + ((rank + index) % 8) as f32,
        _ => ((rank + index) % 8) as f32,
    };
    let sum_of = |index: usize| (0..size).map(|rank| value(rank, index)).sum::<f32>();
    for &[bytes, rounds] in sizes {
        let length = bytes / 4;
        let data: Vec<f32> = (0..length).map(|index| value(rank, index)).collect();
        let mut result = vec![0.0f32; length];
        let mut compressed = Compressed::new(&comm, length, TopK { keep: 1.0 / EVERY as f64, ..TopK::default() })?;
        for round in 0..=rounds {
            result.copy_from_slice(&data);
            comm.barrier()?;
            let begun = Instant::now();
            compressed.all_reduce(&mut result)?;
            let took = begun.elapsed().as_secs_f64();
            comm.barrier()?;
            let right = |index: usize| if index.is_multiple_of(EVERY) { sum_of(index) } else { 0.0 };
            if let Some(wrong) =
                (0..length.min(100 * EVERY)).find(|&index| result[index].to_bits() != right(index).to_bits())
            {
                return Err(format!("element {wrong} is {} instead of {}", result[wrong], right(wrong)).into());
            }
            let longest = comm.gather(&[took], 0)?.map(|all| all.into_iter().fold(0.0, f64::max));
            if let Some(longest) = longest.filter(|_| round > 0) {
                output::line(format_args!("{MARKER} {bytes} {longest:.6}"))?;
            }
        }
    }
    Ok(())
}

fn measure(options: &Options, own: &Path, folder: &Path, hosts: &Hosts, record: &mut Record) -> Result<(), Failure> {
    let rsrun = own.with_file_name("rsrun");
    if !rsrun.is_file() {
        return Err(format!("{} is not there: cargo build --release -p rsrun", rsrun.display()).into());
    }
    let sizes = sizes::parse(&options.sizes)?;
    (record.hosts, record.ranks_a_host) = (hosts.count(), options.width);
    record.queue = options.queue.map(|packets| f64::from(packets) * 1514.0).or(record.queue);
    let starter = Starter { rsrun, own: own.into(), folder: folder.into(), hosts };
    let wanted = |case: &&Case| options.only.is_empty() || options.only.iter().any(|word| case.title().contains(word));
    let constants = |record: &mut Record| {
        output::note("constants of these hosts");
        record.measured.push(starter.constants(options)?);
        calibrate::record(record).ok_or_else(|| Failure::from("the simulator does not finish what the ranks did"))
    };
    constants(record)?;
    record.told = record.constants;
    std::fs::write(starter.table(), predict::table(record).to_string())?;
    // What did not finish is not tried again.
    let mut left_out: Vec<String> = Vec::new();
    let mut failed = 0;
    for turn in 0..options.turns {
        for case in CASES.iter().filter(wanted) {
            let up_to = if options.quick && case.is_slow() { case.up_to / 8 } else { case.up_to };
            let sizes: Vec<usize> = sizes.iter().copied().filter(|bytes| *bytes <= up_to).collect();
            if left_out.contains(&case.title()) {
                continue;
            }
            let shown: Vec<String> = sizes.iter().map(|bytes| sizes::text(*bytes)).collect();
            let (turns, title) = (options.turns, case.title());
            output::note(format_args!("turn {} of {turns}: {title}, {}", turn + 1, shown.join(", ")));
            let Some(start) = starter.start(case, record.hosts, options.width)? else {
                output::note(
                    "    left out: its launcher or compiler is not installed (cargo xtask peers setup openmpi)",
                );
                left_out.push(case.title());
                continue;
            };
            let (found, problem) = once(options, case, start, &sizes)?;
            found.into_iter().for_each(|(bytes, seconds)| record.add(case, bytes, seconds));
            match (problem, case.library) {
                (None, _) => {}
                // A peer may take too long for some of them only.
                (Some(problem), Library::OpenMpi(_)) => {
                    output::note(format_args!("    left out from here on: {problem}"));
                    left_out.push(case.title());
                }
                (Some(problem), _) => {
                    output::note(format_args!("    failed: {problem}"));
                    failed += 1;
                }
            }
            keep(options, record)?;
        }
        // Also at the end, as a machine is not always as fast as at the beginning. Ranks keep the first.
        constants(record)?;
        keep(options, record)?;
    }
    // Times that others have are worth keeping.
    if failed > 0 { Err(format!("{failed} of our own runs failed").into()) } else { Ok(()) }
}

fn keep(options: &Options, record: &Record) -> Result<(), Failure> {
    let Some(path) = &options.record else { return Ok(()) };
    Ok(file::write(path, &record.to_text()?)?)
}

/// What starts ranks.
struct Starter<'a> {
    rsrun: PathBuf,
    own: PathBuf,
    folder: PathBuf,
    hosts: &'a Hosts,
}

impl Starter<'_> {
    /// The tuning table with the measured constants, which all ranks of ours get.
    fn table(&self) -> PathBuf {
        self.folder.join("table")
    }

    fn rsrun(&self, ranks: usize) -> Vec<OsString> {
        let mut command: Vec<OsString> = vec![(&self.rsrun).into()];
        command.extend(["-n", &ranks.to_string(), "-hostfile"].map(OsString::from));
        command.push(self.hosts.file().into());
        command
    }

    fn constants(&self, options: &Options) -> Result<Measured, Failure> {
        let mut command = self.rsrun(self.hosts.count() * options.width);
        constants::SETTINGS.iter().for_each(|setting| command.extend(["--set", setting].map(OsString::from)));
        command.extend([self.own.clone().into(), "rank".into(), "constants".into()]);
        let (said, problem) = output(options.limit, command)?;
        if let Some(problem) = problem {
            return Err(format!("constants: {problem}").into());
        }
        let line = said.lines().find_map(|line| line.strip_prefix(CONSTANTS));
        Ok(serde_json::from_str(line.ok_or("the ranks measured no constants")?)?)
    }

    /// The command that starts the ranks of a case, up to the arguments of the program; `None` where a peer is missing.
    fn start(&self, case: &Case, hosts: usize, width: usize) -> Result<Option<Vec<OsString>>, Failure> {
        let ranks = if case.ranks == Ranks::All { hosts * width } else { hosts };
        let settings: &[&str] = if let Library::Own(settings) = case.library { settings } else { &[] };
        let options = match case.library {
            Library::Own(_) | Library::TopK => {
                let mut command = self.rsrun(ranks);
                if case.ranks == Ranks::OneAHost {
                    command.extend(["--map-by", "node"].map(OsString::from));
                }
                command.extend(["--set".into(), {
                    let mut setting = OsString::from("collectives.table_file=");
                    setting.push(self.table());
                    setting
                }]);
                settings.iter().for_each(|setting| command.extend(["--set", setting].map(OsString::from)));
                command.extend([self.own.clone().into(), "rank".into()]);
                return Ok(Some(command));
            }
            Library::OpenMpi(options) => options,
        };
        let program = self.folder.join("two-hop-openmpi");
        if !program.is_file() {
            let source = self.folder.join("two_hop.c");
            std::fs::write(&source, C_PROGRAM)?;
            let mut compiler = Command::new("mpicc.openmpi");
            let built = compiler.arg("-O2").arg("-o").arg(&program).arg(&source).stderr(Stdio::null()).status();
            if !built.is_ok_and(|status| status.success()) {
                return Ok(None);
            }
        }
        let mut command: Vec<OsString> = vec!["mpirun.openmpi".into()];
        // Its ranks would spin, as the hostfile promises each a processor; they share two.
        let general =
            ["--oversubscribe", "--allow-run-as-root", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"];
        command.extend(general.map(OsString::from));
        command.extend(["--mca", "pml", "ob1", "--mca", "btl", "self,vader,tcp"].map(OsString::from));
        command.extend(options.iter().map(OsString::from));
        command.extend(self.hosts.options(false));
        command.extend(["-n", &ranks.to_string()].map(OsString::from));
        command.push(program.into());
        Ok(Some(command))
    }
}

/// Rounds of a size in a turn, beside the first, which is not counted: a median of many where a round takes little and
/// varies much, of few where it takes half a minute.
fn rounds(options: &Options, case: &Case, bytes: usize) -> usize {
    const MUCH: usize = 2 << 20;
    let rounds = options.rounds * (MUCH / bytes.max(1)).clamp(1, 16);
    if case.is_slow() { rounds.div_ceil(2) } else { rounds }
}

/// Sizes and seconds of rounds.
type Rounds = Vec<(usize, f64)>;

/// Runs a case; the rounds that it came to, and what went wrong.
fn once(
    options: &Options,
    case: &Case,
    start: Vec<OsString>,
    sizes: &[usize],
) -> Result<(Rounds, Option<String>), Failure> {
    let mut command = start;
    command.push(case.word().into());
    let numbers = sizes.iter().flat_map(|&bytes| [bytes, rounds(options, case, bytes)]);
    command.extend(numbers.map(|number| OsString::from(number.to_string())));
    let (said, problem) = output(options.limit, command)?;
    let found: Rounds = said
        .lines()
        .filter_map(|line| {
            let mut words = line.strip_prefix(MARKER)?.split_whitespace();
            Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
        })
        .collect();
    let expected: usize = sizes.iter().map(|&bytes| rounds(options, case, bytes)).sum();
    let number = found.len();
    let short = || (number != expected).then(|| format!("{}: {number} times instead of {expected}", case.title()));
    Ok((found, problem.map(|problem| format!("{} ({problem})", case.title())).or_else(short)))
}

/// What a command writes within so many seconds, and what went wrong if it did not succeed.
fn output(limit: u64, command: Vec<OsString>) -> Result<(String, Option<String>), Failure> {
    let mut timed = Command::new("timeout");
    timed.args(["--kill-after", "5", &limit.to_string()]).args(command);
    let output = timed.stdin(Stdio::null()).output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok((said, None));
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let last: Vec<&str> = errors.lines().rev().filter(|line| !line.trim().is_empty()).take(5).collect();
    let reason = last.into_iter().rev().collect::<Vec<_>>().join("\n    ");
    Ok((said, Some(format!("{}; {limit} s at most\n    {reason}", output.status))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn to_show_a_record_takes_no_options_that_it_would_ignore() {
        let parse = |words: &[&str]| Options::try_parse_from([&["two-hop", "--record", "r.json"], words].concat());
        assert!(parse(&["--show"]).is_ok() && parse(&["--show", "--plot", "p.svg"]).is_ok());
        for [option, value] in
            [["--hostfile", "hosts"], ["--turns", "2"], ["--sizes", "4M"], ["--only", "flat"], ["--limit", "9"]]
        {
            let error = parse(&["--show", option, value]).unwrap_err().to_string();
            assert!(error.contains("--show") && error.contains(option), "{error}");
            assert!(option == "--hostfile" || parse(&["--hostfile", "hosts", option, value]).is_ok());
        }
        assert!(Options::try_parse_from(["two-hop", "--show"]).unwrap_err().to_string().contains("--record"));
    }
}
