// spmd_device.cuh: put and signal from inside a CUDA kernel. Plain CUDA C++ for nvcc and NVRTC, no other header needed.
//
// A kernel gets one argument, `spmd::context_t`, from Rust's `Device::context()`. Destinations and signals are named by
// their address in this rank's own heap: the same object has the same offset in the heap of every rank. Sources and results
// may be anywhere in this device's global memory.
//
// Scope. Every call says who makes it: `spmd::thread`, `spmd::warp` (all 32 lanes, converged) or `spmd::block` (all
// threads). All members call with the same arguments. A source must be ready for every member, as after __syncthreads().
//
// Order. Puts to one peer may become visible there in any order.
//   put_signal, signal    whoever has seen the signal sees every put to the same peer that happened before it: by the
//                         members of the scope, and by any thread that was synchronised with them (__syncthreads, a grid
//                         barrier). One fence is paid for that.
//   signal_relaxed        covers nothing but itself: for signals that no data belongs to. Half the time of `signal`.
//   send_small            data and mark in one store: nothing else is covered, and no fence is paid.
//   fence                 what this thread does after it becomes visible, at each peer, after what happened before it.
//   quiet                 returns when everything that happened before it is visible at its targets.
//   wait_signal           what the signal covers is visible to all members of the scope when it returns true.
// A word that peers reach in different ways (one maps it, another goes through a proxy) may be added to by all of them;
// it may be set by one of them only.
//
// Errors. Calls give false after the first thing that went wrong was recorded for the host (Rust: `Device::check`): a wait
// beyond the cycle limit, a rank that is lost while this one waits, a rank or an offset that does not exist, a signal that is
// not at a multiple of 8 bytes or a slot that is not at one of 16, a way that failed, a host that asked kernels to end. A
// kernel should then return: all members of a scope get the same answer.
#pragma once
#include "spmd_types.cuh"
#include "spmd_memory.cuh"
#include "spmd_errors.cuh"
#include "spmd_proxy.cuh"
#include "spmd_mlx5.cuh"

