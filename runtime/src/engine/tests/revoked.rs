//! Communicators that are revoked: what waits in them ends on both sides, what still comes goes nowhere, and in the end
//! nothing is left.

use super::*;
use crate::transport::record::HEADER;
use std::collections::VecDeque;

const COLLECTIVES: u64 = CONTEXT | 1;

/// Records between a few ranks, in order, and the ranks that are gone.
struct Network {
    cores: Vec<Core>,
    wires: Vec<Vec<VecDeque<Outgoing>>>,
    dead: Vec<bool>,
}

impl Network {
    fn new(size: usize) -> Self {
        let mut cores: Vec<Core> = (0..size).map(|rank| Core::new(rank, size, WINDOW)).collect();
        for core in &mut cores {
            core.add_group(CONTEXT, (0..size).collect(), &mut NoBuffers);
        }
        let wires = (0..size).map(|_| (0..size).map(|_| VecDeque::new()).collect()).collect();
        Network { cores, wires, dead: vec![false; size] }
    }

    /// What a rank has to say goes on the wires: as much as that, counted over all peers.
    fn speak(&mut self, rank: usize, most: usize) {
        for _ in 0..most {
            let Some(&peer) = self.cores[rank].busy.first() else { return };
            let Some(outgoing) = self.cores[rank].peers[peer].outgoing.pop_front() else { return };
            if self.cores[rank].peers[peer].outgoing.is_empty() {
                self.cores[rank].busy.remove(0);
            }
            self.wires[rank][peer].push_back(outgoing);
        }
    }

    fn hear(&mut self, from: usize, to: usize) {
        let Some(outgoing) = self.wires[from][to].pop_front() else { return };
        let (header, payload) = match outgoing {
            Outgoing::Record(header) => (header, Vec::new()),
            Outgoing::Parcel(header, payload) => (header, payload),
            // As the outbox does it.
            Outgoing::First(id) => {
                let core = &mut self.cores[from];
                let Some(send) = core.sends.get_mut(&id).filter(|send| send.done.is_none()) else { return };
                let Source::Owned(bytes) = &send.source else { panic!("they own their bytes here") };
                send.stage = Stage::Gone;
                if send.header.kind == Kind::Eager as u8 {
                    let (header, bytes) = (send.header, bytes.bytes().to_vec());
                    core.finish_send(id, Ok(()));
                    (header, bytes)
                } else {
                    (send.header, Vec::new())
                }
            }
            Outgoing::Pieces(id) => {
                let core = &mut self.cores[from];
                let Some(send) = core.sends.get_mut(&id).filter(|send| send.done.is_none()) else { return };
                let Source::Owned(bytes) = &send.source else { panic!("they own their bytes here") };
                let header = Header { id: send.receiver.unwrap(), ..Header::new(Kind::Data) };
                let bytes = bytes.bytes().to_vec();
                core.finish_send(id, Ok(()));
                (header, bytes)
            }
        };
        let mut payload = &payload[..];
        let header = Header { payload: u32::try_from(payload.len()).unwrap(), ..header };
        assert_eq!(bytemuck::bytes_of(&header).len(), HEADER);
        self.cores[to].record(from, &header, &mut payload as &mut dyn Payload, &mut NoBuffers).unwrap();
    }

    /// Until nobody has anything to say any more.
    fn settle(&mut self) {
        loop {
            let size = self.cores.len();
            for rank in (0..size).filter(|rank| !self.dead[*rank]).collect::<Vec<_>>() {
                self.speak(rank, usize::MAX);
            }
            let pairs = || (0..size).flat_map(|from| (0..size).map(move |to| (from, to)));
            let waiting: Vec<(usize, usize)> =
                pairs().filter(|(from, to)| !self.wires[*from][*to].is_empty() && !self.dead[*to]).collect();
            if waiting.is_empty() {
                return;
            }
            for (from, to) in waiting {
                while !self.wires[from][to].is_empty() {
                    self.hear(from, to);
                }
            }
        }
    }

    fn die(&mut self, rank: usize) {
        self.dead[rank] = true;
        let error = Error::PeerLost { peer: rank, host: "a".into(), reason: "a test".into() };
        for core in self.cores.iter_mut().filter(|core| core.rank != rank) {
            core.fail_peer(rank, &error, &mut NoBuffers);
        }
    }
}

fn owned(length: usize) -> Source {
    Source::Owned(AnyVec::new(message(length)))
}

fn growing() -> Landing {
    Landing::Growing(AnyVec::default())
}

fn header(context: u64, tag: u64, total: usize) -> Header {
    Header { context, tag, ..announcement(total) }
}

