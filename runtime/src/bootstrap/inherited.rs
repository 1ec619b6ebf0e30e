//! Descriptors that the agent left open for this process.

#![expect(unsafe_code, reason = "descriptors come by number from the parent process")]

use crate::error::{Error, Result};
use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};

/// Takes over an inherited descriptor. Programs that this one starts do not inherit it again.
///
/// The caller makes sure that each number is taken once: `World::init` succeeds once a process.
pub(super) fn take(number: i32, what: &str) -> Result<OwnedFd> {
    let missing = |why: String| Error::Bootstrap {
        reason: format!(
            "the {what} (descriptor {number}) that the launcher announced is not there: {why}. A program that a rank \
             starts does not inherit it: unset {} for it",
            super::messages::BOOT_FD_VARIABLE
        ),
    };
    if number <= 2 {
        return Err(missing("the number is that of a standard stream".into()));
    }
    // SAFETY: only asked whether it is open.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    let flags = fcntl_getfd(borrowed).map_err(|error| missing(error.to_string()))?;
    fcntl_setfd(borrowed, flags | FdFlags::CLOEXEC).map_err(|error| missing(error.to_string()))?;
    // SAFETY: open, left there by the agent for this process, and taken once.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}
