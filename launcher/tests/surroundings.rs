//! Where and how people start rsrun: in the background, from scripts and cron jobs, with closed streams, as somebody
//! else.

mod common;

use common::{Ended, Place, finish, start};
use std::os::unix::ffi::OsStringExt;
use std::process::{Command, Stdio};

/// A shell script that finds rsrun as `$0`.
fn shell(place: &Place, script: &str) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", script, common::binary()]).env("HOME", place.home.path()).stdin(Stdio::null());
    shell.env("TEST_MARK", &place.mark).env_remove("XDG_CONFIG_HOME");
    shell
}

fn run(place: &Place, script: &str) -> Ended {
    let ended = finish(start(&mut shell(place, script)));
    place.wait_until_nothing_left();
    ended
}

#[test]
fn standard_streams_may_be_closed() {
    let place = Place::new();
    assert_eq!(run(&place, "$0 -n 2 cat <&-").success().text(), "");
    assert_eq!(run(&place, "$0 -n 2 echo x 2>&-").success().text(), "x\nx\n");
    run(&place, "$0 -n 2 echo x >&-").success();
    run(&place, "$0 -n 2 echo x <&- >&- 2>&-").success();
    // What a rank opens is no socket of ours that took the place of a closed stream.
    assert_eq!(run(&place, "$0 -n 1 sh -c 'exit 3' <&- >&- 2>&-").code, Some(3));
    let open = run(&place, "$0 -n 1 sh -c 'readlink /proc/self/fd/0' <&-").success().text();
    assert!(open.starts_with("/dev/null") || open.starts_with("pipe:"), "{open}");
}

#[test]
fn a_hangup_that_nohup_has_switched_off_ends_nothing() {
    let place = Place::new();
    let script = "trap '' HUP; \
                  $0 -n 1 sh -c 'touch \"$HOME/up\"; until test -e \"$HOME/go\"; do sleep 0.05; done; echo survived' & \
                  p=$!; until test -e \"$HOME/up\"; do sleep 0.05; done; kill -HUP $p; touch \"$HOME/go\"; wait $p";
    let ended = run(&place, script).success();
    assert_eq!((ended.text().as_str(), ended.stderr.as_str()), ("survived\n", ""));
}

#[test]
fn an_interrupt_that_a_script_s_background_job_ignores_ends_nothing() {
    let place = Place::new();
    // A shell without job control starts its background jobs with SIGINT and SIGQUIT ignored: ^C is for the others.
    let script = "$0 -n 1 sh -c 'touch \"$HOME/up\"; until test -e \"$HOME/go\"; do sleep 0.05; done; echo survived' & \
                  p=$!; until test -e \"$HOME/up\"; do sleep 0.05; done; \
                  kill -INT $p; kill -QUIT $p; touch \"$HOME/go\"; wait $p";
    let ended = run(&place, script).success();
    assert_eq!((ended.text().as_str(), ended.stderr.as_str()), ("survived\n", ""));
}

#[test]
fn an_environment_like_that_of_cron_is_enough() {
    let place = Place::new();
    let ended = run(&place, "env -i \"TEST_MARK=$TEST_MARK\" $0 -n 2 echo x").success();
    assert_eq!((ended.text().as_str(), ended.told().count()), ("x\nx\n", 0));
    assert_eq!(run(&place, "unset HOME; $0 -n 1 echo x").success().text(), "x\n");
    assert_eq!(run(&place, "HOME= $0 -n 1 echo x").success().text(), "x\n");
    assert_eq!(run(&place, "HOME=/none $0 -n 1 echo x").success().text(), "x\n");
}

#[test]
fn a_huge_environment_and_one_that_is_no_text_reach_the_ranks() {
    let place = Place::new();
    let mut command = place.rsrun();
    for number in 0..15 {
        command.env(format!("LARGE_{number}"), "x".repeat(100_000));
    }
    let odd = std::ffi::OsString::from_vec(b"\xff\n=\xfe".to_vec());
    command.env("ODD", &odd).env("BASH_FUNC_f%%", "() { echo \"$1\"\n}");
    command.args(["-n", "1", "env", "-0"]);
    let ended = finish(start(&mut command)).success();
    let variables: Vec<&[u8]> = ended.stdout.split(|byte| *byte == 0).collect();
    assert!(variables.contains(&[b"ODD=".as_slice(), &odd.into_vec()].concat().as_slice()));
    assert!(variables.contains(&b"BASH_FUNC_f%%=() { echo \"$1\"\n}".as_slice()));
    assert_eq!(variables.iter().filter(|v| v.starts_with(b"LARGE_") && v.len() > 100_000).count(), 15);
}

