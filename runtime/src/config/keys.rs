//! The table of every configuration key.

use std::marker::PhantomData;

/// A typed handle on one key of the table.
#[derive(Debug)]
pub struct Key<T> {
    /// The dotted name, as in files and on the command line.
    pub name: &'static str,
    kind: PhantomData<fn() -> T>,
}

/// One row of the table.
#[derive(Debug)]
pub struct KeySpec {
    /// The dotted name.
    pub name: &'static str,
}
