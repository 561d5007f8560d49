// Runs CUDA C++ on the host, a warp at a time, each lane a thread that waits for the others at each
// shuffle. Enough for kernels without shared memory or block-wide barriers; slow, and right.
#include <barrier>
#include <bit>
#include <cmath>
#include <thread>
#include <vector>

struct Dim { int x; };
inline thread_local Dim threadIdx, blockIdx;
struct uint2 { unsigned x, y; };
struct uint4 { unsigned x, y, z, w; };
struct float4 { float x, y, z, w; };
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
template <typename T> T __ldg(const T* from) { return *from; }

inline std::barrier<> lanes_meet(32);
inline float lane_values[32];

inline float from_lane(float mine, int source) {
    lane_values[threadIdx.x % 32] = mine;
    lanes_meet.arrive_and_wait();
    const float theirs = lane_values[source];
    lanes_meet.arrive_and_wait();
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
