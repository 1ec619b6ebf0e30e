//! What the configuration says of RDMA, as recipes for channels. Pure.

use super::ring::Size;
use crate::{
    config::{Snapshot, keys},
    error::{Error, Result},
    transport::record::HEADER,
    verbs::{
        Attributes,
        units::{AckTimeout, Mtu, RnrTimer},
    },
};
use std::time::Duration;

/// How one channel is made; fixed for its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Recipe {
    pub(super) ring: Size,
    pub(super) send_depth: u32,
    pub(super) inline: u32,
    /// Receives kept posted, where it is not one for every credit.
    pub(super) receives: Option<u32>,
    pub(super) attributes: Attributes,
    pub(super) signal_all: bool,
    /// The host may carry out what the peer's device writes in any order.
    pub(super) relaxed: bool,
}

/// Units of a ring, and so receives of a channel.
const UNITS: u32 = 256;
/// Requests of a low-latency channel that may be under way.
const SHALLOW: u32 = 64;
/// The wait that a low-latency channel asks for when it is not ready, which happens only when something is wrong.
const SHORT_WAIT: Duration = Duration::from_micros(10);
/// The largest record of a low-latency channel: beyond, the wire takes longer than everything that such a channel saves.
const MOST_LOW: usize = 256 << 10;
/// The smallest ring of a low-latency channel.
const LEAST_LOW_RING: usize = 64 << 10;

/// The recipes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Recipes {
    /// For messages up to the size hint, where there is one.
    pub(super) low: Option<Recipe>,
    pub(super) bulk: Recipe,
    /// Channels of the second kind: the first takes everything that needs an order, and all take pieces.
    pub(super) queue_pairs: usize,
}

impl Recipes {
    /// From the configuration of the job and the size hint in bytes.
    pub(super) fn new(snapshot: &Snapshot, hint: usize) -> Result<Self> {
        let number = |key| usize::try_from(snapshot.get(key)).unwrap_or(usize::MAX);
        let narrow = |key| u32::try_from(snapshot.get(key)).unwrap_or(u32::MAX);
        let attributes = attributes(snapshot)?;
        let bulk = Recipe {
            ring: Size { units: UNITS, unit: number(keys::VERBS_RING_BYTES) / UNITS as usize },
            send_depth: narrow(keys::VERBS_SEND_DEPTH),
            inline: narrow(keys::VERBS_INLINE),
            receives: Some(narrow(keys::VERBS_RECEIVES)).filter(|receives| *receives > 0),
            attributes,
            signal_all: snapshot.get(keys::VERBS_SIGNAL_ALL),
            relaxed: true,
        };
        let low = (hint > 0).then(|| {
            let ring = (4 * (hint.min(MOST_LOW) + HEADER)).next_power_of_two().max(LEAST_LOW_RING);
            Recipe {
                ring: Size { units: UNITS, unit: ring / UNITS as usize },
                send_depth: SHALLOW.min(bulk.send_depth),
                relaxed: false,
                attributes: Attributes {
                    rnr_timer: RnrTimer::at_least(SHORT_WAIT).unwrap_or(attributes.rnr_timer),
                    traffic_class: byte(snapshot.get(keys::VERBS_LOW_LATENCY_TRAFFIC_CLASS)),
                    ..attributes
                },
                ..bulk
            }
        });
        Ok(Self { low, bulk, queue_pairs: number(keys::VERBS_QUEUE_PAIRS) })
    }

    /// The recipes in the order of the channels.
    pub(super) fn in_order(&self) -> impl Iterator<Item = Recipe> {
        self.low.into_iter().chain(std::iter::repeat_n(self.bulk, self.queue_pairs))
    }
}

/// A number that the table of keys keeps within a byte.
fn byte(number: u64) -> u8 {
    u8::try_from(number).unwrap_or(u8::MAX)
}

