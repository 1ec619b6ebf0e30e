//! Ranks that talk over RDMA: on one machine between its two devices, so that the traffic is on the wire.

use crate::machines::{LIMIT, output, root, run};
use crate::{Test, plan};
use spmd_lab::programs::Programs;
use spmd_lab::vm::{self, Job, Lab, Plan};
use std::process::Command;
use std::time::{Duration, Instant};

pub(crate) const TESTS: &[Test] = &[
    ("ranks on two devices train over RDMA, and no receiver is ever not ready", train),
    ("ranks talk through two channels when there is a size hint", two_channels),
    ("a device that does not exist is named with those that do", no_such_device),
    ("what the device and each connection have counted is in the statistics", statistics),
    ("without the library RDMA is not used, which is said, explained, and an error where it must be used", no_library),
    ("memory that may not be locked is named with the limit, and TCP takes the place of RDMA", memory_limit),
    ("a port that is down is named, and TCP takes the place of RDMA", port_down),
    ("a wire that is cut for two seconds is survived", short_cut),
    ("a wire that stays cut ends the job with peer, device, codes and counters", long_cut),
    ("point-to-point semantics hold over RDMA", point_to_point),
    ("one-sided semantics hold over RDMA", one_sided),
    ("two hundred connections that are used once end without an error", races),
];

/// The same between two machines, which this test brings up itself.
pub(crate) const BETWEEN_MACHINES: Test =
    ("ranks on two machines train and keep the semantics over RDMA", two_machines);
/// All of the semantics: minutes, so only when it is asked for (`--include-ignored`).
pub(crate) const ALL_BETWEEN_MACHINES: Test =
    ("every test of point-to-point and one-sided semantics holds between two machines", two_machines_all);

/// `rsrun` with four ranks on the machine, which take its two devices in turn. Without TCP in the list, RDMA that does
/// not work is an error.
fn launcher() -> String {
    let rsrun = Programs::build(&[]).rsrun();
    format!(
        "{} -n 4 --set launch.connect_timeout=2min --set transport.allow=verbs --set verbs.device=rxe0,rxe1",
        rsrun.display()
    )
}

/// Packets sent by both devices, and receivers found not ready by either.
fn counters(lab: &Lab) -> (u64, u64) {
    let sum = |name: &str| -> u64 {
        let text = output(lab, &format!("cat /sys/class/infiniband/*/ports/1/hw_counters/{name}"));
        text.lines().map(|line| line.parse::<u64>().expect("a number")).sum()
    };
    (sum("sent_pkts"), sum("rcvd_rnr_err") + sum("send_rnr_err"))
}

fn train(lab: &Lab) {
    let train = Programs::build(&[]).example("train");
    let before = counters(lab);
    let said = output(lab, &format!("{} {}", launcher(), train.display()));
    let after = counters(lab);
    assert!(said.contains("identical on all ranks (4)"), "{said}");
    assert!(after.0 > before.0 + 100, "it went over RDMA: {before:?}, {after:?}");
    assert_eq!(after.1, before.1, "credits keep every receiver ready");
}

fn two_channels(lab: &Lab) {
    let train = Programs::build(&[]).example("train");
    let more = "--set low_latency.size_hint=4KiB --set verbs.rnr_retries=0 --set verbs.ring_bytes=64KiB";
    let said = output(lab, &format!("{} {more} {}", launcher(), train.display()));
    assert!(said.contains("identical on all ranks (4)"), "{said}");
}

fn no_such_device(lab: &Lab) {
    let hello = Programs::build(&[]).example("hello");
    let (code, _, stderr) = run(lab, &format!("{} --set verbs.device=mlx5_9 {}", launcher(), hello.display()));
    assert_ne!(code, 0);
    assert!(stderr.contains("verbs.device = mlx5_9: this host has rxe0, rxe1"), "{stderr}");
}

fn statistics(lab: &Lab) {
    let train = Programs::build(&[]).example("train");
    let (code, stdout, stderr) = run(lab, &format!("{} --stats {}", launcher(), train.display()));
    let said = stdout + &stderr;
    assert_eq!(code, 0, "{said}");
    for device in ["rxe0:1", "rxe1:1"] {
        let line = said.lines().find(|line| line.contains(&format!("counted by {device} on localhost"))).expect(&said);
        assert!(line.contains("(packets sent)") && line.contains("rcvd_rnr_err 0 (receiver not ready)"), "{line}");
    }
    assert!(said.contains("verbs doorbells"), "{said}");
}

/// Where no other way than TCP is left.
fn with_tcp() -> String {
    launcher().replace("transport.allow=verbs", "transport.allow=verbs,tcp")
}

