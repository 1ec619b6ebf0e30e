// spmd_memory.cuh: the accesses to memory that others share, as instructions, and what else has to be written in PTX, so that
// tests can compile the other headers for the host with functions of the same names.
//
// "system" is everything that sees this memory: other GPUs, the host, a NIC. "device" is all threads of this GPU.
#pragma once
#include "spmd_types.cuh"

namespace spmd {

// Orders everything before against everything after, for every observer in the system.
__device__ __forceinline__ void fence_system() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }

__device__ __forceinline__ u64 load_relaxed(const u64 *from) {
    u64 value;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
    return value;
}

__device__ __forceinline__ u64 load_acquire(const u64 *from) {
    u64 value;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
    return value;
}

// After a relaxed load of `word` has seen a signal: what the signal covers is visible from here on. Polling with acquire
// loads would empty the first-level cache with every poll.
__device__ __forceinline__ void acquire(const u64 *word) {
#if __CUDA_ARCH__ >= 900 && (__CUDACC_VER_MAJOR__ > 12 || (__CUDACC_VER_MAJOR__ == 12 && __CUDACC_VER_MINOR__ >= 8))
    asm volatile("fence.acquire.sys;" ::: "memory");
#else
    load_acquire(word);
#endif
}

__device__ __forceinline__ void store_relaxed(u64 *to, u64 value) {
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}

__device__ __forceinline__ void add_relaxed(u64 *to, u64 value) {
    asm volatile("red.relaxed.sys.global.add.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}

// Two neighbouring words with one store where the hardware can; each word is whole in any case. `to` is aligned to 16.
__device__ __forceinline__ void store_pair_relaxed(u64 *to, u64 low, u64 high) {
    asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(to), "l"(low), "l"(high) : "memory");
}

// 16 bytes with one store that nobody sees half of (st.b128 of the PTX memory model). `to` is aligned to 16.
__device__ __forceinline__ void store_whole(u64 *to, u64 low, u64 high) {
    asm volatile("{ .reg .b128 both; mov.b128 both, {%1, %2}; st.relaxed.sys.global.b128 [%0], both; }" ::"l"(to), "l"(low),
                 "l"(high)
                 : "memory");
}

// 16 bytes as one such store has left them.
__device__ __forceinline__ void load_whole(const u64 *from, u64 &low, u64 &high) {
    asm volatile("{ .reg .b128 both; ld.relaxed.sys.global.b128 both, [%2]; mov.b128 {%0, %1}, both; }"
                 : "=l"(low), "=l"(high)
                 : "l"(from)
                 : "memory");
}

__device__ __forceinline__ u32 load_relaxed_32(const u32 *from) {
    u32 value;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
}

__device__ __forceinline__ u32 load_acquire_32(const u32 *from) {
    u32 value;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
}

__device__ __forceinline__ void store_relaxed_32(u32 *to, u32 value) {
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}

// A store to a register of a device on the bus: one transaction of exactly this width, never merged or repeated.
__device__ __forceinline__ void store_register(u64 *to, u64 value) {
    asm volatile("st.mmio.relaxed.sys.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}

// Words that only threads of this device share.
__device__ __forceinline__ u64 load_relaxed_device(const u64 *from) {
    u64 value;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
    return value;
}

__device__ __forceinline__ u64 load_acquire_device(const u64 *from) {
    u64 value;
    asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
    return value;
}

__device__ __forceinline__ void store_relaxed_device(u64 *to, u64 value) {
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}

__device__ __forceinline__ void store_release_device(u64 *to, u64 value) {
    asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}

// Adds; what was there before. Orders nothing.
__device__ __forceinline__ u64 add_relaxed_device(u64 *to, u64 value) {
    u64 before;
    asm volatile("atom.relaxed.gpu.global.add.u64 %0, [%1], %2;" : "=l"(before) : "l"(to), "l"(value) : "memory");
    return before;
}

// Sets a word to 1; whether it was 0: the lock is taken then. Given back by store_release_device(word, 0).
__device__ __forceinline__ bool try_lock_device(u64 *word) {
    u64 before;
    asm volatile("atom.acquire.gpu.global.cas.b64 %0, [%1], 0, 1;" : "=l"(before) : "l"(word) : "memory");
    return before == 0;
}

// The number of this thread in its warp.
__device__ __forceinline__ u32 lane() {
    u32 lane;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    return lane;
}

// Numbers of 16 bits, as their bits: to 32 bits and back, rounded to the nearest.
__device__ __forceinline__ float float_of_f16(u16 bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}

__device__ __forceinline__ u16 f16_of_float(float value) {
    u16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

__device__ __forceinline__ u16 bf16_of_float(float value) {
    u16 bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

}  // namespace spmd
