//! Bringing a lab up, step by step; whatever fails on the way takes everything before it down again.

use super::host::Host;
use super::state::State;
use super::{Lab, Plan, files};
use crate::folder::{make_key, name_of, path_text, remove_folder};
use crate::process::{self, Process, end};
use crate::{LabError, Result};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::chown;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// The caller's own address in a lab's network is number 254.
pub(super) const OWN_NUMBER: usize = 254;

const HOST_SCRIPT: &str = include_str!("../../netns/host.sh");
const SWITCH_SCRIPT: &str = include_str!("../../netns/switch.sh");
const STEP_LIMIT: Duration = Duration::from_secs(15);

pub(super) fn build(plan: &Plan) -> Result<Lab> {
    remove_folder(&plan.folder)?;
    let mut site = Site { plan, waiting: Vec::new(), network: None, done: false };
    let result = site.build();
    site.done = result.is_ok();
    result
}

/// A lab under construction; dropped before it is done, it removes everything.
struct Site<'a> {
    plan: &'a Plan,
    /// The switch, then the hosts: each waits for "go" on its standard input.
    waiting: Vec<Child>,
    network: Option<u8>,
    done: bool,
}

impl Drop for Site<'_> {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let all: Vec<Process> = self.waiting.iter().filter_map(|child| Process::of(child.id())).collect();
        // The first failure is the one to report; `down` or the next `up` meets a second one again.
        let _ = end(&all);
        if let Some(network) = self.network {
            let _ = remove_leg(network);
        }
        let _ = remove_folder(&self.plan.folder);
    }
}

