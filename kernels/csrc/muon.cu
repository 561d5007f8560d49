// A step of Muon, each matrix by a cluster of eight blocks; kernels/muon.py has the definition.
//
// X is (128, columns): the short side of the matrix is padded. It is cut into eight strips of 16
// rows, and G and F = b G + c G G into 8 x 8 squares of 16 x 16. Both are symmetric, so strip i has
// only the squares (i, i), (i, i + 1) ... (i, i + 4), counted around: AROUND of them. The others
// are these, transposed.
//
// Each block keeps WIDTH columns of X in shared memory. Each of its warps multiplies one strip of
// them by the others, a part of G, and sends that to the block that sums this strip of G in
// float32. That block rounds it and sends it to all, and then its strip of F. The new X each block
// computes alone, for its columns.
//
// Copies between blocks are asynchronous and count bytes at a barrier of the receiver. Nothing else
// has to be awaited: who sends the next part of G has got all of the last one, so it was read.
//
// Compiled with -D for ELEMENT (bf16, f16 or f32, the gradients), WIDTH, COPIES (0 or 1), TRIPLES
// and SHARED_BYTES.

typedef long long i64;
typedef unsigned u32;
struct bf16 { unsigned short bits; };
struct f16 { unsigned short bits; };
typedef float f32;

constexpr int BLOCKS = 8;                  // of a cluster
constexpr int WARPS = 8;                   // of a block: one for each strip
constexpr int THREADS = 32 * WARPS;
constexpr int ROWS = 16 * WARPS;
constexpr int AROUND = WARPS / 2 + 1;
constexpr int X_ROW = WIDTH + 8;           // 8 more, so that ldmatrix meets each bank once
constexpr int PART = WIDTH % 48 == 0 ? 48 : WIDTH % 32 == 0 ? 32 : 16;  // columns of X at a time

__constant__ float FACTORS[][3] = TRIPLES;  // a, b and c of each step
constexpr int STEPS = sizeof(FACTORS) / sizeof(FACTORS[0]);

struct Entry {
    float* weight;
    const ELEMENT* gradient;
    float* momentum;
    bf16* copy;
    i64 rows, cols, first_tile;
};

typedef float4 Sums[AROUND][2][32];  // of a strip, as the lanes of a warp have them
typedef u32 Operand[4];  // A: 16 rows and 16 of the inner numbers; B: these 16 and 16 columns
// 16 x 16 numbers as 32 chunks of 16 bytes: half h of row r is chunk 2 r + (h ^ (r / 4 % 2)).
struct alignas(16) Square { bf16 numbers[16 * 16]; };

struct Settings { float lr, momentum, weight_decay, max_norm; };

struct Shared {
    Sums outbox[WARPS];
    Sums inbox[BLOCKS];
    Square g[WARPS][AROUND];
    Square factor[WARPS][AROUND];  // F
    bf16 x[2][ROWS][X_ROW];
    i64 sums_arrived, g_arrived, factor_arrived;  // barriers
    float squares[BLOCKS];
    float of_warp[WARPS];
};
static_assert(sizeof(Shared) <= SHARED_BYTES);

#ifndef ON_HOST  // tests compile this file for the host, with their own of these

// ---- blocks of a cluster