#[test]
fn a_directory_that_is_gone_is_named_and_one_that_is_read_only_is_no_matter() {
    let place = Place::new();
    let ended = run(&place, "mkdir gone.$$; cd gone.$$; rmdir ../gone.$$; $0 -n 1 true");
    ended.fails(73, &["present directory", "-wdir DIR"]);
    assert_eq!(run(&place, "cd /proc; $0 -n 2 pwd").success().text(), "/proc\n/proc\n");
}

#[test]
fn another_user_may_run_jobs_also_with_the_home_of_the_first() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let place = Place::new();
    // Where that user may read: a copy, as an installed rsrun would be.
    let copy = std::env::temp_dir().join(format!("rsrun-{}", std::process::id()));
    std::fs::copy(common::binary(), &copy).unwrap();
    let home = place.home.path().display();
    std::fs::create_dir_all(place.home.path().join(".config/rsrun")).unwrap();
    let script = format!(
        "cd /; HOME={home} exec setpriv --reuid 12345 --regid 12345 --clear-groups {} -n 2 sh -c 'id -u; ls / >/dev/null'",
        copy.display()
    );
    let ended = finish(start(&mut shell(&place, &script)));
    std::fs::remove_file(&copy).unwrap();
    assert_eq!(ended.success().text(), "12345\n12345\n");
}

#[test]
fn a_limit_of_file_size_is_an_error_and_no_death() {
    let place = Place::new();
    let ended = run(&place, "ulimit -f 0; $0 -n 1 --status-file \"$HOME/s\" true");
    assert!(ended.code == Some(70) && ended.stderr.contains("File too large"), "{ended:?}");
}

#[test]
fn root_is_told_once_on_a_terminal_and_not_at_all_elsewhere() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let place = Place::new();
    assert_eq!(place.run(["-n", "1", "true"]).success().told().count(), 0);
    let under = |options: &str| {
        let mut script = Command::new("script");
        script.args(["-qec", &format!("{} {options} -n 1 true", common::binary()), "/dev/null"]);
        script.env("HOME", place.home.path()).env("TERM", "xterm").stdin(Stdio::null());
        finish(start(&mut script)).success().text()
    };
    assert_eq!(under("").matches("ranks run as root").count(), 1);
    assert!(!under("--allow-run-as-root").contains("root"));
}

#[test]
fn a_terminal_stops_and_continues_a_job_and_its_shell_goes_on() {
    let place = Place::new();
    // `script` gives bash a terminal; the keys come from a pipe, with pauses as of somebody who types.
    let keys = format!(
        "{} -n 2 sh -c 'sleep 1.5; echo rank $SPMD_RANK ended'\n~\u{1a}~jobs\n~fg\n~~~~exit\n",
        common::binary()
    );
    let mut script = Command::new("script");
    script.args(["-qec", "bash --norc -i", "/dev/null"]).env("HOME", place.home.path()).env("TERM", "dumb");
    script.env("PS1", "$ ").env("TEST_MARK", &place.mark).stdin(Stdio::piped());
    let mut child = start(&mut script);
    let mut stdin = child.stdin.take().unwrap();
    let typing = std::thread::spawn(move || {
        use std::io::Write;
        for part in keys.split('~') {
            stdin.write_all(part.as_bytes()).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(700));
        }
    });
    let ended = finish(child);
    typing.join().unwrap();
    let text = ended.text();
    assert!(text.contains("Stopped"), "{text}");
    assert!(text.contains("rank 0 ended\r\n") && text.contains("rank 1 ended\r\n"), "{text}");
    place.wait_until_nothing_left();
}

#[test]
fn settings_of_another_mpi_and_an_unused_allocation_are_noted_in_one_line() {
    let place = Place::new();
    let noted = |variables: &[(&str, &str)], words: &[&str]| {
        let mut command = place.rsrun();
        command.envs(variables.iter().copied()).args(words).args(["-n", "1", "true"]);
        let ended = finish(start(&mut command)).success();
        ended.told().map(str::to_string).collect::<Vec<_>>()
    };
    let mpi = [("OMPI_MCA_btl_tcp_if_include", "eth0"), ("OMPI_MCA_pml", "ucx")];
    let lines = noted(&mpi, &[]);
    assert!(
        lines.len() == 1 && lines[0].contains("means nothing here") && lines[0].contains("tcp.interfaces"),
        "{lines:?}"
    );
    let slurm = [("SLURM_JOB_NUM_NODES", "2"), ("SLURM_JOB_NODELIST", "n[1-2]")];
    let lines = noted(&slurm, &[]);
    assert!(lines.len() == 1 && lines[0].contains("-host 'n[1-2]'"), "{lines:?}");
    assert!(noted(&slurm, &["-host", "localhost"]).is_empty());
    let mut command = place.rsrun();
    command.env("RSRUN_SHM_RING", "1").args(["-n", "1", "true"]);
    finish(start(&mut command)).fails(65, &["RSRUN_SHM_RING", "did you mean RSRUN_SHM_RING_BYTES?"]);
}
