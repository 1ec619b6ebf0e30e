//! The NIC on bytes that are written here by hand, also wrong ones.

use super::*;
use std::sync::atomic::Ordering;

const NUMBER: u32 = 0x123456;
const REMOTE: u64 = 0x9000;

/// A NIC with one queue of four blocks and as many completions, and a page that it may write to.
struct Rig {
    nic: Nic,
    queue: Queue,
    target: Memory,
    key: u32,
    local_key: u32,
    position: u16,
}

impl Rig {
    fn new() -> Self {
        let target = Memory::zeroed(4096);
        let (local, remote) = (Arc::new(Regions::default()), Arc::new(Regions::default()));
        let local_key = local.register(0, Memory::zeroed(4096), Access::Local);
        let key = remote.register(REMOTE, target.part(1024, 1024), Access::Remote);
        let queue = Queue {
            number: NUMBER,
            entries: Memory::zeroed(4096).part(0, 4 * BLOCK),
            completions: Memory::zeroed(4096).part(0, 4 * COMPLETION),
            records: Memory::zeroed(4096).part(0, 16),
            doorbell: Memory::zeroed(4096).part(0, 8),
            local,
            remote,
        };
        let mut nic = Nic::default();
        nic.add(queue.clone());
        Rig { nic, queue, target, key, local_key, position: 0 }
    }

    /// A write of 4 bytes that it carries, asking for a completion, for the next block.
    fn write(&self, offset: u64) -> [u8; BLOCK] {
        let mut block = [0; BLOCK];
        block[..4].copy_from_slice(&(u32::from(self.position) << 8 | 8).to_be_bytes());
        block[4..8].copy_from_slice(&(NUMBER << 8 | 3).to_be_bytes());
        block[11] = 8;
        block[16..24].copy_from_slice(&(REMOTE + offset).to_be_bytes());
        block[24..28].copy_from_slice(&self.key.to_be_bytes());
        block[32..36].copy_from_slice(&0x8000_0004_u32.to_be_bytes());
        block[36..40].copy_from_slice(&[1, 2, 3, 4]);
        block
    }

    fn place(&mut self, block: &[u8; BLOCK]) {
        self.queue.entries.write(usize::from(self.position % 4) * BLOCK, block);
        self.position = self.position.wrapping_add(1);
    }

    fn ring_with(&mut self, record: u16, register: u16, number: u32) {
        self.queue.records.half(4).store(u32::from(record).to_be(), Ordering::Release);
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&(u32::from(register) << 8).to_be_bytes());
        bytes[4..].copy_from_slice(&(number << 8).to_be_bytes());
        self.queue.doorbell.word(0).store(u64::from_ne_bytes(bytes), Ordering::Release);
        assert!(self.nic.poll());
    }

    fn ring(&mut self) {
        self.ring_with(self.position, self.position, NUMBER);
    }

    /// Operation, owner, index, and of an error the syndrome, of a place of the completion queue.
    fn completion(&self, place: usize) -> (u8, u8, u16, u8) {
        let mut bytes = [0; COMPLETION];
        self.queue.completions.read(place * COMPLETION, &mut bytes);
        (bytes[63] >> 4, bytes[63] & 1, u16::from_be_bytes([bytes[60], bytes[61]]), bytes[55])
    }

    fn take(&self, completions: u32) {
        self.queue.records.half(8).store(completions.to_be(), Ordering::Release);
    }

    fn only(&self) -> Fault {
        assert_eq!(self.nic.found().len(), 1, "{:?}", self.nic.found());
        self.nic.found()[0].fault
    }
}

#[test]
fn a_write_arrives_and_completes() {
    let mut rig = Rig::new();
    assert!(!rig.nic.poll());
    assert_eq!(rig.completion(0), (15, 0, 0, 0), "invalid before the first lap");
    rig.place(&rig.write(8));
    assert!(!rig.nic.poll(), "nothing happens without a doorbell");
    rig.ring();
    let mut found = [0; 4];
    rig.target.read(1024 + 8, &mut found);
    assert_eq!(found, [1, 2, 3, 4]);
    assert_eq!(rig.completion(0), (0, 0, 0, 0));
    assert_eq!(rig.completion(1), (15, 0, 0, 0));
    assert_eq!(rig.nic.counters(), Counters { doorbells: 1, entries: 1, bytes: 4, completions: 1 });
}

#[test]
fn the_owner_of_a_completion_changes_with_every_lap() {
    let mut rig = Rig::new();
    for round in 0..100_000_u32 {
        rig.place(&rig.write(0));
        rig.ring();
        let expected = (0, u8::from(round / 4 % 2 == 1), u16::try_from(round & 0xffff).unwrap(), 0);
        assert_eq!(rig.completion(usize::try_from(round % 4).unwrap()), expected);
        rig.take((round + 1) & 0xff_ffff);
    }
    assert!(rig.nic.found().is_empty());
}

#[test]
fn one_doorbell_may_cover_many_entries() {
    let mut rig = Rig::new();
    for offset in 0..4 {
        rig.place(&rig.write(4 * offset));
    }
    rig.ring();
    assert_eq!(rig.nic.counters(), Counters { doorbells: 1, entries: 4, bytes: 16, completions: 4 });
}

