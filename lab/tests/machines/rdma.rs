//! Ranks that talk over RDMA: on one machine between its two devices, so that the traffic is on the wire.

use crate::Test;
use crate::machines::{LIMIT, output, root, run};
use spmd_lab::programs::Programs;
use spmd_lab::vm::Lab;
use std::process::Command;

pub(crate) const TESTS: &[Test] = &[
    ("ranks on two devices train over RDMA, and no receiver is ever not ready", train),
    ("ranks talk through two channels when there is a size hint", two_channels),
    ("a device that does not exist is named with those that do", no_such_device),
    ("point-to-point semantics hold over RDMA", point_to_point),
];

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

fn point_to_point(lab: &Lab) {
    // The same tests as over shared memory and TCP: a few of them here, for they are emulated.
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["test", "--package", "spmd", "--test", "point_to_point", "--no-run"]).current_dir(root());
    let built = cargo.output().expect("cargo runs");
    let said = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{said}");
    // Executable tests/point_to_point.rs (target/debug/deps/point_to_point-…)
    let program = said.rsplit_once('(').and_then(|(_, rest)| rest.split_once(')')).expect("cargo names it").0;
    let few = "tags_select many_requests a_probe_tells structs_travel every_tag_up_to ranks_that_leave_do_not_wait";
    let command = format!("SPMD_TEST_TRANSPORT=verbs timeout {} {program} {few}", LIMIT.as_secs() - 10);
    assert!(output(lab, &command).contains("6 passed"));
}
