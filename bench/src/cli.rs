//! Options and their help.

use clap::{Args, Parser, Subcommand};
use rsbench::measure::{Pattern, Plan, Transport};
use rsbench::sizes;
use std::ffi::OsString;
use std::path::PathBuf;

/// Latency, bandwidth and message rate, next to what the machine itself can do and to other libraries.
#[derive(Debug, Parser)]
#[command(name = "rsbench", version, after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXAMPLES: &str = "\
Examples:
  rsbench latency                                     two ranks on this host, each on a core of its own
  rsbench latency --peer all --sizes 8,1K,64K,1M      other libraries in turn with ours, ratios beside each row
  rsbench bandwidth --transport tcp --peer openmpi    the same over sockets
  rsbench ring -n 32 --peer openmpi                   more ranks than cores
  rsrun -host a:1,b:1 rsbench latency                 on hosts of your choice: rsbench is then a rank
  rsbench latency --archive before                    keep the record, change something, and
  rsbench compare before/*.json after/*.json --fail-above 1.05

Each row has the median (P50), P99, P99.9 and the worst of all rounds, and the median in parts of the floor: what the two
cores or sockets do without any library, measured in the same run by the same processes. On virtual machines the cores of
a run can be near to each other or far: rows are only compared where the exchange of a cache line took about as long.
More: docs/benchmarks.md";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Half the round trip of a message between the first and the last rank, in us
    Latency(Measurement),
    /// Windows of messages one way, each answered once, in MB/s (10^6 bytes)
    Bandwidth(Windows),
    /// Windows of messages both ways at once, added up, in MB/s
    Bibw(Windows),
    /// Messages a second from the first half of the ranks to the second, in M/s; several pairs with -n 4 and more
    Rate(Windows),
    /// Windows of messages from all other ranks to the first, added up, in MB/s
    Incast(Windows),
    /// A message goes round all ranks; the time of a hop, in us
    Ring(Measurement),
    /// A barrier of all ranks; the rank that took longest, in us
    Barrier(Common),
    /// f32 values of all ranks added up on all ranks; the rank that took longest, in us
    #[command(name = "all_reduce")]
    AllReduce(Measurement),
    /// Windows of puts from the first rank into memory of the last (MPI: MPI_Put, MPI_Win_flush), in MB/s
    Put(Windows),
    /// Memory of a rank after every rank has exchanged a message with every other, in MB; shared pages by their share
    Memory(Measurement),
    /// Find the best algorithms on the ranks of a job: rsrun -n 96 -hostfile hosts rsbench tune collectives
    Tune(Tuning),
    /// Two records side by side: what the second costs in parts of the first
    Compare(Comparison),
    /// A record as a table again, or as a picture
    Show {
        /// A record (--json or --archive)
        file: PathBuf,
        /// The record itself, indented
        #[arg(long)]
        json: bool,
        /// Draw it as SVG
        #[arg(long, value_name = "FILE")]
        plot: Option<PathBuf>,
    },
    /// Other libraries that can take part, and whether they are installed
    Peers {
        /// Where `cargo xtask peers setup` has put them
        #[arg(long, value_name = "DIR")]
        peers_folder: Option<PathBuf>,
    },
    /// A measuring rank, started by rsbench itself
    #[command(hide = true)]
    Rank {
        /// The plan as JSON
        plan: String,
    },
    /// A launcher that ends with the rsbench that starts it
    #[command(hide = true)]
    Leash {
        /// The process that starts it
        parent: u32,
        /// The launcher and its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        program: Vec<OsString>,
    },
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Measurement {
    /// Sizes of messages: 8, 64K, 1M, and 8..64K for the powers of two between; without it 0..64M, for ring and memory 8
    #[arg(long, value_name = "LIST", value_parser = sizes_of)]
    sizes: Option<Sizes>,
    #[command(flatten)]
    common: Common,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Windows {
    /// Messages under way at once; fewer of large ones, so that a window has at most 128 MiB
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4096))]
    window: u32,
    /// Sizes of messages: 8, 64K, 1M, and 8..64K for the powers of two between; without it 1..64M, for rate and incast 8
    #[arg(long, value_name = "LIST", value_parser = sizes_of)]
    sizes: Option<Sizes>,
    #[command(flatten)]
    common: Common,
}

/// What `--sizes` says.
#[derive(Clone, Debug)]
struct Sizes(Vec<usize>);

fn sizes_of(text: &str) -> Result<Sizes, String> {
    sizes::parse(text).map(Sizes)
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if seconds > 0.0 && seconds <= 3600.0 => Ok(seconds),
        _ => Err("seconds between 0 and 3600, for example 0.5".into()),
    }
}

fn factor(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(factor) if (1.0..1e6).contains(&factor) => Ok(factor),
        _ => Err("a factor of 1 or more, for example 1.05".into()),
    }
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Common {
    /// Measured rounds of each size at most
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    rounds: u32,
    /// Unmeasured rounds before them
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(..=10_000_000))]
    warm_up: u32,
    /// Time for each size: what takes longer gets fewer rounds, which the table says
    #[arg(long, default_value = "0.5", value_parser = seconds)]
    seconds: f64,
    /// Compare every message byte for byte, not only those of the first round; outside the measured time
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    options: Options,
}

/// What is not part of the plan.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// The record as JSON instead of a table
    #[arg(long)]
    pub(crate) json: bool,
    /// Draw the medians by size as SVG
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
    /// Keep the record in this folder; without it in $XDG_STATE_HOME/rsbench (~/.local/state/rsbench), started by rsrun
    /// nowhere
    #[arg(long, value_name = "DIR")]
    pub(crate) archive: Option<PathBuf>,
    /// Keep no record
    #[arg(long, conflicts_with = "archive")]
    pub(crate) no_archive: bool,
    /// Ranks, on this host; without it 2
    #[arg(short = 'n', long, value_name = "N", help_heading = STARTING)]
    pub(crate) ranks: Option<usize>,
    /// Start them on the hosts of this hostfile, unbound, over sockets; other libraries, too
    #[arg(long, visible_alias = "hostfile", value_name = "FILE", help_heading = STARTING)]
    pub(crate) hosts: Option<PathBuf>,
    /// Another library, in turn with ours: a name from `rsbench peers`, or all; may be repeated
    #[arg(long = "peer", value_name = "NAME", value_delimiter = ',', help_heading = STARTING)]
    pub(crate) peers: Vec<String>,
    /// How often each library has its turn; without it 5 beside peers, else 1
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000), help_heading = STARTING)]
    pub(crate) turns: Option<u32>,
    /// What connects the ranks: memory, or sockets over loopback
    #[arg(long, help_heading = STARTING)]
    transport: Option<Transport>,
    /// More options for rsrun, for example '--set eager.limit=16KiB'; may be repeated
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true, help_heading = STARTING)]
    pub(crate) rsrun: Vec<String>,
    /// Seconds that one run of one library may take
    #[arg(long, value_name = "SECONDS", default_value_t = 300, help_heading = STARTING)]
    pub(crate) limit: u64,
    /// Where `cargo xtask peers setup` has put the peers
    #[arg(long, value_name = "DIR", help_heading = STARTING)]
    pub(crate) peers_folder: Option<PathBuf>,
}

const STARTING: &str = "Starting ranks (without rsrun)";

impl Options {
    /// An option that a rank cannot honour.
    pub(crate) fn first_for_driver(&self) -> Option<&'static str> {
        [
            (self.ranks.is_some(), "-n"),
            (self.hosts.is_some(), "--hosts"),
            (!self.peers.is_empty(), "--peer"),
            (self.turns.is_some(), "--turns"),
            (self.transport.is_some(), "--transport"),
            (!self.rsrun.is_empty(), "--rsrun"),
        ]
        .into_iter()
        .find_map(|(given, name)| given.then_some(name))
    }
}

#[derive(Debug, Args)]
pub(crate) struct Tuning {
    /// What to tune
    #[arg(value_parser = ["collectives"])]
    what: String,
    /// Bytes of each rank, ascending; each size stands for those from the one before it
    #[arg(long, value_name = "LIST", default_value = "1K,16K,256K,4M", value_parser = sizes_of)]
    sizes: Sizes,
    /// Rounds of each trial
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Write the table to this file on the host of rank 0, for --set collectives.table_file=FILE; without it to the standard
    /// output
    #[arg(short = 'o', long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

impl Tuning {
    /// Sizes in order, and rounds.
    pub(crate) fn plan(&self) -> (Vec<usize>, usize) {
        let mut sizes = self.sizes.0.clone();
        sizes.sort_unstable();
        sizes.dedup();
        (sizes, self.rounds as usize)
    }
}

#[derive(Debug, Args)]
pub(crate) struct Comparison {
    /// A record (--json or --archive)
    pub(crate) a: PathBuf,
    /// Another one of the same pattern
    pub(crate) b: PathBuf,
    /// One JSON list instead of a table
    #[arg(long)]
    pub(crate) json: bool,
    /// Exit with 3 when B costs more than FACTOR times A anywhere, unless their turns overlap
    #[arg(long, value_name = "FACTOR", value_parser = factor)]
    pub(crate) fail_above: Option<f64>,
}

impl Command {
    /// The plan and the other options of a measurement.
    pub(crate) fn measurement(self) -> Option<(Plan, Options)> {
        let (pattern, sizes, window, common) = match self {
            Command::Latency(it) => (Pattern::Latency, it.sizes, 1, it.common),
            Command::Ring(it) => (Pattern::Ring, it.sizes, 1, it.common),
            Command::Bandwidth(it) => (Pattern::Bandwidth, it.sizes, it.window, it.common),
            Command::Bibw(it) => (Pattern::Bibw, it.sizes, it.window, it.common),
            Command::Rate(it) => (Pattern::Rate, it.sizes, it.window, it.common),
            Command::Incast(it) => (Pattern::Incast, it.sizes, it.window, it.common),
            Command::AllReduce(it) => (Pattern::AllReduce, it.sizes, 1, it.common),
            Command::Put(it) => (Pattern::Put, it.sizes, it.window, it.common),
            Command::Memory(it) => (Pattern::Memory, it.sizes, 1, it.common),
            Command::Barrier(common) => (Pattern::Barrier, Some(Sizes(vec![0])), 1, common),
            Command::Tune(_)
            | Command::Compare(_)
            | Command::Show { .. }
            | Command::Peers { .. }
            | Command::Leash { .. }
            | Command::Rank { .. } => return None,
        };
        let sizes = sizes.map(|sizes| sizes.0).unwrap_or_else(|| match pattern {
            Pattern::Latency => sizes::all(),
            Pattern::AllReduce => [8, 512, 4 << 10, 64 << 10, 1 << 20, 4 << 20, 16 << 20].into(),
            Pattern::Bandwidth | Pattern::Bibw | Pattern::Put => sizes::all().split_off(1),
            Pattern::Rate | Pattern::Incast | Pattern::Ring | Pattern::Barrier | Pattern::Memory => vec![8],
        });
        let plan = Plan {
            pattern,
            sizes,
            rounds: common.rounds as usize,
            warm_up: common.warm_up as usize,
            seconds: common.seconds,
            window: window as usize,
            check: common.check,
            transport: common.options.transport,
        };
        Some((plan, common.options))
    }
}
