//! What the user's SSH configuration says about one host.
//!
//! The configuration language (`Match`, `Include`, tokens …) is OpenSSH's own: its `ssh -G host` is asked, and the
//! answer decides whether the built-in client can do what is configured or the user's `ssh` must be run.

use super::SshClient;
use super::command::ssh_exists;
use crate::exit::{ExitCode, Failure};
use crate::hosts::HostSpec;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// How one host is reached by SSH.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SshHost {
    /// The name or address to connect to.
    pub(super) address: String,
    /// The SSH port.
    pub(super) port: u16,
    /// The user to log in as.
    pub(super) user: String,
    /// The name under which the host's key is known.
    pub(super) known_as: String,
    /// Private keys to try, after those of the agent.
    pub(super) identity_files: Vec<PathBuf>,
    /// Files with host keys: the user's.
    pub(super) user_known_hosts: Vec<PathBuf>,
    /// Files with host keys: the machine's.
    pub(super) global_known_hosts: Vec<PathBuf>,
    /// Whether keys of the SSH agent may be tried.
    pub(super) use_agent: bool,
    /// Why only the `ssh` command can do it, if so.
    pub(super) needs_command: Option<String>,
    /// Options for the `ssh` command when `HOME` is not the home that `ssh` would use.
    pub(super) extra_options: Vec<OsString>,
}

/// A reason to need the `ssh` command that a key named in the hostfile takes away.
const IDENTITIES_ONLY: &str = "identitiesonly yes";

/// Where the user's files are: `ssh` looks in the home of the password database and ignores `HOME`. When the two
/// differ, `HOME` counts here, and `ssh` is told so.
struct Homes {
    home: PathBuf,
    of_ssh: PathBuf,
}

impl Homes {
    fn find() -> Self {
        let uid = rustix::process::getuid().as_raw().to_string();
        let database = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        let entry =
            database.lines().map(|l| l.split(':').collect::<Vec<_>>()).find(|f| f.get(2) == Some(&uid.as_str()));
        let of_ssh = entry.and_then(|fields| fields.get(5).map(PathBuf::from));
        let home = std::env::var_os("HOME").filter(|h| !h.is_empty()).map(PathBuf::from);
        let home = home.or_else(|| of_ssh.clone()).unwrap_or_else(|| PathBuf::from("/"));
        Self { of_ssh: of_ssh.unwrap_or_else(|| home.clone()), home }
    }

    fn differ(&self) -> bool {
        self.home != self.of_ssh
    }

    /// A path that `ssh` printed, in the home that counts.
    fn path(&self, text: &str) -> PathBuf {
        if let Some(rest) = text.strip_prefix("~/") {
            return self.home.join(rest);
        }
        match Path::new(text).strip_prefix(self.of_ssh.join(".ssh")) {
            Ok(rest) if self.differ() => self.home.join(".ssh").join(rest),
            _ => PathBuf::from(text),
        }
    }
}

/// Finds out how `spec` is reached.
pub(super) fn lookup(spec: &HostSpec, client: SshClient) -> Result<SshHost, Failure> {
    if let Some(file) = spec.identity.as_ref().filter(|file| !file.exists()) {
        let message =
            format!("host {}: the identity file {} ({}) does not exist", spec.name, file.display(), spec.place);
        return Err(Failure::new(ExitCode::Unreachable, message));
    }
    let homes = Homes::find();
    let mut file_option = Vec::new();
    let mut host = if client == SshClient::Command && !homes.differ() {
        // `ssh` reads its configuration by itself.
        SshHost { identity_files: Vec::new(), user_known_hosts: Vec::new(), ..defaults(spec, &homes) }
    } else {
        configured(spec, client, &homes, &mut file_option)?
    };
    if let Some(file) = &spec.identity {
        host.identity_files = vec![file.clone()];
        host.use_agent = false;
        host.needs_command.take_if(|why| why == IDENTITIES_ONLY);
    }
    if let Some(file) = &spec.known_hosts {
        host.user_known_hosts = vec![file.clone()];
        host.global_known_hosts = Vec::new();
    }
    let own_files = homes.differ() || spec.known_hosts.is_some();
    host.extra_options = file_option;
    let mut option = |text: String| host.extra_options.extend([OsString::from("-o"), text.into()]);
    if own_files && !host.user_known_hosts.is_empty() {
        let files: Vec<String> = host.user_known_hosts.iter().map(|p| format!("\"{}\"", p.display())).collect();
        option(format!("UserKnownHostsFile={}", files.join(" ")));
    }
    if spec.known_hosts.is_some() {
        option("GlobalKnownHostsFile=none".to_string());
    }
    if spec.identity.is_some() {
        option("IdentitiesOnly=yes".to_string());
    }
    if homes.differ() || spec.identity.is_some() {
        for file in host.identity_files.iter().filter(|f| f.exists()) {
            host.extra_options.extend([OsString::from("-i"), file.clone().into_os_string()]);
        }
    }
    Ok(host)
}

