//! Receives that a call awaits without having put them into the table.

use super::*;

/// What a call lends that awaits a message.
struct Awaiting {
    awaited: Awaited,
    room: Vec<u8>,
}

impl Awaiting {
    fn new(pattern: Pattern, room: usize) -> Self {
        let awaited = Awaited { context: CONTEXT, pattern, expected: expected(room), done: None };
        Awaiting { awaited, room: vec![0; room] }
    }
}

impl Buffers for Awaiting {
    fn source(&self, _: Lent) -> Option<&[u8]> {
        None
    }

    fn destination(&mut self, _: Lent) -> Option<&mut [u8]> {
        None
    }

    fn awaited(&mut self) -> Option<(&mut Awaited, &mut [u8])> {
        Some((&mut self.awaited, &mut self.room))
    }
}

fn small(tag: u64, bytes: &[u8]) -> Header {
    Header { context: CONTEXT, tag, total: bytes.len() as u64, signature: signature().0, ..Header::new(Kind::Eager) }
}

fn receive(core: &mut Core, pattern: Pattern) -> OperationId {
    core.start_receive(CONTEXT, pattern, expected(0), Landing::Growing(AnyVec::default()), &mut NoBuffers)
}

fn landed(core: &mut Core, id: OperationId) -> Option<Vec<u8>> {
    let receive = core.receives.get(id)?;
    let envelope = receive.done.as_ref()?.as_ref().unwrap();
    Some(receive.landed(envelope.bytes))
}

#[test]
fn an_awaited_message_is_taken_without_the_table_and_the_next_one_waits() {
    let (mut core, mut call) = (Core::new(0, 2, WINDOW), Awaiting::new(ANY, 4));
    assert!(core.receive_or_await(&mut call.awaited, &mut call.room));
    assert!(call.awaited.done.is_none());
    for bytes in [[1, 2, 3], [4, 5, 6]] {
        deliver(&mut core, small(TAG, &bytes), &bytes, &mut call).unwrap();
    }
    assert_eq!(call.awaited.done.unwrap().unwrap(), Envelope { source: PEER, tag: TAG, bytes: 3 });
    assert_eq!((call.room, core.receives.len()), (vec![1, 2, 3, 0], 0));
    let mut next = Awaiting::new(FROM_PEER, 4);
    assert!(core.receive_or_await(&mut next.awaited, &mut next.room));
    assert_eq!(next.awaited.done.unwrap().unwrap(), Envelope { source: PEER, tag: TAG, bytes: 3 });
    assert_eq!(next.room, [4, 5, 6, 0]);
}

#[test]
fn an_awaited_message_overtakes_none_that_another_thread_has_put_aside() {
    let (mut core, mut call) = (Core::new(0, 2, WINDOW), Awaiting::new(ANY, 1));
    assert!(core.receive_or_await(&mut call.awaited, &mut call.room));
    deliver(&mut core, small(TAG, &[1]), &[1], &mut NoBuffers).unwrap();
    deliver(&mut core, small(TAG, &[2]), &[2], &mut call).unwrap();
    assert!(call.awaited.done.is_none());
    for byte in [1, 2] {
        let id = receive(&mut core, ANY);
        assert_eq!(landed(&mut core, id), Some(vec![byte]));
    }
}

#[test]
fn receives_that_are_in_the_table_get_their_messages_before_one_that_is_awaited() {
    let (mut core, mut call) = (Core::new(0, 2, WINDOW), Awaiting::new(ANY, 1));
    let posted = receive(&mut core, FROM_PEER);
    assert!(core.receive_or_await(&mut call.awaited, &mut call.room));
    deliver(&mut core, small(TAG, &[1]), &[1], &mut call).unwrap();
    assert_eq!((landed(&mut core, posted), call.awaited.done.is_some()), (Some(vec![1]), false));
    deliver(&mut core, small(TAG, &[2]), &[2], &mut call).unwrap();
    assert_eq!(call.room, [2]);
}

#[test]
fn other_contexts_and_tags_are_not_what_is_awaited() {
    let (mut core, mut call) = (Core::new(0, 2, WINDOW), Awaiting::new(FROM_PEER, 1));
    deliver(&mut core, small(TAG + 1, &[1]), &[1], &mut call).unwrap();
    deliver(&mut core, Header { context: CONTEXT + 1, ..small(TAG, &[1]) }, &[1], &mut call).unwrap();
    assert!(call.awaited.done.is_none());
}

#[test]
fn what_does_not_fit_or_is_of_another_type_is_an_error_and_the_next_message_is_intact() {
    let mut core = Core::new(0, 2, WINDOW);
    for arrives_first in [false, true] {
        for header in [small(TAG, &[1, 2]), Header { signature: 1, ..small(TAG, &[1]) }] {
            let mut call = Awaiting::new(FROM_PEER, 1);
            let bytes = &[1, 2][..usize::try_from(header.total).unwrap()];
            if arrives_first {
                deliver(&mut core, header, bytes, &mut NoBuffers).unwrap();
                assert!(core.receive_or_await(&mut call.awaited, &mut call.room));
            } else {
                deliver(&mut core, header, bytes, &mut call).unwrap();
            }
            assert!(matches!(call.awaited.done, Some(Err(Error::Truncated { .. } | Error::TypeMismatch { .. }))));
            assert_eq!(call.room, [0]);
            call.awaited.done = None;
            deliver(&mut core, small(TAG, &[7]), &[7], &mut call).unwrap();
            assert_eq!(call.room, [7]);
        }
    }
}

#[test]
fn a_message_that_is_only_announced_is_left_to_a_receive_in_the_table() {
    let (mut core, mut call) = (Core::new(0, 2, WINDOW), Awaiting::new(FROM_PEER, 50));
    deliver(&mut core, announcement(50), &[], &mut call).unwrap();
    assert!(!core.receive_or_await(&mut call.awaited, &mut call.room));
    assert!(call.awaited.done.is_none());
    let id = receive(&mut core, FROM_PEER);
    assert!(core.receives.get(id).unwrap().is_arriving_from(PEER));
}

#[test]
fn messages_that_are_awaited_give_their_credit_back() {
    let mut core = Core::new(0, 2, WINDOW);
    for _ in 0..100 {
        let mut call = Awaiting::new(FROM_PEER, 1000);
        deliver(&mut core, small(TAG, &[1; 1000]), &[1; 1000], &mut call).unwrap();
        assert!(call.awaited.done.is_some());
    }
    let returned = core.peers[PEER].outgoing.iter().map(|outgoing| match outgoing {
        Outgoing::Record(header) if header.kind == Kind::Credit as u8 => header.total,
        other => panic!("{other:?}"),
    });
    let returned = usize::try_from(returned.sum::<u64>()).unwrap();
    assert!(returned > 100 * 1000 && returned <= 100 * 1100, "{returned}");
}
