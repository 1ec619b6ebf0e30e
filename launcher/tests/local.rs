//! Jobs on this machine: real launcher, real agent, real processes.
#![expect(clippy::cast_possible_truncation, reason = "bytes of a pattern")]

mod common;

use common::{Place, finish, rank_program, start, wait_until};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::ffi::OsStringExt;
use std::process::Stdio;

#[test]
fn every_rank_knows_who_it_is() {
    let place = Place::new();
    let ended =
        place.run(["-n", "3", "sh", "-c", "echo $SPMD_RANK/$SPMD_SIZE $SPMD_LOCAL_RANK/$SPMD_LOCAL_SIZE"]).success();
    assert_eq!(ended.lines(), ["0/3 0/3", "1/3 1/3", "2/3 2/3"]);
    assert_eq!(ended.told().next(), None);
    place.assert_nothing_left();
}

#[test]
fn exit_codes_are_those_of_the_first_failing_rank() {
    let place = Place::new();
    let cases = [
        ("exit 7", 7, "rank 0 on host localhost"),
        ("exit 255", 255, "exited with code 255"),
        ("kill -SEGV $$", 139, "SIGSEGV"),
        ("kill -9 $$", 137, "was killed by SIGKILL"),
        ("test $SPMD_RANK = 1 || exec sleep 60; exit 3", 3, "rank 1"),
        // A killed rank is the reason, not those that fail because of it.
        ("test $SPMD_RANK = 1 && exit 5; test $SPMD_RANK = 2 || exec sleep 60; sleep 0.02; kill -9 $$", 137, "rank 2"),
    ];
    for (script, code, part) in cases {
        let ranks = if script.contains("SPMD_RANK") { "3" } else { "1" };
        place.run(["-n", ranks, "sh", "-c", script]).fails(code, &[part, "pid"]);
        place.assert_nothing_left();
    }
}

#[test]
fn codes_of_ranks_that_all_fail_are_never_mixed() {
    let place = Place::new();
    for script in ["exit $((1 << SPMD_RANK))", "sleep 0.$SPMD_RANK; exit $((1 << SPMD_RANK))"] {
        let ended = place.run(["-n", "3", "sh", "-c", script]);
        assert!(matches!(ended.code, Some(1 | 2 | 4)), "{ended:?}");
    }
    place.assert_nothing_left();
}

#[test]
fn what_cannot_be_started_is_named_with_its_code() {
    let place = Place::new();
    let file = place.write("data", "not a program");
    let file = file.to_str().unwrap();
    let script = place.script("interpreted", "#!/no/such/interpreter\n");
    let missing = place.home.path().join("no-such-directory");
    let missing = missing.to_str().unwrap();
    place.run(["-n", "2", "./no-such"]).fails(127, &["localhost", "no-such does not exist there: build it"]);
    place.run(["-n", "2", "no-such-program"]).fails(127, &["no-such-program", "PATH"]);
    place.run(["-n", "2", script.to_str().unwrap()]).fails(127, &["interpreter"]);
    place.run(["-n", "2", file]).fails(126, &[file, "not executable"]);
    place.run(["-n", "2", "/"]).fails(126, &["directory"]);
    place.run(["-n", "2", "-wdir", missing, "true"]).fails(73, &["localhost", missing, "does not exist"]);
    place.run(["-n", "2", "-wdir", file, "true"]).fails(73, &[file, "not a directory"]);
    place.assert_nothing_left();
}

#[test]
fn wrong_hostfiles_and_settings_are_refused_with_their_place() {
    let place = Place::new();
    let hosts = place.write("hosts", "localhost slots=2\nn2 slot=2\n");
    let hosts = hosts.to_str().unwrap();
    let directory = place.home.path().to_str().unwrap();
    place.run(["-hostfile", hosts, "true"]).fails(65, &[&format!("{hosts}:2:4: "), "slot="]);
    place.run(["-hostfile", "/no/such/file", "true"]).fails(65, &["/no/such/file", "No such file"]);
    place.run(["-hostfile", directory, "true"]).fails(65, &[directory, "directory"]);
    place.run(["--set", "shm.ring_byte=1", "true"]).fails(65, &["shm.ring_bytes"]);
    place.run(["--config", "/no/such/config", "true"]).fails(65, &["/no/such/config"]);
    place.run(["-n", "0", "true"]).fails(64, &["at least one rank"]);
    let hosts = place.write("few", "localhost slots=2");
    let hosts = hosts.to_str().unwrap();
    place.run(["-hostfile", hosts, "-n", "3", "true"]).fails(75, &["3 ranks", "localhost: 2"]);
    place.run(["-hostfile", hosts, "-n", "3", "-oversubscribe", "true"]).success();
    let ended = place.run(["-hostfile", hosts, "echo", "x"]).success();
    assert_eq!(ended.text(), "x\nx\n");
}

