// spmd_mlx5.cuh: the way over work-queue entries that the kernel itself writes and a doorbell that it rings. Knows the
// published formats of mlx5 (infiniband/mlx5dv.h of rdma-core), and nothing of how the host made the queue pair.
//
// Each function is called by ONE thread, under the rules of spmd_proxy.cuh. `peer.queue` is the address of the queue_t of
// that peer. Not run on hardware so far: run against the software NIC of device/src/nic.
//
// Posting. A thread takes blocks of 64 bytes of the send queue from a counter, waits while they are still in use, and fills
// them. One fence makes payload and entries visible to the NIC. Then the blocks are handed over in order: `ready` goes from
// where a thread's blocks begin to where they end, so that the NIC never meets a gap. Whoever sees that `rung` does not
// cover its blocks rings, under a lock, for everything that is ready: the doorbell record first, then the register. Nobody
// returns before a doorbell covers its blocks, so that none relies on others to come.
//
// Completions. The last entry of a call asks for one. The completion queue has as many places as the send queue has
// blocks, and blocks are used again only after their completion was taken, so that it cannot overrun. Whoever waits, for
// room or for quiet, takes completions, one thread at a time. An error completion ends every wait with ERROR_QUEUE.
//
// Order. A queue pair carries entries out in order, and the heap is registered without relaxed ordering: a signal covers
// every put to the same peer whose blocks came before it.
#pragma once
#include "spmd_types.cuh"
#include "spmd_memory.cuh"
#include "spmd_errors.cuh"

