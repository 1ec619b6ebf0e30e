//! Receives that are given up while their message arrives, messages that are found, peers that are lost.

use super::*;

/// A receive into a buffer of its own whose message has begun to arrive and that is then given up.
fn given_up(core: &mut Core, total: usize) -> OperationId {
    let landing = Landing::Growing(AnyVec::default());
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
    core.start_receive(CONTEXT, ANY, expected(0), Landing::Growing(AnyVec::default()), &mut NoBuffers)
}

fn landed(core: &mut Core, id: OperationId) -> Option<Result<Vec<u8>>> {
    core.receives.get(id).unwrap().done.as_ref()?;
    let receive = core.receives.remove(id)?;
    Some(receive.done.clone()?.map(|envelope| receive.landed(envelope.bytes)).map_err(|error| *error))
}

#[test]
fn a_message_whose_receive_is_given_up_while_it_arrives_goes_to_the_next_receive_in_its_order() {
    // The next receive comes before the rest of the message, after it, or was there before the first one was given up.
    for order in 0..3 {
        let mut core = Core::new(0, 2, WINDOW);
        let early = (order == 2).then(|| {
            let landing = Landing::Growing(AnyVec::default());
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
    let landing = Landing::Owned(AnyVec::new(vec![0; 5]));
    let small = core.start_receive(CONTEXT, ANY, expected(5), landing, &mut NoBuffers);
    assert!(matches!(landed(&mut core, small), Some(Err(Error::Truncated { sent: 100, .. }))));
    rest(&mut core, id, 100);
    assert_eq!(core.receives.len(), 0);
    assert!(core.matcher.peek(CONTEXT, ANY).is_none());
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
        let landing = Landing::Growing(AnyVec::default());
        let next = core.receive_found(CONTEXT, found, expected(0), landing, &mut NoBuffers);
        if !arrives_meanwhile {
            rest(&mut core, id, 100);
        }
        assert_eq!(landed(&mut core, next).unwrap().unwrap(), message(100));
        assert_eq!(core.receives.len(), 0);
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
    assert!(core.receives.get(next).unwrap().is_arriving_from(2));
    assert!(core.peers[PEER].is_clear(), "nothing is sent to it");
    // A message that was arriving for nobody in particular is gone, too.
    let mut core = Core::new(0, 2, WINDOW);
    given_up(&mut core, 100);
    let heir = next_receive(&mut core);
    core.fail_peer(PEER, &error, &mut NoBuffers);
    assert!(matches!(landed(&mut core, heir), Some(Err(Error::PeerFinished { .. }))));
    assert_eq!(core.receives.len(), 0);
}

/// What this rank tells the receiver of a message that it has announced to `PEER` in `space` and given up, before or after
/// the receiver has asked for it.
fn told_of_the_end(core: &mut Core, space: u64, asked_before: bool) -> Header {
    let header = Header { context: space, ..announcement(100) };
    let lent = Source::Lent(Lent { call: 5, number: 0 });
    let id = core.start_send(PEER, header, Path::Pieces, lent);
    // The announcement goes out.
    core.peers[PEER].outgoing.clear();
    core.sends.get_mut(&id).unwrap().stage = Stage::Gone;
    let ask = Header { id, tag: 77, context: space, ..Header::new(Kind::ClearToSend) };
    if asked_before {
        deliver(core, ask, &[], &mut NoBuffers).unwrap();
    }
    core.abandon_send(id);
    if !asked_before {
        deliver(core, ask, &[], &mut NoBuffers).unwrap();
    }
    let mut told = core.peers[PEER].outgoing.iter().filter_map(|outgoing| match outgoing {
        Outgoing::Record(header) => Some(*header),
        _ => None,
    });
    told.next_back().unwrap()
}

#[test]
fn a_sender_that_gives_up_says_whether_it_knows_of_a_loss_in_that_communicator() {
    let error = Error::PeerFinished { peer: 2, host: "a".into(), operation: "a test" };
    for asked_before in [true, false] {
        for space in [CONTEXT, CONTEXT | 1] {
            let mut core = Core::new(0, 4, WINDOW);
            core.add_group(CONTEXT, [0, PEER, 2].into(), &mut NoBuffers);
            let quiet = told_of_the_end(&mut core, space, asked_before);
            assert_eq!((quiet.kind, quiet.id, quiet.total), (Kind::Abandon as u8, 77, 0), "a time-out, say");
            core.fail_peer(3, &error, &mut NoBuffers);
            assert_eq!(told_of_the_end(&mut core, space, asked_before).total, 0, "no member of the communicator");
            core.fail_peer(2, &error, &mut NoBuffers);
            assert_eq!(told_of_the_end(&mut core, space, asked_before).total, 1);
        }
    }
}