namespace spmd {

// ---- scopes ---------------------------------------------------------------------------------------------------------

struct thread_scope {
    __device__ __forceinline__ u32 index() const { return 0; }
    __device__ __forceinline__ u32 count() const { return 1; }
    __device__ __forceinline__ void sync() const {}
    __device__ __forceinline__ bool all(bool mine) const { return mine; }
};

struct warp_scope {
    __device__ __forceinline__ u32 index() const { return lane(); }
    __device__ __forceinline__ u32 count() const { return 32; }
    __device__ __forceinline__ void sync() const { __syncwarp(); }
    __device__ __forceinline__ bool all(bool mine) const { return __all_sync(~0u, mine); }
};

struct block_scope {
    __device__ __forceinline__ u32 index() const {
        return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    }
    __device__ __forceinline__ u32 count() const { return blockDim.x * blockDim.y * blockDim.z; }
    __device__ __forceinline__ void sync() const { __syncthreads(); }
    __device__ __forceinline__ bool all(bool mine) const { return __syncthreads_and(mine); }
};

constexpr thread_scope thread{};
constexpr warp_scope warp{};
constexpr block_scope block{};

// ---- peers ----------------------------------------------------------------------------------------------------------

// How a peer is reached. The table does not change while kernels run, so that it may come from the read-only cache.
__device__ __forceinline__ peer_t peer_of(const context_t &context, u32 peer) {
    // Not in PTX: the compiler may move an assembler statement before the test that makes its address valid.
    const auto *entry = reinterpret_cast<const ulonglong2 *>(context.peers + (u64)peer * sizeof(peer_t));
    const ulonglong2 front = __ldg(entry);
    peer_t to = {};
    to.base = front.x;
    to.queue = front.y;
    to.way = __ldg(reinterpret_cast<const u32 *>(entry + 1));
    return to;
}

// Where the heap of a peer is mapped; 0: it is reached in another way. `peer` is a rank. Of few ranks it is a constant of the
// kernel; looking it up in the table after every wait, which empties the first-level cache, would double the time of a signal.
__device__ __forceinline__ u64 base_of(const context_t &context, u32 peer) {
    if (peer < NEAR) {
        // Chosen and not indexed: an index would have the compiler copy the argument to memory.
        u64 base = 0;
#pragma unroll
        for (u32 rank = 0; rank < NEAR; ++rank) base = peer == rank ? context.near[rank] : base;
        return base;
    }
    const peer_t to = peer_of(context, peer);
    return to.way == WAY_MAPPED ? to.base : 0;
}

// Where a peer's copy of an object of this heap is mapped; null when its heap is not mapped here, or the address is not in
// the heap. For kernels that load and store by themselves.
template <class T>
__device__ __forceinline__ T *mapped(const context_t &context, T *object, u32 peer) {
    if (peer >= context.size) return nullptr;
    const u64 offset = (u64)object - context.heap, base = base_of(context, peer);
    return base == 0 || offset >= context.heap_bytes ? nullptr : reinterpret_cast<T *>(base + offset);
}

// What signals and slots have to be aligned to: the hardware does not store to another address, and ends the kernel.
constexpr u64 SIGNAL_ALIGNMENT = 8, SLOT_ALIGNMENT = 16;

// Whether `bytes` bytes at `address` are in the heap, aligned to `alignment`, and `peer` is a rank; the offset in `offset`.
__device__ __forceinline__ bool place(const context_t &context, const void *address, u64 bytes, u32 peer, u64 &offset,
                                      u64 alignment = 1) {
    offset = (u64)address - context.heap;
    if (peer >= context.size) return fail(context, ERROR_RANK, ~0u, peer, context.size, 0);
    const bool is_aligned = (offset & (alignment - 1)) == 0;
    if (offset > context.heap_bytes || bytes > context.heap_bytes - offset || !is_aligned) {
        return fail(context, is_aligned ? ERROR_RANGE : ERROR_ALIGNMENT, peer, offset, is_aligned ? bytes : alignment,
                    context.heap_bytes);
    }
    return true;
}

// Whether a place of one's own that is waited for is aligned. Not every one is in the heap.
__device__ __forceinline__ bool aligned(const context_t &context, const void *address, u64 alignment, u32 peer) {
    const bool is_aligned = ((u64)address & (alignment - 1)) == 0;
    return is_aligned || fail(context, ERROR_ALIGNMENT, peer, (u64)address - context.heap, alignment, context.heap_bytes);
}

// ---- copying --------------------------------------------------------------------------------------------------------

struct alignas(16) word16 {
    u32 x, y, z, w;
};

// Bytes `shift`.. of two neighbouring words.
__device__ __forceinline__ u32 spliced(u32 low, u32 high, u32 shift) { return __funnelshift_r(low, high, shift * 8); }

// 16 bytes from an address that is aligned to 4 bytes after `shift` bytes are taken off; reads the 20 bytes around them.
__device__ __forceinline__ word16 load_shifted(const u8 *from, u32 shift) {
    const u32 *words = reinterpret_cast<const u32 *>(from - shift);
    const u32 a = words[0], b = words[1], c = words[2], d = words[3];
    if (shift == 0) return {a, b, c, d};
    const u32 e = words[4];
    return {spliced(a, b, shift), spliced(b, c, shift), spliced(c, d, shift), spliced(d, e, shift)};
}

// Copies with 16-byte stores except for the ends, whatever the alignment of both sides. No byte outside either range is
// touched or read.
template <class Scope>
__device__ __forceinline__ void copy(void *to, const void *from, u64 bytes, Scope scope) {
    u8 *out = static_cast<u8 *>(to);
    const u8 *in = static_cast<const u8 *>(from);
    const u64 index = scope.index(), count = scope.count();
    u64 head = (0 - (u64)out) & 15;
    const u32 shift = ((u64)in + head) & 3;
    // The first 16 bytes are spliced from words that must not begin before the source.
    if (head < shift) head += 16;
    // What the last ones read beyond themselves must be part of the source as well.
    const u64 beyond = shift == 0 ? 0 : 4 - shift;
    if (bytes < head + 16 + beyond) {
        for (u64 i = index; i < bytes; i += count) out[i] = in[i];
        return;
    }
    const u64 pieces = (bytes - head - beyond) / 16, tail = head + pieces * 16;
    for (u64 i = index; i < head; i += count) out[i] = in[i];
    word16 *words = reinterpret_cast<word16 *>(out + head);
    const u8 *source = in + head;
    u64 i = index;
    if (((u64)source & 15) == 0) {
        const word16 *aligned = reinterpret_cast<const word16 *>(source);
        // Four loads under way before the first store: a store to a peer takes longer than its own load.
        for (; i + 3 * count < pieces; i += 4 * count) {
            const word16 a = aligned[i], b = aligned[i + count], c = aligned[i + 2 * count], d = aligned[i + 3 * count];
            words[i] = a;
            words[i + count] = b;
            words[i + 2 * count] = c;
            words[i + 3 * count] = d;
        }
        for (; i < pieces; i += count) words[i] = aligned[i];
    } else {
        for (; i < pieces; i += count) words[i] = load_shifted(source + i * 16, shift);
    }
    for (u64 rest = tail + index; rest < bytes; rest += count) out[rest] = in[rest];
}

// ---- put, get and signals -------------------------------------------------------------------------------------------

__device__ __forceinline__ void raise(u64 *word, u64 value, signal_op_t op) {
    if (op == SIGNAL_SET) store_relaxed(word, value);
    else add_relaxed(word, value);
}

// The ways that are not stores, called by one thread. Out of line, and with the address of the copy of the context that lies
// in device memory: a reference to the caller's own would keep that in memory, also where peers are mapped. The ring is
// passed, because it is a constant of the kernel: where there is one, every peer that is not mapped is reached through it,
// and neither the copy nor the table has to be looked at first, which would take as long as the rest.
__device__ __forceinline__ const context_t &at(u64 copy) { return *reinterpret_cast<const context_t *>(copy); }
__device__ __forceinline__ proxy::ring_t *ring_at(u64 ring) { return reinterpret_cast<proxy::ring_t *>(ring); }

inline __device__ __noinline__ bool post_put(u64 copy, u64 ring, u64 offset, const void *source, u64 bytes, u32 peer) {
    const context_t &context = at(copy);
    if (ring != 0) return proxy::put(context, ring_at(ring), offset, source, bytes, peer);
    const peer_t to = peer_of(context, peer);
    return to.way == WAY_MLX5 ? mlx5::put(context, to, offset, source, bytes, peer)
                              : fail(context, ERROR_NO_WAY, peer, offset, bytes, 0);
}

inline __device__ __noinline__ bool post_put_signal(u64 copy, u64 ring, u64 offset, const void *source, u64 bytes,
                                                    u64 word, u64 value, signal_op_t op, u32 peer) {
    const context_t &context = at(copy);
    if (ring != 0) return proxy::put_signal(context, ring_at(ring), offset, source, bytes, word, value, op, peer);
    const peer_t to = peer_of(context, peer);
    return to.way == WAY_MLX5 ? mlx5::put_signal(context, to, offset, source, bytes, word, value, op, peer)
                              : fail(context, ERROR_NO_WAY, peer, offset, bytes, 0);
}

inline __device__ __noinline__ bool post_signal(u64 copy, u64 ring, u64 word, u64 value, signal_op_t op, u32 peer) {
    const context_t &context = at(copy);
    if (ring != 0) return proxy::signal(context, ring_at(ring), word, value, op, peer);
    const peer_t to = peer_of(context, peer);
    return to.way == WAY_MLX5 ? mlx5::signal(context, to, word, value, op, peer)
                              : fail(context, ERROR_NO_WAY, peer, word, 8, 0);
}

inline __device__ __noinline__ bool post_get(u64 copy, u64 ring, void *destination, u64 offset, u64 bytes, u32 peer) {
    const context_t &context = at(copy);
    return ring != 0 ? proxy::get(context, ring_at(ring), destination, offset, bytes, peer)
                     : fail(context, ERROR_NO_WAY, peer, offset, bytes, 0);
}

inline __device__ __noinline__ bool post_quiet(u64 copy, u64 ring) {
    const context_t &context = at(copy);
    if (ring != 0) return proxy::quiet(context, ring_at(ring));
    bool done = true;
    for (u32 peer = 0; done && peer < context.size; ++peer) {
        const peer_t to = peer_of(context, peer);
        if (to.way == WAY_MLX5) done = mlx5::quiet(context, to, peer);
    }
    return done;
}

// Bytes from `source` to where `destination` is in the heap of `peer`. The source may be changed after `quiet`; where the
// peer is mapped, as soon as the members of the scope have met.
template <class Scope = thread_scope>
__device__ inline bool put(const context_t &context, void *destination, const void *source, u64 bytes, u32 peer,
                           Scope scope = {}) {
    u64 offset;
    if (!place(context, destination, bytes, peer, offset)) return false;
    const u64 base = base_of(context, peer);
    if (base != 0) {
        copy(reinterpret_cast<void *>(base + offset), source, bytes, scope);
        return true;
    }
    scope.sync();
    return scope.all(scope.index() != 0 || post_put(context.copy, context.ring, offset, source, bytes, peer));
}

// A put, then a signal that covers it and every put to this peer before it.
template <class Scope = thread_scope>
__device__ inline bool put_signal(const context_t &context, void *destination, const void *source, u64 bytes,
                                  u64 *signal, u64 value, signal_op_t op, u32 peer, Scope scope = {}) {
    u64 offset, word;
    if (!place(context, destination, bytes, peer, offset)) return false;
    if (!place(context, signal, 8, peer, word, SIGNAL_ALIGNMENT)) return false;
    const u64 base = base_of(context, peer);
    if (base != 0) {
        copy(reinterpret_cast<void *>(base + offset), source, bytes, scope);
        // The barrier gathers the stores of all members, the one fence puts them before the signal.
        scope.sync();
        if (scope.index() == 0) {
            fence_system();
            raise(reinterpret_cast<u64 *>(base + word), value, op);
        }
        return true;
    }
    scope.sync();
    return scope.all(scope.index() != 0 || post_put_signal(context.copy, context.ring, offset, source, bytes, word, value, op, peer));
}

// Raises a signal of `peer` without any fence: it covers nothing. One thread.
__device__ inline bool signal_relaxed(const context_t &context, u64 *signal, u64 value, signal_op_t op, u32 peer) {
    u64 word;
    if (!place(context, signal, 8, peer, word, SIGNAL_ALIGNMENT)) return false;
    const u64 base = base_of(context, peer);
    if (base != 0) {
        raise(reinterpret_cast<u64 *>(base + word), value, op);
        return true;
    }
    return post_signal(context.copy, context.ring, word, value, op, peer);
}

// Raises a signal of `peer` that covers every put to it before. One thread.
__device__ inline bool signal(const context_t &context, u64 *signal, u64 value, signal_op_t op, u32 peer) {
    fence_system();
    return signal_relaxed(context, signal, value, op, peer);
}

// Bytes from where `source` is in the heap of a peer; complete when it returns. Through the proxy the destination must be in
// the heap; mlx5 does not get.
template <class Scope = thread_scope>
__device__ inline bool get(const context_t &context, void *destination, const void *source, u64 bytes, u32 peer,
                           Scope scope = {}) {
    u64 offset;
    if (!place(context, source, bytes, peer, offset)) return false;
    const u64 base = base_of(context, peer);
    if (base == 0) {
        scope.sync();
        return scope.all(scope.index() != 0 || post_get(context.copy, context.ring, destination, offset, bytes, peer));
    }
    copy(destination, reinterpret_cast<const void *>(base + offset), bytes, scope);
    scope.sync();
    return true;
}

// What this thread does after it becomes visible, at each peer, after what happened before it.
__device__ inline void fence(const context_t &) { fence_system(); }

// Returns when everything that happened before it is visible at its targets.
template <class Scope = thread_scope>
__device__ inline bool quiet(const context_t &context, Scope scope = {}) {
    scope.sync();
    bool done = true;
    if (scope.index() == 0) {
        fence_system();
        done = post_quiet(context.copy, context.ring);
    }
    return scope.all(done);
}

enum compare_t : u32 {
    EQUAL = 0,
    NOT_EQUAL = 1,
    AT_LEAST = 2,
};

__device__ __forceinline__ bool holds(u64 found, compare_t compare, u64 value) {
    return compare == AT_LEAST ? found >= value : compare == EQUAL ? found == value : found != value;
}

// Waits until a signal word of this rank's own heap compares as asked.
template <class Scope = thread_scope>
__device__ inline bool wait_signal(const context_t &context, const u64 *signal, compare_t compare, u64 value,
                                   Scope scope = {}) {
    bool seen = aligned(context, signal, SIGNAL_ALIGNMENT, ~0u);
    if (seen && scope.index() == 0) {
        patience_t patience;
        u64 found = 0;
        bool met = false;
        do {
#pragma unroll
            for (u32 look = 0; look < LOOKS && !met; ++look) met = holds(found = load_relaxed(signal), compare, value);
        } while (!met && (seen = patience.lasts<LOOKS>(context, ERROR_TIMEOUT, ~0u, (u64)signal - context.heap, value, found)));
        acquire(signal);
    }
    return scope.all(seen);
}

// ---- small messages -------------------------------------------------------------------------------------------------

// Eight bytes and the mark that says which message they are of, written by one 16-byte store that nobody sees half of. A slot for messages of up to `capacity` bytes is small_packets(capacity) packets in
// the heap, zero at first; messages into one slot carry ascending marks, from 1 on. The receiver must have taken a message
// before the next one is sent into its slot: two slots in turn do for a ping-pong or an exchange.
struct alignas(16) packet_t {
    u64 data;
    u64 mark;
};

constexpr __host__ __device__ u64 small_packets(u64 capacity) { return (capacity + 7) / 8 + 1; }

__device__ __forceinline__ void store_packet(packet_t *to, u64 data, u64 mark) { store_whole(&to->data, data, mark); }

__device__ __forceinline__ packet_t load_packet(const packet_t *from) {
    packet_t packet;
    load_whole(&from->data, packet.data, packet.mark);
    return packet;
}

// Waits for a packet of this mark.
__device__ __forceinline__ bool wait_packet(const context_t &context, const packet_t *from, u64 mark, u32 peer, u64 &data) {
    patience_t patience;
    packet_t packet;
    bool lasts = true;
    do {
        packet = load_packet(from);
#pragma unroll
        for (u32 look = 1; look < LOOKS && packet.mark != mark; ++look) packet = load_packet(from);
    } while (packet.mark != mark &&
             (lasts = patience.lasts<LOOKS>(context, ERROR_TIMEOUT, peer, (u64)from - context.heap, mark, packet.mark)));
    data = packet.data;
    return lasts;
}

__device__ __forceinline__ u64 load_small(const void *source, u64 at, u64 bytes) {
    const u8 *from = static_cast<const u8 *>(source) + at;
    if (((u64)from & 7) == 0 && at + 8 <= bytes) return *reinterpret_cast<const u64 *>(from);
    u64 data = 0;
    for (u32 i = 0; i < 8 && at + i < bytes; ++i) data |= (u64)from[i] << (8 * i);
    return data;
}

__device__ __forceinline__ void store_small(void *destination, u64 at, u64 bytes, u64 data) {
    u8 *to = static_cast<u8 *>(destination) + at;
    if (((u64)to & 7) == 0 && at + 8 <= bytes) {
        *reinterpret_cast<u64 *>(to) = data;
        return;
    }
    for (u32 i = 0; i < 8 && at + i < bytes; ++i) to[i] = (u8)(data >> (8 * i));
}

// A message of at most a few KiB into a slot of `peer`, without any fence. To peers that are not mapped it goes as a put
// with a signal in the last packet of the slot.
template <class Scope = thread_scope>
__device__ inline bool send_small(const context_t &context, packet_t *slot, const void *source, u64 bytes, u64 capacity,
                                  u64 mark, u32 peer, Scope scope = {}) {
    u64 offset;
    if (!place(context, slot, small_packets(capacity) * sizeof(packet_t), peer, offset, SLOT_ALIGNMENT)) return false;
    if (bytes > capacity) return fail(context, ERROR_RANGE, peer, offset, bytes, capacity);
    const u64 base = base_of(context, peer);
    if (base == 0) {
        u64 *signal = &slot[small_packets(capacity) - 1].mark;
        return put_signal(context, slot, source, bytes, signal, mark, SIGNAL_SET, peer, scope);
    }
    packet_t *packets = reinterpret_cast<packet_t *>(base + offset);
    for (u64 i = scope.index(); i * 8 < bytes; i += scope.count()) {
        store_packet(packets + i, load_small(source, i * 8, bytes), mark);
    }
    return true;
}

// Takes the message of this mark out of one's own slot; `peer` is its sender.
template <class Scope = thread_scope>
__device__ inline bool receive_small(const context_t &context, void *destination, const packet_t *slot, u64 bytes,
                                     u64 capacity, u64 mark, u32 peer, Scope scope = {}) {
    if (peer >= context.size) return fail(context, ERROR_RANK, ~0u, peer, context.size, 0);
    if (!aligned(context, slot, SLOT_ALIGNMENT, peer)) return false;
    bool seen = true;
    if (base_of(context, peer) == 0) {
        if (!wait_signal(context, &slot[small_packets(capacity) - 1].mark, AT_LEAST, mark, scope)) return false;
        copy(destination, slot, bytes, scope);
        return scope.all(true);
    }
    for (u64 i = scope.index(); seen && i * 8 < bytes; i += scope.count()) {
        u64 data = 0;
        seen = wait_packet(context, slot + i, mark, peer, data);
        if (seen) store_small(destination, i * 8, bytes, data);
    }
    return scope.all(seen);
}

}  // namespace spmd
