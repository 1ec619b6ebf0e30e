// spmd_proxy.cuh: the way over a ring of descriptors that a thread of the host carries out. Knows the ring, and nothing of
// how the host carries a descriptor out.
//
// Each function is called by ONE thread, after the threads whose stores it covers have met at a barrier. It makes those
// stores visible to the host before the descriptor, returns once the descriptor is in the ring, and gives false after
// spmd::fail has recorded why. Descriptors to one peer are carried out in the order of the ring: a signal covers every put
// whose descriptor came before it.
//
// The ring. A producer takes a position from a counter in this device's memory, waits while that place is not free, and
// writes the words of its descriptor, each with the parity of the lap in its highest bit. A word proves by itself that it
// is of this lap: words may arrive in any order, no fence follows them, and nothing is ever cleared. The host says how far
// it is; producers look at that, over the bus, only when the ring looks full, and leave for the others what they found.
// The same algorithm in Rust: device/src/proxy/ring.rs, which is checked under every interleaving.
#pragma once
#include "spmd_types.cuh"
#include "spmd_memory.cuh"
#include "spmd_errors.cuh"

namespace spmd {
namespace proxy {

// The producers' side, in this device's memory.
struct ring_t {
    u64 entries;      //   0 address of the descriptors, in memory of the host
    u64 published;    //   8 const published_t *
    u64 capacity;     //  16 a power of two
    u64 unused[5];    //  24
    u64 head;         //  64 the next position
    u64 reserved;     //  72
    u64 seen;         //  80 what the host had taken when somebody last looked
    u64 failed;       //  88 1 once a producer has given up: the ring has a hole and is finished
    u64 unused_2[4];  //  96
};

// What the host tells, in its memory.
struct published_t {
    u64 taken;      //  0 so many descriptors are taken: their sources may be changed
    u64 completed;  //  8 so many are complete: bytes that were got are there, what came before a quiet is visible
    u64 error;      // 16 position of the descriptor that could not be carried out, plus 1
    u64 unused[5];  // 24
};

static_assert(sizeof(ring_t) == 128, "ring_t is 128 bytes in device/src/proxy/layout.rs");
static_assert(sizeof(published_t) == 64, "published_t is 64 bytes in device/src/proxy/layout.rs");

// A descriptor is six words of a cache line:
//   0  operation (bits 0..7), signal_op_t (8..15), peer (16..47), highest bit of the value (62)
//   1  address on this device: source of a put, destination of a get
//   2  offset in the heap of the peer
//   3  bytes
//   4  offset of the signal word in the heap of the peer
//   5  the signal's value without its highest bit
// Bit 63 of every word is the parity of the lap.
constexpr u64 STRIDE_WORDS = 8;
constexpr u64 DESCRIPTOR_WORDS = 6;
constexpr u64 LAP = 1ull << 63;
constexpr u64 VALUE_TOP = 1ull << 62;

enum operation_t : u32 {
    OP_PUT = 1,
    OP_SIGNAL = 2,
    OP_PUT_SIGNAL = 3,
    OP_GET = 4,
    OP_QUIET = 5,
};

// Records why a producer gives up. Always false.
__device__ inline bool give_up(const context_t &context, ring_t *ring, u32 peer, u64 position) {
    store_relaxed_device(&ring->failed, 1);
    const auto *published = reinterpret_cast<const published_t *>(ring->published);
    const u64 error = load_relaxed(&published->error);
    if (error != 0) return fail(context, ERROR_PROXY, peer, error - 1, 0, 0);
    return fail(context, ERROR_RING_STALLED, peer, position, ring->capacity, load_relaxed(&published->taken));
}

// Waits until `word`, which the host counts up, is beyond `position`.
__device__ inline bool wait_beyond(const context_t &context, ring_t *ring, const u64 *word, u64 position, u32 peer) {
    const auto *published = reinterpret_cast<const published_t *>(ring->published);
    patience_t patience;
    u64 found;
    while ((found = load_acquire(word)) <= position) {
        // Not in every round: it is read over the bus.
        if ((patience.polls & 15) == 15 && load_relaxed(&published->error) != 0) {
            return give_up(context, ring, peer, position);
        }
        if (!patience.lasts(context, ERROR_RING_STALLED, peer, position, ring->capacity, found)) {
            store_relaxed_device(&ring->failed, 1);
            return false;
        }
    }
    return true;
}

// Puts a descriptor into the ring. The caller has made visible to the system what it covers.
__device__ inline bool post(const context_t &context, operation_t operation, u32 peer, u64 address, u64 offset, u64 bytes,
                            u64 signal_offset, u64 value, u32 op, u64 &position) {
    auto *ring = reinterpret_cast<ring_t *>(context.ring);
    if (ring == nullptr) return fail(context, ERROR_NO_WAY, peer, offset, bytes, 0);
    // All three are under way at once. An old `seen` only means one more look at the host.
    const u64 failed = load_relaxed_device(&ring->failed), seen = load_relaxed_device(&ring->seen);
    position = add_relaxed_device(&ring->head, 1);
    if (failed != 0) return give_up(context, ring, peer, position);
    const u64 capacity = ring->capacity;
    if (position - seen >= capacity) {
        const auto *published = reinterpret_cast<const published_t *>(ring->published);
        if (!wait_beyond(context, ring, &published->taken, position - capacity, peer)) return false;
        store_relaxed_device(&ring->seen, load_acquire(&published->taken));
    }
    const u64 lap = (position & capacity) == 0 ? LAP : 0;
    const u64 first = (u64)operation | (u64)op << 8 | (u64)peer << 16 | ((value & LAP) == 0 ? 0 : VALUE_TOP);
    u64 *entry = reinterpret_cast<u64 *>(ring->entries) + (position & (capacity - 1)) * STRIDE_WORDS;
    store_pair_relaxed(entry, first | lap, (address & ~LAP) | lap);
    store_pair_relaxed(entry + 2, (offset & ~LAP) | lap, (bytes & ~LAP) | lap);
    store_pair_relaxed(entry + 4, (signal_offset & ~LAP) | lap, (value & ~LAP) | lap);
    return true;
}

// Bytes from `source` (any address of this device that the host can read) to `offset` in the heap of `peer`.
__device__ inline bool put(const context_t &context, u64 offset, const void *source, u64 bytes, u32 peer) {
    u64 position;
    fence_system();
    return post(context, OP_PUT, peer, (u64)source, offset, bytes, 0, 0, 0, position);
}

// The same, then the signal word at `signal_offset`, which whoever sees it sees the bytes.
__device__ inline bool put_signal(const context_t &context, u64 offset, const void *source, u64 bytes, u64 signal_offset,
                                  u64 value, signal_op_t op, u32 peer) {
    u64 position;
    fence_system();
    return post(context, OP_PUT_SIGNAL, peer, (u64)source, offset, bytes, signal_offset, value, op, position);
}

// A signal alone. Without a fence: it covers what is in the ring before it.
__device__ inline bool signal(const context_t &context, u64 signal_offset, u64 value, signal_op_t op, u32 peer) {
    u64 position;
    return post(context, OP_SIGNAL, peer, 0, 0, 0, signal_offset, value, op, position);
}

// Bytes from `offset` in the heap of `peer` to `destination`, which is in this rank's own heap; complete when it returns.
__device__ inline bool get(const context_t &context, void *destination, u64 offset, u64 bytes, u32 peer) {
    u64 position;
    fence_system();
    if (!post(context, OP_GET, peer, (u64)destination, offset, bytes, 0, 0, 0, position)) return false;
    auto *ring = reinterpret_cast<ring_t *>(context.ring);
    const auto *published = reinterpret_cast<const published_t *>(ring->published);
    return wait_beyond(context, ring, &published->completed, position, peer);
}

// Returns once everything that this device has put into the ring so far is visible at its targets, and sources may be
// changed.
__device__ inline bool quiet(const context_t &context) {
    if (context.ring == 0) return true;
    u64 position;
    if (!post(context, OP_QUIET, 0, 0, 0, 0, 0, 0, 0, position)) return false;
    auto *ring = reinterpret_cast<ring_t *>(context.ring);
    const auto *published = reinterpret_cast<const published_t *>(ring->published);
    return wait_beyond(context, ring, &published->completed, position, ~0u);
}

}  // namespace proxy
}  // namespace spmd
