//! `rsbench`: latency and bandwidth between two ranks, next to the physical floor measured in the same run.
//!
//! In the manner of perftest and the OSU benchmarks: warm-up rounds, then measured ones, and the whole distribution
//! (P50, P99, P99.9, maximum) instead of a mean. Knows only the public interface of the runtime.

mod floor;
mod measure;
mod report;

use clap::{Parser, Subcommand};
use measure::Plan;
use spmd::prelude::*;
use spmd_collectives::prelude::*;

/// Latency and bandwidth between the first and the last rank.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "Examples:\n  rsrun -n 2 rsbench latency\n  rsrun -n 2 --set transport.allow=tcp rsbench latency --sizes 8,1024\n  \
                  rsrun -host a:1,b:1 rsbench bandwidth --json\n\nThe floor is measured in the same run, on the first rank's host: \
                  a cache line that two threads hand to each other, memcpy, and a bare TCP socket over loopback with both ends spinning."
)]
struct Arguments {
    #[command(subcommand)]
    what: What,
    /// Message sizes in bytes, separated by commas.
    #[arg(long, global = true, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1 << 28),
          default_value = "8,256,1024,4096,8192,16384,65536,262144,1048576,4194304")]
    sizes: Vec<u32>,
    /// Measured rounds for small messages; large ones take fewer.
    #[arg(long, global = true, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    rounds: u32,
    /// Unmeasured rounds before each size.
    #[arg(long, global = true, default_value_t = 100)]
    warm_up: u32,
    /// One JSON object a line.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Clone, Copy, Debug, Subcommand)]
enum What {
    /// Half the round trip of one message, in microseconds.
    Latency,
    /// A window of messages one way, then one answer; in MB/s (10^6 bytes).
    Bandwidth {
        /// Messages under way at once.
        #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4096))]
        window: u32,
    },
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = Arguments::parse();
    let world = World::init()?;
    let comm = world.communicator();
    if comm.size() < 2 {
        return Err("rsbench measures between two ranks: start it with rsrun -n 2 rsbench …".into());
    }
    // The other ranks sleep meanwhile, so that the floor has the processors to itself.
    let floor = (comm.rank() == 0).then(floor::measure).transpose()?;
    comm.barrier()?;
    if let Some(floor) = &floor {
        report::header(arguments.json, &comm, floor, arguments.what.unit());
    }
    for &bytes in &arguments.sizes {
        let plan = Plan::new(bytes as usize, arguments.warm_up, arguments.rounds);
        let samples = match arguments.what {
            What::Latency => measure::latency(&comm, &plan)?,
            What::Bandwidth { window } => measure::bandwidth(&comm, &plan, window as usize)?,
        };
        if let (Some(samples), Some(floor)) = (samples, &floor) {
            report::row(arguments.json, &comm, floor, arguments.what.unit(), &plan, samples);
        }
    }
    Ok(())
}

impl What {
    fn unit(self) -> report::Unit {
        match self {
            What::Latency => report::Unit::Microseconds,
            What::Bandwidth { .. } => report::Unit::MegabytesPerSecond,
        }
    }
}
