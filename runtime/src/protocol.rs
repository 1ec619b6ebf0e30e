//! Which way a message goes: decided from its size, the size hint and what the transport can do.
//!
//! Pure: numbers in, a [`Path`] out. Knows no transport by name, no peer and no bytes. Small messages travel at once,
//! large ones wait until their receiver has room (Woodall, Graham and Maccabe, "Protocols and strategies for optimizing
//! performance of remote memory operations on clusters", 2002; UCX, `src/ucp/proto`, for ranges as data).

use serde::{Deserialize, Serialize};
use std::fmt;

#[cfg(test)]
mod tests;

/// One of the two channels to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tier {
    /// For messages up to the size hint: made so that a single small message arrives soon.
    LowLatency,
    /// For everything else: made for bytes per second. Without a hint it is the only one.
    Bulk,
}

/// The way a message takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Path {
    /// At once, within the header of its record: one cache line, or one work request.
    Inline(Tier),
    /// At once, in one record.
    Eager(Tier),
    /// Announced; when its receive is there, in pieces, several of them under way.
    Pieces,
    /// Announced; when its receive is there, the receiver reads it out of the sender's memory.
    DirectRead,
}

impl Path {
    /// Every path, in a fixed order.
    pub const ALL: [Path; 6] = [
        Self::Inline(Tier::Bulk),
        Self::Inline(Tier::LowLatency),
        Self::Eager(Tier::Bulk),
        Self::Eager(Tier::LowLatency),
        Self::Pieces,
        Self::DirectRead,
    ];

    /// Its place in [`Path::ALL`].
    #[inline]
    pub(crate) fn index(self) -> usize {
        match self {
            Self::Inline(Tier::Bulk) => 0,
            Self::Inline(Tier::LowLatency) => 1,
            Self::Eager(Tier::Bulk) => 2,
            Self::Eager(Tier::LowLatency) => 3,
            Self::Pieces => 4,
            Self::DirectRead => 5,
        }
    }

    /// Whether the message leaves before the receiver has asked for it.
    #[must_use]
    #[inline]
    pub fn is_eager(self) -> bool {
        matches!(self, Self::Inline(_) | Self::Eager(_))
    }

    /// The channel of the message's first record. Announcements are small: they take the fast one where there are two.
    #[must_use]
    #[inline]
    pub fn tier(self) -> Tier {
        match self {
            Self::Inline(tier) | Self::Eager(tier) => tier,
            Self::Pieces | Self::DirectRead => Tier::LowLatency,
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::LowLatency => "low-latency",
            Self::Bulk => "bulk",
        })
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Inline(Tier::LowLatency) => "inline, low-latency",
            Self::Inline(Tier::Bulk) => "inline",
            Self::Eager(Tier::LowLatency) => "eager, low-latency",
            Self::Eager(Tier::Bulk) => "eager",
            Self::Pieces => "rendezvous, pieces",
            Self::DirectRead => "rendezvous, direct read",
        })
    }
}

/// What a transport can do, in bytes of payload. Asked once, when it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Capabilities {
    /// Its name, as in `transport.allow`.
    pub(crate) name: &'static str,
    /// The largest message that travels within the header of its record; 0: none does, not even an empty one.
    pub(crate) inline: usize,
    /// The largest record that a receiver takes without having asked for it, in the bulk channel.
    pub(crate) eager: usize,
    /// The largest piece of an announced message, which is a record of the bulk channel.
    pub(crate) piece: usize,
    /// Whether there are two channels to a peer.
    pub(crate) channels: Channels,
    /// Whether a receiver can read announced messages out of the sender's memory.
    pub(crate) direct_read: DirectRead,
    /// Asking it for news costs a system call: the others are asked more often.
    pub(crate) slow_poll: bool,
    /// Records that may leave later leave together with others.
    pub(crate) gathers: bool,
}

/// Whether a receiver reads announced messages itself, without the sender's help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DirectRead {
    /// From this size on.
    From(usize),
    /// Never, for this reason: "a socket reaches no memory".
    No(&'static str),
}

