//! What a rank is doing, in one word of shared memory: for the report of a job that does not end.
//!
//! Written with one relaxed store when a call begins to wait and one when it returns; a call that completes at once
//! writes nothing. Knows nothing of how anyone waits.

use serde::{Deserialize, Serialize};
use std::fmt;

/// What a rank is doing. Ranks are those of the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Activity {
    /// It has not entered `World::init`, or its program never does.
    Outside,
    /// It waits in `World::init` for the others.
    Init,
    /// It waits in no call of this library.
    Computing,
    /// It waits for the receiver of a message.
    Send {
        /// The receiver.
        to: u32,
        /// The message's tag.
        tag: u32,
    },
    /// It waits for a message.
    Receive {
        /// The sender; `None`: anyone.
        from: Option<u32>,
        /// The tag; `None`: any.
        tag: Option<u32>,
    },
    /// It waits for a message that it only looks for.
    Probe {
        /// The sender; `None`: anyone.
        from: Option<u32>,
        /// The tag; `None`: any.
        tag: Option<u32>,
    },
    /// It waits for a request that it made before.
    Request,
    /// It waits in a collective operation.
    Collective {
        /// Which one.
        operation: Operation,
        /// The how many-th of its communicator, from 1.
        number: u32,
    },
    /// It waits for a signal in its part of a symmetric heap.
    Signal,
    /// It drops its `World` and waits until its messages are on their way.
    Leaving,
    /// It has dropped its `World`.
    Finalized,
}

