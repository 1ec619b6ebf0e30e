//! `rsbench` from its command line to its output, with two ranks on this machine, and what it says to wrong input.

use rsbench::record::Record;
use spmd_lab::programs::{Outcome, Programs, run, run_without_reader};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(120);

/// Few and short, whatever the machine.
const SHORT: [&str; 7] = ["--rounds", "5", "--warm-up", "1", "--seconds", "5", "--no-archive"];

fn programs() -> &'static Programs {
    static PROGRAMS: OnceLock<Programs> = OnceLock::new();
    PROGRAMS.get_or_init(|| Programs::build(&["--bin", "rsbench", "--bin", "two-hop", "--bin", "start"]))
}

/// One job at a time: ranks that wait use up the processors that another job needs.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn rsbench(arguments: &[&str]) -> Outcome {
    run(&mut command("rsbench", arguments), LIMIT)
}

fn command(program: &str, arguments: &[&str]) -> Command {
    // What `launch` does to the environment, with another program.
    let clean = programs().launch(&[]);
    let mut command = Command::new(programs().rsrun().with_file_name(program));
    for (name, value) in clean.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.env_remove("XDG_STATE_HOME").args(arguments);
    command
}

fn record(arguments: &[&str]) -> Record {
    let outcome = rsbench(arguments).succeeded();
    serde_json::from_str(outcome.stdout.trim()).unwrap_or_else(|error| panic!("{error}: {outcome}"))
}

#[test]
fn every_pattern_measures_two_ranks_and_checks_every_message() {
    let _turn = alone();
    for pattern in ["latency", "bandwidth", "bibw", "rate", "incast", "ring", "barrier"] {
        let sizes: &[&str] = if pattern == "barrier" { &[] } else { &["--sizes", "0,8,70000"] };
        let record = record(&[&[pattern, "--json", "--check"], sizes, &SHORT].concat());
        let [run] = record.runs.as_slice() else { panic!("{record:?}") };
        let measured: Vec<usize> = run.rows.iter().map(|row| row.bytes).collect();
        assert_eq!(measured, if pattern == "barrier" { vec![0] } else { vec![0, 8, 70_000] });
        assert_eq!((record.plan.pattern.name(), run.ranks.len(), &*run.library), (pattern, 2, "rsrun"));
        for row in &run.rows {
            assert_eq!((row.rounds, row.unit), (5, record.plan.pattern.unit()), "{pattern}");
            // A message of no bytes moves none.
            assert!(row.figures.p50 > 0.0 || row.bytes == 0, "{pattern}: {row:?}");
        }
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        assert_eq!(run.cache_line_us.is_some(), processors > 1, "{run:?}");
    }
}

#[test]
fn sockets_stand_on_the_floor_of_sockets() {
    let _turn = alone();
    let record = record(&[&["latency", "--json", "--transport", "tcp", "--sizes", "8"], &SHORT[..]].concat());
    let run = &record.runs[0];
    assert_eq!(run.transport.map(rsbench::measure::Transport::name), Some("tcp"));
    if std::thread::available_parallelism().map_or(1, usize::from) > 1 {
        assert_eq!(run.rows[0].floor.as_ref().map(|floor| &*floor.name), Some("bare socket"));
    }
}

#[test]
fn more_ranks_than_processors_go_round_without_a_floor() {
    let _turn = alone();
    let ranks = (std::thread::available_parallelism().map_or(1, usize::from) + 2) / 2 * 2;
    for pattern in ["ring", "rate", "incast"] {
        let record = record(&[&[pattern, "-n", &ranks.to_string(), "--json"], &SHORT[..]].concat());
        assert_eq!(record.runs[0].ranks.len(), ranks);
        assert_eq!(record.runs[0].rows[0].floor, None);
        // What connects them is not known then, and not guessed.
        assert_eq!(record.runs[0].transport, None);
        assert_eq!(record.runs[0].notes, ["no floors: more ranks than processors"]);
    }
}

