//! How jobs are interrupted, stopped, watched and ended.

mod common;

use common::{Ended, Place, finish, rank_program, start, wait_for_lines, wait_until};
use std::time::Duration;

fn state(pid: u32) -> char {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').and_then(|(_, rest)| rest.trim().chars().next()).unwrap_or('?')
}

#[test]
fn an_interrupt_reaches_the_ranks_as_itself_and_they_may_end_in_order() {
    let place = Place::new();
    for (signal, name, code) in [(libc::SIGINT, "INT", 130), (libc::SIGTERM, "TERM", 143)] {
        let script = format!("trap 'echo got {name}; exit 0' {name}; echo ready; while :; do sleep 0.02; done");
        let mut child = start(place.rsrun().args(["-n", "2", "sh", "-c", &script]));
        wait_for_lines(&mut child, 2);
        common::signal(child.id(), signal);
        let ended = finish(child).fails(code, &[&format!("interrupted by SIG{name}")]);
        assert_eq!(ended.text(), format!("got {name}\ngot {name}\n"));
        place.assert_nothing_left();
    }
}

#[test]
fn ranks_that_ignore_every_polite_signal_are_gone_after_the_grace() {
    let place = Place::new();
    let script = "trap '' INT TERM HUP QUIT; echo ready; while :; do sleep 600; done";
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let mut child = start(place.rsrun().args(["--set", "launch.grace=100ms", "-n", "2", "sh", "-c", script]));
        wait_for_lines(&mut child, 2);
        common::signal(child.id(), signal);
        assert_eq!(finish(child).code, Some(128 + signal));
        place.assert_nothing_left();
    }
}

#[test]
fn an_interrupt_at_any_time_leaves_nothing() {
    let place = Place::new();
    let program = rank_program();
    for step in 0..30 {
        let mut child = start(place.rsrun().args(["-n", "4"]).arg(&program).arg("wait"));
        std::thread::sleep(Duration::from_millis(step * 2));
        common::signal(child.id(), libc::SIGINT);
        let mut status = None;
        wait_until("rsrun ends", || {
            status = child.try_wait().unwrap();
            status.is_some()
        });
        use std::os::unix::process::ExitStatusExt;
        let status = status.unwrap();
        // In its first moments it has no handler yet.
        assert!(status.code() == Some(130) || status.signal() == Some(libc::SIGINT), "after {step}: {status:?}");
        place.wait_until_nothing_left();
    }
}

#[test]
fn user_signals_reach_every_rank_and_quit_does_the_second_time() {
    let place = Place::new();
    for (signal, name) in
        [(libc::SIGUSR1, "USR1"), (libc::SIGUSR2, "USR2"), (libc::SIGQUIT, "QUIT"), (libc::SIGWINCH, "WINCH")]
    {
        let script = format!("trap 'echo got {name}; exit 0' {name}; echo ready; while :; do sleep 0.02; done");
        let mut child = start(place.rsrun().args(["-n", "3", "sh", "-c", &script]));
        wait_for_lines(&mut child, 3);
        common::signal(child.id(), signal);
        if signal == libc::SIGQUIT {
            // Two signals of one kind that come together are one.
            std::thread::sleep(Duration::from_millis(200));
            common::signal(child.id(), signal);
        }
        let ended = finish(child).success();
        assert_eq!(ended.text(), format!("got {name}\n").repeat(3));
        assert_eq!(ended.stderr.contains("state of job"), signal == libc::SIGQUIT, "{}", ended.stderr);
    }
    place.assert_nothing_left();
}

#[test]
fn a_signal_that_nobody_is_there_for_is_told() {
    let place = Place::new();
    let agent = place.script("agent", "#!/bin/sh\nsleep 0.7; exec sh -c \"$2\"\n");
    let mut command = place.rsrun();
    command.arg("--launch-agent").arg(agent).args(["-host", "a:1", "true"]);
    let child = start(&mut command);
    std::thread::sleep(Duration::from_millis(300));
    common::signal(child.id(), libc::SIGUSR1);
    let ended = finish(child).success();
    assert_eq!(ended.stderr, "rsrun: SIGUSR1 reached no process: no rank runs yet\n");
}

