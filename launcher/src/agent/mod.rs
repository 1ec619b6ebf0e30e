//! The agent: starts the ranks of one host, carries their input and output, and makes sure that nothing is left.
//!
//! One thread, one loop over descriptors. It decides nothing about the job: it does what the launcher says, and ends
//! everything when the launcher is gone.

mod boot;
mod control;
mod descendants;
mod guard;
mod limits;
mod lines;
mod local;
mod onward;
mod rank;
mod reactor;
mod spawn;
mod stray;
mod wrap;

use crate::connect::{Outgoing, stream::marker_line};
use crate::exit::ExitCode;
use crate::{sys, topology};
use local::Local;
use onward::Onward;
use reactor::{Reactor, Source};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::stdio::{stdin, stdout};
use spmd::bootstrap::frame::{self, Decoder};
use spmd::bootstrap::messages::{FromAgent, ToAgent};
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Above so many bytes that wait for the launcher, ranks' output is not read.
const HIGH_WATER: usize = 256 << 10;
/// When the launcher is gone: the longest time between SIGTERM and SIGKILL.
const ORPHAN_GRACE: Duration = Duration::from_millis(500);
/// How long the relay may take to end its connections.
const RELAY_END: Duration = Duration::from_secs(2);

/// The life of `rsrun --agent NONCE`; returns its exit code.
/// `stdin`: the number of an inherited descriptor that one of our ranks may read as its standard input.
pub fn main(nonce: &str, stdin: Option<RawFd>) -> u8 {
    let given = sys::close_inherited(stdin);
    sys::reset_signals();
    // From here on there are two processes: this one, and the guard above it.
    let guard = match guard::enter() {
        Ok(guard) => guard,
        Err(error) => return fatal(&format!("the agent cannot start its guard: {error}")),
    };
    match Agent::new(nonce, guard, given).and_then(|mut agent| agent.run()) {
        Ok(code) => code,
        Err(error) => fatal(&format!("the agent failed: {error}")),
    }
}

fn fatal(message: &str) -> u8 {
    // The launcher keeps what comes on standard error for its own message.
    let _ = writeln!(io::stderr(), "{message}");
    ExitCode::Internal.number()
}

struct Agent {
    reactor: Reactor,
    /// Frames from the launcher.
    decoder: Decoder,
    /// Frames to the launcher.
    outgoing: Outgoing,
    /// Readable when a child has ended.
    children: UnixStream,
    environment: Vec<(OsString, OsString)>,
    open_files: Option<u64>,
    /// The launcher's standard input, for one of our ranks.
    given: Option<OwnedFd>,
    /// The job, once it is known.
    local: Option<Local>,
    /// What connects to further hosts, when there are any.
    onward: Option<Onward>,
    /// The launcher is gone; until then the relay may end its connections.
    relay_until: Option<Instant>,
    launcher_gone: bool,
    /// `Done` has been said, or there is nobody to say it to.
    over: Option<ExitCode>,
}

impl Agent {
    fn new(nonce: &str, guard: Pid, given: Option<OwnedFd>) -> io::Result<Self> {
        let open_files = sys::raise_open_files();
        let mut reactor = Reactor::new()?;
        let (children, signal) = UnixStream::pair()?;
        children.set_nonblocking(true)?;
        signal_hook::low_level::pipe::register(libc::SIGCHLD, signal)?;
        let guard_fd = pidfd_open(guard, PidfdFlags::empty())?;
        if rustix::process::getppid() != Some(guard) {
            return Err(io::Error::other("its guard is gone"));
        }
        for fd in [stdin(), stdout()] {
            rustix::io::ioctl_fionbio(fd, true)?;
        }
        reactor.watch(stdin(), Source::Launcher)?;
        reactor.watch_launcher_out(stdout())?;
        reactor.watch(&children, Source::Children)?;
        reactor.watch(&guard_fd, Source::Guard)?;
        reactor.keep(guard_fd);
        let mut agent = Self {
            reactor,
            decoder: Decoder::default(),
            outgoing: Outgoing::default(),
            children,
            environment: std::env::vars_os().collect(),
            open_files,
            given,
            local: None,
            onward: None,
            relay_until: None,
            launcher_gone: false,
            over: None,
        };
        sys::skip_slow_plugins();
        agent.outgoing.push(marker_line(nonce).as_bytes());
        agent.say(&FromAgent::Hello {
            hostname: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            allowed_cores: topology::allowed_cores(),
            identity: identity(),
            pid: std::process::id(),
        });
        Ok(agent)
    }