/// The attributes of a connection that are settings.
pub(crate) fn attributes(snapshot: &Snapshot) -> Result<Attributes> {
    // The table of keys holds the ranges; what cannot be encoded is beyond them.
    let beyond = |key: &str| Error::Setting { reason: format!("{key} is beyond what RDMA can encode") };
    Ok(Attributes {
        ack_timeout: AckTimeout::at_least(snapshot.get(keys::VERBS_TIMEOUT))
            .ok_or_else(|| beyond(keys::VERBS_TIMEOUT.name))?,
        retries: byte(snapshot.get(keys::VERBS_RETRIES)),
        rnr_retries: byte(snapshot.get(keys::VERBS_RNR_RETRIES)),
        rnr_timer: RnrTimer::at_least(snapshot.get(keys::VERBS_RNR_TIMER))
            .ok_or_else(|| beyond(keys::VERBS_RNR_TIMER.name))?,
        mtu: Mtu::from_bytes(snapshot.get(keys::VERBS_MTU).parse().unwrap_or_default())
            .ok_or_else(|| beyond(keys::VERBS_MTU.name))?,
        traffic_class: byte(snapshot.get(keys::VERBS_TRAFFIC_CLASS)),
    })
}

/// After how long a device gives up a peer that does not answer: the first try and every retry wait for at least the
/// time-out. `None`: never.
pub(super) fn gives_up_after(attributes: &Attributes) -> Option<Duration> {
    attributes.ack_timeout.time().map(|time| time * (1 + u32::from(attributes.retries)))
}

/// What differs between the attributes that were asked for and those that a device has. A smaller MTU is no deviation:
/// the ports decide it.
pub(super) fn deviations(asked: &Attributes, has: &Attributes) -> Vec<String> {
    let time = |timeout: AckTimeout| timeout.time().map_or_else(|| "for ever".into(), |time| format!("{time:?}"));
    let rows = [
        ("acknowledge time-out", time(asked.ack_timeout), time(has.ack_timeout)),
        ("retries", asked.retries.to_string(), has.retries.to_string()),
        ("retries of a receiver that is not ready", asked.rnr_retries.to_string(), has.rnr_retries.to_string()),
        (
            "wait of a receiver that is not ready",
            format!("{:?}", asked.rnr_timer.time()),
            format!("{:?}", has.rnr_timer.time()),
        ),
        ("MTU", asked.mtu.min(has.mtu).bytes().to_string(), has.mtu.bytes().to_string()),
    ];
    let differ = rows.into_iter().filter(|(_, asked, has)| asked != has);
    differ.map(|(name, asked, has)| format!("{name}: asked for {asked}, the device has {has}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_hint_there_is_one_recipe_and_with_one_the_small_messages_have_their_own() {
        let snapshot = Snapshot::defaults();
        assert_eq!(Recipes::new(&snapshot, 0).unwrap().low, None);
        let recipes = Recipes::new(&snapshot, 8192).unwrap();
        let low = recipes.low.unwrap();
        assert!(low.ring.largest() >= 8192 + HEADER);
        assert!(low.send_depth < recipes.bulk.send_depth);
        assert!(low.attributes.rnr_timer.time() < recipes.bulk.attributes.rnr_timer.time());
        let whole = Recipes::new(&snapshot, usize::MAX).unwrap().low.unwrap();
        assert!(whole.ring.largest() >= MOST_LOW && whole.ring.bytes() <= 8 * MOST_LOW);
    }

    #[test]
    fn a_silent_peer_is_given_up_after_the_first_try_and_every_retry() {
        let asked = Recipes::new(&Snapshot::defaults(), 0).unwrap().bulk.attributes;
        let with = |code, retries| Attributes { ack_timeout: AckTimeout::from_code(code), retries, ..asked };
        assert_eq!(gives_up_after(&with(14, 7)), Some(Duration::from_nanos(8 * 67_108_864)));
        assert_eq!(gives_up_after(&with(14, 0)), Some(Duration::from_nanos(67_108_864)));
        assert_eq!(gives_up_after(&with(0, 7)), None, "a time-out of zero is for ever");
        assert!(gives_up_after(&with(31, 7)).is_some(), "the longest fits");
    }

    #[test]
    fn what_a_device_has_otherwise_than_asked_is_named_with_both_values() {
        let asked = Recipes::new(&Snapshot::defaults(), 0).unwrap().bulk.attributes;
        assert_eq!(deviations(&asked, &asked), [""; 0]);
        let smaller = Attributes { mtu: Mtu::from_bytes(1024).unwrap(), ..asked };
        assert_eq!(deviations(&asked, &smaller), [""; 0]);
        let has = Attributes { ack_timeout: AckTimeout::Infinite, retries: 3, ..asked };
        let found = deviations(&asked, &has);
        assert_eq!(found.len(), 2);
        assert!(found[0].ends_with("the device has for ever"), "{found:?}");
    }
}
