//! The descriptors that the agent waits for.
//!
//! Outputs of ranks, and of the relay, have an epoll of their own inside the main one, so that all of them can be set aside at once when
//! the launcher does not keep up.

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

/// What is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// Frames from the launcher.
    Launcher,
    /// Room for frames to the launcher.
    LauncherOut,
    /// A child has ended.
    Children,
    /// The guard has ended.
    Guard,
    /// What the relay says.
    Relay,
    /// Room for frames to the relay.
    RelayIn,
    /// A stream of the rank at this index.
    Rank(Part, usize),
}

/// Which stream of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Stdout,
    Stderr,
    Control,
    Stdin,
}

const OUTPUTS: u64 = u64::MAX;

impl Source {
    fn token(self) -> epoll::EventData {
        let (kind, index) = match self {
            Self::Launcher => (0, 0),
            Self::LauncherOut => (1, 0),
            Self::Children => (2, 0),
            Self::Guard => (3, 0),
            Self::Rank(Part::Stdout, index) => (4, index),
            Self::Rank(Part::Stderr, index) => (5, index),
            Self::Rank(Part::Control, index) => (6, index),
            Self::Rank(Part::Stdin, index) => (7, index),
            Self::Relay => (8, 0),
            Self::RelayIn => (9, 0),
        };
        epoll::EventData::new_u64((index as u64) << 4 | kind)
    }

    fn from_token(token: u64) -> Self {
        let index = usize::try_from(token >> 4).unwrap_or(usize::MAX);
        match token & 15 {
            0 => Self::Launcher,
            1 => Self::LauncherOut,
            2 => Self::Children,
            3 => Self::Guard,
            4 => Self::Rank(Part::Stdout, index),
            5 => Self::Rank(Part::Stderr, index),
            6 => Self::Rank(Part::Control, index),
            7 => Self::Rank(Part::Stdin, index),
            8 => Self::Relay,
            _ => Self::RelayIn,
        }
    }
}

/// The two epolls.
#[derive(Debug)]
pub(super) struct Reactor {
    main: OwnedFd,
    outputs: OwnedFd,
    paused: bool,
    writing: Vec<Source>,
    guard: Option<OwnedFd>,
}