/// Asks `ssh` for the user's configuration. `file_option` gets what makes `ssh` read that of `HOME`.
fn configured(
    spec: &HostSpec,
    client: SshClient,
    homes: &Homes,
    file_option: &mut Vec<OsString>,
) -> Result<SshHost, Failure> {
    let config = homes.home.join(".ssh/config");
    if !ssh_exists() {
        if config.exists() && client == SshClient::Auto {
            return Err(Failure::new(
                ExitCode::Unreachable,
                format!(
                    "host {}: {} exists, but there is no ssh command to read it: install one, or ignore the file with \
                     --set launch.ssh=builtin",
                    spec.name,
                    config.display()
                ),
            ));
        }
        return Ok(defaults(spec, homes));
    }
    let mut ssh = Command::new("ssh");
    ssh.arg("-G");
    if homes.differ() {
        let file = if config.exists() { config.into_os_string() } else { OsString::from("none") };
        *file_option = vec![OsString::from("-F"), file];
        ssh.args(&*file_option);
    }
    if let Some(user) = &spec.user {
        ssh.args(["-l", user]);
    }
    if let Some(port) = spec.port {
        ssh.arg("-p").arg(port.to_string());
    }
    ssh.arg("--").arg(&spec.name).stdin(Stdio::null());
    crate::sys::prepare_child(&mut ssh, None, true);
    let failed = |reason: String| {
        Failure::new(ExitCode::Unreachable, format!("host {}: `ssh -G {}` failed: {reason}", spec.name, spec.name))
    };
    let output = ssh.output().map_err(|e| failed(e.to_string()))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim().replace('\n', " | ")));
    }
    Ok(parse(&String::from_utf8_lossy(&output.stdout), spec, homes))
}

/// What holds when there is no configuration.
fn defaults(spec: &HostSpec, homes: &Homes) -> SshHost {
    let user = std::env::var("LOGNAME").or_else(|_| std::env::var("USER")).unwrap_or_else(|_| "root".to_string());
    let ssh = homes.home.join(".ssh");
    SshHost {
        address: spec.name.clone(),
        port: spec.port.unwrap_or(22),
        user: spec.user.clone().unwrap_or(user),
        known_as: spec.name.clone(),
        identity_files: ["id_ed25519", "id_ecdsa", "id_rsa"].map(|name| ssh.join(name)).to_vec(),
        user_known_hosts: vec![ssh.join("known_hosts"), ssh.join("known_hosts2")],
        global_known_hosts: vec!["/etc/ssh/ssh_known_hosts".into()],
        use_agent: true,
        needs_command: None,
        extra_options: Vec::new(),
    }
}