impl Site<'_> {
    fn build(&mut self) -> Result<Lab> {
        let plan = self.plan;
        fs::create_dir_all(&plan.folder).map_err(LabError::file(&plan.folder))?;
        let owner = Owner::of(&plan.user)?;
        make_key(&plan.folder.join("id_ed25519"), &format!("lab {}", name_of(&plan.folder)))?;
        copy(&plan.folder.join("id_ed25519.pub"), &plan.folder.join("authorized_keys"))?;

        let switch = self.start("switch", &["--net"], SWITCH_SCRIPT, &[])?;
        let network = claim_network(switch)?;
        self.network = Some(network);
        let mut keys = Vec::new();
        for number in 1..=plan.hosts {
            keys.push(self.prepare_host(network, number)?);
        }
        let mut state = State { network, user: plan.user.clone(), switch, hosts: Vec::new() };
        for number in 1..=plan.hosts {
            let holder = self.start_host(number)?;
            plug_in(switch, holder, network, number)?;
            state.hosts.push(holder);
        }

        let write = |name: &str, text: &str| {
            let path = plan.folder.join(name);
            fs::write(&path, text).map_err(LabError::file(&path))
        };
        write("known_hosts", &files::known_hosts(network, &keys))?;
        write("ssh_config", &files::ssh_config(network, plan.hosts, &plan.user, &plan.folder))?;
        write("hosts", &files::hostfile(plan, network))?;
        write("state", &state.to_text())?;
        owner.give(&plan.folder)?;
        if let Some(parent) = plan.folder.parent() {
            owner.give_one(parent)?;
        }

        let lab = Lab { folder: plan.folder.clone(), state };
        self.let_go()?;
        for host in lab.hosts() {
            wait_for_port(&host)?;
        }
        Ok(lab)
    }

    /// Writes what one host's sshd needs and returns the host's public key.
    fn prepare_host(&self, network: u8, number: usize) -> Result<String> {
        let folder = self.plan.folder.join(files::host_name(number));
        let home = folder.join("home");
        fs::create_dir_all(&home).map_err(LabError::file(&home))?;
        let key = folder.join("ssh_host_ed25519_key");
        make_key(&key, &files::host_name(number))?;
        let address = files::address(network, number);
        let config = folder.join("sshd_config");
        let text = files::sshd_config(&address, &self.plan.folder, &folder, &self.plan.user, &[]);
        fs::write(&config, text).map_err(LabError::file(&config))?;
        let public = key.with_extension("pub");
        fs::read_to_string(&public).map_err(LabError::file(public))
    }

    fn start_host(&mut self, number: usize) -> Result<Process> {
        let name = files::host_name(number);
        let folder = self.plan.folder.join(&name);
        let mut arguments = vec![name.clone(), path_text(&folder), self.plan.user.clone()];
        for path in std::iter::once(&self.plan.folder).chain(&self.plan.keep) {
            if path.starts_with("/dev/shm") {
                let source = std::io::Error::other("a lab's host has its own /dev/shm: build elsewhere");
                return Err(LabError::File { path: path.clone(), source });
            }
            if path.starts_with("/tmp") || path.starts_with("/run") {
                arguments.push(path_text(path));
            }
        }
        let namespaces = ["--net", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"];
        self.start(&name, &namespaces, HOST_SCRIPT, &arguments)
    }

    /// Starts a script in namespaces of its own and waits until it says "ready".
    fn start(&mut self, name: &str, namespaces: &[&str], script: &str, arguments: &[String]) -> Result<Process> {
        let log = self.plan.folder.join(name).with_extension("start");
        let errors = fs::File::create(&log).map_err(LabError::file(&log))?;
        // A session of its own: an interrupt typed at the terminal is not for the hosts.
        let mut line = vec!["setsid", "unshare"];
        if self.plan.tied {
            line.splice(0..0, ["setpriv", "--pdeathsig", "KILL"]);
        }
        line.extend(namespaces);
        line.extend(["sh", "-c", script, "sh"]);
        let failed = |reason: String| {
            let log = fs::read_to_string(&log).unwrap_or_default();
            LabError::Host { host: name.to_owned(), reason, log }
        };
        let mut child = Command::new(line[0])
            .args(&line[1..])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .map_err(|error| failed(format!("{}: {error}", line[0])))?;
        let stdout = child.stdout.take();
        let process = Process::of(child.id());
        self.waiting.push(child);
        let (said, hears) = mpsc::channel();
        std::thread::spawn(move || {
            let mut text = String::new();
            if let Some(stdout) = stdout {
                let _ = BufReader::new(stdout).read_line(&mut text);
            }
            let _ = said.send(text);
        });
        match hears.recv_timeout(STEP_LIMIT) {
            Ok(text) if text.trim() == "ready" => process.ok_or_else(|| failed("it ended at once".into())),
            Ok(_) => Err(failed("it ended before it was ready".into())),
            Err(_) => Err(failed(format!("not ready after {} s", STEP_LIMIT.as_secs()))),
        }
    }

    fn let_go(&mut self) -> Result<()> {
        for child in &mut self.waiting {
            let Some(mut stdin) = child.stdin.take() else { continue };
            stdin.write_all(b"go\n").map_err(|error| LabError::Command {
                command: format!("unshare … (process {})", child.id()),
                reason: format!("it takes no input: {error}"),
            })?;
        }
        Ok(())
    }
}

/// Claims a free network by making the caller's leg in it, whose other end is in the switch.
fn claim_network(switch: Process) -> Result<u8> {
    for network in 0..=u8::MAX {
        let range = format!("10.77.{network}.0/24");
        if !process::output("ip", &["-4", "route", "show", "table", "all", "root", &range])?.trim().is_empty() {
            continue;
        }
        let leg = leg_name(network);
        let pid = switch.pid.to_string();
        let made =
            process::output("ip", &["link", "add", &leg, "type", "veth", "peer", "name", "launcher", "netns", &pid]);
        match made {
            Ok(_) => {}
            Err(_) if Path::new("/sys/class/net").join(&leg).exists() => continue,
            Err(error) => return Err(error),
        }
        let own = format!("{}/24", files::address(network, OWN_NUMBER));
        batch(None, &format!("address add {own} dev {leg}\nlink set {leg} up\n"))
            .and_then(|()| batch(Some(switch), "link set launcher master bridge0 up\n"))
            .inspect_err(|_| drop(remove_leg(network)))?;
        return Ok(network);
    }
    Err(LabError::NoNetwork)
}

