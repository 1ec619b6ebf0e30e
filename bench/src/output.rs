//! Standard output and standard error of this package's programs, and how they end.
//!
//! A reader may go before everything is written (`rsbench peers | head -1`): that ends a program without a word, as it
//! ends any other, and after what the program has to take away or to keep. The macros of the standard library panic there.

use crate::file::CannotWrite;
use crate::port::Failure;
use std::fmt::Display;
use std::io::{ErrorKind, Write, stderr, stdout};
use std::process::ExitCode;

/// What a shell says of a program that SIGPIPE has ended.
const READER_GONE: u8 = 141;

/// Whoever read standard output reads it no more.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("nobody reads standard output any more")]
pub struct ReaderGone;

/// Writes a line to standard output.
///
/// # Errors
/// [`ReaderGone`], or why standard output takes nothing.
pub fn line(line: impl Display) -> Result<(), Failure> {
    text(format_args!("{line}\n"))
}

/// Writes a text that has its ends of lines.
///
/// # Errors
/// As [`line()`].
pub fn text(text: impl Display) -> Result<(), Failure> {
    let mut out = stdout().lock();
    write!(out, "{text}").and_then(|()| out.flush()).map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => ReaderGone.into(),
        _ => format!("standard output: {error}").into(),
    })
}

/// Writes a line to standard error, if somebody reads it: that nobody does is no reason to stop measuring.
pub fn note(text: impl Display) {
    let _ = writeln!(stderr(), "{text}");
}

/// The exit code of the program `name`; why it failed goes to standard error.
#[must_use]
pub fn end(name: &str, done: Result<ExitCode, Failure>) -> ExitCode {
    done.unwrap_or_else(|failure| {
        if failure.is::<ReaderGone>() {
            return ExitCode::from(READER_GONE);
        }
        note(format_args!("{name}: {failure}"));
        if failure.is::<CannotWrite>() { ExitCode::from(CannotWrite::EXIT) } else { ExitCode::FAILURE }
    })
}
