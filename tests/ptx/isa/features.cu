// A library feature per kernel, as nvcc and its headers compile it; each kernel checks itself: every thread leaves a 1.
// test_features.py runs them. `f` holds 0.5, 2, 3, -1.25, 0.75, 100, 1e-3, 7 and `n` holds 3, -5, 1000, 0x12345678, 40,
// 7, 0, 1, which the compiler does not know.
#include <cassert>
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cstdio>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
namespace cg = cooperative_groups;
using bf162 = __nv_bfloat162;

#define FEATURE(name) extern "C" __global__ void name(int* ok, const float* f, const int* n, double* memory)
#define CHECK(condition) ok[threadIdx.x] = (condition)
#define ALL 0xffffffffu

__device__ half2 h2(float x, float y) { return __floats2half2_rn(x, y); }
__device__ bool eq(half2 a, float x, float y) { return __low2float(a) == x && __high2float(a) == y; }
__device__ bf162 b2(float x, float y) { return __floats2bfloat162_rn(x, y); }
__device__ bool eq(bf162 a, float x, float y) { return __low2float(a) == x && __high2float(a) == y; }

// --- integers, memory, lanes and threads
FEATURE(carry) {
    unsigned long long low, high;
    asm("add.cc.u64 %0, %2, %3; addc.u64 %1, %4, %4;"
        : "=l"(low), "=l"(high)
        : "l"(~0ull), "l"((long long)n[7]), "l"((long long)n[0]));
    __int128 wide = (__int128)n[3] * n[3] * n[3] * n[3];
    CHECK(low == 0 && high == 7 &&
          (long long)(wide >> 64) == (long long)(((__int128)0x12345678 * 0x12345678 * 0x12345678 * 0x12345678) >> 64));
}
FEATURE(spaces) {
    __shared__ int s;
    int own = n[0];
    const void* places[3] = {&s, ok, &own};
    CHECK(__isShared(places[n[6]]) && __isGlobal(places[n[7]]) && __isLocal(places[n[7] + 1]));
}
FEATURE(match_any) { CHECK(__match_any_sync(ALL, threadIdx.x % 4) == 0x11111111u << threadIdx.x % 4); }
FEATURE(match_all) {
    int same, different;
    unsigned all = __match_all_sync(ALL, n[0], &same), none = __match_all_sync(ALL, (long long)threadIdx.x, &different);
    CHECK(all == ALL && same && none == 0 && !different);
}
FEATURE(count) { CHECK(__syncthreads_count(threadIdx.x < 10) == 10 && __syncthreads_count(threadIdx.x % 2) == 32); }
FEATURE(logic) {
    CHECK(__syncthreads_or(threadIdx.x == 63) && !__syncthreads_and(threadIdx.x < 63) && __syncthreads_and(n[0]));
}
FEATURE(named) {
    int all;
    asm volatile("{.reg.pred p, q; setp.lt.u32 p, %1, 64; bar.red.and.pred q, %2, 32, p; selp.s32 %0, 1, 0, q;}"
                 : "=r"(all)
                 : "r"(threadIdx.x), "r"(1 + threadIdx.x / 32 * 0)
                 : "memory");
    CHECK(all);
}
FEATURE(grid) {
    int* sum = (int*)memory;
    atomicAdd(sum, 1);
    cg::this_grid().sync();
    CHECK(*sum == 64 * gridDim.x);
}
FEATURE(atomic_pairs) {
    half2* a = (half2*)memory;
    bf162* c = (bf162*)(memory + 1);
    if (threadIdx.x == 0) *a = h2(0, 1), *c = b2(0, 1);
    __syncthreads();
    atomicAdd(a, h2(f[0], f[1]));
    atomicAdd(c, b2(f[0], f[1]));
    __syncthreads();
    CHECK(eq(*a, 32, 129) && eq(*c, 32, 129));
}
FEATURE(atomic_vectors) {
    float4* a = (float4*)memory;
    float2* c = (float2*)(memory + 2);
    if (threadIdx.x == 0) *a = make_float4(0, 0, 0, 0), *c = make_float2(0, 0);
    __syncthreads();
    atomicAdd(a, make_float4(1, 2, 3, 4));
    atomicAdd(c, make_float2(5, 6));
    __syncthreads();
    CHECK(a->x == 64 && a->w == 256 && c->y == 384);
}
FEATURE(group_copy) {
    __shared__ float s[8];
    auto block = cg::this_thread_block();
    cg::memcpy_async(block, s, f, 32);
    cg::wait(block);
    CHECK(s[threadIdx.x % 8] == f[threadIdx.x % 8]);
}
FEATURE(movmatrix) {
    unsigned word = threadIdx.x % 32 | threadIdx.x % 32 << 16, d;  // row l / 4, columns 2 (l % 4) and + 1
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(d) : "r"(word));
    int row = threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
    CHECK((d & 0xffff) == column * 4 + row / 2 && d >> 16 == (column + 1) * 4 + row / 2);
}