/// Joins a host to the switch by a pair of linked interfaces.
fn plug_in(switch: Process, host: Process, network: u8, number: usize) -> Result<()> {
    let port = format!("port{number}");
    batch(
        Some(switch),
        &format!("link add {port} type veth peer name eth0 netns {}\nlink set {port} master bridge0 up\n", host.pid),
    )?;
    let address = files::address(network, number);
    batch(Some(host), &format!("address add {address}/24 dev eth0\nlink set eth0 up\n"))
}

/// Removes the caller's leg in a lab's network; its other end goes with it.
pub(super) fn remove_leg(network: u8) -> Result<()> {
    let leg = leg_name(network);
    if Path::new("/sys/class/net").join(&leg).exists() {
        // It may go by itself at this moment, with the namespace of its other end.
        if let Err(error) = process::output("ip", &["link", "del", &leg])
            && Path::new("/sys/class/net").join(&leg).exists()
        {
            return Err(error);
        }
    }
    Ok(())
}

fn leg_name(network: u8) -> String {
    format!("rsrunlab{network}")
}

/// Runs `ip` commands, one a line, in the network of a process or in the caller's.
fn batch(within: Option<Process>, lines: &str) -> Result<()> {
    let mut command = match within {
        Some(process) => {
            let mut command = Command::new("nsenter");
            command.arg(format!("--net=/proc/{}/ns/net", process.pid)).arg("ip");
            command
        }
        None => Command::new("ip"),
    };
    process::run(command.args(["-batch", "-"]), lines)?;
    Ok(())
}

pub(super) fn wait_for_port(host: &Host) -> Result<()> {
    let address = format!("{}:22", host.address);
    let socket = address.parse().map_err(|error| LabError::Host {
        host: host.name.clone(),
        reason: format!("{address}: {error}"),
        log: String::new(),
    })?;
    let deadline = Instant::now() + STEP_LIMIT;
    loop {
        match std::net::TcpStream::connect_timeout(&socket, Duration::from_secs(1)) {
            Ok(_) => return Ok(()),
            Err(error) if !host.is_up() || Instant::now() > deadline => {
                let log = fs::read_to_string(host.log()).unwrap_or_default();
                let reason = format!("its sshd at {address} does not answer: {error}");
                return Err(LabError::Host { host: host.name.clone(), reason, log });
            }
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// Who gets the lab's folder, so that the key is theirs and `git clean` works without rights.
struct Owner {
    user: u32,
    group: u32,
}

impl Owner {
    fn of(user: &str) -> Result<Self> {
        let number = |option: &str| {
            let text = process::output("id", &[option, user])?;
            text.trim().parse().map_err(|_| LabError::Command {
                command: format!("id {option} {user}"),
                reason: format!("not a number: {}", text.trim()),
            })
        };
        Ok(Self { user: number("-u")?, group: number("-g")? })
    }

    /// Everything but the hosts' private keys, which sshd reads as root.
    fn give(&self, path: &Path) -> Result<()> {
        if path.file_name().is_some_and(|name| name == "ssh_host_ed25519_key") {
            return Ok(());
        }
        self.give_one(path)?;
        if path.is_dir() {
            for entry in fs::read_dir(path).map_err(LabError::file(path))? {
                self.give(&entry.map_err(LabError::file(path))?.path())?;
            }
        }
        Ok(())
    }

    fn give_one(&self, path: &Path) -> Result<()> {
        chown(path, Some(self.user), Some(self.group)).map_err(LabError::file(path))
    }
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to).map_err(LabError::file(from))?;
    Ok(())
}