#[test]
fn variables_arrive_byte_by_byte_and_nothing_of_rsrun_does() {
    let place = Place::new();
    let value = OsString::from_vec(b"a=b=c \n\t'\"$`\\%\xff\xc3\xa4".to_vec());
    let long = "x".repeat(100_000);
    let mut command = place.rsrun();
    let mut odd = OsString::from("ODD=");
    odd.push(&value);
    command.arg("-x").arg(&odd).args(["-x", "EMPTY=", "-x", "PASSED", "-x", &format!("LONG={long}")]);
    command.args(["-n", "1", "env", "-0"]).env("RSRUN_EAGER_LIMIT", "4KiB").env("PASSED", "on").env("SPMD_RANK", "77");
    let ended = finish(start(&mut command)).success();
    let variables: Vec<&[u8]> = ended.stdout.split(|b| *b == 0).collect();
    let has = |wanted: &[u8]| variables.contains(&wanted);
    assert!(has(&odd.into_vec()) && has(b"EMPTY=") && has(b"PASSED=on") && has(format!("LONG={long}").as_bytes()));
    assert!(has(b"SPMD_RANK=0") && has(b"SPMD_SIZE=1"));
    assert!(!variables.iter().any(|v| v.starts_with(b"RSRUN_")), "{}", ended.text());
    // The launcher's own variables are no strays.
    assert_eq!(ended.told().next(), None);
}

#[test]
fn arguments_arrive_byte_by_byte() {
    let place = Place::new();
    let odd = OsString::from_vec(b"\xff \n$HOME * '\"".to_vec());
    let mut command = place.rsrun();
    command.args(["-n", "1", "printf", "%s|%s|%s"]).arg(&odd).args(["", "-n"]);
    let ended = finish(start(&mut command)).success();
    assert_eq!(ended.stdout, [odd.into_vec().as_slice(), b"||-n"].concat());
}

#[test]
fn the_directory_is_ours_or_the_one_asked_for() {
    let place = Place::new();
    let here = std::fs::canonicalize(place.home.path()).unwrap();
    let mut command = place.rsrun();
    command.current_dir(&here).args(["-n", "1", "sh", "-c", "pwd; echo $PWD"]);
    assert_eq!(finish(start(&mut command)).success().text(), format!("{0}\n{0}\n", here.display()));
    assert_eq!(place.run(["-wdir", "/usr", "-n", "1", "pwd"]).success().text(), "/usr\n");
}

#[test]
fn standard_input_reaches_rank_0_byte_by_byte_and_nobody_else() {
    let place = Place::new();
    for size in [0, 1, 65_535, 65_536, 65_537, 1 << 20, 5 << 20] {
        let data: Vec<u8> = (0..size).map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let mut command = place.rsrun();
        command.args(["-n", "2", "cat"]).stdin(Stdio::piped());
        let mut child = start(&mut command);
        let mut stdin = child.stdin.take().unwrap();
        let copy = data.clone();
        let writer = std::thread::spawn(move || stdin.write_all(&copy));
        let ended = finish(child).success();
        writer.join().unwrap().unwrap();
        assert!(ended.stdout == data, "{size} bytes became {}", ended.stdout.len());
    }
}

#[test]
fn a_rank_that_does_not_read_all_its_input_hangs_nothing() {
    let place = Place::new();
    for program in ["true", "head -c 3", "exec <&-; sleep 0.1"] {
        let mut command = place.rsrun();
        command.args(["-n", "1", "sh", "-c", program]).stdin(Stdio::piped());
        let mut child = start(&mut command);
        let mut stdin = child.stdin.take().unwrap();
        let writer = std::thread::spawn(move || while stdin.write_all(&[b'x'; 65_536]).is_ok() {});
        finish(child).success();
        writer.join().unwrap();
    }
}

