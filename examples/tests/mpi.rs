//! Cross-check: the same program over this project and over an MPI gives the same result: integers to the last bit,
//! floating-point numbers to rounding. Needs the feature `mpi`, `mpirun` and an MPI to build against.

use spmd_lab::programs::{Outcome, Programs, run};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

/// Sums of about 1,400 terms over forty steps, added in another order: the relative difference stays far below this.
const ROUNDING: f64 = 1e-10;

fn programs() -> &'static Programs {
    static PROGRAMS: OnceLock<Programs> = OnceLock::new();
    let twins = ["--features", "spmd-examples/mpi", "--example", "mpi_pingpong", "--example", "mpi_train"];
    PROGRAMS.get_or_init(|| Programs::build(&twins))
}

/// One job at a time: ranks that wait use up the processors that another job needs.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn ours(ranks: usize, example: &str) -> Outcome {
    let (ranks, slots) = (ranks.to_string(), format!("localhost:{ranks}"));
    let program = programs().example(example).display().to_string();
    run(&mut programs().launch(&["-n", &ranks, "-host", &slots, &program]), LIMIT).succeeded()
}

fn theirs(ranks: usize, example: &str) -> Outcome {
    let mut mpirun = Command::new("mpirun");
    // More ranks than cores, and root, need its permission.
    mpirun.args(["--oversubscribe", "-n", &ranks.to_string()]).arg(programs().example(example));
    mpirun.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    run(&mut mpirun, LIMIT).succeeded()
}

/// For each message size the checksum over every byte that came.
fn checksums(outcome: &Outcome) -> Vec<(String, String)> {
    let fields = |line: &str| {
        let fields: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        (fields[0].clone(), fields[4].clone())
    };
    outcome.stdout.lines().skip(2).map(fields).collect()
}

/// Loss, right answers and questions of the last line.
fn result(outcome: &Outcome) -> (f64, u64, u64) {
    let parse = || {
        let line = outcome.stdout.lines().find(|line| line.starts_with("final: "))?;
        let words: Vec<&str> = line.split([' ', ',']).filter(|word| !word.is_empty()).collect();
        Some((words.get(2)?.parse().ok()?, words.get(3)?.parse().ok()?, words.get(5)?.parse().ok()?))
    };
    parse().unwrap_or_else(|| panic!("no result in {outcome}"))
}

#[test]
fn pingpong_receives_the_same_bytes_over_both() {
    let _turn = alone();
    for ranks in [1, 2, 3] {
        let (ours, theirs) = (ours(ranks, "pingpong"), theirs(ranks, "mpi_pingpong"));
        assert_eq!(checksums(&ours).len(), spmd_examples::latency::SIZES.len(), "{ours}");
        assert_eq!(checksums(&ours), checksums(&theirs), "{ours}\n{theirs}");
    }
}

#[test]
fn train_counts_the_same_and_loses_the_same_but_for_rounding_over_both() {
    let _turn = alone();
    for ranks in [1, 3, 4, 8] {
        let (ours, theirs) = (ours(ranks, "train"), theirs(ranks, "mpi_train"));
        let (our_loss, our_right, our_all) = result(&ours);
        let (their_loss, their_right, their_all) = result(&theirs);
        assert_eq!((our_right, our_all), (their_right, their_all), "{ours}\n{theirs}");
        assert!((our_loss - their_loss).abs() <= ROUNDING * their_loss.abs(), "{ours}\n{theirs}");
        if ranks == 1 {
            assert_eq!(our_loss.to_bits(), their_loss.to_bits(), "nothing is added in another order");
        }
    }
}
