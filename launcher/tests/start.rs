//! The start of a job: connections that fail, hang or lie, several programs, commands in front of them, limits.

mod common;

use common::{Ended, Place, fake_agent, finish, rank_program, start, wait_until};
use std::process::Command;

/// Runs `rsrun` with hosts that behave as `behaviour` says.
fn with_agents(place: &Place, behaviour: &str, words: &[&str]) -> Ended {
    let agent = format!("{} {behaviour}", fake_agent().display());
    let mut command = place.rsrun();
    command.args(["--launch-agent", &agent]).args(words);
    finish(start(&mut command))
}

#[test]
fn connections_that_are_dropped_are_made_again() {
    let place = Place::new();
    let count = place.home.path().display().to_string();
    // Each host drops the first two: sshd does so when many come at once (MaxStartups).
    with_agents(&place, &format!("--fail-first 2 --count {count}"), &["-host", "n[1-5]:1", "true"]).success();
    for host in 1..=5 {
        assert!(place.home.path().join(format!("n{host}.1")).exists(), "n{host} was tried three times");
    }
    with_agents(&place, "--fail 20 --noise", &["-host", "n[1-30]:1", "true"]).success();
}

#[test]
fn a_host_that_never_answers_is_given_up_in_time_with_its_own_words() {
    let place = Place::new();
    let words = ["--set", "launch.connect_timeout=700ms", "-host", "n1:1,n2:1", "true"];
    let parts = ["host n2", "Connection closed by remote host", "tried", "700ms (launch.connect_timeout)"];
    with_agents(&place, "--only n2 --fail 100", &words).fails(69, &parts);
    with_agents(&place, "--only n2 --hang", &words).fails(69, &["host n2", "n2 is thinking", "launch.connect_timeout"]);
    place.assert_nothing_left();
}

#[test]
fn a_host_that_appears_late_is_waited_for() {
    let place = Place::new();
    let words = ["-host", "n1:1,n2:1", "true"];
    // As a name that is not known yet: `ssh` says so with 255, ten times or so.
    let count = place.home.path().display().to_string();
    with_agents(&place, &format!("--only n2 --fail-first 4 --count {count}"), &words).success();
    with_agents(&place, "--only n1 --delay 600", &words).success();
}

#[test]
fn a_host_that_is_not_there_is_tried_for_a_moment_unless_it_is_to_be_waited_for() {
    let place = Place::new();
    let tries = place.home.path().join("tries");
    for refusal in ["connect to host n1 port 22: Connection refused", "Could not resolve hostname n1"] {
        // Refuses six times, which takes longer than a moment.
        let script = format!(
            "echo x >> {0}; test $(wc -l < {0}) -gt 6 && exec sh -c \"$2\"; echo 'ssh: {refusal}' >&2; exit 255",
            tries.display()
        );
        let agent = place.script("agent", &format!("#!/bin/sh\n{script}\n"));
        let run = |words: &[&str]| {
            let _ = std::fs::remove_file(&tries);
            let agent = ["--launch-agent", agent.to_str().unwrap(), "-host", "n1:1"];
            place.run(agent.iter().chain(words).chain(&["true"]))
        };
        run(&[]).fails(69, &["host n1", refusal, "times within 2s (launch.wait_for_hosts)"]);
        run(&["--set", "launch.wait_for_hosts=0s"]).fails(69, &[refusal, "tried once"]);
        assert_eq!(std::fs::read_to_string(&tries).unwrap(), "x\n");
        run(&["--set", "launch.wait_for_hosts=60s", "--set", "launch.connect_timeout=60s"]).success();
        // The other limit holds all the same.
        let words = ["--set", "launch.wait_for_hosts=60s", "--set", "launch.connect_timeout=500ms"];
        run(&words).fails(69, &["500ms (launch.connect_timeout)"]);
    }
}

