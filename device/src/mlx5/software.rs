//! A queue pair in this process's memory whose NIC is the software one: what tests drive, on the host and on a GPU.

use super::layout::QueueHandle;
use crate::nic::{BLOCK, Memory, Queue, Regions, SEND_RECORD};
use std::sync::Arc;

const PAGE: usize = 4096;
/// Where the doorbell register is in the memory of a queue pair: a page of its own, as that of hardware is.
const DOORBELL: usize = 0;
/// Where the doorbell records are: receive, send, completion queue.
const RECORDS: usize = PAGE;
/// Where the send queue begins; completions follow.
const ENTRIES: usize = 2 * PAGE;

/// Memory as a NIC knows it.
#[derive(Clone, Copy, Debug)]
pub struct Heap {
    /// Its address.
    pub base: u64,
    /// Its key.
    pub key: u32,
}

/// The send side of a queue pair.
#[derive(Clone, Debug)]
pub struct SoftwareQueue {
    memory: Memory,
    number: u32,
    block_count: usize,
}

impl SoftwareQueue {
    /// A queue pair with this number and so many blocks, a power of two from 4 to 2^15.
    ///
    /// # Panics
    /// When `block_count` is not.
    #[must_use]
    pub fn new(number: u32, block_count: usize) -> Self {
        assert!(block_count.is_power_of_two() && (4..=1 << 15).contains(&block_count), "{block_count} blocks");
        let memory = Memory::zeroed(ENTRIES + 2 * block_count * BLOCK);
        SoftwareQueue { memory, number, block_count }
    }

    /// All of its memory, to be registered with a device.
    #[must_use]
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// What the NIC takes over; `local` and `remote` say what keys mean there.
    #[must_use]
    pub fn queue(&self, local: Arc<Regions>, remote: Arc<Regions>) -> Queue {
        let bytes = self.block_count * BLOCK;
        Queue {
            number: self.number,
            entries: self.memory.part(ENTRIES, bytes),
            completions: self.memory.part(ENTRIES + bytes, bytes),
            records: self.memory.part(RECORDS, 16),
            doorbell: self.memory.part(DOORBELL, 8),
            local,
            remote,
        }
    }

    /// What a kernel gets whose device sees [`SoftwareQueue::memory`] at `base`. `result`: 8 bytes where results of atomic
    /// operations go.
    #[must_use]
    pub fn handle_at(&self, base: u64, local: Heap, remote: Heap, result: Heap, inline_bytes: u32) -> QueueHandle {
        let entries = base + ENTRIES as u64;
        QueueHandle {
            blocks: entries,
            block_count: self.block_count as u64,
            send_record: base + (RECORDS + 4 * SEND_RECORD) as u64,
            doorbell: base + DOORBELL as u64,
            completions: entries + (self.block_count * BLOCK) as u64,
            completion_count: self.block_count as u64,
            consumer_record: base + RECORDS as u64 + 8,
            local_base: local.base,
            remote_base: remote.base,
            result: result.base,
            number: self.number,
            local_key: local.key,
            remote_key: remote.key,
            inline_bytes,
            result_key: result.key,
            ..QueueHandle::default()
        }
    }
}
