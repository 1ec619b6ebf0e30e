//! The built-in SSH client: one connection, one session, one channel with the agent at its other end.
//!
//! Host keys must match known_hosts, and nothing is ever asked. Setting up blocks this link's own thread with the
//! time that is left; from then on everything is non-blocking and driven by one `poll`.

use super::known_hosts::{KnownHosts, Verdict, key_type};
use super::retry::Cause;
use super::ssh_config::SshHost;
use super::waiting::poll_for;
use super::{Outgoing, Session, command};
use crate::exit::{ExitCode, Failure};
use rustix::event::{PollFd, PollFlags};
use ssh2::{BlockDirections, Channel, MethodType};
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How an attempt with the built-in client ended.
pub(super) enum Outcome {
    /// The link is down.
    Ended(Failure),
    /// This client cannot do it; another one might.
    TryCommand(Failure),
}

/// At most this many keys are offered: servers hang up after six by default.
const MAX_KEYS: usize = 5;

pub(super) fn run(session: &mut Session, host: &SshHost) -> Outcome {
    // The launcher gives up first, with the limit's name in its message; this only ends a thread that is left.
    let deadline = Instant::now() + session.how.timeout + Duration::from_secs(1);
    // What this thread waits for until then, a name server or a silent host, nobody can end.
    session.waits.store(true, Ordering::Release);
    let started = start(session, host, deadline);
    session.waits.store(false, Ordering::Release);
    match started {
        Ok((ssh, socket, channel)) => Outcome::Ended(serve(session, &ssh, &socket, channel)),
        Err(outcome) => outcome,
    }
}

type Running = (ssh2::Session, TcpStream, Channel);

fn start(session: &mut Session, host: &SshHost, deadline: Instant) -> Result<Running, Outcome> {
    let name = session.spec.name.clone();
    let unreachable = |text: String| Failure::new(ExitCode::Unreachable, format!("host {name}: {text}"));
    let ended = |text: String| Outcome::Ended(unreachable(text));

    let known = load_known_hosts(host);
    if known.has_authority(&host.known_as, host.port) {
        return Err(Outcome::TryCommand(unreachable(
            "its host certificate can only be checked by the ssh command".to_string(),
        )));
    }
    let socket = connect(session, host, deadline).map_err(|(cause, text)| {
        session.cause = cause;
        ended(text)
    })?;
    // sshd drops newcomers when many come at once.
    session.cause = Cause::Busy;
    let at = format!("{} port {}", host.address, host.port);

    session.intake.stage(format!("the SSH handshake with {at}"));
    let mut ssh = ssh2::Session::new().map_err(|e| ended(e.to_string()))?;
    ssh.set_timeout(milliseconds(deadline));
    let types = known.key_types(&host.known_as, host.port);
    if !types.is_empty() {
        // Ask for a key that can be checked; the server may have others that we do not know.
        let wanted = types.iter().map(|t| algorithms(t)).collect::<Vec<_>>().join(",");
        let _ = ssh.method_pref(MethodType::HostKey, &wanted);
    }
    let clone = socket.try_clone().map_err(|e| ended(e.to_string()))?;
    ssh.set_tcp_stream(clone);
    if let Err(error) = ssh.handshake() {
        let failure = unreachable(format!("the SSH handshake with {at} failed: {}", error.message()));
        // -5: no common algorithm, which another client may have. Everything else is the network or the server.
        return Err(match error.code() {
            ssh2::ErrorCode::Session(-5) => {
                session.cause = Cause::Final;
                Outcome::TryCommand(failure)
            }
            _ => Outcome::Ended(failure),
        });
    }
    session.cause = Cause::Final;
    check_key(&ssh, &known, host).map_err(ended)?;

    session.intake.stage(format!("the SSH authentication as {} at {at}", host.user));
    authenticate(&ssh, host, deadline).map_err(|tried| {
        Outcome::TryCommand(unreachable(format!(
            "SSH authentication as {} failed ({}): load a key into ssh-agent, or put its public half into \
             authorized_keys there",
            host.user,
            tried.join("; ")
        )))
    })?;

    session.intake.stage("starting the agent by SSH");
    ssh.set_timeout(milliseconds(deadline));
    let line = command::remote_line(&session.how, &session.nonce);
    let line = String::from_utf8(line).map_err(|_| ended("the path of rsrun is not UTF-8".to_string()))?;
    let open = || -> Result<Channel, ssh2::Error> {
        let mut channel = ssh.channel_session()?;
        channel.exec(&line)?;
        Ok(channel)
    };
    let channel = open().map_err(|e| ended(format!("SSH cannot start a command there: {}", e.message())))?;
    Ok((ssh, socket, channel))
}

