//! Standard input, output and error of ranks: nothing lost, nothing mixed, nothing read that nobody wants.
#![expect(clippy::cast_possible_truncation, reason = "bytes of a pattern")]

mod common;

use common::{Ended, Place, children, finish, rank_program, start, wait_until};
use spmd_lab::programs::run_without_reader;
use std::io::{Read, Write};
use std::process::{Command, Stdio};

/// An agent command under which a host is another host, so that input goes through launcher and agent.
fn far(place: &Place) -> Command {
    let agent = place.script("far", "#!/bin/sh\nexec sh -c \"$2\"\n");
    let mut command = place.rsrun();
    command.arg("--launch-agent").arg(agent).args(["-host", "far:64"]);
    command
}

fn both(place: &Place) -> [Command; 2] {
    [place.rsrun(), far(place)]
}

fn feed(command: &mut Command, data: Vec<u8>) -> Ended {
    let mut child = start(command.stdin(Stdio::piped()));
    let mut stdin = child.stdin.take().unwrap();
    // Nobody may read it at all.
    let writer = std::thread::spawn(move || drop(stdin.write_all(&data)));
    let ended = finish(child);
    writer.join().unwrap();
    ended
}

fn pattern(size: u32) -> Vec<u8> {
    (0..size).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

#[test]
fn input_goes_to_the_rank_asked_for_byte_by_byte() {
    let place = Place::new();
    for size in [0, 1, 16_383, 16_384, 16_385, 65_535, 65_536, 65_537, 1 << 20, 5 << 20] {
        for mut command in both(&place) {
            let script = "test $SPMD_RANK = 2 || { cat | wc -c | sed 's/^/other /' >&2; exit; }; exec cat";
            command.args(["-n", "3", "--stdin", "2", "sh", "-c", script]);
            let ended = feed(&mut command, pattern(size)).success();
            assert!(ended.stdout == pattern(size), "{size} bytes became {}", ended.stdout.len());
            assert_eq!(ended.told().collect::<Vec<_>>(), ["other 0", "other 0"]);
        }
    }
}

#[test]
fn a_slow_reader_gets_every_byte() {
    let place = Place::new();
    for mut command in both(&place) {
        let script = "for i in 1 2 3 4 5; do head -c 100000; sleep 0.05; done; cat";
        command.args(["-n", "1", "sh", "-c", script]);
        let ended = feed(&mut command, pattern(2 << 20)).success();
        assert!(ended.stdout == pattern(2 << 20), "{}", ended.stdout.len());
    }
}

#[test]
fn a_hundred_megabytes_of_input_arrive_unchanged() {
    let place = Place::new();
    let data = pattern(100 << 20);
    for mut command in both(&place) {
        let copy = place.home.path().join("copy");
        command.args(["-n", "2", "sh", "-c", &format!("test $SPMD_RANK = 1 || cat > {}", copy.display())]);
        feed(&mut command, data.clone()).success();
        assert!(std::fs::read(&copy).unwrap() == data);
    }
}

#[test]
fn input_for_all_reaches_every_rank_also_when_one_reads_slowly_or_not_at_all() {
    let place = Place::new();
    let sum = |data: &[u8]| data.iter().fold(0_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
    let data = pattern(1 << 20);
    for mut command in both(&place) {
        let script = format!(
            "case $SPMD_RANK in 3) exit 0;; 2) sleep 0.2;; esac; cat > {}/copy.$SPMD_RANK",
            place.home.path().display()
        );
        command.args(["-n", "4", "--stdin", "all", "sh", "-c", &script]);
        feed(&mut command, data.clone()).success();
        for rank in 0..3 {
            let copy = std::fs::read(place.home.path().join(format!("copy.{rank}"))).unwrap();
            assert_eq!((copy.len(), sum(&copy)), (data.len(), sum(&data)), "rank {rank}");
        }
    }
}

#[test]
fn the_first_piece_of_input_is_never_lost() {
    let place = Place::new();
    for _ in 0..100 {
        for mut command in both(&place) {
            command.args(["-n", "1", "head", "-1"]);
            assert_eq!(feed(&mut command, b"X\n".to_vec()).success().text(), "X\n");
        }
    }
}

/// Runs a shell loop that reads its lines from the same input as the jobs in it.
fn shell_loop(place: &Place, job: &str) -> String {
    let agent = place.script("far", "#!/bin/sh\nexec sh -c \"$2\"\n");
    let script = format!(
        "rsrun() {{ {} \"$@\"; }}; far() {{ rsrun --launch-agent {} -host far:4 \"$@\"; }}; \
         while read line; do echo \"loop $line\"; {job}; done",
        common::binary(),
        agent.display()
    );
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).env("HOME", place.home.path());
    feed(&mut shell, b"1\n2\n3\n4\n".to_vec()).success().text()
}

#[test]
fn a_shell_loop_keeps_the_lines_that_no_rank_reads() {
    let place = Place::new();
    let all = "loop 1\nloop 2\nloop 3\nloop 4\n";
    assert_eq!(shell_loop(&place, "rsrun -n 2 true"), all);
    assert_eq!(shell_loop(&place, "rsrun --stdin none -n 2 cat"), all);
    assert_eq!(shell_loop(&place, "far --stdin none -n 2 cat"), all);
    assert_eq!(shell_loop(&place, "rsrun -n 1 --stdin 0 no-such-program 2>/dev/null || true"), all);
    // A rank of this machine takes what it reads and no more.
    assert_eq!(
        shell_loop(&place, "rsrun -n 2 --stdin 1 sh -c 'test $SPMD_RANK = 0 || { read x; echo \"rank $x\"; }'"),
        "loop 1\nrank 2\nloop 3\nrank 4\n"
    );
}

#[test]
fn a_prompt_is_shown_before_its_line_ends() {
    let place = Place::new();
    for (tag, begin, end) in [(None, "name? ", "hi X\n"), (Some("--tag"), "[0] name? ", "hi X\n")] {
        for mut command in both(&place) {
            command.args(tag).args(["-n", "1", "sh", "-c", "printf 'name? '; read name; echo \"hi $name\""]);
            let mut child = start(command.stdin(Stdio::piped()));
            let mut seen = vec![0; begin.len()];
            child.stdout.as_mut().unwrap().read_exact(&mut seen).unwrap();
            assert_eq!(String::from_utf8_lossy(&seen), begin);
            child.stdin.take().unwrap().write_all(b"X\n").unwrap();
            assert_eq!(finish(child).success().text(), end);
        }
    }
}

#[test]
fn lines_of_a_megabyte_stay_whole() {
    let place = Place::new();
    let script = "for i in 1 2 3; do head -c 1000000 /dev/zero | tr '\\0' $SPMD_RANK; echo; done";
    let ended = place.run(["-n", "4", "sh", "-c", script]).success();
    let text = ended.text();
    assert_eq!(text.lines().count(), 12);
    for line in text.lines() {
        let first = line.as_bytes()[0];
        assert!(line.len() == 1_000_000 && line.bytes().all(|b| b == first), "{} bytes", line.len());
    }
}

#[test]
fn tags_and_times_stand_at_line_starts_and_a_cut_line_is_marked() {
    let place = Place::new();
    let script = "echo a; printf b; sleep 0.15; echo c; echo; printf end";
    let ended = place.run(["-n", "2", "--tag", "sh", "-c", script]).success();
    for rank in 0..2 {
        let own: Vec<String> =
            ended.text().lines().filter(|l| l.starts_with(&format!("[{rank}]"))).map(Into::into).collect();
        let expected = ["a", "bc", "", "end", "\\ No newline at end of output"].map(|line| format!("[{rank}] {line}"));
        assert_eq!(own, expected);
    }
    let mut command = far(&place);
    command.args(["-n", "2", "--tag=host", "echo", "x"]);
    assert_eq!(finish(start(&mut command)).success().lines(), ["[0@far] x", "[1@far] x"]);
    // Times are those of the source: they do not move with a slow reader.
    let child = start(place.rsrun().args(["-n", "1", "--timestamp", "sh", "-c", "echo a; sleep 0.3; echo b"]));
    std::thread::sleep(std::time::Duration::from_millis(600));
    let text = finish(child).success().text();
    let seconds = |line: &str| {
        let (time, _) = line.split_once("Z ").unwrap();
        let (_, clock) = time.split_once('T').unwrap();
        clock.split(':').fold(0.0, |sum, part| sum * 60.0 + part.parse::<f64>().unwrap())
    };
    let times: Vec<f64> = text.lines().map(seconds).collect();
    assert!(times.len() == 2 && (times[1] - times[0]).rem_euclid(86_400.0) >= 0.29, "{text}");
}

#[test]
fn each_rank_s_output_goes_to_files_of_its_own() {
    let place = Place::new();
    for (tee, shown) in [(&[][..], vec![]), (&["--tee", "--tag"], vec!["[0] out 0", "[1] out 1", "[2] out 2"])] {
        let folder = place.home.path().join("deep/er");
        let mut command = far(&place);
        command.arg("--output-dir").arg(&folder).args(tee);
        command.args(["--output-overwrite", "-n", "3", "sh", "-c"]);
        command.arg("echo out $SPMD_RANK; test $SPMD_RANK = 1 || printf err >&2");
        let ended = finish(start(&mut command)).success();
        assert_eq!(ended.lines(), shown);
        for rank in 0..3 {
            let read = |name| std::fs::read_to_string(folder.join(format!("rank.000{rank}/{name}"))).unwrap();
            assert_eq!(read("stdout"), format!("out {rank}\n"), "files of an earlier job are replaced");
            assert_eq!(read("stderr"), if rank == 1 { "" } else { "err" });
        }
    }
    let file = place.write("file", "");
    let file = file.to_str().unwrap();
    place.run(["--output-dir", file, "-n", "1", "true"]).fails(73, &["--output-dir", file]);
    place.run(["--tee", "-n", "1", "true"]).fails(64, &["--output-dir"]);
    // A full disk is a failure, not a gap.
    let full = place.home.path().join("full/rank.0000/stdout");
    let script = "until test -h \"$0\"; do sleep 0.05; done; echo lost; exec sleep 60";
    let mut command = place.rsrun();
    command.arg("--output-dir").arg(place.home.path().join("full")).args(["-n", "1", "sh", "-c", script]).arg(&full);
    let child = start(&mut command);
    wait_until("the rank's files are made", || full.exists());
    std::fs::remove_file(&full).unwrap();
    std::os::unix::fs::symlink("/dev/full", &full).unwrap();
    finish(child).fails(73, &["rank.0000/stdout"]);
    place.assert_nothing_left();
}

#[test]
fn last_words_before_an_abort_are_not_lost() {
    let place = Place::new();
    let program = rank_program();
    let mut command = place.rsrun();
    command.args(["--set", "wait.policy=sleep", "-n", "64"]).arg(&program).arg("last-words");
    let ended = finish(start(&mut command));
    assert_eq!(ended.code, Some(134), "{ended:?}");
    let mut expected: Vec<String> = (0..64).map(|rank| format!("out {rank}")).collect();
    expected.sort();
    assert_eq!(ended.lines(), expected);
    for rank in 0..64 {
        assert!(ended.stderr.lines().any(|line| line == format!("err {rank}")), "rank {rank}: {}", ended.stderr);
    }
    place.assert_nothing_left();
}

/// The most memory that a process has had, in KiB.
fn peak(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_rank_whose_output_nobody_reads_holds_up_nobody_else_and_costs_little_memory() {
    let place = Place::new();
    let program = rank_program();
    let done = place.home.path().join("done");
    // Rank 1 floods before and after the others meet it in the world, rank 0 says when it is through.
    let script = format!(
        "test $SPMD_RANK = 1 || {{ {0} sum >/dev/null; touch {1}.$SPMD_RANK; exit; }}; \
         head -c 1000000000 /dev/zero | tr '\\0' '\\n' & {0} sum >/dev/null; wait",
        program.display(),
        done.display()
    );
    let mut child = start(place.rsrun().args(["-n", "3", "sh", "-c", &script]));
    wait_until("the other ranks are through", || {
        [0, 2].iter().all(|rank| std::path::Path::new(&format!("{}.{rank}", done.display())).exists())
    });
    // Somebody reads now, slowly at first, and all of it is there.
    let mut out = child.stdout.take().unwrap();
    let mut buffer = vec![0; 1 << 20];
    let mut count = 0_u64;
    let (mut launcher, mut agent) = (0, 0);
    loop {
        let n = out.read(&mut buffer).unwrap();
        if n == 0 {
            break;
        }
        count += n as u64;
        if count < 900_000_000 {
            launcher = peak(child.id());
            agent = agents(child.id()).into_iter().map(peak).max().unwrap_or(agent);
        }
    }
    child.stdout =
        Some(std::process::ChildStdout::from(std::os::fd::OwnedFd::from(std::fs::File::open("/dev/null").unwrap())));
    finish(child).success();
    assert_eq!(count, 1_000_000_000);
    assert!(launcher < 64 << 10, "the launcher took {launcher} KiB");
    assert!((1..16 << 10).contains(&agent), "the agent took {agent} KiB");
    place.assert_nothing_left();
}

/// Guard and agent of a launcher.
fn agents(launcher: u32) -> Vec<u32> {
    let mut guards = Vec::new();
    for task in std::fs::read_dir(format!("/proc/{launcher}/task")).into_iter().flatten().flatten() {
        let text = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        guards.extend(text.split_whitespace().map(|pid| pid.parse::<u32>().unwrap()));
    }
    let agents: Vec<u32> = guards.iter().flat_map(|guard| children(*guard)).collect();
    guards.into_iter().chain(agents).collect()
}

#[test]
fn a_reader_that_has_gone_ends_every_report_without_a_word() {
    let place = Place::new();
    let commands: [&[&str]; 8] = [
        &["--help"],
        &["--version"],
        &["config"],
        &["config", "--json"],
        &["topo"],
        &["man"],
        &["completions", "bash"],
        &["simulate", "--ranks", "8"],
    ];
    for words in commands {
        let mut command = Command::new(common::binary());
        command.args(words).env("HOME", place.home.path()).env_remove("XDG_CONFIG_HOME");
        let outcome = run_without_reader(&mut command, common::LIMIT);
        assert_eq!((outcome.code(), &*outcome.stderr), (0, ""), "{outcome}");
    }
}
