// spmd_proxy.cuh: the way over a ring of descriptors that a thread of the host posts. Knows the ring, and nothing of how
// the host carries a descriptor out.
//
// Each function is called by ONE thread, after the threads whose stores it covers have met at a barrier. It makes those
// stores visible to the host before the descriptor, returns once the descriptor is in the ring, and gives false after
// spmd::fail has recorded why. Descriptors to one peer are carried out in the order of the ring: a signal covers every put
// whose descriptor came before it.
#pragma once
#include "spmd_types.cuh"

namespace spmd {

__device__ __forceinline__ bool fail(const context_t &context, error_t code, u32 peer, u64 detail, u64 expected, u64 found);

namespace proxy {

// Bytes from `source` (any address of this device) to `offset` in the heap of `peer`.
__device__ inline bool put(const context_t &context, u64 offset, const void *source, u64 bytes, u32 peer) {
    return fail(context, ERROR_NO_WAY, peer, offset, bytes, 0);
}

// The same, then the signal word at `signal_offset`, which whoever sees it sees the bytes.
__device__ inline bool put_signal(const context_t &context, u64 offset, const void *source, u64 bytes, u64 signal_offset,
                                  u64 value, signal_op_t op, u32 peer) {
    return fail(context, ERROR_NO_WAY, peer, offset, bytes, 0);
}

__device__ inline bool signal(const context_t &context, u64 signal_offset, u64 value, signal_op_t op, u32 peer) {
    return fail(context, ERROR_NO_WAY, peer, signal_offset, 8, 0);
}

// Returns once everything that this device has put into the ring so far is visible at its targets, and sources may be
// changed.
__device__ inline bool quiet(const context_t &context) {
    return context.ring == 0 || fail(context, ERROR_NO_WAY, ~0u, 0, 0, 0);
}

}  // namespace proxy
}  // namespace spmd