/// The channels of a transport to one peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Channels {
    /// One for all sizes. The hint can only raise the limit of what is sent at once.
    One {
        /// Why a second one would gain nothing, as a clause: "shared memory moves every size over one lane".
        why: &'static str,
    },
    /// A low-latency one beside the bulk one.
    #[cfg_attr(not(test), allow(dead_code, reason = "for transports that have them"))]
    Two {
        /// The largest record of the low-latency channel.
        largest: usize,
    },
}

/// The limits between paths for one transport: what it can do, and the configured eager limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) capabilities: Capabilities,
    /// What is sent at once without a hint, as configured, and by which key.
    pub(crate) wanted: usize,
    pub(crate) key: &'static str,
    /// The same, as far as the transport can.
    eager: usize,
    /// The largest message that a hint can bring onto the fast way.
    reach: usize,
}

impl Limits {
    /// `eager`: the configured eager limit, by this key.
    pub(crate) fn new(capabilities: Capabilities, eager: usize, key: &'static str) -> Self {
        let reach = match capabilities.channels {
            Channels::One { .. } => capabilities.eager,
            Channels::Two { largest } => largest,
        };
        Limits { capabilities, wanted: eager, key, eager: eager.min(capabilities.eager), reach }
    }

    /// The way of a message of so many bytes under this hint (0: none).
    #[inline]
    pub(crate) fn path(&self, bytes: usize, hint: usize) -> Path {
        let low = hint.min(self.reach);
        if bytes > self.eager.max(low) {
            return match self.capabilities.direct_read {
                DirectRead::From(from) if bytes >= from => Path::DirectRead,
                _ => Path::Pieces,
            };
        }
        let fast = bytes <= low && low > 0 && matches!(self.capabilities.channels, Channels::Two { .. });
        let tier = if fast { Tier::LowLatency } else { Tier::Bulk };
        let inline = bytes <= self.capabilities.inline && self.capabilities.inline > 0;
        if inline { Path::Inline(tier) } else { Path::Eager(tier) }
    }

    /// The way of a message that is sent at once whatever its size and the configuration, through the faster channel where
    /// there are two.
    pub(crate) fn at_once(&self, bytes: usize) -> Path {
        let tier = match self.capabilities.channels {
            Channels::One { .. } => Tier::Bulk,
            Channels::Two { .. } => Tier::LowLatency,
        };
        if bytes <= self.capabilities.inline { Path::Inline(tier) } else { Path::Eager(tier) }
    }

    /// The ranges of sizes under this hint, ascending: the largest size of each and its path. The last has no end.
    pub(crate) fn ranges(&self, hint: usize) -> Vec<(usize, Path)> {
        let low = hint.min(self.reach);
        let mut ends = vec![self.capabilities.inline, low, self.eager, usize::MAX];
        if let DirectRead::From(from) = self.capabilities.direct_read {
            ends.push(from.saturating_sub(1));
        }
        ends.sort_unstable();
        let mut ranges: Vec<(usize, Path)> = Vec::new();
        for end in ends {
            let path = self.path(end, hint);
            match ranges.last_mut() {
                Some((last, same)) if *same == path => *last = end,
                _ => ranges.push((end, path)),
            }
        }
        ranges
    }

    /// What becomes of a hint.
    pub(crate) fn hint(&self, requested: usize) -> Hint {
        let effective = requested.min(self.reach);
        let effect = match self.capabilities.channels {
            _ if requested == 0 => Effect::NotAsked,
            Channels::Two { .. } => Effect::Channel,
            Channels::One { .. } if effective > self.eager => Effect::EagerLimit { without: self.eager },
            Channels::One { why } => Effect::Inert { why, eager: self.eager },
        };
        Hint { requested, effective: if matches!(effect, Effect::Inert { .. }) { 0 } else { effective }, effect }
    }
}

/// A size hint, and what it comes to on one transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hint {
    /// In bytes, as asked for.
    pub(crate) requested: usize,
    /// The largest message that profits, in bytes; 0: none does.
    pub(crate) effective: usize,
    pub(crate) effect: Effect,
}

/// What a hint changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// There is none: one general recipe.
    NotAsked,
    /// Messages up to it take the low-latency channel.
    Channel,
    /// Messages up to it are sent at once; without it, only those up to `without` are.
    EagerLimit { without: usize },
    /// Nothing: there is one channel, and messages up to it were sent at once anyway.
    Inert { why: &'static str, eager: usize },
}
