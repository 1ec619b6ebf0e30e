//! The texts a lab writes: the hostfile, what SSH needs on both sides. Text in, text out.

use super::Plan;
use std::fmt::Write as _;
use std::path::Path;

/// Ranks a host takes unless told otherwise.
pub const SLOTS: usize = 32;

/// The address of host `number` (from 1) in the lab's network.
#[must_use]
pub(super) fn address(network: u8, number: usize) -> String {
    format!("10.77.{network}.{number}")
}

/// The name of host `number` (from 1).
#[must_use]
pub(super) fn host_name(number: usize) -> String {
    format!("node{number}")
}

/// The hostfile of a lab. Key and host keys are named relative to the hostfile, so that the command line needs nothing
/// but `-hostfile`.
pub(super) fn hostfile(plan: &Plan, network: u8) -> String {
    let Plan { hosts, slots, user, .. } = plan;
    let mut text =
        format!("# {hosts} hosts on this machine; written by `cargo xtask lab netns up`, gone with `down`\n");
    for number in 1..=*hosts {
        // Two racks, so that what looks at groups has something to see.
        let rack = (number - 1) * 2 / hosts.max(&2);
        let address = address(network, number);
        let _ = writeln!(
            text,
            "{address} slots={slots} group=rack{rack} user={user} identity=id_ed25519 known_hosts=known_hosts"
        );
    }
    text
}

/// The `known_hosts` of a lab; `keys` are the hosts' public keys in order.
pub(super) fn known_hosts(network: u8, keys: &[String]) -> String {
    let mut text = String::new();
    for (index, key) in keys.iter().enumerate() {
        // Type and key only: the comment names who made it.
        let key = key.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
        let _ = writeln!(text, "{} {key}", address(network, index + 1));
    }
    text
}

/// An `ssh_config` for people: `ssh -F … node1`.
pub(super) fn ssh_config(network: u8, hosts: usize, user: &str, folder: &Path) -> String {
    let folder = folder.display();
    let mut text = String::new();
    for number in 1..=hosts {
        let _ = writeln!(
            text,
            "Host {}\n    HostName {}\n    HostKeyAlias {1}",
            host_name(number),
            address(network, number)
        );
    }
    let _ = write!(
        text,
        "Host *\n    User {user}\n    IdentityFile \"{folder}/id_ed25519\"\n    IdentitiesOnly yes\n    \
         UserKnownHostsFile \"{folder}/known_hosts\"\n    GlobalKnownHostsFile none\n    BatchMode yes\n"
    );
    text
}

/// The `sshd_config` of one host, whose folder is `folder` within the lab's folder `lab`.
///
/// The host takes no variable from a client, and its `HOME` is a folder of its own, so that shell profiles and
/// configuration files can differ between hosts. `stray` adds variables, as a careless administrator would.
pub(super) fn sshd_config(address: &str, lab: &Path, folder: &Path, user: &str, stray: &[(String, String)]) -> String {
    let (lab, folder) = (lab.display(), folder.display());
    let mut variables = format!("HOME=\"{folder}/home\"");
    for (name, value) in stray {
        let _ = write!(variables, " {name}=\"{value}\"");
    }
    format!(
        "ListenAddress {address}:22\nHostKey \"{folder}/ssh_host_ed25519_key\"\nPidFile none\n\
         AuthorizedKeysFile \"{lab}/authorized_keys\"\nAllowUsers {user}\nPermitRootLogin prohibit-password\n\
         StrictModes no\nUsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n\
         PermitUserRC no\nPermitUserEnvironment no\nPrintMotd no\nUseDNS no\nX11Forwarding no\n\
         SetEnv {variables}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostfile_names_address_slots_rack_and_keys_on_each_line() {
        let plan = Plan { hosts: 3, user: "ada".into(), ..Plan::new("lab/state/netns") };
        let text = hostfile(&plan, 0);
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(lines[0], "10.77.0.1 slots=32 group=rack0 user=ada identity=id_ed25519 known_hosts=known_hosts");
        assert!(lines[2].starts_with("10.77.0.3 ") && lines[2].contains("group=rack1"), "{}", lines[2]);
    }

    #[test]
    fn known_hosts_holds_type_and_key_without_the_comment() {
        let keys = ["ssh-ed25519 AAAA root@here\n".to_owned(), "ssh-ed25519 BBBB".to_owned()];
        assert_eq!(known_hosts(7, &keys), "10.77.7.1 ssh-ed25519 AAAA\n10.77.7.2 ssh-ed25519 BBBB\n");
    }

    #[test]
    fn a_stray_variable_stands_beside_the_home_in_one_setenv_line() {
        // sshd takes the first SetEnv line only: a second one would be ignored.
        let stray = [("RSRUN_SHM_RING_BYTES".to_owned(), "4096".to_owned())];
        let text = sshd_config("10.77.0.1", Path::new("/lab"), Path::new("/lab/node1"), "ada", &stray);
        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("SetEnv")).collect();
        assert_eq!(lines, ["SetEnv HOME=\"/lab/node1/home\" RSRUN_SHM_RING_BYTES=\"4096\""]);
    }
}
