//! `rsrun simulate`: asks the simulator of the collectives and shows what it found. Starts no ranks.

use crate::cli::SimulateOptions;
use crate::exit::{ExitCode, Failure};
use spmd_collectives::algorithms::Collective;
use spmd_collectives::simulate::sweep::{Fixed, Question, Sweep, Way, sweep};
use spmd_collectives::simulate::{Fabric, Outcome, Racks};
use std::fmt::Write as _;

/// What `rsrun simulate` prints.
///
/// # Errors
/// No such collective or algorithm, no way that can be simulated, or the plot cannot be written.
pub fn run(options: &SimulateOptions) -> Result<String, Failure> {
    let usage = |message: String| Failure::new(ExitCode::Usage, message);
    let names = |list: &mut dyn Iterator<Item = &'static str>| list.collect::<Vec<_>>().join(", ");
    let collective = Collective::ALL.into_iter().find(|one| one.name() == options.collective).ok_or_else(|| {
        let known = names(&mut Collective::ALL.into_iter().map(Collective::name));
        usage(format!("--collective {}: there are {known}", options.collective))
    })?;
    let algorithms = || collective.algorithms().iter().map(|algorithm| algorithm.name);
    if let Some(name) = options.algorithm.as_deref().filter(|name| algorithms().all(|known| known != *name)) {
        return Err(usage(format!("--algorithm {name}: {collective} has {}", names(&mut algorithms()))));
    }
    let size = |number: u32| number as usize;
    let question =
        Question { collective, ranks: size(options.ranks), width: size(options.group), bytes: options.bytes };
    let fixed = Fixed {
        algorithm: options.algorithm.as_deref(),
        group: options.grouping.map(|grouping| grouping.ranks),
        above: options.grouping.and_then(|grouping| grouping.above),
        leaders: options.leaders.map(size),
        chunk: options.chunk,
        segment: options.segment,
    };
    let found = sweep(&question, &fixed, &fabric(options)).map_err(|error| usage(error.to_string()))?;
    if found.ways.is_empty() {
        let why = match found.left_out.is_empty() {
            true => "the algorithm may not be used among such groups",
            false => "its schedules are too large to be simulated: fewer ranks, or larger chunks",
        };
        return Err(usage(format!("nothing to simulate: {why}")));
    }
    if let Some(path) = &options.plot {
        let written = std::fs::write(path, svg(&found));
        written.map_err(|error| Failure::new(ExitCode::Data, format!("--plot {}: {error}", path.display())))?;
    }
    Ok(if options.json { json(options, &found) } else { text(options, &found) })
}

fn fabric(options: &SimulateOptions) -> Fabric {
    Fabric {
        rate: options.rate,
        crowded: options.crowded.unwrap_or(options.rate).min(options.rate),
        latency: options.latency,
        overhead: options.overhead,
        queue: options.queue.map_or(f64::INFINITY, |packets| f64::from(packets) * 1514.0),
        burst: options.burst as f64,
        timeout: options.timeout,
        racks: options.rack.map(|hosts| Racks { hosts: hosts as usize, oversubscription: options.oversubscription }),
        memory: options.memory,
        machine: options.machine,
        ..Fabric::ASSUMED
    }
}

/// Milliseconds with three figures that count.
fn milliseconds(seconds: f64) -> String {
    let value = seconds * 1e3;
    match value {
        value if value < 0.1 => format!("{value:.4}"),
        value if value < 10.0 => format!("{value:.3}"),
        value if value < 100.0 => format!("{value:.1}"),
        value => format!("{value:.0}"),
    }
}

fn chunk(bytes: usize) -> String {
    match bytes {
        bytes if bytes >= 10 << 20 => format!("{} MiB", bytes >> 20),
        bytes if bytes >= 10 << 10 => format!("{} KiB", bytes >> 10),
        bytes => format!("{bytes} B"),
    }
}

/// What the time went into.
fn bottleneck(outcome: &Outcome) -> String {
    let (part, share) = match (outcome.bottleneck(), outcome.busy.first()) {
        (Some(part), Some((_, share))) => (part.to_string(), *share),
        (None, Some((part, share))) => (format!("waiting; {part}"), *share),
        (_, None) => return "nothing".into(),
    };
    let lost = if outcome.losses > 0 { format!(", {} losses", outcome.losses) } else { String::new() };
    format!("{part} {:.0} %{lost}", share * 100.0)
}

/// Ranks of a group, and how many of these a larger one has.
fn groups(way: &Way) -> String {
    if way.above > 1 { format!("{},{}", way.group, way.above) } else { way.group.to_string() }
}

