//! Machines with RDMA on a machine that has none: emulated, with Debian's kernel and its software RDMA device.
//!
//! A machine is one process of the emulator. Its root is this machine's, read-only, so that it runs the same programs;
//! what it writes is gone with it. Machines are joined by unix sockets; nothing listens on a port of this machine.

mod archive;
mod files;
mod job;
mod kernel;
mod machine;

pub use job::{Copied, Job};
pub use machine::Machine;

use crate::folder::{make_key, name_of, path_text, remove_folder};
use crate::process::{self, Process, end, from_words};
use crate::{LabError, Result};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// The most machines of one lab: the first passes on the frames of all.
pub const MOST_MACHINES: usize = 16;

/// What to bring up.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The lab's folder, made by `up` and removed by `down`. Its last part is the lab's name.
    pub folder: PathBuf,
    /// How many machines, 1 to [`MOST_MACHINES`]. One alone has two RDMA devices, joined by a wire of its own.
    pub machines: usize,
    /// Folders whose files change while the machines run: the repository first, the build folder. The machines see
    /// changes there at once; elsewhere they may see what was there when they started.
    pub trees: Vec<PathBuf>,
    /// Where the kernel is kept between labs.
    pub cache: PathBuf,
    /// Whether the machines end when the calling thread ends, however it ends.
    pub tied: bool,
}

impl Plan {
    /// One machine, untied, with the cache beside the lab's folder.
    pub fn new(folder: impl Into<PathBuf>, repository: impl Into<PathBuf>) -> Self {
        let folder = folder.into();
        let cache = folder.with_file_name("kernel");
        Self { folder, machines: 1, trees: vec![repository.into()], cache, tied: false }
    }
}

/// A lab that is up.
#[derive(Clone, Debug)]
pub struct Lab {
    folder: PathBuf,
    /// Its emulators, in the order of the machines.
    emulators: Vec<Process>,
}

/// Whether this machine can emulate others.
///
/// # Errors
/// The emulator is missing, with how to get it.
pub fn check() -> Result<()> {
    process::output("qemu-system-x86_64", &["--version"]).map(drop).map_err(|_| LabError::Missing {
        what: "the emulator qemu-system-x86_64".into(),
        way_out: "install the package qemu-system-x86 (cargo xtask setup)".into(),
    })
}

/// Brings a lab up, or finds it up already with the same number of machines: then the second value is false.
/// A lab of which a part has died is taken down and made anew.
///
/// # Errors
/// Something is missing, a lab of another size under this name, or a step that failed: then nothing is left of it.
pub fn up(plan: &Plan) -> Result<(Lab, bool)> {
    if plan.machines == 0 || plan.machines > MOST_MACHINES {
        return Err(LabError::HostCount { wanted: plan.machines, most: MOST_MACHINES });
    }
    if let Some(lab) = Lab::open(&plan.folder)? {
        if lab.is_whole() {
            if lab.emulators.len() == plan.machines {
                return Ok((lab, false));
            }
            let (kind, have) = ("vm", lab.emulators.len());
            return Err(LabError::OtherSize { kind, name: lab.name(), have, want: plan.machines });
        }
        lab.down()?;
    }
    check()?;
    remove_folder(&plan.folder)?;
    let mut lab = Lab { folder: plan.folder.clone(), emulators: Vec::new() };
    match lab.build(plan) {
        Ok(()) => Ok((lab, true)),
        Err(error) => {
            // The first failure is the one to report; `down` or the next `up` meets a second one again.
            let _ = lab.down();
            Err(error)
        }
    }
}