fn connect(session: &Session, host: &SshHost, deadline: Instant) -> Result<TcpStream, (Cause, String)> {
    session.intake.stage(format!("looking up the address of {}", host.address));
    let addresses: Vec<_> = (host.address.as_str(), host.port)
        .to_socket_addrs()
        .map_err(|error| (Cause::Absent, format!("its address cannot be found: {}", lookup_reason(&error))))?
        .collect();
    let mut reasons = Vec::new();
    let mut cause = Cause::Absent;
    for address in addresses {
        session.intake.stage(format!("connecting to {address}"));
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        match TcpStream::connect_timeout(&address, left) {
            Ok(socket) => {
                let _ = socket.set_nodelay(true);
                keep_alive(&socket);
                return Ok(socket);
            }
            Err(error) => {
                if !is_absence(&error) {
                    cause = Cause::Busy;
                }
                reasons.push(format!("{address}: {}", connect_reason(&error)));
            }
        }
    }
    let text = match reasons.is_empty() {
        true => "it has no address".to_string(),
        false => format!("no SSH connection to {}", reasons.join(", ")),
    };
    Err((cause, text))
}

/// Whether the error says that nobody is there.
fn is_absence(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable};
    matches!(error.kind(), ConnectionRefused | HostUnreachable | NetworkUnreachable)
}

fn lookup_reason(error: &io::Error) -> String {
    let text = error.to_string();
    text.strip_prefix("failed to lookup address information: ").unwrap_or(&text).to_string()
}

fn connect_reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused (is sshd running there?)".to_string(),
        io::ErrorKind::TimedOut => "no answer in time".to_string(),
        _ => error.to_string(),
    }
}

/// A host that vanishes is noticed within half a minute even when nothing is sent.
fn keep_alive(socket: &TcpStream) {
    use rustix::net::sockopt;
    let _ = sockopt::set_socket_keepalive(socket, true);
    let _ = sockopt::set_tcp_keepidle(socket, Duration::from_secs(10));
    let _ = sockopt::set_tcp_keepintvl(socket, Duration::from_secs(5));
    let _ = sockopt::set_tcp_keepcnt(socket, 4);
}

fn milliseconds(deadline: Instant) -> u32 {
    let left = deadline.saturating_duration_since(Instant::now()).as_millis();
    // 0 would mean no limit.
    u32::try_from(left).unwrap_or(u32::MAX).max(1)
}

/// The algorithms that prove possession of a key of this type.
fn algorithms(key_type: &str) -> &str {
    if key_type == "ssh-rsa" { "rsa-sha2-512,rsa-sha2-256,ssh-rsa" } else { key_type }
}

fn load_known_hosts(host: &SshHost) -> KnownHosts {
    let mut known = KnownHosts::default();
    for path in host.user_known_hosts.iter().chain(&host.global_known_hosts) {
        // A pipe or a terminal would be waited for, and is no place for keys.
        if !std::fs::metadata(path).is_ok_and(|found| found.is_file()) {
            continue;
        }
        if let Ok(bytes) = crate::input::bytes(path) {
            known.add(&path.display().to_string(), &String::from_utf8_lossy(&bytes));
        }
    }
    known
}

fn check_key(ssh: &ssh2::Session, known: &KnownHosts, host: &SshHost) -> Result<(), String> {
    let (key, _) = ssh.host_key().ok_or("the server showed no host key")?;
    let kind = key_type(key).unwrap_or_else(|| "unknown".to_string());
    let name = &host.known_as;
    let written = if host.port == 22 { name.clone() } else { format!("[{name}]:{}", host.port) };
    let file = host.user_known_hosts.first().map_or_else(|| "known_hosts".to_string(), |p| p.display().to_string());
    match known.check(name, host.port, key) {
        Verdict::Match => Ok(()),
        Verdict::Changed { place } => Err(format!(
            "the {kind} host key of {written} is not the one in {place}: someone may be impersonating the host; if it \
             was reinstalled, remove the old key with `ssh-keygen -f {file} -R '{written}'`"
        )),
        Verdict::Revoked { place } => Err(format!("the {kind} host key of {written} is revoked by {place}")),
        Verdict::Unknown { other_types } => {
            let others = match other_types.as_slice() {
                [] => String::new(),
                types => format!(" (known are only keys of type {})", types.join(", ")),
            };
            Err(format!(
                "the {kind} host key of {written} is not in {file}{others}: check it and add it with `ssh-keyscan -p {} {} \
                 >> {file}`",
                host.port, host.address
            ))
        }
    }
}

/// Tries the keys of the agent, then those in files. The error lists what was tried.
fn authenticate(ssh: &ssh2::Session, host: &SshHost, deadline: Instant) -> Result<(), Vec<String>> {
    let mut tried = Vec::new();
    let mut offered = 0;
    let mut next = || {
        offered += 1;
        ssh.set_timeout(milliseconds(deadline));
        offered <= MAX_KEYS
    };
    if host.use_agent && std::env::var_os("SSH_AUTH_SOCK").is_some() {
        match agent_keys(ssh) {
            Ok((agent, keys)) => {
                tried.push(format!("{} keys of ssh-agent", keys.len()));
                for key in keys {
                    if next() && agent.userauth(&host.user, &key).is_ok() && ssh.authenticated() {
                        return Ok(());
                    }
                }
            }
            Err(error) => tried.push(format!("ssh-agent: {}", error.message())),
        }
    }
    for file in host.identity_files.iter().filter(|f| f.exists()) {
        if !next() {
            break;
        }
        match ssh.userauth_pubkey_file(&host.user, None, file, None) {
            Ok(()) if ssh.authenticated() => return Ok(()),
            Ok(()) => tried.push(format!("{}: not enough", file.display())),
            Err(error) => tried.push(format!("{}: {}", file.display(), error.message())),
        }
    }
    if tried.is_empty() {
        tried.push("no ssh-agent and no identity file".to_string());
    }
    Err(tried)
}