    /// Queues a frame for the launcher.
    fn say(&mut self, message: &FromAgent) {
        if self.launcher_gone {
            return;
        }
        match frame::to_frame(message) {
            Ok(bytes) => self.outgoing.push(&bytes),
            Err(error) => drop(writeln!(io::stderr(), "{error}")),
        }
    }

    fn say_all(&mut self, messages: &[FromAgent]) {
        messages.iter().for_each(|message| self.say(message));
    }

    fn run(&mut self) -> io::Result<u8> {
        loop {
            self.advance();
            if self.outgoing.flush(|bytes| Ok(rustix::io::write(stdout(), bytes)?)).is_err() {
                self.launcher_lost();
            }
            if let Some(code) = self.over.filter(|_| self.outgoing.is_empty() && !self.is_relaying()) {
                return Ok(code.number());
            }
            self.reactor.want_write(stdout(), Source::LauncherOut, !self.outgoing.is_empty())?;
            self.reactor.pause_outputs(self.outgoing.len() >= HIGH_WATER)?;
            let local = self.local.as_ref().filter(|_| self.over.is_none());
            let deadline = local.and_then(Local::deadline).into_iter().chain(self.relay_until).min();
            for source in self.reactor.wait(deadline)? {
                self.on_ready(source);
            }
        }
    }

    fn on_ready(&mut self, source: Source) {
        match source {
            Source::Launcher => self.read_launcher(),
            // Nothing waits to be written: it is the end of the other side.
            Source::LauncherOut if self.outgoing.is_empty() => self.launcher_lost(),
            // Flushed in the loop.
            Source::LauncherOut => {}
            Source::Children => {
                // Only the news counts.
                while matches!((&self.children).read(&mut [0_u8; 64]), Ok(1..)) {}
                self.reap();
            }
            Source::Guard => {
                let reason = "the guard process of the agent was killed; the job was stopped".to_string();
                self.reactor.forget_guard();
                self.fail(reason);
            }
            Source::Relay => self.read_relay(),
            Source::RelayIn => {
                if let Some(onward) = &mut self.onward {
                    onward.flush(&mut self.reactor);
                }
            }
            Source::Rank(what, index) => {
                let mut frames = Vec::new();
                let result = match &mut self.local {
                    Some(local) => local.on_ready(&mut self.reactor, what, index, &mut frames),
                    None => Ok(()),
                };
                self.say_all(&frames);
                if let Err(reason) = result {
                    self.fail(reason);
                }
            }
        }
    }

    fn read_launcher(&mut self) {
        let mut buffer = vec![0_u8; rank::PIECE];
        match rustix::io::read(stdin(), &mut buffer) {
            Ok(n @ 1..) => self.decoder.push(&buffer[..n]),
            Err(Errno::INTR | Errno::AGAIN) => return,
            Ok(_) | Err(_) => return self.launcher_lost(),
        }
        loop {
            match self.decoder.next_frame() {
                Ok(Some(message)) => self.on_message(message),
                Ok(None) => return,
                Err(_) => return self.launcher_lost(),
            }
        }
    }

    /// What comes from further hosts goes up as it is. When the relay ends, so do its connections.
    fn read_relay(&mut self) {
        let Some(onward) = &mut self.onward else { return };
        let mut frames = Vec::new();
        let ended = !onward.read(&mut frames);
        if !self.launcher_gone {
            self.outgoing.push(&frames);
        }
        if ended && let Some(mut onward) = self.onward.take() {
            onward.close(&mut self.reactor);
            self.say_all(&onward.lost());
        }
    }

    /// Whether somebody may still need the connections to further hosts. They end with the launcher's.
    fn is_relaying(&self) -> bool {
        self.onward.is_some() && self.relay_until.is_none_or(|until| Instant::now() < until)
    }

    /// Passes a message on to the relay, which begins with the first one.
    fn tell_relay(&mut self, message: &ToAgent) {
        if self.onward.is_none() && matches!(message, ToAgent::Reach(_)) {
            match Onward::start(&mut self.reactor, self.open_files) {
                Ok(onward) => self.onward = Some(onward),
                Err(error) => return self.say_all(&onward::unreached(message, &error)),
            }
        }
        if let Some(onward) = &mut self.onward {
            onward.tell(&mut self.reactor, message);
        }
    }