namespace spmd {
namespace mlx5 {

// The queue pair to one peer, in this device's memory.
struct queue_t {
    u64 blocks;           //   0 address of the send queue
    u64 block_count;      //   8 a power of two, at most 32768: the NIC counts blocks with 16 bits
    u64 send_record;      //  16 address of the send queue's doorbell record: u32
    u64 doorbell;         //  24 address of the doorbell register
    u64 completions;      //  32 address of the completion queue: entries of 64 bytes
    u64 completion_count; //  40 a power of two, at least block_count
    u64 consumer_record;  //  48 address of the completion queue's doorbell record: u32
    u64 local_base;       //  56 this rank's heap as the NIC knows it under `local_key`
    u64 remote_base;      //  64 the peer's heap as its NIC knows it under `remote_key`
    u64 result;           //  72 where atomic operations leave what was there: 8 bytes under `result_key`
    u32 number;           //  80 of the queue pair
    u32 local_key;        //  84
    u32 remote_key;       //  88
    u32 inline_bytes;     //  92 the most payload that travels within an entry: 28 or 92, or 8 for signals alone
    u32 result_key;       //  96
    u32 unused;           // 100
    u64 unused_3[3];      // 104
    // What threads of this device change.
    u64 reserved;         // 128 blocks that have been taken
    u64 ready;            // 136 blocks that are filled, without a gap
    u64 rung;             // 144 blocks that a doorbell covers
    u64 ring_lock;        // 152
    u64 completed;        // 160 blocks whose entries are done
    u64 taken;            // 168 completions that have been taken
    u64 poll_lock;        // 176
    u64 failed;           // 184 1 after an error completion, or once a thread has given up
    u64 unused_2[8];      // 192
};

static_assert(sizeof(queue_t) == 256, "queue_t is 256 bytes in device/src/mlx5/layout.rs");

// Segments of 16 bytes that entries are made of; numbers are big-endian.
struct control_t {
    u32 operation_index;  // index of the entry's first block << 8 | operation
    u32 number_segments;  // queue pair << 8 | segments of 16 bytes
    u8 signature;
    u8 stream[2];
    u8 flags;
    u32 immediate;
};

struct remote_t {
    u64 address;
    u32 key;
    u32 reserved;
};

struct data_t {
    u32 bytes;  // 0 would mean 2^31
    u32 key;
    u64 address;
};

struct atomic_t {
    u64 add;
    u64 compare;
};

struct completion_t {
    u8 unused[54];
    u8 vendor_syndrome;  // of an error completion, as is
    u8 syndrome;
    u8 operation_number[4];
    u16 index;  // of the first block of the entry that is done
    u8 signature;
    u8 operation_owner;  // operation << 4 | owner, which changes with every lap
};

constexpr u32 BLOCK_BYTES = 64;
constexpr u32 SEGMENT_BYTES = 16;
constexpr u32 OPERATION_WRITE = 0x08;
constexpr u32 OPERATION_FETCH_ADD = 0x12;
constexpr u32 FLAG_COMPLETE = 2 << 2;
constexpr u32 INLINE = 0x80000000u;
constexpr u32 COMPLETION_REQUESTER_ERROR = 13;
constexpr u32 COMPLETION_RESPONDER_ERROR = 14;
constexpr u32 COMPLETION_INVALID = 15;
// The most bytes of one RDMA write: larger puts are several.
constexpr u64 LARGEST_WRITE = 1ull << 30;

__device__ __forceinline__ u32 big_endian(u32 value) {
    return value << 24 | (value & 0xff00) << 8 | (value >> 8 & 0xff00) | value >> 24;
}

__device__ __forceinline__ u64 big_endian(u64 value) {
    return (u64)big_endian((u32)value) << 32 | big_endian((u32)(value >> 32));
}

// Two numbers that follow each other in memory, as one word.
__device__ __forceinline__ u64 pair(u32 first, u32 second) { return big_endian(first) | (u64)big_endian(second) << 32; }

// A segment of the entry that begins at block `base`; segments go over the end of the queue to its front.
__device__ __forceinline__ void segment(const queue_t *queue, u64 base, u32 index, u64 low, u64 high) {
    const u64 at = (base * BLOCK_BYTES + index * SEGMENT_BYTES) & (queue->block_count * BLOCK_BYTES - 1);
    store_pair_relaxed(reinterpret_cast<u64 *>(queue->blocks + at), low, high);
}

__device__ __forceinline__ void control(const queue_t *queue, u64 base, u32 operation, u32 segments, bool completes) {
    const u64 low = pair((u32)(base & 0xffff) << 8 | operation, queue->number << 8 | segments);
    // The flags are byte 11 of the segment.
    segment(queue, base, 0, low, completes ? (u64)FLAG_COMPLETE << 24 : 0);
}

__device__ __forceinline__ void remote(const queue_t *queue, u64 base, u64 offset) {
    segment(queue, base, 1, big_endian(queue->remote_base + offset), pair(queue->remote_key, 0));
}

__device__ __forceinline__ u32 inline_segments(u64 bytes) { return (u32)((4 + bytes + SEGMENT_BYTES - 1) / SEGMENT_BYTES); }

__device__ __forceinline__ u32 blocks_of(u32 segments) { return (segments * SEGMENT_BYTES + BLOCK_BYTES - 1) / BLOCK_BYTES; }

// ---- waiting --------------------------------------------------------------------------------------------------------

// The queue is finished: whoever waits for it ends. Always false.
__device__ inline bool give_up(const context_t &context, queue_t *queue, u32 peer, error_t code, u64 detail, u64 expected,
                               u64 found) {
    store_relaxed_device(&queue->failed, 1);
    return fail(context, code, peer, detail, expected, found);
}

// Takes the completions that have come, unless another thread is at it. False after an error completion.
__device__ inline bool poll(const context_t &context, queue_t *queue, u32 peer) {
    if (!try_lock_device(&queue->poll_lock)) return true;
    const u64 first = load_relaxed_device(&queue->taken);
    u64 taken = first, completed = load_relaxed_device(&queue->completed);
    bool good = true;
    for (;;) {
        const u64 at = queue->completions + (taken & (queue->completion_count - 1)) * sizeof(completion_t);
        // Bytes 60 to 63 of the entry: index, signature, operation and owner, which is written last.
        const u32 last = load_acquire_32(reinterpret_cast<const u32 *>(at + 60));
        const u32 operation = last >> 28, owner = last >> 24 & 1;
        const u32 lap = (taken & queue->completion_count) == 0 ? 0 : 1;
        if (operation == COMPLETION_INVALID || owner != lap) break;
        const u32 index = (last & 0xff) << 8 | (last >> 8 & 0xff);
        if (operation == COMPLETION_REQUESTER_ERROR || operation == COMPLETION_RESPONDER_ERROR) {
            const u32 error = load_relaxed_32(reinterpret_cast<const u32 *>(at + 52));
            good = give_up(context, queue, peer, ERROR_QUEUE, error >> 24, error >> 16 & 0xff, index);
            break;
        }
        // Not more than 2^16 blocks can be between.
        const u64 start = completed + ((index - completed) & 0xffff);
        const u64 control = queue->blocks + (start & (queue->block_count - 1)) * BLOCK_BYTES;
        const u32 segments = big_endian(load_relaxed_32(reinterpret_cast<const u32 *>(control + 4))) & 0x3f;
        completed = start + blocks_of(segments);
        ++taken;
    }
    if (taken != first) {
        store_relaxed_device(&queue->taken, taken);
        store_release_device(&queue->completed, completed);
        store_relaxed_32(reinterpret_cast<u32 *>(queue->consumer_record), big_endian((u32)(taken & 0xffffff)));
    }
    store_release_device(&queue->poll_lock, 0);
    return good;
}

// Waits until `completed` is at least `wanted`.
__device__ inline bool wait_completed(const context_t &context, queue_t *queue, u64 wanted, u32 peer) {
    patience_t patience;
    u64 found;
    while ((found = load_acquire_device(&queue->completed)) < wanted) {
        if (load_relaxed_device(&queue->failed) != 0) return fail(context, ERROR_QUEUE, peer, 0, wanted, found);
        if (!poll(context, queue, peer)) return false;
        if (!patience.lasts(context, ERROR_TIMEOUT, peer, queue->number, wanted, found)) {
            store_relaxed_device(&queue->failed, 1);
            return false;
        }
    }
    return true;
}

// ---- posting --------------------------------------------------------------------------------------------------------

// Takes `count` blocks.
__device__ inline bool reserve(const context_t &context, queue_t *queue, u64 count, u32 peer, u64 &base) {
    if (load_relaxed_device(&queue->failed) != 0) return fail(context, ERROR_QUEUE, peer, 0, 0, 0);
    base = add_relaxed_device(&queue->reserved, count);
    const u64 end = base + count;
    return end <= queue->block_count || wait_completed(context, queue, end - queue->block_count, peer);
}

// Hands blocks over to the NIC, after all before them.
__device__ inline bool publish(const context_t &context, queue_t *queue, u64 base, u64 count, u32 peer) {
    const u64 end = base + count;
    // Payload and entries of this thread: a fence of the thread that rings would not cover them.
    fence_system();
    patience_t patience;
    u64 found;
    while ((found = load_acquire_device(&queue->ready)) != base) {
        if (load_relaxed_device(&queue->failed) != 0) return fail(context, ERROR_QUEUE, peer, 0, base, found);
        if (!patience.lasts(context, ERROR_TIMEOUT, peer, queue->number, base, found)) {
            store_relaxed_device(&queue->failed, 1);
            return false;
        }
    }
    store_release_device(&queue->ready, end);
    while ((found = load_acquire_device(&queue->rung)) < end) {
        if (try_lock_device(&queue->ring_lock)) {
            const u64 all = load_acquire_device(&queue->ready);
            if (all > load_relaxed_device(&queue->rung)) {
                fence_system();
                store_relaxed_32(reinterpret_cast<u32 *>(queue->send_record), big_endian((u32)(all & 0xffff)));
                // The NIC reads the record when the register is written.
                fence_system();
                store_register(reinterpret_cast<u64 *>(queue->doorbell),
                               pair((u32)(all & 0xffff) << 8, queue->number << 8));
                store_release_device(&queue->rung, all);
            }
            store_release_device(&queue->ring_lock, 0);
        } else if (!patience.lasts(context, ERROR_TIMEOUT, peer, queue->number, end, found)) {
            store_relaxed_device(&queue->failed, 1);
            return false;
        }
    }
    return true;
}

// ---- entries --------------------------------------------------------------------------------------------------------

// An RDMA write of bytes of the heap, which the NIC reads: one block.
__device__ __forceinline__ void write_entry(const queue_t *queue, u64 base, u64 offset, u64 source, u32 bytes,
                                            bool completes) {
    control(queue, base, OPERATION_WRITE, 3, completes);
    remote(queue, base, offset);
    segment(queue, base, 2, pair(bytes, queue->local_key), big_endian(queue->local_base + source));
}

// An RDMA write that carries its bytes within itself; they may come from anywhere.
__device__ inline void inline_entry(const queue_t *queue, u64 base, u64 offset, const u8 *source, u32 bytes,
                                    bool completes) {
    const u32 segments = inline_segments(bytes);
    control(queue, base, OPERATION_WRITE, 2 + segments, completes);
    remote(queue, base, offset);
    u32 at = 0;
    for (u32 index = 0; index < segments; ++index) {
        u64 words[2] = {0, 0};
        u32 byte = 0;
        if (index == 0) {
            words[0] = big_endian(bytes | INLINE);
            byte = 4;
        }
        for (; byte < SEGMENT_BYTES && at < bytes; ++byte, ++at) words[byte / 8] |= (u64)source[at] << byte % 8 * 8;
        segment(queue, base, 2 + index, words[0], words[1]);
    }
}

// A signal: an atomic addition, or a write of 8 bytes. One block.
__device__ inline void signal_entry(const queue_t *queue, u64 base, u64 offset, u64 value, signal_op_t op) {
    if (op == SIGNAL_SET) {
        u8 bytes[8];
        for (u32 i = 0; i < 8; ++i) bytes[i] = (u8)(value >> i * 8);
        inline_entry(queue, base, offset, bytes, 8, true);
        return;
    }
    control(queue, base, OPERATION_FETCH_ADD, 4, true);
    remote(queue, base, offset);
    segment(queue, base, 2, big_endian(value), 0);
    segment(queue, base, 3, pair(8, queue->result_key), big_endian(queue->result));
}

// Entries for all bytes of a put but the last ones, which are left in `offset`, `source` and `bytes`.
__device__ inline bool put_front(const context_t &context, queue_t *queue, u64 &offset, const u8 *&source, u64 &bytes,
                                 u32 peer, u64 piece, bool is_inline) {
    while (bytes > piece) {
        const u32 blocks = is_inline ? blocks_of(2 + inline_segments(piece)) : 1;
        u64 base;
        if (!reserve(context, queue, blocks, peer, base)) return false;
        if (is_inline) inline_entry(queue, base, offset, source, (u32)piece, true);
        else write_entry(queue, base, offset, (u64)source - context.heap, (u32)piece, true);
        if (!publish(context, queue, base, blocks, peer)) return false;
        offset += piece;
        source += piece;
        bytes -= piece;
    }
    return true;
}

// A put, and a signal behind it where `op` is not 0.
__device__ inline bool post(const context_t &context, const peer_t &to, u64 offset, const void *from, u64 bytes,
                            u64 signal_offset, u64 value, u32 op, u32 peer) {
    auto *queue = reinterpret_cast<queue_t *>(to.queue);
    if (queue == nullptr) return fail(context, ERROR_NO_WAY, peer, offset, bytes, 0);
    if (op != 0 && (signal_offset & 7) != 0) return fail(context, ERROR_RANGE, peer, signal_offset, 8, context.heap_bytes);
    const u8 *source = static_cast<const u8 *>(from);
    const u64 at = (u64)source - context.heap;
    const bool is_in_heap = at <= context.heap_bytes && bytes <= context.heap_bytes - at;
    // The NIC reads only what is registered: the heap. Anything else travels within entries.
    const bool is_inline = bytes <= queue->inline_bytes || !is_in_heap;
    const u64 piece = is_inline ? queue->inline_bytes : LARGEST_WRITE;
    if (!put_front(context, queue, offset, source, bytes, peer, piece, is_inline)) return false;
    const u32 put_blocks = bytes == 0 ? 0 : is_inline ? blocks_of(2 + inline_segments(bytes)) : 1;
    const u32 count = put_blocks + (op != 0 ? 1 : 0);
    if (count == 0) return true;
    u64 base;
    if (!reserve(context, queue, count, peer, base)) return false;
    if (put_blocks != 0) {
        if (is_inline) inline_entry(queue, base, offset, source, (u32)bytes, op == 0);
        else write_entry(queue, base, offset, (u64)source - context.heap, (u32)bytes, op == 0);
    }
    if (op != 0) signal_entry(queue, base + put_blocks, signal_offset, value, (signal_op_t)op);
    return publish(context, queue, base, count, peer);
}

__device__ inline bool put(const context_t &context, const peer_t &to, u64 offset, const void *source, u64 bytes, u32 peer) {
    return post(context, to, offset, source, bytes, 0, 0, 0, peer);
}

__device__ inline bool put_signal(const context_t &context, const peer_t &to, u64 offset, const void *source, u64 bytes,
                                  u64 signal_offset, u64 value, signal_op_t op, u32 peer) {
    return post(context, to, offset, source, bytes, signal_offset, value, op, peer);
}

__device__ inline bool signal(const context_t &context, const peer_t &to, u64 signal_offset, u64 value, signal_op_t op,
                              u32 peer) {
    return post(context, to, 0, nullptr, 0, signal_offset, value, op, peer);
}

// Returns once the NIC has completed everything posted to this peer so far.
__device__ inline bool quiet(const context_t &context, const peer_t &to, u32 peer) {
    auto *queue = reinterpret_cast<queue_t *>(to.queue);
    if (queue == nullptr) return fail(context, ERROR_NO_WAY, peer, 0, 0, 0);
    return wait_completed(context, queue, load_acquire_device(&queue->ready), peer);
}

}  // namespace mlx5
}  // namespace spmd
