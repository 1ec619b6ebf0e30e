// Kernels that write work-queue entries of mlx5 and ring the doorbell; gpu_nic.rs runs the software NIC that reads them.
#include "spmd_device.cuh"

using namespace spmd;

// Each block puts fields of all lengths and offsets from its own heap, then quiet.
extern "C" __global__ void nic_puts(context_t context, u8 *fields, u8 *source, u64 cases, u64 scope, u64 *failed) {
    bool fine = true;
    for (u64 k = blockIdx.x; fine && k < cases; k += gridDim.x) {
        const u32 from = k % 16, to = k / 16 % 16, length = k / 256 % 257 + 1;
        u8 *destination = fields + k * 320 + 16 + to;
        fine = scope == 0 ? put(context, destination, source + 16 + from, length, 1, spmd::block)
               : threadIdx.x < 32 ? put(context, destination, source + 16 + from, length, 1, spmd::warp)
                                  : true;
    }
    fine = quiet(context, spmd::block) && fine;
    if (!fine && threadIdx.x == 0) atomicAdd(failed, 1ull);
}

// Each block counts up its own word at the peer, set and added to by turns, and all of them one word together.
extern "C" __global__ void nic_signals(context_t context, u8 *data, u64 *own, u64 *all, u64 rounds, u64 *failed) {
    bool fine = true;
    for (u64 round = 1; fine && round <= rounds; ++round) {
        u8 *mine = data + blockIdx.x * 64;
        fine = put_signal(context, mine, mine, 64, own + blockIdx.x, round, SIGNAL_SET, 1, spmd::block);
        if (threadIdx.x == 0) fine = signal(context, all, 1, SIGNAL_ADD, 1) && fine;
        fine = __syncthreads_and(fine);
    }
    fine = quiet(context, spmd::block) && fine;
    if (!fine && threadIdx.x == 0) atomicAdd(failed, 1ull);
}
