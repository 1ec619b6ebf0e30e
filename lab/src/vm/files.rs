//! The texts that machines and their users read: hostfile, host names, what SSH needs. Text in, text out.

use std::fmt::Write as _;
use std::path::Path;

/// Ranks that each machine takes in the hostfile.
const SLOTS: usize = 4;

/// The address of machine `number` (from 1); of a single machine also its second device, number 2.
pub(super) fn address(number: usize) -> String {
    format!("10.88.0.{number}")
}

/// The name of machine `number` (from 1).
pub(super) fn machine_name(number: usize) -> String {
    format!("lab{number}")
}

/// How many addresses a lab has: a single machine has two devices.
pub(super) fn addresses(machines: usize) -> usize {
    machines.max(2)
}

/// The hostfile of a lab, for `rsrun` on its first machine.
pub(super) fn hostfile(machines: usize) -> String {
    let mut text = String::from("# Written by `cargo xtask lab vm up`, for use on its machines; gone with `down`\n");
    for number in 1..=machines {
        let address = address(number);
        let _ = writeln!(text, "{address} slots={SLOTS} user=root identity=id_ed25519 known_hosts=known_hosts");
    }
    text
}

/// The machines' `/etc/hosts`.
pub(super) fn hosts_file(machines: usize) -> String {
    let mut text = String::from("127.0.0.1 localhost\n");
    for number in 1..=addresses(machines) {
        let _ = writeln!(text, "{} {}", address(number), machine_name(number));
    }
    text
}

/// The `known_hosts` of a lab whose machines share one key.
pub(super) fn known_hosts(machines: usize, key: &str) -> String {
    // Type and key only: the comment names who made it.
    let key = key.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
    let line = |number| format!("{},{} {key}\n", machine_name(number), address(number));
    (1..=addresses(machines)).map(line).collect()
}

/// The `sshd_config` of every machine.
pub(super) const SSHD_CONFIG: &str = "\
HostKey /run/sshd/host_key
PidFile /run/sshd/pid
PermitRootLogin prohibit-password
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitUserRC no
PrintMotd no
UseDNS no
";

/// What a machine's scripts know of it, as shell variables.
pub(super) fn variables(number: usize, machines: usize, repository: &Path) -> String {
    format!("NUMBER={number}\nMACHINES={machines}\nREPOSITORY={}\n", quoted(&repository.display().to_string()))
}

/// One word for a shell.
pub(super) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_machine_has_a_line_in_the_hostfile_and_a_single_one_has_a_second_address() {
        let lines = |machines| hostfile(machines).lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!([lines(1), lines(2), lines(3)], [1, 2, 3]);
        let names = |machines| hosts_file(machines).lines().count() - 1;
        assert_eq!([names(1), names(2), names(3)], [2, 2, 3]);
        assert!(hostfile(3).contains("10.88.0.3 slots=4 user=root identity=id_ed25519 known_hosts=known_hosts\n"));
    }

    #[test]
    fn known_hosts_holds_names_addresses_and_the_key_without_its_comment() {
        assert_eq!(
            known_hosts(2, "ssh-ed25519 AAAA me@here\n"),
            "lab1,10.88.0.1 ssh-ed25519 AAAA\nlab2,10.88.0.2 ssh-ed25519 AAAA\n"
        );
    }

    #[test]
    fn a_path_with_a_quote_stays_one_word() {
        assert_eq!(variables(1, 2, Path::new("/a b/it's")), "NUMBER=1\nMACHINES=2\nREPOSITORY='/a b/it'\\''s'\n");
    }
}
