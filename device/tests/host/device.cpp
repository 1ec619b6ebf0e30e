// The calls of spmd_device.cuh for tests that run on the host: waits that end, and addresses that are refused.
#include "spmd_device.cuh"

using namespace spmd;

extern "C" {

bool device_wait(const context_t *context, const u64 *word, u64 value) { return wait_signal(*context, word, AT_LEAST, value); }

bool device_receive(const context_t *context, packet_t *slot, u64 mark, u32 peer) {
    u64 data;
    return receive_small(*context, &data, slot, 8, 8, mark, peer);
}

bool device_send(const context_t *context, packet_t *slot, u64 mark, u32 peer) {
    const u64 data = 5;
    return send_small(*context, slot, &data, 8, 8, mark, peer);
}

bool device_signal(const context_t *context, u64 *word, u32 peer) { return signal(*context, word, 1, SIGNAL_SET, peer); }

bool device_put_signal(const context_t *context, u64 *to, u64 *word, u32 peer) {
    const u64 data = 5;
    return put_signal(*context, to, &data, 8, word, 1, SIGNAL_ADD, peer);
}

}  // extern "C"
