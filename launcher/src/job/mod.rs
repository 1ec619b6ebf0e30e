//! One job from the first connection to the exit code.
//!
//! [`state`] decides (pure), [`supervise`] carries out, [`sink`] and `stdin` move the ranks' output and input.

mod agreement;
mod release;
pub mod sink;
pub mod state;
mod stdin;
pub mod supervise;
mod wishes;
