//! Experiments over RDMA, on a machine with two devices on one wire: `cargo xtask experiment hint` and its like make that
//! machine, run this program there, and let it show what it found.
//!
//! Each experiment takes everything in turn, so that what else the machine does falls on all alike. Emulation makes
//! absolute times meaningless: only ratios within one experiment say anything.

#![deny(clippy::print_stdout, clippy::print_stderr, reason = "they panic when nobody reads: see `output`")]

mod experiments;
mod machine;
mod rank;

use clap::Parser;
use rsbench::output;
use rsbench::port::Failure;
use rsbench::rdma::record::Record;
use rsbench::rdma::report;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Size hints, loss, slow receivers and time-outs over RDMA.
#[derive(Debug, Parser)]
#[command(name = "rdma")]
struct Options {
    /// hint, loss, slow-receiver, timeout or figures
    experiment: String,

    /// How often everything has its turn
    #[arg(long, default_value_t = 3)]
    turns: u32,

    /// Parts of the usual number of rounds, for a first look
    #[arg(long, default_value_t = 1.0)]
    effort: f64,

    /// Only this of it, by the name that is shown while it is measured; may be repeated
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,

    /// Measure nothing: show the record of this file, as tables and in the other places named
    #[arg(long, value_name = "FILE")]
    show: Option<PathBuf>,

    /// With --show: add what this file has (- is standard input) to the record first, as further turns
    #[arg(long, value_name = "FILE", requires = "show")]
    add: Option<PathBuf>,

    /// With --show: put the tables into this page, between the marks for the experiment
    #[arg(long, value_name = "FILE", requires = "show")]
    page: Option<PathBuf>,

    /// With --show: draw them as SVG
    #[arg(long, value_name = "FILE", requires = "show")]
    plot: Option<PathBuf>,
}

fn main() -> ExitCode {
    output::end("rdma", run().map(|()| ExitCode::SUCCESS))
}

fn run() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, word, plan] = arguments.as_slice()
        && word == "rank"
    {
        return rank::run(&serde_json::from_str(plan)?);
    }
    let options = Options::parse();
    let Some(file) = &options.show else {
        let record = experiments::run(&options.experiment, options.turns, options.effort, options.only)?;
        output::line(serde_json::to_string_pretty(&record)?)?;
        return Ok(());
    };
    let mut record = if options.add.is_some() && !file.exists() {
        Record::new(&options.experiment)
    } else {
        read(file, &options.experiment)?
    };
    if let Some(add) = &options.add {
        record.append(read(add, &options.experiment)?);
        std::fs::write(file, serde_json::to_string_pretty(&record)? + "\n")?;
    }
    if let Some(page) = &options.page {
        let text = report::into_page(&std::fs::read_to_string(page)?, &record)?;
        std::fs::write(page, text)?;
    }
    if let Some(plot) = &options.plot {
        std::fs::write(plot, report::svg(&record)?)?;
    }
    output::text(report::tables(&record))
}

fn read(file: &Path, experiment: &str) -> Result<Record, Failure> {
    let text = if file == Path::new("-") {
        std::io::read_to_string(std::io::stdin())?
    } else {
        std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?
    };
    let record: Record = serde_json::from_str(&text).map_err(|error| format!("{}: {error}", file.display()))?;
    if record.experiment == experiment {
        return Ok(record);
    }
    Err(format!("{} is a record of '{}'", file.display(), record.experiment).into())
}
