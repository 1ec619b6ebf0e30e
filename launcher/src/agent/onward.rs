//! The agent's side of its relay: starting it, and carrying frames between it and the launcher.
//!
//! Knows no connection and no host but by number; frames pass as they are.

use super::reactor::{Reactor, Source};
use crate::connect::Outgoing;
use crate::sys;
use rustix::process::Pid;
use spmd::bootstrap::frame::{self, Decoder};
use spmd::bootstrap::messages::{FromAgent, ToAgent};
use spmd::bootstrap::onward::FromBelow;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

/// A relay that runs.
#[derive(Debug)]
pub(super) struct Onward {
    pub(super) pid: Pid,
    input: Option<ChildStdin>,
    output: ChildStdout,
    outgoing: Outgoing,
    decoder: Decoder,
    /// The hosts that it was told to connect to, by number.
    hosts: BTreeMap<u32, String>,
}

impl Onward {
    /// Starts the relay.
    ///
    /// # Errors
    /// What the kernel says.
    pub(super) fn start(reactor: &mut Reactor, open_files: Option<u64>) -> io::Result<Self> {
        // This very binary, also when its file has been replaced meanwhile.
        let mut command = Command::new("/proc/self/exe");
        command.arg0("rsrun").arg("--relay").stdin(Stdio::piped()).stdout(Stdio::piped());
        sys::prepare_child(&mut command, open_files, true);
        let mut child = command.process_group(0).spawn()?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidData)?;
        // It is reaped with everything else.
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other("it has no pipes"));
        };
        for fd in [input.as_fd(), output.as_fd()] {
            rustix::io::ioctl_fionbio(fd, true)?;
        }
        reactor.watch(&output, Source::Relay)?;
        Ok(Self {
            pid,
            input: Some(input),
            output,
            outgoing: Outgoing::default(),
            decoder: Decoder::default(),
            hosts: BTreeMap::new(),
        })
    }

    /// Queues a message of the launcher.
    pub(super) fn tell(&mut self, reactor: &mut Reactor, message: &ToAgent) {
        if let ToAgent::Reach(reach) = message {
            self.hosts.extend(reach.hosts.iter().map(|told| (told.host, told.name.clone())));
        }
        match frame::to_frame(message) {
            Ok(bytes) => self.outgoing.push(&bytes),
            Err(error) => drop(writeln!(io::stderr(), "{error}")),
        }
        self.flush(reactor);
    }

    /// Writes what the relay takes.
    pub(super) fn flush(&mut self, reactor: &mut Reactor) {
        let Some(input) = &mut self.input else { return };
        if self.outgoing.flush(|bytes| input.write(bytes)).is_err() {
            return self.close(reactor);
        }
        // Fails only for a descriptor that cannot be watched, which a pipe can.
        let _ = reactor.want_write(&*input, Source::RelayIn, !self.outgoing.is_empty());
    }

    /// Tells the relay to end.
    pub(super) fn close(&mut self, reactor: &mut Reactor) {
        self.input = None;
        reactor.forget_write(Source::RelayIn);
    }

    /// Reads what the relay says: whole frames are appended to `frames`. `false`: it says no more.
    pub(super) fn read(&mut self, frames: &mut Vec<u8>) -> bool {
        let mut buffer = vec![0_u8; super::rank::PIECE];
        match self.output.read(&mut buffer) {
            Ok(n @ 1..) => self.decoder.push(&buffer[..n]),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                return true;
            }
            Ok(_) | Err(_) => return false,
        }
        loop {
            match self.decoder.next_raw() {
                Ok(Some(frame)) => frames.extend(frame),
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }

    /// What the launcher is told when the relay is gone: none of its hosts is reached any more.
    pub(super) fn lost(&self) -> Vec<FromAgent> {
        let hosts = self.hosts.iter().map(|(host, name)| (*host, name.as_str()));
        ended(hosts, "the process that connected to it from another host is gone")
    }
}

/// What the launcher is told when there can be no relay.
pub(super) fn unreached(message: &ToAgent, error: &io::Error) -> Vec<FromAgent> {
    let ToAgent::Reach(reach) = message else { return Vec::new() };
    let hosts = reach.hosts.iter().map(|told| (told.host, told.name.as_str()));
    ended(hosts, &format!("no process can be started that connects to it: {error}"))
}

fn ended<'a>(hosts: impl Iterator<Item = (u32, &'a str)>, reason: &str) -> Vec<FromAgent> {
    hosts
        .map(|(host, name)| FromAgent::Below { host, said: FromBelow::Ended(format!("host {name}: {reason}")) })
        .collect()
}