#[test]
fn under_rsrun_it_is_a_rank_and_prints_its_table() {
    let _turn = alone();
    let bench = programs().rsrun().with_file_name("rsbench").display().to_string();
    let job = |more: &[&str]| {
        let words = ["-n", "2", "-host", "localhost:2", &bench, "latency", "--sizes", "8,1K", "--rounds", "5"];
        run(&mut programs().launch(&[&words[..], more].concat()), LIMIT)
    };
    let outcome = job(&[]).succeeded();
    let last = outcome.stdout.lines().last().expect("a row");
    assert!(last.trim_start().starts_with("1 KiB"), "{outcome}");
    let outcome = job(&["--peer", "openmpi"]);
    assert_ne!(outcome.code(), 0);
    assert!(outcome.stderr.contains("--peer is for rsbench without rsrun"), "{outcome}");
}

#[test]
fn a_file_that_cannot_be_written_is_found_out_before_anything_is_measured() {
    let _turn = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let bench = programs().rsrun().with_file_name("rsbench").display().to_string();
    let tune = |table: &str| {
        let words = ["-n", "2", "-host", "localhost:2", &bench, "tune", "collectives", "--sizes", "64,4K", "-o", table];
        run(&mut programs().launch(&words), LIMIT)
    };
    let outcome = tune(&path("none/table"));
    assert_eq!(outcome.code(), 73, "{outcome}");
    assert!(
        outcome.stderr.contains("none/table: it cannot be written") && !outcome.stderr.contains("measured"),
        "{outcome}"
    );
    let outcome = tune(&path("table")).succeeded();
    assert!(outcome.stderr.contains(" shared ") && outcome.stderr.contains("measured"), "{outcome}");
    let table = fs::read_to_string(path("table")).expect("it is there");
    assert!(
        table.contains("rule all_reduce ranks=2 groups=1 bytes=0..64 ") && table.contains(" bytes=4097.. "),
        "{table}"
    );
    let outcome = rsbench(&[&["latency", "--plot", &path("none/plot.svg")], &SHORT[..]].concat());
    assert_eq!(outcome.code(), 73, "{outcome}");
    assert!(!outcome.stdout.contains("latency"), "{outcome}");
}

#[test]
fn records_are_kept_shown_drawn_and_compared() {
    let _turn = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let quick = &SHORT[..6];
    for _ in 0..2 {
        let kept = path("kept");
        let outcome = rsbench(&[&["latency", "--sizes", "8", "--turns", "2", "--archive", &kept], quick].concat());
        assert!(outcome.succeeded().stderr.contains("kept as "));
    }
    let mut files: Vec<_> =
        fs::read_dir(path("kept")).expect("it is there").flatten().map(|entry| entry.path()).collect();
    files.sort();
    let [a, b] = files.as_slice() else { panic!("{files:?}") };
    let picture = path("picture.svg");
    let shown = rsbench(&["show", &a.display().to_string(), "--plot", &picture]).succeeded();
    assert!(shown.stdout.contains("turns: rsrun 2") || shown.stdout.contains("turns: rsrun 1"), "{shown}");
    assert!(fs::read_to_string(&picture).expect("drawn").starts_with("<svg"));

    // The same place, so that what the machine does meanwhile is no matter; then ten times as slow.
    let fixed = |of: &Path, factor: f64| {
        let mut record: Record = serde_json::from_str(&fs::read_to_string(of).expect("kept")).expect("a record");
        for run in &mut record.runs {
            run.cache_line_us = Some([0.1, 0.1]);
            run.rows[0].figures.p50 = factor * (1.0 + 0.01 * run.turn as f64);
        }
        fs::write(of, serde_json::to_string(&record).expect("JSON")).expect("written");
        of.display().to_string()
    };
    let (a, b) = (fixed(a, 0.2), fixed(b, 2.0));
    let compared = rsbench(&["compare", &a, &b, "--fail-above", "1.05"]);
    assert_eq!(compared.code(), 3, "{compared}");
    assert!(compared.stdout.contains("worse in every turn") && compared.stderr.contains("costs 10.00"), "{compared}");
    let faster = rsbench(&["compare", &b, &a, "--fail-above", "1.05"]).succeeded();
    assert!(faster.stdout.contains("better in every turn"), "{faster}");
    let json = rsbench(&["compare", &a, &a, "--json"]).succeeded();
    assert!(json.stdout.contains("\"remark\":\"overlap\"") && json.stdout.contains("\"cost\":1.0"), "{json}");

    // A reader that has gone (`| head -1`) costs neither words nor what was to be kept.
    fs::remove_file(&picture).expect("drawn before");
    for words in [&["show", &a, "--plot", &picture][..], &["show", &a, "--json"], &["compare", &a, &b], &["peers"]] {
        let outcome = run_without_reader(&mut command("rsbench", words), LIMIT);
        assert_eq!((outcome.code(), &*outcome.stderr), (141, ""), "{outcome}");
    }
    assert!(fs::metadata(&picture).is_ok(), "drawn again");
    let kept = path("kept");
    let words = [&["latency", "--sizes", "8", "--archive", &kept], quick].concat();
    let outcome = run_without_reader(&mut command("rsbench", &words), LIMIT);
    assert_eq!((outcome.code(), outcome.stderr.contains("kept as ")), (141, true), "{outcome}");
    assert_eq!(fs::read_dir(&kept).expect("it is there").count(), 3);
}

