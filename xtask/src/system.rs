//! What this machine is and what the caller may do on it.

use crate::command::line;
use std::path::Path;
use std::process::{Command, Stdio};

/// How the caller can act as root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rights {
    Root,
    /// `sudo` that asks for no password.
    Sudo,
    None,
}

impl Rights {
    pub(crate) fn of_caller() -> Self {
        if rustix::process::geteuid().is_root() {
            Self::Root
        } else if quiet("sudo", &["-n", "true"]) {
            Self::Sudo
        } else {
            Self::None
        }
    }

    /// The command that runs `program` as root; `None` without the rights.
    pub(crate) fn command(self, program: &str, arguments: &[String]) -> Option<Command> {
        let mut command = match self {
            Self::Root => Command::new(program),
            Self::Sudo => {
                let mut sudo = Command::new("sudo");
                sudo.arg("-n").arg(program);
                sudo
            }
            Self::None => return None,
        };
        command.args(arguments);
        Some(command)
    }
}

/// The line for an administrator: the command through sudo.
pub(crate) fn for_administrator(program: &str, arguments: &[String]) -> String {
    let mut command = Command::new("sudo");
    command.arg(program).args(arguments);
    line(&command)
}

/// The user on whose behalf this runs: behind a `sudo`, the one who called it.
pub(crate) fn user() -> String {
    let behind = std::env::var("SUDO_USER").ok().filter(|_| rustix::process::geteuid().is_root());
    let own = || spmd_lab::process::output("id", &["-un"]).map(|name| name.trim().to_owned());
    behind.or_else(|| own().ok()).unwrap_or_else(|| "root".to_owned())
}

/// A family of Linux distributions that share package names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    Debian,
    Fedora,
    Arch,
    Suse,
    Other,
}

impl Family {
    pub(crate) fn of_this_machine() -> Self {
        let text = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
        Self::from_os_release(&text)
    }

    fn from_os_release(text: &str) -> Self {
        let field = |name: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
            value.unwrap_or_default().trim_matches(['"', '\'']).to_owned()
        };
        // The own name first, then what it says it is like, nearest first.
        let names = format!("{} {}", field("ID"), field("ID_LIKE"));
        names.split_whitespace().map(Self::from_name).find(|family| *family != Self::Other).unwrap_or(Self::Other)
    }

    fn from_name(name: &str) -> Self {
        match name {
            "debian" | "ubuntu" => Self::Debian,
            "fedora" | "rhel" | "centos" => Self::Fedora,
            "arch" => Self::Arch,
            name if name == "suse" || name.starts_with("opensuse") || name == "sles" => Self::Suse,
            _ => Self::Other,
        }
    }
}

/// Whether a command runs and exits with 0, its output thrown away.
pub(crate) fn quiet(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Whether a program of this name is in `PATH`.
pub(crate) fn has_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| Path::new(&folder).join(name).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_known_by_its_name_or_by_what_it_is_like() {
        for (text, family) in [
            ("PRETTY_NAME=\"Debian GNU/Linux 12\"\nID=debian\n", Family::Debian),
            ("ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n", Family::Debian),
            ("ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n", Family::Fedora),
            ("ID=manjaro\nID_LIKE=arch\n", Family::Arch),
            ("ID=\"opensuse-tumbleweed\"\nID_LIKE=\"opensuse suse\"\n", Family::Suse),
            ("ID=alpine\n", Family::Other),
            ("", Family::Other),
        ] {
            assert_eq!(Family::from_os_release(text), family, "{text}");
        }
    }
}
