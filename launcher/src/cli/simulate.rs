//! `rsrun simulate`: its options.

use clap::{CommandFactory, Parser};
use spmd_collectives::simulate::{Machine, Work};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  rsrun simulate --ranks 96 --group 8 --bytes 4MiB --rate 200Mbit
  rsrun simulate --ranks 4096 --group 8 --bytes 64MiB --rate 100Gbit --latency 5us --memory 200GB
  rsrun simulate --ranks 256 --group 8 --rack 8 --oversubscription 4 --collective reduce
  rsrun simulate --ranks 96 --group 8 --queue 100 --algorithm two_hop_ring --leaders 2 --chunk 256KiB

Each line is one way to do it, the fastest first: time, algorithm, ranks of a group (8,4: and four of these in a larger
group), leaders, chunk, and what was busy for most of the time. `waiting` means that no link and no memory was: messages waited for each other, one after the other.
To use what was found: rsrun --set collectives.all_reduce=two_hop_ring --set collectives.chunk_bytes=256KiB ...
for several leaders --set collectives.leaders=2, for groups of 4 on hosts of 8 --set collectives.groups=4,
and for larger groups: rsrun --set collectives.groups=host,group ... with group=RACK in the hostfile, or host,4.
Ways that are less than a quarter apart may be the other way round: rsbench tune collectives measures them.

The model: a small message starts at once, a large one (over 8 KiB within a host, 64 KiB between hosts) when it has been
announced and asked for. It takes the ports on its way one after the other (cut through), and bytes of memory traffic at
its ends; each port and each host's memory serves in the order of arrival. A message that
finds a full queue of others at a port of a switch sends a queue's worth again (Go-Back-N). docs/two-hop.md holds it
against measurements.";

/// What a collective takes on a network, and which algorithm, grouping, leaders and chunks are best there.
#[derive(Clone, Debug, Parser)]
#[command(name = "rsrun simulate", disable_version_flag = true, max_term_width = 110, after_help = EXAMPLES)]
#[command(override_usage = "rsrun simulate --ranks N [OPTIONS]")]
pub struct SimulateOptions {
    /// Number of ranks
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    pub ranks: u32,

    /// Ranks of a host
    #[arg(long, value_name = "K", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub group: u32,

    /// Bytes of each rank
    #[arg(long, value_name = "SIZE", default_value = "4MiB", value_parser = bytes)]
    pub bytes: usize,

    /// What the ranks do
    #[arg(long, value_name = "NAME", default_value = "all_reduce")]
    pub collective: String,

    /// Of each host's link, each way
    #[arg(long, value_name = "BITS", default_value = "10Gbit", value_parser = rate)]
    pub rate: f64,

    /// The same where messages of several ranks meet at a link; without it as fast
    #[arg(long, value_name = "BITS", value_parser = rate)]
    pub crowded: Option<f64>,

    /// From one host to another; between racks twice as much
    #[arg(long, value_name = "TIME", default_value = "20us", value_parser = time)]
    pub latency: f64,

    /// What a message costs at each end whatever its length
    #[arg(long, value_name = "TIME", default_value = "2us", value_parser = time)]
    pub overhead: f64,

    /// Packets of 1,514 bytes that wait at a port of a switch before some are lost; without it none are
    #[arg(long, value_name = "PACKETS", value_parser = clap::value_parser!(u32).range(0..))]
    pub queue: Option<u32>,

    /// What passes a link at once after it has been idle: a token bucket
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = bytes)]
    pub burst: usize,

    /// After so long a sender that hears nothing sends the end of a message again: 200ms with TCP on Linux
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = time)]
    pub timeout: f64,

    /// Hosts of a rack; without it all are at one switch
    #[arg(long, value_name = "HOSTS", value_parser = clap::value_parser!(u32).range(1..))]
    pub rack: Option<u32>,

    /// The links of a rack's hosts together in parts of the rack's own link
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, requires = "rack", value_parser = factor)]
    pub oversubscription: f64,

    /// What the ranks of a host together read from and write to memory in a second
    #[arg(long, value_name = "SIZE", default_value = "20GB", value_parser = memory)]
    pub memory: f64,

    /// The hosts are emulated on one machine with fewer processors than ranks: how many, what a message within a host and
    /// one between hosts takes them, each with the time of a byte, to reduce a byte, and to give a processor to another rank;
    /// for example 2,5us,0.2ns,40us,1ns,0.1ns,10us
    #[arg(long, value_name = "COSTS", value_parser = machine)]
    pub machine: Option<Machine>,

    /// Only this algorithm
    #[arg(long, value_name = "NAME")]
    pub algorithm: Option<String>,

    /// Only groups of so many ranks, instead of a host, two, four, and half a host; behind a comma how many of these a larger
    /// group has (8,4), or 1 for none, instead of none and those of a rack
    #[arg(long, value_name = "RANKS[,GROUPS]", value_parser = grouping)]
    pub grouping: Option<Grouping>,

    /// Only so many leaders of a group
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub leaders: Option<u32>,

    /// Only chunks of so many bytes
    #[arg(long, value_name = "SIZE", value_parser = some_bytes)]
    pub chunk: Option<usize>,

    /// Only segments of so many bytes
    #[arg(long, value_name = "SIZE", value_parser = some_bytes)]
    pub segment: Option<usize>,

    /// How many of the ways to show
    #[arg(long, value_name = "NUMBER", default_value_t = 12)]
    pub show: usize,

    /// As JSON, all of them
    #[arg(long)]
    pub json: bool,

    /// Draw the times as SVG
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
}

