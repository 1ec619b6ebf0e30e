//! Collectives as schedules.