fn by_of(core: &mut Core, id: OperationId) -> usize {
    match outcome(core, id, &mut NoBuffers) {
        Some(Err(Error::Revoked { by })) => by,
        other => panic!("{other:?}"),
    }
}

fn send_by_of(core: &mut Core, id: OperationId) -> usize {
    match core.sends.remove(&id).and_then(|send| send.done) {
        Some(Err(Error::Revoked { by })) => by,
        other => panic!("{other:?}"),
    }
}

/// Nothing is kept of a communicator that nobody holds any more.
fn assert_nothing_left(core: &mut Core) {
    core.remove_group(CONTEXT);
    assert_eq!(core.revocations.remembered(), (0, 0), "rank {}", core.rank);
    assert!(core.sends.is_empty() && core.fetches.is_empty() && core.busy.is_empty());
    assert_eq!(core.receives.len(), 0, "rank {}", core.rank);
    assert!(core.is_drained());
    for context in [CONTEXT, COLLECTIVES] {
        assert!(core.matcher.peek(context, ANY).is_none(), "rank {}", core.rank);
    }
    for peer in &core.peers {
        assert!(peer.is_clear());
    }
}

#[test]
fn everything_that_waits_ends_on_both_sides_whichever_of_them_revokes_and_nothing_is_left() {
    // How far the messages have come when it happens: by how many records have been heard.
    for revoker in 0..2 {
        for heard in 0..40 {
            let mut network = Network::new(2);
            let mut sends = Vec::new();
            let mut receives = Vec::new();
            for (number, context) in [(0, CONTEXT), (1, COLLECTIVES)] {
                let core = &mut network.cores[1];
                for tag in [TAG, TAG + 1] {
                    let from = Pattern { source: Some(0), tag: Some(tag) };
                    receives.push(core.start_receive(context, from, expected(0), growing(), &mut NoBuffers));
                }
                receives.push(core.start_receive(
                    context,
                    Pattern { tag: Some(999), ..ANY },
                    expected(0),
                    growing(),
                    &mut NoBuffers,
                ));
                // To receives that wait, to nobody, small and large; more than the window lets go at once.
                let core = &mut network.cores[0];
                for tag in [TAG, TAG + 1, TAG + 2, TAG + 2, TAG + 2] {
                    for length in [3, 4000 + number] {
                        let path = if length < 100 { Path::Eager(Tier::LowLatency) } else { Path::Pieces };
                        sends.push(core.start_send(1, header(context, tag, length), path, owned(length)));
                    }
                }
                for _ in 0..3 {
                    let path = Path::Eager(Tier::LowLatency);
                    sends.push(core.start_send(1, header(context, TAG + 3, 3500), path, owned(3500)));
                }
            }
            for step in 0..heard {
                for rank in 0..2 {
                    network.speak(rank, 1);
                }
                network.hear(step % 2, 1 - step % 2);
            }
            // One that is taken by a probe stays taken, until it is put back or received.
            let found = network.cores[1].find(CONTEXT, Pattern { source: Some(0), tag: Some(TAG + 2) });
            network.cores[revoker].revoke(CONTEXT, revoker, &mut NoBuffers);
            network.settle();
            if let Some(found) = found {
                network.cores[1].put_back(CONTEXT, found, &mut NoBuffers);
                network.settle();
            }
            let what = format!("revoked by {revoker} after {heard}");
            let mut ended = 0;
            for id in receives {
                let core = &mut network.cores[1];
                match outcome(core, id, &mut NoBuffers) {
                    Some(Ok(_)) => {}
                    Some(Err(Error::Revoked { by })) => {
                        assert_eq!(by, revoker, "{what}");
                        ended += 1;
                    }
                    other => panic!("{what}: {other:?}"),
                }
                core.receives.free(id);
            }
            assert!(ended >= 2, "{what}: nobody sends what these wait for");
            for id in sends {
                match network.cores[0].sends.remove(&id).map(|send| send.done) {
                    Some(Some(Ok(()))) => {}
                    Some(Some(Err(Error::Revoked { by }))) => assert_eq!(by, revoker, "{what}"),
                    other => panic!("{what}: {:?}", other.map(|done| done.map(|done| done.is_ok()))),
                }
            }
            for core in &mut network.cores {
                assert_nothing_left(core);
            }
            // All credit has come back: as much as before may be sent, beyond what is not worth a record.
            let core = &mut network.cores[0];
            let other = 40;
            core.add_group(other, (0..2).collect(), &mut NoBuffers);
            let path = Path::Eager(Tier::LowLatency);
            let id = core.start_send(1, header(other, 0, WINDOW / 2 - 200), path, owned(WINDOW / 2 - 200));
            assert_eq!(core.sends[&id].header.kind, Kind::Eager as u8, "{what}");
            for _ in 0..256 {
                let id = core.start_send(1, header(other, 0, 9), Path::Pieces, owned(9));
                assert_eq!(core.sends[&id].stage, Stage::Queued, "{what}");
            }
        }
    }
}

