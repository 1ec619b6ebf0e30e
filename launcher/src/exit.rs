//! The exit codes of the launcher, and the failure that leads to one.
//!
//! One enum and one table, so that the documentation, `--help` and the code cannot disagree.

use std::fmt;

/// Why the launcher ends, as its exit code says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitCode {
    /// Every rank exited with 0.
    Success,
    /// A rank exited with this code, or asked for it by aborting.
    Rank(u8),
    /// A rank was killed by this signal, or the launcher was interrupted by it.
    Signal(u8),
    /// The command line is wrong.
    Usage,
    /// A hostfile or a setting is wrong.
    Data,
    /// A host cannot be reached, or does not let us in.
    Unreachable,
    /// The agent of a host was lost, or something went wrong inside.
    Internal,
    /// `World::init` was refused: ranks disagree, or some never came.
    Refused,
    /// A directory is missing or cannot be used: the working directory on a host, or where output is to go.
    Directory,
    /// More ranks than slots.
    Slots,
    /// Two parts speak different protocol versions, or a rank left without finalizing.
    Protocol,
    /// A time limit was reached.
    Timeout,
    /// The program is not executable.
    NotExecutable,
    /// The program, or rsrun on a host, was not found.
    NotFound,
}

impl ExitCode {
    /// The number that the process exits with.
    pub fn number(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Rank(code) => code,
            Self::Signal(signal) => 128 + (signal & 0x7f),
            Self::Usage => 64,
            Self::Data => 65,
            Self::Unreachable => 69,
            Self::Internal => 70,
            Self::Refused => 71,
            Self::Directory => 73,
            Self::Slots => 75,
            Self::Protocol => 76,
            Self::Timeout => 124,
            Self::NotExecutable => 126,
            Self::NotFound => 127,
        }
    }
}

/// The exit codes as users read them: number, meaning.
pub const TABLE: &[(&str, &str)] = &[
    ("0", "every rank exited with 0"),
    ("1-255", "exit code of the rank that failed first (by time)"),
    ("128+N", "that rank was killed by signal N, or rsrun was interrupted (130: INT, 143: TERM)"),
    ("64", "wrong command line"),
    ("65", "wrong hostfile or configuration"),
    ("69", "a host cannot be reached: address, connection, host key or authentication"),
    ("70", "the agent of a host was lost, or an internal error"),
    ("71", "World::init was refused: ranks disagree about a setting, or one ended before it"),
    ("73", "the working directory is missing on a host, or output cannot be written where it is to go"),
    ("75", "more ranks than slots"),
    ("76", "another protocol version, or a rank left without finalizing"),
    ("124", "--timeout or launch.start_timeout was reached"),
    ("126", "the program is not executable"),
    ("127", "the program was not found"),
];

/// The one reason why a job ends, with what the user is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The exit code.
    pub exit: ExitCode,
    /// The message: names the place and the way out. Printed once, after `rsrun: `.
    pub message: String,
}

impl Failure {
    /// A failure with this code and message.
    pub fn new(exit: ExitCode, message: impl Into<String>) -> Self {
        Self { exit, message: message.into() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// The name of a signal, for messages: `SIGKILL`.
pub fn signal_name(signal: i32) -> String {
    let name = match signal {
        libc::SIGHUP => "SIGHUP",
        libc::SIGINT => "SIGINT",
        libc::SIGQUIT => "SIGQUIT",
        libc::SIGILL => "SIGILL",
        libc::SIGTRAP => "SIGTRAP",
        libc::SIGABRT => "SIGABRT",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGKILL => "SIGKILL",
        libc::SIGUSR1 => "SIGUSR1",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGUSR2 => "SIGUSR2",
        libc::SIGPIPE => "SIGPIPE",
        libc::SIGALRM => "SIGALRM",
        libc::SIGTERM => "SIGTERM",
        libc::SIGCONT => "SIGCONT",
        libc::SIGTSTP => "SIGTSTP",
        libc::SIGWINCH => "SIGWINCH",
        libc::SIGXCPU => "SIGXCPU",
        libc::SIGXFSZ => "SIGXFSZ",
        libc::SIGSYS => "SIGSYS",
        _ => return format!("signal {signal}"),
    };
    name.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_of_the_launcher_stands_in_the_table() {
        use ExitCode::*;
        for code in [
            Success,
            Usage,
            Data,
            Unreachable,
            Internal,
            Refused,
            Directory,
            Slots,
            Protocol,
            Timeout,
            NotExecutable,
            NotFound,
        ] {
            let number = code.number().to_string();
            assert!(TABLE.iter().any(|(n, _)| *n == number), "{code:?} = {number} is not documented");
        }
    }

    #[test]
    fn a_signal_is_128_more_than_its_number() {
        assert_eq!(ExitCode::Signal(9).number(), 137);
        assert_eq!(ExitCode::Signal(2).number(), 130);
    }
}
