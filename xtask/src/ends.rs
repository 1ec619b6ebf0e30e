//! How long jobs take to end: a rank that is killed, an interrupt; next to the other launchers on this machine.
//!
//! Starts only launchers and `sleep`, and knows every process it started by a variable in its environment.

use crate::command;
use crate::error::{Result, XtaskError};
use crate::say::say;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use spmd_lab::process::with_default_signals;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What ranks run: long, and with an argument that nobody else uses.
const SLEEP: [&str; 2] = ["sleep", "98765"];
/// The same, deaf to polite signals (an ignored signal stays ignored over exec).
const DEAF: [&str; 3] = ["sh", "-c", "trap '' INT TERM HUP; exec sleep 98765"];
/// Nothing here may take longer.
const LIMIT: Duration = Duration::from_secs(30);
/// The time between SIGTERM and SIGKILL in the rows with deaf ranks.
const GRACE: &str = "200ms";

/// What to measure.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) runs: usize,
    pub(crate) ranks: Vec<usize>,
    /// Hosts for rsrun; the others then stay out of it.
    pub(crate) hostfile: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self { runs: 9, ranks: vec![2, 16], hostfile: None }
    }
}

#[derive(Clone, Copy)]
enum Event {
    /// SIGKILL to the last rank.
    Kill,
    /// SIGINT to the launcher.
    Interrupt,
    /// The same, when ranks ignore SIGINT and SIGTERM.
    InterruptDeaf,
}

struct Contender {
    name: &'static str,
    words: Vec<String>,
}

struct Sample {
    milliseconds: f64,
    code: String,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let mut build = command::cargo(&["build", "--release", "--quiet", "-p", "rsrun"]);
    let status = build.status().map_err(|source| start_error(&build, source))?;
    if !status.success() {
        return Err(XtaskError::Failed { command: command::line(&build), status });
    }
    let contenders = contenders(options);
    say!(
        "time until the launcher has exited and every process of the job is gone, in ms: median of {} runs in turn",
        options.runs
    );
    say!("{:<44} {:>6} {:>14} {:>10} {:>10}  exit code", "", "ranks", "", "median", "ratio");
    for &ranks in &options.ranks {
        for event in [Event::Kill, Event::Interrupt, Event::InterruptDeaf] {
            let mut samples: Vec<Vec<Sample>> = contenders.iter().map(|_| Vec::new()).collect();
            for round in 0..options.runs {
                for (contender, samples) in contenders.iter().zip(&mut samples) {
                    // How long the others wait before they kill cannot be set alike.
                    if matches!(event, Event::InterruptDeaf) && contender.name != "rsrun" {
                        continue;
                    }
                    samples.push(measure(contender, ranks, event, round)?);
                }
            }
            report(&contenders, ranks, event, &mut samples);
        }
    }
    Ok(())
}

fn contenders(options: &Options) -> Vec<Contender> {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_string()).collect::<Vec<_>>();
    let rsrun = command::target().join("release/rsrun");
    let mut own = vec![rsrun.display().to_string()];
    own.extend(words(&["--set", &format!("launch.grace={GRACE}"), "-x", MARK]));
    if let Some(hostfile) = &options.hostfile {
        own.extend(words(&["--map-by", "node", "-hostfile", &hostfile.display().to_string()]));
    } else {
        own.push("-oversubscribe".to_string());
    }
    let mut all = vec![Contender { name: "rsrun", words: own }];
    if options.hostfile.is_some() {
        return all;
    }
    let peers: [(&str, &[&str]); 2] = [
        ("MPICH", &["mpirun.mpich"]),
        ("Open MPI", &["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-x", MARK]),
    ];
    for (name, command) in peers {
        let found = std::env::var_os("PATH")
            .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(command[0]).is_file()));
        if found {
            all.push(Contender { name, words: words(command) });
        } else {
            say!("{name} is not here: install the package of {} to compare", command[0]);
        }
    }
    all
}

/// The variable by which processes are found.
const MARK: &str = "RANK_ENDS_MARK";