/// Groups of ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grouping {
    /// Ranks of a group.
    pub ranks: usize,
    /// Groups of a larger one.
    pub above: Option<usize>,
}

/// Units of memory: powers of 1000 and of 1024.
const BYTES: &[(&str, f64)] = &[
    ("", 1.0),
    ("B", 1.0),
    ("K", 1024.0),
    ("M", 1_048_576.0),
    ("G", 1_073_741_824.0),
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
    ("kB", 1e3),
    ("KB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("TB", 1e12),
];
const BITS: &[(&str, f64)] = &[("kbit", 1e3), ("Mbit", 1e6), ("Gbit", 1e9), ("Tbit", 1e12)];
const TIMES: &[(&str, f64)] = &[("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0)];

/// A number with one of these units, in any case.
fn quantity(text: &str, units: &[(&str, f64)], example: &str) -> Result<f64, String> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = (text[..end].parse::<f64>(), text[end..].trim());
    let unit = units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit));
    match (number, unit) {
        (Ok(number), Some((_, factor))) if number * factor >= 0.0 && (number * factor).is_finite() => {
            Ok(number * factor)
        }
        _ if text.starts_with('-') => Err(format!("must not be below 0, for example {example}")),
        _ => Err(format!("write a number and a unit, for example {example}")),
    }
}

impl SimulateOptions {
    /// The options, of which those that are quantities take a minus, too: so that it is they that say what is wrong.
    pub(super) fn command_line() -> clap::Command {
        SimulateOptions::command().mut_args(|arg| {
            let names = ["NAME", "FILE"].map(Some);
            let name = arg.get_value_names().and_then(|names| names.first()).map(|name| &**name);
            let takes = arg.get_action().takes_values() && !names.contains(&name);
            if takes { arg.allow_hyphen_values(true) } else { arg }
        })
    }
}

fn positive(value: f64, what: &str) -> Result<f64, String> {
    if value > 0.0 { Ok(value) } else { Err(format!("{what} must be above 0")) }
}

/// As [`bytes`], and not nothing.
fn some_bytes(text: &str) -> Result<usize, String> {
    match bytes(text)? {
        0 => Err("there are none of 0 bytes; left out, the formulas choose".into()),
        bytes => Ok(bytes),
    }
}