fn agent_keys(ssh: &ssh2::Session) -> Result<(ssh2::Agent, Vec<ssh2::PublicKey>), ssh2::Error> {
    let mut agent = ssh.agent()?;
    agent.connect()?;
    agent.list_identities()?;
    let keys = agent.identities()?;
    Ok((agent, keys))
}

/// Carries bytes until the channel ends.
fn serve(session: &mut Session, ssh: &ssh2::Session, socket: &TcpStream, mut channel: Channel) -> Failure {
    ssh.set_blocking(false);
    match pump(session, ssh, socket, &mut channel) {
        Ok(Some(failure)) => failure,
        Ok(None) => {
            let (status, code) = exit_status(ssh, &mut channel);
            if session.intake.stream.is_open() {
                session.lost(&status, code)
            } else {
                session.not_started(&status, code)
            }
        }
        Err(error) if session.intake.stream.is_open() => session.lost(&format!("the connection failed: {error}"), None),
        Err(error) => session.not_started(&format!("the connection failed: {error}"), None),
    }
}

/// `None`: the channel or the link ended in order.
fn pump(
    session: &mut Session,
    ssh: &ssh2::Session,
    socket: &TcpStream,
    channel: &mut Channel,
) -> io::Result<Option<Failure>> {
    let mut outgoing = Outgoing::default();
    let mut buffer = vec![0_u8; 64 << 10];
    loop {
        if session.inbox.take(&mut outgoing) {
            return Ok(None);
        }
        let mut idle = outgoing.flush(|bytes| channel.write(bytes))? == 0;
        if let Some(n) = available(channel.stderr().read(&mut buffer))? {
            session.intake.error_output(&buffer[..n]);
            idle &= n == 0;
        }
        if let Some(n) = available(channel.read(&mut buffer))? {
            if let Err(error) = session.intake.output(&buffer[..n]) {
                return Ok(Some(session.not_understood(&error)));
            }
            idle &= n == 0;
        }
        if !idle {
            continue;
        }
        if channel.eof() {
            return Ok(None);
        }
        let mut fds = vec![PollFd::new(&session.inbox.waker, PollFlags::IN)];
        let mut flags = PollFlags::IN;
        flags.set(PollFlags::OUT, matches!(ssh.block_directions(), BlockDirections::Outbound | BlockDirections::Both));
        fds.push(PollFd::new(socket, flags));
        poll_for(&mut fds, None)?;
    }
}

/// `None` when there is nothing to read now, `Some(0)` at the end.
fn available(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(n) => Ok(Some(n)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

fn exit_status(ssh: &ssh2::Session, channel: &mut Channel) -> (String, Option<i32>) {
    ssh.set_blocking(true);
    ssh.set_timeout(1000);
    let _ = channel.close();
    let _ = channel.wait_close();
    // A killed command has the exit status 0 as well: the signal comes first.
    if let Ok(signal) = channel.exit_signal()
        && let Some(name) = signal.exit_signal
    {
        return (format!("was killed by SIG{name}"), None);
    }
    match channel.exit_status() {
        Ok(code) => (format!("ended with exit code {code}"), Some(code)),
        Err(error) => (format!("ended: {}", error.message()), None),
    }
}

#[cfg(test)]
mod tests {
    use crate::connect::{How, LinkEvent, SshClient, open};
    use crate::hosts::HostSpec;
    use std::net::TcpListener;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    #[test]
    fn a_link_to_a_host_that_never_speaks_can_be_left_and_one_that_has_ended_need_not() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let how = How {
            stdin: None,
            agent_command: None,
            ssh: SshClient::Builtin,
            timeout: Duration::from_secs(600),
            patience: Duration::from_secs(1),
            executable: "/r".into(),
            open_files: None,
            own_hostname: String::new(),
        };
        let port = Some(silent.local_addr().unwrap().port());
        let spec = HostSpec { name: "127.0.0.1".into(), port, place: "-host".into(), ..HostSpec::this_machine() };
        let (sender, events) = channel();
        let link = open(&spec, &how, move |event| drop(sender.send(event))).unwrap();
        let connection = silent.accept().unwrap();
        while !link.can_be_left() {
            std::thread::sleep(Duration::from_millis(1));
        }
        // It hangs up: the thread is free again, and told to end.
        link.close();
        drop(connection);
        while !matches!(events.recv().unwrap(), LinkEvent::Ended(_)) {}
        assert!(!link.can_be_left());
    }
}
