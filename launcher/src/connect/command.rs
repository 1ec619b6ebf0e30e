//! The commands that start an agent: directly, with the user's `ssh`, or with any other command.
//!
//! Only builds commands. Nothing secret and no setting is ever part of one: what an agent must know it reads from its
//! standard input.

use super::How;
use super::ssh_config::SshHost;
use crate::exit::{ExitCode, Failure};
use crate::hosts::HostSpec;
use std::ffi::OsString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

/// What the agent is called among the processes.
pub(super) const OWN_NAME: &str = "rsrun";

/// The agent as a child of this process.
/// `stdin` goes along under its number, for the rank that may read it itself.
pub(super) fn local(nonce: &str, stdin: Option<&OwnedFd>) -> Command {
    // /proc/self/exe is this very binary, even when the file has been replaced meanwhile.
    let mut command = Command::new("/proc/self/exe");
    command.arg("--agent").arg(nonce);
    if let Some(stdin) = stdin {
        command.arg("--stdin-fd").arg(stdin.as_raw_fd().to_string());
    }
    // An address under which someone reached us by SSH is not an address under which we reached ourselves.
    command.env_remove("SSH_CONNECTION");
    command
}

/// What the remote shell is asked to run, as one word.
pub(super) fn remote_line(how: &How, nonce: &str) -> Vec<u8> {
    let path = how.executable.as_os_str().as_bytes();
    let quoted = shlex::bytes::try_quote(path).map_or_else(|_| path.to_vec(), |q| q.into_owned());
    [b"exec ".as_slice(), &quoted, b" --agent ", nonce.as_bytes()].concat()
}

/// The command of `launch.agent`: `{host}` is replaced, or the host is appended; then comes the agent's command line.
pub(super) fn custom(template: &str, spec: &HostSpec, how: &How, nonce: &str) -> Result<Command, Failure> {
    let words = shlex::split(template).filter(|words| !words.is_empty());
    let Some(words) = words else {
        return Err(Failure::new(
            ExitCode::Usage,
            format!("launch.agent: `{template}` is not a command: a quote is not closed, or it is empty"),
        ));
    };
    let has_place = words.iter().any(|word| word.contains("{host}"));
    let mut words = words.into_iter().map(|word| word.replace("{host}", &spec.name));
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words);
    if !has_place {
        command.arg(&spec.name);
    }
    command.arg(os(remote_line(how, nonce)));
    command.env_remove("SSH_CONNECTION");
    Ok(command)
}

/// The user's `ssh`, never asking anything.
pub(super) fn ssh(spec: &HostSpec, how: &How, host: &SshHost, nonce: &str) -> Command {
    let mut command = Command::new("ssh");
    // The launcher gives up first, with the limit's name in its message.
    let seconds = how.timeout.as_secs() + 2;
    command.args(["-x", "-T", "-o", "BatchMode=yes", "-o", "ConnectionAttempts=1", "-o"]);
    command.arg(format!("ConnectTimeout={seconds}"));
    command.args(&host.extra_options);
    if let Some(user) = &spec.user {
        command.args(["-l", user]);
    }
    if let Some(port) = spec.port {
        command.arg("-p").arg(port.to_string());
    }
    command.arg("--").arg(&spec.name).arg(os(remote_line(how, nonce)));
    command
}

/// Whether there is an `ssh` in `PATH`.
pub(super) fn ssh_exists() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join("ssh").is_file())
}

fn os(bytes: Vec<u8>) -> OsString {
    std::os::unix::ffi::OsStringExt::from_vec(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connect::SshClient;
    use std::time::Duration;

    fn how(executable: &str) -> How {
        How {
            stdin: None,
            agent_command: None,
            ssh: SshClient::Auto,
            timeout: Duration::from_secs(8),
            patience: Duration::from_secs(1),
            executable: executable.into(),
            open_files: None,
            own_hostname: "here".into(),
        }
    }

    fn spec(name: &str) -> HostSpec {
        HostSpec { name: name.into(), place: "-host".into(), ..HostSpec::this_machine() }
    }

    fn words(command: &Command) -> Vec<String> {
        let all = std::iter::once(command.get_program()).chain(command.get_args());
        all.map(|w| w.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn the_host_replaces_its_place_or_is_appended_and_the_command_line_is_one_word() {
        let how = how("/opt/a b/rsrun");
        let line = "exec '/opt/a b/rsrun' --agent ab";
        let command = custom("docker exec -i 'x y' {host} sh -c", &spec("n1"), &how, "ab").unwrap();
        assert_eq!(words(&command), ["docker", "exec", "-i", "x y", "n1", "sh", "-c", line]);
        assert_eq!(words(&custom("rsh", &spec("n1"), &how, "ab").unwrap()), ["rsh", "n1", line]);
        assert_eq!(custom("rsh 'x", &spec("n1"), &how, "ab").unwrap_err().exit, ExitCode::Usage);
    }

    #[test]
    fn ssh_never_asks_and_a_host_cannot_become_an_option() {
        let spec = HostSpec { user: Some("ann".into()), port: Some(2222), ..spec("n1") };
        let words = words(&ssh(&spec, &how("/r"), &SshHost::default(), "ab"));
        assert!(words.contains(&"BatchMode=yes".to_string()));
        assert_eq!(words[words.len() - 7..], ["-l", "ann", "-p", "2222", "--", "n1", "exec /r --agent ab"]);
    }
}
