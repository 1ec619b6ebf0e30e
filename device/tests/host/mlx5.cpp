// The kernel's side of spmd_mlx5.cuh for tests that run on the host.
#include <cstddef>
#include "spmd_mlx5.cuh"

using namespace spmd;

extern "C" {

bool mlx5_put(const context_t *context, const peer_t *to, u64 offset, const void *source, u64 bytes) {
    return mlx5::put(*context, *to, offset, source, bytes, 1);
}

bool mlx5_put_signal(const context_t *context, const peer_t *to, u64 offset, const void *source, u64 bytes,
                     u64 signal_offset, u64 value, u32 op) {
    return mlx5::put_signal(*context, *to, offset, source, bytes, signal_offset, value, (signal_op_t)op, 1);
}

bool mlx5_signal(const context_t *context, const peer_t *to, u64 signal_offset, u64 value, u32 op) {
    return mlx5::signal(*context, *to, signal_offset, value, (signal_op_t)op, 1);
}

bool mlx5_quiet(const context_t *context, const peer_t *to) { return mlx5::quiet(*context, *to, 1); }

// `count` puts of `bytes` bytes, each with a signal that adds 1, with pauses that differ. Bytes of put `number` begin with
// `number`. Source and destination are this thread's own; after each put comes a quiet, so that the source may change.
bool mlx5_stream(const context_t *context, const peer_t *to, u32 thread, u64 count, u64 offset, u64 bytes,
                 u64 signal_offset) {
    blockIdx.x = thread;
    u64 state = thread * 0x9e3779b97f4a7c15ull + 1;
    volatile u64 *source = reinterpret_cast<volatile u64 *>(context->heap + offset);
    for (u64 number = 1; number <= count; ++number) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        for (u64 pause = state >> 58; pause > 0; --pause) __asm__ volatile("");
        for (u64 word = 0; word < bytes / 8; ++word) source[word] = number;
        if (!mlx5::put_signal(*context, *to, offset, const_cast<u64 *>(source), bytes, signal_offset, 1, SIGNAL_ADD, 1)) {
            return false;
        }
        // Now and then without it: many calls of one thread are under way then, with a source that does not change.
        if (number % 4 == 0 && !mlx5::quiet(*context, *to, 1)) return false;
        if (number % 4 != 0 && bytes > context->flags && !mlx5::quiet(*context, *to, 1)) return false;
    }
    return mlx5::quiet(*context, *to, 1);
}

}  // extern "C"
