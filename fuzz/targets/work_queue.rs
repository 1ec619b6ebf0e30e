//! Entries of a send queue: whatever bytes lie there and whatever a doorbell says, the software NIC writes nothing outside
//! what is registered for remote access, and everything it was given ends in a completion or a fault with a name.

#![no_main]

use libfuzzer_sys::fuzz_target;
use spmd_device::nic::{Access, BLOCK, Memory, Nic, Queue, Regions};
use std::sync::{Arc, atomic::Ordering};

const NUMBER: u32 = 0x77;
const BLOCKS: usize = 8;
const LOCAL: u64 = 0x1000;
const REMOTE: u64 = 0x2000;

fuzz_target!(|bytes: &[u8]| {
    let Some((&announced, bytes)) = bytes.split_first() else { return };
    let (source, target) = (Memory::zeroed(4096), Memory::zeroed(4096));
    let (local, remote) = (Arc::new(Regions::default()), Arc::new(Regions::default()));
    let local_key = local.register(LOCAL, source.part(1024, 1024), Access::Local);
    let remote_key = remote.register(REMOTE, target.part(1024, 1024), Access::Remote);
    let queue = Queue {
        number: NUMBER,
        entries: Memory::zeroed(4096).part(0, BLOCKS * BLOCK),
        completions: Memory::zeroed(4096).part(0, BLOCKS * BLOCK),
        records: Memory::zeroed(4096).part(0, 16),
        doorbell: Memory::zeroed(4096).part(0, 8),
        local,
        remote,
    };
    let mut nic = Nic::default();
    nic.add(queue.clone());
    // Entries that could be right, changed by the input: from nothing but noise, nothing would ever be carried out.
    for place in 0..BLOCKS {
        let mut block = [0; BLOCK];
        let is_atomic = place % 2 == 1;
        block[..4].copy_from_slice(&((place as u32) << 8 | if is_atomic { 0x12 } else { 0x08 }).to_be_bytes());
        block[4..8].copy_from_slice(&(NUMBER << 8 | if is_atomic { 4 } else { 3 }).to_be_bytes());
        block[11] = 8;
        block[16..24].copy_from_slice(&REMOTE.to_be_bytes());
        block[24..28].copy_from_slice(&remote_key.to_be_bytes());
        let data = if is_atomic { 48 } else { 32 };
        block[data..data + 4].copy_from_slice(&8_u32.to_be_bytes());
        block[data + 4..data + 8].copy_from_slice(&local_key.to_be_bytes());
        block[data + 8..data + 16].copy_from_slice(&LOCAL.to_be_bytes());
        for (byte, change) in block.iter_mut().zip(bytes.iter().skip(place * BLOCK)) {
            *byte ^= change;
        }
        queue.entries.write(place * BLOCK, &block);
    }
    let announced = u32::from(announced);
    queue.records.half(4).store(announced.to_be(), Ordering::Release);
    let mut register = [0; 8];
    register[..4].copy_from_slice(&(announced << 8).to_be_bytes());
    register[4..].copy_from_slice(&(NUMBER << 8).to_be_bytes());
    queue.doorbell.word(0).store(u64::from_ne_bytes(register), Ordering::Release);
    nic.poll();

    for memory in [&source, &target] {
        let mut all = [0; 4096];
        memory.read(0, &mut all);
        assert!(all[..1024].iter().chain(&all[2048..]).all(|byte| *byte == 0), "{:?}", nic.found());
    }
    if let Some(found) = nic.found().first() {
        assert!(!found.to_string().is_empty() && found.fault.code() != 0);
        assert!(nic.counters().completions > 0);
    }
});