#[test]
fn what_does_not_pass_is_not_tried_again() {
    let place = Place::new();
    let tries = place.home.path().join("tries");
    let script = format!("echo x >> {}; echo 'Permission denied (publickey).' >&2; exit 255", tries.display());
    let agent = place.script("agent", &format!("#!/bin/sh\n{script}\n"));
    let ended = place.run(["--launch-agent", agent.to_str().unwrap(), "-host", "n1:1", "true"]);
    ended.fails(69, &["host n1", "Permission denied"]);
    assert_eq!(std::fs::read_to_string(tries).unwrap(), "x\n");
    with_agents(&place, "--version", &["-host", "n1:1", "true"]).fails(76, &["host n1", "protocol"]);
    with_agents(&place, "--only n2 --die", &["-host", "n1:1,n2:1", "true"])
        .fails(70, &["host n2", "the machine is on fire"]);
}

#[test]
fn an_interrupt_ends_a_job_that_is_still_trying() {
    let place = Place::new();
    let agent = format!("{} --fail-first 1000 --count {}", fake_agent().display(), place.home.path().display());
    let mut command = place.rsrun();
    command.args(["--launch-agent", &agent, "--set", "launch.connect_timeout=60s", "-host", "n1:1", "true"]);
    let child = start(&mut command);
    wait_until("two tries were made", || place.home.path().join("n1.1").exists());
    common::signal(child.id(), libc::SIGTERM);
    finish(child).fails(143, &["interrupted by SIGTERM"]);
}

#[test]
fn any_number_of_hosts_around_the_window_starts() {
    let place = Place::new();
    for (window, hosts) in [(4, "n[1-3]"), (4, "n[1-4]"), (4, "n[1-5]"), (64, "n[01-65]")] {
        let window = format!("launch.window={window}");
        with_agents(&place, "", &["--set", &window, "-host", &format!("{hosts}:1"), "true"]).success();
    }
}

#[test]
fn a_thousand_hosts_start() {
    let place = Place::new();
    let words = ["--phases", "--set", "launch.connect_timeout=25s", "-host", "n[0001-1000]:1", "true"];
    let ended = with_agents(&place, "", &words).success();
    assert!(
        ended.stderr.contains("connecting 1000 hosts") && ended.stderr.contains("starting 1000 ranks"),
        "{ended:?}"
    );
}

#[test]
fn several_programs_are_one_world() {
    let place = Place::new();
    let rank = rank_program();
    let rank = rank.to_str().unwrap();
    let ended = place.run(["-n", "1", rank, "sum", ":", "-n", "2", rank, "sum"]).success();
    assert_eq!(ended.lines(), ["rank 0 of 3 heard 2", "rank 1 of 3 heard 0", "rank 2 of 3 heard 1"]);
    let script = "echo $SPMD_RANK $1 $A $B $(pwd)";
    let first = ["-n", "1", "-x", "A=1", "-wdir", "/usr", "sh", "-c", script, "sh", "one"];
    let second = [":", "-n", "2", "-x", "A=2", "-x", "B=3", "-wdir", "/etc", "sh", "-c", script, "sh", "two"];
    let ended = place.run(first.iter().chain(&second)).success();
    assert_eq!(ended.lines(), ["0 one 1 /usr", "1 two 2 3 /etc", "2 two 2 3 /etc"]);
}

#[test]
fn the_programs_of_a_job_file_run_as_it_says() {
    let place = Place::new();
    let text = "[[app]]\nranks = 1\nprogram = \"sh\"\narguments = [\"-c\", \"echo $SPMD_RANK a $X\"]\n\
                environment = { X = \"x = 'y'\" }\n[[app]]\nranks = 2\nprogram = \"sh\"\ndirectory = \"/usr\"\n\
                arguments = [\"-c\", \"echo $SPMD_RANK $(pwd) $W\"]\nwrap = \"env W=%r/%n\"\nwrap_ranks = \"2\"\n";
    let file = place.write("job.toml", text);
    let ended = place.run(["--app", file.to_str().unwrap()]).success();
    assert_eq!(ended.lines(), ["0 a x = 'y'", "1 /usr", "2 /usr 2/3"]);
    let file = place.write("bad.toml", "[[app]]\nprogram = \"true\"\nrank = 1\n");
    let file = file.to_str().unwrap();
    place.run(["--app", file]).fails(65, &[&format!("{file}:3:1"), "unknown key `rank`"]);
    place.run(["--app", file, "true"]).fails(64, &["in the job file"]);
    place.run(["--app", "/no/such/file"]).fails(65, &["/no/such/file", "No such file"]);
}

