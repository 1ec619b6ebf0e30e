//! `rsrun simulate`: asks the simulator of the collectives and shows what it found. Starts no ranks.

use crate::cli::{Grouping, SimulateOptions};
use crate::exit::{ExitCode, Failure};
use crate::job::Destination;
use spmd_collectives::algorithms::{Collective, Restriction};
use spmd_collectives::simulate::sweep::{Fixed, Question, Sweep, Way, sweep};
use spmd_collectives::simulate::{Fabric, Outcome, Racks};
use std::fmt::Write as _;
use std::path::Path;

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
    possible(options).map_err(usage)?;
    if options.algorithm.as_deref() == shared_by_all(options, collective) && options.algorithm.is_some() {
        return Err(usage(format!("nothing to simulate: {}", not_simulated(options, collective))));
    }
    let plot = options.plot.as_deref().map(|path| (path, Destination::find(path)));
    let cannot = |path: &Path, error| {
        Failure::new(ExitCode::Directory, format!("--plot {}: it cannot be written: {error}", path.display()))
    };
    let plot = plot.map(|(path, found)| found.map(|place| (path, place)).map_err(|error| cannot(path, error)));
    let plot = plot.transpose()?;
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
            true => forbidden(options, &found),
            false => "the schedules are too large to be simulated: fewer ranks, or larger chunks".into(),
        };
        return Err(usage(format!("nothing to simulate: {why}")));
    }
    if let Some((path, place)) = plot {
        place.write(svg(&found).as_bytes()).map_err(|error| cannot(path, error))?;
    }
    Ok(if options.json { json(options, collective, &found) } else { text(options, collective, &found) })
}

/// Groups that cannot be.
fn possible(options: &SimulateOptions) -> Result<(), String> {
    let (Some(Grouping { ranks, above }), all) = (options.grouping, options.ranks as usize) else { return Ok(()) };
    if ranks > all {
        return Err(format!("--grouping {ranks}: there are {all} ranks; write 1 to {all}"));
    }
    match above.filter(|above| *above > 1 && ranks.saturating_mul(*above) >= all) {
        Some(above) => Err(format!(
            "--grouping {ranks},{above}: one larger group would have all {all} ranks, which is no level: write fewer, or \
             {ranks},1 for none"
        )),
        None => Ok(()),
    }
}

/// The algorithm in memory that all ranks share, where there is one and all ranks are on one host.
fn shared_by_all(options: &SimulateOptions, collective: Collective) -> Option<&'static str> {
    let mut all = collective.algorithms().iter();
    let shared = all.find(|algorithm| algorithm.restrictions.contains(&Restriction::SharedMemory))?;
    (options.ranks <= options.group).then_some(shared.name)
}

/// What the simulator does not know of ranks on one host.
fn not_simulated(options: &SimulateOptions, collective: Collective) -> String {
    let Some(name) = shared_by_all(options, collective) else { return String::new() };
    let ranks = options.ranks;
    let measure = match collective {
        Collective::Barrier => format!("rsbench barrier -n {ranks} measures it"),
        _ => format!("rsrun -n {ranks} rsbench tune collectives measures it beside those that do"),
    };
    format!("{name}, which calls that block on one host take by themselves, sends no messages; {measure}")
}

/// Why no algorithm may be used.
fn forbidden(options: &SimulateOptions, found: &Sweep) -> String {
    let ranks = options.ranks;
    let of = options.grouping.map_or_else(String::new, |grouping| format!(" in groups of {}", grouping.ranks));
    let one = |(name, restriction): &(&str, Restriction)| {
        format!("{name}: {restriction}, which is not so of {ranks} ranks{of}, {} a host", options.group)
    };
    found.forbidden.iter().map(one).collect::<Vec<_>>().join("; ")
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

/// The bytes of a piece; none where it is all of them.
fn part(bytes: usize, all: usize) -> Option<String> {
    (bytes < all).then(|| chunk(bytes))
}

/// Ranks of a group, and how many of these a larger one has.
fn groups(way: &Way) -> String {
    if way.above > 1 { format!("{},{}", way.group, way.above) } else { way.group.to_string() }
}

fn text(options: &SimulateOptions, collective: Collective, found: &Sweep) -> String {
    let SimulateOptions { ranks, group, .. } = options;
    let has_data = collective != Collective::Barrier;
    let of = if has_data { format!(" of {} a rank", chunk(options.bytes)) } else { String::new() };
    let mut text = format!(
        "{collective}{}: {ranks} ranks, {group} a host; model, not measured\n\n\
         {:>10}  {:<20} {:>6} {:>8} {:>10} {:>10}  busiest\n",
        of, "ms", "algorithm", "group", "leaders", "chunk", "segment"
    );
    let whole = || "-".to_owned();
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
            part(*bytes, options.bytes).unwrap_or_else(whole),
            part(*segment, options.bytes).unwrap_or_else(whole),
            bottleneck(outcome)
        );
    }
    if found.ways.len() > options.show {
        let _ = writeln!(text, "{:>10}  {} slower ones (--show)", "...", found.ways.len() - options.show);
    }
    let (best, outcome) = &found.ways[0];
    let _ = writeln!(
        text,
        "\nbest: {} in groups of {}{}, {} leader{}{}{}: {} ms",
        best.algorithm,
        best.group,
        if best.above > 1 { format!(" in larger ones of {}", best.above) } else { String::new() },
        best.leaders,
        if best.leaders == 1 { "" } else { "s" },
        part(best.chunk, options.bytes).map_or_else(String::new, |bytes| format!(", chunks of {bytes}")),
        part(best.segment, options.bytes).map_or_else(String::new, |bytes| format!(", segments of {bytes}")),
        milliseconds(outcome.seconds)
    );
    let mut left_out: Vec<&str> = found.left_out.iter().map(|way| way.algorithm).collect();
    left_out.dedup();
    left_out.sort_unstable();
    left_out.dedup();
    if !left_out.is_empty() {
        let _ = writeln!(text, "left out, as too large to be simulated in some settings: {}", left_out.join(", "));
    }
    if shared_by_all(options, collective).is_some() {
        let _ = writeln!(text, "not simulated: {}", not_simulated(options, collective));
    }
    text
}

