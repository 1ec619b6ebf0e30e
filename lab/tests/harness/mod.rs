//! What both programs of tests have in common: one test after another, each with the time it took, and a panic as its failure.

use libtest_mimic::{Arguments, Failed};
use std::panic::AssertUnwindSafe;
use std::time::Instant;

/// The command line of a program whose tests share something, and so run one after another.
pub(crate) fn arguments() -> Arguments {
    // The message is shown at the end with the test's name; here the place is enough.
    std::panic::set_hook(Box::new(|panic| {
        if let Some(place) = panic.location() {
            eprint!("({place}) ");
        }
    }));
    Arguments { test_threads: Some(1), ..Arguments::from_args() }
}

/// Runs a test.
pub(crate) fn run(test: impl FnOnce()) -> Result<(), Failed> {
    let begun = Instant::now();
    let outcome = std::panic::catch_unwind(AssertUnwindSafe(test));
    // Beside the name, which is there, and the result, which comes.
    eprint!("({:.1} s) ", begun.elapsed().as_secs_f64());
    outcome.map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        Failed::from(text.unwrap_or("the test panicked"))
    })
}
