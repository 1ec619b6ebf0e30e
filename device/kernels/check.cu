// The check of mapped memory: does what one GPU stores through a mapping arrive, and does it read it back?
#include "spmd_device.cuh"

namespace spmd {

__device__ __forceinline__ u64 pattern(u64 seed, u32 from, u32 to, u32 i) {
    u64 x = seed + ((u64)from << 32 | to) * 0x9e3779b97f4a7c15ull + i * 0xbf58476d1ce4e5b9ull;
    x ^= x >> 29;
    return x * 0x94d049bb133111ebull ^ x >> 32;
}

constexpr u32 CHECK_WORDS = 512;

// Every rank writes a pattern of its own into its row of `rows` at every peer that it maps: one block a peer.
extern "C" __global__ void spmd_check_write(context_t context, u64 *rows, u64 seed) {
    u64 *to = mapped(context, rows + (u64)context.rank * CHECK_WORDS, blockIdx.x);
    if (to == nullptr) return;
    for (u32 i = threadIdx.x; i < CHECK_WORDS; i += blockDim.x) to[i] = pattern(seed, context.rank, blockIdx.x, i);
    fence_system();
}

// Counts, for each peer, the words that did not arrive here and those that this rank does not read there.
extern "C" __global__ void spmd_check_read(context_t context, u64 *rows, u64 seed, u32 *wrong) {
    const u32 peer = blockIdx.x;
    const u64 *here = rows + (u64)peer * CHECK_WORDS;
    const u64 *there = mapped(context, rows + (u64)context.rank * CHECK_WORDS, peer);
    u32 count = 0;
    for (u32 i = threadIdx.x; i < CHECK_WORDS; i += blockDim.x) {
        count += load_relaxed(here + i) != pattern(seed, peer, context.rank, i);
        count += there == nullptr || load_relaxed(there + i) != pattern(seed, context.rank, peer, i);
    }
    if (count != 0) atomicAdd(wrong + peer, count);
}

}  // namespace spmd
