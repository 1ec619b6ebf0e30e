//! What can be wrong with a command, a hostfile or a host: each ends soon, with one message that names place and reason.

use crate::Test;
use crate::cluster::{Cluster, LIMIT, own_lines};
use spmd_lab::programs::{Outcome, run};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

pub(crate) const TESTS: &[Test] = &[
    ("a missing hostfile is named", missing_hostfile),
    ("a directory as hostfile is named", directory_as_hostfile),
    ("a wrong line in a hostfile is named with line and column", wrong_line),
    ("zero ranks are refused", zero_ranks),
    ("more ranks than slots are refused with both numbers", too_many_ranks),
    ("a host whose name does not resolve is named", unknown_host),
    ("a host with another host key than the known one is refused", wrong_host_key),
    ("a host whose key is not known is refused", unknown_host_key),
    ("a refused connection is named with its port", refused_connection),
    ("a key that the host does not accept is named", refused_key),
    ("a host that does not answer is named before ten seconds", host_that_hangs),
    ("a host that accepts and says nothing is named before ten seconds", host_that_says_nothing),
    ("a program missing on one host is named with host and path", program_missing_on_one_host),
    ("a program that is not executable on one host is named with host and path", program_not_executable),
    ("a working directory missing on one host is named with host and path", directory_missing_on_one_host),
    ("a launcher missing on the hosts is named with host and path", launcher_missing_on_hosts),
];

/// In this time each of these ends.
const SOON: Duration = Duration::from_secs(10);

/// The exit code, and one message of the launcher's that has all the words.
fn expect(outcome: &Outcome, code: i32, words: &[&str]) {
    assert_eq!(outcome.code(), code, "{outcome}");
    assert!(outcome.time < SOON, "{outcome}");
    let lines = own_lines(outcome);
    assert_eq!(lines.len(), 1, "one message: {outcome}");
    for word in words {
        assert!(outcome.stderr.contains(word), "the message names {word}: {outcome}");
    }
}

fn with_hostfile(cluster: &Cluster, hostfile: &str) -> Outcome {
    let program = cluster.example("hello");
    run(&mut cluster.programs.launch(&["-n", "3", "-hostfile", hostfile, &program]), LIMIT)
}

/// The lab's hostfile with one slot a host and the second host's line changed.
fn with_second_host(cluster: &Cluster, change: impl Fn(&str) -> String) -> Outcome {
    let second = cluster.hosts()[1].address.clone() + " ";
    let hostfile = cluster.hostfile_of("hosts-changed", |line| {
        let line = line.replace("slots=32", "slots=1");
        if line.starts_with(&second) { change(&line) } else { line }
    });
    with_hostfile(cluster, &hostfile)
}

fn missing_hostfile(cluster: &Cluster) {
    expect(&with_hostfile(cluster, "/no/such/hosts"), 65, &["/no/such/hosts", "such file"]);
}

fn directory_as_hostfile(cluster: &Cluster) {
    expect(&with_hostfile(cluster, "/etc"), 65, &["/etc", "directory"]);
}

fn wrong_line(cluster: &Cluster) {
    let outcome = with_second_host(cluster, |line| line.replace("slots=1", "slots=many"));
    expect(&outcome, 65, &["hosts-changed:2:", "many"]);
}

fn zero_ranks(cluster: &Cluster) {
    expect(&cluster.launch(1, &["-n", "0", &cluster.example("hello")]), 64, &["-n", "0"]);
}

fn too_many_ranks(cluster: &Cluster) {
    expect(&cluster.launch(2, &["-n", "7", &cluster.example("hello")]), 75, &["7", "6"]);
}

fn unknown_host(cluster: &Cluster) {
    let second = cluster.hosts()[1].address.clone();
    let outcome = with_second_host(cluster, |line| line.replace(&second, "no-such-host.invalid"));
    expect(&outcome, 69, &["no-such-host.invalid"]);
}

fn wrong_host_key(cluster: &Cluster) {
    // The second host's address with the first one's key.
    let known = std::fs::read_to_string(cluster.lab.hostfile().with_file_name("known_hosts")).expect("it is there");
    let key = known.lines().next().and_then(|line| line.split_once(' ')).expect("one line a host").1;
    let second = &cluster.hosts()[1].address;
    let path = cluster.lab.hostfile().with_file_name("known_hosts_wrong");
    std::fs::write(&path, format!("{second} {key}\n")).expect("the lab's folder can be written");
    let outcome =
        with_second_host(cluster, |line| line.replace("known_hosts=known_hosts", "known_hosts=known_hosts_wrong"));
    expect(&outcome, 69, &[second, "host key", "known_hosts_wrong"]);
}

fn unknown_host_key(cluster: &Cluster) {
    let path = cluster.lab.hostfile().with_file_name("known_hosts_empty");
    std::fs::write(&path, "").expect("the lab's folder can be written");
    let outcome =
        with_second_host(cluster, |line| line.replace("known_hosts=known_hosts", "known_hosts=known_hosts_empty"));
    expect(&outcome, 69, &[&cluster.hosts()[1].address, "host key", "known_hosts_empty"]);
}

