// Runs CUDA C++ on the host, a warp or a block at a time, each lane a thread that waits for the
// others at each shuffle and barrier. Slow, and right.
#include <algorithm>
#include <barrier>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <thread>
#include <utility>
#include <vector>

struct Dim { int x; };
inline thread_local Dim threadIdx, blockIdx;
struct uint2 { unsigned x, y; };
struct uint4 { unsigned x, y, z, w; };
struct float4 { float x, y, z, w; };
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
template <typename T> T __ldg(const T* from) {
    if (reinterpret_cast<std::uintptr_t>(from) % sizeof(T)) std::abort();  // as a GPU does
    return *from;
}

struct Warp {
    std::barrier<> lanes_meet{32};
    float values[32];
};
inline Warp warps[32];

inline float from_lane(float mine, int source) {
    Warp& warp = warps[threadIdx.x / 32];
    warp.values[threadIdx.x % 32] = mine;
    warp.lanes_meet.arrive_and_wait();
    const float theirs = warp.values[source];
    warp.lanes_meet.arrive_and_wait();
    return theirs;
}
inline float __shfl_down_sync(unsigned, float x, int hop, int width) {
    const int lane = threadIdx.x % 32;
    return from_lane(x, lane % width + hop < width ? lane + hop : lane);
}
inline float __shfl_sync(unsigned, float x, int source, int width) {
    return from_lane(x, threadIdx.x % 32 / width * width + source);
}
inline float __shfl_xor_sync(unsigned, float x, int mask) {
    return from_lane(x, threadIdx.x % 32 ^ mask);
}

inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
template <typename T> T __ldcg(const T* from) { return *from; }
inline int atomicAdd(int* at, int more) { return std::exchange(*at, *at + more); }
inline void __threadfence() {}
using std::min;
#define __shared__ static  // one block at a time

inline std::barrier<>* block_meets;
inline void __syncthreads() { block_meets->arrive_and_wait(); }

// Blocks from the last to the first: none may count on the order.
template <typename Kernel> void on_blocks(int blocks, int threads, Kernel kernel) {
    for (int block = blocks - 1; block >= 0; --block) {
        std::barrier<> meet(threads);
        block_meets = &meet;
        std::vector<std::thread> running;
        for (int thread = 0; thread < threads; ++thread)
            running.emplace_back([=] {
                blockIdx.x = block;
                threadIdx.x = thread;
                kernel();
            });
        for (auto& thread : running) thread.join();
    }
}

template <typename Kernel> void on_warps(int blocks, int threads, Kernel kernel) {
    for (int warp = 0; warp < blocks * threads / 32; ++warp) {
        std::vector<std::thread> lanes;
        for (int lane = 0; lane < 32; ++lane)
            lanes.emplace_back([=] {
                blockIdx.x = warp * 32 / threads;
                threadIdx.x = warp * 32 % threads + lane;
                kernel();
            });
        for (auto& lane : lanes) lane.join();
    }
}

#define __device__
#define __global__
#define __launch_bounds__(threads)
#define __forceinline__ inline
// the one instruction the kernels spell out: cvt.f32.f16
#define asm(...) y = float(std::bit_cast<_Float16>(x.bits))
