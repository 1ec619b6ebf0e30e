//! The hosts that the tests share, and what must be true of them after each test.

use spmd_lab::netns::{self, Host, Lab, Plan};
use spmd_lab::process::{Inside, Process};
use spmd_lab::programs::{Outcome, Programs, processes_of, run};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// More than any test's program takes; a test fails when it is reached.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);
/// In this time everything on every host is gone after a job's end.
const GONE: Duration = Duration::from_secs(5);

pub(crate) struct Cluster {
    pub(crate) programs: Programs,
    pub(crate) lab: Lab,
    /// A folder of this machine that no host sees.
    pub(crate) private: PathBuf,
}

impl Cluster {
    pub(crate) fn up() -> Self {
        let programs = Programs::build(&[]);
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate is in a folder").to_owned();
        let target = programs.rsrun().parent().expect("programs are in a folder").to_owned();
        let user = std::env::var("SUDO_USER").unwrap_or_else(|_| "root".into());
        let keep = vec![root.clone(), target];
        let plan = Plan { hosts: 3, user, keep, tied: true, ..Plan::new(root.join("lab/state/test")) };
        let (lab, fresh) = netns::up(&plan).unwrap_or_else(|error| panic!("{error}"));
        assert!(fresh, "the hosts of another test run are up: end it first");
        let private = PathBuf::from(format!("/tmp/rsrun-cluster-test-{}", std::process::id()));
        std::fs::create_dir_all(&private).expect("a folder in /tmp");
        Self { programs, lab, private }
    }

    pub(crate) fn down(self) -> spmd_lab::Result<()> {
        // It may hold nothing but what tests put there, in a folder of this process's name.
        let _ = std::fs::remove_dir_all(&self.private);
        self.lab.down()
    }

    pub(crate) fn hosts(&self) -> Vec<Host> {
        self.lab.hosts()
    }

    /// A hostfile with this many slots on each host.
    pub(crate) fn hostfile(&self, slots: usize) -> String {
        let change = |line: &str| line.replace("slots=32", &format!("slots={slots}"));
        self.hostfile_of(&format!("hosts-{slots}"), change)
    }

    /// The lab's hostfile with each host's line changed. It lies beside the lab's own, so that keys are found.
    pub(crate) fn hostfile_of(&self, name: &str, change: impl Fn(&str) -> String) -> String {
        let text = std::fs::read_to_string(self.lab.hostfile()).expect("the lab has a hostfile");
        let lines = text.lines().filter(|line| !line.starts_with('#')).map(|line| change(line) + "\n");
        let path = self.lab.hostfile().with_file_name(name);
        std::fs::write(&path, lines.collect::<String>()).expect("the lab's folder can be written");
        path.display().to_string()
    }

    /// Runs `rsrun` with the lab's hostfile of this many slots a host.
    pub(crate) fn launch(&self, slots: usize, arguments: &[&str]) -> Outcome {
        run(&mut self.launcher(slots, arguments), LIMIT)
    }

    /// The command that [`Cluster::launch`] runs.
    pub(crate) fn launcher(&self, slots: usize, arguments: &[&str]) -> Command {
        let hostfile = self.hostfile(slots);
        self.programs.launch(&[&["-hostfile", &hostfile], arguments].concat())
    }

    pub(crate) fn example(&self, name: &str) -> String {
        self.programs.example(name).display().to_string()
    }

    /// Every process on every host but the hosts' own sshd.
    pub(crate) fn strangers(&self) -> Vec<(String, Inside)> {
        let of_host = |host: Host| {
            let name = host.name.clone();
            let processes = host.processes().into_iter().filter(|inside| inside.inner_pid != 1);
            processes.map(move |inside| (name.clone(), inside)).collect::<Vec<_>>()
        };
        self.hosts().into_iter().flat_map(of_host).collect()
    }

    /// The job's processes on this machine itself: launchers, and agents and ranks of the local host.
    fn local_processes(&self) -> Vec<(u32, String)> {
        let rsrun = self.programs.rsrun();
        let examples = ["hello", "pingpong", "train", "halo"].map(|name| self.programs.example(name));
        let programs: Vec<&Path> =
            std::iter::once(rsrun.as_path()).chain(examples.iter().map(PathBuf::as_path)).collect();
        processes_of(&programs)
    }

    /// Whatever a job left: processes, files in `/tmp` and `/dev/shm` of the hosts.
    fn remains(&self) -> String {
        let mut text = String::new();
        for (host, inside) in self.strangers() {
            let _ = writeln!(text, "{host}: process {} {}", inside.process.pid, inside.command);
        }
        for (pid, command) in self.local_processes() {
            let _ = writeln!(text, "this machine: process {pid} {command}");
        }
        for host in self.hosts() {
            for folder in ["tmp", "dev/shm"] {
                for entry in std::fs::read_dir(host.root().join(folder)).into_iter().flatten().flatten() {
                    // The repository itself may be there.
                    if !self.programs.rsrun().starts_with(Path::new("/").join(folder).join(entry.file_name())) {
                        let _ = writeln!(text, "{}: /{folder}/{}", host.name, entry.file_name().display());
                    }
                }
            }
        }
        text
    }

    /// Fails unless every host is as it was before the job, within seconds.
    pub(crate) fn expect_nothing_left(&self) {
        let deadline = Instant::now() + GONE;
        loop {
            let remains = self.remains();
            if remains.is_empty() {
                return;
            }
            assert!(Instant::now() < deadline, "left after {GONE:?}:\n{remains}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Ends what a failed test left, so that it does not make the next one fail.
    pub(crate) fn clear(&self) {
        for (_, inside) in self.strangers() {
            inside.process.kill();
        }
        for (pid, _) in self.local_processes() {
            if let Some(process) = Process::of(pid) {
                process.kill();
            }
        }
        for host in self.hosts() {
            let _ = host.set_stray_variables(&[]);
        }
    }
}

/// The lines of a launcher's standard error that are the launcher's own.
pub(crate) fn own_lines(outcome: &Outcome) -> Vec<&str> {
    // A machine with fewer cores than ranks is told, too.
    let own = |line: &&str| line.starts_with("rsrun: ") && !line.contains("waiting gives way");
    outcome.stderr.lines().filter(own).collect()
}
