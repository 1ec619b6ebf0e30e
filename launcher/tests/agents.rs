//! Hosts behind `--launch-agent`: noise, delays, failures and lies of what should become an agent.

mod common;

use common::{Place, finish, start, wait_until};
use std::process::Command;

/// A place with a script that stands in for `ssh`: `$1` is the host, `$2` the agent's command line.
struct Agents {
    place: Place,
}

impl Agents {
    fn new(script: &str) -> Self {
        let place = Place::new();
        place.script("agent", &format!("#!/bin/sh\n{script}\n"));
        Self { place }
    }

    fn rsrun(&self, words: &[&str]) -> Command {
        let mut command = self.place.rsrun();
        let agent = self.place.home.path().join("agent");
        command.arg("--launch-agent").arg(agent).args(words);
        command
    }

    /// The stand-ins do not carry the mark: they are known by their path.
    #[track_caller]
    fn assert_no_script_left(&self) {
        let place = Place { home: tempfile::tempdir().unwrap(), mark: self.place.home.path().display().to_string() };
        let left: Vec<String> = place.processes().into_iter().filter(|p| p.contains("/agent")).collect();
        assert!(left.is_empty(), "{left:?}");
    }

    fn run(&self, words: &[&str]) -> common::Ended {
        finish(start(&mut self.rsrun(words)))
    }
}

#[test]
fn ranks_run_on_the_hosts_in_order_and_noise_is_skipped() {
    let agents = Agents::new(
        "echo 'Welcome to '$1; echo 'RSRUN-AGENT 00 1 9.9'; echo 'stderr noise' >&2; printf 'prompt> '; HOST=$1 exec sh -c \"$2\"",
    );
    let ended = agents.run(&["-host", "a:2,b:1,c:2", "-n", "4", "sh", "-c", "echo $SPMD_RANK $SPMD_LOCAL_RANK $HOST"]);
    assert_eq!(ended.success().lines(), ["0 0 a", "1 1 a", "2 0 b", "3 0 c"]);
    agents.place.assert_nothing_left();
}

#[test]
fn the_place_of_the_host_in_the_command_can_be_chosen() {
    let agents = Agents::new("shift; test \"$1\" = -h || exit 3; HOST=$2 exec sh -c \"$3\"");
    let agent = format!("{} first -h {{host}}", agents.place.home.path().join("agent").display());
    let mut command = agents.place.rsrun();
    command.args(["--launch-agent", &agent, "-host", "a:1", "sh", "-c", "echo $HOST"]);
    assert_eq!(finish(start(&mut command)).success().text(), "a\n");
}

#[test]
fn more_hosts_than_the_window_are_connected() {
    let agents = Agents::new("HOST=$1 exec sh -c \"$2\"");
    for window in ["1", "2", "3"] {
        let ended =
            agents.run(&["--set", &format!("launch.window={window}"), "-host", "h[1-5]:1", "sh", "-c", "echo $HOST"]);
        assert_eq!(ended.success().lines(), ["h1", "h2", "h3", "h4", "h5"]);
    }
}

#[test]
fn a_host_that_hangs_is_named_and_killed() {
    let agents = Agents::new("test $1 = b || exec sh -c \"$2\"; echo 'Password for '$1; read x; read x; sleep 600");
    let words = ["--set", "launch.connect_timeout=400ms", "-host", "a:1,b:1", "true"];
    agents.run(&words).fails(69, &["host b", "400ms", "launch.connect_timeout", "Password for b"]);
    agents.assert_no_script_left();
    agents.place.assert_nothing_left();
}

#[test]
fn a_command_that_fails_is_explained_by_its_own_words() {
    let agents = Agents::new("test $1 = b || exec sh -c \"$2\"; echo 'ssh: no route to '$1 >&2; exit 255");
    agents.run(&["-host", "a:1,b:1", "true"]).fails(69, &["host b", "exit code 255", "ssh: no route to b"]);
    agents.place.assert_nothing_left();
    let ended = agents.place.run(["--launch-agent", "/no/such/command", "-host", "a:1", "true"]);
    ended.fails(69, &["host a", "/no/such/command"]);
}

#[test]
fn a_host_without_rsrun_is_named_with_the_path_that_was_tried() {
    let agents = Agents::new("test $1 = b || exec sh -c \"$2\"; sh -c \"exec /opt/none$(echo $2 | cut -d' ' -f2)\"");
    agents.run(&["-host", "a:1,b:1", "true"]).fails(127, &["host b", common::binary(), "not found", "same path"]);
    let agents = Agents::new("echo 'cannot execute' >&2; exit 126");
    agents.run(&["-host", "a:1", "true"]).fails(126, &["host a", common::binary(), "cannot execute"]);
}