#[test]
fn the_first_piece_of_input_is_never_lost() {
    let place = Place::new();
    for _ in 0..30 {
        let mut command = place.rsrun();
        command.args(["-n", "1", "head", "-1"]).stdin(Stdio::piped());
        let mut child = start(&mut command);
        child.stdin.take().unwrap().write_all(b"first\n").unwrap();
        assert_eq!(finish(child).success().text(), "first\n");
    }
}

#[test]
fn output_of_many_ranks_stays_in_whole_lines_and_complete() {
    let place = Place::new();
    let script = "i=0; while [ $i -lt 500 ]; do echo \"$SPMD_RANK begin $i ......................................... end\"; \
                  i=$((i+1)); done";
    let ended = place.run(["-n", "8", "sh", "-c", script]).success();
    let lines = ended.lines();
    assert_eq!(lines.len(), 8 * 500);
    for line in &lines {
        assert!(line.contains(" begin ") && line.ends_with(" end") && line.matches("begin").count() == 1, "{line}");
    }
    // Long lines, and a last line without its end.
    let ended =
        place.run(["-n", "1", "sh", "-c", "head -c 1000000 /dev/zero | tr '\\0' x; echo; printf last"]).success();
    assert_eq!(ended.stdout.len(), 1_000_005);
    assert!(ended.text().ends_with("x\nlast"));
    // Both streams, and the tail before a violent end.
    let ended = place.run(["-n", "4", "sh", "-c", "echo out; echo err >&2; kill -ABRT $$"]);
    assert_eq!(ended.code, Some(134));
    assert!(ended.text().contains("out\n") && ended.stderr.contains("err\n"));
    let ended = place.run(["-n", "2", "-tag", "echo", "x"]).success();
    assert_eq!(ended.lines(), ["[0] x", "[1] x"]);
}

#[test]
fn a_grandchild_that_keeps_the_output_open_neither_hangs_the_job_nor_survives_it() {
    let place = Place::new();
    for script in ["sleep 600 & echo done", "setsid sleep 600 & echo done", "(env -i setsid sleep 600 &) ; echo done"] {
        let ended = place.run(["-n", "2", "sh", "-c", script]).success();
        assert_eq!(ended.text(), "done\ndone\n");
        place.assert_nothing_left();
    }
}

#[test]
fn ranks_that_ignore_sigterm_are_killed() {
    let place = Place::new();
    let script = "trap '' TERM; test $SPMD_RANK = 0 && exit 3; while :; do sleep 600; done";
    place.run(["--set", "launch.grace=200ms", "-n", "3", "sh", "-c", script]).fails(3, &["rank 0"]);
    place.assert_nothing_left();
}

#[test]
fn the_time_limit_ends_the_job_with_124() {
    let place = Place::new();
    place.run(["--timeout", "0.3", "-n", "2", "sleep", "600"]).fails(124, &["--timeout", "300ms"]);
    place.assert_nothing_left();
}

#[test]
fn interrupts_end_the_job_and_user_signals_reach_the_ranks() {
    let place = Place::new();
    for (signal, code) in [(libc::SIGINT, 130), (libc::SIGTERM, 143), (libc::SIGHUP, 129)] {
        let mut child = start(place.rsrun().args(["-n", "2", "sh", "-c", "echo ready; exec sleep 600"]));
        read_lines(&mut child, 2);
        common::signal(child.id(), signal);
        let ended = finish_without_stdout(child);
        assert_eq!(ended.code, Some(code), "{ended:?}");
        assert!(ended.stderr.contains("rsrun: interrupted by SIG"), "{ended:?}");
        place.assert_nothing_left();
    }
    let script = "trap 'kill $!; exit 0' USR1; sleep 600 & echo ready; wait";
    let mut child = start(place.rsrun().args(["-n", "2", "sh", "-c", script]));
    read_lines(&mut child, 2);
    common::signal(child.id(), libc::SIGUSR1);
    finish_without_stdout(child).success();
    place.assert_nothing_left();
}

#[test]
fn a_second_interrupt_kills_at_once() {
    let place = Place::new();
    let script = "trap '' TERM INT; echo ready; while :; do sleep 600; done";
    let mut child = start(place.rsrun().args(["--set", "launch.grace=1h", "-n", "2", "sh", "-c", script]));
    read_lines(&mut child, 2);
    common::signal(child.id(), libc::SIGINT);
    common::signal(child.id(), libc::SIGTERM);
    // Where both wait to be taken, either may be the first.
    let code = finish_without_stdout(child).code;
    assert!(matches!(code, Some(130 | 143)), "{code:?}");
    place.assert_nothing_left();
}

