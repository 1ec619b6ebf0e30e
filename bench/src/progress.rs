//! One line on a terminal that says what is being done; nothing where nobody looks.

use std::io::{IsTerminal, Write};

/// The line, on standard error.
pub(crate) struct Progress {
    terminal: bool,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Progress { terminal: std::io::stderr().is_terminal() }
    }

    /// Replaces the line.
    pub(crate) fn show(&self, text: &str) {
        if self.terminal {
            // A terminal that is gone is no reason to stop measuring.
            let _ = write!(std::io::stderr(), "\r\x1b[Krsbench: {text} …");
        }
    }

    /// Takes the line away.
    pub(crate) fn clear(&self) {
        if self.terminal {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}
