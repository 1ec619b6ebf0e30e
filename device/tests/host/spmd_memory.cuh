// spmd_memory.cuh for tests: the same functions as in include/spmd_memory.cuh, by the host's compiler, so that the other
// headers can be run, as they are, by threads of the host.
#pragma once
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <sched.h>
#include "spmd_types.cuh"

#define __device__
#define __host__
#define __global__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(threads)

namespace spmd {

inline void fence_system() { __atomic_thread_fence(__ATOMIC_ACQ_REL); }

// What waits polls, and the host may have fewer processors than there are threads.
inline u64 polled(const u64 *from) {
    static thread_local unsigned polls = 0;
    if (++polls % 64 == 0) sched_yield();
    return __atomic_load_n(from, __ATOMIC_ACQUIRE);
}

inline u64 load_relaxed(const u64 *from) { return polled(from); }
inline u64 load_acquire(const u64 *from) { return polled(from); }
inline void acquire(const u64 *word) { load_acquire(word); }
inline void store_relaxed(u64 *to, u64 value) { __atomic_store_n(to, value, __ATOMIC_RELAXED); }
inline void add_relaxed(u64 *to, u64 value) { __atomic_fetch_add(to, value, __ATOMIC_RELAXED); }
inline u32 load_relaxed_32(const u32 *from) { return __atomic_load_n(from, __ATOMIC_RELAXED); }
inline u32 load_acquire_32(const u32 *from) { return __atomic_load_n(from, __ATOMIC_ACQUIRE); }
inline void store_relaxed_32(u32 *to, u32 value) { __atomic_store_n(to, value, __ATOMIC_RELAXED); }
// The host sees a register of the software NIC as memory.
inline void store_register(u64 *to, u64 value) { __atomic_store_n(to, value, __ATOMIC_RELEASE); }

// The last word first: nobody may rely on an order.
inline void store_pair_relaxed(u64 *to, u64 low, u64 high) {
    __atomic_store_n(to + 1, high, __ATOMIC_RELAXED);
    __atomic_store_n(to, low, __ATOMIC_RELAXED);
}

inline u64 load_relaxed_device(const u64 *from) { return __atomic_load_n(from, __ATOMIC_RELAXED); }
inline u64 load_acquire_device(const u64 *from) { return polled(from); }
inline void store_relaxed_device(u64 *to, u64 value) { __atomic_store_n(to, value, __ATOMIC_RELAXED); }
inline void store_release_device(u64 *to, u64 value) { __atomic_store_n(to, value, __ATOMIC_RELEASE); }
inline u64 add_relaxed_device(u64 *to, u64 value) { return __atomic_fetch_add(to, value, __ATOMIC_RELAXED); }
inline bool try_lock_device(u64 *word) {
    u64 expected = 0;
    return __atomic_compare_exchange_n(word, &expected, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

// Nobody sees the mark without the data, which is what a whole store is for.
inline void store_whole(u64 *to, u64 low, u64 high) {
    __atomic_store_n(to, low, __ATOMIC_RELAXED);
    __atomic_store_n(to + 1, high, __ATOMIC_RELEASE);
}
inline void load_whole(const u64 *from, u64 &low, u64 &high) {
    high = polled(from + 1);
    low = __atomic_load_n(from, __ATOMIC_RELAXED);
}

inline u32 lane() { return 0; }
// Not run on the host.
inline float float_of_f16(u16) { abort(); }
inline u16 f16_of_float(float) { abort(); }
inline u16 bf16_of_float(float) { abort(); }

}  // namespace spmd

// What CUDA has built in, as far as the headers and the collectives use it: a block is one thread. The clock counts
// nanoseconds.
struct uint3_t {
    unsigned x, y, z;
};
inline thread_local uint3_t threadIdx, blockIdx, blockDim = {1, 1, 1}, gridDim = {1, 1, 1};

struct ulonglong2 {
    unsigned long long x, y;
};

template <class T>
inline T __ldg(const T *from) {
    return *from;
}
inline void __syncthreads() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __syncwarp() {}
inline bool __syncthreads_and(bool mine) { return mine; }
inline bool __all_sync(unsigned, bool mine) { return mine; }
inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned bits) {
    return (unsigned)(((unsigned long long)high << 32 | low) >> (bits & 31));
}
inline unsigned long long atomicAdd(unsigned long long *word, unsigned long long value) {
    return __atomic_fetch_add(word, value, __ATOMIC_RELAXED);
}

template <class To, class From>
inline To same_bits(From from) {
    static_assert(sizeof(To) == sizeof(From), "a number of the same size");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}
inline float __int_as_float(int bits) { return same_bits<float>(bits); }
inline int __float_as_int(float value) { return same_bits<int>(value); }
inline double __longlong_as_double(long long bits) { return same_bits<double>(bits); }
inline long long __double_as_longlong(double value) { return same_bits<long long>(value); }

inline spmd::u32 atomicCAS_system(spmd::u32 *word, spmd::u32 expected, spmd::u32 desired) {
    __atomic_compare_exchange_n(word, &expected, desired, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return expected;
}

inline long long clock64() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ll + now.tv_nsec;
}
