//! Each example runs alone and under `rsrun` on this machine; each checks its own result and exits with 0 only then.

use spmd_lab::programs::{Outcome, Programs, run};
use std::collections::BTreeSet;
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

fn programs() -> &'static Programs {
    static PROGRAMS: OnceLock<Programs> = OnceLock::new();
    PROGRAMS.get_or_init(|| Programs::build(&[]))
}

fn alone(example: &str) -> Outcome {
    run(&mut Command::new(programs().example(example)), LIMIT).succeeded()
}

fn on(ranks: usize, example: &str) -> Outcome {
    // One job at a time: ranks that wait use up the processors that another job needs.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let (ranks, slots) = (ranks.to_string(), format!("localhost:{ranks}"));
    let program = programs().example(example).display().to_string();
    run(&mut programs().launch(&["-n", &ranks, "-host", &slots, &program]), LIMIT).succeeded()
}

/// The last number of ranks is more than most machines have cores.
const RANKS: [usize; 4] = [1, 2, 5, 16];

#[test]
fn hello_without_a_launcher_is_rank_0_of_1() {
    assert!(alone("hello").stdout.starts_with("rank 0 of 1 on "));
}

#[test]
fn hello_says_each_rank_once() {
    for ranks in RANKS {
        let outcome = on(ranks, "hello");
        let said: BTreeSet<String> =
            outcome.stdout.lines().filter_map(|line| Some(line.split_once(" on ")?.0.to_owned())).collect();
        assert_eq!(said, (0..ranks).map(|rank| format!("rank {rank} of {ranks}")).collect(), "{outcome}");
        assert_eq!(outcome.stdout.lines().count(), ranks, "{outcome}");
    }
}

#[test]
fn train_reads_more_than_nine_of_ten_digits_with_the_same_weights_on_all_ranks() {
    assert!(alone("train").stdout.contains("identical on all ranks (1)"));
    for ranks in RANKS {
        let outcome = on(ranks, "train");
        assert!(outcome.stdout.contains(&format!("identical on all ranks ({ranks})")), "{outcome}");
    }
}

#[test]
fn train_learns_as_much_from_a_tenth_of_the_bytes_between_groups() {
    let program = programs().example("train").display().to_string();
    let launched =
        ["-n", "8", "-host", "localhost:8", "--set", "collectives.group_size=2", &program, "--top-k", "0.05"];
    // It checks the accuracy and the weights itself.
    let outcome = run(&mut programs().launch(&launched), LIMIT).succeeded();
    let line = outcome.stdout.lines().last().unwrap_or_default();
    let numbers: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    assert!(matches!(numbers[..], [sent, all] if 0 < sent && sent < all / 10), "{outcome}");
}

#[test]
fn train_says_what_is_wrong_with_its_argument() {
    let outcome = run(Command::new(programs().example("train")).arg("many"), LIMIT);
    assert_eq!(outcome.code(), 64, "{outcome}");
    assert!(outcome.stderr.contains("EPOCHS is a number, not `many`"), "{outcome}");
}

#[test]
fn train_gives_the_same_bits_on_every_run() {
    let (one, other) = (on(5, "train"), on(5, "train"));
    assert_eq!(one.stdout, other.stdout);
}

#[test]
fn halo_gives_the_same_bits_as_one_rank() {
    assert!(alone("halo").stdout.contains("on 1 rank: the same bits"));
    for ranks in RANKS {
        let outcome = on(ranks, "halo");
        let plural = if ranks == 1 { "" } else { "s" };
        assert!(outcome.stdout.contains(&format!("on {ranks} rank{plural}: the same bits")), "{outcome}");
    }
}

#[test]
fn one_sided_hands_blocks_round_and_shares_out_every_task_once() {
    for outcome in [alone("one_sided"), on(2, "one_sided"), on(5, "one_sided")] {
        assert!(outcome.stdout.contains("1000 tasks shared out"), "{outcome}");
    }
}

#[test]
fn pingpong_checks_every_message_and_shows_a_line_a_size() {
    for outcome in [alone("pingpong"), on(1, "pingpong"), on(2, "pingpong"), on(5, "pingpong")] {
        let lines = outcome.stdout.lines().skip(2);
        assert_eq!(lines.clone().count(), spmd_examples::latency::SIZES.len(), "{outcome}");
        for (line, bytes) in lines.zip(spmd_examples::latency::SIZES) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            assert_eq!((fields.len(), fields[0]), (5, &*bytes.to_string()), "{outcome}");
        }
    }
}
