// spmd_errors.cuh: how a kernel records what went wrong, and how long it waits. Used by all three ways.
#pragma once
#include "spmd_types.cuh"
#include "spmd_memory.cuh"

namespace spmd {

// Out of line and by value: it must cost the paths that do not fail neither registers nor instruction cache.
inline __device__ __noinline__ bool record_error(u64 at, u64 claim, error_t code, u32 peer, u64 detail, u64 expected,
                                                 u64 found) {
    auto *record = reinterpret_cast<error_record_t *>(at);
    // Told apart here and not by those that wait, which must stay small.
    if (code == ERROR_STOPPED && *(volatile u32 *)&record->stop == STOP_LOST) code = ERROR_LOST;
    // In the device's own memory: over the bus a compare-and-swap need not be one.
    u32 *word = claim == 0 ? &record->code : reinterpret_cast<u32 *>(claim);
    if (atomicCAS_system(word, 0u, (u32)code) == 0) {
        record->code = code;
        record->peer = peer;
        record->detail = detail;
        record->expected = expected;
        record->found = found;
        record->block = blockIdx.x;
        record->thread = threadIdx.x;
        fence_system();
        *(volatile u32 *)&record->complete = 1;
    }
    return false;
}

// Records the first error of this device; later ones are dropped. Always false.
__device__ __forceinline__ bool fail(const context_t &context, error_t code, u32 peer, u64 detail, u64 expected,
                                     u64 found) {
    return record_error(context.error, context.claim, code, peer, detail, expected, found);
}

// The clock of a wait. Looks at the clock, and at whether the host wants waits to end (because a rank is lost, or the program
// says so), once every 1,024 polls: both cost more than a poll. A millisecond is soon enough to end.
//
// Counting is not free either: it comes after a poll and before the next. Waits that matter poll LOOKS times for each count.
constexpr u32 LOOKS = 8;

struct patience_t {
    u32 polls = 0;
    long long begun = 0;

    // Whether to go on; otherwise the reason has been recorded. Called after every `Looks` polls.
    template <u32 Looks = 1>
    __device__ __forceinline__ bool lasts(const context_t &context, error_t code, u32 peer, u64 detail, u64 expected,
                                          u64 found) {
        if (__builtin_expect((++polls & (1024 / Looks - 1)) != 0, 1)) return true;
        const long long now = clock64();
        if (begun == 0) begun = now;
        const auto *record = reinterpret_cast<const volatile error_record_t *>(context.error);
        if (record->stop != STOP_NOT) return fail(context, ERROR_STOPPED, peer, detail, expected, found);
        if (context.cycle_limit != 0 && (u64)(now - begun) > context.cycle_limit) {
            return fail(context, code, peer, detail, expected, found);
        }
        return true;
    }
};

}  // namespace spmd