#[test]
fn another_version_is_refused_with_both_versions() {
    let agents = Agents::new("set -- $2; echo \"RSRUN-AGENT $4 99 7.8.9\"; sleep 600");
    let own = env!("CARGO_PKG_VERSION");
    agents.run(&["-host", "a:1", "true"]).fails(76, &["host a", "version 7.8.9", "protocol 99", own]);
    agents.place.assert_nothing_left();
}

#[test]
fn an_agent_that_dies_or_talks_nonsense_after_its_marker_is_lost() {
    let version = env!("CARGO_PKG_VERSION");
    let protocol = spmd::bootstrap::messages::PROTOCOL;
    let marker = format!("set -- $2; echo \"RSRUN-AGENT $4 {protocol} {version}\"");
    let agents = Agents::new(&format!("{marker}; echo 'out of memory' >&2; exit 1"));
    agents.run(&["-host", "a:1", "true"]).fails(70, &["host a", "exit code 1", "out of memory"]);
    let agents = Agents::new(&format!("{marker}; echo 'nonsense that is no frame'; exec sleep 600"));
    agents.run(&["-host", "a:1", "true"]).fails(70, &["host a", "frame"]);
    agents.place.assert_nothing_left();
    // Half a frame.
    let agents = Agents::new(&format!("{marker}; printf '\\100\\000\\000\\000abc'"));
    agents.run(&["-host", "a:1", "true"]).fails(70, &["host a"]);
}

#[test]
fn strays_on_a_host_change_nothing_and_are_named() {
    let agents = Agents::new(
        "export RSRUN_SHM_RING_BYTES=4096 RDMA_LOW_LATENCY_HINT=7 XDG_CONFIG_HOME=${0%/*}/conf; exec sh -c \"$2\"",
    );
    let file = agents.place.write("conf/rsrun/config.toml", "[eager]\nlimit = 1\n");
    let ended = agents.run(&["-host", "n2:1", "env"]).success();
    assert!(!ended.text().contains("RSRUN_") && !ended.text().contains("RDMA_LOW"), "{}", ended.text());
    let mut lines: Vec<&str> = ended.stderr.lines().collect();
    lines.sort_unstable();
    let decides = "(the launcher's snapshot decides";
    assert_eq!(
        lines,
        [
            format!(
                "rsrun: host n2: ignored RDMA_LOW_LATENCY_HINT=7 in the environment {decides}: low_latency.size_hint = 0 from default)"
            ),
            format!(
                "rsrun: host n2: ignored RSRUN_SHM_RING_BYTES=4096 in the environment {decides}: shm.ring_bytes = 4MiB from default)"
            ),
            format!("rsrun: host n2: ignored the configuration file {} {decides})", file.display()),
        ]
    );
}

#[test]
fn a_program_missing_on_one_host_stops_the_others() {
    // Host b sees another root: the directory of the program is not there.
    let agents = Agents::new("test $1 = b && export PATH=/nowhere; exec /bin/sh -c \"$2\"");
    let ended = agents.run(&["-host", "a:1,b:1", "sleep", "600"]);
    ended.fails(127, &["host b", "rank 1", "sleep", "PATH (/nowhere)"]);
    agents.place.assert_nothing_left();
}

#[test]
fn a_rank_that_fails_on_one_host_ends_those_on_others() {
    let agents = Agents::new("HOST=$1 exec sh -c \"$2\"");
    let script = "test $HOST = b && exit 4; sleep 600 & wait";
    agents.run(&["-host", "a:2,b:1,c:2", "sh", "-c", script]).fails(4, &["rank 2 on host b"]);
    agents.place.assert_nothing_left();
}

#[test]
fn a_launcher_that_is_killed_leaves_nothing_on_any_host() {
    let agents = Agents::new("exec sh -c \"$2\"");
    let mut child =
        start(&mut agents.rsrun(&["-host", "a:2,b:2", "sh", "-c", "env -i setsid sleep 600 & sleep 600 & wait"]));
    wait_until("all ranks run", || agents.place.processes().len() >= 9);
    child.kill().unwrap();
    child.wait().unwrap();
    agents.place.wait_until_nothing_left();
}
