//! The engine, locked.

use super::{Engine, tasks::Task};
use std::{
    ops::{Deref, DerefMut},
    sync::MutexGuard,
};

/// The engine for as long as it is locked. Tasks that nobody will ask for are dropped when it no longer is.
pub(crate) struct Lock<'a> {
    engine: MutexGuard<'a, Engine>,
    /// Fields are dropped in this order: what is here, without the lock. Behind a pointer, which is all that is looked at
    /// where there is nothing, as nearly always.
    over: Option<Box<[Box<dyn Task>]>>,
}

impl<'a> Lock<'a> {
    #[inline]
    pub(super) fn new(engine: MutexGuard<'a, Engine>) -> Self {
        Lock { engine, over: None }
    }
}

impl Deref for Lock<'_> {
    type Target = Engine;

    #[inline]
    fn deref(&self) -> &Engine {
        &self.engine
    }
}

impl DerefMut for Lock<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Engine {
        &mut self.engine
    }
}

impl Drop for Lock<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.engine.tasks.are_any_over() {
            self.over = Some(self.engine.tasks.take_over());
        }
    }
}
