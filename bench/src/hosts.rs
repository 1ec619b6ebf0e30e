//! The hosts of a hostfile as other launchers want them: their hostfiles, the way to connect, the network.
//!
//! Knows nothing of what is measured there.

use crate::port::Failure;
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Hosts as the other launchers want them.
#[derive(Clone, Debug)]
pub struct Hosts {
    /// The hostfile of rsrun.
    file: PathBuf,
    /// Theirs: `address:slots` and `address slots=N`.
    hydra: PathBuf,
    open_mpi: PathBuf,
    /// A program that is `ssh` with the right options.
    ssh: PathBuf,
    /// How many there are.
    count: usize,
    /// Our own address as these hosts see it, and the network that it is in.
    own_address: String,
    network: String,
}

impl Hosts {
    /// Reads a hostfile of `rsrun` and writes what the others need into `folder`.
    ///
    /// # Errors
    /// A file cannot be read or written, or the hostfile names no host with an IPv4 address.
    pub fn new(file: &Path, folder: &Path) -> Result<Self, Failure> {
        let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        let (mut hydra, mut open_mpi, mut first, mut count) = (String::new(), String::new(), None, 0);
        for line in text.lines().map(|line| line.split('#').next().unwrap_or_default()) {
            let mut words = line.split_whitespace();
            let Some(host) = words.next() else { continue };
            let slots = words.find_map(|word| word.strip_prefix("slots=")).unwrap_or("1");
            hydra += &format!("{host}:{slots}\n");
            open_mpi += &format!("{host} slots={slots}\n");
            first.get_or_insert(host);
            count += 1;
        }
        // Which address a packet to the first host would carry; nothing is sent.
        let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
        socket.connect((first.ok_or("the hostfile names no host")?, 22))?;
        let own_address = socket.local_addr()?.ip().to_string();
        let network = format!("{}.0/24", own_address.rsplit_once('.').ok_or("the hosts have no IPv4 addresses")?.0);
        let config = std::path::absolute(file.with_file_name("ssh_config"))?;
        let options = if config.is_file() { format!("-F '{}'", config.display()) } else { String::new() };
        let hosts = Self {
            file: file.into(),
            hydra: folder.join("hydra"),
            open_mpi: folder.join("open-mpi"),
            ssh: folder.join("ssh"),
            count,
            own_address,
            network,
        };
        std::fs::write(&hosts.hydra, hydra)?;
        std::fs::write(&hosts.open_mpi, open_mpi)?;
        std::fs::write(&hosts.ssh, format!("#!/bin/sh\nexec ssh {options} \"$@\"\n"))?;
        std::fs::set_permissions(&hosts.ssh, std::fs::Permissions::from_mode(0o755))?;
        Ok(hosts)
    }

    /// How many hosts there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// The hostfile of `rsrun`.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// What another launcher, `mpirun.openmpi` or one of the Hydra family, must be told to start ranks there.
    #[must_use]
    pub fn options(&self, hydra: bool) -> Vec<OsString> {
        let text = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        if hydra {
            let start = text(&["-launcher", "ssh", "-launcher-exec"]);
            let hosts = [text(&["-localhost", &self.own_address, "-f"]), vec![self.hydra.clone().into()]].concat();
            return [start, vec![self.ssh.clone().into()], hosts].concat();
        }
        let mut options = text(&["--mca", "plm_rsh_agent"]);
        options.push(self.ssh.clone().into());
        for interfaces in ["oob_tcp_if_include", "btl_tcp_if_include"] {
            options.extend(text(&["--mca", interfaces, &self.network]));
        }
        options.extend([OsString::from("--hostfile"), self.open_mpi.clone().into()]);
        options
    }
}
