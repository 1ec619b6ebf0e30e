//! What tasks print. A reader may go before a task is done (`cargo xtask test | head -5`), and hosts that were brought up
//! must be taken down all the same: the macros of the standard library panic there.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fmt::Arguments;
use std::io::Write;

/// A line on standard output, written as with `println!`.
///
/// That nobody reads is no error here. The SIGPIPE that comes with it stops a task that runs programs, as ^C does
/// ([`crate::command::Interrupts`]); others come to their end, which is near.
macro_rules! say {
    ($($words:tt)*) => { $crate::say::line(format_args!($($words)*)) };
}
pub(crate) use say;

/// See [`say`].
pub(crate) fn line(text: Arguments<'_>) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// Whether standard output is a pipe that nobody reads any more: then that is why a program has failed that writes to it.
pub(crate) fn nobody_reads() -> bool {
    let out = std::io::stdout();
    let mut pipe = [PollFd::new(&out, PollFlags::empty())];
    poll(&mut pipe, Some(&Timespec::default())).is_ok() && pipe[0].revents().contains(PollFlags::ERR)
}
