//! One started rank: its streams, its conversation, its end.
//!
//! Knows descriptors and bytes; what they mean for the job is decided by the agent's loop and the launcher.

use super::control::{Event, RankStream};
use super::lines::Lines;
use super::spawn::Started;
use crate::connect::Outgoing;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};
use spmd::bootstrap::messages::{Exit, FromAgent, FromRank, Stream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// After so long an unfinished line is sent on, if somebody may wait for it.
const PROMPT: Duration = Duration::from_millis(100);
/// How much is read at a time, in bytes.
pub(super) const PIECE: usize = 64 << 10;

/// One started rank.
#[derive(Debug)]
pub(super) struct Rank {
    pub(super) rank: u32,
    pub(super) pid: Option<Pid>,
    pub(super) outputs: [Option<Output>; 2],
    pub(super) control: Option<Control>,
    pub(super) stdin: Option<Input>,
    pub(super) exit: Option<Exit>,
    pub(super) reported: bool,
    /// How many bytes of output may be on their way to where they are written.
    window: u64,
    /// How many are.
    under_way: u64,
    /// Its unfinished lines are sent on when it pauses.
    prompts: bool,
}

/// Standard output or error.
#[derive(Debug)]
pub(super) struct Output {
    pub(super) fd: OwnedFd,
    lines: Lines,
    /// After the rank's end: how many bytes it had written that have not been read yet.
    due: u64,
    /// Read when there is something.
    watched: bool,
    /// Since when a line without its end has been waiting for the rest.
    waits: Option<Instant>,
}

/// The control socket.
#[derive(Debug)]
pub(super) struct Control {
    pub(super) fd: OwnedFd,
    stream: RankStream,
    pub(super) outgoing: Outgoing,
}

/// Standard input on its way to the rank.
#[derive(Debug)]
pub(super) struct Input {
    pub(super) fd: OwnedFd,
    pub(super) outgoing: Outgoing,
    /// Nothing more will come.
    ended: bool,
}

impl Rank {
    pub(super) fn new(rank: u32, started: Started, window: u32, prompts: bool) -> Self {
        let output = |fd| Some(Output { fd, lines: Lines::default(), due: 0, watched: true, waits: None });
        Self {
            rank,
            pid: i32::try_from(started.pid).ok().and_then(Pid::from_raw),
            outputs: [output(started.stdout), output(started.stderr)],
            control: Some(Control {
                fd: started.control,
                stream: RankStream::default(),
                outgoing: Outgoing::default(),
            }),
            stdin: started.stdin.map(|fd| Input { fd, outgoing: Outgoing::default(), ended: false }),
            exit: None,
            reported: false,
            window: u64::from(window),
            under_way: 0,
            prompts,
        }
    }

    pub(super) fn is(&self, pid: Pid) -> bool {
        self.exit.is_none() && self.pid == Some(pid)
    }

    /// Sends a signal to the rank's process group, if the rank has not ended.
    pub(super) fn signal(&self, signal: Signal) -> bool {
        let Some(pid) = self.pid.filter(|_| self.exit.is_none()) else { return false };
        kill_process_group(pid, signal).is_ok()
    }

    /// Reads a piece of one output. The frames go to the launcher.
    pub(super) fn read_output(&mut self, index: usize, buffer: &mut [u8], frames: &mut Vec<FromAgent>) {
        let Some(output) = &mut self.outputs[index] else { return };
        match rustix::io::read(&output.fd, &mut *buffer) {
            Ok(n @ 1..) => {
                let whole = output.lines.push(&buffer[..n]);
                output.due = output.due.saturating_sub(n as u64);
                output.waits = (self.prompts && output.lines.holds()).then(Instant::now);
                self.say(index, whole, false, frames);
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => output.due = 0,
            Ok(_) | Err(_) => {
                let rest = output.lines.finish();
                self.outputs[index] = None;
                self.say(index, rest, true, frames);
            }
        }
    }

    fn say(&mut self, index: usize, data: Option<Vec<u8>>, cut: bool, frames: &mut Vec<FromAgent>) {
        let Some(data) = data else { return };
        self.under_way += data.len() as u64;
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let at = u64::try_from(at.as_micros()).unwrap_or(u64::MAX);
        frames.push(FromAgent::Output { rank: self.rank, stream: stream(index), at, cut, data });
    }

    /// When an unfinished line is sent on.
    pub(super) fn prompt_due(&self) -> Option<Instant> {
        self.outputs.iter().flatten().filter_map(|output| output.waits).min().map(|since| since + PROMPT)
    }

    /// Sends on the unfinished lines that have been waiting for so long that somebody may wait for them.
    pub(super) fn flush_prompts(&mut self, now: Instant, frames: &mut Vec<FromAgent>) {
        for index in 0..self.outputs.len() {
            if let Some(output) = &mut self.outputs[index]
                && output.waits.is_some_and(|since| since + PROMPT <= now)
            {
                output.waits = None;
                let piece = output.lines.piece();
                self.say(index, piece, false, frames);
            }
        }
    }

    /// So many bytes of output have been written.
    pub(super) fn output_taken(&mut self, bytes: u32) {
        self.under_way = self.under_way.saturating_sub(u64::from(bytes));
    }

    /// Outputs whose reading must begin or stop now. What a rank has left behind at its end is read in any case, so that
    /// the news of its end waits for nobody.
    pub(super) fn rewatch(&mut self) -> Vec<(usize, bool)> {
        let (room, ended) = (self.under_way < self.window, self.exit.is_some());
        let mut changes = Vec::new();
        for (index, output) in self.outputs.iter_mut().enumerate() {
            let Some(output) = output else { continue };
            let wanted = room || (ended && output.due > 0);
            if wanted != output.watched {
                output.watched = wanted;
                changes.push((index, wanted));
            }
        }
        changes
    }

    /// Reads all that has come on the control socket. The error is a reason in words.
    pub(super) fn read_control(&mut self, frames: &mut Vec<FromAgent>) -> Result<(), String> {
        let rank = self.rank;
        let mut buffer = [0_u8; 4096];
        while let Some(control) = &mut self.control {
            match rustix::io::read(&control.fd, &mut buffer) {
                Ok(n @ 1..) => {
                    let events = control
                        .stream
                        .push(&buffer[..n])
                        .map_err(|reason| format!("rank {rank} broke the protocol on its control socket: {reason}"))?;
                    frames.extend(events.into_iter().map(|event| frame(rank, event)));
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Ok(_) | Err(_) => self.control = None,
            }
        }
        Ok(())
    }

    /// Writes what waits for the control socket. To a rank that has ended nothing can be written, but what it said before, that
    /// it is done above all, is still to be read.
    pub(super) fn flush_control(&mut self) {
        if let Some(control) = &mut self.control
            && control.outgoing.flush(|bytes| Ok(rustix::io::write(&control.fd, bytes)?)).is_err()
        {
            control.outgoing = Outgoing::default();
        }
    }

    /// Adds standard input; empty bytes are its end.
    pub(super) fn push_stdin(&mut self, data: &[u8]) {
        if let Some(input) = &mut self.stdin {
            input.ended |= data.is_empty();
            input.outgoing.push(data);
        }
    }

    /// Writes standard input as far as the rank takes it.
    pub(super) fn flush_stdin(&mut self, frames: &mut Vec<FromAgent>) {
        let Some(input) = &mut self.stdin else { return };
        let rank = self.rank;
        match input.outgoing.flush(|bytes| Ok(rustix::io::write(&input.fd, bytes)?)) {
            Ok(0) => {}
            Ok(taken) => {
                let bytes = u32::try_from(taken).unwrap_or(u32::MAX);
                frames.push(FromAgent::StdinTaken { rank, bytes });
            }
            // The rank has closed its input: it wants no more.
            Err(_) => {
                self.stdin = None;
                frames.push(FromAgent::StdinTaken { rank, bytes: 0 });
                return;
            }
        }
        if input.ended && input.outgoing.is_empty() {
            self.stdin = None;
        }
    }

    /// The process has ended. What it wrote before is in its pipes; how much that is, is known now, so that a
    /// grandchild that keeps a pipe open delays nothing.
    pub(super) fn ended(&mut self, raw_status: i32) {
        self.exit = Some(if libc::WIFSIGNALED(raw_status) {
            Exit::Signal { signal: libc::WTERMSIG(raw_status), core: libc::WCOREDUMP(raw_status) }
        } else {
            Exit::Code(libc::WEXITSTATUS(raw_status))
        });
        self.stdin = None;
        self.measure();
    }

    /// What is in the pipes now is still to be read. Their end is not waited for: a process that is not ours, to which
    /// a rank has passed its output, may keep them open for ever.
    pub(super) fn measure(&mut self) {
        for output in self.outputs.iter_mut().flatten() {
            output.due = rustix::io::ioctl_fionread(&output.fd).unwrap_or(0);
        }
    }

    /// Whether the rank has ended and everything it wrote has been read.
    pub(super) fn is_drained(&self) -> bool {
        self.exit.is_some() && self.outputs.iter().flatten().all(|output| output.due == 0)
    }

    /// The rank's last frames.
    pub(super) fn report(&mut self, frames: &mut Vec<FromAgent>) {
        self.finish_lines(frames);
        if let Some(exit) = self.exit {
            self.reported = true;
            frames.push(FromAgent::Exited { rank: self.rank, exit });
        }
    }

    /// What was written without the end of a line.
    pub(super) fn finish_lines(&mut self, frames: &mut Vec<FromAgent>) {
        for index in 0..self.outputs.len() {
            let rest = self.outputs[index].as_mut().and_then(|output| output.lines.finish());
            self.say(index, rest, true, frames);
        }
    }
}

fn stream(index: usize) -> Stream {
    if index == 0 { Stream::Stdout } else { Stream::Stderr }
}

fn frame(rank: u32, event: Event) -> FromAgent {
    match event {
        Event::Message(FromRank::Hello(hello)) => FromAgent::RankHello { rank, hello },
        Event::Message(FromRank::Finalized) => FromAgent::RankFinalized { rank },
        Event::Message(FromRank::Insight(insight)) => FromAgent::RankInsight { rank, insight },
        Event::Message(FromRank::Abort { code, message }) => FromAgent::RankAbort { rank, code, message },
        Event::OtherVersion { protocol, version } => FromAgent::RankVersion { rank, protocol, version },
    }
}
