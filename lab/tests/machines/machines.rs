//! The machines themselves: commands, devices, files, ends.

use crate::{Test, plan};
use spmd_lab::vm::{self, Job, Lab};
use std::path::Path;
use std::time::{Duration, Instant};

pub(crate) const TESTS: &[Test] = &[
    ("a command's output, errors and exit code come back", command),
    ("a command runs where it was called, with what is there", directory),
    ("two devices talk over the wire, and a lossy wire makes them resend", devices),
    ("a program that changes while the machine runs is the changed one there", fresh_files),
    ("nothing that a machine writes reaches this one", isolation),
    ("what a command has started ends with it when nobody wants it any more", dropped),
    ("a login by ssh needs no question", login),
    ("a lab whose machine has died is made anew, and nothing of it is left after its end", ends),
];

/// More than any command takes, also on a machine that is busy with other things.
pub(crate) const LIMIT: Duration = Duration::from_secs(240);

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate is in a folder")
}

/// Runs a command on the first machine: its exit code, standard output, standard error.
pub(crate) fn run(lab: &Lab, command: &str) -> (u8, String, String) {
    let job = Job::start(&lab.machines()[0], command, root()).unwrap_or_else(|error| panic!("{error}"));
    job.finish(LIMIT).unwrap_or_else(|error| panic!("{error}"))
}

/// The output of a command that succeeds.
pub(crate) fn output(lab: &Lab, command: &str) -> String {
    let (code, stdout, stderr) = run(lab, command);
    assert_eq!(code, 0, "`{command}`\n{stdout}\n{stderr}");
    stdout
}

fn command(lab: &Lab) {
    assert_eq!(run(lab, "echo out; echo err >&2; exit 7"), (7, "out\n".into(), "err\n".into()));
    assert_eq!(run(lab, "kill -KILL $$").0, 137);
    let long = output(lab, "seq 20000");
    assert!(long.lines().eq((1..=20000).map(|number| number.to_string()).collect::<Vec<_>>()), "all lines, in order");
}

fn directory(lab: &Lab) {
    assert_eq!(output(lab, "pwd").trim(), root().display().to_string());
    assert_eq!(output(lab, "cat Cargo.toml"), std::fs::read_to_string(root().join("Cargo.toml")).expect("it is there"));
    let job = Job::start(&lab.machines()[0], "pwd", Path::new("/no/such/folder")).unwrap_or_else(|e| panic!("{e}"));
    let (_, stdout, _) = job.finish(LIMIT).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(stdout.trim(), root().display().to_string(), "the repository, when there is no such folder");
}

fn devices(lab: &Lab) {
    // The server is there when its port is: found by asking for it, not by waiting for a time.
    let write = |count: usize| {
        format!(
            "ib_write_bw -d rxe1 -F -s 16384 -n {count} > /tmp/server 2>&1 & \
             until ss -Hltn sport = 18515 | grep -q .; do sleep 0.1; done; \
             ib_write_bw -d rxe0 -F -s 16384 -n {count} 10.88.0.2 && wait $!"
        )
    };
    let sent = || -> u64 { output(lab, "cat /sys/class/net/v0/statistics/tx_bytes").trim().parse().expect("a number") };
    let resent = || -> u64 {
        let counters = "/sys/class/infiniband/rxe0/ports/1/hw_counters";
        output(lab, &format!("cat {counters}/completer_retry_err")).trim().parse().expect("a number")
    };
    assert_eq!(output(lab, "rdma link | grep -c 'state ACTIVE'").trim(), "2");
    let before = (sent(), resent());
    output(lab, &write(100));
    assert!(sent() - before.0 > 100 * 16384, "the bytes went over the wire");
    output(lab, "for d in v0 v1; do tc qdisc replace dev $d root netem loss 3%; done");
    let before = resent();
    output(lab, &write(150));
    let lost = resent() - before;
    output(lab, "for d in v0 v1; do tc qdisc del dev $d root; done");
    assert!(lost > 0, "a wire that loses three packets of a hundred makes the device send again");
}

fn fresh_files(lab: &Lab) {
    let file = plan().folder.join("program");
    for version in ["one", "two"] {
        // As a linker does it: a new file in the place of the old one.
        let new = file.with_extension("new");
        std::fs::write(&new, format!("echo version {version}\n")).expect("the lab's folder can be written");
        std::fs::rename(&new, &file).expect("it can be moved");
        assert_eq!(output(lab, &format!("sh '{}'", file.display())), format!("version {version}\n"));
    }
}

fn isolation(lab: &Lab) {
    let name = format!("rsrun-lab-isolation-{}", std::process::id());
    output(lab, &format!("echo written > /tmp/{name} && cat /tmp/{name}"));
    assert!(!Path::new("/tmp").join(&name).exists(), "/tmp/{name} is the machine's own");
    assert_ne!(run(lab, &format!("echo written > {name}")).0, 0, "the repository cannot be written");
}

fn dropped(lab: &Lab) {
    let machine = &lab.machines()[0];
    // A name that no other process has: the count of it is the count of what the command started.
    let name = format!("1{:08}", std::process::id());
    let count = || output(lab, &format!("pgrep -fcx 'sleep {name}' || true")).trim().to_owned();
    let job = Job::start(machine, &format!("sleep {name} & sleep {name}"), root()).unwrap_or_else(|e| panic!("{e}"));
    let deadline = Instant::now() + LIMIT;
    while count() != "2" {
        assert!(Instant::now() < deadline, "both have started");
    }
    drop(job);
    while count() != "0" {
        assert!(Instant::now() < deadline, "both have ended");
    }
}

fn login(lab: &Lab) {
    assert_eq!(output(lab, "ssh -o BatchMode=yes 10.88.0.2 'hostname; ulimit -l'"), "lab1\nunlimited\n");
}

fn ends(lab: &Lab) {
    let old = lab.machines()[0].process();
    old.kill();
    let deadline = Instant::now() + LIMIT;
    while lab.is_whole() {
        assert!(Instant::now() < deadline, "its machine is dead");
        std::thread::sleep(Duration::from_millis(10));
    }
    let error = Job::start(&lab.machines()[0], "true", root()).err().map(|error| error.to_string());
    assert!(error.is_some_and(|text| text.contains("lab1")), "a command names the machine that it cannot reach");
    let (lab, fresh) = vm::up(&plan()).unwrap_or_else(|error| panic!("{error}"));
    assert!(fresh);
    assert_eq!(output(&lab, "hostname"), "lab1\n");
    let new = lab.machines()[0].process();
    lab.down().unwrap_or_else(|error| panic!("{error}"));
    assert!(!new.is_alive() && !old.is_alive());
    assert!(!plan().folder.exists());
}
