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
// The same algorithm in Rust: device/src/proxy/ring.rs, which is checked under every interleaving; there every producer that
// finds the ring full looks for itself.
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
    u64 looking;      //  72 1 while a producer looks at the host
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

// Waits until there is room for `position`. One producer at a time looks at the host, over the bus, and leaves what it has
// found for the others: hundreds of blocks that looked would slow down the very thread they wait for.
inline __device__ __noinline__ bool wait_for_room(const context_t &context, ring_t *ring, u64 position, u32 peer) {
    const auto *published = reinterpret_cast<const published_t *>(ring->published);
    patience_t patience;
    u64 seen;
    while (position - (seen = load_acquire_device(&ring->seen)) >= ring->capacity) {
        if (load_relaxed_device(&ring->looking) == 0 && try_lock_device(&ring->looking)) {
            const u64 taken = load_acquire(&published->taken), error = load_relaxed(&published->error);
            store_release_device(&ring->seen, taken);
            store_release_device(&ring->looking, 0);
            if (error != 0) return give_up(context, ring, peer, position);
        }
        if (!patience.lasts(context, ERROR_RING_STALLED, peer, position, ring->capacity, seen)) {
            store_relaxed_device(&ring->failed, 1);
            return false;
        }
    }
    return true;
}

// Whether the descriptor's stores come after a fence, which makes visible to the host what it covers.
enum fence_t : u32 {
    WITHOUT_FENCE = 0,
    WITH_FENCE = 1,
};

// Puts a descriptor into the ring.
__device__ inline bool post(const context_t &context, ring_t *ring, fence_t fence, operation_t operation, u32 peer, u64 address,
                            u64 offset, u64 bytes, u64 signal_offset, u64 value, u32 op, u64 &position) {
    // All of them are under way at once, also while the fence is: each takes as long as an access to the second-level cache,
    // and so would each after a branch. An old `seen` only means one more look.
    position = add_relaxed_device(&ring->head, 1);
    const u64 failed = load_relaxed_device(&ring->failed), seen = load_relaxed_device(&ring->seen);
    const u64 capacity = load_relaxed_device(&ring->capacity), entries = load_relaxed_device(&ring->entries);
    if (fence == WITH_FENCE) fence_system();
    if (failed != 0) return give_up(context, ring, peer, position);
    if (position - seen >= capacity && !wait_for_room(context, ring, position, peer)) return false;
    const u64 lap = (position & capacity) == 0 ? LAP : 0;
    const u64 first = (u64)operation | (u64)op << 8 | (u64)peer << 16 | ((value & LAP) == 0 ? 0 : VALUE_TOP);
    u64 *entry = reinterpret_cast<u64 *>(entries) + (position & (capacity - 1)) * STRIDE_WORDS;
    store_pair_relaxed(entry, first | lap, (address & ~LAP) | lap);
    store_pair_relaxed(entry + 2, (offset & ~LAP) | lap, (bytes & ~LAP) | lap);
    store_pair_relaxed(entry + 4, (signal_offset & ~LAP) | lap, (value & ~LAP) | lap);
    return true;
}

// The ring of a context whose peers are reached through the proxy.
__device__ __forceinline__ ring_t *ring_of(const context_t &context) { return reinterpret_cast<ring_t *>(context.ring); }

// Bytes from `source` (any address of this device that the host can read) to `offset` in the heap of `peer`.
__device__ inline bool put(const context_t &context, ring_t *ring, u64 offset, const void *source, u64 bytes, u32 peer) {
    u64 position;
    return post(context, ring, WITH_FENCE, OP_PUT, peer, (u64)source, offset, bytes, 0, 0, 0, position);
}

// The same, then the signal word at `signal_offset`, which whoever sees it sees the bytes.
__device__ inline bool put_signal(const context_t &context, ring_t *ring, u64 offset, const void *source, u64 bytes,
                                  u64 signal_offset, u64 value, signal_op_t op, u32 peer) {
    u64 position;
    return post(context, ring, WITH_FENCE, OP_PUT_SIGNAL, peer, (u64)source, offset, bytes, signal_offset, value, op, position);
}

// A signal alone. Without a fence: it covers what is in the ring before it.
__device__ inline bool signal(const context_t &context, ring_t *ring, u64 signal_offset, u64 value, signal_op_t op, u32 peer) {
    u64 position;
    return post(context, ring, WITHOUT_FENCE, OP_SIGNAL, peer, 0, 0, 0, signal_offset, value, op, position);
}

// Bytes from `offset` in the heap of `peer` to `destination`, which is in this rank's own heap; complete when it returns.
__device__ inline bool get(const context_t &context, ring_t *ring, void *destination, u64 offset, u64 bytes, u32 peer) {
    u64 position;
    if (!post(context, ring, WITH_FENCE, OP_GET, peer, (u64)destination, offset, bytes, 0, 0, 0, position)) return false;
    const auto *published = reinterpret_cast<const published_t *>(ring->published);
    return wait_beyond(context, ring, &published->completed, position, peer);
}

// Returns once everything that this device has put into the ring so far is visible at its targets, and sources may be
// changed.
__device__ inline bool quiet(const context_t &context, ring_t *ring) {
    u64 position;
    if (!post(context, ring, WITHOUT_FENCE, OP_QUIET, 0, 0, 0, 0, 0, 0, 0, position)) return false;
    const auto *published = reinterpret_cast<const published_t *>(ring->published);
    return wait_beyond(context, ring, &published->completed, position, ~0u);
}

}  // namespace proxy
}  // namespace spmd
