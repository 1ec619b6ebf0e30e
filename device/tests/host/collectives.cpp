// The collectives' kernels for tests that run on the host: a block is one thread, which sets its number first.
#define SPMD_TYPE float
#define SPMD_NAME f32
#include "collectives.cu"

using namespace spmd;

extern "C" {

void run_two_hop(const context_t *near, const context_t *far, const hops_t *hops, u32 block, u32 blocks, void *buffer,
                 u64 bytes, u64 piece, u64 slice, u32 op, u32 root_group, u32 root_member) {
    blockIdx.x = block;
    gridDim.x = blocks;
    spmd_two_hop_f32(*near, *far, *hops, static_cast<u8 *>(buffer), bytes, piece, slice, op, root_group, root_member);
}

void run_one_shot(const context_t *context, u32 block, u32 blocks, void *out, const void *in, u64 bytes, u32 op, u32 root) {
    blockIdx.x = block;
    gridDim.x = blocks;
    spmd_one_shot_f32(*context, out, in, bytes, op, root);
}

void run_two_shot(const context_t *context, u32 block, u32 blocks, void *buffer, u64 bytes, u32 op, u32 root) {
    blockIdx.x = block;
    gridDim.x = blocks;
    spmd_two_shot_f32(*context, static_cast<float *>(buffer), bytes, op, root);
}

}  // extern "C"
