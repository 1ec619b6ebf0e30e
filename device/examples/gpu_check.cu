// What gpu_check.rs runs on GPUs. Every argument after the context is a 64-bit number or a pointer.
#include "spmd_device.cuh"

using namespace spmd;

// ---- every offset, every length -------------------------------------------------------------------------------------

constexpr u32 LENGTHS = 257, OFFSETS = 16, FIELD = 320, CANARY = 0xCC;

// Which case field `k` is: offset of the source, of the destination, and length.
__device__ void which(u64 k, u32 &from, u32 &to, u32 &length) {
    from = k % OFFSETS;
    to = k / OFFSETS % OFFSETS;
    length = k / (OFFSETS * OFFSETS) + 1;
}

// Puts one field for each case into the next rank. `scope` 0: block, 1: warp, 2: thread, 3: gets by a block instead.
extern "C" __global__ void sweep(context_t context, u8 *fields, u8 *source, u8 *got, u64 scope, u64 cases) {
    const u32 peer = (context.rank + 1) % context.size;
    for (u64 k = blockIdx.x; k < cases; k += gridDim.x) {
        u32 from, to, length;
        which(k, from, to, length);
        u8 *destination = fields + k * FIELD + 16 + to;
        const u8 *begin = source + 16 + from;
        if (scope == 0) put(context, destination, begin, length, peer, spmd::block);
        else if (scope == 1 && threadIdx.x < 32) put(context, destination, begin, length, peer, spmd::warp);
        else if (scope == 2 && threadIdx.x == 0) put(context, destination, begin, length, peer);
        else if (scope == 3) get(context, got + k * FIELD + 16 + to, begin, length, peer, spmd::block);
    }
    quiet(context, spmd::block);
}

// Counts bytes of the fields that are not what the source of rank `of` says, canaries included.
extern "C" __global__ void compare(context_t context, const u8 *fields, u64 of, u64 round, u64 cases, u64 *wrong) {
    for (u64 k = blockIdx.x; k < cases; k += gridDim.x) {
        u32 from, to, length;
        which(k, from, to, length);
        for (u32 i = threadIdx.x; i < FIELD; i += blockDim.x) {
            const u32 first = 16 + to;
            const bool inside = i >= first && i < first + length;
            const u8 wanted = inside ? (u8)((16 + from + i - first) * 7 + of * 13 + round) : (u8)CANARY;
            if (*(volatile const u8 *)(fields + k * FIELD + i) != wanted) atomicAdd(wrong, 1ull);
        }
    }
}

// ---- order ----------------------------------------------------------------------------------------------------------

__device__ u32 dice(u64 &state) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (u32)(state >> 33);
}

__device__ void delay(u64 &state, u32 most) {
    const long long until = clock64() + dice(state) % most;
    while (clock64() < until) {
    }
}