fn text(options: &SimulateOptions, found: &Sweep) -> String {
    let SimulateOptions { ranks, group, collective, .. } = options;
    let has_data = collective != Collective::Barrier.name();
    let of = if has_data { format!(" of {} a rank", chunk(options.bytes)) } else { String::new() };
    let mut text = format!(
        "{collective}{}: {ranks} ranks, {group} a host; model, not measured\n\n\
         {:>10}  {:<20} {:>6} {:>8} {:>10} {:>10}  busiest\n",
        of, "ms", "algorithm", "group", "leaders", "chunk", "segment"
    );
    let longest = found.ways.iter().take(options.show).map(|(_, outcome)| outcome.seconds).fold(0.0, f64::max);
    for (way, outcome) in found.ways.iter().take(options.show) {
        let Way { algorithm, leaders, chunk: bytes, segment, .. } = way;
        let group = groups(way);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 20")]
        let bar = "#".repeat((20.0 * outcome.seconds / longest).round() as usize);
        let _ = writeln!(
            text,
            "{:>10}  {algorithm:<20} {group:>6} {leaders:>8} {:>10} {:>10}  {:<44} {bar}",
            milliseconds(outcome.seconds),
            chunk(*bytes),
            chunk(*segment),
            bottleneck(outcome)
        );
    }
    if found.ways.len() > options.show {
        let _ = writeln!(text, "{:>10}  {} slower ones (--show)", "...", found.ways.len() - options.show);
    }
    let (best, outcome) = &found.ways[0];
    let _ = writeln!(
        text,
        "\nbest: {} in groups of {}{}, {} leader{}, chunks of {}, segments of {}: {} ms",
        best.algorithm,
        best.group,
        if best.above > 1 { format!(" in larger ones of {}", best.above) } else { String::new() },
        best.leaders,
        if best.leaders == 1 { "" } else { "s" },
        chunk(best.chunk),
        chunk(best.segment),
        milliseconds(outcome.seconds)
    );
    let mut left_out: Vec<&str> = found.left_out.iter().map(|way| way.algorithm).collect();
    left_out.dedup();
    left_out.sort_unstable();
    left_out.dedup();
    if !left_out.is_empty() {
        let _ = writeln!(text, "left out, as too large to be simulated in some settings: {}", left_out.join(", "));
    }
    text
}

fn json(options: &SimulateOptions, found: &Sweep) -> String {
    let way = |way: &Way| {
        serde_json::json!({
            "algorithm": way.algorithm, "group": way.group, "above": way.above, "leaders": way.leaders, "chunk_bytes": way.chunk,
            "segment_bytes": way.segment,
        })
    };
    let ways = found.ways.iter().map(|(one, outcome)| {
        let mut value = way(one);
        let busy =
            outcome.busy.iter().map(|(part, share)| serde_json::json!({"part": part.to_string(), "share": share}));
        value["seconds"] = outcome.seconds.into();
        value["bottleneck"] = outcome.bottleneck().map(|part| part.to_string()).into();
        value["busy"] = busy.collect();
        value["losses"] = outcome.losses.into();
        value["resent_bytes"] = outcome.resent.into();
        value
    });
    let all = serde_json::json!({
        "collective": options.collective, "ranks": options.ranks, "ranks_a_host": options.group, "bytes": options.bytes,
        "ways": ways.collect::<Vec<_>>(), "left_out": found.left_out.iter().map(way).collect::<Vec<_>>(),
    });
    format!("{all:#}\n")
}

/// A bar for the best setting of each algorithm.
fn svg(found: &Sweep) -> String {
    let mut best: Vec<&(Way, Outcome)> = Vec::new();
    for one in &found.ways {
        if best.iter().all(|(way, _)| way.algorithm != one.0.algorithm) {
            best.push(one);
        }
    }
    let longest = best.iter().map(|(_, outcome)| outcome.seconds).fold(0.0, f64::max);
    let height = 28 * best.len() + 20;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"760\" height=\"{height}\" font-family=\"sans-serif\" \
         font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    for (row, (way, outcome)) in best.iter().enumerate() {
        let (y, width) = (28 * row + 10, 420.0 * outcome.seconds / longest);
        let _ = writeln!(
            text,
            "<text x=\"8\" y=\"{}\">{}</text><rect x=\"170\" y=\"{y}\" width=\"{width:.1}\" height=\"20\" \
             fill=\"#4477aa\"/><text x=\"{:.1}\" y=\"{}\">{} ms</text>",
            y + 15,
            way.algorithm,
            width + 176.0,
            y + 15,
            milliseconds(outcome.seconds)
        );
    }
    text + "</svg>\n"
}
