//! Machines with RDMA: what is promised of them, shown on one that is brought up once for all tests.

#[path = "../harness/mod.rs"]
mod harness;
mod machines;
mod rdma;

use libtest_mimic::{Failed, Trial};
use spmd_lab::vm::{self, Lab, Plan};
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};

/// A test: a sentence and what shows it.
type Test = (&'static str, fn(&Lab));

fn main() -> ExitCode {
    let arguments = harness::arguments();
    let possible = vm::check();
    if let Err(error) = &possible {
        eprintln!("the tests on machines are ignored: {error}");
    }
    let shared: Arc<OnceLock<Lab>> = Arc::default();
    let trial = |(name, test): &Test| {
        let (shared, test) = (Arc::clone(&shared), *test);
        Trial::test(*name, move || run(test, &shared)).with_ignored_flag(possible.is_err())
    };
    // The last test of the machines takes them down; others come up after them.
    let tests = [rdma::TESTS, machines::TESTS, &[rdma::BETWEEN_MACHINES]].concat();
    let mut trials: Vec<Trial> = tests.iter().map(trial).collect();
    trials.push(trial(&rdma::ALL_BETWEEN_MACHINES).with_ignored_flag(true));
    let conclusion = libtest_mimic::run(&arguments, trials);
    match Lab::open(&plan().folder).and_then(|lab| lab.map_or(Ok(()), Lab::down)) {
        Ok(()) => conclusion.exit_code(),
        Err(error) => {
            eprintln!("the machine cannot be taken down: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(test: fn(&Lab), shared: &OnceLock<Lab>) -> Result<(), Failed> {
    harness::run(|| test(shared.get_or_init(|| vm::up(&plan()).unwrap_or_else(|error| panic!("{error}")).0)))
}

/// The lab of these tests. It ends with them, however they end.
fn plan() -> Plan {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate is in a folder");
    let test = std::env::current_exe().expect("a test knows its own path");
    // target/PROFILE/deps/TEST
    let target = test.ancestors().nth(3).expect("cargo puts tests three folders deep").to_owned();
    let mut plan = Plan { tied: true, ..Plan::new(root.join("lab/state/vm/test"), root) };
    if !target.starts_with(root) {
        plan.trees.push(target);
    }
    plan
}