__device__ __forceinline__ u32 address_of(const void* shared) {
    return u32(__cvta_generic_to_shared(shared));
}
__device__ __forceinline__ void* own_memory() {
    extern __shared__ float4 memory[];
    return memory;
}
// The same place in the shared memory of another block.
__device__ __forceinline__ u32 in_block(u32 address, int block) {
    u32 there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(block));
    return there;
}
__device__ __forceinline__ int rank_in_cluster() {
    u32 rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return int(rank);
}
__device__ __forceinline__ void cluster_arrive() {
    __syncwarp();  // all lanes at once
    asm volatile("barrier.cluster.arrive.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
}
__device__ __forceinline__ void start_barrier(i64* barrier) {
    asm volatile("mbarrier.init.shared.b64 [%0], 1;\n"
                 "fence.mbarrier_init.release.cluster;" :: "r"(address_of(barrier)) : "memory");
}
__device__ __forceinline__ void expect(i64* barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;"
                 :: "r"(address_of(barrier)), "r"(bytes) : "memory");
}
__device__ __forceinline__ void await(i64* barrier, int phase) {
    u32 done = 0;
    while (!done)
        asm volatile("{.reg .pred p;\n"
                     "mbarrier.try_wait.parity.shared.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p;}"
                     : "=r"(done) : "r"(address_of(barrier)), "r"(phase) : "memory");
    __syncwarp();  // lanes may have seen it at different times
}
__device__ __forceinline__ void send(float* to, int block, float x) {
    asm volatile("st.shared::cluster.f32 [%0], %1;"
                 :: "r"(in_block(address_of(to), block)), "f"(x) : "memory");
}
// Before `copy` reads what this thread has written.
__device__ __forceinline__ void publish() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
// From our shared memory to that of a block, whose barrier counts the bytes.
__device__ __forceinline__ void copy(
    const void* to, int block, i64* barrier, const void* from, int bytes) {
    asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes"
                 " [%0], [%1], %2, [%3];"
                 :: "r"(in_block(address_of(to), block)), "r"(address_of(from)), "r"(bytes),
                    "r"(in_block(address_of(barrier), block)) : "memory");
}

// ---- numbers and products

__device__ __forceinline__ u32 rounded_pair(float low, float high) {
    u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}
__device__ __forceinline__ float widen(f16 x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
}

// Four 8 x 8 matrices; each lane gives the address of one row.
template <bool TRANSPOSED> __device__ __forceinline__ void load(Operand& to, const bf16* row) {
    if constexpr (TRANSPOSED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                     : "r"(address_of(row)) : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                     : "r"(address_of(row)) : "memory");
}
__device__ __forceinline__ void multiply(float (&sum)[2][4], const Operand& a, const Operand& b) {
#pragma unroll
    for (int half = 0; half < 2; ++half)
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3},"
            " {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(sum[half][0]), "+f"(sum[half][1]), "+f"(sum[half][2]), "+f"(sum[half][3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[2 * half]), "r"(b[2 * half + 1]));
}

#endif

// ---- numbers

__device__ __forceinline__ float low_of(u32 pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float high_of(u32 pair) { return __uint_as_float(pair & 0xFFFF0000); }
__device__ __forceinline__ u32& pair_at(bf16* at) { return *reinterpret_cast<u32*>(at); }

__device__ __forceinline__ void load_four(float (&to)[4], const f32* from) {
    const float4 four = *reinterpret_cast<const float4*>(from);
    to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
}
__device__ __forceinline__ void load_four(float (&to)[4], const bf16* from) {
    const uint2 four = *reinterpret_cast<const uint2*>(from);
    to[0] = low_of(four.x), to[1] = high_of(four.x);
    to[2] = low_of(four.y), to[3] = high_of(four.y);
}
__device__ __forceinline__ void load_four(float (&to)[4], const f16* from) {
    for (int i = 0; i < 4; ++i) to[i] = widen(from[i]);
}
__device__ __forceinline__ void store_four(float* to, const float (&four)[4]) {
    *reinterpret_cast<float4*>(to) = make_float4(four[0], four[1], four[2], four[3]);
}
__device__ __forceinline__ void store_four(bf16* to, const float (&four)[4]) {
    *reinterpret_cast<uint2*>(to) =
        make_uint2(rounded_pair(four[0], four[1]), rounded_pair(four[2], four[3]));
}

// The sum of `mine` over the block, always in the same order, for every thread.
__device__ __forceinline__ float block_sum(float mine, float* of_warp) {
    for (int apart = 16; apart > 0; apart /= 2) mine += __shfl_xor_sync(~0u, mine, apart);
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = mine;
    __syncthreads();
    float total = 0;
    for (int warp = 0; warp < WARPS; ++warp) total += of_warp[warp];
    return total;
}

// ---- products

// Which row and which half of it a lane gives to `load`. Matrices are first those below each other,
// then those beside them; or the reverse.
struct Corner { int row, half; };
__device__ __forceinline__ Corner downwards() {
    const int lane = threadIdx.x % 32;
    return {lane % 16, lane / 16};
}
__device__ __forceinline__ Corner sideways() {
    const int lane = threadIdx.x % 32;
    return {lane / 16 * 8 + lane % 8, lane / 8 % 2};
}
__device__ __forceinline__ const bf16* at(const Square& square, Corner corner) {
    return square.numbers + 8 * (2 * corner.row + (corner.half ^ (corner.row / 4 % 2)));
}

// Square (strip, strip + around) of a symmetric matrix, from where it or its mirror is: operand A
// with `here` downwards and `mirrored` sideways, B the reverse. `around` is a constant once loops
// are unrolled, or the same for a warp.
__device__ __forceinline__ void load_square(
    Operand& to, const Square (*squares)[AROUND], int strip, int around, Corner here,
    Corner mirrored) {
    if (around < AROUND)
        load<false>(to, at(squares[strip][around], here));
    else
        load<true>(to, at(squares[(strip + around) % WARPS][WARPS - around], mirrored));
}

// Stores a square of bf16 as operand A has it.
__device__ __forceinline__ void store(Square& to, const Operand& a) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int row = lane / 4 + i % 2 * 8;
        const int chunk = 2 * row + (i / 2 ^ (row / 4 % 2));
        pair_at(to.numbers + 8 * chunk + lane % 4 * 2) = a[i];
    }
}

