//! Two ranks and credit between them: what waits is bounded, and everything arrives.

use super::*;

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
        self.ranks[1].start_send(0, header, path, Source::Owned(AnyVec::new(bytes)))
    }

    fn receive(&mut self, pattern: Pattern) -> OperationId {
        let landing = Landing::Growing(AnyVec::default());
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
            Outgoing::Parcel(header, bytes) => return vec![(header, bytes)],
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
        let receive = self.ranks[0].receives.remove(id).unwrap();
        let envelope = receive.done.as_ref().expect("it has come").as_ref().unwrap();
        receive.landed(envelope.bytes)
    }
}

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
