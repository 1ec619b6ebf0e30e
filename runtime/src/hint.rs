//! The low-latency size hint as programs see it: asked for, agreed upon, and what it comes to.
//!
//! What a hint does to messages is decided in [`protocol`](crate::protocol); here is only what is said about it, and the
//! rule that derives one from gradients.

use crate::{
    config::Value,
    protocol::{Effect, Limits},
};
use serde::Serialize;
use std::fmt;

/// A size hint, and what it comes to on the transports that a communicator uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SizeHint {
    /// What was asked for, in bytes; 0: nothing.
    pub requested: u64,
    /// Where it was asked for: a layer of the configuration, or a call of the program.
    pub source: String,
    /// One row for every transport that reaches another rank of the communicator.
    pub transports: Vec<HintOn>,
}

/// What a size hint comes to on one transport.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HintOn {
    /// The transport's name, as in `transport.allow`.
    pub transport: &'static str,
    /// Messages up to this many bytes travel otherwise than without the hint; 0: none, the hint is inert.
    pub effective: u64,
    /// What it changes, or why it changes nothing.
    pub why: String,
}

impl SizeHint {
    /// The effective value in bytes with every peer: the least of all transports. 0 when it is inert on one of them, or
    /// when there is no other rank.
    #[must_use]
    pub fn effective(&self) -> u64 {
        self.transports.iter().map(|on| on.effective).min().unwrap_or(0)
    }
}

/// `16KiB from environment RDMA_LOW_LATENCY_HINT; shm: effective 16KiB, …; tcp: inert, …`.
impl fmt::Display for SizeHint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} from {}", size(self.requested), self.source)?;
        self.transports.iter().try_for_each(|on| write!(f, "; {}: {}", on.transport, on.why))
    }
}

impl HintOn {
    pub(crate) fn new(limits: &Limits, requested: usize) -> Self {
        let hint = limits.hint(requested);
        let effective = size(hint.effective as u64);
        let cut = if hint.effective < hint.requested { " (the transport takes no more)" } else { "" };
        let why = match hint.effect {
            Effect::NotAsked => "no hint, one recipe for all sizes".to_string(),
            Effect::Channel => format!("effective {effective}{cut}: messages up to it take the low-latency channel"),
            Effect::EagerLimit { without } => format!(
                "effective {effective}{cut}: messages up to it are sent at once, without the hint those up to {}",
                size(without as u64)
            ),
            Effect::Inert { why, eager } => {
                format!("inert: {why}, and messages up to {} are sent at once in any case", size(eager as u64))
            }
        };
        HintOn { transport: limits.capabilities.name, effective: hint.effective as u64, why }
    }
}

/// A number of bytes as the configuration shows it: `8KiB`.
pub(crate) fn size(bytes: u64) -> String {
    Value::Bytes(bytes).to_string()
}

/// From when on a new size hint holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a communicator that has been used keeps its hint"]
pub enum HintApplies {
    /// From the next message of this communicator on, and in those made from it.
    Now,
    /// Only in communicators made from this one: it has been used, and its messages do not change their ways.
    ToNewCommunicators,
}

/// The share of messages that a hint from gradients covers, in percent.
const COVERED: usize = 90;
/// Room over the messages that are expected, in percent of them.
const ROOM: usize = 120;

/// The size hint in bytes for all-reducing gradients of these many bytes each over so many ranks.
///
/// An all-reduce of `g` bytes over `p` ranks moves messages of `g / p` bytes (ring, and the halves of Rabenseifner's
/// algorithm end there). The hint is 1.2 times the 90th percentile of these, nearest rank: for a single gradient
/// `1.2 g / p`. The largest tenth is left to the bulk channel, because a hint that covers a few large messages makes the
/// buffers of every small one large. 0 without gradients or ranks.
///
/// ```
/// // One fused gradient of 10 MB over 96 ranks: messages of 104 kB.
/// assert_eq!(spmd::size_hint_for_gradients(&[10_000_000], 96), 125_000);
/// ```
#[must_use]
pub fn size_hint_for_gradients(bytes: &[usize], ranks: usize) -> u64 {
    let mut sizes = bytes.to_vec();
    sizes.sort_unstable();
    let place = (sizes.len() * COVERED).div_ceil(100);
    let Some(&bytes) = place.checked_sub(1).and_then(|place| sizes.get(place)) else { return 0 };
    let hint = (bytes as u128 * ROOM as u128).checked_div(ranks as u128 * 100).unwrap_or(0);
    u64::try_from(hint).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_gradient_gives_its_bytes_by_the_ranks_and_a_fifth_more() {
        assert_eq!(size_hint_for_gradients(&[9600], 96), 120);
        assert_eq!(size_hint_for_gradients(&[1 << 20], 1), (1 << 20) * 12 / 10);
    }

    #[test]
    fn nine_of_ten_messages_are_covered_whatever_their_order() {
        let sizes: Vec<usize> = (1..=10).rev().map(|n| n * 1000).collect();
        assert_eq!(size_hint_for_gradients(&sizes, 10), 9000 * 12 / 100);
        // A few that are very large do not count.
        let mut sizes = vec![4096; 19];
        sizes.push(1 << 30);
        assert_eq!(size_hint_for_gradients(&sizes, 4), 4096 * 12 / 40);
    }

    #[test]
    fn nothing_gives_no_hint_and_numbers_beyond_the_machine_do_not_wrap() {
        assert_eq!(size_hint_for_gradients(&[], 8), 0);
        assert_eq!(size_hint_for_gradients(&[1000], 0), 0);
        assert_eq!(size_hint_for_gradients(&[usize::MAX], 1), u64::MAX);
    }
}
