//! Other libraries on this machine: one table, with the launcher and the settings that serve each of them best.
//!
//! To add one: an entry here, and one in `xtask/src/peers.rs`, which builds `rsbench-mpi` against it. Knows nothing of
//! what is measured.

use crate::hosts::Hosts;
use crate::measure::Transport;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The name of the program that `cargo xtask peers setup` builds for each peer.
const PROGRAM: &str = "rsbench-mpi";

/// A library and how it is started.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is.
    pub about: &'static str,
    /// Its launcher: a program in `PATH`, or one in the peer's Python environment.
    launcher: Launcher,
    family: Family,
}

#[derive(Clone, Copy, Debug)]
enum Launcher {
    InPath(&'static str),
    InPython(&'static str),
}

/// Launchers and libraries that take the same options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    /// Open MPI, with the name of its transport for shared memory.
    OpenMpi(&'static str),
    Mpich,
    Intel,
}

/// All peers that are known.
#[rustfmt::skip]
pub const PEERS: &[Peer] = &[
    Peer { name: "openmpi", about: "the distribution's Open MPI", launcher: Launcher::InPath("mpirun.openmpi"), family: Family::OpenMpi("vader") },
    Peer { name: "mpich", about: "the distribution's MPICH", launcher: Launcher::InPath("mpiexec.mpich"), family: Family::Mpich },
    Peer { name: "openmpi5", about: "Open MPI 5, the Python package openmpi", launcher: Launcher::InPython("mpirun"), family: Family::OpenMpi("sm") },
    Peer { name: "mpich5", about: "MPICH 5, the Python package mpich", launcher: Launcher::InPython("mpiexec"), family: Family::Mpich },
    Peer { name: "intel", about: "Intel MPI, the Python packages impi-rt and impi-devel", launcher: Launcher::InPython("mpiexec.hydra"), family: Family::Intel },
];

/// Where `cargo xtask peers setup` puts peers: beside the folder of this program (`target/release` → `target/peers`).
#[must_use]
pub fn default_folder() -> PathBuf {
    let exe = std::env::current_exe().unwrap_or_default();
    exe.ancestors().nth(2).unwrap_or(Path::new(".")).join("peers")
}

/// A peer that can be started.
#[derive(Clone, Debug)]
pub struct Installed {
    /// The peer.
    pub peer: Peer,
    launcher: PathBuf,
    program: PathBuf,
    /// Its Python environment, if it lives in one.
    python: PathBuf,
}

impl Peer {
    /// Finds it in the folder of the peers.
    ///
    /// # Errors
    /// What is missing.
    pub fn find(self, folder: &Path) -> Result<Installed, String> {
        let own = folder.join(self.name);
        let python = own.join("python");
        let launcher = match self.launcher {
            Launcher::InPath(name) => in_path(name).ok_or_else(|| format!("no {name} in PATH")),
            Launcher::InPython(name) => Some(python.join("bin").join(name))
                .filter(|path| path.is_file())
                .ok_or_else(|| format!("no {}", python.join("bin").join(name).display())),
        }?;
        let program = own.join(PROGRAM);
        if !program.is_file() {
            return Err(format!("no {}", program.display()));
        }
        Ok(Installed { peer: self, launcher, program, python })
    }
}

/// Where the ranks of a peer run and what joins them.
#[derive(Clone, Copy, Debug)]
pub struct Start<'a> {
    /// How many.
    pub ranks: usize,
    /// Each on a core of its own, in order; otherwise the kernel places them.
    pub bound: bool,
    /// What joins them.
    pub transport: Transport,
    /// Other hosts than this one.
    pub hosts: Option<&'a Hosts>,
}

impl Installed {
    /// The command that runs the peer's program with these arguments.
    #[must_use]
    pub fn command(&self, start: Start<'_>, arguments: &[OsString]) -> Command {
        let mut command = Command::new(&self.launcher);
        command.args(["-n", &start.ranks.to_string()]);
        command.args(self.options(start)).arg(&self.program).args(arguments);
        let settings = self.settings(start);
        command.envs(&settings);
        // What the caller has set for another MPI.
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            let foreign = ["OMPI_", "PMIX_", "PRTE_", "I_MPI_", "MPIR_CVAR_", "UCX_", "FI_", "HYDRA_"];
            if foreign.iter().any(|prefix| text.starts_with(prefix)) && !settings.contains_key(&*text) {
                command.env_remove(&name);
            }
        }
        command
    }

    /// Options of its launcher.
    #[must_use]
    pub fn options(&self, start: Start<'_>) -> Vec<OsString> {
        let mut options = match self.peer.family {
            Family::OpenMpi(shared) => {
                let mut options = vec!["--allow-run-as-root"];
                // `ob1` rather than UCX, which is slower on both here.
                options.extend(["--mca", "pml", "ob1", "--mca", "btl"]);
                match start.transport {
                    Transport::Shm => options.push(if shared == "sm" { "self,sm" } else { "self,vader" }),
                    Transport::Tcp => options.push("self,tcp"),
                }
                if start.transport == Transport::Tcp && start.hosts.is_none() {
                    options.extend(["--mca", "btl_tcp_if_include", "lo"]);
                }
                options.extend(if start.bound {
                    ["--map-by", "core", "--bind-to", "core"].as_slice()
                } else {
                    ["--oversubscribe", "--bind-to", "none"].as_slice()
                });
                options
            }
            Family::Mpich if start.bound => vec!["-bind-to", "core"],
            Family::Mpich | Family::Intel => vec![],
        }
        .into_iter()
        .map(OsString::from)
        .collect::<Vec<_>>();
        if let Some(hosts) = start.hosts {
            options.extend(hosts.options(!matches!(self.peer.family, Family::OpenMpi(_))));
        }
        options
    }