#[test]
fn a_command_stands_in_front_of_chosen_ranks_only() {
    let place = Place::new();
    let words = ["-n", "3", "--wrap", "env 'W=%r of %n'", "--wrap-ranks", "0,2", "sh", "-c", "echo $SPMD_RANK:$W"];
    assert_eq!(place.run(words).success().lines(), ["0:0 of 3", "1:", "2:2 of 3"]);
    // A rank behind a wrapper is a rank.
    let rank = rank_program();
    let ended = place.run(["-n", "2", "--wrap", "sh -c '\"$@\"; exit $?' sh", rank.to_str().unwrap(), "sum"]).success();
    assert_eq!(ended.lines(), ["rank 0 of 2 heard 1", "rank 1 of 2 heard 0"]);
    place.run(["--wrap", "no-such-tool", "true"]).fails(127, &["no-such-tool"]);
    place.run(["--wrap", "a 'b", "true"]).fails(64, &["--wrap", "quote"]);
    place.run(["--wrap-ranks", "1", "true"]).fails(64, &["--wrap"]);
    place.assert_nothing_left();
}

#[test]
fn too_few_open_files_are_refused_before_the_start_with_the_numbers() {
    let limited = |limit: &str, words: &[&str]| {
        let mut command = Command::new("sh");
        let script = format!("ulimit {limit}; exec \"$0\" \"$@\"");
        command.args(["-c", &script, common::binary()]).args(words).stdin(std::process::Stdio::null());
        finish(start(&mut command))
    };
    limited("-n 64", &["-n", "16", "true"]).fails(70, &["localhost", "16 ranks need 96 open files", "is 64"]);
    limited("-n 64", &["-n", "2", "true"]).success();
    // A soft limit alone is no obstacle, and is what ranks find.
    let ended = limited("-Sn 64", &["-n", "16", "sh", "-c", "ulimit -n"]).success();
    assert_eq!(ended.lines(), ["64"; 16]);
    let agent = fake_agent().display().to_string();
    let words = ["--launch-agent", &agent, "-host", "n[1-30]:1", "true"];
    limited("-n 64", &words).fails(70, &["30 hosts", "open files", "64"]);
}

#[test]
fn nothing_of_the_progress_line_reaches_a_pipe() {
    let place = Place::new();
    let ended = with_agents(&place, "--delay 500", &["-host", "n1:1", "true"]).success();
    assert_eq!((ended.stderr.as_str(), ended.text().as_str()), ("", ""));
}

#[test]
fn a_task_of_another_launcher_is_told_to_start_us_once() {
    let place = Place::new();
    let mut command = place.rsrun();
    command.args(["-n", "1", "true"]).env("SLURM_STEP_NUM_TASKS", "4").env("SLURM_PROCID", "2");
    finish(start(&mut command)).fails(64, &["task 2 of 4", "srun"]);
    let mut command = place.rsrun();
    command.args(["-n", "1", "true"]).env("SLURM_STEP_NUM_TASKS", "1").env("SLURM_PROCID", "0");
    finish(start(&mut command)).success();
}

#[test]
fn completions_and_the_manual_page_know_every_option() {
    let run = |words: &[&str]| finish(start(Command::new(common::binary()).args(words)));
    for words in [&["completions", "bash"][..], &["completions", "zsh"], &["completions", "fish"], &["man"]] {
        let text = run(words).success().text();
        for option in ["hostfile", "wrap-ranks", "launch-agent", "app", "timeout", "tag"] {
            // The manual page writes dashes as \-.
            assert!(text.contains(option) || text.contains(&option.replace('-', "\\-")), "{words:?}: {option}");
        }
    }
    run(&["completions", "csh"]).fails(64, &["bash|zsh|fish"]);
}
