//! One machine: the command line of its emulator, its start, and whether it is ready.

use super::kernel::Kernel;
use super::{Plan, files};
use crate::process::Process;
use crate::{LabError, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Memory of a machine in MiB. The emulator takes what the machine touches.
const MEMORY: usize = 2048;
/// A machine is ready after some seconds; on a machine that is busy with other things it takes longer.
const READY: Duration = Duration::from_secs(240);
/// The emulator.
const EMULATOR: &str = "qemu-system-x86_64";

/// One machine of a lab.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Its host name, `lab1` and so on.
    pub name: String,
    /// Its address in the lab's network.
    pub address: String,
    pub(super) folder: PathBuf,
    pub(super) process: Process,
}

impl Machine {
    /// Whether its emulator runs.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.process.is_alive()
    }

    /// What its kernel and its main script said.
    #[must_use]
    pub fn console(&self) -> PathBuf {
        self.folder.join("console")
    }

    /// The process of its emulator.
    #[must_use]
    pub fn process(&self) -> Process {
        self.process
    }

    /// The folder that the machine sees as `/run/lab` and may write to.
    #[must_use]
    pub fn share(&self) -> PathBuf {
        share(&self.folder)
    }

    /// The socket of the line over which it takes commands.
    pub(super) fn line(&self) -> PathBuf {
        self.folder.join("line")
    }

    /// Waits until its network and its sshd are there.
    pub(super) fn wait(&self) -> Result<()> {
        self.wait_for(&self.share().join("ready"))
    }

    /// Waits until the other ends of its cables can be plugged in.
    pub(super) fn wait_for_cables(&self, machines: usize) -> Result<()> {
        let lab = self.folder.parent().unwrap_or(&self.folder);
        cables(machines, 1).iter().try_for_each(|cable| self.wait_for(&lab.join(&cable.name)))
    }

    fn wait_for(&self, file: &Path) -> Result<()> {
        let deadline = Instant::now() + READY;
        while !file.exists() {
            if !self.is_up() {
                return Err(self.failed("its emulator has ended"));
            }
            if Instant::now() > deadline {
                return Err(self.failed(&format!("not ready after {} s", READY.as_secs())));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// An error with the last words of machine and emulator.
    pub(super) fn failed(&self, reason: &str) -> LabError {
        let last = |path: PathBuf| {
            let text = String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
            let lines: Vec<&str> = text.lines().collect();
            lines[lines.len().saturating_sub(15)..].join("\n")
        };
        let log = format!("{}\n{}", last(self.folder.join("emulator")), last(self.console()));
        LabError::Host { host: self.name.clone(), reason: reason.to_owned(), log }
    }
}

pub(super) fn share(folder: &Path) -> PathBuf {
    folder.join("share")
}

/// Starts machine `number` (from 1).
pub(super) fn start(plan: &Plan, kernel: &Kernel, number: usize) -> Result<Machine> {
    let name = files::machine_name(number);
    let folder = plan.folder.join(&name);
    let log = folder.join("emulator");
    let errors = fs::File::create(&log).map_err(LabError::file(&log))?;
    // A session of its own: an interrupt typed at the terminal is not for the machines.
    let mut line = vec!["setsid"];
    if plan.tied {
        line.splice(0..0, ["setpriv", "--pdeathsig", "KILL"]);
    }
    let mut command = Command::new(line[0]);
    command.args(&line[1..]).arg(EMULATOR).args(arguments(plan, kernel, number));
    // Relative paths: the address of a unix socket has room for 107 bytes.
    command.current_dir(&folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors);
    let failed = |reason| LabError::Command { command: EMULATOR.into(), reason };
    let child = command.spawn().map_err(|error| failed(error.to_string()))?;
    let process = Process::of(child.id()).ok_or_else(|| failed("it ended at once".into()))?;
    Ok(Machine { name, address: files::address(number), folder, process })
}

/// The arguments of the emulator, which runs in the machine's folder.
fn arguments(plan: &Plan, kernel: &Kernel, number: usize) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut add = |option: &str, value: String| words.extend([option.to_owned(), value]);
    add("-accel", "tcg,thread=multi".into());
    // Without the instructions that copy byte by byte: emulated they take twenty times as long as a loop over words.
    add("-cpu", "max,erms=off,fsrm=off".into());
    add("-smp", processors(plan.machines).to_string());
    add("-m", MEMORY.to_string());
    add("-kernel", kernel.image.display().to_string());
    add("-initrd", kernel.initramfs.display().to_string());
    add("-append", "console=ttyS0 quiet panic=-1 tsc=reliable mitigations=off".into());
    add("-serial", "file:console".into());
    add("-serial", "unix:line,server=on,wait=off".into());
    let mut shared = |path: &Path, tag: &str, more: &str| {
        // A comma in a value is written twice.
        let path = path.display().to_string().replace(',', ",,");
        add("-virtfs", format!("local,path={path},mount_tag={tag},security_model=none,multidevs=remap{more}"));
    };
    shared(Path::new("/"), "root", ",readonly=on");
    shared(Path::new("share"), "share", "");
    for (index, tree) in plan.trees.iter().enumerate() {
        shared(tree, &format!("tree{index}"), ",readonly=on");
    }
    for (index, Cable { name, server }) in cables(plan.machines, number).iter().enumerate() {
        let role = if *server { "on" } else { "off" };
        add("-netdev", format!("stream,id=cable{index},server={role},addr.type=unix,addr.path=../{name}"));
        if plan.machines > 2 {
            add("-netdev", format!("hubport,id=port{index},hubid=0,netdev=cable{index}"));
        }
    }
    if plan.machines > 1 {
        let netdev = if plan.machines > 2 {
            add("-netdev", "hubport,id=own,hubid=0".into());
            "own"
        } else {
            "cable0"
        };
        add("-device", format!("virtio-net-pci,netdev={netdev},mac=52:54:00:88:00:{number:02x},romfile="));
    }
    add("-display", "none".into());
    words.extend(["-nodefaults", "-no-reboot"].map(str::to_owned));
    words
}

/// One end of a cable between two machines: a unix socket.
#[derive(Debug, PartialEq, Eq)]
struct Cable {
    name: String,
    server: bool,
}

/// The cables that end in a machine: the first is joined with every other one, and passes on what is for others.
fn cables(machines: usize, number: usize) -> Vec<Cable> {
    let name = |other: usize| format!("cable{other}");
    match number {
        1 => (2..=machines).map(|other| Cable { name: name(other), server: true }).collect(),
        _ => vec![Cable { name: name(number), server: false }],
    }
}

/// Processors of each machine. Two programs that spin on one emulated processor starve each other, so that a machine
/// on its own has two at least.
fn processors(machines: usize) -> usize {
    let here = std::thread::available_parallelism().map_or(1, usize::from);
    (here / machines).clamp(if machines == 1 { 2 } else { 1 }, 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_machine_is_joined_with_every_other_one() {
        let end = |name: &str, server| Cable { name: name.into(), server };
        assert_eq!(cables(1, 1), []);
        assert_eq!(cables(3, 1), [end("cable2", true), end("cable3", true)]);
        assert_eq!(cables(3, 3), [end("cable3", false)]);
    }

    #[test]
    fn nothing_of_a_machine_listens_on_a_port() {
        let kernel = Kernel { image: "k".into(), initramfs: "i".into() };
        for machines in 1..4 {
            for number in 1..=machines {
                let plan = Plan { machines, ..Plan::new("lab", "/repository") };
                let line = arguments(&plan, &kernel, number).join(" ");
                assert!(!line.contains("tcp") && !line.contains("inet") && !line.contains("user"), "{line}");
            }
        }
    }
}