#[test]
fn output_that_nobody_reads_ends_the_job() {
    let place = Place::new();
    let mut child = start(place.rsrun().args(["-n", "2", "yes"]));
    read_lines(&mut child, 1);
    let ended = finish_without_stdout(child);
    assert_eq!(ended.code, Some(141), "{ended:?}");
    place.assert_nothing_left();
}

#[test]
fn a_slow_reader_loses_nothing_and_stops_nothing() {
    let place = Place::new();
    let child = start(place.rsrun().args(["-n", "4", "sh", "-c", "head -c 4000000 /dev/zero | tr '\\0' '\\n'"]));
    // Let everything fill up before anyone reads.
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert_eq!(finish(child).success().stdout.len(), 16_000_000);
}

#[test]
fn ninety_six_ranks_with_few_open_files_allowed_start_and_end() {
    let place = Place::new();
    let line = format!("ulimit -Sn 64; exec {} -x TEST_MARK={} -n 96 sh -c 'ulimit -Sn'", common::binary(), place.mark);
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", &line]).env("HOME", place.home.path()).stdin(Stdio::null());
    let ended = finish(start(&mut shell)).success();
    // Ranks get the limit back that the launcher was started with, or as much more as they need: 96 bells, and 40.
    assert_eq!(ended.lines(), ["136"; 96]);
    place.assert_nothing_left();
}

#[test]
fn ranks_inherit_only_what_is_meant_for_them() {
    let place = Place::new();
    let ended = place.run(["-n", "2", "sh", "-c", "ls -l /proc/self/fd | grep -v '/proc/' | wc -l"]).success();
    // 0 1 2, boot, control, segment, two eventfds, and the total line of ls.
    assert_eq!(ended.lines(), ["9", "9"]);
    let ended = place.run(["-n", "1", "sh", "-c", "grep -E 'Sig(Blk|Ign)' /proc/self/status"]).success();
    for line in ended.lines() {
        let mask = u64::from_str_radix(line.split_whitespace().last().unwrap(), 16).unwrap();
        // 32 and 33 belong to the C library: nobody can change them.
        assert_eq!(mask & !(3 << 31), 0, "{line}");
    }
}

#[test]
fn the_snapshot_is_shown_with_its_sources() {
    let place = Place::new();
    let file = place.write("job.toml", "[shm]\nring_bytes = \"128KiB\"\n");
    let mut command = std::process::Command::new(common::binary());
    command.env("HOME", place.home.path()).env("RSRUN_EAGER_LIMIT", "4KiB").env_remove("XDG_CONFIG_HOME");
    command.args(["config", "--changed", "--config"]).arg(&file).args(["--set", "wait.policy=yield"]);
    let ended = finish(start(&mut command)).success();
    for part in ["shm.ring_bytes", "128KiB", "job.toml:2", "RSRUN_EAGER_LIMIT", "wait.policy", "--set"] {
        assert!(ended.text().contains(part), "{}", ended.text());
    }
}

#[test]
fn ranks_enter_the_world_together_and_talk() {
    let place = Place::new();
    let program = rank_program();
    let ended = place.run(["-n", "4", program.to_str().unwrap(), "sum"]).success();
    assert_eq!(
        ended.lines(),
        ["rank 0 of 4 heard 3", "rank 1 of 4 heard 0", "rank 2 of 4 heard 1", "rank 3 of 4 heard 2"]
    );
    place.assert_nothing_left();
}

#[test]
fn what_goes_wrong_in_the_world_has_its_code_and_names_the_rank() {
    let place = Place::new();
    let program = rank_program();
    let program = program.to_str().unwrap();
    let cases: [(&str, i32, &[&str]); 5] = [
        ("never-init", 71, &["rank 1 on host localhost", "without World::init"]),
        ("disagree", 71, &["low_latency.size_hint", "rank 1 on host localhost has 8KiB", "rank 0"]),
        ("abort", 42, &["rank 1", "the input makes no sense"]),
        ("leave", 76, &["rank 1", "World was dropped"]),
        ("fail", 9, &["rank 1", "code 9"]),
    ];
    for (action, code, parts) in cases {
        place.run(["-n", "3", program, action]).fails(code, parts);
        place.assert_nothing_left();
    }
    let words = ["--set", "launch.start_timeout=300ms", "-n", "3", program, "late"];
    place.run(words).fails(124, &["rank 1 on host localhost did not enter", "launch.start_timeout"]);
    place.assert_nothing_left();
}

