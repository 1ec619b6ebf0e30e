// What gpu_bench.rs measures on two GPUs: our calls, and floors of the same machine beside them. Every argument after the
// context is a 64-bit number or a pointer. Rank 0 begins each exchange, rank 1 answers.
#include "spmd_device.cuh"

using namespace spmd;

// ---- floors: the least code that could do it ------------------------------------------------------------------------

// Ends a wait of the floors when the host says so, as it does when the peer is lost: for ever would be too long. Counted once
// in several looks; still floor_signal is 0.03 us slower for it.
__device__ __forceinline__ bool is_over(const context_t &context, u32 &polls) {
    if (__builtin_expect((++polls & 0x1fff) != 0, 1)) return false;
    return reinterpret_cast<const volatile error_record_t *>(context.error)->stop != STOP_NOT;
}

__device__ __forceinline__ bool comes(const u64 *word, u64 value) {
    bool met = false;
#pragma unroll
    for (u32 look = 0; look < LOOKS && !met; ++look) met = load_relaxed(word) >= value;
    return met;
}

__device__ __forceinline__ bool comes(const packet_t *packet, u64 mark) {
    bool met = false;
#pragma unroll
    for (u32 look = 0; look < LOOKS && !met; ++look) met = load_packet(packet).mark == mark;
    return met;
}

// One word there and back, no order.
extern "C" __global__ void floor_signal(context_t context, u64 *word, u64 base, u64 rounds) {
    u64 *there = mapped(context, word, 1 - context.rank);
    u32 polls = 0;
    for (u64 i = base + 1; i <= base + rounds; ++i) {
        if (context.rank == 0) store_relaxed(there, i);
        while (!comes(word, i)) {
            if (is_over(context, polls)) return;
        }
        if (context.rank == 1) store_relaxed(there, i);
    }
}

// The same with the fence that an acquiring wait needs.
extern "C" __global__ void floor_acquire(context_t context, u64 *word, u64 base, u64 rounds) {
    u64 *there = mapped(context, word, 1 - context.rank);
    u32 polls = 0;
    for (u64 i = base + 1; i <= base + rounds; ++i) {
        if (context.rank == 0) store_relaxed(there, i);
        while (!comes(word, i)) {
            if (is_over(context, polls)) return;
        }
        acquire(word);
        if (context.rank == 1) store_relaxed(there, i);
    }
}

// A packet for each thread there and back, data and mark in one store.
extern "C" __global__ void floor_small(context_t context, packet_t *slots, u64 base, u64 rounds) {
    packet_t *mine = slots + threadIdx.x, *there = mapped(context, mine, 1 - context.rank);
    u32 polls = 0;
    for (u64 i = base + 1; i <= base + rounds; ++i) {
        if (context.rank == 0) store_packet(there, i, i);
        while (!comes(mine, i)) {
            if (is_over(context, polls)) return;
        }
        if (context.rank == 1) store_packet(there, i, i);
        __syncthreads();
    }
}

// A word of data, a fence and a flag by one thread: what any put to any address with a signal costs at least.
extern "C" __global__ void floor_put_signal(context_t context, u64 *word, u64 *data, u64 base, u64 rounds) {
    u64 *there = mapped(context, word, 1 - context.rank), *to = mapped(context, data, 1 - context.rank);
    u32 polls = 0;
    for (u64 i = base + 1; i <= base + rounds; ++i) {
        if (context.rank == 1) {
            while (!comes(word, i)) {
                if (is_over(context, polls)) return;
            }
        }
        store_relaxed(to, i);
        fence_system();
        store_relaxed(there, i);
        if (context.rank == 0) {
            while (!comes(word, i)) {
                if (is_over(context, polls)) return;
            }
        }
    }
}

// A word to a thread of the host and its answer back: what a proxy's way from kernel to kernel costs at least.
extern "C" __global__ void floor_host(context_t, u64 *question, u64 *answer, u64 base, u64 rounds) {
    for (u64 i = base + 1; i <= base + rounds; ++i) {
        store_relaxed(question, i);
        while (load_relaxed(answer) < i) {
        }
    }
}

// ---- ours -----------------------------------------------------------------------------------------------------------

extern "C" __global__ void exchange_signals(context_t context, u64 *word, u64 base, u64 rounds, u64 strong) {
    const u32 peer = 1 - context.rank;
    for (u64 i = base + 1; i <= base + rounds; ++i) {
        if (context.rank == 1 && !wait_signal(context, word, AT_LEAST, i)) return;
        if (strong != 0) signal(context, word, i, SIGNAL_SET, peer);
        else signal_relaxed(context, word, i, SIGNAL_SET, peer);
        if (context.rank == 0 && !wait_signal(context, word, AT_LEAST, i)) return;
    }
}

extern "C" __global__ void __launch_bounds__(1024)
exchange_puts(context_t context, u8 *data, u8 *source, u64 bytes, u64 *word, u64 base, u64 rounds) {
    const u32 peer = 1 - context.rank;
    for (u64 i = base + 1; i <= base + rounds; ++i) {
        if (context.rank == 1 && !wait_signal(context, word, AT_LEAST, i, spmd::block)) return;
        put_signal(context, data, source, bytes, word, i, SIGNAL_SET, peer, spmd::block);
        if (context.rank == 0 && !wait_signal(context, word, AT_LEAST, i, spmd::block)) return;
    }
}

extern "C" __global__ void __launch_bounds__(1024)
exchange_small(context_t context, packet_t *slots, u8 *source, u8 *result, u64 bytes, u64 base,
                                          u64 rounds) {
    constexpr u64 CAPACITY = 8192;
    const u32 peer = 1 - context.rank;
    for (u64 i = base + 1; i <= base + rounds; ++i) {
        packet_t *slot = slots + (i & 1) * small_packets(CAPACITY);
        if (context.rank == 1 && !receive_small(context, result, slot, bytes, CAPACITY, i, peer, spmd::block)) return;
        send_small(context, slot, source, bytes, CAPACITY, i, peer, spmd::block);
        if (context.rank == 0 && !receive_small(context, result, slot, bytes, CAPACITY, i, peer, spmd::block)) return;
    }
}

// Rank 0 puts `bytes` bytes, the blocks pieces of 1 MiB in turn; less where that would leave some idle.
extern "C" __global__ void __launch_bounds__(1024) stream_puts(context_t context, u8 *data, u8 *source, u64 bytes) {
    const u64 piece = bytes / gridDim.x < 1 << 20 ? (bytes / gridDim.x + 127) / 128 * 128 : 1 << 20;
    for (u64 at = blockIdx.x * piece; at < bytes; at += gridDim.x * piece) {
        put(context, data + at, source + at, piece < bytes - at ? piece : bytes - at, 1 - context.rank, spmd::block);
    }
}

// The first thread of every block of rank 0 raises signals as fast as it can; the proxy's message rate.
extern "C" __global__ void __launch_bounds__(1024) flood(context_t context, u64 *word, u64 each) {
    if (context.rank != 0 || threadIdx.x != 0) return;
    for (u64 i = 0; i < each; ++i) {
        if (!signal_relaxed(context, word, 1, SIGNAL_ADD, 1)) return;
    }
}