// ---- a step

// Our part of G: a strip for each block.
__device__ __forceinline__ void send_products(Shared& shared, const bf16* x, int rank) {
    const int strip = threadIdx.x / 32, lane = threadIdx.x % 32;
    const Corner down = downwards(), side = sideways();
    float sum[AROUND][2][4] = {};
    const bf16* left = x + (16 * strip + down.row) * X_ROW + 8 * down.half;
#pragma unroll
    for (int k = 0; k < WIDTH; k += 16) {
        Operand a, b;
        load<false>(a, left + k);
#pragma unroll
        for (int around = 0; around < AROUND; ++around) {
            const int other = (strip + around) % WARPS;
            load<false>(b, x + (16 * other + side.row) * X_ROW + 8 * side.half + k);
            multiply(sum[around], a, b);
        }
    }
    Sums& box = strip == rank ? shared.inbox[rank] : shared.outbox[strip];
#pragma unroll
    for (int around = 0; around < AROUND; ++around)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float(&four)[4] = sum[around][half];
            box[around][half][lane] = make_float4(four[0], four[1], four[2], four[3]);
        }
    publish();
    __syncwarp();
    if (lane == 0 && strip != rank)
        copy(&shared.inbox[rank], strip, &shared.sums_arrived, &box, sizeof(Sums));
}

// To every other block what it lacks of a matrix: our strip.
__device__ __forceinline__ void send_strip(Square (*squares)[AROUND], int rank, i64* arrived) {
    publish();
    __syncthreads();
    if (threadIdx.x < BLOCKS && threadIdx.x != rank)
        copy(squares[rank], threadIdx.x, arrived, squares[rank], sizeof(Square[AROUND]));
    if (threadIdx.x == 0) expect(arrived, (BLOCKS - 1) * sizeof(Square[AROUND]));
}

// Our strip of G: the sum of all blocks' parts.
__device__ __forceinline__ void sum_strip(const Sums* parts, Square* strip) {
#pragma unroll 2
    for (int at = threadIdx.x; at < AROUND * 2 * 32; at += THREADS) {
        float4 total = (&parts[0][0][0][0])[at];
#pragma unroll
        for (int block = 1; block < BLOCKS; ++block) {
            const float4 part = (&parts[block][0][0][0])[at];
            total.x += part.x, total.y += part.y, total.z += part.z, total.w += part.w;
        }
        const int row = at % 32 / 4, half = at / 32 % 2;
        bf16* upper = strip[at / 64].numbers + 8 * (2 * row + (half ^ (row / 4))) + at % 4 * 2;
        pair_at(upper) = rounded_pair(total.x, total.y);
        pair_at(upper + 8 * 16) = rounded_pair(total.z, total.w);
    }
}

