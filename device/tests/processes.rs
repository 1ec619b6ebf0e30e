//! The proxy ring between processes: producers on the CPU, ranks started by `rsrun`, over each transport.

use spmd_lab::programs::{Programs, run};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(240);

#[test]
fn requests_reach_another_process_over_shared_memory_and_over_tcp() {
    let programs = Programs::build(&["--package", "spmd-device", "--example", "proxy_on_host"]);
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
