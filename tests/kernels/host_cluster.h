// What muon.cu leaves to the host: blocks of a cluster, which run together, copies between them, and products
// of a warp, laid out as the PTX ISA has them (ldmatrix, mma.m16n8k16, mbarrier, cp.async.bulk).
//
// Shared memory is NaN at first. Half of the copies happen at once, the others when all threads wait: both
// are possible on a GPU.
#include "host_warp.h"
#define ON_HOST
#define __cluster_dims__(...)

struct Copy {
    char* to;
    const char* from;
    int bytes, to_block, from_block;
    long long* barrier;
};

static char* cluster_memory;  // that of its blocks, one after the other
static int cluster_blocks, memory_bytes, late_count;
static Meeting cluster_meeting;
static Copy late[1024];

// ---- blocks

inline int rank_in_cluster() { return int(self - fibers) / block_threads; }
inline char* memory_of(int block) { return cluster_memory + size_t(memory_bytes) * block; }
inline void* own_memory() { return memory_of(rank_in_cluster()); }

inline void require_shared(const void* own, int bytes, int alignment) {
    const intptr_t at = (const char*)own - (const char*)own_memory();
    if (at < 0 || at + bytes > memory_bytes) fail("outside of the shared memory");
    if (at % alignment) fail("misaligned shared address");
}
// A block has memory from its first thread's begin to its last thread's end.
static void require_running(int block) {
    if (block < 0 || block >= cluster_blocks) fail("no such block in the cluster");
    bool begun = false, done = true;
    for (Fiber* fiber = fibers + block * block_threads; fiber < fibers + (block + 1) * block_threads; ++fiber) {
        begun |= fiber->begun;
        done &= fiber->done;
    }
    if (!begun || done) fail(done ? "a block is written or read after its end" : "a block has not begun");
}
// The same place in another block.
inline void* in_block(const void* own, int block) {
    require_running(block);
    return memory_of(block) + ((const char*)own - (const char*)own_memory());
}

inline void cluster_arrive() {
    if (self->arrived) fail("arrives twice at the cluster's barrier");
    self->arrived = true;
    self->round = cluster_meeting.round;
    cluster_meeting.arrive(fiber_count);
}
inline void cluster_wait() {
    if (!self->arrived) fail("waits at the cluster's barrier without arriving");
    wait_until("the cluster", [] { return cluster_meeting.round != self->round; });
    self->arrived = false;
}

// ---- copies

// A barrier of one arrival, as its 64 bits are used here.
struct Counter { int missing; short arrivals, phase; };
inline Counter& counter_at(long long* barrier) {
    Counter& counter = *(Counter*)barrier;
    if (counter.phase < 0) fail("the barrier was not started");
    return counter;
}
inline void settle(Counter& counter) {
    if (counter.arrivals) return;
    if (counter.missing < 0) fail("more bytes arrive than are expected");
    if (counter.missing == 0) counter = {0, 1, short(1 - counter.phase)};
}
inline void start_barrier(long long* barrier) {
    require_shared(barrier, 8, 8);
    *(Counter*)barrier = {0, 1, 0};
}
inline void expect(long long* barrier, int bytes) {
    Counter& counter = counter_at(barrier);
    if (!counter.arrivals) fail("expects twice in a phase");
    counter.missing += bytes;
    counter.arrivals = 0;
    settle(counter);
}
inline void await(long long* barrier, int phase) {
    wait_until("bytes at a barrier", [=] { return counter_at(barrier).phase != phase; });
}

static void perform(const Copy& copy) {
    require_running(copy.to_block);
    require_running(copy.from_block);
    memcpy(copy.to, copy.from, copy.bytes);
    Counter& counter = counter_at(copy.barrier);
    counter.missing -= copy.bytes;
    settle(counter);
}
// Any one of the late copies.
static bool deliver() {
    if (!late_count) return false;
    Copy& any = late[random_below(late_count)];
    perform(any);
    any = late[--late_count];
    return true;
}
inline void publish() {}
inline void copy(const void* to, int block, long long* barrier, const void* from, int bytes) {
    require_shared(to, bytes, 16);
    require_shared(from, bytes, 16);
    require_shared(barrier, 8, 8);
    if (bytes % 16) fail("copies a part of 16 bytes");
    const Copy made = {(char*)in_block(to, block), (const char*)from, bytes, block, rank_in_cluster(),
                       (long long*)in_block(barrier, block)};
    if (late_count == 1024 || random_below(2)) perform(made);
    else late[late_count++] = made;
}
inline void send(float* to, int block, float x) {
    require_shared(to, 4, 4);
    *(float*)in_block(to, block) = x;
}

