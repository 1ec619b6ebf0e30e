//! Hosts behind a real sshd: a private one on loopback for each test, with keys and known_hosts in a private home.
#![expect(clippy::cast_possible_truncation, reason = "bytes of a pattern")]

mod common;

use common::{Place, finish, start, wait_until};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Both clients must behave the same.
const CLIENTS: [&str; 2] = ["launch.ssh=builtin", "launch.ssh=command"];

struct Sshd {
    place: Place,
    server: Child,
    port: u16,
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

impl Sshd {
    fn start(extra: &str) -> Self {
        let program = Path::new("/usr/sbin/sshd");
        assert!(
            program.exists(),
            "these tests need {}: `cargo xtask test` installs it, or run: apt-get install openssh-server",
            program.display()
        );
        if rustix::process::getuid().is_root() {
            // sshd's own empty directory; usually made when the machine starts.
            std::fs::create_dir_all("/run/sshd").unwrap();
        }
        let place = Place::new();
        let home = place.home.path();
        std::fs::create_dir_all(home.join(".ssh")).unwrap();
        for name in [".ssh/id_ed25519", "host_ed25519", "host_ecdsa", "other"] {
            let kind = if name == "host_ecdsa" { "ecdsa" } else { "ed25519" };
            keygen(&["-t", kind, "-f", home.join(name).to_str().unwrap()]);
        }
        std::fs::copy(home.join(".ssh/id_ed25519.pub"), home.join("authorized")).unwrap();
        let mut last = String::new();
        // Somebody else may take the free port before sshd does.
        for _ in 0..5 {
            let port = free_port();
            let shown = home.display();
            let config = place.write(
                "sshd_config",
                &format!(
                    "ListenAddress 127.0.0.1:{port}\nListenAddress 127.0.0.2:{port}\nHostKey {shown}/host_ecdsa\n\
                     HostKey {shown}/host_ed25519\nAuthorizedKeysFile {shown}/authorized\nPidFile none\nUsePAM no\n\
                     StrictModes no\nPermitRootLogin prohibit-password\nPasswordAuthentication no\n\
                     KbdInteractiveAuthentication no\n{extra}\n"
                ),
            );
            let mut sshd = Command::new(program);
            sshd.args(["-D", "-e", "-f"])
                .arg(&config)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::piped());
            let mut server = sshd.spawn().unwrap();
            let mut log = BufReader::new(server.stderr.take().unwrap());
            last.clear();
            let mut listening = 0;
            while listening < 2 && log.read_line(&mut last).unwrap() > 0 {
                listening = last.matches("Server listening").count();
            }
            if listening == 2 {
                std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
                let sshd = Self { place, server, port };
                sshd.know("host_ed25519");
                return sshd;
            }
            let _ = server.kill();
            let _ = server.wait();
        }
        panic!("sshd does not listen: {last}");
    }

    /// Makes this the only host key that is known for both addresses.
    fn know(&self, key: &str) {
        let text = std::fs::read_to_string(self.place.home.path().join(format!("{key}.pub"))).unwrap();
        let port = self.port;
        let lines: Vec<String> = ["127.0.0.1", "127.0.0.2"].map(|host| format!("[{host}]:{port} {text}")).to_vec();
        self.place.write(".ssh/known_hosts", &lines.concat());
    }

    /// A hostfile for the first address.
    fn hosts(&self, slots: u32) -> String {
        let text = format!("127.0.0.1 port={} slots={slots}\n", self.port);
        self.place.write("hosts", &text).display().to_string()
    }

    fn run(&self, client: &str, words: &[&str]) -> common::Ended {
        let hosts = self.hosts(2);
        self.place.run(["-hostfile", &hosts, "--set", client].iter().chain(words))
    }
}

