//! The signals that the launcher takes note of.
//!
//! Knows nothing of what they mean.

use crate::sys;

const WATCHED: [i32; 9] = [
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGTSTP,
    libc::SIGCONT,
    libc::SIGWINCH,
];

/// From now on each signal goes to `deliver` and nowhere else, until that returns `false`. What rsrun was started to
/// ignore stays ignored: `nohup rsrun`, or `rsrun &` in a shell without job control.
///
/// # Errors
/// When the kernel refuses, or no thread can be started.
pub(super) fn watch(deliver: impl Fn(i32) -> bool + Send + 'static) -> std::io::Result<()> {
    let watched = WATCHED.into_iter().filter(|signal| !sys::is_ignored(*signal));
    let mut signals = signal_hook::iterator::Signals::new(watched)?;
    std::thread::Builder::new().name("signals".to_string()).spawn(move || {
        for signal in signals.forever() {
            if !deliver(signal) {
                return;
            }
        }
    })?;
    Ok(())
}
