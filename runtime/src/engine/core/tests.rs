//! Pieces of large messages: order, ends and wrong ones.

use super::*;
use crate::engine::operation::{NoBuffers, OwnedBuffer};
use proptest::prelude::*;

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

/// Lends one buffer to every call, or none.
struct Lending(Option<Vec<u8>>);

impl Buffers for Lending {
    fn source(&self, _: crate::engine::operation::Lent) -> Option<&[u8]> {
        None
    }
    fn destination(&mut self, _: crate::engine::operation::Lent) -> Option<&mut [u8]> {
        self.0.as_deref_mut()
    }
}

const ANY: Pattern = Pattern { source: None, tag: None };

fn expected(room: usize) -> Expected {
    Expected { signature: Signature(0), element: None, room, exact: false }
}

/// A core that has asked rank 1 for a message of so many bytes.
fn asked(landing: Landing, bytes: usize) -> (Core, OperationId) {
    let mut core = Core::new(0, 2);
    let id = core.start_receive(0, ANY, expected(bytes), landing, &mut NoBuffers);
    let announcement = Header { total: bytes as u64, id: 7, ..Header::new(Kind::RequestToSend) };
    core.record(1, &announcement, &mut &[][..] as &mut dyn Payload, &mut NoBuffers).unwrap();
    (core, id)
}

fn piece(id: OperationId, at: usize, bytes: &[u8]) -> Header {
    Header { id, tag: at as u64, payload: u32::try_from(bytes.len()).unwrap(), ..Header::new(Kind::Data) }
}

proptest! {
    #[test]
    fn pieces_make_the_message_in_whatever_order_they_come(
        lengths in proptest::collection::vec(1..50_usize, 1..20),
        order in Just((0..20_usize).collect::<Vec<_>>()).prop_shuffle(),
        lent in proptest::collection::vec(any::<bool>(), 20),
        owned in any::<bool>(),
    ) {
        let total = lengths.iter().sum();
        let message: Vec<u8> = (0..total).map(|at| u8::try_from(at % 251).unwrap()).collect();
        let landing = if owned {
            Landing::Owned(Box::new(Plain(vec![0; total])))
        } else {
            Landing::Lent(crate::engine::operation::Lent { call: 0, number: 0 })
        };
        let (mut core, id) = asked(landing, total);
        let mut room = Lending(Some(vec![0; total]));
        let starts: Vec<usize> = lengths.iter().scan(0, |at, length| { *at += length; Some(*at - length) }).collect();
        for at in order.into_iter().filter(|at| *at < lengths.len()) {
            prop_assert!(core.receives[&id].done.is_none());
            let bytes = &message[starts[at]..starts[at] + lengths[at]];
            // Another thread's call, which does not lend the buffer, may be the one that makes progress.
            let buffers: &mut dyn Buffers = if lent[at] { &mut room } else { &mut NoBuffers };
            core.record(1, &piece(id, starts[at], bytes), &mut &bytes[..] as &mut dyn Payload, buffers).unwrap();
        }
        let receive = core.receives.get_mut(&id).unwrap();
        receive.settle(&mut room);
        prop_assert_eq!(receive.done.as_ref().unwrap().as_ref().unwrap().bytes, total);
        let arrived = match &receive.landing {
            Landing::Owned(buffer) => buffer.bytes().to_vec(),
            _ => room.0.unwrap(),
        };
        prop_assert_eq!(arrived, message);
    }
}

#[test]
fn a_piece_that_was_overtaken_by_the_end_of_its_message_is_forgotten() {
    let (mut core, id) = asked(Landing::Owned(Box::new(Plain(vec![0; 10]))), 10);
    let given_up = Header { id, ..Header::new(Kind::Abandon) };
    core.record(1, &given_up, &mut &[][..] as &mut dyn Payload, &mut NoBuffers).unwrap();
    core.record(1, &piece(id, 0, &[1; 5]), &mut &[1_u8; 5][..] as &mut dyn Payload, &mut NoBuffers).unwrap();
    core.receives.remove(&id);
    core.record(1, &piece(id, 5, &[1; 5]), &mut &[1_u8; 5][..] as &mut dyn Payload, &mut NoBuffers).unwrap();
}

#[test]
fn pieces_that_no_correct_peer_sends_are_refused() {
    let (mut core, id) = asked(Landing::Owned(Box::new(Plain(vec![0; 10]))), 10);
    for (header, bytes) in [
        (piece(id, 6, &[0; 5]), &[0_u8; 5][..]),
        (piece(id, usize::MAX, &[0; 5]), &[0; 5]),
        (piece(id, 0, &[]), &[]),
        (piece(id, 0, &[0; 11]), &[0; 11]),
        (piece(id + 100, 0, &[0; 5]), &[0; 5]),
    ] {
        let refused = core.record(1, &header, &mut &bytes[..] as &mut dyn Payload, &mut NoBuffers);
        assert!(matches!(refused, Err(Error::Corrupt { peer: 1, .. })), "{header:?}");
    }
}
