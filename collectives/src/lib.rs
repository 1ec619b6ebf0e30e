//! Collectives as schedules.

pub mod algorithms;
pub mod check;
pub mod compose;
pub mod operators;
pub mod price;
pub mod schedule;
pub mod select;
