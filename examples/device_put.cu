// The kernels of device_put.rs.
#include "spmd_device.cuh"

using namespace spmd;

// Blocks of data go round the ring of ranks: each block of the kernel owns one slot. Two slots take turns, and a second
// signal says that a slot may be written again.
extern "C" __global__ void ring(context_t context, int *slots, int *source, u64 words, u64 *arrived, u64 *taken, u64 rounds,
                                u64 *wrong) {
    const u32 right = (context.rank + 1) % context.size, left = (context.rank + context.size - 1) % context.size;
    const u64 b = blockIdx.x;
    for (u64 round = 1; round <= rounds; ++round) {
        const u64 turn = (b * 2 + (round & 1)) * words;
        if (round > 2 && !wait_signal(context, taken + b, AT_LEAST, round - 2, spmd::block)) return;
        for (u64 i = threadIdx.x; i < words; i += blockDim.x) source[turn + i] = (int)(context.rank * 1000 + round + b * 7 + i);
        // The source is ready for all threads of the block.
        __syncthreads();
        put_signal(context, slots + turn, source + turn, words * sizeof(int), arrived + b, 1, SIGNAL_ADD, right, spmd::block);
        if (!wait_signal(context, arrived + b, AT_LEAST, round, spmd::block)) return;
        for (u64 i = threadIdx.x; i < words; i += blockDim.x) {
            if (slots[turn + i] != (int)(left * 1000 + round + b * 7 + i)) atomicAdd(wrong, 1ull);
        }
        __syncthreads();
        if (threadIdx.x == 0) signal(context, taken + b, 1, SIGNAL_ADD, left);
    }
    quiet(context, spmd::block);
}