#[test]
fn the_other_programs_end_without_a_word_too_when_nobody_reads() {
    let _turn = alone();
    let folder = tempfile::tempdir().expect("a folder");
    // One in which nothing was measured yet, so that there is nothing to simulate.
    let record = folder.path().join("record.json");
    let nothing = rsbench::experiment::record::Record::default();
    fs::write(&record, nothing.to_text().expect("JSON")).expect("written");
    let record = record.display().to_string();
    for (program, words) in
        [("two-hop", &["--show", "--record", &record][..]), ("start", &["--ranks", "1", "--runs", "1"])]
    {
        let outcome = run_without_reader(&mut command(program, words), LIMIT);
        assert_eq!((outcome.code(), &*outcome.stderr), (141, ""), "{outcome}");
    }
}

/// A launcher of another library that answers with a run of its own, or not.
fn fake_peer(folder: &Path, name: &str, launcher: &str, script: &str) {
    let place = folder.join(name).join("python/bin");
    fs::create_dir_all(&place).expect("a folder");
    let program = place.join(launcher);
    fs::write(&program, format!("#!/bin/sh\n{script}\n")).expect("written");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("executable");
    fs::write(folder.join(name).join("rsbench-mpi"), "").expect("written");
}

#[test]
fn peers_take_turns_with_ours_and_one_that_fails_is_left_out() {
    let _turn = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let own = record(&[&["latency", "--sizes", "8", "--json"], &SHORT[..]].concat());
    let mut theirs = own.runs[0].clone();
    theirs.rows[0].figures.p50 = 1e6;
    let text = format!("{}{}", rsbench::MARKER, serde_json::to_string(&theirs).expect("JSON"));
    fs::write(folder.path().join("answer"), text).expect("written");
    let answer = format!("echo 'hello from a launcher'; cat {}", folder.path().join("answer").display());
    fake_peer(folder.path(), "openmpi5", "mpirun", &answer);
    fake_peer(folder.path(), "mpich5", "mpiexec", "echo 'no fabric' >&2; exit 9");
    let peers = folder.path().display().to_string();
    let words =
        ["latency", "--sizes", "8", "--turns", "2", "--peer", "openmpi5,mpich5", "--peers-folder", &peers, "--json"];
    let outcome = rsbench(&[&words, &SHORT[..]].concat()).succeeded();
    assert!(outcome.stderr.contains("mpich5 is left out") && outcome.stderr.contains("no fabric"), "{outcome}");
    let record: Record = serde_json::from_str(outcome.stdout.trim()).expect("a record");
    let order: Vec<_> = record.runs.iter().map(|run| (&*run.library, run.turn)).collect();
    assert_eq!(order, [("rsrun", 0), ("openmpi5", 0), ("openmpi5", 1), ("rsrun", 1)]);
    assert!(record.runs[1].settings["launcher"].contains("--mca btl self,sm"));
}

