//! The protocol of one rank, record by record, without transports.

use super::{
    core::{Core, Outgoing},
    operation::*,
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
    let receive = core.receives.get_mut(&id)?;
    receive.settle(buffers);
    receive.done.take()
}

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
    let (mut core, mut room) = (Core::new(0, 2, WINDOW), Room { call: 5, bytes: vec![0; 100] });
    let id = arriving(&mut core, &mut room, 100);
    deliver(&mut core, piece(id, 0), &[1; 10], &mut room).unwrap();
    deliver(&mut core, Header { id, tag: 30, ..Header::new(Kind::Abandon) }, &[], &mut room).unwrap();
    let error = outcome(&mut core, id, &mut room).unwrap().unwrap_err();
    assert!(error.to_string().contains("gave up"), "{error}");
    deliver(&mut core, piece(id, 20), &[1; 10], &mut room).unwrap();
    deliver(&mut core, piece(id, 10), &[1; 10], &mut room).unwrap();
    assert!(deliver(&mut core, piece(id, 30), &[1; 1], &mut room).is_err());
}

/// Two ranks and the wire between them: what one has outgoing reaches the other.
struct Wire {
    ranks: [Core; 2],
}

impl Wire {
    fn new() -> Self {
        Wire { ranks: [Core::new(0, 2, WINDOW), Core::new(1, 2, WINDOW)] }
    }

    fn send(&mut self, bytes: Vec<u8>, tag: u64) -> OperationId {
        let header = Header {
            context: CONTEXT,
            tag,
            total: bytes.len() as u64,
            signature: signature().0,
            ..Header::new(Kind::Eager)
        };
        let path = if bytes.len() <= 2000 { Path::Eager(Tier::Bulk) } else { Path::Pieces };
        self.ranks[1].start_send(0, header, path, Source::Owned(Box::new(Plain(bytes))))
    }

    fn receive(&mut self, pattern: Pattern) -> OperationId {
        let landing = Landing::Growing(Box::new(Plain(Vec::new())));
        self.ranks[0].start_receive(CONTEXT, pattern, expected(0), landing, &mut NoBuffers)
    }

    /// Until nothing moves.
    fn run(&mut self) {
        loop {
            let mut moved = false;
            for from in 0..2 {
                let to = 1 - from;
                while let Some(outgoing) = self.ranks[from].peers[to].outgoing.pop_front() {
                    moved = true;
                    for (header, bytes) in self.records(from, outgoing) {
                        let header = Header { payload: u32::try_from(bytes.len()).unwrap(), ..header };
                        self.ranks[to]
                            .record(from, &header, &mut &bytes[..] as &mut dyn Payload, &mut NoBuffers)
                            .unwrap();
                    }
                }
            }
            if !moved {
                return;
            }
        }
    }

    fn records(&mut self, from: usize, outgoing: Outgoing) -> Vec<(Header, Vec<u8>)> {
        let core = &mut self.ranks[from];
        let id = match outgoing {
            Outgoing::Record(header) => return vec![(header, Vec::new())],
            Outgoing::First(id) | Outgoing::Pieces(id) => id,
        };
        let send = core.sends.get_mut(&id).unwrap();
        let Source::Owned(buffer) = &send.source else { unreachable!() };
        let bytes = buffer.bytes().to_vec();
        let header = send.header;
        match outgoing {
            Outgoing::First(_) if header.kind == Kind::RequestToSend as u8 => {
                send.stage = Stage::Gone;
                vec![(header, Vec::new())]
            }
            Outgoing::First(_) => {
                core.finish_send(id, Ok(()));
                vec![(header, bytes)]
            }
            _ => {
                let receiver = send.receiver.unwrap();
                core.finish_send(id, Ok(()));
                vec![(piece(receiver, 0), bytes)]
            }
        }
    }

    /// Bytes and number of the messages that wait at the receiver.
    fn waiting(&self) -> (usize, usize) {
        let mut waiting = (0, 0);
        self.ranks[0].matcher.each_unexpected(|early| {
            let bytes = if let EarlyBody::Here(bytes) = &early.body { bytes.capacity() } else { 0 };
            waiting = (waiting.0 + bytes, waiting.1 + 1);
        });
        waiting
    }

    fn received(&mut self, id: OperationId) -> Vec<u8> {
        let receive = self.ranks[0].receives.remove(&id).unwrap();
        let envelope = receive.done.as_ref().expect("it has come").as_ref().unwrap();
        receive.landed(envelope.bytes)
    }
}

#[derive(Debug)]
struct Plain(Vec<u8>);

impl OwnedBuffer for Plain {
    fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }

    fn resize(&mut self, bytes: usize) -> bool {
        self.0.resize(bytes, 0);
        true
    }

    fn into_any(self: Box<Self>) -> Box<dyn std::any::Any + Send> {
        self
    }
}

const ANY: Pattern = Pattern { source: None, tag: None };

