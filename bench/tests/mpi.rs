//! `rsbench-mpi` under an MPI: the same plans as ours, the same rows. Needs the feature `mpi`, `mpirun` and an MPI to build
//! against.

use rsbench::measure::{Pattern, Plan};
use rsbench::record::Run;
use spmd_lab::programs::run;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

fn mpirun(ranks: usize, plan: &str) -> Command {
    let mut mpirun = Command::new("mpirun");
    // More ranks than cores, and root, need its permission.
    mpirun.args(["--oversubscribe", "-n", &ranks.to_string(), env!("CARGO_BIN_EXE_rsbench-mpi"), plan]);
    mpirun.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    mpirun
}

#[test]
fn every_pattern_runs_over_an_mpi_and_every_message_is_checked() {
    use Pattern::{AllReduce, Bandwidth, Barrier, Bibw, Incast, Latency, Rate, Ring};
    for (pattern, ranks) in [
        (Latency, 2),
        (Bandwidth, 2),
        (Bibw, 2),
        (Rate, 2),
        (Rate, 4),
        (Incast, 3),
        (Ring, 3),
        (Barrier, 3),
        (AllReduce, 3),
    ] {
        let sizes = vec![0, 8, 70_000];
        let plan =
            Plan { pattern, sizes, rounds: 5, warm_up: 1, seconds: 5.0, window: 4, check: true, transport: None };
        let outcome = run(&mut mpirun(ranks, &serde_json::to_string(&plan).expect("JSON")), LIMIT).succeeded();
        let text = outcome.stdout.lines().find_map(|line| line.strip_prefix(rsbench::MARKER));
        let run: Run = serde_json::from_str(text.unwrap_or_else(|| panic!("no run in {outcome}"))).expect("a run");
        let rows: Vec<_> = run.rows.iter().map(|row| (row.bytes, row.rounds)).collect();
        assert_eq!(rows, [(0, 5), (8, 5), (70_000, 5)], "{outcome}");
        assert_eq!(run.ranks.len(), ranks);
        assert!(!run.version.is_empty(), "{outcome}");
    }
}

#[test]
fn a_number_of_ranks_that_does_not_fit_is_refused() {
    let plan = Plan {
        pattern: Pattern::Rate,
        sizes: vec![8],
        rounds: 5,
        warm_up: 1,
        seconds: 5.0,
        window: 4,
        check: true,
        transport: None,
    };
    let outcome = run(&mut mpirun(3, &serde_json::to_string(&plan).expect("JSON")), LIMIT);
    assert_ne!(outcome.code(), 0, "{outcome}");
    assert!(outcome.stderr.contains("3 is odd"), "{outcome}");
}