fn keygen(arguments: &[&str]) {
    let mut command = Command::new("ssh-keygen");
    command.args(["-q", "-N", ""]).args(arguments);
    let output = command.output().expect("ssh-keygen belongs to openssh-client: apt-get install openssh-client");
    assert!(output.status.success(), "{output:?}");
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn ranks_run_behind_sshd_with_either_client() {
    let sshd = Sshd::start("");
    for client in CLIENTS.iter().chain(&["launch.ssh=auto"]) {
        let script = "echo $SPMD_RANK of $SPMD_SIZE; test -n \"$SSH_CONNECTION\"";
        let ended = sshd.run(client, &["sh", "-c", script]).success();
        assert_eq!(ended.lines(), ["0 of 2", "1 of 2"]);
        assert_eq!(ended.told().next(), None);
        sshd.run(client, &["sh", "-c", "exit 6"]).fails(6, &["on host 127.0.0.1"]);
        sshd.place.assert_nothing_left();
    }
}

#[test]
fn input_and_output_pass_byte_by_byte() {
    let sshd = Sshd::start("");
    let data: Vec<u8> = (0..3_000_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
    for client in CLIENTS {
        let hosts = sshd.hosts(1);
        let mut command = sshd.place.rsrun();
        command.args(["-hostfile", &hosts, "--set", client, "cat"]).stdin(Stdio::piped());
        let mut child = start(&mut command);
        let mut stdin = child.stdin.take().unwrap();
        let copy = data.clone();
        let writer = std::thread::spawn(move || stdin.write_all(&copy));
        let ended = finish(child).success();
        writer.join().unwrap().unwrap();
        assert!(ended.stdout == data, "{client}: {} bytes", ended.stdout.len());
    }
}

#[test]
fn host_keys_that_are_unknown_or_wrong_are_refused_with_the_way_out() {
    let sshd = Sshd::start("");
    let file = sshd.place.home.path().join(".ssh/known_hosts").display().to_string();
    let name = format!("[127.0.0.1]:{}", sshd.port);
    sshd.know("other");
    let parts = ["host 127.0.0.1", "ssh-ed25519", &name, &format!("{file}:1"), "ssh-keygen", "-R"];
    sshd.run(CLIENTS[0], &["true"]).fails(69, &parts);
    sshd.run(CLIENTS[1], &["true"]).fails(69, &["host 127.0.0.1", "Host key verification failed"]);
    std::fs::write(&file, "").unwrap();
    sshd.run(CLIENTS[0], &["true"]).fails(69, &["host 127.0.0.1", &name, &file, "ssh-keyscan"]);
    sshd.run(CLIENTS[1], &["true"]).fails(69, &["host 127.0.0.1", "Host key verification failed"]);
    // Both kinds of key are offered: the one that is known is asked for.
    for key in ["host_ecdsa", "host_ed25519"] {
        sshd.know(key);
        sshd.run(CLIENTS[0], &["true"]).success();
    }
    // Hashed names, as Debian's ssh writes them.
    keygen_hash(&file);
    sshd.run(CLIENTS[0], &["true"]).success();
}

fn keygen_hash(file: &str) {
    let output = Command::new("ssh-keygen").args(["-H", "-f", file]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(std::fs::read_to_string(file).unwrap().starts_with("|1|"));
}

#[test]
fn keys_that_are_not_accepted_are_listed() {
    let sshd = Sshd::start("");
    std::fs::copy(sshd.place.home.path().join("other.pub"), sshd.place.home.path().join("authorized")).unwrap();
    sshd.run(CLIENTS[0], &["true"])
        .fails(69, &["host 127.0.0.1", "authentication", ".ssh/id_ed25519", "authorized_keys"]);
    sshd.run(CLIENTS[1], &["true"]).fails(69, &["host 127.0.0.1", "Permission denied"]);
    // The built-in client fails, and then the user's own: both reasons are told.
    sshd.run("launch.ssh=auto", &["true"]).fails(69, &["authentication", "Permission denied"]);
}

#[test]
fn hosts_that_cannot_be_reached_are_named_with_the_reason() {
    let place = Place::new();
    let hosts = place.write("hosts", &format!("127.0.0.1 port={}\n", free_port()));
    let hosts = hosts.to_str().unwrap();
    for client in CLIENTS {
        // Both may pass, and are tried for a moment.
        let limit = ["--set", "launch.connect_timeout=20s"];
        let words = ["-hostfile", hosts, "--set", client, limit[0], limit[1], "-n", "1", "true"];
        place.run(words).fails(69, &["127.0.0.1", "refused", "launch.wait_for_hosts"]);
        let words = ["-host", "no-such-host.invalid", "--set", client, limit[0], limit[1], "-n", "1", "true"];
        place.run(words).fails(69, &["no-such-host.invalid", "not known", "launch.wait_for_hosts"]);
    }
    // Somebody listens and never speaks.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let hosts = place.write("silent", &format!("127.0.0.1 port={}\n", silent.local_addr().unwrap().port()));
    for client in CLIENTS {
        let words = [
            "-hostfile",
            hosts.to_str().unwrap(),
            "--set",
            client,
            "--set",
            "launch.connect_timeout=500ms",
            "-n",
            "1",
            "true",
        ];
        place.run(words).fails(69, &["host 127.0.0.1", "500ms"]);
    }
    place.assert_nothing_left();
}

#[test]
fn the_users_ssh_configuration_is_honoured() {
    let sshd = Sshd::start("");
    let port = sshd.port;
    let config = |more: &str| {
        sshd.place.write(".ssh/config", &format!("Host n7\n  HostName 127.0.0.1\n  Port {port}\n{more}"));
    };
    config("");
    for client in CLIENTS {
        let ended = sshd.place.run(["-host", "n7:1", "--set", client, "hostname"]).success();
        assert_eq!(ended.told().next(), None);
    }
    // The key is not known, and the user says what to do then: only `ssh` can.
    sshd.place.write(".ssh/known_hosts", "");
    config("  StrictHostKeyChecking accept-new\n");
    sshd.place.run(["-host", "n7:1", "--set", CLIENTS[0], "true"]).fails(69, &["host n7", "ssh-keyscan"]);
    sshd.place.run(["-host", "n7:1", "true"]).success();
    let known = std::fs::read_to_string(sshd.place.home.path().join(".ssh/known_hosts")).unwrap();
    assert!(!known.is_empty());
    // A jump through another host.
    config("  ProxyJump gate\nHost gate\n  HostName 127.0.0.1\n  Port 1\n");
    sshd.place.run(["-host", "n7:1", "true"]).fails(69, &["host n7", "ssh"]);
    // A configuration that `ssh` does not understand.
    config("  NoSuchOption yes\n");
    sshd.place.run(["-host", "n7:1", "true"]).fails(69, &["host n7", "nosuchoption"]);
}

#[test]
fn an_interrupt_ends_a_connection_to_a_host_that_never_speaks() {
    let place = Place::new();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let hosts = place.write("silent", &format!("127.0.0.1 port={}\n", silent.local_addr().unwrap().port()));
    for client in CLIENTS {
        let mut command = place.rsrun();
        command.arg("-hostfile").arg(&hosts).args(["--set", client, "--set", "launch.connect_timeout=600s", "true"]);
        let child = start(&mut command);
        // It is connected, and waits for a greeting.
        let connection = silent.accept().unwrap();
        common::signal(child.id(), libc::SIGINT);
        finish(child).fails(130, &["interrupted by SIGINT"]);
        drop(connection);
        place.assert_nothing_left();
    }
}

#[test]
fn noise_of_a_login_shell_is_skipped_and_strays_set_by_sshd_are_named() {
    let sshd = Sshd::start(
        "SetEnv RSRUN_EAGER_LIMIT=1KiB\nForceCommand echo Welcome; echo noise >&2; printf 'no line end'; \
         eval \"$SSH_ORIGINAL_COMMAND\"",
    );
    for client in CLIENTS {
        let ended = sshd.run(client, &["env"]).success();
        assert!(!ended.text().contains("RSRUN_") && !ended.text().contains("Welcome"), "{}", ended.text());
        assert_eq!(
            ended.stderr,
            "rsrun: host 127.0.0.1: ignored RSRUN_EAGER_LIMIT=1KiB in the environment (the launcher's snapshot decides: \
             eager.limit = 8KiB from default)\n"
        );
    }
}

#[test]
fn a_host_without_rsrun_is_named_with_the_path() {
    let sshd = Sshd::start("ForceCommand echo Welcome; exec /no/such/place/rsrun --agent");
    for client in CLIENTS {
        sshd.run(client, &["true"]).fails(127, &["host 127.0.0.1", common::binary(), "not found"]);
    }
}

#[test]
fn two_names_for_one_machine_are_refused() {
    let sshd = Sshd::start("");
    let port = sshd.port;
    let hosts = sshd.place.write("twice", &format!("127.0.0.1 port={port} slots=1\n127.0.0.2 port={port} slots=1\n"));
    let hosts = hosts.display().to_string();
    sshd.place
        .run(["-hostfile", &hosts, "true"])
        .fails(65, &[&format!("{hosts}:1"), &format!("{hosts}:2"), "same machine"]);
}

#[test]
fn nothing_is_left_when_the_launcher_or_the_connection_dies() {
    let sshd = Sshd::start("");
    for client in CLIENTS {
        let hosts = sshd.hosts(2);
        let mut command = sshd.place.rsrun();
        command.args(["-hostfile", &hosts, "--set", client, "sh", "-c", "sleep 600 & env -i setsid sleep 600 & wait"]);
        let mut child = start(&mut command);
        wait_until("all ranks run", || sshd.place.processes().len() >= 5);
        child.kill().unwrap();
        child.wait().unwrap();
        sshd.place.wait_until_nothing_left();

        let child = start(&mut command);
        wait_until("all ranks run", || sshd.place.processes().len() >= 5);
        // The process of sshd that carries the connection.
        for session in common::children(sshd.server.id()) {
            common::signal(session, libc::SIGKILL);
        }
        finish(child).fails(70, &["host 127.0.0.1", "lost"]);
        sshd.place.wait_until_nothing_left();
    }
}

#[test]
fn a_hostfile_may_bring_its_own_key_and_host_keys() {
    let sshd = Sshd::start("");
    let home = sshd.place.home.path();
    std::fs::create_dir(home.join("lab")).unwrap();
    std::fs::rename(home.join(".ssh/id_ed25519"), home.join("lab/key")).unwrap();
    std::fs::rename(home.join(".ssh/known_hosts"), home.join("lab/known")).unwrap();
    let line = format!("127.0.0.1 port={} slots=1 ", sshd.port);
    let run = |client: &str, more: &str| {
        let hosts = sshd.place.write("lab/hosts", &format!("{line}{more}\n"));
        let mut command = sshd.place.rsrun();
        command.env("HOME", "/nonexistent").arg("-hostfile").arg(hosts).args(["--set", client, "true"]);
        finish(start(&mut command))
    };
    for client in CLIENTS.iter().chain(&["launch.ssh=auto"]) {
        run(client, "identity=key known_hosts=known").success();
        run(client, "identity=key").fails(69, &["127.0.0.1", "ost key"]);
        run(client, "known_hosts=known").fails(69, &["127.0.0.1"]);
        run(client, "identity=none known_hosts=known").fails(69, &["127.0.0.1", "lab/none", "does not exist"]);
        run(client, "identity=../other known_hosts=known").fails(69, &["127.0.0.1"]);
    }
}
