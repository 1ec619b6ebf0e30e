//! The connection to the agent of one host: a thread that starts it and carries frames both ways.
//!
//! Knows how an agent is reached (child process, SSH, any command) and what its stream looks like; knows nothing of
//! ranks, mapping or the job's state. Whatever happens, the last event of a link is [`LinkEvent::Ended`].

mod child;
mod command;
mod known_hosts;
pub mod onward;
mod process;
mod retry;
mod ssh;
mod ssh_config;
pub mod stream;
mod waiting;

use crate::exit::{ExitCode, Failure};
use crate::hosts::HostSpec;
use retry::Cause;
use spmd::bootstrap::messages::FromAgent;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};
use stream::{AgentStream, StreamError, Tail};
use waiting::{Inbox, Order};
pub(crate) use waiting::{Outgoing, Waker};

/// Which SSH client is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SshClient {
    /// The built-in one, unless the user's SSH configuration needs more than it can do.
    Auto,
    /// Always the built-in one.
    Builtin,
    /// Always the user's `ssh`.
    Command,
}

/// How agents are started: the same for all hosts of a job.
#[derive(Clone, Debug)]
pub struct How {
    /// A command instead of SSH (`launch.agent`).
    pub agent_command: Option<String>,
    /// The SSH client.
    pub ssh: SshClient,
    /// How long until a host must have said hello.
    pub timeout: Duration,
    /// How long a host is tried that does not listen, or whose name is not known.
    pub patience: Duration,
    /// The path of this executable: where it is expected on every host.
    pub executable: PathBuf,
    /// The soft limit of open files that was in force when we were started; children get it back.
    pub open_files: Option<u64>,
    /// What `gethostname` says here.
    pub own_hostname: String,
    /// Our standard input, if one rank may read it itself when it is on this machine.
    pub stdin: Option<Arc<OwnedFd>>,
}

/// What a link reports.
#[derive(Debug)]
pub enum LinkEvent {
    /// What it is doing, for the message of a time-out: `connecting to 10.0.0.2:22`.
    Stage(String),
    /// The agent said something.
    Frame(FromAgent),
    /// The agent is lost, and its guard has not ended in order: nobody there has seen to it that nothing is left.
    Unguarded,
    /// The link is down and its thread ends; why, unless it was expected.
    Ended(Failure),
}

/// The handle on one link.
#[derive(Debug)]
pub struct Link {
    orders: Sender<Order>,
    waker: Waker,
    waits: Arc<AtomicBool>,
}

impl Link {
    /// Whether the link's thread is in a call that nothing can end, and has started nothing that would outlive this
    /// process: whoever ends now need not wait for it.
    pub fn can_be_left(&self) -> bool {
        self.waits.load(Ordering::Acquire)
    }

    /// Queues one encoded frame. A link that is down ignores it: its end has been or will be reported.
    pub fn send(&self, frame: Vec<u8>) {
        let _ = self.orders.send(Order::Send(frame));
        self.waker.wake();
    }

    /// Ends the link: the agent sees the end of its input and cleans up; a command that has not become an agent is
    /// killed.
    pub fn close(&self) {
        let _ = self.orders.send(Order::Close);
        self.waker.wake();
    }
}

/// Starts the thread that connects to `spec` and reports through `deliver`.
pub fn open(spec: &HostSpec, how: &How, deliver: impl Fn(LinkEvent) + Send + 'static) -> io::Result<Link> {
    let (orders, inbox) = channel();
    let waker = Waker::new()?;
    let waits = Arc::new(AtomicBool::new(false));
    let link = Link { orders, waker: waker.clone(), waits: Arc::clone(&waits) };
    let (spec, how) = (spec.clone(), how.clone());
    std::thread::Builder::new().name(format!("link {}", spec.name)).stack_size(512 << 10).spawn(move || {
        let nonce = nonce();
        let intake = Intake {
            host: spec.name.clone(),
            stream: AgentStream::new(&nonce),
            errors: Tail::default(),
            deliver: Box::new(deliver),
            before: String::new(),
        };
        let mut session =
            Session { spec, how, nonce, inbox: Inbox::new(inbox, waker), intake, cause: Cause::Final, waits };
        let failure = session.run();
        (session.intake.deliver)(LinkEvent::Ended(failure));
    })?;
    Ok(link)
}

/// Everything one link's thread works with.
struct Session {
    spec: HostSpec,
    how: How,
    nonce: String,
    inbox: Inbox,
    intake: Intake,
    /// Why the last try failed.
    cause: Cause,
    /// See [`Link::can_be_left`].
    waits: Arc<AtomicBool>,
}

impl Session {
    /// Tries until an agent speaks, the reason for a failure is none that passes, or the time is over.
    fn run(&mut self) -> Failure {
        let begun = Instant::now();
        let mut tries = 1;
        loop {
            self.cause = Cause::Final;
            let failure = self.try_once();
            let (limit, key) = match self.cause {
                _ if self.intake.stream.is_open() => return failure,
                Cause::Final => return failure,
                Cause::Absent if self.how.patience < self.how.timeout => (self.how.patience, "launch.wait_for_hosts"),
                Cause::Absent | Cause::Busy => (self.how.timeout, "launch.connect_timeout"),
            };
            let pause = retry::pause(tries, crate::random_number());
            let times = if tries == 1 { "once".to_string() } else { format!("{tries} times") };
            if begun.elapsed() + pause >= limit {
                let limit = crate::settings::show_duration(limit);
                let tried = format!("{}; tried {times} within {limit} ({key})", failure.message);
                return Failure::new(failure.exit, tried);
            }
            self.intake.stage(format!("tried {times}, and soon again: {failure}"));
            if self.inbox.closed_within(pause) {
                return failure;
            }
            self.intake.forget(&self.nonce, failure.message);
            tries += 1;
        }
    }

