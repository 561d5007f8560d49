// The sums of many tensors; kernels/sum_many.py describes the table and the plan.
//
// A block of THREADS sums a chunk of CHUNK_BYTES with LOADS 16-byte loads per thread. The compiler
// issues four at a time to stay within 32 registers (16 blocks per SM). The last block of a tensor
// to finish adds the partial sums in order.
//
// Compiled with -D for ELEMENT (bf16, f16 or f32), CHUNK_BYTES, THREADS.

typedef long long i64;
struct bf16 { unsigned short bits; };
struct f16 { unsigned short bits; };
typedef float f32;

__device__ __forceinline__ float widen(f32 x) { return x; }
__device__ __forceinline__ float widen(bf16 x) { return __uint_as_float(unsigned(x.bits) << 16); }
__device__ __forceinline__ float widen(f16 x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
}

constexpr int SIZE = sizeof(ELEMENT);
constexpr int LANES = 16 / SIZE;
constexpr int CHUNK = CHUNK_BYTES / SIZE;
constexpr int LOADS = CHUNK_BYTES / (16 * THREADS);
constexpr int WARPS = THREADS / 32;

union Word {
    uint4 bits;
    ELEMENT elements[LANES];
};

struct Entry {
    i64 address, size, tensor, first;
};

// The sum of `mine` over the block, always in the same order; only thread 0 gets it.
__device__ __forceinline__ float block_sum(float mine) {
    __shared__ float of_warp[WARPS];
    for (int apart = 16; apart > 0; apart /= 2) mine += __shfl_xor_sync(~0u, mine, apart);
    __syncthreads();  // thread 0 may still be reading the values of an earlier call
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = mine;
    __syncthreads();
    float total = 0;
    if (threadIdx.x == 0)
        for (int warp = 0; warp < WARPS; ++warp) total += of_warp[warp];
    return total;
}

__device__ __forceinline__ float chunk_sum(const char* address, int here) {
    const int to_aligned = int(-reinterpret_cast<i64>(address) & 15) / SIZE;
    const int before = min(to_aligned, here);
    const int words = (here - before) / LANES;
    const uint4* aligned = reinterpret_cast<const uint4*>(address + before * SIZE);
    Word word[LOADS];
#pragma unroll
    for (int k = 0; k < LOADS; ++k) {
        const int at = k * THREADS + threadIdx.x;
        word[k].bits = at < words ? __ldg(aligned + at) : make_uint4(0, 0, 0, 0);
    }
    float sum = 0;
    const int edge = threadIdx.x;  // first the elements before the aligned words, then those after
    const int inside = words * LANES;
    if (edge < here - inside) {
        const ELEMENT* elements = reinterpret_cast<const ELEMENT*>(address);
        sum = widen(elements[edge < before ? edge : edge + inside]);
    }
#pragma unroll
    for (int k = 0; k < LOADS; ++k)
#pragma unroll
        for (int lane = 0; lane < LANES; ++lane) sum += widen(word[k].elements[lane]);
    return sum;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    sum_many(const Entry* entries, float* partials, int* arrived, float* sums) {
    const i64 chunk = blockIdx.x;
    const Entry entry = entries[chunk];
    const i64 begin = (chunk - entry.first) * CHUNK;
    const int here = int(min(entry.size - begin, i64(CHUNK)));
    const char* address = reinterpret_cast<const char*>(entry.address + begin * SIZE);
    const float total = block_sum(chunk_sum(address, here));

    const i64 chunks = (entry.size + CHUNK - 1) / CHUNK;
    if (chunks <= 1) {
        if (threadIdx.x == 0) sums[entry.tensor] = total;
        return;
    }
    __shared__ bool last;
    if (threadIdx.x == 0) {
        partials[chunk] = total;
        __threadfence();  // the sum must be visible before the count
        last = atomicAdd(arrived + entry.tensor, 1) == chunks - 1;
        __threadfence();  // and no sum may be read before it
    }
    __syncthreads();
    if (!last) return;
    float mine = 0;
    for (i64 part = threadIdx.x; part < chunks; part += THREADS)
        mine += __ldcg(partials + entry.first + part);
    const float all = block_sum(mine);
    if (threadIdx.x == 0) {
        sums[entry.tensor] = all;
        arrived[entry.tensor] = 0;
    }
}
