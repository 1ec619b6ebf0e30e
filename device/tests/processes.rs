//! The proxy ring between processes: producers on the CPU, ranks started by `rsrun`, over each transport. Ranks that die. And
//! the script that checks all of this on GPUs.

use rustix::process::{Pid, Signal, kill_process_group};
use spmd_lab::{
    process::with_default_signals,
    programs::{Programs, run},
};
use std::{
    os::unix::{fs::PermissionsExt, process::CommandExt},
    time::{Duration, Instant},
};

const LIMIT: Duration = Duration::from_secs(240);

#[test]
fn requests_reach_another_process_over_shared_memory_and_over_tcp() {
    let programs = Programs::build(&["--example", "proxy_on_host"]);
    let example = programs.example("proxy_on_host").display().to_string();
    for (ranks, transport) in [("1", "shm"), ("2", "shm"), ("2", "tcp")] {
        let allow = format!("transport.allow={transport}");
        let slots = format!("localhost:{ranks}");
        let job = ["-n", ranks, "-host", &slots, "--set", &allow, &example, "20000"];
        let outcome = run(&mut programs.launch(&job), LIMIT).succeeded();
        for line in ["put_signal of 4096 bytes", "signals from 1 producers", "signals from 4 producers"] {
            assert!(outcome.stdout.contains(line), "{ranks} ranks over {transport}: {outcome}");
        }
    }
}

#[test]
fn a_rank_that_dies_raises_the_alarm_of_those_that_wait_without_a_call_of_the_runtime() {
    let programs = Programs::build(&["--example", "loss_on_host"]);
    let example = programs.example("loss_on_host").display().to_string();
    for transport in ["shm,tcp", "tcp"] {
        let allow = format!("transport.allow={transport}");
        let job = ["--on-failure", "continue", "-n", "3", "-host", "localhost:3", "--set", &allow, &example];
        let outcome = run(&mut programs.launch(&job), LIMIT);
        assert_eq!(outcome.code(), 134, "{outcome}");
        for rank in 0..2 {
            let line = outcome.stdout.lines().find(|line| line.starts_with(&format!("rank {rank}: a loss: true")));
            assert!(line.is_some_and(|line| line.contains("rank 2 on host")), "{transport}: {outcome}");
        }
    }
}

/// Programs in place of NVIDIA's daemon, which notes what it is told, and of the launcher, which waits.
const STAND_INS: &[(&str, &str)] = &[
    ("nvidia-smi", "#!/bin/sh\necho GPU 0\n"),
    (
        "nvidia-cuda-mps-control",
        "#!/bin/sh\nif [ \"$1\" = -d ]; then echo started >> \"$NOTES\"; else read -r line; echo \"$line\" >> \"$NOTES\"; fi\n",
    ),
    ("rsrun", "#!/bin/sh\necho waiting >> \"$NOTES\"; exec sleep 60\n"),
];

#[test]
fn the_script_for_gpus_leaves_no_daemon_behind_when_it_is_interrupted() {
    for signal in [Signal::INT, Signal::TERM] {
        let folder = tempfile::tempdir().unwrap();
        let (script, notes) = (folder.path().join("run.sh"), folder.path().join("notes"));
        std::fs::copy(concat!(env!("CARGO_MANIFEST_DIR"), "/run.sh"), &script).unwrap();
        for (name, text) in STAND_INS {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
        let mut bash = std::process::Command::new("bash");
        let mut child = with_default_signals(&mut bash)
            .arg(&script)
            .arg("examples")
            .env("PATH", path)
            .env("NOTES", &notes)
            .env("TMPDIR", folder.path())
            .process_group(0)
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let noted = || std::fs::read_to_string(&notes).unwrap_or_default();
        let begun = Instant::now();
        while !noted().contains("waiting") {
            assert!(begun.elapsed() < LIMIT, "{}", noted());
            std::thread::sleep(Duration::from_millis(10));
        }
        // As a terminal does it: the whole group.
        let group = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        kill_process_group(group, signal).unwrap();
        let code = child.wait().unwrap().code();
        assert_eq!(code, Some(128 + signal.as_raw()), "{}", noted());
        assert_eq!(noted().lines().collect::<Vec<_>>(), ["started", "waiting", "quit -t 5"]);
        let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().flatten().map(|entry| entry.file_name()).collect();
        assert_eq!(left.len(), 2 + STAND_INS.len(), "{left:?}");
    }
}
