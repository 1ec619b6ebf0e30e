//! One job from the first connection to the exit code.
//!
//! [`state`] decides (pure), [`supervise`] carries out, [`sink`] and `stdin` move the ranks' output and input.

mod agreement;
pub mod apps;
mod insight;
pub mod lines;
mod preflight;
mod prepare;
mod release;
mod signals;
pub mod sink;
pub mod state;
mod status;
mod stdin;
pub mod supervise;
mod watch;
mod wishes;

pub(crate) use status::Destination;
