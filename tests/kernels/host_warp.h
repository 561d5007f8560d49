// Runs CUDA C++ on the host. A thread of the GPU is a fiber here: it runs until it waits for others. All
// fibers are in one thread of the host, so a result never depends on its timing. Which warp goes on
// next is drawn from a fixed sequence of random numbers; it goes as far as it can, which is what code
// without a necessary barrier does not survive.
//
// A mistake ends the launch and leaves a message in `host_fault`. Only C headers: those of C++ tripled
// the time to compile.
#include <math.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

// ---- types and functions of CUDA

struct Dim { int x; };
static Dim threadIdx, blockIdx;
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(16) float4 { float x, y, z, w; };
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline float __uint_as_float(unsigned bits) { return __builtin_bit_cast(float, bits); }
inline float __int_as_float(int bits) { return __builtin_bit_cast(float, bits); }
template <typename T> T min(T a, T b) { return b < a ? b : a; }
template <typename T> T max(T a, T b) { return a < b ? b : a; }
static void fail(const char* message);
template <typename T> T __ldg(const T* from) {
    if ((uintptr_t)from % sizeof(T)) fail("misaligned address");  // as on a GPU
    return *from;
}
template <typename T> T __ldcg(const T* from) { return *from; }
inline int atomicAdd(int* at, int more) {
    const int before = *at;
    *at += more;
    return before;
}
inline void __threadfence() {}

// ---- fibers

// Not a multiple of 4 KiB, so that the stacks of a warp do not meet in the same lines of a cache.
constexpr int STACK_BYTES = 48 * 1024 + 320;

struct Fiber {
    ucontext_t start;
    jmp_buf here;  // switches without system calls, unlike ucontext_t
    Dim thread, block;
    bool begun, done, arrived;
    unsigned round;  // of the cluster's barrier, at which it arrived
    const char* awaits;
};

// Where `of` fibers wait for each other.
struct Meeting {
    int arrived;
    unsigned round;
    void arrive(int of) {
        if (++arrived < of) return;
        arrived = 0;
        ++round;
    }
};

struct Warp {
    Meeting meeting;
    const char* operation;
    void* lanes[32];  // what they gave to it
};

extern "C" char host_fault[200];
char host_fault[200];

static Fiber* fibers;
static Fiber* self;  // null in the scheduler
static Warp* warps;
static Meeting* block_meetings;
static jmp_buf scheduler;
static int fiber_count, block_threads;
static long progress;
static void (*kernel_call)(void*);
static void* kernel_self;

static unsigned random_below(unsigned limit) {
    static uint64_t state = 1;
    state = state * 6364136223846793005 + 1442695040888963407;
    return unsigned(state >> 33) % limit;
}

[[gnu::noinline]] static void fail(const char* message) {
    if (!host_fault[0] && self)
        snprintf(host_fault, sizeof host_fault, "thread %d of block %d: %s", threadIdx.x, blockIdx.x, message);
    else if (!host_fault[0])
        snprintf(host_fault, sizeof host_fault, "%s", message);
    if (self) _longjmp(scheduler, 1);
}

// With -fsanitize=alignment,bounds g++ checks each address and index and calls these.
extern "C" void __ubsan_handle_type_mismatch_v1_abort(void*, void*) {
    fail("misaligned address");
    abort();
}
extern "C" void __ubsan_handle_out_of_bounds_abort(void*, void*) {
    fail("index out of bounds");
    abort();
}

[[gnu::noinline]] static void yield() {
    if (!_setjmp(self->here)) _longjmp(scheduler, 1);
}
template <typename Ready> void wait_until(const char* awaits, Ready ready) {
    self->awaits = awaits;
    while (!ready()) yield();
    ++progress;
}
inline void meet(Meeting& meeting, int of, const char* awaits) {
    const unsigned round = meeting.round;
    meeting.arrive(of);
    wait_until(awaits, [&] { return meeting.round != round; });
}

static void begin_fiber() {
    kernel_call(kernel_self);
    self->done = true;
    ++progress;
    _longjmp(scheduler, 1);
}
[[gnu::noinline]] static void resume(Fiber& fiber) {
    self = &fiber;
    threadIdx = fiber.thread;
    blockIdx = fiber.block;
    if (_setjmp(scheduler)) {
        self = nullptr;
        return;
    }
    if (fiber.begun) _longjmp(fiber.here, 1);
    fiber.begun = true;
    setcontext(&fiber.start);
}

