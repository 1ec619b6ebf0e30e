// Collectives among GPUs, for one type of elements: SPMD_TYPE, which SPMD_NAME names in the kernels. One-shot and two-shot
// are for ranks that all map each other, two-hop is for groups of such ranks (those of a host).
//
// A collective is one kernel on every rank. It keeps its own count of operations in the memory of its GPU, so that it can
// be captured into a graph and replayed. All ranks get the same bits: values are combined in the order of ranks, in two hops
// first within each group and then in the order of groups, each by one rank, or by several alike.
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
    return {f16_of_float(combine(float_of_f16(a.bits), float_of_f16(b.bits), op))};
}
template <>
__device__ __forceinline__ bf16_t combine(bf16_t a, bf16_t b, operator_t op) {
    return {bf16_of_float(combine(__int_as_float((u32)a.bits << 16), __int_as_float((u32)b.bits << 16), op))};
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
        const u64 before = ((0 - (u64)buffer) & 15) / sizeof(T), head = before < elements ? before : elements;
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

// ---- two hops -------------------------------------------------------------------------------------------------------

// Ranks are in groups; those of a group map each other (`near`), and a rank of one group reaches those of the others in
// another way (`far`). The first `shares` ranks of each group talk to the other groups, each about its share of the data.
struct hops_t {
    u32 group;   //  0 this rank's group
    u32 groups;  //  4
    u32 shares;  //  8 at most as many as the smallest group has ranks
    u32 blocks;  // 12 the most blocks of a kernel
    u64 piece;   // 16 the most bytes of a share in one step: a multiple of 16
    u64 ranks;   // 24 const u32 *[groups][shares]: who they are in `far`
    u64 steps;   // 32 u64 *[blocks]: the steps that each block has done, in memory of this device
    u64 near;    // 40 address in the heap of `near`: signals, then rows of pieces
    u64 far;     // 48 the same in the heap of `far`
};
static_assert(sizeof(hops_t) == 56, "hops_t is 56 bytes in device/src/collectives/hops.rs");

// Every block goes through its own part of the data in steps, for itself: nothing but the blocks of the same number on the
// other ranks takes part in that. `gather`: every rank puts its piece of each share into the memory of the rank that has this
// share, which combines them and puts the result to the ranks of the other groups that have it. `spread`: that rank
// combines what came from the groups and puts the result to all of its group. Many groups and much data: in `gather` each
// group gets its slice of the piece only, in `exchange` combines that and puts it to the other groups.
//
// A block gathers the next step before it goes on with one, so that something is always under way, and a row of pieces is
// used again four steps later. No acknowledgement is needed for that. With steps in two parts the order is
// gather(n), spread(n - 1): whoever gathers n + 4 has spread n + 2, so has what others put in their gather(n + 2), before which
// they had spread n. In three parts it is gather(n), exchange(n - 1), spread(n - 2): whoever gathers n + 4 has spread
// n + 1, so has what others put in their exchange(n + 1), before which they had exchanged n; whoever exchanges n + 4 has spread
// n + 2, so has what others put in their exchange(n + 2), before which they had spread n. Signals count the steps, so they keep
// their meaning from one operation to the next, and at the end of one nothing of it is under way; they are also raised where
// no data goes (`reduce`).
constexpr u32 ROWS = 4;

// Waits, all threads of the block, until all of `count` signals but one have come to a value.
__device__ __forceinline__ bool wait_for_all(const context_t &context, const u64 *signals, u32 count, u32 except, u64 value) {
    bool alive = true;
    for (u32 i = threadIdx.x; i < count; i += blockDim.x) {
        if (i != except) alive = wait_signal(context, signals + i, AT_LEAST, value) && alive;
    }
    return __syncthreads_and(alive);
}

template <class T>
struct two_hop_t {
    const context_t &near, &far;
    const hops_t &hops;
    u8 *buffer;
    u64 bytes, piece;
    operator_t op;
    u32 root_group, root_member;  // `reduce`: who gets the result; else NOBODY
    u64 slice;                    // bytes of a piece that a group combines; 0: every group combines all of them

    // The bytes of share `share` in step `step` of this block: where they begin, and how many.
    __device__ __forceinline__ u64 part(u64 step, u32 share, u64 &begin) const {
        begin = ((blockIdx.x + step * gridDim.x) * hops.shares + share) * piece;
        return begin >= bytes ? 0 : bytes - begin < piece ? bytes - begin : piece;
    }

    // Where pieces begin in memory with so many signals for each block.
    __device__ __forceinline__ u8 *pieces(u64 memory, u64 signals) const {
        return reinterpret_cast<u8 *>(memory) + (hops.blocks * signals * 8 + 15) / 16 * 16;
    }
    // Near memory: a signal from each rank that pieces have come and one for each share that it is done; then for every row and
    // block a piece from each rank, one for what has been combined of them, and one for the result of each share.
    __device__ __forceinline__ u64 *gathered() const {
        return reinterpret_cast<u64 *>(hops.near) + (u64)blockIdx.x * (near.size + hops.shares);
    }
    __device__ __forceinline__ u64 *spread_signals() const { return gathered() + near.size; }
    __device__ __forceinline__ u8 *near_piece(u64 row, u32 index) const {
        const u64 each = near.size + 1 + hops.shares;
        return pieces(hops.near, near.size + hops.shares) + ((row * hops.blocks + blockIdx.x) * each + index) * hops.piece;
    }
    // Far memory: a signal from each group that its piece has come, one that its slice has; then for every row and block the
    // piece that leaves and one from each group, or, in the place of these, a slice from each group and a piece of results.
    __device__ __forceinline__ u64 *exchanged() const {
        return reinterpret_cast<u64 *>(hops.far) + (u64)blockIdx.x * 2 * hops.groups;
    }
    __device__ __forceinline__ u64 *settled() const { return exchanged() + hops.groups; }
    __device__ __forceinline__ u8 *far_piece(u64 row, u32 index) const {
        const u64 each = 1 + hops.groups;
        return pieces(hops.far, 2 * hops.groups) + ((row * hops.blocks + blockIdx.x) * each + index) * hops.piece;
    }
    // What comes from a group.
    __device__ __forceinline__ u8 *coming(u64 row, u32 group) const {
        return slice == 0 ? far_piece(row, 1 + group) : far_piece(row, 1) + group * slice;
    }
    __device__ __forceinline__ u8 *results(u64 row) const { return far_piece(row, 1) + hops.groups * slice; }
    // Bytes of a group's slice of a piece of `length` bytes.
    __device__ __forceinline__ u64 sliced(u64 length, u32 group) const {
        const u64 begin = group * slice;
        return begin >= length ? 0 : length - begin < slice ? length - begin : slice;
    }

    // Combines `count` pieces word by word and gives each word to `to`. The last word may go beyond the length.
    template <class From, class To>
    __device__ __forceinline__ void combine_pieces(u64 length, u32 count, From from, To to) const {
        constexpr u32 N = 4;
        const u64 words = (length + 15) / 16;
        for (u64 i = threadIdx.x; i < words; i += N * blockDim.x) {
            word16 result[N];
            for (u32 which = 0; which < count; ++which) {
                const word16 *source = reinterpret_cast<const word16 *>(from(which));
                word16 data[N];
#pragma unroll
                for (u32 k = 0; k < N; ++k) {
                    if (i + k * blockDim.x < words) data[k] = source[i + k * blockDim.x];
                }
#pragma unroll
                for (u32 k = 0; k < N; ++k) {
                    if (i + k * blockDim.x < words) {
                        result[k] = which == 0 ? data[k] : combine_words<T>(result[k], data[k], op);
                    }
                }
            }
#pragma unroll
            for (u32 k = 0; k < N; ++k) {
                if (i + k * blockDim.x < words) to(i + k * blockDim.x, result[k]);
            }
        }
    }

    // After a barrier: one thread raises this rank's signal at all ranks of the group below `count`.
    __device__ __forceinline__ void raise_near(u64 *signal, u64 value, u32 count) const {
        if (threadIdx.x != 0 || near.size == 1) return;
        fence_system();
        for (u32 peer = 0; peer < count; ++peer) {
            if (peer != near.rank) signal_relaxed(near, signal, value, SIGNAL_SET, peer);
        }
    }

    __device__ __forceinline__ bool gather(u64 step, u64 number) const {
        const u64 row = number % ROWS;
        const u32 me = near.rank;
        u64 begin;
        for (u32 step_on = 0; step_on < hops.shares; ++step_on) {
            const u32 share = (me + step_on) % hops.shares;
            const u64 length = part(step, share, begin);
            if (length > 0) put(near, near_piece(row, me), buffer + begin, length, share, block);
        }
        __syncthreads();
        raise_near(gathered() + me, number + 1, hops.shares);
        if (me >= hops.shares) return true;
        if (!wait_for_all(near, gathered(), near.size, me, number + 1)) return false;
        const u64 length = part(step, me, begin);
        word16 *here = reinterpret_cast<word16 *>(near_piece(row, near.size));
        word16 *leaving = reinterpret_cast<word16 *>(far_piece(row, 0));
        const bool leaves = hops.groups > 1;
        combine_pieces(
            length, near.size, [&](u32 rank) { return near_piece(row, rank); },
            [&](u64 i, word16 word) {
                here[i] = word;
                if (leaves) leaving[i] = word;
            });
        const bool all = root_group == NOBODY;
        return to_others(number, exchanged(), coming(row, hops.group), [&](u32 group, const u8 *&source) {
            source = reinterpret_cast<const u8 *>(leaving) + group * slice;
            return slice != 0 ? sliced(length, group) : all || root_group == group ? length : 0;
        });
    }

    // Puts to the rank of every other group that has this share, to the same place at each, as many bytes as `what` says, and
    // raises its signal.
    template <class What>
    __device__ __forceinline__ bool to_others(u64 number, u64 *signals, u8 *there, What what) const {
        const u32 *ranks = reinterpret_cast<const u32 *>(hops.ranks);
        u64 *word = signals + hops.group;
        bool alive = true;
        for (u32 on = 1; on < hops.groups; ++on) {
            const u32 group = (hops.group + on) % hops.groups, peer = ranks[group * hops.shares + near.rank];
            const u8 *source;
            const u64 length = what(group, source);
            if (length > 0) {
                alive = put_signal(far, there, source, length, word, number + 1, SIGNAL_SET, peer, block) && alive;
            } else if (threadIdx.x == 0) {
                alive = signal(far, word, number + 1, SIGNAL_SET, peer) && alive;
            }
        }
        return __syncthreads_and(alive);
    }

    // This group's slice, of all groups, and to all of them.
    __device__ __forceinline__ bool exchange(u64 step, u64 number) const {
        const u64 row = number % ROWS;
        if (near.rank >= hops.shares) return true;
        if (!wait_for_all(far, exchanged(), hops.groups, hops.group, number + 1)) return false;
        u64 begin;
        const u64 length = sliced(part(step, near.rank, begin), hops.group);
        u8 *here = results(row) + hops.group * slice;
        combine_pieces(
            length, hops.groups,
            [&](u32 group) {
                return group == hops.group ? near_piece(row, near.size) + group * slice : coming(row, group);
            },
            [&](u64 i, word16 word) { reinterpret_cast<word16 *>(here)[i] = word; });
        return to_others(number, settled(), here, [&](u32, const u8 *&source) {
            source = here;
            return length;
        });
    }

    __device__ __forceinline__ bool spread(u64 step, u64 number) const {
        const u64 row = number % ROWS;
        const u32 me = near.rank;
        u64 begin;
        if (me < hops.shares) {
            const u64 *signals = slice == 0 ? exchanged() : settled();
            if (hops.groups > 1 && !wait_for_all(far, signals, hops.groups, hops.group, number + 1)) return false;
            if (root_group == NOBODY || root_group == hops.group) {
                u8 *to = near_piece(row, near.size + 1 + me);
                combine_pieces(
                    part(step, me, begin), slice == 0 ? hops.groups : 1,
                    [&](u32 group) {
                        return slice != 0 ? results(row) : group == hops.group ? near_piece(row, near.size) : coming(row, group);
                    },
                    [&](u64 i, word16 word) {
                        for (u32 on = 0; on < near.size; ++on) {
                            const u32 peer = me + on < near.size ? me + on : me + on - near.size;
                            if (root_member == NOBODY || root_member == peer) {
                                reinterpret_cast<word16 *>(mapped(near, to, peer))[i] = word;
                            }
                        }
                    });
            }
            __syncthreads();
            raise_near(spread_signals() + me, number + 1, near.size);
        }
        if (!wait_for_all(near, spread_signals(), hops.shares, me, number + 1)) return false;
        if (root_group == NOBODY || (root_group == hops.group && root_member == me)) {
            for (u32 share = 0; share < hops.shares; ++share) {
                const u64 length = part(step, share, begin);
                copy(buffer + begin, near_piece(row, near.size + 1 + share), length, block);
            }
        }
        return true;
    }

    __device__ __forceinline__ void run() const {
        u64 *counter = reinterpret_cast<u64 *>(hops.steps) + blockIdx.x;
        const u64 first = *(volatile u64 *)counter;
        const u64 all = (bytes + hops.shares * piece - 1) / (hops.shares * piece);
        const u64 steps = all > blockIdx.x ? (all - blockIdx.x - 1) / gridDim.x + 1 : 0;
        const u64 behind = slice == 0 ? 1 : 2;
        bool alive = true;
        for (u64 step = 0; alive && step < steps + behind; ++step) {
            if (step < steps) alive = gather(step, first + step);
            if (alive && slice != 0 && step >= 1 && step - 1 < steps) alive = exchange(step - 1, first + step - 1);
            if (alive && step >= behind) alive = spread(step - behind, first + step - behind);
        }
        __syncthreads();
        if (threadIdx.x == 0) *counter = first + steps;
    }
};

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

extern "C" __global__ void __launch_bounds__(512)
    SPMD_KERNEL(spmd_two_hop_, SPMD_NAME)(context_t near, context_t far, hops_t hops, u8 *buffer, u64 bytes, u64 piece, u64 slice,
                                          u32 op, u32 root_group, u32 root_member) {
    two_hop_t<SPMD_TYPE>{near, far, hops, buffer, bytes, piece, (operator_t)op, root_group, root_member, slice}.run();
}

}  // namespace spmd
