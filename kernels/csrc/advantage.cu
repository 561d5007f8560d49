// Generalized advantage estimation with V-trace clipping; kernels/advantage.py has the equation.
//
// LANES lanes of one warp own a row and process it from its end in tiles of LANES * CHUNK steps,
// usually one tile. Each lane holds CHUNK steps in registers, loaded WIDTH at a time, and gets the
// values right of its chunk from its neighbour by shuffle. A[t] = delta[t] + keep[t] A[t+1] is an
// affine map of A[t+1]: a lane composes its CHUNK maps into one, log2(LANES) shuffles compose the
// maps of the lanes to its right, and then it knows the A that enters its chunk and goes over the
// chunk once more.
//
// Compiled with -D for VALUES REWARDS DONE RATIO (element types), BOOTSTRAP where it is given, LANES, CHUNK, WIDTH (steps per
// load; divides both CHUNK and the row), THREADS, GAMMA, GAMMA_LAMBDA, RHO_CLIP, C_CLIP.

struct bf16 { unsigned short bits; };
struct f16 { unsigned short bits; };
typedef float f32;
typedef unsigned char u8;

__device__ __forceinline__ float widen(f32 x) { return x; }
__device__ __forceinline__ float widen(u8 x) { return x; }
__device__ __forceinline__ float widen(bf16 x) { return __uint_as_float(unsigned(x.bits) << 16); }
__device__ __forceinline__ float widen(f16 x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
}

template <int BYTES> struct Word;
template <> struct Word<1> { typedef unsigned char type; };
template <> struct Word<2> { typedef unsigned short type; };
template <> struct Word<4> { typedef unsigned int type; };
template <> struct Word<8> { typedef uint2 type; };
template <> struct Word<16> { typedef uint4 type; };

template <typename T> struct Vector {
    static constexpr int SIZE = WIDTH * sizeof(T) <= 16 ? WIDTH : 16 / sizeof(T);
    typedef typename Word<SIZE * sizeof(T)>::type Bits;
    union { Bits bits; T items[SIZE]; };
    __device__ __forceinline__ Vector() {}
};

// Steps [start, start + CHUNK) of a row; zeros past its end.
template <typename T>
__device__ __forceinline__ void load(float* chunk, const T* row, int start, int steps) {
    typedef Vector<T> V;
#pragma unroll
    for (int i = 0; i < CHUNK; i += V::SIZE) {
        V vector;
        vector.bits = typename V::Bits();
        if (start + i < steps)
            vector.bits = __ldg(reinterpret_cast<const typename V::Bits*>(row + start + i));
#pragma unroll
        for (int j = 0; j < V::SIZE; ++j) chunk[i + j] = widen(vector.items[j]);
    }
}

__device__ __forceinline__ void store4(float* row, int t, int steps, const float* a) {
    if (t < steps) *reinterpret_cast<float4*>(row + t) = make_float4(a[0], a[1], a[2], a[3]);
}

__device__ __forceinline__ void store(const float* a, float* row, int start, int steps) {
#if CHUNK == 8 && WIDTH == 8 && LANES > 1
    // Lanes 2k and 2k+1 swap halves, so that the 16-byte stores of a pair fill 32-byte sectors.
    const bool odd = threadIdx.x & 1;
    float first[4], second[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        const float other = __shfl_xor_sync(~0u, odd ? a[j] : a[4 + j], 1);
        first[j] = odd ? other : a[j];
        second[j] = odd ? a[4 + j] : other;
    }
    const int t = odd ? start - 4 : start;
    store4(row, t, steps, first);
    store4(row, t + 8, steps, second);
#else
    constexpr int STORED = WIDTH < 4 ? 1 : 4;
#pragma unroll
    for (int i = 0; i < CHUNK; i += STORED) {
        if (STORED == 4) store4(row, start + i, steps, a + i);
        else if (start + i < steps) row[start + i] = a[i];
    }
#endif
}

// Minimum that keeps a NaN; fminf drops it.
__device__ __forceinline__ float clip(float x, float high) { return x > high ? high : x; }