// Our strip of F: a warp for each square.
__device__ __forceinline__ void factor_strip(Shared& shared, int rank, float b, float c) {
    const int around = threadIdx.x / 32;
    if (around >= AROUND) return;
    const Corner down = downwards(), side = sideways();
    float square[2][4] = {};
    Operand left, right;
#pragma unroll
    for (int k = 0; k < WARPS; ++k) {
        const int other = (rank + around) % WARPS, from_other = (k + WARPS - around) % WARPS;
        load_square(left, shared.g, rank, k, down, side);
        load_square(right, shared.g, other, from_other, side, down);
        multiply(square, left, right);
    }
    load<false>(left, at(shared.g[rank][around], down));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const float* two = &square[i / 2][i % 2 * 2];
        left[i] = rounded_pair(b * low_of(left[i]) + c * two[0], b * high_of(left[i]) + c * two[1]);
    }
    store(shared.factor[rank][around], left);
}

// X <- a X + F X, from `x` to `next`.
__device__ __forceinline__ void improve(Shared& shared, float a, const bf16* x, bf16* next) {
    const int strip = threadIdx.x / 32, lane = threadIdx.x % 32;
    const Corner down = downwards(), side = sideways();
    Operand factor[WARPS];  // this warp's strip of F, counted around
#pragma unroll
    for (int k = 0; k < WARPS; ++k) load_square(factor[k], shared.factor, strip, k, down, side);
    const bf16* right = x + down.row * X_ROW + 8 * down.half;
    const int ours = (16 * strip + lane / 4) * X_ROW + lane % 4 * 2;  // the first of our numbers
#pragma unroll 1
    for (int start = 0; start < WIDTH; start += PART) {
        float sum[PART / 16][2][4];
#pragma unroll
        for (int column = 0; column < PART / 8; ++column) {
            const u32 above = pair_at(const_cast<bf16*>(x) + ours + start + 8 * column);
            const u32 below = pair_at(const_cast<bf16*>(x) + ours + start + 8 * column + 8 * X_ROW);
            float(&four)[4] = sum[column / 2][column % 2];
            four[0] = a * low_of(above), four[1] = a * high_of(above);
            four[2] = a * low_of(below), four[3] = a * high_of(below);
        }
#pragma unroll
        for (int k = 0; k < WARPS; ++k) {
            const bf16* row = right + (strip + k) % WARPS * 16 * X_ROW + start;
#pragma unroll
            for (int column = 0; column < PART / 16; ++column) {
                Operand other;
                load<true>(other, row + 16 * column);
                multiply(sum[column], factor[k], other);
            }
        }
#pragma unroll
        for (int column = 0; column < PART / 8; ++column) {
            const float(&four)[4] = sum[column / 2][column % 2];
            pair_at(next + ours + start + 8 * column) = rounded_pair(four[0], four[1]);
            pair_at(next + ours + start + 8 * column + 8 * X_ROW) = rounded_pair(four[2], four[3]);
        }
    }
    __syncthreads();
}

// ---- from the matrix to X and back

