//! Ranks on three hosts through real sshd: starting, strays, kills, networks, repetition, bad input.
//!
//! The hosts are namespaces of this machine, brought up once for all tests. The tests run one after another: each
//! looks at the hosts' processes afterwards.

mod bad_input;
mod cluster;
#[path = "../harness/mod.rs"]
mod harness;
mod kills;
mod network;
mod repeats;
mod starts;
mod strays;
mod tree;

use cluster::Cluster;
use libtest_mimic::{Failed, Trial};
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};

/// A test: a sentence and what shows it.
type Test = (&'static str, fn(&Cluster));

fn main() -> ExitCode {
    let arguments = harness::arguments();
    let rights = spmd_lab::netns::check_rights();
    if let Err(error) = &rights {
        eprintln!("the cluster tests are ignored: {error}\nrun them with: sudo cargo xtask test lab");
    }
    let shared: Arc<OnceLock<Cluster>> = Arc::default();
    let tests =
        [starts::TESTS, strays::TESTS, kills::TESTS, tree::TESTS, network::TESTS, repeats::TESTS, bad_input::TESTS]
            .concat();
    let trial = |(name, test): Test| {
        let shared = Arc::clone(&shared);
        Trial::test(name, move || run(test, &shared)).with_ignored_flag(rights.is_err())
    };
    let conclusion = libtest_mimic::run(&arguments, tests.into_iter().map(trial).collect());
    let down = Arc::into_inner(shared).and_then(OnceLock::into_inner).map_or(Ok(()), Cluster::down);
    if let Err(error) = &down {
        eprintln!("the hosts cannot be taken down: {error}");
    }
    if down.is_ok() { conclusion.exit_code() } else { ExitCode::FAILURE }
}

fn run(test: fn(&Cluster), shared: &OnceLock<Cluster>) -> Result<(), Failed> {
    let result = harness::run(|| {
        let cluster = shared.get_or_init(Cluster::up);
        test(cluster);
        cluster.expect_nothing_left();
    });
    if let (Err(_), Some(cluster)) = (&result, shared.get()) {
        cluster.clear();
    }
    result
}
