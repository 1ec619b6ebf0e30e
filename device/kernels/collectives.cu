// Collectives among GPUs that map each other, for one type of elements: SPMD_TYPE, which SPMD_NAME names in the kernels.
//
// A collective is one kernel on every rank. It keeps its own count of operations in the memory of its GPU, so that it can
// be captured into a graph and replayed. All ranks get the same bits: values are combined in the order of ranks, each by
// one rank, or by all of them alike.
#include "spmd_device.cuh"

namespace spmd {

// ---- operators ------------------------------------------------------------------------------------------------------

enum operator_t : u32 {
    OPERATOR_SUM = 0,
    OPERATOR_PRODUCT = 1,
    OPERATOR_MIN = 2,
    OPERATOR_MAX = 3,
};

struct f16_t {
    u16 bits;
};
struct bf16_t {
    u16 bits;
};

template <class T>
__device__ __forceinline__ T lesser(T a, T b) {
    return b < a ? b : a;
}
template <class T>
__device__ __forceinline__ T greater(T a, T b) {
    return a < b ? b : a;
}

// minimum and maximum of IEEE 754-2019: any NaN gives the canonical one, and -0 is less than +0.
template <>
__device__ __forceinline__ float lesser(float a, float b) {
    return a != a || b != b ? __int_as_float(0x7fc00000) : a == b ? __int_as_float(__float_as_int(a) | __float_as_int(b))
           : a < b                                              ? a
                                                                : b;
}
template <>
__device__ __forceinline__ float greater(float a, float b) {
    return a != a || b != b ? __int_as_float(0x7fc00000) : a == b ? __int_as_float(__float_as_int(a) & __float_as_int(b))
           : a < b                                              ? b
                                                                : a;
}
template <>
__device__ __forceinline__ double lesser(double a, double b) {
    return a != a || b != b ? __longlong_as_double(0x7ff8000000000000ll)
           : a == b         ? __longlong_as_double(__double_as_longlong(a) | __double_as_longlong(b))
           : a < b          ? a
                            : b;
}
template <>
__device__ __forceinline__ double greater(double a, double b) {
    return a != a || b != b ? __longlong_as_double(0x7ff8000000000000ll)
           : a == b         ? __longlong_as_double(__double_as_longlong(a) & __double_as_longlong(b))
           : a < b          ? b
                            : a;
}

template <class T>
__device__ __forceinline__ T combine(T a, T b, operator_t op) {
    switch (op) {
        case OPERATOR_SUM: return a + b;
        case OPERATOR_PRODUCT: return a * b;
        case OPERATOR_MIN: return lesser(a, b);
        default: return greater(a, b);
    }
}

// Combined as 32-bit floats and rounded after each operation.
template <>
__device__ __forceinline__ f16_t combine(f16_t a, f16_t b, operator_t op) {
    float x, y;
    f16_t out;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(a.bits));
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(b.bits));
    const float both = combine(x, y, op);
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(out.bits) : "f"(both));
    return out;
}
template <>
__device__ __forceinline__ bf16_t combine(bf16_t a, bf16_t b, operator_t op) {
    bf16_t out;
    const float both = combine(__int_as_float((u32)a.bits << 16), __int_as_float((u32)b.bits << 16), op);
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(out.bits) : "f"(both));
    return out;
}

// A machine word of 8 or 16 bytes as elements.
template <class T, class Word>
__device__ __forceinline__ Word combine_words(Word a, Word b, operator_t op) {
    constexpr u32 N = sizeof(Word) / sizeof(T);
    union {
        Word word;
        T element[N];
    } x, y;
    x.word = a;
    y.word = b;
#pragma unroll
    for (u32 i = 0; i < N; ++i) x.element[i] = combine(x.element[i], y.element[i], op);
    return x.word;
}

// ---- collectives ----------------------------------------------------------------------------------------------------

constexpr u32 NOBODY = ~0u;

// In the memory of this GPU; `flags` and `packets` are addresses in its heap.
struct collective_t {
    u64 operations;  //  0 collectives done
    u64 blocks;      //  8 blocks of the current one that are done
    u64 flags;       // 16 u64[blocks][size]: who has come how far
    u64 packets;     // 24 packet_t[2][size][capacity]: what came from whom, for odd and even operations
    u64 capacity;    // 32 packets
    u64 unused[3];   // 40
};
static_assert(sizeof(collective_t) == 64, "collective_t is 64 bytes in device/src/collectives/mod.rs");