// What a block has of a matrix. Its thread has eight numbers in every 16 columns of X, as two times
// four neighbours in the matrix: of two columns of X if the matrix is TALL, else of two rows.
template <bool TALL> struct Slice {
    typedef float Fours[PART / 16][2][4];

    int cols;                  // of the matrix
    int rows, first, columns;  // of X: its rows, the first of our columns, how many are ours

    __device__ __forceinline__ int row() const {
        const int lane = threadIdx.x % 32;
        return threadIdx.x / 32 * 16 + (TALL ? lane / 8 * 4 : lane / 4 * 2);
    }
    __device__ __forceinline__ int column() const {
        return TALL ? threadIdx.x % 8 * 2 : threadIdx.x % 4 * 4;
    }
    // Where four numbers are in the matrix; negative if it has none there.
    __device__ __forceinline__ int place(int start, int second) const {
        const int r = TALL ? row() : row() + second, c = start + column() + (TALL ? second : 0);
        if (r >= rows || c >= columns) return -1;
        return TALL ? (first + c) * cols + r : r * cols + first + c;
    }
    // Pair i of X in 16 columns: number i of both fours if TALL, else two neighbours.
    __device__ __forceinline__ u32& pair(bf16* x, int start, int i) const {
        const int r = row() + (TALL ? i : i / 2), c = column() + (TALL ? 0 : i % 2 * 2);
        return pair_at(x + r * X_ROW + start + c);
    }
    __device__ static __forceinline__ float& low(float (&fours)[2][4], int i) {
        return TALL ? fours[0][i] : fours[i / 2][i % 2 * 2];
    }
    __device__ static __forceinline__ float& high(float (&fours)[2][4], int i) {
        return TALL ? fours[1][i] : fours[i / 2][i % 2 * 2 + 1];
    }
    template <typename Element>
    __device__ __forceinline__ void load(Fours& to, const Element* from, int start) const {
#pragma unroll
        for (int i = 0; i < PART / 8; ++i) {
            const int at = place(start + i / 2 * 16, i % 2);
            float(&four)[4] = to[i / 2][i % 2];
            four[0] = four[1] = four[2] = four[3] = 0;
            if (at >= 0) load_four(four, from + at);
        }
    }
    template <typename Element>
    __device__ __forceinline__ void store(Element* to, const Fours& from, int start) const {
#pragma unroll
        for (int i = 0; i < PART / 8; ++i) {
            const int at = place(start + i / 2 * 16, i % 2);
            if (at >= 0) store_four(to + at, from[i / 2][i % 2]);
        }
    }

    // Steps the momentum and makes X of it, not yet divided. The sum of its squares.
    __device__ __forceinline__ float begin(
        const Entry& entry, float scale, float mu, bf16* x) const {
        float square = 0;
#pragma unroll 1
        for (int start = 0; start < WIDTH; start += PART) {
            Fours u, momentum;
            load(u, entry.gradient, start);
            load(momentum, entry.momentum, start);
#pragma unroll
            for (int i = 0; i < PART / 2; ++i) {
                float& gradient = u[i / 8][i / 4 % 2][i % 4];
                float& m = momentum[i / 8][i / 4 % 2][i % 4];
                gradient *= scale;
                m = mu * m + gradient;
                gradient += mu * m;
            }
            store(entry.momentum, momentum, start);
#pragma unroll
            for (int i = 0; i < PART / 4; ++i) {
                const u32 two = rounded_pair(low(u[i / 4], i % 4), high(u[i / 4], i % 4));
                pair(x, start + i / 4 * 16, i % 4) = two;
                square += low_of(two) * low_of(two) + high_of(two) * high_of(two);
            }
        }
        return square;
    }
    __device__ __forceinline__ void divide(bf16* x, float norm) const {
        const float inverse = 1 / norm;
#pragma unroll 1
        for (int start = 0; start < WIDTH; start += PART)
#pragma unroll
            for (int i = 0; i < PART / 4; ++i) {
                u32& two = pair(x, start + i / 4 * 16, i % 4);
                two = rounded_pair(low_of(two) * inverse, high_of(two) * inverse);
            }
    }
    // Steps the weights by X.
    __device__ __forceinline__ void end(
        const Entry& entry, const Settings& settings, bf16* x) const {
        const float lr = settings.lr, kept = 1 - lr * settings.weight_decay;
        const float rate = TALL ? lr * sqrtf(float(entry.rows) / float(entry.cols)) : lr;
#pragma unroll 1
        for (int start = 0; start < WIDTH; start += PART) {
            Fours weight;
            load(weight, entry.weight, start);
#pragma unroll
            for (int i = 0; i < PART / 4; ++i) {
                const u32 two = pair(x, start + i / 4 * 16, i % 4);
                float &l = low(weight[i / 4], i % 4), &h = high(weight[i / 4], i % 4);
                l = l * kept - rate * low_of(two);
                h = h * kept - rate * high_of(two);
            }
            store(entry.weight, weight, start);
            if (COPIES) store(entry.copy, weight, start);
        }
    }
};

