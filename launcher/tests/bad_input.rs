//! Files that users name and that are none, are wrong, or have no end: each is refused with its name and a reason, before
//! anything is started.

mod common;

use common::{Ended, Place, finish, start};
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

/// The options that read a file, with its place in them.
const READERS: [&str; 6] = [
    "-hostfile FILE",
    "--app FILE",
    "--config FILE",
    "--map-by rankfile:FILE",
    "--dry-run --topology FILE",
    "--set collectives.table_file=FILE",
];

/// The command line with `file` in the place of `FILE`.
fn words(reader: &str, file: &str) -> Vec<String> {
    let mut words: Vec<String> = reader.split(' ').map(|word| word.replace("FILE", file)).collect();
    if !reader.starts_with("--app") {
        words.extend(["-n", "1", "true"].map(String::from));
    }
    words
}

/// What is said about `file`, named by each of the options.
fn refused(place: &Place, file: &str) -> Vec<Ended> {
    READERS.iter().map(|reader| place.run(words(reader, file)).fails(65, &[file])).collect()
}

#[test]
fn what_is_no_file_is_refused_by_every_option() {
    let place = Place::new();
    let folder = place.home.path().to_str().unwrap();
    for ended in refused(&place, folder) {
        assert!(ended.stderr.contains("directory"), "{ended:?}");
    }
    for ended in refused(&place, &format!("{folder}/none")) {
        assert!(ended.stderr.contains("No such file"), "{ended:?}");
    }
    place.assert_nothing_left();
}

#[test]
fn a_file_without_an_end_is_refused_by_every_option() {
    let place = Place::new();
    for file in ["/dev/zero", "/dev/urandom"] {
        for ended in refused(&place, file) {
            assert!(ended.stderr.contains("larger than") || ended.stderr.contains("no regular file"), "{ended:?}");
        }
    }
}

#[test]
fn an_empty_file_and_one_that_is_no_text_are_refused_by_every_option() {
    let place = Place::new();
    let empty = place.write("empty", "");
    // An empty configuration and an empty table say nothing.
    for reader in READERS.iter().filter(|reader| !["--config", "--set"].iter().any(|word| reader.starts_with(word))) {
        place.run(words(reader, empty.to_str().unwrap())).fails(65, &["empty"]);
    }
    // As an editor of another system writes it: UTF-16 with its mark.
    let wide = place.home.path().join("wide");
    std::fs::write(&wide, b"\xff\xfel\0o\0c\0\n\0").unwrap();
    for ended in refused(&place, wide.to_str().unwrap()) {
        assert!(ended.stderr.contains("UTF-8"), "{ended:?}");
    }
}

#[test]
fn a_file_that_may_not_be_read_is_refused_by_every_option() {
    // Root may read everything.
    if rustix::process::geteuid().is_root() {
        return;
    }
    let place = Place::new();
    let file = place.write("secret", "localhost\n");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o000)).unwrap();
    for ended in refused(&place, file.to_str().unwrap()) {
        assert!(ended.stderr.contains("Permission denied"), "{ended:?}");
    }
}

#[test]
fn what_a_shell_hands_over_in_a_pipe_is_read_like_a_file() {
    let place = Place::new();
    let run = |script: &str| {
        let mut shell = std::process::Command::new("bash");
        shell.args(["-c", script, common::binary()]).env("HOME", place.home.path()).stdin(Stdio::null());
        finish(start(&mut shell)).success().text()
    };
    assert_eq!(run("$0 -hostfile <(echo localhost slots=2) echo x"), "x\nx\n");
    assert_eq!(
        run("printf '[[app]]\\nprogram = \"echo\"\\narguments = [\"x\"]\\nranks = 1\\n' | $0 --app /dev/stdin"),
        "x\n"
    );
    assert_eq!(run("$0 --map-by rankfile:<(echo rank 0=localhost) echo x"), "x\n");
}

#[test]
fn host_keys_in_what_is_no_file_are_not_waited_for() {
    let place = Place::new();
    let pipe = place.home.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for file in ["/dev/zero", "/", pipe.to_str().unwrap()] {
        let hosts = place.write("hosts", &format!("ann@127.0.0.1:9 slots=1 known_hosts={file}\n"));
        let words = ["--set", "launch.connect_timeout=300ms", "-hostfile", hosts.to_str().unwrap(), "true"];
        place.run(words).fails(69, &["127.0.0.1"]);
    }
    place.assert_nothing_left();
}

#[test]
fn an_ssh_configuration_that_takes_for_ever_is_named_and_bounded() {
    let place = Place::new();
    place.write(".ssh/config", "Match exec \"sleep 600\"\n Port 9\n");
    let words = ["--set", "launch.connect_timeout=500ms", "-host", "ann@127.0.0.1:9", "-n", "1", "true"];
    place.run(words).fails(69, &["127.0.0.1", "launch.connect_timeout", "ssh -G"]);
    place.write(".ssh/config", "Prot 9\n");
    place.run(words).fails(69, &["127.0.0.1", ".ssh/config: line 1", "prot"]);
    place.wait_until_nothing_left();
}