#[test]
fn the_rest_of_a_message_may_come_whole_or_not_after_its_receive_has_ended() {
    for gives_up in [false, true] {
        let (mut core, mut room) = (Core::new(0, 2, WINDOW), Room { call: 5, bytes: vec![0; 100] });
        core.add_group(CONTEXT, (0..2).collect(), &mut NoBuffers);
        let id = arriving(&mut core, &mut room, 100);
        deliver(&mut core, piece(id, 0), &[1; 10], &mut room).unwrap();
        core.revoke(CONTEXT, 0, &mut room);
        assert_eq!(by_of(&mut core, id), 0);
        core.receives.free(id);
        let bytes = room.bytes.clone();
        deliver(&mut core, piece(id, 20), &[2; 10], &mut room).unwrap();
        if gives_up {
            deliver(&mut core, Header { id, tag: 40, ..Header::new(Kind::Abandon) }, &[], &mut room).unwrap();
            deliver(&mut core, piece(id, 10), &[2; 10], &mut room).unwrap();
            deliver(&mut core, piece(id, 30), &[2; 10], &mut room).unwrap();
        } else {
            deliver(&mut core, piece(id, 10), &[2; 10], &mut room).unwrap();
            deliver(&mut core, piece(id, 30), &[2; 70], &mut room).unwrap();
        }
        assert!(core.is_drained());
        assert_eq!(room.bytes, bytes, "what its call lent is not touched any more");
        assert!(deliver(&mut core, piece(id, 0), &[2; 1], &mut room).is_err());
    }
}

#[test]
fn what_comes_too_late_takes_no_memory_and_gives_its_credit_back() {
    let mut network = Network::new(2);
    network.cores[1].revoke(CONTEXT, 1, &mut NoBuffers);
    // Rank 0 does not know yet, and sends far more than its window lets wait.
    let mut sends = Vec::new();
    for number in 0..2000 {
        let (length, path) = if number % 2 == 0 { (1000, Path::Eager(Tier::LowLatency)) } else { (20, Path::Pieces) };
        sends.push(network.cores[0].start_send(1, header(CONTEXT, TAG, length), path, owned(length)));
        network.speak(0, usize::MAX);
        while !network.wires[0][1].is_empty() {
            network.hear(0, 1);
        }
        assert!(network.cores[1].matcher.peek(CONTEXT, ANY).is_none());
        // Everything but the word itself.
        network.speak(1, usize::MAX);
        while network.wires[1][0].len() > 1 {
            let word = network.wires[1][0].pop_front().unwrap();
            network.hear(1, 0);
            network.wires[1][0].push_front(word);
        }
    }
    for (number, id) in sends.into_iter().enumerate() {
        let core = &mut network.cores[0];
        if number % 2 == 0 {
            assert!(matches!(core.sends.remove(&id).and_then(|send| send.done), Some(Ok(()))), "{number} goes unasked");
        } else {
            assert_eq!(send_by_of(core, id), 1, "{number} is turned down");
        }
    }
    network.settle();
    network.cores.iter_mut().for_each(assert_nothing_left);
}

#[test]
fn everybody_hears_of_it_although_the_one_that_said_it_dies_while_it_does() {
    for told in 1..4 {
        let mut network = Network::new(5);
        let ids: Vec<OperationId> = (1..5)
            .map(|rank| network.cores[rank].start_receive(CONTEXT, ANY, expected(0), growing(), &mut NoBuffers))
            .collect();
        network.cores[0].revoke(CONTEXT, 0, &mut NoBuffers);
        network.speak(0, told + 1);
        for to in 1..5 {
            network.hear(0, to);
        }
        network.die(0);
        network.settle();
        for (rank, id) in (1..5).zip(ids) {
            assert_eq!(by_of(&mut network.cores[rank], id), 0);
            network.cores[rank].receives.free(id);
            assert_nothing_left(&mut network.cores[rank]);
        }
    }
}

#[test]
fn two_that_revoke_at_once_and_a_second_time_do_no_harm() {
    let mut network = Network::new(3);
    for rank in [0, 2, 0] {
        network.cores[rank].revoke(CONTEXT, rank, &mut NoBuffers);
    }
    network.settle();
    network.cores[1].revoke(CONTEXT, 1, &mut NoBuffers);
    assert!(network.cores[1].busy.is_empty(), "said once");
    network.cores.iter_mut().for_each(assert_nothing_left);
}