__device__ __forceinline__ float clip_scale(
    const float* squares, int count, float max_norm, float* of_warp) {
    float mine = 0;
#pragma unroll 1
    for (int at = threadIdx.x; at < count; at += THREADS) mine += squares[at];
    const float scale = max_norm / (sqrtf(block_sum(mine, of_warp)) + 1e-6f);
    return scale > 1 ? 1 : scale;  // NaN stays NaN
}

// Five steps, from X to X.
__device__ __forceinline__ bf16* orthogonalise(Shared& shared, int rank) {
    bf16* x = &shared.x[0][0][0];
    bf16* next = &shared.x[1][0][0];
#pragma unroll 1
    for (int step = 0; step < STEPS; ++step) {
        send_products(shared, x, rank);
        if (threadIdx.x == 0) expect(&shared.sums_arrived, (BLOCKS - 1) * sizeof(Sums));
        await(&shared.sums_arrived, step % 2);
        __syncthreads();  // our own part, too
        sum_strip(shared.inbox, shared.g[rank]);
        send_strip(shared.g, rank, &shared.g_arrived);
        await(&shared.g_arrived, step % 2);
        factor_strip(shared, rank, FACTORS[step][1], FACTORS[step][2]);
        send_strip(shared.factor, rank, &shared.factor_arrived);
        await(&shared.factor_arrived, step % 2);
        improve(shared, FACTORS[step][0], x, next);
        bf16* old = x;
        x = next, next = old;
    }
    return x;
}

template <bool TALL>
__device__ __forceinline__ void step_matrix(
    Shared& shared, const Entry& entry, const float* squares, int count, const Settings& settings) {
    const int rank = rank_in_cluster();
    const int longer = int(TALL ? entry.rows : entry.cols);
    const int each = ((longer + BLOCKS - 1) / BLOCKS + 15) / 16 * 16;
    const Slice<TALL> slice = {int(entry.cols), int(TALL ? entry.cols : entry.rows), rank * each,
                               max(0, min(each, longer - rank * each))};
    bf16* x = &shared.x[0][0][0];
    const float scale = clip_scale(squares, count, settings.max_norm, shared.of_warp);
    const float square = slice.begin(entry, scale, settings.momentum, x);
    __syncthreads();  // everyone has read `of_warp`
    const float ours = block_sum(square, shared.of_warp);
    cluster_wait();  // every block has begun: its memory is there
    if (threadIdx.x < BLOCKS) send(&shared.squares[rank], threadIdx.x, ours);
    cluster_arrive();
    cluster_wait();
    float total = 0;
    for (int block = 0; block < BLOCKS; ++block) total += shared.squares[block];
    const float norm = sqrtf(total);
    slice.divide(x, norm < 1e-7f ? 1e-7f : norm);  // NaN stays NaN
    __syncthreads();
    x = orthogonalise(shared, rank);
    cluster_arrive();  // all has been received
    slice.end(entry, settings, x);
    cluster_wait();  // no block may leave while its memory is still copied
}

extern "C" __global__ void __cluster_dims__(BLOCKS, 1, 1) __launch_bounds__(THREADS, 1)
    muon(const Entry* entries, const float* squares, const float* lr, int count, int momentum,
         int weight_decay, int max_norm) {
    Shared& shared = *static_cast<Shared*>(own_memory());
    if (threadIdx.x == 0) {
        start_barrier(&shared.sums_arrived);
        start_barrier(&shared.g_arrived);
        start_barrier(&shared.factor_arrived);
    }
    cluster_arrive();
    const Entry entry = entries[blockIdx.x / BLOCKS];
    // an address from a table could be of any memory: the compiler would not take the faster loads
    __builtin_assume(__isGlobal(entry.weight));
    __builtin_assume(__isGlobal(entry.gradient));
    __builtin_assume(__isGlobal(entry.momentum));
    __builtin_assume(__isGlobal(entry.copy));
    const Settings settings = {*lr, __int_as_float(momentum), __int_as_float(weight_decay),
                               __int_as_float(max_norm)};
    if (entry.rows > entry.cols)
        step_matrix<true>(shared, entry, squares, count, settings);
    else
        step_matrix<false>(shared, entry, squares, count, settings);
}