#[test]
fn a_status_file_that_cannot_be_written_is_refused_before_anything_runs() {
    let place = Place::new();
    let ran = place.home.path().join("ran");
    let folder = place.home.path().to_str().unwrap();
    let file = place.write("file", "");
    for status in ["/no/such/status", folder, &format!("{}/status", file.display()), "/proc/status.json"] {
        let words = ["--status-file", status, "-n", "1", "touch", ran.to_str().unwrap()];
        place.run(words).fails(73, &["--status-file", status, "nothing was started"]);
        assert!(!ran.exists());
    }
}

#[test]
fn a_status_file_may_be_a_pipe_or_a_device_which_stays_one() {
    let place = Place::new();
    let ended = place.run(["--status-file", "/dev/stdout", "-n", "1", "true"]).success();
    let status: serde_json::Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!(status["exit_code"], 0);
    place.run(["--status-file", "/dev/null", "-n", "1", "true"]).success();
    assert!(!std::fs::metadata("/dev/null").unwrap().is_file());
    place.run(["--status-file", "/dev/full", "-n", "1", "true"]).fails(70, &["/dev/full", "No space"]);
    place.run(["--status-file", "/dev/full", "-n", "1", "false"]).fails(1, &["rank 0"]);
}

#[test]
fn the_output_of_an_earlier_job_is_not_replaced_unasked() {
    let place = Place::new();
    let folder = place.home.path().join("out");
    let out = folder.to_str().unwrap();
    place.run(["--output-dir", out, "-n", "3", "echo", "first"]).success();
    place.write("out/notes", "mine");
    place.write("out/rank.0002/notes", "mine");
    place.run(["--output-dir", out, "-n", "1", "echo", "second"]).fails(73, &[out, "rank.000", "--output-overwrite"]);
    assert_eq!(std::fs::read_to_string(folder.join("rank.0000/stdout")).unwrap(), "first\n");
    place.run(["--output-dir", out, "--output-overwrite", "-n", "1", "echo", "second"]).success();
    assert_eq!(std::fs::read_to_string(folder.join("rank.0000/stdout")).unwrap(), "second\n");
    assert!(!folder.join("rank.0001").exists(), "nothing of a larger job is left between the new files");
    assert!(!folder.join("rank.0002/stdout").exists() && folder.join("rank.0002/notes").exists());
    assert!(folder.join("notes").exists(), "what is not a rank's output stays");
    place.run(["--output-overwrite", "-n", "1", "true"]).fails(64, &["--output-dir"]);
    place.run(["--output-dir", "/proc/none", "-n", "1", "true"]).fails(73, &["/proc/none"]);
}

#[test]
fn a_rank_that_does_not_exist_is_not_waited_for_or_wrapped() {
    let place = Place::new();
    place.run(["-n", "2", "--stdin", "5", "cat"]).fails(64, &["--stdin 5", "the last one is 1"]);
    place
        .run(["-n", "2", "--wrap", "env", "--wrap-ranks", "0,2", "true"])
        .fails(64, &["no rank 2", "the last one is 1"]);
    let job = place.write("job.toml", &"[[app]]\nprogram = 'true'\nranks = 600000\n".repeat(2));
    place.run(["--app", job.to_str().unwrap()]).fails(64, &["more than 1000000 ranks"]);
}

#[test]
fn a_program_that_is_no_program_is_answered_with_what_was_meant() {
    let place = Place::new();
    place.run(["-n", "2", "echo hi"]).fails(127, &["echo hi", "words of their own"]);
    place.run(["-n", "2", "OMP_NUM_THREADS=1", "true"]).fails(127, &["-x OMP_NUM_THREADS=1"]);
    place.run(["-n", "2", "no-such-app"]).fails(127, &["./no-such-app"]);
}

#[test]
fn one_key_can_be_asked_for() {
    let place = Place::new();
    let config = |words: &[&str]| {
        let mut command = std::process::Command::new(common::binary());
        command.arg("config").args(words).env("HOME", place.home.path()).env("RSRUN_WAIT_SPIN", "1ms");
        command.env_remove("XDG_CONFIG_HOME").stdin(Stdio::null());
        finish(start(&mut command))
    };
    let text = config(&["wait.spin"]).success().text();
    for part in ["wait.spin = 1ms (environment RSRUN_WAIT_SPIN)", "overrode", "default", "allowed"] {
        assert!(text.contains(part), "{text}");
    }
    let json = config(&["--json", "wait.spin", "eager.limit"]).success().text();
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    let keys = report["keys"].as_array().unwrap();
    assert_eq!(keys.len(), 2);
    assert!(keys.iter().all(|key| !key["doc"].as_str().unwrap().is_empty()));
    config(&["wait.spni"]).fails(65, &["unknown key `wait.spni`", "wait.spin"]);
}
