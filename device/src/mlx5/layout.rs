//! What a kernel gets to know of a queue pair. The same structure as in `include/spmd_mlx5.cuh`; a test has the C++
//! compiler compare the two, and the header's segments with those of `infiniband/mlx5dv.h`.

use bytemuck::{Pod, Zeroable};

/// The queue pair to one peer (`spmd::mlx5::queue_t`), in memory of the device. Addresses are the device's, unless they
/// are said to be the NIC's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct QueueHandle {
    /// Address of the send queue.
    pub blocks: u64,
    /// Blocks of 64 bytes that it has: a power of two, 4 to 2^15.
    pub block_count: u64,
    /// Address of the send queue's doorbell record.
    pub send_record: u64,
    /// Address of the doorbell register.
    pub doorbell: u64,
    /// Address of the completion queue, whose entries have 64 bytes.
    pub completions: u64,
    /// Entries that it has: a power of two, at least `block_count`.
    pub completion_count: u64,
    /// Address of the completion queue's doorbell record.
    pub consumer_record: u64,
    /// The NIC's address of this rank's own heap under `local_key`.
    pub local_base: u64,
    /// The address of the peer's heap for its NIC under `remote_key`.
    pub remote_base: u64,
    /// The NIC's address of 8 bytes under `result_key` where results of atomic operations go.
    pub result: u64,
    /// The queue pair's number: 24 bits.
    pub number: u32,
    /// The key of the own heap.
    pub local_key: u32,
    /// The key of the peer's heap.
    pub remote_key: u32,
    /// The most payload that travels within an entry: 8 to 92.
    pub inline_bytes: u32,
    /// The key of `result`.
    pub result_key: u32,
    /// 0.
    pub unused: u32,
    /// 0.
    pub unused_3: [u64; 3],
    /// Blocks that threads have taken. This and what follows is the kernel's.
    pub reserved: u64,
    /// Blocks that are filled, without a gap.
    pub ready: u64,
    /// Blocks that a doorbell covers.
    pub rung: u64,
    /// Held by the thread that rings.
    pub ring_lock: u64,
    /// Blocks whose entries are done.
    pub completed: u64,
    /// Completions that have been taken.
    pub taken: u64,
    /// Held by the thread that takes completions.
    pub poll_lock: u64,
    /// 1 after an error completion, or once a thread has given up.
    pub failed: u64,
    /// 0.
    pub unused_2: [u64; 8],
}
