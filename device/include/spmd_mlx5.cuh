// spmd_mlx5.cuh: the way over work-queue entries that the kernel itself writes and a doorbell that it rings. Knows the
// published formats of mlx5, and nothing of how the host made the queue pair.
//
// Each function is called by ONE thread, under the rules of spmd_proxy.cuh. `peer.queue` is the address of the queue_t of
// that peer.
#pragma once
#include "spmd_types.cuh"
#include "spmd_memory.cuh"
#include "spmd_errors.cuh"

namespace spmd {

namespace mlx5 {

__device__ inline bool put(const context_t &context, const peer_t &to, u64 offset, const void *source, u64 bytes, u32 peer) {
    return fail(context, ERROR_NO_WAY, peer, offset, bytes, to.queue);
}

__device__ inline bool put_signal(const context_t &context, const peer_t &to, u64 offset, const void *source, u64 bytes,
                                  u64 signal_offset, u64 value, signal_op_t op, u32 peer) {
    return fail(context, ERROR_NO_WAY, peer, offset, bytes, to.queue);
}

__device__ inline bool signal(const context_t &context, const peer_t &to, u64 signal_offset, u64 value, signal_op_t op,
                              u32 peer) {
    return fail(context, ERROR_NO_WAY, peer, signal_offset, 8, to.queue);
}

// Returns once the NIC has completed everything posted to this peer so far.
__device__ inline bool quiet(const context_t &context, const peer_t &to, u32 peer) {
    return fail(context, ERROR_NO_WAY, peer, 0, 0, to.queue);
}

}  // namespace mlx5
}  // namespace spmd
