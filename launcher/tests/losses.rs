//! Ranks that are lost, and ranks that only seem to be.

mod common;

use common::{Place, example_program, finish, start};

/// Numbers that look random and follow from a seed.
fn numbers(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move |limit| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 20) % limit
    }
}

#[test]
fn the_survivors_of_deaths_at_any_moment_agree_who_they_are_and_go_on() {
    let place = Place::new();
    let program = example_program("survivor");
    for seed in 1..=6_u64 {
        let mut below = numbers(seed);
        let transport = ["shm,tcp", "tcp"][usize::try_from(seed % 2).unwrap()];
        let count = 1 + usize::try_from(seed % 3).unwrap();
        let mut ranks: Vec<u64> = (0..5).collect();
        let dying: Vec<u64> =
            (0..count).map(|_| ranks.remove(usize::try_from(below(ranks.len() as u64)).unwrap())).collect();
        // Some at the same time, so that some die while the others agree.
        let first = 50 + below(100);
        let deaths: Vec<String> = dying.iter().map(|rank| format!("{rank}:{}", first + below(3) * below(30))).collect();
        let set = format!("transport.allow={transport}");
        let mut command = place.rsrun();
        command.args(["--on-failure", "continue", "--set", &set, "-n", "5"]).arg(&program).arg("shrink").args(&deaths);
        let ended = finish(start(&mut command));
        let what = format!("{transport} {deaths:?}: {ended:?}");
        assert_eq!(ended.code, Some(137), "{what}");
        let expected: Vec<String> = ranks.iter().map(|rank| format!("rank {rank} of {ranks:?}")).collect();
        let mut lines = ended.lines();
        lines.sort();
        assert_eq!(lines, expected, "{what}");
    }
    place.assert_nothing_left();
}

#[test]
fn survivors_name_the_rank_that_was_lost_first_and_not_one_that_ended_because_of_it() {
    let place = Place::new();
    let mut command = place.rsrun();
    command.args(["--on-failure", "continue", "-n", "17"]).arg(example_program("survivor")).args(["first", "100", "8"]);
    let ended = finish(start(&mut command));
    assert_eq!(ended.code, Some(137), "{ended:?}");
    let lines = ended.lines();
    assert!(
        lines.len() == 16 && lines.iter().all(|line| line.contains(": rank 8 on host localhost is lost")),
        "{ended:?}"
    );
    place.assert_nothing_left();
}

#[test]
fn ranks_that_wait_for_those_that_have_heard_of_a_death_are_woken_and_go_on_with_them() {
    let place = Place::new();
    let program = example_program("survivor");
    for (transport, policy) in [("shm,tcp", "auto"), ("tcp", "auto"), ("shm,tcp", "spin"), ("tcp", "sleep")] {
        let (allow, wait) = (format!("transport.allow={transport}"), format!("wait.policy={policy}"));
        let mut command = place.rsrun();
        command.args(["--on-failure", "continue", "--timeout", "60", "--set", &allow, "--set", &wait, "-n", "5"]);
        let ended = finish(start(command.arg(&program).args(["chain", "100"])));
        let what = format!("{transport}, {policy}: {ended:?}");
        assert_eq!(ended.code, Some(137), "{what}");
        let expected: Vec<String> = (0..4).map(|rank| format!("rank {rank} of [0, 1, 2, 3]: 6")).collect();
        assert_eq!(ended.lines(), expected, "{what}");
        assert!(!ended.stderr.contains("results of collectives"), "{what}");
    }
    place.assert_nothing_left();
}