impl Reactor {
    pub(super) fn new() -> io::Result<Self> {
        let main = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let outputs = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&main, &outputs, epoll::EventData::new_u64(OUTPUTS), epoll::EventFlags::IN)?;
        Ok(Self { main, outputs, paused: false, writing: Vec::new(), guard: None })
    }

    /// Reports `source` whenever `fd` is readable or closed.
    pub(super) fn watch(&mut self, fd: impl AsFd, source: Source) -> io::Result<()> {
        let set = match source {
            Source::Rank(Part::Stdout | Part::Stderr, _) | Source::Relay => &self.outputs,
            _ => &self.main,
        };
        Ok(epoll::add(set, fd, source.token(), epoll::EventFlags::IN)?)
    }

    /// Reports the end of the launcher's listening, also when nothing is to be said to it.
    pub(super) fn watch_launcher_out(&mut self, fd: impl AsFd) -> io::Result<()> {
        Ok(epoll::add(&self.main, fd, Source::LauncherOut.token(), epoll::EventFlags::empty())?)
    }

    /// Whether the output `fd` of a rank is to be read now. Its end is reported in any case.
    pub(super) fn want_read(&mut self, fd: impl AsFd, source: Source, wanted: bool) -> io::Result<()> {
        let flags = if wanted { epoll::EventFlags::IN } else { epoll::EventFlags::empty() };
        Ok(epoll::modify(&self.outputs, fd, source.token(), flags)?)
    }

    /// Reports `source` when `fd`, which is watched for nothing else, is writable.
    pub(super) fn want_write(&mut self, fd: impl AsFd, source: Source, wanted: bool) -> io::Result<()> {
        let present = self.writing.iter().position(|s| *s == source);
        match (present, wanted) {
            (None, true) => {
                if source == Source::LauncherOut {
                    epoll::modify(&self.main, fd, source.token(), epoll::EventFlags::OUT)?;
                } else {
                    epoll::add(&self.main, fd, source.token(), epoll::EventFlags::OUT)?;
                }
                self.writing.push(source);
            }
            (Some(at), false) => {
                if source == Source::LauncherOut {
                    epoll::modify(&self.main, fd, source.token(), epoll::EventFlags::empty())?;
                } else {
                    epoll::delete(&self.main, fd)?;
                }
                self.writing.swap_remove(at);
            }
            _ => {}
        }
        Ok(())
    }

    /// A descriptor for which [`Reactor::want_write`] was called is closed.
    pub(super) fn forget_write(&mut self, source: Source) {
        self.writing.retain(|s| *s != source);
    }

    /// Reports a watched `fd` also when it is writable, or no longer.
    pub(super) fn also_write(&mut self, fd: impl AsFd, source: Source, wanted: bool) -> io::Result<()> {
        let flags = if wanted { epoll::EventFlags::IN | epoll::EventFlags::OUT } else { epoll::EventFlags::IN };
        Ok(epoll::modify(&self.main, fd, source.token(), flags)?)
    }

    /// Sets the outputs of ranks aside, or takes them up again.
    pub(super) fn pause_outputs(&mut self, pause: bool) -> io::Result<()> {
        if pause != self.paused {
            self.paused = pause;
            let flags = if pause { epoll::EventFlags::empty() } else { epoll::EventFlags::IN };
            epoll::modify(&self.main, &self.outputs, epoll::EventData::new_u64(OUTPUTS), flags)?;
        }
        Ok(())
    }

    /// Holds the guard's descriptor open.
    pub(super) fn keep(&mut self, guard: OwnedFd) {
        self.guard = Some(guard);
    }

    /// The guard is gone: once is enough.
    pub(super) fn forget_guard(&mut self) {
        self.guard = None;
    }

    /// The launcher is gone: its closed streams must not be reported for ever.
    pub(super) fn forget_launcher(&mut self) {
        let _ = epoll::delete(&self.main, rustix::stdio::stdin());
        let _ = epoll::delete(&self.main, rustix::stdio::stdout());
        self.forget_write(Source::LauncherOut);
    }

    /// Waits until something is ready or the time has come.
    pub(super) fn wait(&mut self, until: Option<Instant>) -> io::Result<Vec<Source>> {
        let timeout = until.map(|until| until.saturating_duration_since(Instant::now()));
        let mut sources = Vec::new();
        let mut outputs = false;
        for token in collect(&self.main, timeout.and_then(|t| Timespec::try_from(t).ok()).as_ref())? {
            if token == OUTPUTS {
                outputs = true;
            } else {
                sources.push(Source::from_token(token));
            }
        }
        if outputs && !self.paused {
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            sources.extend(collect(&self.outputs, Some(&now))?.into_iter().map(Source::from_token));
        }
        Ok(sources)
    }
}

fn collect(set: &OwnedFd, timeout: Option<&Timespec>) -> io::Result<Vec<u64>> {
    let mut events = Vec::with_capacity(256);
    match epoll::wait(set, spare_capacity(&mut events), timeout) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(events.iter().map(|event: &epoll::Event| event.data.u64()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_source_survives_its_token() {
        for source in [
            Source::Launcher,
            Source::LauncherOut,
            Source::Children,
            Source::Guard,
            Source::Rank(Part::Stdout, 0),
            Source::Rank(Part::Stderr, 95),
            Source::Rank(Part::Control, 1000),
            Source::Rank(Part::Stdin, 0),
            Source::Relay,
            Source::RelayIn,
        ] {
            assert_eq!(Source::from_token(source.token().u64()), source);
        }
    }

    #[test]
    fn outputs_set_aside_are_not_reported_and_others_are() {
        let mut reactor = Reactor::new().unwrap();
        let (out, out_end) = rustix::pipe::pipe().unwrap();
        let (other, other_end) = rustix::pipe::pipe().unwrap();
        reactor.watch(&out, Source::Rank(Part::Stdout, 0)).unwrap();
        reactor.watch(&other, Source::Children).unwrap();
        rustix::io::write(&out_end, b"x").unwrap();
        assert_eq!(reactor.wait(None).unwrap(), [Source::Rank(Part::Stdout, 0)]);
        reactor.pause_outputs(true).unwrap();
        rustix::io::write(&other_end, b"x").unwrap();
        assert_eq!(reactor.wait(None).unwrap(), [Source::Children]);
        reactor.pause_outputs(false).unwrap();
        assert_eq!(reactor.wait(None).unwrap().len(), 2);
    }
}