// The right neighbour's x; `beyond` for the last lane of the group.
__device__ __forceinline__ float from_right(float x, float beyond) {
    const float right = __shfl_down_sync(~0u, x, 1, LANES);
    return threadIdx.x % LANES == LANES - 1 ? beyond : right;
}

extern "C" __global__ void __launch_bounds__(THREADS)
advantage(const VALUES* __restrict__ values, const REWARDS* __restrict__ rewards,
          const DONE* __restrict__ done, const RATIO* __restrict__ ratio,
#ifdef BOOTSTRAP
          const BOOTSTRAP* __restrict__ bootstrap,
#endif
          float* __restrict__ out, int rows, int steps) {
    const int lane = threadIdx.x % LANES;
    const long long row = (long long)blockIdx.x * (THREADS / LANES) + threadIdx.x / LANES;
    // Shuffles need whole warps, so a group past the last row reads row 0 and stores nothing.
    const bool live = row < rows;
    const long long base = live ? row * steps : 0;

    float beyond_a = 0.f, beyond_v = 0.f, beyond_r = 0.f, beyond_d = 0.f;
#ifdef BOOTSTRAP
    float beyond_b = 0.f;
#endif
#pragma unroll 1
    for (int tile = (steps - 1) / (LANES * CHUNK) * (LANES * CHUNK); tile >= 0;
         tile -= LANES * CHUNK) {
        const int start = tile + lane * CHUNK;
        float v[CHUNK + 1], r[CHUNK + 1], d[CHUNK + 1], q[CHUNK];
        load(v, values + base, start, steps);
        load(r, rewards + base, start, steps);
        load(d, done + base, start, steps);
        load(q, ratio + base, start, steps);
        v[CHUNK] = from_right(v[0], beyond_v);
        r[CHUNK] = from_right(r[0], beyond_r);
        d[CHUNK] = from_right(d[0], beyond_d);
#ifdef BOOTSTRAP
        float b[CHUNK + 1];
        load(b, bootstrap + base, start, steps);
        b[CHUNK] = from_right(b[0], beyond_b);
#endif

        float delta[CHUNK], keep[CHUNK];
        float slope = 1.f, offset = 0.f;
#pragma unroll
        for (int i = CHUNK - 1; i >= 0; --i) {
            const bool inside = start + i < steps - 1;  // A is 0 from the row's last step on
            const float n = 1.f - d[i + 1];
            float received = fmaf(GAMMA * n, v[i + 1], r[i + 1]);
#ifdef BOOTSTRAP
            received = fmaf(GAMMA * d[i + 1], b[i + 1], received);
#endif
            const float surprise = received - v[i];
            delta[i] = inside ? clip(q[i], RHO_CLIP) * surprise : 0.f;
            keep[i] = inside ? GAMMA_LAMBDA * n * clip(q[i], C_CLIP) : 0.f;
            offset = fmaf(keep[i], offset, delta[i]);
            slope *= keep[i];
        }
#pragma unroll
        for (int hop = 1; hop < LANES; hop *= 2) {
            const float right_slope = __shfl_down_sync(~0u, slope, hop, LANES);
            const float right_offset = __shfl_down_sync(~0u, offset, hop, LANES);
            if (lane + hop < LANES) {
                offset = fmaf(slope, right_offset, offset);
                slope *= right_slope;
            }
        }
        float a[CHUNK];
        float next = from_right(fmaf(slope, beyond_a, offset), beyond_a);
#pragma unroll
        for (int i = CHUNK - 1; i >= 0; --i) a[i] = next = fmaf(keep[i], next, delta[i]);
        store(a, out + base, start, live ? steps : 0);

        beyond_a = __shfl_sync(~0u, a[0], 0, LANES);
        beyond_v = __shfl_sync(~0u, v[0], 0, LANES);
        beyond_r = __shfl_sync(~0u, r[0], 0, LANES);
        beyond_d = __shfl_sync(~0u, d[0], 0, LANES);
#ifdef BOOTSTRAP
        beyond_b = __shfl_sync(~0u, b[0], 0, LANES);
#endif
    }
}
