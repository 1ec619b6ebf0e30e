//! A stand-in for the agent of a host, for the launcher's tests: `--launch-agent 'fake_agent OPTIONS'`.
//!
//! Behaves as told, so that a thousand hosts, slow hosts and broken ones are possible on one machine. What it does not
//! spoil it does as an agent would: it starts the ranks of its host (without world: their `init` would wait for ever).
//!
//!     fake_agent [--only HOST] [--delay MS] [--noise] [--fail PERCENT] [--fail-first N --count DIRECTORY]
//!                [--hang] [--version] [--die] [--drop-reach] HOST COMMAND-LINE-OF-THE-AGENT
//!
//! When it is to connect to further hosts it starts the relay of a real agent for that.

use spmd::bootstrap::frame;
use spmd::bootstrap::messages::{AGENT_MARKER, Exit, FromAgent, PROTOCOL, SpawnFailure, Start, ToAgent};
use spmd::bootstrap::node::{Core, Domain, Node, Thread};
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

#[derive(Default)]
struct Options {
    /// Only this host misbehaves.
    only: Option<String>,
    delay: Duration,
    noise: bool,
    /// Exits with 255 so many times in a hundred, before it says anything.
    fail: u64,
    /// Exits with 255 the first so many times; counted in files of this directory.
    fail_first: usize,
    count: String,
    hang: bool,
    /// Speaks another protocol.
    version: bool,
    /// Dies after its hello.
    die: bool,
    /// Dies when it is to connect to further hosts.
    drop_reach: bool,
}

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let mut options = Options::default();
    let mut rest = Vec::new();
    while let Some(word) = words.next() {
        let mut value = || words.next().unwrap_or_default();
        match word.as_str() {
            "--only" => options.only = Some(value()),
            "--delay" => options.delay = Duration::from_millis(value().parse().unwrap_or(0)),
            "--noise" => options.noise = true,
            "--fail" => options.fail = value().parse().unwrap_or(0),
            "--fail-first" => options.fail_first = value().parse().unwrap_or(0),
            "--count" => options.count = value(),
            "--hang" => options.hang = true,
            "--version" => options.version = true,
            "--die" => options.die = true,
            "--drop-reach" => options.drop_reach = true,
            _ => rest.push(word),
        }
    }
    let [host, line] = rest.as_slice() else {
        eprintln!("fake_agent: a host and a command line are expected");
        return ExitCode::from(2);
    };
    if options.only.as_ref().is_some_and(|only| only != host) {
        options = Options::default();
    }
    match serve(&options, host, line) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("fake_agent on {host}: {error}");
            ExitCode::from(1)
        }
    }
}

fn serve(options: &Options, host: &str, line: &str) -> Result<ExitCode, Box<dyn std::error::Error>> {
    std::thread::sleep(options.delay);
    if random()? % 100 < options.fail || options.fails_again(host)? {
        eprintln!("kex_exchange_identification: Connection closed by remote host");
        return Ok(ExitCode::from(255));
    }
    if options.noise {
        println!("Welcome to {host}\nRSRUN-AGENT 0123 1 0.0.0");
    }
    if options.hang {
        eprintln!("{host} is thinking");
        std::thread::sleep(Duration::from_secs(600));
    }
    // `exec /path/of/rsrun --agent NONCE`
    let words: Vec<&str> = line.split(' ').collect();
    let nonce = words.last().copied().unwrap_or_default();
    let protocol = if options.version { PROTOCOL + 98 } else { PROTOCOL };
    println!("{AGENT_MARKER} {nonce} {protocol} {}", env!("CARGO_PKG_VERSION"));
    let pid = std::process::id();
    say(&FromAgent::Hello { hostname: host.into(), allowed_cores: 1, identity: host.into(), pid })?;
    if options.die {
        return Err("the machine is on fire".into());
    }
    let mut input = std::io::stdin().lock();
    let mut relay: Option<Child> = None;
    while let Some(message) = frame::read::<ToAgent>(&mut input)? {
        match message {
            ToAgent::Start(start) => {
                run(&start)?;
                if relay.is_none() {
                    return Ok(ExitCode::SUCCESS);
                }
            }
            ToAgent::Describe(_) => say(&FromAgent::Node(Ok(Box::new(machine()))))?,
            // As an agent that has said `Done`: ends when the launcher closes the connection.
            ToAgent::Stop { .. } => say(&FromAgent::Done)?,
            ToAgent::Reach(_) if options.drop_reach => return Err("the machine is full".into()),
            message @ (ToAgent::Reach(_) | ToAgent::Leave { .. } | ToAgent::Below { .. }) => {
                if relay.is_none() {
                    relay = Some(start_relay(words.get(1).copied().unwrap_or_default())?);
                }
                if let Some(input) = relay.as_mut().and_then(|relay| relay.stdin.as_mut()) {
                    frame::write(input, &message)?;
                }
            }
            _ => {}
        }
    }
    if let Some(mut relay) = relay {
        drop(relay.stdin.take());
        relay.wait()?;
    }
    Ok(ExitCode::SUCCESS)
}