fn bytes(text: &str) -> Result<usize, String> {
    let value = quantity(text, BYTES, "4MiB")?;
    if value > 1e12 {
        return Err("1 TB is the most".into());
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 1e12")]
    Ok(value as usize)
}

fn rate(text: &str) -> Result<f64, String> {
    positive(quantity(text, BITS, "100Gbit")? / 8.0, "a rate")
}

fn time(text: &str) -> Result<f64, String> {
    quantity(text, TIMES, "20us")
}

fn memory(text: &str) -> Result<f64, String> {
    positive(quantity(text, BYTES, "200GB")?, "what memory carries")
}

/// What the words of `--machine` are, in order.
const COSTS: [&str; 7] = [
    "the number of processors",
    "what a message within a host takes",
    "the time of a byte within a host",
    "what a message between hosts takes",
    "the time of a byte between hosts",
    "the time to reduce a byte",
    "the time to give a processor to another rank",
];

/// Processors, and six times.
fn machine(text: &str) -> Result<Machine, String> {
    let words: Vec<&str> = text.split(',').collect();
    let Ok(words): Result<[&str; 7], _> = words.try_into() else {
        let what = COSTS.join(", ");
        return Err(format!("write seven words: {what}; for example 2,5us,0.2ns,40us,1ns,0.1ns,10us"));
    };
    let processors = words[0].parse().ok().filter(|number| *number > 0);
    let processors = processors.ok_or_else(|| format!("{}, '{}': write a whole number above 0", COSTS[0], words[0]))?;
    let mut seconds = [0.0; 7];
    for ((word, what), place) in words.into_iter().zip(COSTS).zip(&mut seconds).skip(1) {
        *place = time(word).map_err(|reason| format!("{what}, '{word}': {reason}"))?;
    }
    let [_, message, byte, between, between_byte, reduced, turn] = seconds;
    Ok(Machine {
        processors,
        inside: Work { message, byte },
        between: Work { message: between, byte: between_byte },
        reduced,
        turn,
    })
}

/// One number or two.
fn grouping(text: &str) -> Result<Grouping, String> {
    let number = |text: &str| text.parse().ok().filter(|number| (1..=1_000_000).contains(number));
    let found = match text.split_once(',') {
        Some((ranks, above)) => number(ranks).zip(number(above)).map(|(ranks, above)| (ranks, Some(above))),
        None => number(text).map(|ranks| (ranks, None)),
    };
    let found = found.map(|(ranks, above)| Grouping { ranks, above });
    found
        .ok_or_else(|| "numbers above 0: ranks of a group, or these and groups of a larger one, for example 8,4".into())
}

fn factor(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(factor) if (1.0..=1e6).contains(&factor) => Ok(factor),
        _ => Err("a factor of 1 or more, for example 4".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_have_the_units_that_people_write() {
        assert_eq!(
            (bytes("4MiB"), bytes("4M"), bytes("512"), bytes("1MB")),
            (Ok(4 << 20), Ok(4 << 20), Ok(512), Ok(1_000_000))
        );
        assert_eq!((rate("200Mbit"), rate("100Gbit"), rate("1.6gbit")), (Ok(25e6), Ok(12.5e9), Ok(2e8)));
        assert!((time("20us").expect("a time") - 2e-5).abs() < 1e-12);
        for text in ["", "Mbit", "200", "200MiB", "-1Mbit", "0Mbit"] {
            assert!(rate(text).is_err(), "{text}");
        }
        assert!(some_bytes("0").is_err() && some_bytes("1KiB") == Ok(1024));
        let costs = machine("2,20us,0.2ns,40us,1ns,0.1ns,10us").expect("seven words");
        assert_eq!((costs.processors, costs.inside.message > 19e-6, costs.turn > 9e-6), (2, true, true));
        for (text, says) in [
            ("2,20us", "write seven words: the number of processors, what a message"),
            ("0,1us,1ns,1us,1ns,1ns,1us", "the number of processors, '0': write a whole number above 0"),
            ("-2,1us,1ns,1us,1ns,1ns,1us", "the number of processors, '-2'"),
            ("2,-5us,1ns,1us,1ns,1ns,1us", "what a message within a host takes, '-5us': must not be below 0"),
            ("2,1us,1ns,1us,1ns,1ns,10", "to give a processor to another rank, '10': write a number and a unit"),
        ] {
            let error = machine(text).expect_err(text);
            assert!(error.contains(says), "{error}");
        }
        assert_eq!(grouping("8"), Ok(Grouping { ranks: 8, above: None }));
        assert_eq!(grouping("8,4"), Ok(Grouping { ranks: 8, above: Some(4) }));
        assert!(["", "8,", "0", "8,0", "8,4,2", "x"].into_iter().all(|text| grouping(text).is_err()));
        let parse = |words: &[&str]| {
            let words = [&["simulate", "--ranks", "16"], words].concat();
            SimulateOptions::command_line().try_get_matches_from(words).map_err(|error| error.to_string())
        };
        for (option, value, says) in [
            ("--latency", "-5us", "must not be below 0, for example 20us"),
            ("--group", "-1", "-1 is not in 1..=4096"),
            ("--queue", "-3", "-3 is not in 0..=4294967295"),
            ("--oversubscription", "-1", "a factor of 1 or more"),
            ("--grouping", "-8,4", "numbers above 0"),
            ("--machine", "-2,1us,1ns,1us,1ns,1ns,1us", "the number of processors, '-2'"),
        ] {
            let error = parse(&[option, value]).expect_err(option);
            assert!(error.contains(says) && error.contains(option), "{error}");
        }
        assert!(parse(&["--plot", "--json"]).is_err(), "no file of this name");
        assert!(parse(&["--latency", "5us", "--json"]).is_ok());
        assert!(bytes("9TB").is_err() && time("5").is_err() && memory("0").is_err() && factor("0.5").is_err());
    }
}
