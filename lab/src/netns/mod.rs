//! Hosts as network namespaces: each with its own host name, processes, `/etc`, `/tmp`, `/dev/shm`, `HOME` and sshd,
//! joined by a bridge, with one leg in the caller's network for the launcher.
//!
//! Nothing is registered with the system: namespaces live as long as the processes that hold them, so that ending
//! those few processes ends all. The caller needs the rights of root.

mod build;
mod files;
mod host;
mod limit;
mod state;

pub use files::SLOTS;
pub use host::Host;
pub use limit::Link;

use crate::folder::{name_of, remove_folder};
use crate::process::{self, Process, end};
use crate::{LabError, Result};
use state::State;
use std::path::{Path, PathBuf};

/// The most hosts of one lab: addresses .1 to .200 of its network; .254 is the caller's leg.
pub const MOST_HOSTS: usize = 200;

/// What to bring up.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The lab's folder, made by `up` and removed by `down`. Its last part is the lab's name.
    pub folder: PathBuf,
    /// How many hosts, 1 to [`MOST_HOSTS`].
    pub hosts: usize,
    /// Ranks that each host takes, for its hostfile line.
    pub slots: usize,
    /// Who logs in to the hosts, and owns the key for it.
    pub user: String,
    /// Folders that must be visible on the hosts although they may lie under `/tmp` or `/run`, which each host has of
    /// its own.
    pub keep: Vec<PathBuf>,
    /// Whether the hosts end when the calling thread ends, however it ends.
    pub tied: bool,
}

impl Plan {
    /// One host of [`SLOTS`] slots for root, with nothing kept visible and untied.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        let user = "root".to_owned();
        Self { folder: folder.into(), hosts: 1, slots: SLOTS, user, keep: Vec::new(), tied: false }
    }
}

/// A lab that is up.
#[derive(Clone, Debug)]
pub struct Lab {
    folder: PathBuf,
    state: State,
}

/// Whether the caller may make the namespaces that a lab needs.
///
/// # Errors
/// [`LabError::NoRights`] with what the system said.
pub fn check_rights() -> Result<()> {
    let trial = ["--net", "--mount", "--uts", "--ipc", "--pid", "--fork", "--mount-proc", "true"];
    if !rustix::process::geteuid().is_root() {
        return Err(LabError::NoRights { reason: "not root".into() });
    }
    process::output("unshare", &trial).map_err(|error| LabError::NoRights { reason: error.to_string() })?;
    Ok(())
}

/// Brings a lab up, or finds it up already with the same number of hosts: then the second value is false.
/// A lab of which a part has died is taken down and made anew.
///
/// # Errors
/// No rights, a lab of another size under this name, or a step that failed: then nothing is left of it.
pub fn up(plan: &Plan) -> Result<(Lab, bool)> {
    if plan.hosts == 0 || plan.hosts > MOST_HOSTS {
        return Err(LabError::HostCount { wanted: plan.hosts, most: MOST_HOSTS });
    }
    if let Some(lab) = Lab::open(&plan.folder)? {
        if lab.is_whole() {
            if lab.state.hosts.len() == plan.hosts && lab.state.user == plan.user {
                return Ok((lab, false));
            }
            let (kind, have) = ("netns", lab.state.hosts.len());
            return Err(LabError::OtherSize { kind, name: lab.name(), have, want: plan.hosts });
        }
        lab.down()?;
    }
    check_rights()?;
    let lab = build::build(plan)?;
    Ok((lab, true))
}

impl Lab {
    /// The lab whose folder this is, whole or not; `None` when nothing is recorded there.
    ///
    /// # Errors
    /// The state file cannot be read or is damaged.
    pub fn open(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join("state");
        match std::fs::read_to_string(&path) {
            Ok(text) => Ok(Some(Self { folder: folder.to_owned(), state: State::from_text(&text, &path)? })),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(LabError::file(path)(error)),
        }
    }

    /// Its name: the last part of its folder.
    #[must_use]
    pub fn name(&self) -> String {
        name_of(&self.folder)
    }

    /// Who logs in to its hosts.
    #[must_use]
    pub fn user(&self) -> &str {
        &self.state.user
    }

    /// The hostfile for `rsrun`.
    #[must_use]
    pub fn hostfile(&self) -> PathBuf {
        self.folder.join("hosts")
    }

    /// The `ssh_config` for people.
    #[must_use]
    pub fn ssh_config(&self) -> PathBuf {
        self.folder.join("ssh_config")
    }

    /// The caller's own address in the lab's network.
    #[must_use]
    pub fn own_address(&self) -> String {
        files::address(self.state.network, build::OWN_NUMBER)
    }

    /// The hosts, in order.
    #[must_use]
    pub fn hosts(&self) -> Vec<Host> {
        let state = &self.state;
        let host = |(index, &holder): (usize, &Process)| Host {
            name: files::host_name(index + 1),
            address: files::address(state.network, index + 1),
            user: state.user.clone(),
            lab: self.folder.clone(),
            holder,
        };
        state.hosts.iter().enumerate().map(host).collect()
    }

    /// Whether the switch and every host still run.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.state.switch.is_alive() && self.hosts().iter().all(Host::is_up)
    }

    /// Takes the lab down: processes, namespaces, the leg in the caller's network, and the folder.
    ///
    /// # Errors
    /// The caller lacks the rights, or something survived for five seconds.
    pub fn down(self) -> Result<()> {
        if !rustix::process::geteuid().is_root() {
            return Err(LabError::NoRights { reason: "not root".into() });
        }
        let mut all: Vec<Process> = self.state.hosts.clone();
        all.extend(self.hosts().iter().flat_map(Host::processes).map(|inside| inside.process));
        all.push(self.state.switch);
        end(&all)?;
        build::remove_leg(self.state.network)?;
        remove_folder(&self.folder)
    }
}

/// Removes what is left of a lab that never came up: a folder without a state. True if there was one.
///
/// # Errors
/// The folder cannot be removed.
pub fn remove_remains(folder: &Path) -> Result<bool> {
    if !folder.exists() {
        return Ok(false);
    }
    remove_folder(folder)?;
    Ok(true)
}
