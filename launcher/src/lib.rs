//! The launcher: command line, hosts, mapping, SSH, agents, input and output, signals, exit codes.
//!
//! One binary with two lives: `rsrun …` is the launcher, `rsrun --agent NONCE` its helper on each host, which starts and
//! watches the ranks there (and starts `rsrun --relay` when it is to connect to further hosts). See `docs/launcher.md` in
//! the repository for how they work together.

pub mod agent;
pub mod cli;
pub mod connect;
pub mod exit;
pub mod hosts;
mod input;
pub mod job;
pub mod map;
pub mod placement;
mod progress;
mod relay;
pub mod report;
pub mod settings;
pub mod simulate;
mod sys;
pub mod topo;
pub mod topology;

use cli::Invocation;
use exit::{ExitCode, Failure};
use std::ffi::OsString;
use std::io::Write;

/// The whole program.
pub fn main() -> std::process::ExitCode {
    let mut words: Vec<OsString> = std::env::args_os().skip(1).collect();
    if words.first().is_some_and(|word| word == "--agent") && matches!(words.len(), 2 | 4) {
        // `--agent NONCE [--stdin-fd N]`
        let stdin = words.get(3).and_then(|number| number.to_str()?.parse().ok());
        return std::process::ExitCode::from(agent::main(&words.remove(1).to_string_lossy(), stdin));
    }
    if let [word] = words.as_slice()
        && word == "--relay"
    {
        return std::process::ExitCode::from(relay::main());
    }
    let number = match launcher(words) {
        Ok(()) => ExitCode::Success.number(),
        Err(failure) => {
            progress::gone();
            // Nothing can be done when even this cannot be written.
            let _ = writeln!(std::io::stderr(), "rsrun: {failure}");
            failure.exit.number()
        }
    };
    // Not through the libraries' own ends: a thread may still wait for a host inside one of them.
    signal_hook::low_level::exit(i32::from(number))
}

fn launcher(words: Vec<OsString>) -> Result<(), Failure> {
    match cli::parse(words)? {
        Invocation::Text(text) => print(&text),
        Invocation::Simulate(options) => print(&simulate::run(&options)?),
        Invocation::Config(options) => {
            use spmd::config::{Filter, json, table};
            let snapshot = settings::load(options.set.config.as_deref(), options.settings)?.snapshot;
            let mut names = Vec::new();
            let mut texts = Vec::new();
            let mut grouped = false;
            for name in &options.keys {
                let group = spmd::config::group(name);
                if !group.is_empty() {
                    grouped = true;
                    names.extend(group);
                    continue;
                }
                let (Some(spec), Some(text)) = (spmd::config::find(name), spmd::config::describe(&snapshot, name))
                else {
                    let hint = spmd::config::unknown_key(name);
                    return Err(Failure::new(ExitCode::Data, format!("unknown key `{name}`: {hint}")));
                };
                names.push(spec.name);
                texts.push(text);
            }
            let filter = match (names.as_slice(), options.changed) {
                ([], true) => Filter::Changed,
                ([], false) => Filter::All,
                (keys, _) => Filter::Only(keys),
            };
            if !options.json && !grouped && !texts.is_empty() {
                print(&texts.join("\n"))
            } else if options.json {
                let text = serde_json::to_string_pretty(&json(&snapshot, filter))
                    .map_err(|error| Failure::new(ExitCode::Internal, error.to_string()))?;
                print(&(text + "\n"))
            } else {
                print(&table(&snapshot, filter))
            }
        }
        Invocation::Run(run) => job::supervise::run(&run),
    }
}

/// Writes to standard output; a reader that has gone (`rsrun config | head -1`) is no failure.
fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::new(ExitCode::Directory, format!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// `1 rank`, `2 ranks`.
fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// `bytes` random bytes in hexadecimal.
fn random_hex(bytes: usize) -> String {
    random(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A random number.
fn random_number() -> u64 {
    random(8).iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Random bytes from the kernel.
fn random(bytes: usize) -> Vec<u8> {
    use rustix::rand::{GetRandomFlags, getrandom};
    let mut buffer = vec![0_u8; bytes];
    let mut done = 0;
    while done < bytes {
        match getrandom(&mut buffer[done..], GetRandomFlags::empty()) {
            Ok(n) => done += n,
            Err(rustix::io::Errno::INTR) => {}
            // Present since Linux 3.17; a kernel without it cannot run anything else here either.
            Err(error) => panic!("the kernel gives no random bytes: {error}"),
        }
    }
    buffer
}
