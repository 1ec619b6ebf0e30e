//! The one system call that needs `unsafe`: what a process does between fork and exec.

#![expect(unsafe_code, reason = "pre_exec is unsafe by nature; its use says why it is sound")]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Signals have numbers from 1 to this one.
const LAST_SIGNAL: i32 = 64;

/// See [`crate::process::with_default_signals`].
pub(crate) fn with_default_signals(command: &mut Command) -> &mut Command {
    let hook = || -> io::Result<()> {
        for signal in 1..=LAST_SIGNAL {
            // It fails for those that have no other action (SIGKILL, SIGSTOP) and for those of the C library.
            // SAFETY: a plain system call on a disposition of this process, which runs nothing but this hook and exec.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        Ok(())
    };
    // SAFETY: the hook makes system calls only: `signal` is async-signal-safe, nothing allocates or locks.
    unsafe { command.pre_exec(hook) }
}