#[test]
fn the_stop_signal_stops_ranks_and_launcher_and_both_go_on() {
    let place = Place::new();
    // One process a rank: a shell that stops while its child begins looks as if it did not stop.
    let script = "echo $$; exec sleep 600";
    let mut command = place.rsrun();
    command.args(["--timeout", "20", "-n", "2", "sh", "-c", script]);
    let mut child = start(&mut command);
    let ranks: Vec<u32> = wait_for_lines(&mut child, 2).iter().map(|line| line.trim().parse().unwrap()).collect();
    for _ in 0..2 {
        common::signal(child.id(), libc::SIGTSTP);
        wait_until("everything has stopped", || {
            state(child.id()) == 'T' && ranks.iter().all(|rank| state(*rank) == 'T')
        });
        common::signal(child.id(), libc::SIGCONT);
        wait_until("everything goes on", || state(child.id()) != 'T' && ranks.iter().all(|rank| state(*rank) != 'T'));
    }
    common::signal(child.id(), libc::SIGTERM);
    assert_eq!(finish(child).code, Some(143));
    place.assert_nothing_left();
}

#[test]
fn whoever_fails_the_job_fails_with_the_code_of_the_first() {
    let place = Place::new();
    // Two codes are never combined into a third.
    place.run(["-n", "2", "false"]).fails(1, &["exited with code 1"]);
    let script = "test $SPMD_RANK = 0 && sleep 0.05; exit $((SPMD_RANK + 1))";
    place.run(["-n", "2", "sh", "-c", script]).fails(2, &["rank 1"]);
    for (signal, code) in [("INT", 130), ("TERM", 143), ("ABRT", 134), ("QUIT", 131)] {
        place
            .run(["-n", "2", "sh", "-c", &format!("kill -{signal} $$; sleep 60")])
            .fails(code, &[&format!("SIG{signal}")]);
    }
    place.assert_nothing_left();
}

#[test]
fn stopped_processes_that_hold_pipes_hang_nothing() {
    let place = Place::new();
    place.run(["--timeout", "0.5", "-n", "2", "sh", "-c", "kill -STOP $$"]);
    let script = "(kill -STOP $(sh -c 'echo $PPID'); sleep 600) & sleep 0.2; exit 3";
    place.run(["-n", "2", "sh", "-c", script]).fails(3, &["exited with code 3"]);
    place
        .run(["-n", "1", "sh", "-c", "(kill -STOP $(sh -c 'echo $PPID'); sleep 600) & sleep 0.1; echo done"])
        .success();
    place.assert_nothing_left();
}

#[test]
fn a_job_that_hangs_says_where_every_rank_is() {
    let place = Place::new();
    let program = rank_program();
    let words = ["-n", "5", "--set", "wait.policy=sleep", program.to_str().unwrap(), "hang"];
    let places = [
        ": in all_reduce number 17\n",
        ": computing\n",
        ": in recv from rank 1 tag 5\n",
        ": in send to rank 1 tag 6\n",
        ": gone, exited with code 0\n",
    ];
    let check = |ended: &Ended| {
        for (rank, place) in places.iter().enumerate() {
            let line = ended.stderr.lines().find(|line| line.starts_with(&format!("  rank {rank} on localhost")));
            assert!(line.is_some_and(|line| line.ends_with(place.trim_end())), "rank {rank}: {}", ended.stderr);
        }
    };
    let ended = place.run(["--timeout", "1.5"].into_iter().chain(words)).fails(124, &["--timeout"]);
    check(&ended);
    // On request, without an end.
    let mut child = start(place.rsrun().args(words));
    wait_for_lines(&mut child, 5);
    std::thread::sleep(Duration::from_millis(500));
    common::signal(child.id(), libc::SIGQUIT);
    std::thread::sleep(Duration::from_millis(500));
    assert!(child.try_wait().unwrap().is_none(), "it runs on");
    common::signal(child.id(), libc::SIGINT);
    let ended = finish(child);
    assert_eq!(ended.code, Some(130));
    check(&ended);
    // In init.
    let words = ["--start-timeout", "0.3", "-n", "3", program.to_str().unwrap(), "late"];
    let ended = place.run(words).fails(124, &["rank 1 on host", "launch.start_timeout"]);
    assert!(ended.stderr.contains("  ranks 0, 2: in World::init\n"), "{}", ended.stderr);
    assert!(ended.stderr.contains("running, not in World::init yet\n"), "{}", ended.stderr);
    place.assert_nothing_left();
}