#[test]
fn an_entry_of_two_blocks_goes_over_the_end_of_the_queue() {
    let mut rig = Rig::new();
    for _ in 0..3 {
        rig.place(&rig.write(0));
    }
    rig.ring();
    rig.take(3);
    // 60 bytes: 2 + 4 segments, the first block holds 28 of them.
    let mut first = rig.write(0);
    first[7] = 6;
    first[35] = 60;
    first[36..].fill(7);
    rig.place(&first);
    rig.place(&[9; BLOCK]);
    rig.ring();
    let mut found = [0; 61];
    rig.target.read(1024, &mut found);
    assert_eq!((&found[..28], &found[28..60], found[60]), (&[7; 28][..], &[9; 32][..], 0));
    assert!(rig.nic.found().is_empty());
}

#[test]
fn after_a_fault_everything_is_flushed_and_nothing_written() {
    let mut rig = Rig::new();
    let mut wrong = rig.write(0);
    wrong[27] ^= 1;
    rig.place(&wrong);
    rig.place(&rig.write(0));
    rig.ring();
    assert_eq!(rig.completion(0), (13, 0, 0, Syndrome::RemoteAccess as u8));
    assert_eq!(rig.completion(1), (13, 0, 1, Syndrome::Flushed as u8));
    assert!(matches!(rig.only(), Fault::Remote { .. }));
    let mut found = [0; 4096];
    rig.target.read(0, &mut found);
    assert_eq!(found, [0; 4096]);
}

#[test]
fn doorbells_that_cannot_be_right_are_faults() {
    let mut rig = Rig::new();
    rig.place(&rig.write(0));
    rig.ring_with(0, 1, NUMBER);
    assert_eq!(rig.only(), Fault::Record { register: 1, record: 0 });
    let mut rig = Rig::new();
    rig.ring_with(1, 1, 9);
    assert_eq!(rig.only(), Fault::Doorbell { expected: NUMBER, found: 9 });
    let mut rig = Rig::new();
    rig.ring_with(5, 5, NUMBER);
    assert_eq!(rig.only(), Fault::QueueOverrun { announced: 5, free: 4 });
    // A record that is already that of the next doorbell is right.
    let mut rig = Rig::new();
    rig.place(&rig.write(0));
    rig.place(&rig.write(4));
    rig.ring_with(2, 1, NUMBER);
    rig.ring_with(2, 2, NUMBER);
    assert_eq!((rig.nic.counters().entries, rig.nic.found().len()), (2, 0));
}

#[test]
fn an_entry_beyond_its_doorbell_is_a_fault() {
    let mut rig = Rig::new();
    let mut wrong = rig.write(0);
    wrong[7] = 6;
    wrong[35] = 60;
    rig.place(&wrong);
    rig.ring();
    assert_eq!(rig.only(), Fault::Uncovered { blocks: 2, covered: 1 });
}

#[test]
fn a_completion_without_room_is_a_fault_and_not_written() {
    let mut rig = Rig::new();
    for _ in 0..5 {
        rig.place(&rig.write(0));
        rig.ring();
    }
    assert_eq!(rig.only(), Fault::CompletionOverrun);
    assert_eq!(rig.completion(0), (0, 0, 0, 0), "the first one is still there");
}

#[test]
fn places_at_and_beyond_the_edge_of_a_region() {
    for (offset, is_good) in [
        (0, true),
        (1020, true),
        (1021, false),
        (1024, false),
        (u64::MAX - REMOTE, false),
        (0_u64.wrapping_sub(1), false),
    ] {
        let mut rig = Rig::new();
        let mut block = rig.write(0);
        block[16..24].copy_from_slice(&REMOTE.wrapping_add(offset).to_be_bytes());
        rig.place(&block);
        rig.ring();
        assert_eq!(rig.nic.found().is_empty(), is_good, "{offset}");
        let mut around = [0; 4096];
        rig.target.read(0, &mut around);
        assert!(around[..1024].iter().chain(&around[2048..]).all(|byte| *byte == 0), "{offset}");
    }
}

#[test]
fn whatever_bits_of_an_entry_are_flipped_nothing_outside_the_region_is_written() {
    // Each bit of a write and of an atomic operation, alone and with a second one.
    let mut state = 1_u64;
    for round in 0..20_000 {
        let mut rig = Rig::new();
        let mut block = rig.write(8);
        if round % 2 == 1 {
            block[3] = 0x12;
            block[7] = 4;
            block[32..].fill(0);
            block[39] = 1;
            block[51] = 8;
            block[52..56].copy_from_slice(&rig.local_key.to_be_bytes());
        }
        for _ in 0..1 + round % 3 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let bit = usize::try_from(state >> 55).unwrap();
            block[bit / 8] ^= 1 << (bit % 8);
        }
        rig.place(&block);
        rig.ring();
        let mut around = [0; 4096];
        rig.target.read(0, &mut around);
        assert!(around[..1024].iter().chain(&around[2048..]).all(|byte| *byte == 0), "{block:?}");
        // Either it was carried out, or a completion says why not.
        let (operation, _, index, syndrome) = rig.completion(0);
        match rig.nic.found() {
            [] => assert!(matches!(operation, 0 | 15), "{block:?}"),
            [found, ..] => {
                assert_eq!((operation, index, syndrome), (13, 0, found.fault.syndrome() as u8), "{found}");
                assert!(around[1024..2048].iter().all(|byte| *byte == 0), "{found}");
            }
        }
    }
}