fn say(message: &FromAgent) -> Result<(), frame::FrameError> {
    frame::write(&mut std::io::stdout().lock(), message)
}

/// Starts a relay; what it says goes up as it is.
fn start_relay(program: &str) -> std::io::Result<Child> {
    let mut relay = Command::new(program).arg("--relay").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut output = relay.stdout.take().ok_or(std::io::ErrorKind::BrokenPipe)?;
    std::thread::spawn(move || {
        while let Ok(Some(message)) = frame::read::<FromAgent>(&mut output) {
            let _ = say(&message);
        }
    });
    Ok(relay)
}

/// A machine with one core.
fn machine() -> Node {
    Node {
        packages: 1,
        domains: vec![Domain { os: 0, bytes: 1 << 30, package: 0 }],
        caches: vec![],
        cores: vec![Core {
            package: 0,
            domain: 0,
            cache: None,
            efficiency: 0,
            threads: vec![Thread { os: 0, allowed: true }],
        }],
        nics: vec![],
        gpus: vec![],
        devices_read: false,
    }
}

/// Starts the ranks of this host one after the other and tells their ends.
fn run(start: &Start) -> Result<(), Box<dyn std::error::Error>> {
    let ranks = (0_u32..).zip(&start.host_of).filter(|(_, host)| **host == start.host).map(|(rank, _)| rank);
    for (rank, app) in ranks.zip(&start.app_of) {
        let app = &start.apps[*app as usize];
        let arguments = app.arguments.iter().map(|word| OsStr::from_bytes(word));
        let mut command = Command::new(OsStr::from_bytes(&app.program));
        match command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).spawn() {
            Ok(mut child) => {
                say(&FromAgent::Spawned { rank, pid: child.id(), cpus: String::new() })?;
                let status = child.wait()?;
                let exit = match (status.code(), status.signal()) {
                    (Some(code), _) => Exit::Code(code),
                    (_, signal) => Exit::Signal { signal: signal.unwrap_or(9), core: false },
                };
                say(&FromAgent::Exited { rank, exit })?;
            }
            Err(error) => {
                let reason = error.to_string();
                say(&FromAgent::SpawnFailed { rank, reason, kind: SpawnFailure::NotFound })?;
            }
        }
    }
    say(&FromAgent::Done)?;
    Ok(())
}

impl Options {
    /// Whether this host has not been tried often enough. Each try leaves a file.
    fn fails_again(&self, host: &str) -> std::io::Result<bool> {
        let tried = (0..self.fail_first).map(|number| format!("{}/{host}.{number}", self.count));
        for file in tried {
            if std::fs::OpenOptions::new().write(true).create_new(true).open(file).is_ok() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn random() -> std::io::Result<u64> {
    let mut bytes = [0; 8];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}
