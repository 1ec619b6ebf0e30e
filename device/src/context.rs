//! What the host hands to a kernel, as plain memory: the same structures as in `include/spmd_types.cuh`.
//!
//! Knows layouts only. Offsets are asserted here and, in the header, by the CUDA compiler; a test compares the two.

#![expect(unsafe_code, reason = "says that a structure may be passed to a kernel")]

use bytemuck::{Pod, Zeroable};
use cudarc::driver::DeviceRepr;
use std::fmt;

/// Raised with every change of a structure of this module, here and in `spmd_types.cuh`.
pub const CONTEXT_VERSION: u32 = 2;

/// How many ranks have their base in the argument of a kernel itself.
pub const NEAR: usize = 8;

/// [`ErrorRecord::stop`] (`stop_t`): kernels wait as long as they like.
pub const STOP_NOT: u32 = 0;
/// [`ErrorRecord::stop`]: waits end, because the program has asked for it.
pub const STOP_ASKED: u32 = 1;
/// [`ErrorRecord::stop`]: waits end, because a rank is lost.
pub const STOP_LOST: u32 = 2;

/// How the kernel reaches a peer (`way_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Way {
    /// Not at all.
    None = 0,
    /// Its heap is mapped into this device's addresses: plain stores.
    Mapped = 1,
    /// Descriptors in a ring that a thread of the host posts.
    Proxy = 2,
    /// Work-queue entries that the kernel writes, and a doorbell that it rings.
    Mlx5 = 3,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Way::None => "none",
            Way::Mapped => "mapped",
            Way::Proxy => "proxy",
            Way::Mlx5 => "mlx5",
        })
    }
}

/// One rank as seen from this one (`peer_t`); an array of them lies in device memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct PeerEntry {
    /// Address at which its heap is mapped here; 0: it is not.
    pub base: u64,
    /// [`Way::Mlx5`]: address of its queue, in memory that the kernel reaches.
    pub queue: u64,
    /// A [`Way`] as a number.
    pub way: u32,
    /// 0.
    pub reserved: u32,
    /// 0.
    pub unused: u64,
}

/// Where a kernel keeps the first thing it found wrong (`error_record_t`); in pinned memory of the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct ErrorRecord {
    /// What (`error_t`); 0: nothing.
    pub code: u32,
    /// The rank it was about; all bits set: none.
    pub peer: u32,
    /// Depends on the code.
    pub detail: u64,
    /// What a wait waited for.
    pub expected: u64,
    /// What it found.
    pub found: u64,
    /// `blockIdx.x` of the thread.
    pub block: u32,
    /// `threadIdx.x` of the thread.
    pub thread: u32,
    /// 1 once the fields above are written.
    pub complete: u32,
    /// Written by the host: whether waits end ([`STOP_NOT`] and the others).
    pub stop: u32,
    /// 0.
    pub unused: [u64; 2],
}

/// The one argument of a kernel that communicates (`context_t`), passed by value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct KernelContext {
    /// [`CONTEXT_VERSION`].
    pub version: u32,
    /// This rank in the communicator of the heap.
    pub rank: u32,
    /// How many ranks there are.
    pub size: u32,
    /// 0.
    pub flags: u32,
    /// Address of this rank's own heap.
    pub heap: u64,
    /// Bytes of the heap, the same on every rank.
    pub heap_bytes: u64,
    /// Address of the [`PeerEntry`]s.
    pub peers: u64,
    /// [`Way::Proxy`]: address of the ring, else 0.
    pub ring: u64,
    /// Address of the [`ErrorRecord`].
    pub error: u64,
    /// Clock cycles that a wait may take; 0: no limit.
    pub cycle_limit: u64,
    /// Address of the state of the collectives, else 0.
    pub collective: u64,
    /// Address of a word in the device's memory that whoever writes the error record takes first; 0: none.
    pub claim: u64,
    /// Address of a copy of this structure in the device's memory.
    pub copy: u64,
    /// 0.
    pub unused: [u64; 5],
    /// Bases of the first ranks that are mapped, else 0.
    pub near: [u64; NEAR],
}

// SAFETY: plain numbers in the layout that kernels know it by.
unsafe impl DeviceRepr for KernelContext {}

/// Every structure that is shared with kernels, its size, and the offset of each field: `[(structure, bytes, [(field, offset)])]`.
pub const LAYOUT: &[(&str, usize, Fields)] = &[
    fields::<PeerEntry>(
        "peer_t",
        &[
            ("base", std::mem::offset_of!(PeerEntry, base)),
            ("queue", std::mem::offset_of!(PeerEntry, queue)),
            ("way", std::mem::offset_of!(PeerEntry, way)),
        ],
    ),
    fields::<ErrorRecord>(
        "error_record_t",
        &[
            ("code", std::mem::offset_of!(ErrorRecord, code)),
            ("peer", std::mem::offset_of!(ErrorRecord, peer)),
            ("detail", std::mem::offset_of!(ErrorRecord, detail)),
            ("expected", std::mem::offset_of!(ErrorRecord, expected)),
            ("found", std::mem::offset_of!(ErrorRecord, found)),
            ("block", std::mem::offset_of!(ErrorRecord, block)),
            ("thread", std::mem::offset_of!(ErrorRecord, thread)),
            ("complete", std::mem::offset_of!(ErrorRecord, complete)),
            ("stop", std::mem::offset_of!(ErrorRecord, stop)),
        ],
    ),
    fields::<KernelContext>(
        "context_t",
        &[
            ("version", std::mem::offset_of!(KernelContext, version)),
            ("rank", std::mem::offset_of!(KernelContext, rank)),
            ("size", std::mem::offset_of!(KernelContext, size)),
            ("flags", std::mem::offset_of!(KernelContext, flags)),
            ("heap", std::mem::offset_of!(KernelContext, heap)),
            ("heap_bytes", std::mem::offset_of!(KernelContext, heap_bytes)),
            ("peers", std::mem::offset_of!(KernelContext, peers)),
            ("ring", std::mem::offset_of!(KernelContext, ring)),
            ("error", std::mem::offset_of!(KernelContext, error)),
            ("cycle_limit", std::mem::offset_of!(KernelContext, cycle_limit)),
            ("collective", std::mem::offset_of!(KernelContext, collective)),
            ("claim", std::mem::offset_of!(KernelContext, claim)),
            ("copy", std::mem::offset_of!(KernelContext, copy)),
            ("near", std::mem::offset_of!(KernelContext, near)),
        ],
    ),
];

/// Names and offsets of a structure's fields.
pub type Fields = &'static [(&'static str, usize)];

const fn fields<T>(name: &'static str, fields: Fields) -> (&'static str, usize, Fields) {
    (name, size_of::<T>(), fields)
}
