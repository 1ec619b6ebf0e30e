//! `cargo xtask … | head -1`: a reader that goes is no reason for a panic, and stops what takes long.

use spmd_lab::programs::run_without_reader;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn a_task_whose_reader_has_gone_ends_without_a_word() {
    let words: [&[&str]; 9] = [
        &["help"],
        &["test", "--help"],
        &["test", "--list"],
        &["lab", "netns", "status"],
        &["lab", "netns", "down", "--name", "no-such-lab"],
        &["lab", "vm", "status"],
        &["peers"],
        &["experiment", "help"],
        &["fuzz", "help"],
    ];
    for words in words {
        let outcome = run_without_reader(Command::new(env!("CARGO_BIN_EXE_xtask")).args(words), LIMIT);
        assert_eq!((outcome.code(), &*outcome.stderr), (0, ""), "{outcome}");
    }
}

#[test]
fn a_task_that_runs_programs_is_stopped_in_order() {
    let folder = std::env::temp_dir().join(format!("xtask-pipes-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let script = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).expect("a script");
        std::fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("a script that runs");
    };
    // What builds takes its time, and what checks says so.
    script("cargo", "#!/bin/sh\ntest $1 = build && exec sleep 600\necho checking; echo on\n");
    script("cargo-deny", "#!/bin/sh\n");
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").expect("a PATH"));
    // The one writes itself before it runs anything; of the other only what it runs writes.
    for task in [["experiment", "two-hop"].as_slice(), &["deny"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
        let outcome = run_without_reader(command.args(task).env("PATH", &path), LIMIT);
        assert_eq!((outcome.code(), &*outcome.stderr), (141, ""), "{outcome}");
    }
    std::fs::remove_dir_all(&folder).expect("it is removed");
}