    fn try_once(&mut self) -> Failure {
        if let Some(command) = self.how.agent_command.clone().filter(|_| !self.spec.is_default()) {
            return match command::custom(&command, &self.spec, &self.how, &self.nonce) {
                Ok(command) => process::run(self, &command, process::Kind::External),
                Err(failure) => failure,
            };
        }
        if self.spec.is_local(&self.how.own_hostname) {
            return process::run(self, &command::local(&self.nonce, self.how.stdin.as_deref()), process::Kind::Local);
        }
        // It may run commands of the user (`Match exec`).
        self.intake.stage("asking ssh for the configuration (ssh -G)");
        let host = match ssh_config::lookup(&self.spec, self.how.ssh) {
            Ok(host) => host,
            Err(failure) => return failure,
        };
        match (self.how.ssh, &host.needs_command) {
            (SshClient::Command, _) | (SshClient::Auto, Some(_)) => self.run_ssh_command(&host),
            _ => match ssh::run(self, &host) {
                ssh::Outcome::Ended(failure) => failure,
                // Kerberos, certificates, algorithms we lack: the user's own client may know more.
                ssh::Outcome::TryCommand(failure) if self.how.ssh == SshClient::Auto && command::ssh_exists() => {
                    let by_command = self.run_ssh_command(&host);
                    if by_command.exit == ExitCode::Unreachable && !self.intake.stream.is_open() {
                        return Failure::new(
                            by_command.exit,
                            format!("{failure}; then with the ssh command: {by_command}"),
                        );
                    }
                    by_command
                }
                ssh::Outcome::TryCommand(failure) => failure,
            },
        }
    }

    fn run_ssh_command(&mut self, host: &ssh_config::SshHost) -> Failure {
        let command = command::ssh(&self.spec, &self.how, host, &self.nonce);
        process::run(self, &command, process::Kind::External)
    }

    /// The failure of a link whose agent never said hello: `status` tells how its command ended.
    fn not_started(&self, status: &str, code: Option<i32>) -> Failure {
        let host = &self.spec.name;
        let said = match self.intake.said() {
            said if said.is_empty() => String::new(),
            said => format!(": {said}"),
        };
        let path = self.how.executable.display();
        match code {
            Some(127) => Failure::new(
                ExitCode::NotFound,
                format!(
                    "host {host}: {path} was not found there{said}; rsrun must be installed at the same path on every host"
                ),
            ),
            Some(126) => {
                Failure::new(ExitCode::NotExecutable, format!("host {host}: {path} cannot be executed there{said}"))
            }
            _ => Failure::new(ExitCode::Unreachable, format!("host {host}: the agent did not start ({status}){said}")),
        }
    }

    /// The failure of a link whose agent was there, with the exit code of its guard, if there was one.
    fn lost(&self, how: &str, code: Option<i32>) -> Failure {
        if code != Some(i32::from(ExitCode::Internal.number())) {
            (self.intake.deliver)(LinkEvent::Unguarded);
        }
        let said = match self.intake.errors.text() {
            said if said.is_empty() => String::new(),
            said => format!("; it said: {said}"),
        };
        let host = &self.spec.name;
        Failure::new(
            ExitCode::Internal,
            format!("the agent on host {host} was lost ({how}){said}; the job was stopped"),
        )
    }

    /// The failure of a link whose agent cannot be understood.
    fn not_understood(&self, error: &StreamError) -> Failure {
        let exit = match error {
            StreamError::Version { .. } => ExitCode::Protocol,
            _ => ExitCode::Internal,
        };
        Failure::new(exit, format!("host {}: {error}", self.spec.name))
    }
}

/// Where bytes from the agent go.
struct Intake {
    host: String,
    stream: AgentStream,
    errors: Tail,
    deliver: Box<dyn Fn(LinkEvent) + Send>,
    /// Why the try before this one failed; empty: there was none.
    before: String,
}

impl Intake {
    fn stage(&self, text: impl Into<String>) {
        let text = text.into();
        (self.deliver)(LinkEvent::Stage(match self.before.as_str() {
            "" => text,
            before => format!("{text}; before that: {before}"),
        }));
    }

    /// Bytes of the agent's standard output.
    fn output(&mut self, bytes: &[u8]) -> Result<(), StreamError> {
        let mut frames = Vec::new();
        let result = self.stream.push(bytes, &mut frames);
        frames.into_iter().for_each(|frame| (self.deliver)(LinkEvent::Frame(frame)));
        self.report_noise();
        result
    }

    /// Bytes of the standard error of the agent, or of what should become one.
    fn error_output(&mut self, bytes: &[u8]) {
        self.errors.push(bytes);
        self.report_noise();
    }

    /// What an earlier try printed explains nothing any more.
    fn forget(&mut self, nonce: &str, failure: String) {
        self.before = failure;
        self.errors = Tail::default();
        self.stream = AgentStream::new(nonce);
    }

    fn report_noise(&self) {
        if !self.stream.is_open() {
            let said = self.said();
            if !said.is_empty() {
                self.stage(format!("waiting for the agent; {} printed: {said}", self.host));
            }
        }
    }

    /// What was printed before the agent came up.
    fn said(&self) -> String {
        let texts = [self.stream.noise(), self.errors.text()];
        texts.iter().filter(|t| !t.is_empty()).map(String::as_str).collect::<Vec<_>>().join(" | ")
    }
}

/// A random word for the marker line, so that noise cannot look like it. Not a secret.
fn nonce() -> String {
    crate::random_hex(8)
}
