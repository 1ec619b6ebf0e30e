// spmd_types.cuh: what the host hands to a kernel. Plain memory layouts and no functions, so that the headers of the three
// ways (peer-mapped in spmd_device.cuh, spmd_proxy.cuh, spmd_mlx5.cuh) share it without including each other.
//
// The same structures in Rust: device/src/context.rs. Both sides assert every offset; whoever changes one raises
// SPMD_CONTEXT_VERSION on both sides.
#pragma once

#define SPMD_CONTEXT_VERSION 2u

namespace spmd {

// Names of our own: NVRTC has no <cstdint>, and a user's own typedefs must not meet ours.
using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;

// How a peer is reached.
enum way_t : u32 {
    WAY_NONE = 0,    // not at all: every operation ends with ERROR_NO_WAY
    WAY_MAPPED = 1,  // its heap is mapped here: plain stores
    WAY_PROXY = 2,   // descriptors in a ring that a thread of the host posts
    WAY_MLX5 = 3,    // work-queue entries that the kernel writes, and a doorbell that it rings
};

// What is done with a signal word. The numbers travel in descriptors.
enum signal_op_t : u32 {
    SIGNAL_SET = 1,
    SIGNAL_ADD = 2,
};

// What a kernel found wrong. The first error of a device is kept, later ones are dropped.
enum error_t : u32 {
    ERROR_NONE = 0,
    ERROR_TIMEOUT = 1,      // a wait reached the cycle limit: `expected` and `found` are the words compared
    ERROR_NO_WAY = 2,       // no way to this peer
    ERROR_RANK = 3,         // there is no such rank: `detail` is the number
    ERROR_RANGE = 4,        // outside the heap: `detail` is the offset, `expected` the bytes
    ERROR_RING_STALLED = 5, // the proxy took no descriptor within the cycle limit
    ERROR_QUEUE = 6,        // the NIC completed with an error: `detail` is its syndrome
    ERROR_STOPPED = 7,      // the host asked all kernels to end
    ERROR_PROXY = 8,        // the proxy could not carry out a request: `detail` is its position; the host knows why
    ERROR_LOST = 9,         // a rank is lost, so that this wait may never end; the host knows which and why
    ERROR_ALIGNMENT = 10,   // a signal or slot is not aligned: `detail` is its offset, `expected` what it is to be a multiple of
};

// What the host writes into `error_record_t::stop`.
enum stop_t : u32 {
    STOP_NOT = 0,
    STOP_ASKED = 1,  // waits end with ERROR_STOPPED
    STOP_LOST = 2,   // waits end with ERROR_LOST
};

// One rank as seen from this one; an array of `size` of them in device memory.
struct peer_t {
    u64 base;      //  0 address at which its heap is mapped here; 0: it is not
    u64 queue;     //  8 WAY_MLX5: address of its spmd::mlx5::queue_t in memory that the kernel can reach, else 0
    u32 way;       // 16 one of way_t
    u32 reserved;  // 20
    u64 unused;    // 24
};

// Where the first error is kept: pinned memory of the host, so that it outlives a kernel that the driver ends.
struct error_record_t {
    u32 code;      //  0 one of error_t
    u32 peer;      //  4 rank of the peer, or ~0
    u64 detail;    //  8 see error_t
    u64 expected;  // 16
    u64 found;     // 24
    u32 block;     // 32 blockIdx.x
    u32 thread;    // 36 threadIdx.x
    u32 complete;  // 40 set to 1 once the fields above are written
    u32 stop;      // 44 one of stop_t, written by the host: whether waits end
    u64 unused[2]; // 48
};

// How many ranks have their base in the argument itself.
constexpr u32 NEAR = 8;

// The one argument of a kernel that communicates, passed by value.
struct context_t {
    u32 version;        //  0 SPMD_CONTEXT_VERSION
    u32 rank;           //  4 this rank, in the communicator of the heap
    u32 size;           //  8 ranks
    u32 flags;          // 12 reserved, 0
    u64 heap;           // 16 address of this rank's own heap
    u64 heap_bytes;     // 24 the same on every rank
    u64 peers;          // 32 const peer_t *, `size` of them
    u64 ring;           // 40 spmd::proxy::ring_t *: all ranks that are not mapped are reached through it; else 0
    u64 error;          // 48 error_record_t *
    u64 cycle_limit;    // 56 clock cycles that a wait may take; 0: no limit
    u64 collective;     // 64 spmd::collective_t *: state of the collectives of this device, else 0
    u64 claim;          // 72 u32 * in device memory: taken by whoever writes the error record; 0: its code serves for that
    u64 copy;           // 80 const context_t *: a copy in device memory, for functions out of line
    u64 unused[5];      // 88
    u64 near[NEAR];     // 128 bases of the first ranks whose way is WAY_MAPPED, else 0: constants, while the table is memory
};

static_assert(sizeof(peer_t) == 32, "peer_t is 32 bytes in device/src/context.rs");
static_assert(sizeof(error_record_t) == 64, "error_record_t is 64 bytes in device/src/context.rs");
static_assert(sizeof(context_t) == 192, "context_t is 192 bytes in device/src/context.rs");

}  // namespace spmd
