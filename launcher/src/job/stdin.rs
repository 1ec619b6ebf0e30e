//! The launcher's standard input on its way to the ranks that read it: read only as far as they have room.
//!
//! A thread of its own, because reading may block for ever. It gets credit in bytes and reads no more than that.

use rustix::io::Errno;
use rustix::stdio::stdin;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// The largest piece, in bytes.
const PIECE: usize = 64 << 10;

/// The handle on the reading thread.
#[derive(Debug, Default)]
pub(super) struct Stdin {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    credit: u64,
    started: bool,
    stopped: bool,
    /// Counts how often the process was continued: a terminal may be ours again.
    continued: u64,
}

impl Stdin {
    /// Allows `bytes` more to be read. The first call starts the thread, which gives each piece to `deliver`, and an
    /// empty one at the end.
    pub(super) fn allow(self: &Arc<Self>, bytes: u32, deliver: impl Fn(Vec<u8>) + Send + 'static) -> io::Result<()> {
        let mut state = self.lock();
        state.credit += u64::from(bytes);
        if !state.started {
            state.started = true;
            let own = Arc::clone(self);
            std::thread::Builder::new().name("input".to_string()).spawn(move || own.run(deliver))?;
        }
        self.changed.notify_all();
        Ok(())
    }

    /// Nobody wants more.
    pub(super) fn stop(&self) {
        self.lock().stopped = true;
        self.changed.notify_all();
    }

    /// The process was stopped and goes on, perhaps in the foreground now.
    pub(super) fn continued(&self) {
        self.lock().continued += 1;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self, until: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        while !state.stopped && !until(&state) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state
    }

    fn run(&self, deliver: impl Fn(Vec<u8>)) {
        let mut buffer = vec![0_u8; PIECE];
        loop {
            let state = self.wait(|state| state.credit > 0);
            if state.stopped {
                return;
            }
            let most = usize::try_from(state.credit).unwrap_or(PIECE).min(PIECE);
            let seen = state.continued;
            drop(state);
            if in_background() {
                // Reading would stop us (SIGTTIN). The job runs without input until the shell brings us back.
                drop(self.wait(|state| state.continued > seen));
                continue;
            }
            match rustix::io::read(stdin(), &mut buffer[..most]) {
                Ok(0) => return deliver(Vec::new()),
                Ok(n) => {
                    let mut state = self.lock();
                    state.credit -= n as u64;
                    drop(state);
                    deliver(buffer[..n].to_vec());
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    let mut fds = [rustix::event::PollFd::from_borrowed_fd(stdin(), rustix::event::PollFlags::IN)];
                    let _ = rustix::event::poll(&mut fds, None);
                }
                // A closed or broken input ends like an empty one.
                Err(_) => return deliver(Vec::new()),
            }
        }
    }
}

/// Whether standard input is a terminal whose foreground belongs to someone else.
fn in_background() -> bool {
    rustix::termios::tcgetpgrp(stdin()).is_ok_and(|foreground| foreground != rustix::process::getpgrp())
}
