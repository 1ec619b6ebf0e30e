//! Records in files: one JSON file a call, never changed once it is written, and two of them compared.

use crate::measure::{Pattern, Unit};
use crate::port::Failure;
use crate::record::{Machine, Record, SCHEMA};
use crate::turns::{Remark, Spread, placements};
use serde::Serialize;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Where records go when nothing is said: `$XDG_STATE_HOME/rsbench`, or `~/.local/state/rsbench`.
#[must_use]
pub fn default_folder() -> Option<PathBuf> {
    // The XDG base directory specification: relative paths are to be ignored.
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = variable("XDG_STATE_HOME").or_else(|| Some(variable("HOME")?.join(".local/state")))?;
    Some(state.join("rsbench"))
}

/// Writes a record into a folder, which is made if it is missing, under a name that sorts by time.
///
/// # Errors
/// The folder cannot be written to.
pub fn store(folder: &Path, record: &Record) -> Result<PathBuf, Failure> {
    let explain = |error: std::io::Error| format!("{}: the record cannot be written: {error}", folder.display());
    fs::create_dir_all(folder).map_err(explain)?;
    let text = serde_json::to_string(record)?;
    for copy in 0.. {
        let again = if copy == 0 { String::new() } else { format!("-{copy}") };
        let path = folder.join(format!("{}-{}{again}.json", record.time, record.plan.pattern.name()));
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(mut file) => {
                file.write_all(text.as_bytes()).and_then(|()| file.write_all(b"\n")).map_err(explain)?;
                return Ok(path);
            }
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && copy < 1000 => {}
            Err(error) => return Err(explain(error).into()),
        }
    }
    unreachable!("the loop ends by returning")
}

/// Reads a record.
///
/// # Errors
/// The file cannot be read, is no record, or is one of another version of the format.
pub fn load(path: &Path) -> Result<Record, Failure> {
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    parse(&text).map_err(|reason| format!("{}: {reason}", path.display()).into())
}

fn parse(text: &str) -> Result<Record, String> {
    let no_record = |error: serde_json::Error| format!("this is no record of rsbench (--json or --archive): {error}");
    // The version first: another one has other fields.
    let value: serde_json::Value = serde_json::from_str(text).map_err(no_record)?;
    match value.get("schema").and_then(serde_json::Value::as_u64) {
        Some(found) if found != u64::from(SCHEMA) => {
            return Err(format!("format {found}, and this rsbench reads {SCHEMA}: use the one that wrote it"));
        }
        _ => {}
    }
    serde_json::from_value(value).map_err(no_record)
}

/// The machine that this runs on.
#[must_use]
pub fn this_machine() -> Machine {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let info = read("/proc/cpuinfo");
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let uname = rustix::system::uname();
    let mut caches: Vec<String> =
        numbered("/sys/devices/system/cpu", "cpu").iter().filter_map(|cpu| last_cache(cpu)).collect();
    caches.dedup();
    let domains = numbered("/sys/devices/system/node", "node");
    Machine {
        host: uname.nodename().to_string_lossy().into_owned(),
        kernel: uname.release().to_string_lossy().into_owned(),
        processor: model.map_or_else(|| std::env::consts::ARCH.to_owned(), |model| model.1.to_owned()),
        processors: read("/sys/devices/system/cpu/online"),
        caches,
        domains: domains.iter().map(|node| read(&node.join("cpulist").display().to_string())).collect(),
    }
}

/// The sub-folders named by a word and a number, in the order of the numbers.
fn numbered(folder: &str, word: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let number = |path: &PathBuf| path.file_name()?.to_str()?.strip_prefix(word)?.parse::<usize>().ok();
    let mut found: Vec<_> = entries.map(|entry| entry.path()).filter_map(|path| Some((number(&path)?, path))).collect();
    found.sort();
    found.into_iter().map(|(_, path)| path).collect()
}

/// The processors that share the last cache with this one.
fn last_cache(processor: &Path) -> Option<String> {
    let caches = numbered(processor.join("cache").to_str()?, "index");
    Some(fs::read_to_string(caches.last()?.join("shared_cpu_list")).ok()?.trim().to_owned())
}

/// The revision of the working copy that this program was built in.
#[must_use]
pub fn revision() -> Option<String> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = std::process::Command::new("git")
        .arg("-C")
        .arg(here)
        .args(["describe", "--always", "--dirty", "--abbrev=12"])
        .output();
    let output = output.ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// One size of one library in two records.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    /// The library.
    pub library: String,
    /// Bytes of a message.
    pub bytes: usize,
    /// What the figures are in.
    pub unit: Unit,
    /// Microseconds of the cache-line exchange of the runs that were compared.
    pub cache_line_us: Option<f64>,
    /// The first record's P50: median, least and most of its turns.
    pub a: [f64; 3],
    /// The second record's.
    pub b: [f64; 3],
    /// What the second costs in parts of the first: above 1 it is the worse one, whatever the unit.
    pub cost: f64,
    /// What the difference is worth.
    pub remark: Remark,
}

impl Compared {
    /// Whether the second is worse than the first by more than this factor, as far as the turns can tell.
    #[must_use]
    pub fn fails(&self, above: f64) -> bool {
        self.cost > above && matches!(self.remark, Remark::Worse | Remark::OneTurn)
    }
}