fn read_lines(child: &mut std::process::Child, count: usize) {
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    for _ in 0..count {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "the output ended");
    }
    // The rest stays unread: closing it is what `| head` does.
    if count > 1 {
        std::mem::forget(reader);
    }
}

#[test]
fn an_output_that_a_stranger_holds_open_does_not_keep_the_job() {
    let place = Place::new();
    let number = place.home.path().join("pid");
    let mut command = place.rsrun();
    command.args(["-n", "1", "sh", "-c", "echo $$ > \"$0.new\"; mv \"$0.new\" \"$0\"; read go; printf last"]);
    let mut child = start(command.arg(&number).stdin(Stdio::piped()));
    wait_until("the rank", || number.exists());
    let rank = std::fs::read_to_string(&number).unwrap();
    let open = |fd: u32| std::fs::OpenOptions::new().write(true).open(format!("/proc/{}/fd/{fd}", rank.trim()));
    let held = [open(1).unwrap(), open(2).unwrap()];
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let ended = finish(child).success();
    assert_eq!(ended.text(), "last");
    drop(held);
    place.assert_nothing_left();
}

#[test]
fn a_signal_ends_a_launcher_that_still_reads_its_hostfile() {
    let place = Place::new();
    let pipe = place.home.path().join("hosts");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let child = start(place.rsrun().arg("-hostfile").arg(&pipe).arg("true"));
    // Opens only when somebody reads; held open, so that what is read has no end.
    let mut writer = None;
    wait_until("the launcher reads", || {
        let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::NONBLOCK;
        writer = rustix::fs::open(&pipe, flags, rustix::fs::Mode::empty()).ok();
        writer.is_some()
    });
    common::signal(child.id(), libc::SIGTERM);
    assert_eq!(finish(child).code, None);
    drop(writer);
    place.assert_nothing_left();
}

#[test]
fn what_is_no_file_where_a_host_may_have_its_configuration_hangs_nothing() {
    let place = Place::new();
    let config = place.home.path().join("elsewhere/rsrun");
    std::fs::create_dir_all(&config).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(config.join("config.toml")).status().unwrap().success());
    // As on another host, where the launcher has not looked.
    let script = format!("#!/bin/sh\nXDG_CONFIG_HOME={} exec sh -c \"$2\"\n", config.parent().unwrap().display());
    let agent = place.script("agent", &script);
    let words = ["--launch-agent", agent.to_str().unwrap(), "-host", "h:1", "-n", "1", "echo", "x"];
    let ended = place.run(words).success();
    assert_eq!((ended.text().as_ref(), ended.stderr.as_str()), ("x\n", ""));
    place.assert_nothing_left();
}

#[test]
fn an_output_that_is_full_is_named() {
    let place = Place::new();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let child = place.rsrun().args(["-n", "1", "echo", "x"]).stdout(full).stderr(Stdio::piped()).spawn().unwrap();
    finish_without_stdout(child).fails(73, &["standard output", "No space left"]);
    for words in [&["config"][..], &["simulate", "--ranks", "8"], &["completions", "bash"]] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut rsrun = std::process::Command::new(env!("CARGO_BIN_EXE_rsrun"));
        let child = rsrun.args(words).stdout(full).stderr(Stdio::piped()).spawn().unwrap();
        finish_without_stdout(child).fails(73, &["standard output", "No space left"]);
    }
    place.assert_nothing_left();
}

fn finish_without_stdout(mut child: std::process::Child) -> common::Ended {
    let mut status = None;
    wait_until("rsrun ends", || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    let mut stderr = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut stderr).unwrap();
    common::Ended { code: status.unwrap().code(), stdout: Vec::new(), stderr }
}

#[test]
fn a_program_of_another_version_is_refused_with_both_versions() {
    let place = Place::new();
    // What such a program writes on its control socket before it gives up.
    let script = r"printf 'SPMDRANK\143\0\0\0\5\0\0\0009.9.9' >&$SPMD_CONTROL_FD; sleep 60";
    let ours = format!("version {}", env!("CARGO_PKG_VERSION"));
    place.run(["-n", "2", "bash", "-c", script]).fails(76, &["9.9.9", "protocol 99", &ours]);
    place.assert_nothing_left();
}