fn measure(contender: &Contender, ranks: usize, event: Event, round: usize) -> Result<Sample> {
    let mark = format!("{}-{}-{round}", std::process::id(), contender.name.replace(' ', ""));
    let program: &[&str] = if matches!(event, Event::InterruptDeaf) { &DEAF } else { &SLEEP };
    let mut command = Command::new(&contender.words[0]);
    command.args(&contender.words[1..]).args(["-n", &ranks.to_string()]).args(program);
    command.env(MARK, &mark).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut launcher = with_default_signals(&mut command).spawn().map_err(|source| start_error(&command, source))?;
    let wanted = format!("{MARK}={mark}");
    let begun = Instant::now();
    let found = loop {
        let found = processes(&wanted);
        if found.iter().filter(|(_, is_rank)| *is_rank).count() == ranks {
            break found;
        }
        if begun.elapsed() > LIMIT || launcher.try_wait().is_ok_and(|status| status.is_some()) {
            let _ = launcher.kill();
            let _ = launcher.wait();
            return Err(XtaskError::Usage(format!("{} did not start {ranks} ranks", command::line(&command))));
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    // Whatever the launcher still does after the start is over then.
    std::thread::sleep(Duration::from_millis(200));
    let last = found.iter().filter(|(_, is_rank)| *is_rank).map(|(pid, _)| *pid).next_back();
    let descriptors: Vec<OwnedFd> =
        found.iter().filter_map(|(pid, _)| pidfd_open(*pid, PidfdFlags::empty()).ok()).collect();
    let own = i32::try_from(launcher.id()).ok().and_then(Pid::from_raw);
    let since = Instant::now();
    let (target, signal) = match event {
        Event::Kill => (last, Signal::KILL),
        Event::Interrupt | Event::InterruptDeaf => (own, Signal::INT),
    };
    if let Some(target) = target {
        kill_process(target, signal).map_err(|errno| start_error(&command, errno.into()))?;
    }
    let all_gone = wait_for_all(&descriptors);
    let status = launcher.wait().map_err(|source| start_error(&command, source))?;
    let milliseconds = since.elapsed().as_secs_f64() * 1e3;
    let code = match (all_gone, status.code()) {
        (false, _) => "processes left".to_string(),
        (_, Some(code)) => code.to_string(),
        (_, None) => "by signal".to_string(),
    };
    Ok(Sample { milliseconds, code })
}

/// Waits until every process has ended; `false` when some has not within the limit.
fn wait_for_all(descriptors: &[OwnedFd]) -> bool {
    let until = Instant::now() + LIMIT;
    let mut left: Vec<&OwnedFd> = descriptors.iter().collect();
    while !left.is_empty() {
        let rest = until.saturating_duration_since(Instant::now());
        if rest.is_zero() {
            return false;
        }
        let mut fds: Vec<PollFd<'_>> = left.iter().map(|fd| PollFd::new(*fd, PollFlags::IN)).collect();
        let _ = poll(&mut fds, Timespec::try_from(rest).ok().as_ref());
        let ended: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        let mut ended = ended.iter();
        left.retain(|_| !ended.next().copied().unwrap_or(false));
    }
    true
}

/// Every process with the mark in its environment, in the order of their ids, and whether it is a rank.
fn processes(mark: &str) -> Vec<(Pid, bool)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| Pid::from_raw(name.parse().ok()?)) else { continue };
        let read = |name: &str| std::fs::read(Path::new(&entry.path()).join(name)).unwrap_or_default();
        if read("environ").split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes()) {
            let line = read("cmdline");
            found.push((pid, line.starts_with(b"sleep\098765\0")));
        }
    }
    found.sort_by_key(|(pid, _)| pid.as_raw_nonzero());
    found
}

fn report(contenders: &[Contender], ranks: usize, event: Event, samples: &mut [Vec<Sample>]) {
    let what = match event {
        Event::Kill => "kill -9 of one rank".to_string(),
        Event::Interrupt => "^C".to_string(),
        Event::InterruptDeaf => format!("^C, ranks ignore INT and TERM, grace {GRACE}"),
    };
    let mut own = None;
    for (contender, samples) in contenders.iter().zip(samples) {
        samples.sort_by(|a, b| a.milliseconds.total_cmp(&b.milliseconds));
        let Some(middle) = samples.get(samples.len() / 2) else { continue };
        let median = middle.milliseconds;
        let base: f64 = *own.get_or_insert(median);
        let mut codes: Vec<&str> = samples.iter().map(|sample| sample.code.as_str()).collect();
        codes.sort_unstable();
        codes.dedup();
        let codes = codes.join(", ");
        // How much of the other's time ours is.
        let ratio = if contender.name == "rsrun" { String::new() } else { format!("{:.3}", base / median) };
        say!("{what:<44} {ranks:>6} {:>14} {median:>10.1} {ratio:>10}  {codes}", contender.name);
    }
}

fn start_error(command: &Command, source: std::io::Error) -> XtaskError {
    XtaskError::Start { command: command::line(command), source }
}