impl Lab {
    /// The lab whose folder this is, whole or not; `None` when nothing is recorded there.
    ///
    /// # Errors
    /// The state file cannot be read or is damaged.
    pub fn open(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join("state");
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Some(Self { folder: folder.to_owned(), emulators: emulators(&text, &path)? })),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(LabError::file(path)(error)),
        }
    }

    /// Its name: the last part of its folder.
    #[must_use]
    pub fn name(&self) -> String {
        name_of(&self.folder)
    }

    /// The hostfile for `rsrun` on the first machine.
    #[must_use]
    pub fn hostfile(&self) -> PathBuf {
        self.folder.join("hosts")
    }

    /// The machines, in order.
    #[must_use]
    pub fn machines(&self) -> Vec<Machine> {
        let machine = |(index, &process): (usize, &Process)| {
            let name = files::machine_name(index + 1);
            Machine { folder: self.folder.join(&name), name, address: files::address(index + 1), process }
        };
        self.emulators.iter().enumerate().map(machine).collect()
    }

    /// Whether every machine still runs and has come up.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let up = |machine: &Machine| machine.is_up() && machine.share().join("ready").exists();
        !self.emulators.is_empty() && self.machines().iter().all(up)
    }

    /// Ends the machines and removes the folder.
    ///
    /// # Errors
    /// An emulator survived for five seconds, or the folder cannot be removed.
    pub fn down(self) -> Result<()> {
        end(&self.emulators)?;
        remove_folder(&self.folder)
    }

    fn build(&mut self, plan: &Plan) -> Result<()> {
        fs::create_dir_all(&plan.folder).map_err(LabError::file(&plan.folder))?;
        let kernel = kernel::prepare(&plan.cache, &plan.folder)?;
        let write = |path: PathBuf, text: &str| fs::write(&path, text).map_err(LabError::file(path));
        let (key, host_key) = (plan.folder.join("id_ed25519"), plan.folder.join("host_key"));
        make_key(&key, &format!("lab {}", self.name()))?;
        make_key(&host_key, &format!("machines of lab {}", self.name()))?;
        let public = host_key.with_extension("pub");
        let public = fs::read_to_string(&public).map_err(LabError::file(public))?;
        write(plan.folder.join("known_hosts"), &files::known_hosts(plan.machines, &public))?;
        write(self.hostfile(), &files::hostfile(plan.machines))?;
        for number in 1..=plan.machines {
            let share = machine::share(&plan.folder.join(files::machine_name(number)));
            fs::create_dir_all(share.join("jobs")).map_err(LabError::file(&share))?;
            for name in ["id_ed25519", "id_ed25519.pub", "host_key", "host_key.pub", "known_hosts"] {
                let from = plan.folder.join(name);
                fs::copy(&from, share.join(name)).map_err(LabError::file(from))?;
            }
            write(share.join("machine.sh"), &files::variables(number, plan.machines, &plan.trees[0]))?;
            write(share.join("machine-main.sh"), MAIN)?;
            write(share.join("hosts-file"), &files::hosts_file(plan.machines))?;
            write(share.join("sshd_config"), files::SSHD_CONFIG)?;
            write(share.join("trees"), &plan.trees.iter().map(|tree| path_text(tree) + "\n").collect::<String>())?;
        }
        for number in 1..=plan.machines {
            self.emulators.push(machine::start(plan, &kernel, number)?.process);
            // After each: whoever is killed now leaves what the next `up` or `down` finds.
            write(plan.folder.join("state"), &state(&self.emulators))?;
            if number == 1 {
                self.machines()[0].wait_for_cables(plan.machines)?;
            }
        }
        self.machines().iter().try_for_each(Machine::wait)
    }
}

/// What a machine runs after its first program.
const MAIN: &str = include_str!("../../vm/machine-main.sh");

fn state(emulators: &[Process]) -> String {
    emulators.iter().fold(String::new(), |mut text, process| {
        let _ = writeln!(text, "machine {process}");
        text
    })
}

/// Reads what [`state`] wrote; `path` is for messages only.
fn emulators(text: &str, path: &Path) -> Result<Vec<Process>> {
    let read = |(index, line): (usize, &str)| {
        let wrong = || LabError::State { path: path.to_owned(), line: index + 1, text: line.to_owned() };
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["machine", pid, started] => from_words(pid, started).ok_or_else(wrong),
            _ => Err(wrong()),
        }
    };
    text.lines().enumerate().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_that_was_written_is_read_back_and_a_damaged_line_is_named() {
        let some = [Process { pid: 4, started: 9 }, Process { pid: 5, started: 10 }];
        assert_eq!(emulators(&state(&some), Path::new("state")).expect("it parses"), some);
        let error = emulators("machine 4 9\nmachine five 9\n", Path::new("x/state")).expect_err("a word for a number");
        assert!(error.to_string().contains("x/state:2"), "{error}");
    }
}