fn json(options: &SimulateOptions, collective: Collective, found: &Sweep) -> String {
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
        "not_simulated": shared_by_all(options, collective).into_iter().collect::<Vec<_>>(),
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

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    fn simulated(words: &[&str]) -> Result<String, Failure> {
        run(&SimulateOptions::parse_from([&["simulate", "--bytes", "4KiB"], words].concat()))
    }

    #[test]
    fn what_cannot_be_simulated_is_refused_with_the_reason() {
        for (words, says) in [
            ("--ranks 16 --algorithm two_hop --grouping 1", "two_hop: there must be several groups"),
            (
                "--ranks 16 --group 4 --grouping 3 --algorithm two_hop_shared",
                "of each group must be on one host and may",
            ),
            (
                "--ranks 6 --collective all_gather --algorithm recursive_doubling",
                "a power of two, which is not so of 6 ranks",
            ),
            ("--ranks 16 --grouping 17", "--grouping 17: there are 16 ranks"),
            ("--ranks 16 --group 4 --grouping 4,4", "--grouping 4,4: one larger group would have all 16 ranks"),
            (
                "--ranks 16 --algorithm shared",
                "shared: all ranks must be on one host and may share memory, which is not so of 16",
            ),
            (
                "--ranks 8 --algorithm shared",
                "shared, which calls that block on one host take by themselves, sends no messages",
            ),
            ("--ranks 2000 --algorithm linear --collective all_to_all", "too large to be simulated"),
        ] {
            let failure = simulated(&words.split(' ').collect::<Vec<_>>()).unwrap_err();
            assert!(failure.exit == ExitCode::Usage && failure.message.contains(says), "{words}: {}", failure.message);
        }
    }

    #[test]
    fn ranks_on_one_host_are_told_what_is_not_simulated() {
        let text = simulated(&["--ranks", "8"]).unwrap();
        assert!(text.contains("not simulated: shared, ") && text.ends_with("beside those that do\n"), "{text}");
        let json: serde_json::Value = serde_json::from_str(&simulated(&["--ranks", "8", "--json"]).unwrap()).unwrap();
        assert_eq!(json["not_simulated"], serde_json::json!(["shared"]));
        let json: serde_json::Value = serde_json::from_str(&simulated(&["--ranks", "9", "--json"]).unwrap()).unwrap();
        assert_eq!(json["not_simulated"], serde_json::json!([]));
        let gather = simulated(&["--ranks", "8", "--collective", "all_gather"]).unwrap();
        assert!(!gather.contains("not simulated"), "{gather}");
    }

    #[test]
    fn leaders_are_shown_as_many_as_there_are() {
        let words = ["--ranks", "16", "--group", "4", "--leaders", "64", "--json"];
        let json: serde_json::Value = serde_json::from_str(&simulated(&words).unwrap()).unwrap();
        for way in json["ways"].as_array().unwrap() {
            let name = way["algorithm"].as_str().unwrap();
            let group = way["group"].as_u64().unwrap();
            let most = if name.starts_with("two_hop") { group } else { 1 };
            assert_eq!(way["leaders"], most, "{way}");
        }
    }

    #[test]
    fn a_plot_that_cannot_be_drawn_is_found_out_first_and_one_that_can_is_drawn() {
        let folder = tempfile::tempdir().unwrap();
        let (file, wrong) = (folder.path().join("plot.svg"), folder.path().join("none/plot.svg"));
        // Too much to be simulated within the time of a test.
        let words = ["--ranks", "4096", "--bytes", "64MiB", "--plot", wrong.to_str().unwrap()];
        let begun = std::time::Instant::now();
        let failure = run(&SimulateOptions::parse_from([&["simulate"], &words[..]].concat())).unwrap_err();
        assert_eq!((failure.exit, begun.elapsed().as_secs()), (ExitCode::Directory, 0), "{}", failure.message);
        simulated(&["--ranks", "16", "--plot", file.to_str().unwrap()]).unwrap();
        assert!(std::fs::read_to_string(&file).unwrap().starts_with("<svg"));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