#[test]
fn a_flood_that_nobody_receives_is_kept_at_the_sender() {
    flood(20_000);
}

#[test]
#[ignore = "takes a minute without optimization"]
fn a_flood_of_a_million_messages_that_nobody_receives_is_kept_at_the_sender() {
    flood(1_000_000);
}

fn flood(messages: u32) {
    for length in [8, 1024] {
        let mut wire = Wire::new();
        for number in 0..messages {
            let mut bytes = vec![0; length];
            bytes[..4].copy_from_slice(&number.to_le_bytes());
            wire.send(bytes, TAG);
            if number % 1000 == 0 {
                wire.run();
                let (bytes, messages) = wire.waiting();
                assert!(bytes <= WINDOW && messages <= WINDOW / 64 + 256, "{bytes} bytes in {messages} messages");
            }
        }
        wire.run();
        for number in 0..messages {
            let id = wire.receive(if number % 2 == 0 { FROM_PEER } else { ANY });
            wire.run();
            assert_eq!(wire.received(id)[..4], number.to_le_bytes());
        }
        assert_eq!(wire.waiting(), (0, 0));
        wire.ranks[1].sends.retain(|_, send| send.done.is_none());
        assert!(wire.ranks[1].sends.is_empty() && wire.ranks[1].peers[0].is_clear());
    }
}

#[test]
fn small_messages_that_wait_cost_memory_in_proportion_to_their_bytes() {
    let mut wire = Wire::new();
    for _ in 0..50 {
        wire.send(vec![1; 8], TAG);
    }
    wire.run();
    assert_eq!(wire.waiting(), (50 * 8, 50));
}

#[test]
fn a_receive_of_what_is_kept_back_lets_it_come() {
    let mut wire = Wire::new();
    let last = 5000;
    for tag in 0..=last {
        wire.send(vec![1; 100], tag);
    }
    wire.run();
    let before = wire.waiting().1;
    assert!(before < 500, "{before}");
    for tag in [last, last - 1, 1] {
        let id = wire.receive(Pattern { source: Some(PEER), tag: Some(tag) });
        wire.run();
        assert_eq!(wire.received(id), [1; 100]);
    }
}

#[test]
fn more_than_the_credit_allows_is_named() {
    let eager =
        |bytes: &[u8]| Header { total: bytes.len() as u64, ..Header { kind: Kind::Eager as u8, ..announcement(0) } };
    let mut core = Core::new(0, 2, WINDOW);
    let bytes = [0; 936];
    for _ in 0..WINDOW / 1000 {
        deliver(&mut core, eager(&bytes), &bytes, &mut NoBuffers).unwrap();
    }
    let error = deliver(&mut core, eager(&bytes), &bytes, &mut NoBuffers).unwrap_err();
    assert!(error.to_string().contains("credit"), "{error}");
    let mut core = Core::new(0, 2, WINDOW);
    for _ in 0..256 {
        deliver(&mut core, announcement(100), &[], &mut NoBuffers).unwrap();
    }
    assert!(deliver(&mut core, announcement(100), &[], &mut NoBuffers).is_err());
    for reply in
        [Header { total: 1, ..Header::new(Kind::Credit) }, Header::new(Kind::ClearToSend), Header::new(Kind::Discard)]
    {
        assert!(deliver(&mut Core::new(0, 2, WINDOW), reply, &[], &mut NoBuffers).is_err());
    }
}

/// A receive into a buffer of its own whose message has begun to arrive and that is then given up.
fn given_up(core: &mut Core, total: usize) -> OperationId {
    let landing = Landing::Growing(Box::new(Plain(Vec::new())));
    let id = core.start_receive(CONTEXT, FROM_PEER, expected(0), landing, &mut NoBuffers);
    deliver(core, announcement(total), &[], &mut NoBuffers).unwrap();
    deliver(core, piece(id, 0), &message(total)[..10], &mut NoBuffers).unwrap();
    core.abandon_receive(id, &mut NoBuffers);
    id
}

fn rest(core: &mut Core, id: OperationId, total: usize) {
    deliver(core, piece(id, 10), &message(total)[10..], &mut NoBuffers).unwrap();
}

/// A receive that begins now.
fn next_receive(core: &mut Core) -> OperationId {
    core.start_receive(CONTEXT, ANY, expected(0), Landing::Growing(Box::new(Plain(Vec::new()))), &mut NoBuffers)
}

fn landed(core: &mut Core, id: OperationId) -> Option<Result<Vec<u8>>> {
    core.receives[&id].done.as_ref()?;
    let receive = core.receives.remove(&id)?;
    Some(receive.done.clone()?.map(|envelope| receive.landed(envelope.bytes)))
}

