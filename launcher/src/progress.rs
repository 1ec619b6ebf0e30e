//! The one line on a terminal that says how far the start is, and that is gone before anything else is written.
//!
//! There is one terminal, so this is one state for the whole process: whoever writes calls [`gone`] first.

use std::io::Write;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// A start that takes less than this shows nothing.
pub(crate) const PATIENCE: Duration = Duration::from_millis(300);
/// The line changes at most so often.
pub(crate) const EVERY: Duration = Duration::from_millis(100);

/// Back to the first column, and everything behind it erased.
const ERASE: &str = "\r\x1b[K";

#[derive(Debug)]
struct Line {
    shown: bool,
    /// Something else was written: the line does not come back.
    over: bool,
}

static LINE: Mutex<Line> = Mutex::new(Line { shown: false, over: false });

/// Whether standard error is a terminal that can show a line.
pub(crate) fn is_possible() -> bool {
    use std::io::IsTerminal;
    std::io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Shows `text`, cut to the terminal's width; `false`: the time for it is over.
pub(crate) fn show(text: &str) -> bool {
    let mut line = LINE.lock().unwrap_or_else(PoisonError::into_inner);
    if line.over {
        return false;
    }
    let width = rustix::termios::tcgetwinsize(std::io::stderr()).map_or(0, |size| usize::from(size.ws_col));
    let width = if width < 20 { 80 } else { width };
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(width - 8).collect();
    line.shown = true;
    // Nothing can be done when a terminal does not take it.
    let _ = write!(std::io::stderr(), "{ERASE}rsrun: {text}");
    true
}

/// Erases the line; it comes back with the next [`show`].
pub(crate) fn hide() {
    erase(&mut LINE.lock().unwrap_or_else(PoisonError::into_inner));
}

/// Erases the line for good.
pub(crate) fn gone() {
    let mut line = LINE.lock().unwrap_or_else(PoisonError::into_inner);
    erase(&mut line);
    line.over = true;
}

fn erase(line: &mut Line) {
    if std::mem::take(&mut line.shown) {
        let _ = write!(std::io::stderr(), "{ERASE}");
    }
}