// --- functions that nvcc calls, and does not inline
struct Pair {
    int a;
    float b;
};
struct Array {
    int numbers[40];
};
__noinline__ __device__ int three(int a, float b) { return a * 3 + (int)b; }
__noinline__ __device__ int five(int a, float b) { return a * 5 + (int)b; }
__noinline__ __device__ Pair swapped(Pair p) { return {(int)p.b, (float)p.a}; }
__device__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
// each call has its own `mine`, whose address the next one is given
__noinline__ __device__ int sum(int n, const int* above) {
    int mine = *above + n;
    if (n == 0) return mine;
    int below = sum(n - 1, &mine);
    return below ^ mine;
}
__device__ int (*table[2])(int, float) = {three, five};
struct Shape {
    virtual __device__ int area() { return 1; }
};
struct Square : Shape {
    int side;
    __device__ int area() override { return side * side; }
};

extern "C" {
__global__ void call(int* out) { out[threadIdx.x] = three(threadIdx.x, 2.5f); }
__global__ void call_of_some(int* out) {
    if (threadIdx.x % 3 == 0) out[threadIdx.x] = three(threadIdx.x, 1);
}
__global__ void structs(Pair p, int* out) {
    Pair q = swapped({p.a + (int)threadIdx.x, p.b});
    out[threadIdx.x] = q.a * 1000 + (int)q.b;
}
__global__ void recursion(int* out) { out[threadIdx.x] = fibonacci(threadIdx.x % 12); }
__global__ void recursion_with_locals(int* out) {
    int zero = 0;
    out[threadIdx.x] = sum(threadIdx.x % 10, &zero);
}
__global__ void endless(int* out) {
    int zero = 0;
    out[threadIdx.x] = sum(out[0] + 100000, &zero);
}
__global__ void pointers(int* out) { out[threadIdx.x] = table[threadIdx.x % 2](threadIdx.x, 1); }
__global__ void no_function(int* out) { table[threadIdx.x + 2](threadIdx.x, 1); }
__global__ void virtuals(int* out) {
    Square square;
    square.side = threadIdx.x;
    Shape* shape = out[0] ? &square : new Shape;
    out[threadIdx.x] = shape->area();
}
__global__ void array(const __grid_constant__ Array by_value, int* out) {
    out[threadIdx.x] = by_value.numbers[threadIdx.x];
}
__global__ void prints(int* out) {
    if (threadIdx.x < 2)
        printf("%d %5.2f|%-4s|%c %lld %x %% %p\n", threadIdx.x, 1.5, "abc", 'x', 1ll << 40, -1, (void*)16);
}
__global__ void asserts(int* out) { assert(threadIdx.x < 5 && "small"); }
__global__ void allocates(int* out) {
    int* mine = (int*)malloc(out[0]);
    if (mine) *mine = threadIdx.x;
    out[threadIdx.x] = mine ? *mine : -1;
    free(mine);
}
}