#[test]
fn a_message_whose_receive_is_given_up_while_it_arrives_goes_to_the_next_receive_in_its_order() {
    // The next receive comes before the rest of the message, after it, or was there before the first one was given up.
    for order in 0..3 {
        let mut core = Core::new(0, 2, WINDOW);
        let early = (order == 2).then(|| {
            let landing = Landing::Growing(Box::new(Plain(Vec::new())));
            let other = Pattern { source: Some(PEER), tag: Some(TAG + 1) };
            core.start_receive(CONTEXT, other, expected(0), landing, &mut NoBuffers)
        });
        let id = given_up(&mut core, 100);
        // A later message of the same sender must not overtake it.
        let small = Header { total: 3, ..Header { kind: Kind::Eager as u8, ..announcement(0) } };
        deliver(&mut core, small, &[7; 3], &mut NoBuffers).unwrap();
        assert_eq!(core.matcher.peek(CONTEXT, ANY).unwrap().message.total, 100);
        if order == 1 {
            rest(&mut core, id, 100);
        }
        let next = next_receive(&mut core);
        if order != 1 {
            assert!(landed(&mut core, next).is_none());
            rest(&mut core, id, 100);
        }
        assert_eq!(landed(&mut core, next).unwrap().unwrap(), message(100));
        let next = next_receive(&mut core);
        assert_eq!(landed(&mut core, next).unwrap().unwrap(), [7; 3]);
        assert_eq!(core.receives.len(), usize::from(early.is_some()), "nothing is left of the one that was given up");
    }
}

#[test]
fn whoever_takes_over_a_message_may_give_it_up_again_or_refuse_it() {
    let mut core = Core::new(0, 2, WINDOW);
    let id = given_up(&mut core, 100);
    let heir = next_receive(&mut core);
    core.abandon_receive(heir, &mut NoBuffers);
    let next = next_receive(&mut core);
    rest(&mut core, id, 100);
    assert_eq!(landed(&mut core, next).unwrap().unwrap(), message(100));
    // Too small: the message is gone, as with any receive that refuses one.
    let id = given_up(&mut core, 100);
    let landing = Landing::Owned(Box::new(Plain(vec![0; 5])));
    let small = core.start_receive(CONTEXT, ANY, expected(5), landing, &mut NoBuffers);
    assert!(matches!(landed(&mut core, small), Some(Err(Error::Truncated { sent: 100, .. }))));
    rest(&mut core, id, 100);
    assert!(core.receives.is_empty() && core.matcher.peek(CONTEXT, ANY).is_none());
}

#[test]
fn a_message_that_was_found_is_received_once_or_waits_again() {
    for arrives_meanwhile in [false, true] {
        let mut core = Core::new(0, 2, WINDOW);
        let id = given_up(&mut core, 100);
        let found = core.find(CONTEXT, ANY).unwrap();
        assert!(core.find(CONTEXT, ANY).is_none());
        if arrives_meanwhile {
            rest(&mut core, id, 100);
        }
        core.put_back(CONTEXT, found, &mut NoBuffers);
        let found = core.find(CONTEXT, FROM_PEER).unwrap();
        let landing = Landing::Growing(Box::new(Plain(Vec::new())));
        let next = core.receive_found(CONTEXT, found, expected(0), landing, &mut NoBuffers);
        if !arrives_meanwhile {
            rest(&mut core, id, 100);
        }
        assert_eq!(landed(&mut core, next).unwrap().unwrap(), message(100));
        assert!(core.receives.is_empty());
    }
}

#[test]
fn the_loss_of_a_peer_ends_everything_that_needs_it_and_nothing_else() {
    let mut core = Core::new(0, 3, WINDOW);
    let small = Header { total: 3, ..Header { kind: Kind::Eager as u8, ..announcement(0) } };
    deliver(&mut core, small, &[7; 3], &mut NoBuffers).unwrap();
    deliver(&mut core, announcement(50), &[], &mut NoBuffers).unwrap();
    core.record(2, &announcement(60), &mut &[][..] as &mut dyn Payload, &mut NoBuffers).unwrap();
    let first = core.find(CONTEXT, ANY).unwrap();
    core.put_back(CONTEXT, first, &mut NoBuffers);
    let error = Error::PeerFinished { peer: PEER, host: "a".into(), operation: "a test" };
    core.fail_peer(PEER, &error, &mut NoBuffers);
    // What has come whole is still there; what was only announced is not; the other peer's is.
    let next = next_receive(&mut core);
    assert_eq!(landed(&mut core, next).unwrap().unwrap(), [7; 3]);
    let next = next_receive(&mut core);
    assert!(core.receives[&next].is_arriving_from(2));
    assert!(core.peers[PEER].is_clear(), "nothing is sent to it");
    // A message that was arriving for nobody in particular is gone, too.
    let mut core = Core::new(0, 2, WINDOW);
    given_up(&mut core, 100);
    let heir = next_receive(&mut core);
    core.fail_peer(PEER, &error, &mut NoBuffers);
    assert!(matches!(landed(&mut core, heir), Some(Err(Error::PeerFinished { .. }))));
    assert!(core.receives.is_empty());
}