#[test]
fn a_launcher_of_another_library_ends_with_rsbench_even_when_that_is_killed() {
    let _turn = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let (said, ended) = (folder.path().join("said"), folder.path().join("ended"));
    // It ends its ranks when it is asked to, as launchers do.
    let launcher = format!(
        "trap 'touch {}; exit 1' TERM; echo $$ >{}; while :; do sleep 0.05; done",
        ended.display(),
        said.display()
    );
    fake_peer(folder.path(), "mpich5", "mpiexec", &launcher);
    let clean = programs().launch(&[]);
    let mut command = Command::new(programs().rsrun().with_file_name("rsbench"));
    command.envs(clean.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.args(["latency", "--sizes", "8", "--peer", "mpich5", "--turns", "1", "--peers-folder"]);
    command.arg(folder.path()).args(SHORT).stdout(Stdio::null()).stderr(Stdio::null());
    let mut rsbench = command.spawn().expect("started");
    let until = Instant::now() + LIMIT;
    let appears = |path: &Path| {
        while !path.exists() {
            assert!(Instant::now() < until, "{} does not appear", path.display());
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    appears(&said);
    rsbench.kill().expect("killed");
    rsbench.wait().expect("ended");
    appears(&ended);
}

#[test]
fn wrong_input_is_refused_with_what_is_wrong() {
    for (words, reason) in [
        (&["latency", "--sizes", "8,x"][..], "'x' is no size"),
        (&["latency", "--sizes", "64K..8"], "the first size is the larger one"),
        (&["latency", "--rounds", "0"], "0 is not in 1..=10000000"),
        (&["latency", "--seconds", "0"], "seconds between 0 and 3600"),
        (&["latency", "--window", "3"], "unexpected argument '--window'"),
        (&["barrier", "--sizes", "8"], "unexpected argument '--sizes'"),
        (&["latency", "-n", "1"], "start two or more"),
        (&["rate", "-n", "3"], "3 is odd"),
        (&["latency", "--peer", "mvapich"], "no peer 'mvapich'; there are openmpi"),
        (&["latency", "--peer", "intel", "--peers-folder", "/nonexistent"], "cargo xtask peers setup"),
        (&["latency", "--archive", "/x", "--no-archive"], "cannot be used with"),
        (&["compare", "/nonexistent", "/nonexistent"], "/nonexistent: No such file"),
        (&["compare", "/proc/self/status", "/nonexistent"], "no record of rsbench"),
        (&["compare", "a", "b", "--fail-above", "0.5"], "a factor of 1 or more"),
        (&["rank", "{}"], "takes a plan from rsbench itself"),
        (&["speed"], "unrecognized subcommand 'speed'"),
        (&[], "Usage"),
    ] {
        let outcome = rsbench(words);
        assert_ne!(outcome.code(), 0, "{outcome}");
        assert!(outcome.stderr.contains(reason), "{outcome}");
        assert!(!outcome.stderr.contains("panicked"), "{outcome}");
    }
}

#[test]
fn a_launcher_that_refuses_is_quoted() {
    let _turn = alone();
    let outcome = rsbench(&[&["latency", "--sizes", "8", "--rsrun", "--set no.such.key=1"], &SHORT[..]].concat());
    assert_ne!(outcome.code(), 0);
    assert!(outcome.stderr.contains("no.such.key"), "{outcome}");
}

#[test]
fn help_teaches_by_examples_and_explains_every_option() {
    let help = rsbench(&["--help"]).succeeded().stdout;
    for text in ["rsbench latency --peer all", "floor", "compare", "near to each other"] {
        assert!(help.contains(text), "{text}: {help}");
    }
    for pattern in ["latency", "bandwidth", "bibw", "rate", "incast", "ring", "barrier", "compare", "show", "peers"] {
        let help = rsbench(&[pattern, "--help"]).succeeded().stdout;
        assert!(help.contains("Usage: rsbench"), "{help}");
    }
    assert!(
        rsbench(&["peers", "--peers-folder", "/nonexistent"]).succeeded().stdout.contains("cargo xtask peers setup")
    );
}
