//! One host of a lab that is up, as a test sees it from outside: its files, its processes, its sshd.

use super::files;
use crate::process::{self, Inside, Process};
use crate::{LabError, Result};
use std::path::PathBuf;
use std::process::Command;

/// One host of a lab.
#[derive(Clone, Debug)]
pub struct Host {
    /// Its host name, `node1` and so on.
    pub name: String,
    /// Its address in the lab's network.
    pub address: String,
    pub(super) user: String,
    pub(super) lab: PathBuf,
    pub(super) holder: Process,
}

impl Host {
    /// Whether the host runs.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.holder.is_alive()
    }

    /// Everything that runs on the host, its sshd included.
    #[must_use]
    pub fn processes(&self) -> Vec<Inside> {
        if !self.is_up() {
            return Vec::new();
        }
        process::in_namespace(&PathBuf::from(format!("/proc/{}/ns/pid_for_children", self.holder.pid)))
    }

    /// The host's file system as seen from outside: `root().join("tmp")` is its `/tmp`.
    #[must_use]
    pub fn root(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root", self.holder.pid))
    }

    /// The folder that is `HOME` for whoever logs in to the host.
    #[must_use]
    pub fn home(&self) -> PathBuf {
        self.folder().join("home")
    }

    /// What its sshd wrote.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.folder().join("log")
    }

    /// Has the host's sshd set these variables for every later login, as a careless administrator would; none to end
    /// it.
    ///
    /// # Errors
    /// The configuration cannot be written, or sshd does not run.
    pub fn set_stray_variables(&self, variables: &[(String, String)]) -> Result<()> {
        let text = files::sshd_config(&self.address, &self.lab, &self.folder(), &self.user, variables);
        let path = self.folder().join("sshd_config");
        std::fs::write(&path, text).map_err(LabError::file(path))?;
        self.first()?.signal(rustix::process::Signal::HUP);
        // It reads its configuration anew by executing itself; the port is closed for a moment.
        std::thread::sleep(std::time::Duration::from_millis(100));
        super::build::wait_for_port(self)
    }

    /// Runs a command of this machine's in the host's network, as `ip route add blackhole …`.
    ///
    /// # Errors
    /// It failed, or the caller lacks the rights.
    pub fn in_network(&self, program: &str, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.holder.pid)).arg(program).args(arguments);
        process::run(&mut command, "")
    }

    /// A program to run on the host from outside, without SSH.
    ///
    /// # Errors
    /// The host is gone.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Result<Command> {
        let mut command = Command::new("nsenter");
        command.args(["--mount", "--uts", "--ipc", "--net", "--pid", "--root", "--wd", "--target"]);
        command.arg(self.first()?.pid.to_string()).arg("--").arg(program);
        Ok(command)
    }

    /// The host's first process: its sshd.
    fn first(&self) -> Result<Process> {
        let first = self.processes().into_iter().find(|inside| inside.inner_pid == 1);
        let gone = || LabError::Host { host: self.name.clone(), reason: "its sshd is gone".into(), log: String::new() };
        Ok(first.ok_or_else(gone)?.process)
    }

    pub(super) fn folder(&self) -> PathBuf {
        self.lab.join(&self.name)
    }
}