fn no_library(lab: &Lab) {
    let hello = Programs::build(&[]).example("hello");
    // A mount that only this command sees hides the library.
    let without = |command: &str| {
        let library = "$(ldconfig -p | sed -n 's/.*libibverbs.so.1 .*=> //p' | head -1)";
        run(lab, &format!("unshare -m sh -c \"mount --bind /dev/null $(readlink -f {library}) && {command}\""))
    };
    let (code, stdout, stderr) = without(&format!("{} --explain {}", with_tcp(), hello.display()));
    assert_eq!(code, 0, "{stdout}\n{stderr}");
    let reason = "libibverbs cannot be loaded";
    let said = stderr.lines().filter(|line| line.contains("RDMA is not used") && line.contains(reason)).count();
    assert_eq!(said, 1, "said once a host: {stderr}");
    assert!(stderr.contains(&format!("refused  verbs: {reason}")), "{stderr}");
    let (code, _, stderr) = without(&format!("{} {}", launcher(), hello.display()));
    assert_ne!(code, 0);
    assert!(stderr.contains(reason) && stderr.contains("transport.allow does not allow tcp instead"), "{stderr}");
}

fn memory_limit(lab: &Lab) {
    let hello = Programs::build(&[]).example("hello");
    let limited = "setpriv --bounding-set=-ipc_lock --inh-caps=-ipc_lock sh -c 'ulimit -l 64; ";
    let (code, stdout, stderr) = run(lab, &format!("{limited}{} {}'", with_tcp(), hello.display()));
    assert_eq!(code, 0, "{stdout}\n{stderr}");
    assert!(stderr.contains("this process may lock 64 KiB (ulimit -l"), "{stderr}");
}

fn port_down(lab: &Lab) {
    let hello = Programs::build(&[]).example("hello");
    output(lab, "ip link set v0 down");
    let devices = with_tcp().replace("rxe0,rxe1", "rxe0");
    let (code, stdout, stderr) = run(lab, &format!("{devices} {}", hello.display()));
    output(lab, "ip link set v0 up && ip route replace 10.88.0.2 dev v0 src 10.88.0.1 table 101");
    assert_eq!(code, 0, "{stdout}\n{stderr}");
    assert!(stderr.contains("rxe0:1: the port is down"), "{stderr}");
}

/// Runs `train` and cuts the wire once it has begun; then `more`. Exit code, standard output, standard error, at the end.
fn cut(lab: &Lab, settings: &str, epochs: u32, more: &str) -> (u8, String, String) {
    let train = Programs::build(&[]).example("train");
    let each = |what: &str| format!("for d in v0 v1; do tc qdisc {what}; done");
    let (lossy, whole) = (each("replace dev $d root netem loss 100%"), each("del dev $d root"));
    let more = more.replace("WHOLE", &whole);
    let result = run(
        lab,
        &format!(
            "{} {settings} {} {epochs} > /tmp/cut 2> /tmp/cut.errors & pid=$!; \
             until grep -q poch /tmp/cut; do kill -0 $pid || exit 99; sleep 0.05; done; \
             {lossy}; {more}; wait $pid; code=$?; cat /tmp/cut; cat /tmp/cut.errors >&2; exit $code",
            launcher(),
            train.display()
        ),
    );
    let _ = run(lab, &whole);
    result
}

fn short_cut(lab: &Lab) {
    // Soft-RoCE takes seven retries as any number.
    let (code, stdout, stderr) = cut(lab, "--set verbs.retries=7", 15, "sleep 2; WHOLE");
    assert_eq!(code, 0, "{stdout}\n{stderr}");
    assert!(stdout.contains("identical on all ranks (4)"), "{stdout}");
}

fn long_cut(lab: &Lab) {
    let (code, stdout, stderr) = cut(lab, "--set verbs.retries=2", 1_000_000, "true");
    assert_ne!(code, 0, "{stdout}");
    for part in [
        "is lost: RDMA over rxe",
        "(status 12, vendor code 0x",
        "gives up a silent peer after 201.326592ms",
        "retry_exceeded_err",
    ] {
        assert!(stderr.contains(part), "no '{part}' in\n{stderr}");
    }
}

/// A program of tests of the runtime, built now.
fn tests(name: &str) -> String {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // The whole workspace for the sake of features: what is built already is built with those.
    cargo.args(["test", "--workspace", "--test", name, "--no-run"]).current_dir(root());
    if !cfg!(debug_assertions) {
        // As this program was built: an emulated machine takes minutes for what is not optimized.
        cargo.arg("--release");
    }
    let built = cargo.output().expect("cargo runs");
    let said = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{said}");
    // Executable tests/point_to_point.rs (target/debug/deps/point_to_point-…)
    said.rsplit_once('(').and_then(|(_, rest)| rest.split_once(')')).expect("cargo names it").0.to_owned()
}