/// Compares what two records have in common: libraries, sizes, and placements of the cores.
///
/// # Errors
/// They are of different patterns, or have nothing in common.
pub fn compare(a: &Record, b: &Record) -> Result<Vec<Compared>, Failure> {
    let (first, second): (Pattern, Pattern) = (a.plan.pattern, b.plan.pattern);
    if first != second {
        return Err(format!("one measured {}, the other {}", first.name(), second.name()).into());
    }
    let transports = |record: &Record| record.runs.iter().find_map(|run| run.transport);
    if let (Some(one), Some(other)) = (transports(a), transports(b))
        && one != other
    {
        return Err(format!("one measured over {}, the other over {}", one.name(), other.name()).into());
    }
    let mut rows = Vec::new();
    for placement in placements(a.runs.iter().chain(&b.runs)).0 {
        let is_of = |record: &Record, run: &crate::record::Run| record.runs.iter().any(|own| std::ptr::eq(own, run));
        for library in placement.libraries() {
            for bytes in &a.plan.sizes {
                let of = |record: &Record| {
                    let runs = placement.runs.iter().filter(|run| run.library == library && is_of(record, run));
                    let rows = runs.filter_map(|run| run.rows.iter().find(|row| row.bytes == *bytes));
                    Spread::of(rows.map(|row| row.figures.p50).collect())
                };
                let (Some(before), Some(after)) = (of(a), of(b)) else { continue };
                let unit = first.unit();
                rows.push(Compared {
                    library: library.to_owned(),
                    bytes: *bytes,
                    unit,
                    cache_line_us: placement.cache_line_us,
                    a: [before.median, before.low, before.high],
                    b: [after.median, after.low, after.high],
                    cost: unit.cost(after.median, before.median),
                    remark: before.remark(&after, unit),
                });
            }
        }
    }
    if rows.is_empty() {
        let lines = |record: &Record| {
            let lines = record.runs.iter().filter_map(|run| run.cache_line_us).map(|line| format!("{:.2}", line[0]));
            lines.collect::<Vec<_>>().join(" ")
        };
        return Err(format!(
            "no library and size was measured in both with the cores as far apart (cache line in us: {} | {}): measure \
             again until both near and far have occurred",
            lines(a),
            lines(b)
        )
        .into());
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::samples::record;

    #[test]
    fn records_are_stored_side_by_side_and_read_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = folder.path().join("deep/er");
        let record = record(&[("rsrun", 0.05, 0.2)]);
        let paths = [store(&place, &record).expect("stored"), store(&place, &record).expect("stored again")];
        assert_ne!(paths[0], paths[1]);
        for path in paths {
            assert_eq!(load(&path).expect("it can be read"), record);
        }
    }

    #[test]
    fn what_is_no_record_is_refused_with_its_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x.json");
        for (text, reason) in [("{}", "no record of rsbench"), ("", "no record"), ("{\"schema\":99}", "format 99")] {
            fs::write(&path, text).expect("written");
            let error = load(&path).expect_err("refused").to_string();
            assert!(error.contains(reason) && error.contains("x.json"), "{error}");
        }
        assert!(load(Path::new("/nonexistent")).is_err());
    }

    #[test]
    fn a_second_record_that_is_slower_in_every_turn_fails_and_one_that_overlaps_does_not() {
        let a = record(&[("rsrun", 0.05, 0.20), ("rsrun", 0.05, 0.22)]);
        let slower = record(&[("rsrun", 0.05, 0.30), ("rsrun", 0.05, 0.32)]);
        let rows = compare(&a, &slower).expect("comparable");
        assert_eq!((rows.len(), rows[0].remark), (1, Remark::Worse));
        assert!((rows[0].cost - 0.31 / 0.21).abs() < 1e-9);
        assert!(rows[0].fails(1.05) && !rows[0].fails(2.0));
        let overlapping = record(&[("rsrun", 0.05, 0.21), ("rsrun", 0.05, 0.32)]);
        assert!(!compare(&a, &overlapping).expect("comparable")[0].fails(1.05));
        assert!(!compare(&slower, &a).expect("comparable")[0].fails(1.05));
    }

    #[test]
    fn near_is_never_compared_with_far() {
        let near = record(&[("rsrun", 0.05, 0.2)]);
        let far = record(&[("rsrun", 0.25, 0.4)]);
        let error = compare(&near, &far).expect_err("nothing in common").to_string();
        assert!(error.contains("0.05 | 0.25"), "{error}");
        let both = record(&[("rsrun", 0.25, 0.5), ("rsrun", 0.05, 0.1)]);
        let rows = compare(&near, &both).expect("the near ones");
        assert_eq!((rows.len(), rows[0].b), (1, [0.1; 3]));
    }

    #[test]
    fn different_patterns_are_refused() {
        let a = record(&[("rsrun", 0.05, 0.2)]);
        let mut b = a.clone();
        b.plan.pattern = Pattern::Rate;
        assert_eq!(compare(&a, &b).expect_err("refused").to_string(), "one measured latency, the other rate");
    }

    #[test]
    fn this_machine_has_processors_and_a_kernel() {
        let machine = this_machine();
        assert!(!machine.kernel.is_empty() && !machine.processors.is_empty() && !machine.processor.is_empty());
    }
}