// ---- numbers and products

inline unsigned rounded(float x) {
    const unsigned bits = __builtin_bit_cast(unsigned, x);
    return x != x ? 0x7FFF : (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
}
inline unsigned rounded_pair(float low, float high) { return rounded(low) | rounded(high) << 16; }
template <typename Half> float widen(Half x) { return float(__builtin_bit_cast(_Float16, x.bits)); }

// Half 0 or 1 of a pair of bf16.
inline float part_of(unsigned pair, int half) { return __uint_as_float(pair >> 16 * half << 16); }

struct Load { unsigned* to; const unsigned short* row; };
template <bool TRANSPOSED, typename Number> void load(unsigned (&to)[4], const Number* row) {
    require_shared(row, 16, 16);
    Load mine = {to, (const unsigned short*)row};
    together(TRANSPOSED ? "ldmatrix.trans" : "ldmatrix", &mine, [](void** lanes) {
        const auto element = [=](int matrix, int row, int column) -> unsigned {
            return ((Load*)lanes[8 * matrix + row])->row[column];
        };
        for (int lane = 0; lane < 32; ++lane)
            for (int i = 0; i < 4; ++i) {
                const int one = lane / 4, two = lane % 4 * 2;
                const unsigned low = TRANSPOSED ? element(i, two, one) : element(i, one, two);
                const unsigned high = TRANSPOSED ? element(i, two + 1, one) : element(i, one, two + 1);
                ((Load*)lanes[lane])->to[i] = low | high << 16;
            }
    });
}

struct Product { float (*sum)[4]; const unsigned *a, *b; };
inline void multiply(float (&sum)[2][4], const unsigned (&a)[4], const unsigned (&b)[4]) {
    Product mine = {sum, a, b};
    together("mma", &mine, [](void** lanes) {
        float a[16][16], b[16][16], c[16][16] = {};
        for (int lane = 0; lane < 32; ++lane) {
            const Product& from = *(Product*)lanes[lane];
            for (int i = 0; i < 8; ++i) {
                const int one = lane / 4, two = lane % 4 * 2 + i % 2, of = i / 2;
                a[one + of % 2 * 8][two + of / 2 * 8] = part_of(from.a[of], i % 2);
                b[two + of % 2 * 8][one + of / 2 * 8] = part_of(from.b[of], i % 2);
            }
        }
        for (int row = 0; row < 16; ++row)
            for (int k = 0; k < 16; ++k)
                for (int column = 0; column < 16; ++column) c[row][column] += a[row][k] * b[k][column];
        for (int lane = 0; lane < 32; ++lane)
            for (int i = 0; i < 8; ++i)
                ((Product*)lanes[lane])->sum[i / 4][i % 4] +=
                    c[lane / 4 + i % 4 / 2 * 8][lane % 4 * 2 + i / 4 * 8 + i % 2];
    });
}

// One cluster after the other, the last one first.
template <typename Kernel> void on_clusters(int size, int blocks, int threads, int shared_bytes, Kernel kernel) {
    cluster_blocks = size;
    memory_bytes = (shared_bytes + 127) / 128 * 128;
    cluster_memory = (char*)aligned_alloc(128, size_t(memory_bytes) * size);
    for (int first = blocks - size; first >= 0 && !host_fault[0]; first -= size) {
        memset(cluster_memory, 0xFF, size_t(memory_bytes) * size);
        cluster_meeting = {};
        late_count = 0;
        run_blocks(first, size, threads, kernel, deliver);
        if (late_count) fail("a copy is not awaited");
    }
    free(cluster_memory);
}