#[test]
fn a_job_may_go_on_without_a_rank() {
    let place = Place::new();
    let program = rank_program();
    for transport in ["shm,tcp", "tcp"] {
        let set = format!("transport.allow={transport}");
        let mut command = place.rsrun();
        command.args(["--on-failure", "continue", "--set", &set, "-n", "3"]).arg(&program).arg("survive");
        let ended = finish(start(&mut command));
        assert_eq!(ended.code, Some(134), "{ended:?}");
        let lines = ended.lines();
        assert_eq!(lines.len(), 4, "{ended:?}");
        assert_eq!((&*lines[0], &*lines[2]), ("rank 0 heard 2", "rank 2 heard 0"));
        assert!(lines[1].starts_with("rank 0 knows: rank 1 on host localhost"), "{ended:?}");
        assert!(ended.stderr.contains("SIGABRT (signal 6); the other ranks go on\n"), "{ended:?}");
    }
    // Programs without a world, too: the first failure decides, and the others end by themselves.
    let script = "test $SPMD_RANK = 1 && exit 3; sleep 0.3; test $SPMD_RANK = 2 && exit 4; echo done";
    let ended = place.run(["--on-failure", "continue", "-n", "3", "sh", "-c", script]);
    assert_eq!((ended.code, ended.text().as_str()), (Some(3), "done\n"));
    assert!(
        ended.stderr.ends_with("exited with code 3\n")
            && ended.stderr.contains("rsrun: 2 ranks failed, the first one: rank 1")
    );
    place.assert_nothing_left();
}

#[test]
fn a_rank_that_waits_for_one_that_has_left_is_told() {
    let place = Place::new();
    let program = rank_program();
    for transport in ["shm,tcp", "tcp"] {
        let set = format!("transport.allow={transport}");
        let ended = place.run(["--set", &set, "-n", "3", program.to_str().unwrap(), "gone"]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let lines = ended.lines();
        assert_eq!(lines.len(), 2, "{ended:?}");
        assert!(lines[0].starts_with("rank 1: rank 0 on host localhost has dropped its World"), "{ended:?}");
        assert!(
            lines[1].starts_with("rank 2: every other rank of the communicator has dropped its World"),
            "{ended:?}"
        );
    }
    place.assert_nothing_left();
}

#[test]
fn the_status_file_tells_programs_how_it_ended() {
    let place = Place::new();
    let file = place.home.path().join("status.json");
    let read = || -> serde_json::Value { serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap() };
    let path = file.to_str().unwrap();
    place.run(["--status-file", path, "-n", "2", "true"]).success();
    let status = read();
    assert_eq!((&status["exit_code"], &status["reason"]), (&0.into(), &serde_json::Value::Null));
    assert_eq!(status["job"].as_str().unwrap().len(), 16);
    let script = "test $SPMD_RANK = 1 && kill -SEGV $$; exec sleep 60";
    place.run(["--status-file", path, "-n", "2", "sh", "-c", script]).fails(139, &["rank 1"]);
    let status = read();
    assert_eq!(status["exit_code"], 139);
    assert!(status["reason"].as_str().unwrap().contains("rank 1 on host localhost"));
    let ranks = status["ranks"].as_array().unwrap();
    assert_eq!((&ranks[1]["signal"], &ranks[1]["signal_name"]), (&11.into(), &"SIGSEGV".into()));
    assert_eq!((&ranks[0]["signal_name"], &ranks[0]["host"]), (&"SIGTERM".into(), &"localhost".into()));
    for rank in ranks {
        assert!(rank["pid"].as_u64().unwrap() > 1);
        let time = |name: &str| rank[name].as_str().unwrap().to_string();
        assert!(status["begun"].as_str().unwrap() <= &*time("started") && time("started") <= time("ended"), "{rank}");
    }
    // Whatever the end is.
    place.run(["--status-file", path, "--hostfile", "/no/such", "true"]).fails(65, &["/no/such"]);
    assert_eq!((&read()["exit_code"], &read()["ranks"]), (&65.into(), &serde_json::json!([])));
    place.run(["--status-file", path, "-n", "1", "./no-such"]).fails(127, &["no-such"]);
    assert_eq!(read()["exit_code"], 127);
    place.run(["--status-file", "/no/such/status", "-n", "1", "true"]).fails(73, &["--status-file /no/such/status"]);
}