#[test]
fn a_rank_that_dies_anywhere_in_a_collective_is_noticed_by_all() {
    let place = Place::new();
    let program = example_program("survivor");
    // All in memory, by messages, and in two hops with the inner one in memory: of groups with two leaders or with one.
    for (transport, leaders) in [("shm", None), ("tcp", None), ("shm", Some("1")), ("shm", Some("2"))] {
        for (call, elements) in [
            ("all_reduce", "1"),
            ("all_reduce", "50000"),
            ("all_reduce", "1000000"),
            ("broadcast", "2000000"),
            ("barrier", "0"),
        ] {
            for (after, victim) in [("40", "1"), ("150", "3")] {
                let allow = format!("transport.allow={transport}");
                let mut command = place.rsrun();
                command.args([
                    "--on-failure",
                    "continue",
                    "--timeout",
                    "60",
                    "--set",
                    &allow,
                    "--oversubscribe",
                    "-n",
                    "4",
                ]);
                if let Some(leaders) = leaders {
                    let leaders = format!("collectives.leaders={leaders}");
                    let forced =
                        ["all_reduce", "broadcast", "barrier"].map(|call| format!("collectives.{call}=two_hop_shared"));
                    for set in ["collectives.group_size=2", &leaders, &forced[0], &forced[1], &forced[2]] {
                        command.args(["--set", set]);
                    }
                }
                let ended = finish(start(command.arg(&program).args(["sums", after, victim, call, elements])));
                let what =
                    format!("{transport} {leaders:?}, {call} of {elements}, rank {victim} after {after} ms: {ended:?}");
                assert_eq!(ended.code, Some(137), "{what}");
                let victim: usize = victim.parse().unwrap();
                let left = (0..4).filter(|rank| *rank != victim);
                let expected: Vec<String> = left.map(|rank| format!("rank {rank}: {}", 6 - victim)).collect();
                assert_eq!(ended.lines(), expected, "{what}");
            }
        }
    }
    place.assert_nothing_left();
}

#[test]
fn a_rank_that_computes_longer_than_the_heartbeat_is_not_lost() {
    let place = Place::new();
    let program = example_program("survivor");
    // More than the kernels hold: the window closes, and the kernel of the sender gives the connection up.
    let ended = place.run(
        ["-n", "2", "--set", "transport.allow=tcp", "--set", "heartbeat.timeout=3s", "--set", "tcp.resend_bytes=64MiB"]
            .into_iter()
            .chain([program.to_str().unwrap(), "compute", "7", "32"]),
    );
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.text().contains("received all\n"), "{ended:?}");
    place.assert_nothing_left();
}

#[test]
fn whoever_never_waits_for_a_rank_hears_of_its_death_all_the_same() {
    let place = Place::new();
    let program = example_program("survivor");
    for (transport, policy) in [("shm", "auto"), ("tcp", "auto"), ("shm", "sleep")] {
        let (allow, wait) = (format!("transport.allow={transport}"), format!("wait.policy={policy}"));
        let mut command = place.rsrun();
        command.args(["--on-failure", "continue", "--timeout", "60", "--oversubscribe"]);
        command.args(["--set", &allow, "--set", &wait, "-n", "4"]);
        let ended = finish(start(command.arg(&program).args(["blind", "200"])));
        let what = format!("{transport}, {policy}: {ended:?}");
        assert_eq!(ended.code, Some(137), "{what}");
        let lines = ended.lines();
        for rank in 0..3 {
            assert!(lines.contains(&format!("rank {rank}: 3")), "{what}");
            let heard = format!("rank {rank} heard ");
            let after = lines.iter().find_map(|line| line.strip_prefix(&heard)).expect(&what);
            // Three seconds it took, or for ever, before ranks were told that there are news. This machine may be busy.
            assert!(after.parse::<u64>().expect(&what) < 2500, "{what}");
        }
    }
    place.assert_nothing_left();
}

#[test]
fn a_rank_that_left_in_order_before_anybody_knew_it_is_not_called_lost() {
    let place = Place::new();
    let program = example_program("survivor");
    for transport in ["tcp", "shm"] {
        for failure in ["continue", "abort"] {
            let allow = format!("transport.allow={transport}");
            let mut command = place.rsrun();
            command.args(["--on-failure", failure, "--timeout", "60", "--set", &allow, "--oversubscribe", "-n", "3"]);
            let ended = finish(start(command.arg(&program).arg("early")));
            let what = format!("{transport}, {failure}: {ended:?}");
            assert_eq!(ended.code, Some(0), "{what}");
            let lines = ended.lines();
            assert_eq!(lines.len(), 2, "{what}");
            assert!(
                lines.iter().all(|line| line.contains("rank 0 on host") && line.contains("has dropped its World")),
                "{what}"
            );
        }
    }
    place.assert_nothing_left();
}
