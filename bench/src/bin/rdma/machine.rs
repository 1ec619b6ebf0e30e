//! The machine: its wire, its devices' counters, and programs that run on it for a while.

use crate::rank::{Found, MARKER, Work};
use rsbench::port::Failure;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The two ends of the wire.
const WIRE: [&str; 2] = ["v0", "v1"];
/// Their devices.
pub(crate) const DEVICES: [&str; 2] = ["rxe0", "rxe1"];
/// Where the second one is reached.
const SECOND: &str = "10.88.0.2";
/// Where perftest's server listens.
const PORT: u16 = 18515;

/// A wire that loses packets until this is dropped.
#[derive(Debug)]
pub(crate) struct Loss;

impl Loss {
    /// Loses this share, in percent, in each direction.
    pub(crate) fn of(percent: f64) -> Result<Self, Failure> {
        let loss = Loss;
        for end in WIRE {
            let share = format!("{percent}%");
            run(Command::new("tc")
                .args(["qdisc", "replace", "dev", end, "root", "netem", "limit", "10000", "loss"])
                .arg(share))?;
        }
        Ok(loss)
    }
}

impl Drop for Loss {
    fn drop(&mut self) {
        for end in WIRE {
            // Not there when the first step failed: nothing to undo.
            let _ = run(Command::new("tc").args(["qdisc", "del", "dev", end, "root"]));
        }
    }
}

/// What both devices have counted in all.
pub(crate) fn counters() -> BTreeMap<String, u64> {
    let mut all = BTreeMap::new();
    for device in DEVICES {
        let folder = format!("/sys/class/infiniband/{device}/ports/1/hw_counters");
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let number = fs::read_to_string(entry.path()).ok().and_then(|text| text.trim().parse::<u64>().ok());
            let name = entry.file_name().to_string_lossy().into_owned();
            *all.entry(name).or_insert(0) += number.unwrap_or(0);
        }
    }
    all
}

/// By how much these have risen, added up.
pub(crate) fn risen(before: &BTreeMap<String, u64>, names: &[&str]) -> f64 {
    let now = counters();
    let of = |all: &BTreeMap<String, u64>, name: &&str| all.get(*name).copied().unwrap_or(0);
    names.iter().map(|name| of(&now, name).saturating_sub(of(before, name)) as f64).sum()
}

/// Runs two ranks of ours, each on a device of its own, with these settings.
pub(crate) fn ours(settings: &[&str], work: &Work, limit: Duration) -> Result<Vec<Found>, Failure> {
    let own = std::env::current_exe()?;
    let mut command = Command::new(own.with_file_name("rsrun"));
    command
        .args(["-n", "2", "--set", "transport.allow=verbs", "--set"])
        .arg(format!("verbs.device={}", DEVICES.join(",")));
    command.args(["--set", "launch.connect_timeout=2min"]);
    for setting in settings {
        command.args(["--set", setting]);
    }
    command.arg(&own).arg("rank").arg(serde_json::to_string(work)?);
    let said = finish(command, limit)?;
    let lines = said.lines().filter_map(|line| line.strip_prefix(MARKER));
    Ok(lines.map(serde_json::from_str).collect::<Result<_, _>>()?)
}

/// The columns of the result line of a program of perftest, between the two devices.
pub(crate) fn perftest(program: &str, bytes: usize, iterations: usize, limit: Duration) -> Result<Vec<f64>, Failure> {
    let arguments = |command: &mut Command, device: &str| {
        let (bytes, iterations, port) = (bytes.to_string(), iterations.to_string(), PORT.to_string());
        command.args(["-d", device, "-F", "-s", &bytes, "-n", &iterations, "-p", &port]);
    };
    // Each on a processor of its own, as rsrun places ranks.
    let on = |processor: &str| {
        let mut command = Command::new("taskset");
        command.args(["-c", processor, program]);
        command
    };
    let mut server = on("1");
    arguments(&mut server, DEVICES[1]);
    let mut server = Ended(server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?);
    let deadline = Instant::now() + limit;
    // It is there when its port is. `:48…` is the port in hexadecimal, state 0A is listening.
    let listens =
        |text: String| text.lines().any(|line| line.contains(&format!(":{PORT:04X} ")) && line.contains(" 0A "));
    while !["/proc/net/tcp", "/proc/net/tcp6"].iter().any(|file| fs::read_to_string(file).is_ok_and(listens)) {
        if Instant::now() > deadline || server.0.try_wait()?.is_some() {
            return Err(format!("the server of {program} does not come up").into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut client = on("0");
    arguments(&mut client, DEVICES[0]);
    client.arg(SECOND);
    let said = finish(client, limit)?;
    drop(server);
    let numbers = |line: &str| line.split_whitespace().map(str::parse).collect::<Result<Vec<f64>, _>>().ok();
    let rows = said.lines().filter_map(numbers);
    let mut rows = rows.filter(|row| row.len() >= 4 && row[0] == bytes as f64);
    rows.next_back().ok_or_else(|| format!("{program} has no result\n{said}").into())
}

/// Runs any program on the machine to its end; its output.
pub(crate) fn output(program: &str, arguments: &[&str], limit: Duration) -> Result<String, Failure> {
    let mut command = Command::new(program);
    command.args(arguments);
    finish(command, limit)
}

/// Where a program is.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// Killed when dropped before its end.
#[derive(Debug)]
pub(crate) struct Ended(pub(crate) Child);

impl Drop for Ended {
    fn drop(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}

fn finish(command: Command, limit: Duration) -> Result<String, Failure> {
    let mut limited = Command::new("timeout");
    limited.args(["--kill-after", "5", &limit.as_secs().max(1).to_string()]);
    limited.arg(command.get_program()).args(command.get_args());
    let output = limited.stdin(Stdio::null()).output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(said);
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let last: Vec<&str> = errors.lines().rev().take(6).collect();
    let last = last.into_iter().rev().collect::<Vec<_>>().join("\n");
    let program = command.get_program().to_string_lossy().into_owned();
    Err(format!("{program} ended with {} ({limit:?} at most)\n{last}", output.status).into())
}

fn run(command: &mut Command) -> Result<(), Failure> {
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim()).into())
}
