//! Records for people: tables and pictures. Pure: a record in, text out.

pub mod plot;
pub mod text;

use crate::measure::Unit;

/// A figure with about three digits that mean something.
#[must_use]
pub fn figure(value: f64, unit: Unit) -> String {
    match unit {
        Unit::MegabytesPerSecond => format!("{value:.0}"),
        Unit::Microseconds | Unit::MillionsPerSecond if value >= 1000.0 => format!("{value:.0}"),
        Unit::Microseconds | Unit::MillionsPerSecond if value >= 100.0 => format!("{value:.1}"),
        Unit::Microseconds if value < 1.0 => format!("{value:.3}"),
        Unit::Microseconds | Unit::MillionsPerSecond | Unit::Megabytes => format!("{value:.2}"),
    }
}