// All blocks call it at their end; true in one thread, after every block has come.
__device__ __forceinline__ bool last_of_all(collective_t *state) {
    __syncthreads();
    if (threadIdx.x != 0) return false;
    if (gridDim.x == 1) return true;
    __threadfence();
    if (atomicAdd(&state->blocks, 1ull) != gridDim.x - 1) return false;
    state->blocks = 0;
    __threadfence();
    return true;
}

// Every rank sends its words to every rank (or to `root` alone), data and mark in one store, and combines what arrives: one
// trip over the link and no fence. Memory for packets alternates: a rank that sends operation n + 2 has received
// something of operation n + 1 from everybody, who has thus finished operation n. For `root` alone, a packet back says so.
template <class T>
__device__ __forceinline__ void one_shot(const context_t &context, void *out, const void *in, u64 bytes, operator_t op,
                                       u32 root) {
    constexpr u32 N = 4;
    auto *state = reinterpret_cast<collective_t *>(context.collective);
    const u64 mark = *(volatile u64 *)&state->operations + 1, words = (bytes + 7) / 8;
    const u64 stride = (u64)gridDim.x * blockDim.x, first = blockIdx.x * (u64)blockDim.x + threadIdx.x;
    const u32 me = context.rank, size = context.size;
    packet_t *slots = reinterpret_cast<packet_t *>(state->packets) + (mark & 1) * size * state->capacity;
    const bool whole = (((u64)in | (u64)out | bytes) & 7) == 0, receives = root == NOBODY || root == me;
    bool alive = true;
    for (u64 i = first; i < words; i += N * stride) {
        u64 data[N];
#pragma unroll
        for (u32 k = 0; k < N; ++k) {
            const u64 at = i + k * stride;
            if (at < words) data[k] = whole ? static_cast<const u64 *>(in)[at] : load_small(in, at * 8, bytes);
        }
        for (u32 step = 1; step < size; ++step) {
            const u32 peer = me + step < size ? me + step : me + step - size;
            if (root != NOBODY && root != peer) continue;
            packet_t *to = mapped(context, slots + me * state->capacity, peer);
#pragma unroll
            for (u32 k = 0; k < N; ++k) {
                if (i + k * stride < words) store_packet(to + i + k * stride, data[k], mark);
            }
        }
    }
    for (u64 i = first; receives && alive && i < words; i += N * stride) {
        u64 result[N];
        for (u32 rank = 0; rank < size; ++rank) {
            u64 data[N];
            if (rank == me) {
#pragma unroll
                for (u32 k = 0; k < N; ++k) {
                    const u64 at = i + k * stride;
                    if (at < words) data[k] = whole ? static_cast<const u64 *>(in)[at] : load_small(in, at * 8, bytes);
                }
            } else {
                const packet_t *from = slots + rank * state->capacity;
                patience_t patience;
                bool complete;
                do {
                    complete = true;
                    u64 found = mark;
#pragma unroll
                    for (u32 k = 0; k < N; ++k) {
                        if (i + k * stride >= words) continue;
                        const packet_t packet = load_packet(from + i + k * stride);
                        data[k] = packet.data;
                        if (packet.mark != mark) {
                            complete = false;
                            found = packet.mark;
                        }
                    }
                    if (!complete) {
                        alive = patience.lasts(context, ERROR_TIMEOUT, rank, (u64)(from + i) - context.heap, mark, found);
                    }
                } while (!complete && alive);
            }
#pragma unroll
            for (u32 k = 0; k < N; ++k) {
                if (i + k * stride < words) {
                    result[k] = rank == 0 ? data[k] : combine_words<T>(result[k], data[k], op);
                }
            }
        }
        if (!alive) break;
#pragma unroll
        for (u32 k = 0; k < N; ++k) {
            const u64 at = i + k * stride;
            if (at >= words) continue;
            if (whole) static_cast<u64 *>(out)[at] = result[k];
            else store_small(out, at * 8, bytes, result[k]);
        }
    }
    if (!last_of_all(state)) return;
    if (root == me) {
        for (u32 peer = 0; peer < size; ++peer) {
            if (peer != me) store_packet(mapped(context, slots + me * state->capacity, peer), 0, mark);
        }
    } else if (root != NOBODY) {
        u64 nothing;
        wait_packet(context, slots + root * state->capacity, mark, root, nothing);
    }
    state->operations = mark;
}