    /// Settings in its environment.
    #[must_use]
    pub fn settings(&self, start: Start<'_>) -> BTreeMap<String, String> {
        let mut settings = Vec::new();
        match self.peer.family {
            Family::OpenMpi(_) => {}
            Family::Mpich if start.transport == Transport::Tcp => {
                // Neither of its transports within a host, by whichever of the two libraries it was built with.
                settings.extend([("MPIR_CVAR_NOLOCAL", "1"), ("UCX_TLS", "self,tcp")]);
                settings.extend([("FI_PROVIDER", "tcp"), ("MPIR_CVAR_CH4_NETMOD", "ofi")]);
                if start.hosts.is_none() {
                    settings.extend([("UCX_NET_DEVICES", "lo"), ("FI_TCP_IFACE", "lo")]);
                }
            }
            Family::Mpich => {}
            Family::Intel => {
                settings.extend(match start.transport {
                    Transport::Shm => [("I_MPI_FABRICS", "shm"), ("FI_PROVIDER", "shm"), ("FI_SHM_DISABLE_CMA", "0")],
                    Transport::Tcp => [("I_MPI_FABRICS", "ofi"), ("FI_PROVIDER", "tcp"), ("FI_TCP_IFACE", "lo")],
                });
                if start.hosts.is_some() {
                    settings.retain(|(name, _)| *name != "FI_TCP_IFACE");
                }
                settings.push(if start.bound { ("I_MPI_PIN_DOMAIN", "core") } else { ("I_MPI_PIN", "off") });
            }
        }
        let mut settings: BTreeMap<String, String> =
            settings.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let lib = self.python.join("lib").display().to_string();
        if self.peer.family == Family::Intel {
            settings.insert("I_MPI_ROOT".into(), self.python.display().to_string());
            settings.insert("FI_PROVIDER_PATH".into(), lib.clone());
        }
        if matches!(self.peer.launcher, Launcher::InPython(_)) {
            settings.insert("LD_LIBRARY_PATH".into(), lib);
        }
        settings
    }
}

/// A program in `PATH`.
fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|program| program.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn installed(name: &str) -> Installed {
        let peer = *PEERS.iter().find(|peer| peer.name == name).expect("it is known");
        Installed { peer, launcher: "mpirun".into(), program: "/p/rsbench-mpi".into(), python: "/p/python".into() }
    }

    fn start(ranks: usize, bound: bool, transport: Transport) -> Start<'static> {
        Start { ranks, bound, transport, hosts: None }
    }

    fn line(command: &Command) -> String {
        command.get_args().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn each_peer_binds_its_ranks_and_takes_the_transport_that_was_asked_for() {
        let open = line(&installed("openmpi").command(start(2, true, Transport::Shm), &["plan".into()]));
        assert!(open.starts_with("-n 2 ") && open.ends_with("--bind-to core /p/rsbench-mpi plan"), "{open}");
        assert!(open.contains("self,vader"));
        let five = line(&installed("openmpi5").command(start(2, true, Transport::Tcp), &[]));
        assert!(five.contains("self,tcp --mca btl_tcp_if_include lo"), "{five}");
        let mpich = line(&installed("mpich").command(start(2, true, Transport::Shm), &[]));
        assert_eq!(mpich, "-n 2 -bind-to core /p/rsbench-mpi");
        let intel = installed("intel").settings(start(2, true, Transport::Tcp));
        assert_eq!(intel.get("FI_PROVIDER").map(String::as_str), Some("tcp"));
        assert_eq!(intel.get("I_MPI_PIN_DOMAIN").map(String::as_str), Some("core"));
        assert_eq!(intel.get("I_MPI_ROOT").map(String::as_str), Some("/p/python"));
    }

    #[test]
    fn more_ranks_than_cores_are_bound_nowhere() {
        assert!(
            line(&installed("openmpi").command(start(32, false, Transport::Shm), &[]))
                .contains("--oversubscribe --bind-to none")
        );
        assert!(!line(&installed("mpich5").command(start(32, false, Transport::Shm), &[])).contains("bind"));
        assert_eq!(
            installed("intel").settings(start(32, false, Transport::Shm)).get("I_MPI_PIN").map(String::as_str),
            Some("off")
        );
    }

    #[test]
    fn on_other_hosts_no_loopback_is_chosen_and_their_files_are_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("hosts");
        std::fs::write(&file, "127.0.0.1 slots=1 # here\n\n127.0.0.2\n").expect("it is written");
        let hosts = Hosts::new(&file, folder.path()).expect("they have addresses");
        let start = Start { hosts: Some(&hosts), ..start(2, false, Transport::Tcp) };
        let open = line(&installed("openmpi").command(start, &[]));
        assert!(open.contains("btl_tcp_if_include 127.0.0.0/24") && !open.contains(" lo "), "{open}");
        assert!(open.contains("--hostfile "), "{open}");
        let hydra = line(&installed("mpich").command(start, &[]));
        assert!(hydra.contains("-launcher ssh") && !hydra.contains("--hostfile"), "{hydra}");
        assert!(!installed("mpich").settings(start).contains_key("UCX_NET_DEVICES"));
    }

    #[test]
    fn what_is_not_installed_says_what_is_missing() {
        let folder = tempfile::tempdir().expect("a folder");
        let peer = PEERS.iter().find(|peer| peer.name == "intel").expect("it is known");
        let error = peer.find(folder.path()).expect_err("nothing is there");
        assert!(error.starts_with("no ") && error.ends_with("intel/python/bin/mpiexec.hydra"), "{error}");
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = PEERS.iter().map(|peer| peer.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), PEERS.len());
    }
}
