//! What two ranks tell each other over TCP before they talk over RDMA, and when they stop. Bytes in, messages out.

use crate::{
    bootstrap::frame,
    verbs::{Endpoint, Gid, units::Mtu},
};
use serde::{Deserialize, Serialize};

/// One message of the agreement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Message {
    /// The sender's end of each channel, the low-latency one first where there are two.
    Offer(Vec<Offer>),
    /// The sender cannot, or could not connect its end.
    Refuse {
        /// Why, for the user.
        reason: String,
    },
    /// The sender's ends are connected: it takes records.
    Ready,
    /// The sender leaves. It has sent so many records over RDMA in all.
    Farewell {
        /// How many.
        records: u64,
    },
}

/// One end of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Offer {
    gid: [u8; 16],
    lid: u16,
    number: u32,
    sequence: u32,
    mtu: u32,
    /// The ring that the other side writes: address, key, units, bytes of a unit.
    pub(super) address: u64,
    pub(super) key: u32,
    pub(super) units: u32,
    pub(super) unit: u32,
}

impl Offer {
    pub(super) fn new(end: &Endpoint, address: u64, key: u32, units: u32, unit: u32) -> Self {
        Offer {
            gid: end.gid.0,
            lid: end.lid,
            number: end.number,
            sequence: end.sequence,
            mtu: end.mtu.bytes(),
            address,
            key,
            units,
            unit,
        }
    }

    /// The end of the queue pair; `None` when the MTU is none.
    pub(super) fn endpoint(&self) -> Option<Endpoint> {
        let Offer { gid, lid, number, sequence, mtu, .. } = *self;
        Some(Endpoint { gid: Gid(gid), lid, number, sequence, mtu: Mtu::from_bytes(mtu)? })
    }
}

impl Message {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        frame::encode(self).expect("two offers and a reason are far below the limit")
    }

    /// `None` when no correct peer sends these bytes.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        frame::decode(bytes).ok()
    }
}

/// Any bytes are a message or none; a message says the same after another trip, and each of its offers names an end or has
/// an MTU that is none.
#[cfg(fuzzing)]
pub fn fuzz(bytes: &[u8]) {
    let Some(message) = Message::from_bytes(bytes) else { return };
    assert_eq!(Message::from_bytes(&message.to_bytes()).as_ref(), Some(&message));
    if let Message::Offer(offers) = &message {
        offers.iter().for_each(|offer| assert_eq!(offer.endpoint().is_some(), Mtu::from_bytes(offer.mtu).is_some()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn offer(number: u32) -> Offer {
        let end =
            Endpoint { gid: Gid([7; 16]), lid: 3, number, sequence: 0x00ff_ffff, mtu: Mtu::from_bytes(4096).unwrap() };
        Offer::new(&end, u64::MAX, 9, 256, 1024)
    }

    #[test]
    fn what_was_said_is_understood() {
        let reason = "no device".to_string();
        for message in [
            Message::Offer(vec![offer(1), offer(2)]),
            Message::Refuse { reason },
            Message::Ready,
            Message::Farewell { records: u64::MAX },
        ] {
            assert_eq!(Message::from_bytes(&message.to_bytes()), Some(message));
        }
        assert_eq!(offer(5).endpoint().unwrap().number, 5);
        assert_eq!(Offer { mtu: 1500, ..offer(5) }.endpoint(), None);
    }

    proptest! {
        #[test]
        fn bytes_of_any_kind_are_a_message_or_none(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Message::from_bytes(&bytes);
        }
    }
}
