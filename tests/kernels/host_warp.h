// Runs CUDA C++ on the host, one warp or one block at a time. Each lane is a thread that waits for
// the others at each shuffle and barrier. Slow but correct. Only C headers: those of C++ threads
// tripled the time to compile.
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

struct Dim { int x; };
inline thread_local Dim threadIdx, blockIdx;
struct uint2 { unsigned x, y; };
struct uint4 { unsigned x, y, z, w; };
struct float4 { float x, y, z, w; };
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline float __uint_as_float(unsigned bits) { return __builtin_bit_cast(float, bits); }
template <typename T> T __ldg(const T* from) {
    if ((uintptr_t)from % sizeof(T)) abort();  // as a GPU does
    return *from;
}

struct Meeting {
    pthread_barrier_t barrier;
    explicit Meeting(unsigned threads) { pthread_barrier_init(&barrier, nullptr, threads); }
    ~Meeting() { pthread_barrier_destroy(&barrier); }
    void wait() { pthread_barrier_wait(&barrier); }
};

struct Warp {
    Meeting lanes{32};
    float values[32];
};
inline Warp warps[32];

inline float from_lane(float mine, int source) {
    Warp& warp = warps[threadIdx.x / 32];
    warp.values[threadIdx.x % 32] = mine;
    warp.lanes.wait();
    const float theirs = warp.values[source];
    warp.lanes.wait();
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
inline int atomicAdd(int* at, int more) {
    const int before = *at;
    *at += more;
    return before;
}
inline void __threadfence() {}
template <typename T> T min(T a, T b) { return b < a ? b : a; }
#define __shared__ static  // one block at a time

inline Meeting* block_meeting;
inline void __syncthreads() { block_meeting->wait(); }

// One thread of the block: where it is, and what it runs.
template <typename Kernel> struct Thread {
    Kernel* kernel;
    Dim thread, block;
    pthread_t handle;
    static void* run(void* self) {
        const Thread& here = *(Thread*)self;
        threadIdx = here.thread;
        blockIdx = here.block;
        (*here.kernel)();
        return nullptr;
    }
};

// Runs `count` threads of a block, from `first` on.
template <typename Kernel> void run_threads(int block, int first, int count, Kernel& kernel) {
    Thread<Kernel> threads[1024];
    for (int i = 0; i < count; ++i) {
        threads[i] = {&kernel, {first + i}, {block}, {}};
        pthread_create(&threads[i].handle, nullptr, Thread<Kernel>::run, &threads[i]);
    }
    for (int i = 0; i < count; ++i) pthread_join(threads[i].handle, nullptr);
}

// Blocks run from the last to the first: none may rely on the order.
template <typename Kernel> void on_blocks(int blocks, int threads, Kernel kernel) {
    for (int block = blocks - 1; block >= 0; --block) {
        Meeting meeting(threads);
        block_meeting = &meeting;
        run_threads(block, 0, threads, kernel);
    }
}

template <typename Kernel> void on_warps(int blocks, int threads, Kernel kernel) {
    for (int warp = 0; warp < blocks * threads / 32; ++warp)
        run_threads(warp * 32 / threads, warp * 32 % threads, 32, kernel);
}

#define __device__
#define __global__
#define __launch_bounds__(threads)
#define __forceinline__ inline
// the only inline assembly in the kernels: cvt.f32.f16
#define asm(...) y = float(__builtin_bit_cast(_Float16, x.bits))
