//! `cargo xtask test`: every check as a step with a name, all of them run, a table at the end.

use crate::command::{Interrupts, cargo, line, target};
use crate::error::{Result, XtaskError};
use crate::say::say;
use crate::setup;
use crate::system::{Rights, has_program, quiet};
use spmd_lab::programs::BUILD;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

/// What `cargo xtask test` was asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    /// Only these steps; all when empty.
    pub(crate) only: Vec<String>,
    /// Name the steps instead of running them.
    pub(crate) list: bool,
}

/// One check.
struct Step {
    name: &'static str,
    about: &'static str,
    plan: fn() -> Plan,
}

/// What a step comes to on this machine.
enum Plan {
    Run(Vec<Command>),
    LeftOut(String),
}

#[rustfmt::skip]
const STEPS: &[Step] = &[
    Step { name: "format", about: "source text is formatted", plan: format },
    Step { name: "clippy", about: "no warning in any target", plan: clippy },
    Step { name: "docs", about: "the documentation builds, its links lead somewhere", plan: docs },
    Step { name: "tests", about: "unit, property and documentation tests; each example alone and under rsrun", plan: tests },
    Step { name: "mpi", about: "the same programs under Open MPI give the same results", plan: mpi },
    Step { name: "loom", about: "lock-free code under every interleaving of threads", plan: loom },
    Step { name: "address-sanitizer", about: "the runtime's tests with memory errors detected (nightly)", plan: address_sanitizer },
    Step { name: "lab", about: "ranks on three hosts through real sshd: starts, strays, kills, bad input; a machine with RDMA", plan: lab },
];

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    if let Some(unknown) = options.only.iter().find(|name| STEPS.iter().all(|step| step.name != **name)) {
        let names: Vec<&str> = STEPS.iter().map(|step| step.name).collect();
        return Err(XtaskError::Usage(format!("no step '{unknown}'; there are {}", names.join(", "))));
    }
    let chosen: Vec<&Step> =
        STEPS.iter().filter(|step| options.only.is_empty() || options.only.iter().any(|n| n == step.name)).collect();
    if options.list {
        for step in chosen {
            say!("{:<18} {}", step.name, step.about);
        }
        return Ok(ExitCode::SUCCESS);
    }
    setup::run()?;
    let interrupts = Interrupts::catch()?;
    let mut rows = Vec::new();
    for (index, step) in chosen.iter().enumerate() {
        say!("\ntest: step {} of {}: {} ({})", index + 1, chosen.len(), step.name, step.about);
        let begun = Instant::now();
        let result = run_step(step, &interrupts);
        rows.push((step.name, begun.elapsed(), result));
        if interrupts.signal().is_some() {
            break;
        }
    }
    say!("\n{}", table(&rows).trim_end());
    let count = |wanted: fn(&Outcome) -> bool| rows.iter().filter(|row| wanted(&row.2)).count();
    let failed = count(|outcome| matches!(outcome, Outcome::Failed(_)));
    let left_out = count(|outcome| matches!(outcome, Outcome::LeftOut(_)));
    if let Some(signal) = interrupts.signal() {
        say!("test: {} steps were not run", chosen.len() - rows.len());
        return Err(XtaskError::Interrupted(signal));
    }
    say!("steps: {} passed, {failed} failed, {left_out} skipped", rows.len() - failed - left_out);
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// How a step ended.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Passed,
    LeftOut(String),
    Failed(String),
    Stopped(String),
}

impl Outcome {
    fn text(&self) -> String {
        match self {
            Self::Passed => "passed".into(),
            Self::LeftOut(reason) => format!("left out: {reason}"),
            Self::Failed(reason) => format!("FAILED: {reason}"),
            Self::Stopped(reason) => reason.clone(),
        }
    }
}

fn run_step(step: &Step, interrupts: &Interrupts) -> Outcome {
    let mut commands = match (step.plan)() {
        Plan::Run(commands) => commands,
        Plan::LeftOut(reason) => {
            say!("test: {} is left out: {reason}", step.name);
            return Outcome::LeftOut(reason);
        }
    };
    for command in &mut commands {
        say!("test: {}", line(command));
        match interrupts.run(command) {
            Ok(()) => {}
            Err(error @ XtaskError::Interrupted(_)) => return Outcome::Stopped(error.to_string()),
            Err(error) => {
                say!("test: {error}");
                return Outcome::Failed(error.to_string());
            }
        }
    }
    Outcome::Passed
}

fn table(rows: &[(&str, Duration, Outcome)]) -> String {
    rows.iter()
        .map(|(name, time, outcome)| format!("{name:<18} {:>6.1} s  {}\n", time.as_secs_f64(), outcome.text()))
        .collect()
}

fn run_all(commands: impl IntoIterator<Item = Command>) -> Plan {
    Plan::Run(commands.into_iter().collect())
}