macro_rules! operations {
    ($($name:ident = $code:literal $text:literal),* $(,)?) => {
        /// A collective operation.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum Operation {
            $(
                #[doc = concat!("`", $text, "`.")]
                $name = $code,
            )*
        }

        impl Operation {
            fn from_code(code: u8) -> Option<Self> {
                match code {
                    $($code => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// The name of the function.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }

        impl fmt::Display for Operation {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

operations! {
    Exchange = 0 "exchange",
    Split = 1 "split",
    Barrier = 2 "barrier",
    Broadcast = 3 "broadcast",
    Reduce = 4 "reduce",
    AllReduce = 5 "all_reduce",
    Gather = 6 "gather",
    AllGather = 7 "all_gather",
    Scatter = 8 "scatter",
    AllToAll = 9 "all_to_all",
    SizeHint = 10 "set_low_latency_size_hint",
    Shrink = 11 "shrink",
    Heap = 12 "heap",
    ReduceScatter = 13 "reduce_scatter",
    Scan = 14 "scan",
    Exscan = 15 "exscan",
    GatherV = 16 "gather_v",
    ScatterV = 17 "scatter_v",
    AllGatherV = 18 "all_gather_v",
    AllToAllV = 19 "all_to_all_v",
}

/// Ranks take 24 bits of the word.
const RANK_BITS: u64 = 0xff_ffff;

impl Activity {
    /// Kind in the highest byte; then 24 bits for a rank and 32 for a tag, each one more than its value so that 0 is
    /// "any"; or 8 bits for the operation and 32 for its number.
    pub(crate) fn pack(self) -> u64 {
        let word = |kind: u64, rank: Option<u32>, low: Option<u32>| {
            let rank = rank.map_or(0, |rank| (u64::from(rank) + 1).min(RANK_BITS));
            kind << 56 | rank << 32 | low.map_or(0, |low| u64::from(low.saturating_add(1)))
        };
        match self {
            Self::Outside => 0,
            Self::Init => 1 << 56,
            Self::Computing => 2 << 56,
            Self::Send { to, tag } => word(3, Some(to), Some(tag)),
            Self::Receive { from, tag } => word(4, from, tag),
            Self::Probe { from, tag } => word(5, from, tag),
            Self::Request => 6 << 56,
            Self::Collective { operation, number } => 7 << 56 | (operation as u64) << 32 | u64::from(number),
            Self::Leaving => 8 << 56,
            Self::Finalized => 9 << 56,
            Self::Signal => 10 << 56,
        }
    }

    /// The other way; a word that no rank writes reads as [`Activity::Computing`].
    pub(crate) fn unpack(word: u64) -> Self {
        let [kind, operation_high, _, operation, a, b, c, d] = word.to_be_bytes();
        let low = u32::from_be_bytes([a, b, c, d]);
        let rank = u32::try_from(word >> 32 & RANK_BITS).unwrap_or(0).checked_sub(1);
        let tag = low.checked_sub(1);
        match kind {
            0 => Self::Outside,
            1 => Self::Init,
            3 => Self::Send { to: rank.unwrap_or(0), tag: tag.unwrap_or(0) },
            4 => Self::Receive { from: rank, tag },
            5 => Self::Probe { from: rank, tag },
            6 => Self::Request,
            7 if operation_high == 0 => match Operation::from_code(operation) {
                Some(operation) => Self::Collective { operation, number: low },
                None => Self::Computing,
            },
            8 => Self::Leaving,
            9 => Self::Finalized,
            10 => Self::Signal,
            _ => Self::Computing,
        }
    }
}

impl fmt::Display for Activity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let message = |f: &mut fmt::Formatter<'_>, name: &str, from: &Option<u32>, tag: &Option<u32>| {
            match from {
                Some(from) => write!(f, "in {name} from rank {from}")?,
                None => write!(f, "in {name} from any rank")?,
            }
            match tag {
                Some(tag) => write!(f, " tag {tag}"),
                None => f.write_str(" any tag"),
            }
        };
        match self {
            Self::Outside => f.write_str("running, not in World::init yet"),
            Self::Init => f.write_str("in World::init"),
            Self::Computing => f.write_str("computing"),
            Self::Send { to, tag } => write!(f, "in send to rank {to} tag {tag}"),
            Self::Receive { from, tag } => message(f, "recv", from, tag),
            Self::Probe { from, tag } => message(f, "probe", from, tag),
            Self::Request => f.write_str("waiting for a request"),
            Self::Collective { operation, number } => write!(f, "in {} number {number}", operation.name()),
            Self::Signal => f.write_str("in wait_signal"),
            Self::Leaving => f.write_str("dropping its World"),
            Self::Finalized => f.write_str("finalized"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_activity() -> impl Strategy<Value = Activity> {
        let rank = 0_u32..0xff_fffe;
        let tag = 0_u32..=0x7fff_ffff;
        let pair = (proptest::option::of(rank.clone()), proptest::option::of(tag.clone()));
        prop_oneof![
            Just(Activity::Outside),
            Just(Activity::Init),
            Just(Activity::Computing),
            Just(Activity::Request),
            Just(Activity::Signal),
            Just(Activity::Leaving),
            Just(Activity::Finalized),
            (rank, tag).prop_map(|(to, tag)| Activity::Send { to, tag }),
            pair.clone().prop_map(|(from, tag)| Activity::Receive { from, tag }),
            pair.prop_map(|(from, tag)| Activity::Probe { from, tag }),
            (0_u8..=19, any::<u32>()).prop_map(|(code, number)| Activity::Collective {
                operation: Operation::from_code(code).unwrap(),
                number
            }),
        ]
    }

    proptest! {
        #[test]
        fn what_is_packed_is_unpacked(activity in any_activity()) {
            prop_assert_eq!(Activity::unpack(activity.pack()), activity);
        }

        #[test]
        fn no_word_is_a_panic(word in any::<u64>()) {
            let _ = Activity::unpack(word).to_string();
        }
    }

    #[test]
    fn it_reads_as_a_sentence() {
        let text = |activity: Activity| activity.to_string();
        let collective = Activity::Collective { operation: Operation::AllReduce, number: 17 };
        assert_eq!(text(collective), "in all_reduce number 17");
        assert_eq!(text(Activity::Receive { from: Some(3), tag: Some(5) }), "in recv from rank 3 tag 5");
        assert_eq!(text(Activity::Probe { from: None, tag: None }), "in probe from any rank any tag");
    }
}