// Lets a warp run until each of its lanes waits for other warps. True if it is done.
static bool run_warp(Fiber* lanes) {
    long before;
    bool done;
    do {
        before = progress;
        done = true;
        const int flip = random_below(2) * 31;  // the first lane or the last one first
        for (int i = 0; i < 32; ++i) {
            Fiber& lane = lanes[i ^ flip];
            if (!lane.done) resume(lane);
            if (host_fault[0]) return true;
            done &= lane.done;
        }
    } while (progress != before);
    return done;
}

// Runs all fibers. When all wait, `deliver` may do something that they wait for.
static void run_fibers(bool (*deliver)()) {
    const int warp_count = fiber_count / 32;
    int* order = (int*)calloc(warp_count, sizeof(int));
    for (bool done = false; !done && !host_fault[0];) {
        const long before = progress;
        done = true;
        for (int i = 0; i < warp_count; ++i) {
            const int other = random_below(i + 1);
            order[i] = order[other];
            order[other] = i;
        }
        for (int i = 0; i < warp_count && !host_fault[0]; ++i) done &= run_warp(fibers + 32 * order[i]);
        if (done || progress != before || (deliver && deliver())) continue;
        Fiber* stuck = fibers;
        while (stuck->done) ++stuck;
        snprintf(host_fault, sizeof host_fault, "all threads wait: thread %d of block %d for %s",
                 stuck->thread.x, stuck->block.x, stuck->awaits);
    }
    free(order);
}

// Runs `count` blocks at once, from `first` on.
template <typename Kernel>
void run_blocks(int first, int count, int threads, Kernel& kernel, bool (*deliver)() = nullptr) {
    fiber_count = count * threads;
    block_threads = threads;
    kernel_self = &kernel;
    kernel_call = [](void* it) { (*(Kernel*)it)(); };
    fibers = (Fiber*)calloc(fiber_count, sizeof(Fiber));
    warps = (Warp*)calloc(fiber_count / 32, sizeof(Warp));
    block_meetings = (Meeting*)calloc(count, sizeof(Meeting));
    const size_t size = size_t(STACK_BYTES) * fiber_count;
    char* stacks = (char*)mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < fiber_count; ++i) {
        Fiber& fiber = fibers[i];
        getcontext(&fiber.start);
        fiber.start.uc_stack.ss_sp = stacks + size_t(STACK_BYTES) * i;
        fiber.start.uc_stack.ss_size = STACK_BYTES;
        makecontext(&fiber.start, begin_fiber, 0);
        fiber.thread.x = i % threads;
        fiber.block.x = first + i / threads;
    }
    run_fibers(deliver);
    munmap(stacks, size);
    free(block_meetings);
    free(warps);
    free(fibers);
}

// Blocks run from the last to the first: none may rely on the order.
template <typename Kernel> void on_blocks(int blocks, int threads, Kernel kernel) {
    for (int block = blocks - 1; block >= 0 && !host_fault[0]; --block) run_blocks(block, 1, threads, kernel);
}

// ---- what threads do together

// The last lane of a warp to come here computes for all of them.
template <typename Compute> void together(const char* operation, void* mine, Compute compute) {
    Warp& warp = warps[(self - fibers) / 32];
    if (warp.meeting.arrived > 0 && warp.operation != operation) fail("lanes of a warp do different things");
    warp.operation = operation;
    warp.lanes[threadIdx.x % 32] = mine;
    if (warp.meeting.arrived == 31) compute(warp.lanes);
    meet(warp.meeting, 32, operation);
}
inline void __syncwarp() {
    together("__syncwarp", nullptr, [](void**) {});
}
inline void __syncthreads() {
    meet(block_meetings[(self - fibers) / block_threads], block_threads, "__syncthreads");
}

struct Shuffled { float mine, theirs; int source; };
inline float from_lane(float mine, int source) {
    Shuffled shuffled = {mine, 0, source};
    together("a shuffle", &shuffled, [](void** lanes) {
        for (int lane = 0; lane < 32; ++lane) {
            Shuffled& to = *(Shuffled*)lanes[lane];
            to.theirs = ((Shuffled*)lanes[to.source])->mine;
        }
    });
    return shuffled.theirs;
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

#define __shared__ static  // one block at a time
#define __constant__ static const
#define __device__
#define __global__
#define __launch_bounds__(...)
#define __forceinline__ inline
#define __builtin_assume(condition)
// the only inline assembly that is compiled for the host: cvt.f32.f16
#define asm(...) y = float(__builtin_bit_cast(_Float16, x.bits))