/// `rustfmt` and `clippy` come with most toolchains, not with all.
fn needs_component(name: &str, plan: impl FnOnce() -> Plan) -> Plan {
    let program = format!("cargo-{name}");
    if quiet(&program, &["--version"]) {
        return plan();
    }
    if has_program("rustup") {
        let component = if name == "fmt" { "rustfmt" } else { name };
        let mut add = Command::new("rustup");
        add.args(["component", "add", component]);
        return match plan() {
            Plan::Run(commands) => run_all(std::iter::once(add).chain(commands)),
            left_out @ Plan::LeftOut(_) => left_out,
        };
    }
    Plan::LeftOut(format!("no {program} with this toolchain"))
}

fn format() -> Plan {
    needs_component("fmt", || run_all([cargo(&["fmt", "--all", "--check"])]))
}

fn clippy() -> Plan {
    needs_component("clippy", || {
        run_all([cargo(&["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"])])
    })
}

fn docs() -> Plan {
    let mut doc = cargo(&["doc", "--workspace", "--no-deps", "--quiet"]);
    doc.env("RUSTDOCFLAGS", "-D warnings");
    run_all([doc])
}

/// As with every command here and in tests that builds for the host, packages are chosen by `--workspace`: cargo joins the
/// features that the chosen packages want of a crate, so that each other choice would build most of them once more.
fn tests() -> Plan {
    run_all([cargo(&["test", "--workspace", "--exclude", "spmd-lab"])])
}

fn mpi() -> Plan {
    if !has_program("mpirun") || !has_program("mpicc") {
        return Plan::LeftOut("no mpirun or no mpicc on this machine".into());
    }
    run_all([cargo(&["test", "--workspace", "--features", "spmd-examples/mpi,rsbench/mpi", "--test", "mpi"])])
}

fn loom() -> Plan {
    let target = target().with_file_name("target-loom");
    let mut test = cargo(&[
        "test",
        "--package",
        "spmd",
        "--package",
        "spmd-device",
        "--package",
        "spmd-collectives",
        "--lib",
        "--release",
        "loom",
    ]);
    test.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", target);
    run_all([test])
}

fn address_sanitizer() -> Plan {
    if !quiet("cargo", &["+nightly", "--version"]) {
        return Plan::LeftOut("no nightly toolchain (rustup toolchain install nightly)".into());
    }
    let target = target().with_file_name("target-asan");
    // An explicit target keeps the sanitizer out of build scripts and procedural macros.
    let host = std::env::consts::ARCH.to_owned() + "-unknown-linux-gnu";
    let mut test = cargo(&["+nightly", "test", "--package", "spmd", "--lib", "--target", &host]);
    test.env("RUSTFLAGS", "-Zsanitizer=address").env("CARGO_TARGET_DIR", target);
    run_all([test])
}

fn lab() -> Plan {
    if Rights::of_caller() == Rights::None {
        return Plan::LeftOut("it needs the rights of root: sudo cargo xtask test lab".into());
    }
    let mut test = cargo(&["test", "--package", "spmd-lab"]);
    if Rights::of_caller() == Rights::Sudo {
        // Only the tests run as root; cargo and what it builds stay the caller's.
        let runner = format!("CARGO_TARGET_{}_UNKNOWN_LINUX_GNU_RUNNER", std::env::consts::ARCH.to_uppercase());
        test.env(runner, "sudo -n -E");
    }
    run_all([cargo(BUILD), test])
}

/// `cargo xtask deny`.
pub(crate) fn deny() -> Result<ExitCode> {
    if !quiet("cargo-deny", &["--version"]) {
        say!(
            "deny: cargo-deny is not installed; it takes minutes to build:\n\n    cargo install --locked cargo-deny\n"
        );
        return Ok(ExitCode::from(69));
    }
    let interrupts = Interrupts::catch()?;
    interrupts.run(&mut cargo(&["deny", "check", "licenses", "bans", "sources"]))?;
    // The list of advisories lives in a repository elsewhere; a machine without a way to it can still check the rest.
    if !quiet("cargo", &["deny", "fetch", "db"]) {
        say!("deny: the list of advisories cannot be fetched: advisories were NOT checked");
        return Ok(ExitCode::SUCCESS);
    }
    interrupts.run(&mut cargo(&["deny", "check", "advisories"]))?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_names_each_step_with_its_time_and_end() {
        let rows = [
            ("format", Duration::from_millis(1250), Outcome::Passed),
            ("lab", Duration::ZERO, Outcome::LeftOut("no rights".into())),
        ];
        assert_eq!(
            table(&rows),
            "format                1.2 s  passed\nlab                   0.0 s  left out: no rights\n"
        );
    }

    #[test]
    fn every_step_has_its_own_name() {
        let mut names: Vec<&str> = STEPS.iter().map(|step| step.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), STEPS.len());
    }
}