#[test]
fn a_communicator_that_is_revoked_before_this_rank_has_made_it_is_so_from_the_beginning() {
    let other = 50;
    let mut network = Network::new(3);
    for rank in [0, 2] {
        network.cores[rank].add_group(other, (0..3).collect(), &mut NoBuffers);
    }
    // Only the rank that has not made it hears it before the first one dies.
    network.cores[0].revoke(other, 0, &mut NoBuffers);
    network.speak(0, usize::MAX);
    network.wires[0][2].clear();
    network.die(0);
    network.settle();
    assert!(network.cores[2].revocations.by(other).is_none());
    network.cores[1].add_group(other, (0..3).collect(), &mut NoBuffers);
    assert_eq!(network.cores[1].revocations.by(other), Some(0));
    network.settle();
    assert_eq!(network.cores[2].revocations.by(other | 1), Some(0));
    for core in &mut network.cores[1..] {
        core.remove_group(other);
        assert_eq!(core.revocations.remembered(), (0, 0));
    }
}

#[test]
fn of_communicators_that_a_rank_does_not_know_a_bounded_number_is_remembered() {
    let mut network = Network::new(2);
    for number in 1..3000 {
        let context = 100 + 2 * number;
        network.cores[0].add_group(context, (0..2).collect(), &mut NoBuffers);
        network.cores[0].revoke(context, 0, &mut NoBuffers);
        network.settle();
        network.cores[0].remove_group(context);
        assert_eq!(network.cores[0].revocations.remembered(), (0, 0), "the other one has answered");
    }
    let (spaces, communicators) = network.cores[1].revocations.remembered();
    assert_eq!((spaces, communicators), (3 * 256, 256));
}

#[test]
fn one_that_serves_another_is_revoked_with_it_also_when_it_is_made_later() {
    let (early, late, apart) = (60, 70, 80);
    let mut network = Network::new(2);
    let ids: Vec<OperationId> = (0..2)
        .map(|rank| {
            let core = &mut network.cores[rank];
            for context in [early, apart] {
                core.add_group(context, (0..2).collect(), &mut NoBuffers);
            }
            core.serve(early, CONTEXT, &mut NoBuffers);
            core.start_receive(early | 1, ANY, expected(0), growing(), &mut NoBuffers)
        })
        .collect();
    // Those that do not serve it are others.
    let waits = network.cores[1].start_receive(apart, ANY, expected(0), growing(), &mut NoBuffers);
    let root = network.cores[0].root_of(early);
    network.cores[0].revoke(root, 0, &mut NoBuffers);
    network.settle();
    assert!(outcome(&mut network.cores[1], waits, &mut NoBuffers).is_none());
    for (core, id) in network.cores.iter_mut().zip(ids) {
        assert_eq!(by_of(core, id), 0);
        assert_eq!((core.revocations.by(CONTEXT), core.revocations.by(apart)), (Some(0), None));
        core.add_group(late, (0..2).collect(), &mut NoBuffers);
        core.serve(late, CONTEXT, &mut NoBuffers);
        assert_eq!(core.revocations.by(late), Some(0));
        core.remove_group(CONTEXT);
        core.remove_group(early);
        assert_eq!(core.revocations.by(late), Some(0), "as long as one of them is held");
        core.remove_group(late);
        assert_eq!(core.revocations.remembered(), (0, 0));
    }
}

#[test]
fn a_space_that_is_closed_is_forgotten_with_the_last_word_of_everybody() {
    let (space, mut core) = (90, Core::new(0, 4, WINDOW));
    let say = |core: &mut Core, peer: usize, tag: u64| {
        let header = Header { kind: Kind::Eager as u8, payload: 3, ..header(space, tag, 3) };
        core.record(peer, &header, &mut &[1_u8; 3][..] as &mut dyn Payload, &mut NoBuffers).unwrap();
    };
    say(&mut core, 1, crate::engine::LAST);
    core.close(space, vec![1, 2, 3], &mut NoBuffers);
    assert!(core.matcher.peek(space, ANY).is_none());
    for tag in [0, crate::engine::LAST] {
        say(&mut core, 2, tag);
        assert_eq!(core.revocations.remembered(), (1, 1));
        assert!(core.matcher.peek(space, ANY).is_none());
    }
    core.fail_peer(3, &Error::NobodyLeft { operation: "a test" }, &mut NoBuffers);
    assert_eq!(core.revocations.remembered(), (0, 0));
}

#[test]
fn a_word_that_cannot_be_right_is_named() {
    let mut core = Core::new(0, 2, WINDOW);
    let word = Header { context: CONTEXT, id: 2, ..Header::new(Kind::Revoke) };
    let error = deliver(&mut core, word, &[], &mut NoBuffers).unwrap_err();
    assert!(matches!(error, Error::Corrupt { peer: PEER, .. }), "{error}");
}
