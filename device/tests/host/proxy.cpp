// The producers of spmd_proxy.cuh for tests that run on the host.
#include <cstddef>
#include "spmd_proxy.cuh"

using namespace spmd;

// Each thread calls one of these for itself, with its number.
extern "C" {

// `count` signals whose values are `producer << 32 | number`, with pauses that differ.
bool proxy_signals(const context_t *context, u32 producer, u64 count, u32 peer) {
    blockIdx.x = producer;
    u64 state = producer * 0x9e3779b97f4a7c15ull + 1;
    for (u64 number = 0; number < count; ++number) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        for (u64 pause = state >> 58; pause > 0; --pause) __asm__ volatile("");
        if (!proxy::signal(*context, proxy::ring_of(*context), 8 * producer, (u64)producer << 32 | number, SIGNAL_ADD, peer)) return false;
    }
    return true;
}

bool proxy_put(const context_t *context, u64 offset, const void *source, u64 bytes, u32 peer) {
    return proxy::put(*context, proxy::ring_of(*context), offset, source, bytes, peer);
}

bool proxy_put_signal(const context_t *context, u64 offset, const void *source, u64 bytes, u64 signal_offset, u64 value,
                      u32 op, u32 peer) {
    return proxy::put_signal(*context, proxy::ring_of(*context), offset, source, bytes, signal_offset, value, (signal_op_t)op, peer);
}

bool proxy_get(const context_t *context, void *destination, u64 offset, u64 bytes, u32 peer) {
    return proxy::get(*context, proxy::ring_of(*context), destination, offset, bytes, peer);
}

bool proxy_quiet(const context_t *context) { return proxy::quiet(*context, proxy::ring_of(*context)); }

}  // extern "C"