/// Reads what `ssh -G` printed: lower-case keyword, blank, value.
fn parse(text: &str, spec: &HostSpec, homes: &Homes) -> SshHost {
    let mut host = SshHost {
        identity_files: Vec::new(),
        user_known_hosts: Vec::new(),
        global_known_hosts: Vec::new(),
        ..defaults(spec, homes)
    };
    let files = |value: &str| -> Vec<PathBuf> {
        value.split_whitespace().filter(|p| *p != "none").map(|p| homes.path(p)).collect()
    };
    let mut alias = None;
    let mut identities_only = false;
    for line in text.lines() {
        let (key, value) = line.split_once(' ').unwrap_or((line, ""));
        let needs = |host: &mut SshHost| {
            host.needs_command.get_or_insert_with(|| format!("{key} {value}"));
        };
        match (key, value) {
            ("hostname", value) => host.address = value.to_string(),
            ("user", value) => host.user = value.to_string(),
            ("port", value) => host.port = value.parse().unwrap_or(22),
            ("hostkeyalias", value) => alias = Some(value.to_string()),
            ("identityfile", value) => host.identity_files.push(homes.path(value)),
            ("userknownhostsfile", value) => host.user_known_hosts = files(value),
            ("globalknownhostsfile", value) => host.global_known_hosts = files(value),
            ("identitiesonly", "yes") => identities_only = true,
            ("identityagent", "none") => host.use_agent = false,
            ("identityagent", "SSH_AUTH_SOCK")
            | ("proxyjump" | "proxycommand" | "knownhostscommand" | "certificatefile" | "pkcs11provider", "none")
            | ("stricthostkeychecking", "ask" | "true" | "yes")
            | ("addressfamily", "any")
            | ("canonicalizehostname", "false" | "none" | "no")
            | ("pubkeyauthentication", "true" | "yes" | "unbound" | "host-bound") => {}
            (
                "proxyjump"
                | "proxycommand"
                | "knownhostscommand"
                | "certificatefile"
                | "pkcs11provider"
                | "identityagent"
                | "stricthostkeychecking"
                | "addressfamily"
                | "canonicalizehostname"
                | "pubkeyauthentication"
                | "bindaddress"
                | "bindinterface"
                | "preferredauthentications",
                _,
            ) => needs(&mut host),
            _ => {}
        }
    }
    host.known_as = alias.unwrap_or_else(|| host.address.clone());
    if identities_only {
        // The agent may hold the key of a listed file that needs a passphrase: only `ssh` tells which.
        host.use_agent = false;
        if std::env::var_os("SSH_AUTH_SOCK").is_some() {
            host.needs_command.get_or_insert_with(|| IDENTITIES_ONLY.to_string());
        }
    }
    host
}

#[cfg(test)]
mod tests {
    use super::*;

    fn homes(home: &str) -> Homes {
        Homes { home: home.into(), of_ssh: "/home/ann".into() }
    }

    fn spec() -> HostSpec {
        HostSpec { name: "n1".into(), ..HostSpec::this_machine() }
    }

    const PLAIN: &str = "host n1\nuser ann\nhostname 10.0.0.1\nport 2222\naddressfamily any\nstricthostkeychecking ask\n\
        canonicalizehostname false\npubkeyauthentication true\nidentitiesonly no\nidentityfile ~/.ssh/id_a\n\
        identityfile /keys/b\nuserknownhostsfile /home/ann/.ssh/known_hosts /x\nglobalknownhostsfile /etc/k\n";

    #[test]
    fn a_plain_configuration_is_for_the_built_in_client() {
        let host = parse(PLAIN, &spec(), &homes("/home/ann"));
        assert_eq!((host.address.as_str(), host.port, host.user.as_str()), ("10.0.0.1", 2222, "ann"));
        assert_eq!(host.identity_files, [PathBuf::from("/home/ann/.ssh/id_a"), "/keys/b".into()]);
        assert_eq!(host.user_known_hosts, [PathBuf::from("/home/ann/.ssh/known_hosts"), "/x".into()]);
        assert_eq!(host.global_known_hosts, [PathBuf::from("/etc/k")]);
        assert_eq!(host.needs_command, None);
        assert_eq!(host.known_as, "10.0.0.1");
    }

    #[test]
    fn another_home_moves_the_users_files_only() {
        let host = parse(PLAIN, &spec(), &homes("/tmp/h"));
        assert_eq!(host.identity_files, [PathBuf::from("/tmp/h/.ssh/id_a"), "/keys/b".into()]);
        assert_eq!(host.user_known_hosts, [PathBuf::from("/tmp/h/.ssh/known_hosts"), "/x".into()]);
    }

    #[test]
    fn what_the_built_in_client_cannot_do_needs_the_command() {
        for line in [
            "proxyjump gate",
            "proxycommand nc %h %p",
            "certificatefile ~/.ssh/c",
            "stricthostkeychecking accept-new",
            "stricthostkeychecking false",
            "addressfamily inet6",
            "bindaddress 10.0.0.9",
            "identityagent /run/agent",
            "pubkeyauthentication false",
        ] {
            let host = parse(&format!("{PLAIN}{line}\n"), &spec(), &homes("/home/ann"));
            assert_eq!(host.needs_command.as_deref(), Some(line));
        }
        for line in ["proxyjump none", "identityagent none", "hashknownhosts yes"] {
            assert_eq!(parse(&format!("{PLAIN}{line}\n"), &spec(), &homes("/home/ann")).needs_command, None, "{line}");
        }
    }
}
