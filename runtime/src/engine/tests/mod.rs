//! The protocol of one rank, record by record, without transports.

mod awaited;
mod flow;
mod giving_up;
mod revoked;

use super::{
    core::{Core, Outgoing},
    operation::*,
    vector::AnyVec,
};
use crate::{
    element::{Element, Signature},
    error::{Error, Result},
    matching::Pattern,
    protocol::{Path, Tier},
    transport::record::{Header, Kind, Payload},
};
use proptest::prelude::*;

const PEER: usize = 1;
const CONTEXT: u64 = 2;
const TAG: u64 = 7;
const WINDOW: usize = 10_000;
const FROM_PEER: Pattern = Pattern { source: Some(PEER), tag: Some(TAG) };

/// What a blocked call lends.
struct Room {
    call: u64,
    bytes: Vec<u8>,
}

impl Buffers for Room {
    fn source(&self, _: Lent) -> Option<&[u8]> {
        None
    }

    fn destination(&mut self, lent: Lent) -> Option<&mut [u8]> {
        (lent.call == self.call).then_some(&mut self.bytes[..])
    }
}

fn signature() -> Signature {
    u8::signature()
}

fn expected(room: usize) -> Expected {
    Expected { signature: signature(), element: Some("u8"), room, exact: false }
}

fn announcement(total: usize) -> Header {
    Header {
        context: CONTEXT,
        tag: TAG,
        total: total as u64,
        signature: signature().0,
        id: 99,
        ..Header::new(Kind::RequestToSend)
    }
}

fn deliver(core: &mut Core, header: Header, mut payload: &[u8], buffers: &mut dyn Buffers) -> Result<()> {
    let header = Header { payload: u32::try_from(payload.len()).unwrap(), ..header };
    core.record(PEER, &header, &mut payload as &mut dyn Payload, buffers)
}

fn piece(id: OperationId, at: usize) -> Header {
    Header { id, tag: at as u64, ..Header::new(Kind::Data) }
}

fn message(length: usize) -> Vec<u8> {
    (0..length).map(|i| u8::try_from(i % 251).unwrap()).collect()
}

/// A receive of a large message that has been asked for.
fn arriving(core: &mut Core, room: &mut Room, total: usize) -> OperationId {
    let landing = Landing::Lent(Lent { call: room.call, number: 0 });
    let id = core.start_receive(CONTEXT, FROM_PEER, expected(room.bytes.len()), landing, room);
    deliver(core, announcement(total), &[], room).unwrap();
    id
}

fn outcome(core: &mut Core, id: OperationId, buffers: &mut dyn Buffers) -> Option<Result<Envelope>> {
    let receive = core.receives.get_mut(id)?;
    receive.settle(buffers);
    receive.done.take().map(|done| done.map_err(|error| *error))
}

const ANY: Pattern = Pattern { source: None, tag: None };

proptest! {
    #[test]
    fn the_pieces_of_a_message_may_come_in_any_order_with_or_without_the_buffer_at_hand(
        lengths in proptest::collection::vec(1..40_usize, 1..12),
        order in proptest::collection::vec(any::<u64>(), 12),
        lent in proptest::collection::vec(any::<bool>(), 12),
    ) {
        let total = lengths.iter().sum();
        let whole = message(total);
        let (mut core, mut room) = (Core::new(0, 2, WINDOW), Room { call: 5, bytes: vec![0; total + 3] });
        let id = arriving(&mut core, &mut room, total);
        let mut pieces: Vec<(usize, usize)> = Vec::new();
        for length in &lengths {
            let at = pieces.last().map_or(0, |(at, length)| at + length);
            pieces.push((at, *length));
        }
        let mut shuffled: Vec<usize> = (0..pieces.len()).collect();
        shuffled.sort_by_key(|piece| order[*piece]);
        for number in shuffled {
            prop_assert!(outcome(&mut core, id, &mut NoBuffers).is_none());
            let (at, length) = pieces[number];
            let bytes = &whole[at..at + length];
            if lent[number] {
                deliver(&mut core, piece(id, at), bytes, &mut room).unwrap();
            } else {
                deliver(&mut core, piece(id, at), bytes, &mut NoBuffers).unwrap();
            }
        }
        let envelope = outcome(&mut core, id, &mut room).unwrap().unwrap();
        prop_assert_eq!(envelope, Envelope { source: PEER, tag: TAG, bytes: total });
        prop_assert_eq!(&room.bytes[..total], &whole[..]);
        prop_assert_eq!(&room.bytes[total..], &[0; 3][..]);
    }
}

#[test]
fn a_piece_that_cannot_be_right_is_named_and_lands_nowhere() {
    let cases = [
        (8, &[1_u8; 8][..], "before"),
        (12, &[1; 4], "before"),
        (4, &[1; 8], "before"),
        (92, &[1; 9], "beyond the end"),
        (100, &[1; 1], "beyond the end"),
        (usize::MAX, &[1; 2], "beyond the end"),
        (50, &[], "empty"),
    ];
    for (at, bytes, why) in cases {
        let (mut core, mut room) = (Core::new(0, 2, WINDOW), Room { call: 5, bytes: vec![0; 200] });
        let id = arriving(&mut core, &mut room, 100);
        deliver(&mut core, piece(id, 8), &[2; 8], &mut room).unwrap();
        let before = room.bytes.clone();
        let error = deliver(&mut core, piece(id, at), bytes, &mut room).unwrap_err();
        assert!(matches!(error, Error::Corrupt { peer: PEER, what } if what.contains(why)), "{error}");
        assert_eq!(room.bytes, before);
    }
}

#[test]
fn a_piece_that_nobody_asked_for_is_named() {
    let (mut core, mut room) = (Core::new(0, 3, WINDOW), Room { call: 5, bytes: vec![0; 8] });
    let id = arriving(&mut core, &mut room, 8);
    let unknown = deliver(&mut core, piece(id + 1, 0), &[1], &mut room).unwrap_err();
    assert!(unknown.to_string().contains("nobody asked for"), "{unknown}");
    let stranger = core.record(2, &piece(id, 0), &mut &[1_u8][..] as &mut dyn Payload, &mut room).unwrap_err();
    assert!(stranger.to_string().contains("did not announce"), "{stranger}");
    deliver(&mut core, piece(id, 0), &[1; 8], &mut room).unwrap();
    let late = deliver(&mut core, piece(id, 0), &[1; 8], &mut room).unwrap_err();
    assert!(matches!(late, Error::Corrupt { .. }), "{late}");
}

#[test]
fn pieces_that_a_sender_sent_before_it_gave_up_may_come_after_the_news() {
    // Because of a loss, or for a reason of its own.
    for total in [1, 0] {
        let (mut core, mut room) = (Core::new(0, 2, WINDOW), Room { call: 5, bytes: vec![0; 100] });
        let id = arriving(&mut core, &mut room, 100);
        deliver(&mut core, piece(id, 0), &[1; 10], &mut room).unwrap();
        deliver(&mut core, Header { id, tag: 30, total, ..Header::new(Kind::Abandon) }, &[], &mut room).unwrap();
        let error = outcome(&mut core, id, &mut room).unwrap().unwrap_err();
        assert!(matches!(error, Error::GaveUp { peer: PEER, .. }) && error.is_loss() == (total == 1), "{error}");
        deliver(&mut core, piece(id, 20), &[1; 10], &mut room).unwrap();
        deliver(&mut core, piece(id, 10), &[1; 10], &mut room).unwrap();
        assert!(deliver(&mut core, piece(id, 30), &[1; 1], &mut room).is_err());
    }
}
