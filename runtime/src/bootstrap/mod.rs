//! How a rank comes to know its world: frames between launcher, agents and ranks.
//!
//! Launcher and agent talk over the agent's standard input and output, agent and rank over an inherited socket; both
//! carry [`frame`]s. What a rank is born with is a [`messages::Boot`] in a sealed memfd that it inherits.

pub mod frame;
#[cfg(not(loom))]
mod inherited;
pub mod messages;
pub mod node;
pub mod onward;
#[cfg(not(loom))]
pub(crate) mod rank;
mod runs;
#[cfg(not(loom))]
pub use rank::versioned_prefix;