// Blocks of the same number on all ranks wait for each other. What happened before is visible to all of them after it.
__device__ __forceinline__ bool meet(const context_t &context, u64 *flags, u64 value) {
    __syncthreads();
    bool alive = true;
    u64 *row = flags + (u64)blockIdx.x * context.size;
    for (u32 peer = threadIdx.x; peer < context.size; peer += blockDim.x) {
        if (peer == context.rank) continue;
        signal(context, row + context.rank, value, SIGNAL_SET, peer);
        alive = wait_signal(context, row + peer, AT_LEAST, value) && alive;
    }
    return __syncthreads_and(alive);
}

// Each rank combines its share of the buffers of all ranks, reading them where they are, and writes the result to all of
// them (or to `root` alone): reduce-scatter and all-gather in one pass. `buffer` is the same place in every heap.
template <class T>
__device__ __forceinline__ void two_shot(const context_t &context, T *buffer, u64 bytes, operator_t op, u32 root) {
    constexpr u32 N = 4;
    auto *state = reinterpret_cast<collective_t *>(context.collective);
    const u64 operation = *(volatile u64 *)&state->operations + 1;
    u64 *flags = reinterpret_cast<u64 *>(state->flags);
    const u32 me = context.rank, size = context.size;
    if (meet(context, flags, 2 * operation - 1)) {
        const u64 elements = bytes / sizeof(T);
        const u64 before = (0 - (u64)buffer & 15) / sizeof(T), head = before < elements ? before : elements;
        const u64 units = (elements - head) * sizeof(T) / 16, share = (units + size - 1) / size;
        const u64 begin = share * me < units ? share * me : units, end = begin + share < units ? begin + share : units;
        const u64 stride = (u64)gridDim.x * blockDim.x;
        for (u64 i = begin + blockIdx.x * (u64)blockDim.x + threadIdx.x; i < end; i += N * stride) {
            word16 result[N];
            for (u32 rank = 0; rank < size; ++rank) {
                const word16 *from = reinterpret_cast<const word16 *>(mapped(context, buffer, rank) + head);
                word16 data[N];
#pragma unroll
                for (u32 k = 0; k < N; ++k) {
                    if (i + k * stride < end) data[k] = from[i + k * stride];
                }
#pragma unroll
                for (u32 k = 0; k < N; ++k) {
                    if (i + k * stride < end) {
                        result[k] = rank == 0 ? data[k] : combine_words<T>(result[k], data[k], op);
                    }
                }
            }
            for (u32 step = 0; step < size; ++step) {
                const u32 peer = me + step < size ? me + step : me + step - size;
                if (root != NOBODY && root != peer) continue;
                word16 *to = reinterpret_cast<word16 *>(mapped(context, buffer, peer) + head);
#pragma unroll
                for (u32 k = 0; k < N; ++k) {
                    if (i + k * stride < end) to[i + k * stride] = result[k];
                }
            }
        }
        // What does not fill 16 bytes, at both ends.
        const u64 done = head + units * (16 / sizeof(T)), rest = head + elements - done;
        if (me == 0 && blockIdx.x == 0) {
            for (u64 i = threadIdx.x; i < rest; i += blockDim.x) {
                const u64 at = i < head ? i : done + i - head;
                T result = mapped(context, buffer, 0)[at];
                for (u32 rank = 1; rank < size; ++rank) result = combine(result, mapped(context, buffer, rank)[at], op);
                for (u32 peer = 0; peer < size; ++peer) {
                    if (root == NOBODY || root == peer) mapped(context, buffer, peer)[at] = result;
                }
            }
        }
        meet(context, flags, 2 * operation);
    }
    if (last_of_all(state)) state->operations = operation;
}

#define SPMD_JOIN(a, b) a##b
#define SPMD_KERNEL(a, b) SPMD_JOIN(a, b)

extern "C" __global__ void __launch_bounds__(512)
    SPMD_KERNEL(spmd_one_shot_, SPMD_NAME)(context_t context, void *out, const void *in, u64 bytes, u32 op, u32 root) {
    one_shot<SPMD_TYPE>(context, out, in, bytes, (operator_t)op, root);
}

extern "C" __global__ void __launch_bounds__(512)
    SPMD_KERNEL(spmd_two_shot_, SPMD_NAME)(context_t context, SPMD_TYPE *buffer, u64 bytes, u32 op, u32 root) {
    two_shot<SPMD_TYPE>(context, buffer, bytes, (operator_t)op, root);
}

}  // namespace spmd