fn refused_connection(cluster: &Cluster) {
    let outcome = with_second_host(cluster, |line| format!("{line} port=2"));
    expect(&outcome, 69, &[&cluster.hosts()[1].address, "2", "refused"]);
}

fn refused_key(cluster: &Cluster) {
    let key = cluster.lab.hostfile().with_file_name("id_other");
    let path = key.display().to_string();
    let _ = std::fs::remove_file(&key);
    spmd_lab::process::output("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-f", &path]).expect("a new key");
    let outcome = with_second_host(cluster, |line| line.replace("identity=id_ed25519", "identity=id_other"));
    expect(&outcome, 69, &[&cluster.hosts()[1].address, "id_other"]);
}

fn host_that_hangs(cluster: &Cluster) {
    // Its answers go nowhere: as seen from here, the host has lost its power.
    let host = &cluster.hosts()[1];
    let route = format!("{}/32", cluster.lab.own_address());
    host.in_network("ip", &["route", "add", "blackhole", &route]).expect("the host takes a route");
    let outcome = with_second_host(cluster, str::to_owned);
    host.in_network("ip", &["route", "del", "blackhole", &route]).expect("the route is there");
    expect(&outcome, 69, &[&host.address, "launch.connect_timeout"]);
}

fn host_that_says_nothing(cluster: &Cluster) {
    let own = cluster.lab.own_address();
    let silent = std::net::TcpListener::bind((own.as_str(), 0)).expect("this machine has a leg in the lab's network");
    let port = silent.local_addr().expect("it is bound").port();
    let second = cluster.hosts()[1].address.clone();
    let outcome = with_second_host(cluster, |line| line.replace(&second, &own) + &format!(" port={port}"));
    expect(&outcome, 69, &[&own, "launch.connect_timeout"]);
}

/// Copies `hello` to `/tmp/program` of this machine (behind a folder that only the test knows) and of some hosts, and
/// runs it on all.
fn with_program(cluster: &Cluster, prepare: impl Fn(usize, &Path)) -> Outcome {
    let name = cluster.private.join("program");
    let copy = |to: &Path| {
        std::fs::create_dir_all(to.parent().expect("it is in a folder")).expect("/tmp can be written");
        std::fs::copy(cluster.programs.example("hello"), to).expect("hello can be copied");
    };
    copy(&name);
    for (index, host) in cluster.hosts().iter().enumerate() {
        let path = host.root().join(name.strip_prefix("/").expect("an absolute path"));
        copy(&path);
        prepare(index, &path);
    }
    let outcome = cluster.launch(1, &["-n", "3", &name.display().to_string()]);
    for host in cluster.hosts() {
        let folder = host.root().join(cluster.private.strip_prefix("/").expect("an absolute path"));
        std::fs::remove_dir_all(folder).expect("it is there");
    }
    outcome
}

fn program_missing_on_one_host(cluster: &Cluster) {
    let outcome = with_program(cluster, |index, path| {
        if index == 2 {
            std::fs::remove_file(path).expect("it is there");
        }
    });
    expect(&outcome, 127, &[&cluster.hosts()[2].address, &cluster.private.join("program").display().to_string()]);
}

fn program_not_executable(cluster: &Cluster) {
    let outcome = with_program(cluster, |index, path| {
        if index == 1 {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o644)).expect("it is there");
        }
    });
    expect(&outcome, 126, &[&cluster.hosts()[1].address, &cluster.private.join("program").display().to_string()]);
}

fn directory_missing_on_one_host(cluster: &Cluster) {
    let relative = Path::new("tmp/work");
    for host in &cluster.hosts()[..2] {
        std::fs::create_dir(host.root().join(relative)).expect("/tmp can be written");
    }
    let outcome = cluster.launch(1, &["-n", "3", "-wdir", "/tmp/work", &cluster.example("hello")]);
    for host in &cluster.hosts()[..2] {
        std::fs::remove_dir(host.root().join(relative)).expect("it is there");
    }
    expect(&outcome, 73, &[&cluster.hosts()[2].address, "/tmp/work"]);
}

fn launcher_missing_on_hosts(cluster: &Cluster) {
    // This machine's /tmp is not the hosts'.
    let rsrun = cluster.private.join("rsrun");
    std::fs::copy(cluster.programs.rsrun(), &rsrun).expect("rsrun can be copied");
    let mut command = cluster.launcher(1, &["-n", "3", &cluster.example("hello")]);
    let arguments: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
    command = std::process::Command::new(&rsrun);
    let outcome = run(command.args(arguments).env("HOME", "/nonexistent"), LIMIT);
    expect(&outcome, 127, &["10.77.", &rsrun.display().to_string()]);
}