    fn on_message(&mut self, message: ToAgent) {
        let mut frames = Vec::new();
        match message {
            ToAgent::Reach(_) | ToAgent::Leave { .. } | ToAgent::Below { .. } => self.tell_relay(&message),
            ToAgent::Sweep { job } => {
                descendants::end_job(&job);
                self.finish(ExitCode::Success);
            }
            ToAgent::Describe(detail) => {
                frames.push(FromAgent::Node(topology::live::read(detail).map(Box::new)));
            }
            ToAgent::Start(start) if self.local.is_none() => {
                for what in stray::find(&self.environment, &start) {
                    frames.push(FromAgent::Stray { what });
                }
                let environment = stray::clean(self.environment.clone());
                let mut local = Local::new(*start);
                local.start(&mut self.reactor, environment, self.open_files, self.given.take(), &mut frames);
                self.local = Some(local);
            }
            ToAgent::Start(_) => {}
            ToAgent::Stop { signal } => match &mut self.local {
                Some(local) => {
                    let grace = local.grace();
                    local.stop(Instant::now(), grace, signal);
                }
                None => self.finish(ExitCode::Success),
            },
            message => {
                if let Some(local) = &mut self.local {
                    local.on_message(&mut self.reactor, message, &mut frames);
                }
            }
        }
        self.say_all(&frames);
    }

    fn reap(&mut self) {
        let mut frames = Vec::new();
        let mut result = Ok(());
        let (local, reactor) = (&mut self.local, &mut self.reactor);
        descendants::reap(&mut |pid, status| {
            if let Some(local) = local.as_mut()
                && let Err(reason) = local.child_ended(reactor, pid, status, &mut frames)
            {
                result = Err(reason);
            }
        });
        self.say_all(&frames);
        if let Err(reason) = result {
            self.fail(reason);
        }
    }

    /// Reports ended ranks, keeps time limits, and ends the job when nothing runs any more.
    fn advance(&mut self) {
        if self.over.is_some() {
            return;
        }
        let mut frames = Vec::new();
        let mut over = false;
        if let Some(local) = &mut self.local {
            let relay = self.onward.as_ref().map(|onward| onward.pid);
            over = local.advance(&mut self.reactor, Instant::now(), relay, &mut frames);
        }
        self.say_all(&frames);
        if over {
            self.finish(ExitCode::Success);
        }
    }

    /// Something that must end the job: the launcher decides, and says stop; if it does not hear us, we stop anyway.
    fn fail(&mut self, reason: String) {
        self.say(&FromAgent::Failed { reason });
        if let Some(local) = &mut self.local {
            let grace = local.grace();
            local.stop(Instant::now(), grace, libc::SIGTERM);
        } else {
            self.over = Some(ExitCode::Internal);
        }
    }

    fn finish(&mut self, code: ExitCode) {
        self.say(&FromAgent::Done);
        self.over = Some(if self.launcher_gone { ExitCode::Internal } else { code });
    }

    /// The launcher does not listen or does not speak any more: everything must end soon.
    fn launcher_lost(&mut self) {
        if self.launcher_gone {
            return;
        }
        self.launcher_gone = true;
        self.outgoing = Outgoing::default();
        self.reactor.forget_launcher();
        if let Some(onward) = &mut self.onward {
            onward.close(&mut self.reactor);
            self.relay_until = Some(Instant::now() + RELAY_END);
        }
        match &mut self.local {
            // Everything has ended already, and only the relay was needed.
            _ if self.over.is_some() => {}
            Some(local) => {
                let grace = local.grace().min(ORPHAN_GRACE);
                local.stop(Instant::now(), grace, libc::SIGTERM);
            }
            // No job to end: nothing would wake the loop any more.
            None => self.over = Some(ExitCode::Internal),
        }
    }
}

/// What makes a machine this machine: two hosts with the same words are one.
fn identity() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let namespace = |kind: &str| {
        let link = std::fs::read_link(format!("/proc/self/ns/{kind}"));
        link.map(|l| l.display().to_string()).unwrap_or_default()
    };
    format!("{} {} {}", boot.trim(), namespace("net"), namespace("pid"))
}