// Each block sends rounds to the block of its number at the next rank and takes those of the rank before: `puts` puts by
// as many threads, then a put_signal that covers them all. A round is acknowledged before the next but one.
extern "C" __global__ void ordered(context_t context, u64 *sources, u64 *slots, u64 *signals, u64 *acks, u64 *total, u64 rounds,
                                   u64 seed, u64 *wrong) {
    const u32 next = (context.rank + 1) % context.size, before = (context.rank + context.size - 1) % context.size;
    const u32 words = blockDim.x;
    u64 *slot = slots + (u64)blockIdx.x * 2 * words, *arrived = signals + blockIdx.x * 16, *taken = acks + blockIdx.x * 16;
    u64 state = seed + blockIdx.x * 977 + threadIdx.x * 31 + context.rank;
    for (u64 round = 1; round <= rounds; ++round) {
        u64 *turn = slot + (round & 1) * words;
        if (round > 2 && !wait_signal(context, taken, AT_LEAST, round - 2, spmd::block)) return;
        // A source that the acknowledgement of the last but one round has set free.
        u64 *mine = sources + (u64)blockIdx.x * 2 * words + (round & 1) * words + threadIdx.x;
        *mine = round * 1000003 + blockIdx.x * 101 + threadIdx.x;
        delay(state, 200);
        // All threads but the first put their word alone; the first one's word goes with the signal.
        if (threadIdx.x != 0 && !put(context, turn + threadIdx.x, mine, 8, next)) return;
        __syncthreads();
        if (threadIdx.x == 0) {
            delay(state, 500);
            if (!put_signal(context, turn, mine, 8, arrived, round, SIGNAL_SET, next)) return;
            signal_relaxed(context, total, 1, SIGNAL_ADD, next);
        }
        if (!wait_signal(context, arrived, AT_LEAST, round, spmd::block)) return;
        delay(state, 100);
        const u64 found = *(volatile u64 *)(turn + threadIdx.x), wanted = round * 1000003 + blockIdx.x * 101 + threadIdx.x;
        if (found != wanted) atomicAdd(wrong, 1ull);
        __syncthreads();
        if (threadIdx.x == 0) signal_relaxed(context, taken, round, SIGNAL_SET, before);
    }
    quiet(context, spmd::block);
}

// Small messages of every length and offset there and back, two slots in turn.
extern "C" __global__ void small(context_t context, packet_t *slots, u8 *source, u8 *result, u64 first_mark, u64 *wrong) {
    constexpr u64 CAPACITY = 272;
    const u32 next = (context.rank + 1) % context.size, before = (context.rank + context.size - 1) % context.size;
    u64 mark = first_mark;
    for (u32 length = 1; length <= LENGTHS; ++length) {
        for (u32 offset = 0; offset < 8; ++offset, ++mark) {
            packet_t *slot = slots + (mark & 1) * small_packets(CAPACITY);
            if (!send_small(context, slot, source + offset, length, CAPACITY, mark, next, spmd::block)) return;
            if (!receive_small(context, result + 8 - offset, slot, length, CAPACITY, mark, before, spmd::block)) return;
            __syncthreads();
            for (u32 i = threadIdx.x; i < length; i += blockDim.x) {
                if (result[8 - offset + i] != (u8)((offset + i) * 7 + before * 13)) atomicAdd(wrong, 1ull);
            }
            __syncthreads();
        }
    }
}

// ---- errors ---------------------------------------------------------------------------------------------------------

// 0: a signal that nobody raises; 1: a rank that does not exist; 2: beyond the heap; 3: a small message that nobody sends; 4 to
// 8: signals and slots that are not aligned.
extern "C" __global__ void mistake(context_t context, u64 *word, u64 kind, u64 *returned) {
    bool fine = true;
    u64 value = 7;
    const u32 peer = (context.rank + 1) % context.size;
    if (kind == 0) fine = wait_signal(context, word, AT_LEAST, 41, spmd::block);
    if (kind == 1) fine = put(context, word, &value, 8, context.size + 3);
    if (kind == 2) fine = put(context, (u8 *)context.heap + context.heap_bytes - 4, &value, 8, peer);
    if (kind == 3) fine = receive_small(context, &value, (packet_t *)word, 8, 8, 99, peer);
    u64 *odd = (u64 *)((u8 *)word + 4);
    if (kind == 4) fine = signal(context, odd, 1, SIGNAL_SET, peer);
    if (kind == 5) fine = put_signal(context, word, &value, 8, odd, 1, SIGNAL_ADD, peer);
    if (kind == 6) fine = wait_signal(context, odd, NOT_EQUAL, 0, spmd::block);
    if (kind == 7) fine = send_small(context, (packet_t *)(word + 1), &value, 8, 8, 99, peer);
    if (kind == 8) fine = receive_small(context, &value, (packet_t *)(word + 1), 8, 8, 99, peer);
    if (threadIdx.x == 0) *returned = fine ? 1 : 2;
}