/// The same tests as over shared memory and TCP: a few of them here, for they are emulated.
fn few(lab: &Lab, program: &str, names: &[&str]) {
    let limit = LIMIT.as_secs() - 10;
    let command = format!("SPMD_TEST_TRANSPORT=verbs timeout {limit} {} {}", tests(program), names.join(" "));
    assert!(output(lab, &command).contains(&format!("{} passed", names.len())));
}

fn point_to_point(lab: &Lab) {
    few(
        lab,
        "point_to_point",
        &[
            "tags_select",
            "many_requests",
            "a_probe_tells",
            "structs_travel",
            "every_tag_up_to",
            "ranks_that_leave_do_not_wait",
        ],
    );
}

fn one_sided(lab: &Lab) {
    few(
        lab,
        "one_sided",
        &["a_signal_covers", "after_a_fence", "own_elements_are_put", "atomic_operations_are_atomic"],
    );
}

fn races(lab: &Lab) {
    few(lab, "leaving", &["two_hundred_connections"]);
}

/// Every test of these programs with the number of ranks that it takes; those that take none make their own.
fn launched(programs: &[&str]) -> Vec<(String, String, usize)> {
    let mut found = Vec::new();
    for program in programs {
        let program = tests(program);
        let output = |arguments: &[&str]| {
            let mut command = Command::new(root().join(&program));
            let output = command.args(arguments).env("SPMD_TEST_TRANSPORT", "ranks").output().expect("it runs");
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        for name in output(&["--list"]).lines().filter_map(|line| line.strip_suffix(": test")) {
            // In this mode a test says what it takes and does nothing else; with others it does its own.
            let said = output(&["--exact", name, "--nocapture"]);
            let ranks: Vec<usize> = said.lines().filter_map(|line| line.strip_prefix("ranks ")?.parse().ok()).collect();
            if let [ranks] = ranks[..] {
                found.push((program.clone(), name.to_owned(), ranks));
            }
        }
    }
    found
}

/// Brings two machines up and runs these tests there, each as a job of its own over SSH with its ranks on both.
fn between_machines(tests: &[(String, String, usize)]) {
    let alone = plan();
    let folder = alone.folder.with_file_name("test-two");
    let (lab, _) = vm::up(&Plan { machines: 2, folder, ..alone }).unwrap_or_else(|error| panic!("{error}"));
    let programs = Programs::build(&[]);
    let launcher = |allow: &str, ranks: usize| {
        let (rsrun, hosts) = (programs.rsrun(), lab.hostfile());
        let (rsrun, hosts) = (rsrun.display(), hosts.display());
        format!(
            "{rsrun} -n {ranks} --map-by node --set launch.connect_timeout=2min --set transport.allow={allow} -hostfile {hosts}"
        )
    };
    let before = counters(&lab);
    let said = output(&lab, &format!("{} {}", launcher("shm,verbs", 8), programs.example("train").display()));
    assert!(said.contains("identical on all ranks (8)"), "{said}");
    let after = counters(&lab);
    assert!(after.0 > before.0 + 100, "it went over RDMA: {before:?}, {after:?}");
    let mut failed = Vec::new();
    for (number, (program, name, ranks)) in tests.iter().enumerate() {
        let begun = Instant::now();
        let command =
            format!("{} env SPMD_TEST_TRANSPORT=launched {program} --exact {name}", launcher("verbs", *ranks));
        let job = Job::start(&lab.machines()[0], &command, root()).unwrap_or_else(|error| panic!("{error}"));
        match job.finish(Duration::from_secs(120)) {
            Ok((0, ..)) => {}
            Ok((code, stdout, stderr)) => failed.push(format!("{name}: {code}\n{stdout}\n{stderr}")),
            Err(error) => failed.push(format!("{name}: {error}")),
        }
        let (number, all, took) = (number + 1, tests.len(), begun.elapsed().as_secs_f64());
        eprintln!("{number} of {all}, {took:.1} s, {} failed so far: {name}", failed.len());
    }
    assert!(failed.is_empty(), "{} of {} failed:\n{}", failed.len(), tests.len(), failed.join("\n"));
    assert_eq!(counters(&lab).1, before.1, "credits keep every receiver ready");
    lab.down().unwrap_or_else(|error| panic!("{error}"));
}

fn two_machines(_: &Lab) {
    let names = ["messages_of_every_length", "all_ranks_can_exchange", "a_split_orders", "a_signal_covers"];
    let few = launched(&["point_to_point", "one_sided"]).into_iter();
    let few: Vec<_> = few.filter(|(_, name, _)| names.iter().any(|part| name.contains(part))).collect();
    assert_eq!(few.len(), names.len(), "{few:?}");
    between_machines(&few);
}

fn two_machines_all(_: &Lab) {
    let all = launched(&["point_to_point", "leaving", "one_sided"]);
    assert!(all.len() > 35, "{all:?}");
    between_machines(&all);
}
