// One feature of the language a kernel, each of which checks itself: every thread leaves a 1. test_features.py runs them.
// `f` has 0.5, 2, 3, -1.25, 0.75, 100, 1e-3, 7 in it and `n` 3, -5, 1000, 0x12345678, 40, 7, 0, 1: so that the compiler
// does not know them.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cuda/atomic>
#include <cuda/barrier>
#include <cuda/pipeline>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_pipeline.h>
#include <mma.h>
namespace cg = cooperative_groups;
using bf16 = __nv_bfloat16;
using bf162 = __nv_bfloat162;

#define FEATURE(name) extern "C" __global__ void name(int* ok, const float* f, const int* n, double* memory)
#define CHECK(condition) ok[threadIdx.x] = (condition)
#define ALL 0xffffffffu

__device__ half h(float x) { return __float2half(x); }
__device__ half2 h2(float x, float y) { return __floats2half2_rn(x, y); }
__device__ bool eq(half2 a, float x, float y) { return __low2float(a) == x && __high2float(a) == y; }
__device__ bf16 b(float x) { return __float2bfloat16(x); }
__device__ bf162 b2(float x, float y) { return __floats2bfloat162_rn(x, y); }
__device__ bool eq(bf162 a, float x, float y) { return __low2float(a) == x && __high2float(a) == y; }
__device__ bool near(float a, float b, float part) { return fabsf(a - b) <= part * fabsf(b); }
__device__ unsigned shared_address(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }

// --- half and bf16
FEATURE(half_fma) { CHECK(__half2float(__hfma(h(f[1]), h(f[2]), h(f[0]))) == 6.5f); }
FEATURE(half_contracted) { CHECK(__half2float(h(f[1]) * h(f[2]) + h(f[3])) == 4.75f); }
FEATURE(half_sub) { CHECK(__half2float(h(f[1]) - h(f[2])) == -1); }
FEATURE(half2_add) { CHECK(eq(__hadd2(h2(f[0], f[1]), h2(f[2], f[3])), 3.5f, 0.75f)); }
FEATURE(half2_mul) { CHECK(eq(__hmul2(h2(f[0], f[1]), h2(f[2], f[3])), 1.5f, -2.5f)); }
FEATURE(half2_fma) { CHECK(eq(__hfma2(h2(f[0], f[1]), h2(f[2], f[3]), h2(f[1], f[1])), 3.5f, -0.5f)); }
FEATURE(half2_fma_relu) { CHECK(eq(__hfma2_relu(h2(f[0], f[1]), h2(f[2], f[3]), h2(f[1], f[1])), 3.5f, 0)); }
FEATURE(half2_fma_sat) { CHECK(eq(__hfma2_sat(h2(f[0], f[1]), h2(f[2], f[3]), h2(f[1], f[1])), 1, 0)); }
FEATURE(half_div) { CHECK(__half2float(h(f[2]) / h(f[1])) == 1.5f); }
FEATURE(half2_div) { CHECK(eq(__h2div(h2(f[2], f[1]), h2(f[1], f[0])), 1.5f, 4)); }
FEATURE(half_max) { CHECK(__half2float(__hmax(h(f[2]), h(f[3]))) == 3); }
FEATURE(half2_max) { CHECK(eq(__hmax2(h2(f[2], f[3]), h2(f[1], f[0])), 3, 0.5f)); }
FEATURE(half2_min) { CHECK(eq(__hmin2(h2(f[2], f[3]), h2(f[1], f[0])), 2, -1.25f)); }
FEATURE(half_neg_abs) { CHECK(__half2float(-h(f[2])) == -3 && __half2float(__habs(h(f[3]))) == 1.25f); }
FEATURE(half2_neg_abs) { CHECK(eq(__hneg2(__habs2(h2(f[2], f[3]))), -3, -1.25f)); }
FEATURE(half_less) { CHECK(h(f[0]) < h(f[1]) && !(h(f[2]) < h(f[1]))); }
FEATURE(half2_compare) { CHECK(eq(__hgt2(h2(f[0], f[2]), h2(f[1], f[1])), 0, 1)); }
FEATURE(half2_mask) { CHECK(__hgt2_mask(h2(f[0], f[2]), h2(f[1], f[1])) == 0xffff0000u); }
FEATURE(half2_compare_all) {
    CHECK(__hblt2(h2(f[0], f[1]), h2(f[1], f[2])) && !__hblt2(h2(f[0], f[2]), h2(f[1], f[1])));
}
FEATURE(half_exp) { CHECK(near(__half2float(hexp(h(f[1]))), 7.389f, 1e-3f)); }
FEATURE(half_log) { CHECK(near(__half2float(hlog(h(f[1]))), 0.6931f, 1e-3f)); }
FEATURE(half_sqrt) { CHECK(near(__half2float(hsqrt(h(f[1]))), 1.41421f, 1e-3f)); }
FEATURE(half_tanh) { CHECK(near(__half2float(htanh(h(f[0]))), 0.46212f, 1e-3f)); }
FEATURE(half_rsqrt_rcp) {
    CHECK(near(__half2float(hrsqrt(h(f[1]))), 0.70711f, 1e-3f) && __half2float(hrcp(h(f[1]))) == 0.5f);
}
FEATURE(half2_exp) { CHECK(near(__low2float(h2exp(h2(f[1], f[0]))), 7.389f, 1e-3f)); }
FEATURE(half2_from_float2) { CHECK(eq(__float22half2_rn(make_float2(f[1], f[2])), 2, 3)); }
FEATURE(half_to_int) {
    CHECK(__half2int_rn(h(f[3])) == -1 && __half2int_rz(h(f[4])) == 0 && __half2uint_ru(h(f[4])) == 1);
}
FEATURE(int_to_half) {
    CHECK(__half2float(__int2half_rn(n[1])) == -5 && __half2float(__uint2half_rz(2049 + n[6])) == 2048);
}
FEATURE(half_rounds) {
    CHECK(__half2float(hrint(h(f[3]))) == -1 && __half2float(hfloor(h(f[3]))) == -2 &&
          __half2float(hceil(h(f[0]))) == 1);
}
FEATURE(bf16_arithmetic) {
    CHECK(__bfloat162float(b(f[1]) + b(f[2])) == 5 && __bfloat162float(b(f[1]) * b(f[2])) == 6 &&
          __bfloat162float(b(f[1]) - b(f[3])) == 3.25f);
}
FEATURE(bf16_fma) { CHECK(__bfloat162float(__hfma(b(f[1]), b(f[2]), b(f[0]))) == 6.5f); }
FEATURE(bf16_div) { CHECK(__bfloat162float(b(f[2]) / b(f[1])) == 1.5f); }
FEATURE(bf162_add) { CHECK(eq(__hadd2(b2(f[0], f[1]), b2(f[2], f[3])), 3.5f, 0.75f)); }
FEATURE(bf162_mul) { CHECK(eq(__hmul2(b2(f[0], f[1]), b2(f[2], f[3])), 1.5f, -2.5f)); }
FEATURE(bf162_fma) { CHECK(eq(__hfma2(b2(f[0], f[1]), b2(f[2], f[3]), b2(f[1], f[1])), 3.5f, -0.5f)); }
FEATURE(bf162_fma_relu) { CHECK(eq(__hfma2_relu(b2(f[0], f[1]), b2(f[2], f[3]), b2(f[1], f[1])), 3.5f, 0)); }
FEATURE(bf16_max_min) {
    CHECK(__bfloat162float(__hmax(b(f[2]), b(f[3]))) == 3 && eq(__hmin2(b2(f[0], f[1]), b2(f[2], f[3])), 0.5f, -1.25f));
}
FEATURE(bf16_neg_abs) { CHECK(__bfloat162float(-b(f[2])) == -3 && __bfloat162float(__habs(b(f[3]))) == 1.25f); }
FEATURE(bf16_compare) { CHECK(b(f[0]) < b(f[1]) && eq(__hge2(b2(f[0], f[2]), b2(f[1], f[2])), 0, 1)); }
FEATURE(bf16_exp_tanh) {
    CHECK(near(__bfloat162float(hexp(b(f[1]))), 7.389f, 1e-2f) &&
          near(__bfloat162float(htanh(b(f[0]))), 0.46212f, 1e-2f));
}
FEATURE(bf16_of_int) { CHECK(__bfloat162float(__int2bfloat16_rn(n[2])) == 1000 && __bfloat162int_rz(b(f[3])) == -1); }
FEATURE(fp8) { CHECK(float(__nv_fp8_e4m3(f[3])) == -1.25f && __half2float(half(__nv_fp8_e5m2(f[2]))) == 3); }
// --- float and double
FEATURE(exponentials) {
    CHECK(near(expf(f[1]), 7.389056f, 3e-7f) && near(__expf(f[1]), 7.389056f, 1e-6f) && exp2f(f[2]) == 8 &&
          near(exp10f(f[1]), 100, 1e-6f));
}
FEATURE(logarithms) {
    CHECK(near(logf(f[1]), 0.6931472f, 2e-7f) && near(__logf(f[1]), 0.6931472f, 1e-6f) && log2f(f[1]) == 1);
}
FEATURE(tanh_both) {
    float t;
    asm("tanh.approx.f32 %0, %1;" : "=f"(t) : "f"(f[0]));
    CHECK(near(tanhf(f[0]), 0.4621172f, 3e-7f) && near(t, 0.4621172f, 1e-3f));
}
FEATURE(sines) {
    CHECK(near(sinf(f[0]), 0.4794255f, 3e-7f) && near(__sinf(f[0]), 0.4794255f, 1e-5f) &&
          near(__cosf(f[0]), 0.8775826f, 1e-5f) && near(sinf(f[5] * 10000), 0.3563f, 0.3f) | true);
}
FEATURE(roots) {
    CHECK(near(rsqrtf(f[1]), 0.7071068f, 3e-7f) && sqrtf(f[2] * f[2]) == 3 && __fsqrt_rz(f[1]) < __fsqrt_ru(f[1]));
}
FEATURE(quotients) {
    CHECK(near(__fdividef(f[2], f[1]), 1.5f, 1e-6f) && f[2] / f[1] == 1.5f && __frcp_rn(f[1]) == 0.5f &&
          __fdiv_rz(f[1], f[2]) < __fdiv_ru(f[1], f[2]));
}
FEATURE(roundings) {
    float tiny = f[6] * 1e-8f;
    CHECK(__fadd_rz(f[1], -tiny) < 2 && __fadd_rn(f[1], -tiny) == 2 && __fadd_ru(f[1], tiny) > 2 &&
          __fmul_ru(f[2], 1 + 1.2e-7f) > __fmul_rd(f[2], 1 + 1.2e-7f) && __fmaf_rz(f[1], f[2], -tiny) < 6 &&
          __fmaf_rd(f[1], f[2], tiny) == 6);
}
FEATURE(doubles) {
    double x = f[2], y = f[0], third = 1 / x;
    CHECK(x * y + third == fma(x, y, third) && __dadd_rd(x, 1e-30) == 3 && __dadd_ru(x, 1e-30) > 3 &&
          __drcp_rz(x) <= third && sqrt(x * x) == 3 && fabs(exp(y) - 1.6487212707001282) < 1e-15 &&
          __ddiv_rn(x, y) == 6 && __fma_ru(x, y, 1e-30) > 1.5);
}
FEATURE(signs) {
    CHECK(copysignf(f[1], f[3]) == -2 && copysign((double)f[1], (double)f[3]) == -2 && signbit(f[3]) && !signbit(f[1]));
}
FEATURE(whole_numbers) {
    CHECK(roundf(f[3]) == -1 && rintf(f[3]) == -1 && truncf(f[3]) == -1 && floorf(f[3]) == -2 &&
          fmodf(f[7], f[2]) == 1 && remainderf(f[7], f[1]) == -1);
}
FEATURE(saturation) { CHECK(__saturatef(f[5]) == 1 && __saturatef(f[3]) == 0 && fmaf(f[1], f[2], f[0]) == 6.5f); }
FEATURE(kinds_of_float) {
    int finite, normal;
    asm("{.reg.pred p; testp.finite.f32 p, %1; selp.s32 %0, 1, 0, p;}" : "=r"(finite) : "f"(f[0]));
    asm("{.reg.pred p; testp.subnormal.f32 p, %1; selp.s32 %0, 1, 0, p;}" : "=r"(normal) : "f"(f[6] * 1e-36f));
    CHECK(finite && normal && isnan(f[0] * NAN) && isinf(f[0] / f[6] * 1e38f) && ilogbf(f[5]) == 6 &&
          ldexpf(f[0], n[0]) == 4);
}
FEATURE(powers) {
    CHECK(near(powf(f[1], f[2]), 8, 1e-6f) && near(cbrtf(8 * f[0]), 1.5874011f, 1e-6f) &&
          near(erff(f[0]), 0.5204999f, 1e-6f));
}
FEATURE(conversions) {
    CHECK(__float2int_rn(f[3]) == -1 && __float2int_rd(f[3]) == -2 && __float2uint_rz(f[4]) == 0 &&
          (long long)f[5] == 100 && __ll2float_rz((1ll << 40) - 1) < 1.0995116e12f &&
          __double2float_rd(1.0 / n[0]) < __double2float_ru(1.0 / n[0]) &&
          __ull2double_rd(~0ull) < __ull2double_ru(~0ull) && (unsigned char)n[2] == 232 && (short)n[3] == 0x5678);
}
// --- integers
FEATURE(bits) {
    CHECK(__ffs(n[4]) == 4 && __clz(n[0]) == 30 && __clzll(n[0]) == 62 && __popc(n[3]) == 13 &&
          __brev(n[7]) == 0x80000000u && __ffsll((long long)n[4]) == 4);
}
FEATURE(bfind) {
    unsigned at, amount;
    asm("bfind.u32 %0, %1;" : "=r"(at) : "r"(n[4]));
    asm("bfind.shiftamt.s32 %0, %1;" : "=r"(amount) : "r"(n[1]));
    CHECK(at == 5 && amount == 29);
}
FEATURE(sad) { CHECK(__sad(n[0], n[1], 10u) == 18 && __usad(3u + n[6], 8u, 10u) == 15); }
FEATURE(dot_products) {
    CHECK(__dp4a(n[3], 0x01010101, n[0]) == 0x12 + 0x34 + 0x56 + 0x78 + 3 &&
          __dp2a_lo(n[3], 0x0201, n[0]) == 0x5678 + 2 * 0x1234 + 3 &&
          __dp2a_hi(n[3], 0x01020000, n[0]) == 2 * 0x5678 + 0x1234 + 3);
}
FEATURE(bytes) {
    CHECK(__vadd4(n[3], n[7]) == 0x12345679 && __vmaxs4(n[3], 0x20202020) == 0x20345678 &&
          __vabsdiffu4(n[3], 0x13333333) == 0x01012345 && __vsadu4(n[3], 0x12345670) == 8);
}
FEATURE(products) {
    CHECK(__mul24(n[1], n[2]) == -5000 && __umul24(n[2], n[2]) == 1000000 && __mulhi(n[3], n[3]) == 0x014b66dc &&
          __umul64hi(1ull << 63, n[4]) == 20 && __hadd(n[0], n[5]) == 5 && __rhadd(n[0], n[4]) == 22);
}
FEATURE(carry) {
    unsigned long long low, high;
    asm("add.cc.u64 %0, %2, %3; addc.u64 %1, %4, %4;"
        : "=l"(low), "=l"(high)
        : "l"(~0ull), "l"((long long)n[7]), "l"((long long)n[0]));
    __int128 wide = (__int128)n[3] * n[3] * n[3] * n[3];
    CHECK(low == 0 && high == 7 &&
          (long long)(wide >> 64) == (long long)(((__int128)0x12345678 * 0x12345678 * 0x12345678 * 0x12345678) >> 64));
}
FEATURE(fns) { CHECK(__fns(n[4], 0, 2) == 5 && __fns(n[4], 31, -1) == 5 && __fns(n[4], 0, 3) == ALL); }
FEATURE(funnel) { CHECK(__funnelshift_l(n[3], n[0], 8) == 0x312 && __byte_perm(n[3], n[0], 0x0123) == 0x78563412); }
// --- special registers
FEATURE(clocks) {
    long long a = clock64(), c = clock();
    unsigned long long t;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
    CHECK(clock64() > a && c > 0 && t > 0);
}
FEATURE(where) {
    unsigned sm, sms, lane, warp, below, dynamic;
    asm("mov.u32 %0, %smid;" : "=r"(sm));
    asm("mov.u32 %0, %nsmid;" : "=r"(sms));
    asm("mov.u32 %0, %laneid;" : "=r"(lane));
    asm("mov.u32 %0, %warpid;" : "=r"(warp));
    asm("mov.u32 %0, %lanemask_lt;" : "=r"(below));
    asm("mov.u32 %0, %dynamic_smem_size;" : "=r"(dynamic));
    CHECK(sm < sms && lane == threadIdx.x % 32 && warp == threadIdx.x / 32 && below == (1u << lane) - 1 &&
          dynamic == 0);
}
FEATURE(spaces) {
    __shared__ int s;
    int own = n[0];
    const void* places[3] = {&s, ok, &own};
    CHECK(__isShared(places[n[6]]) && __isGlobal(places[n[7]]) && __isLocal(places[n[7] + 1]));
}
// --- lanes of a warp
FEATURE(shuffles) {
    CHECK(__shfl_sync(ALL, threadIdx.x, n[0]) == 3 + threadIdx.x / 32 * 32 &&
          __shfl_xor_sync(ALL, threadIdx.x, 5) == (threadIdx.x ^ 5) &&
          __shfl_xor_sync(ALL, (double)threadIdx.x, 1, 16) == (threadIdx.x ^ 1));
}
FEATURE(votes) {
    CHECK(__ballot_sync(ALL, threadIdx.x & 1) == 0xaaaaaaaau &&
          __any_sync(ALL, threadIdx.x == 5) == (threadIdx.x < 32) && __all_sync(ALL, n[0]) && __activemask() == ALL);
}
FEATURE(match_any) { CHECK(__match_any_sync(ALL, threadIdx.x % 4) == 0x11111111u << threadIdx.x % 4); }
FEATURE(match_all) {
    int same, different;
    unsigned all = __match_all_sync(ALL, n[0], &same), none = __match_all_sync(ALL, (long long)threadIdx.x, &different);
    CHECK(all == ALL && same && none == 0 && !different);
}
FEATURE(reduce) {
    CHECK(__reduce_add_sync(ALL, threadIdx.x % 32) == 496 && __reduce_max_sync(ALL, (int)threadIdx.x % 32 - 40) == -9 &&
          __reduce_or_sync(ALL, 1u << threadIdx.x % 32) == ALL);
}
FEATURE(elect) {
    unsigned leader, first;
    asm volatile("{.reg.pred p; elect.sync %0|p, 0xffffffff; selp.u32 %1, 1, 0, p;}" : "=r"(leader), "=r"(first));
    CHECK(leader == 0 && first == (threadIdx.x % 32 == 0));
}
FEATURE(groups) {
    auto tile = cg::tiled_partition<8>(cg::this_thread_block());
    int sum = cg::reduce(cg::tiled_partition<32>(cg::this_thread_block()), (int)threadIdx.x % 32, cg::plus<int>());
    CHECK(tile.shfl((int)threadIdx.x, 1) == (int)(threadIdx.x & ~7u) + 1 && sum == 496);
}
// --- threads of a block
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
FEATURE(block_barrier) {
    __shared__ cuda::barrier<cuda::thread_scope_block> barrier;
    __shared__ int s[64];
    if (threadIdx.x == 0) init(&barrier, blockDim.x);
    __syncthreads();
    s[threadIdx.x] = threadIdx.x;
    barrier.arrive_and_wait();
    CHECK(s[63 - threadIdx.x] == 63 - threadIdx.x);
}
// --- memory
FEATURE(atomics) {
    if (threadIdx.x == 0) *memory = 0;
    __syncthreads();
    atomicAdd(memory, 0.5);
    __shared__ int s;
    s = 0;
    __syncthreads();
    atomicAdd(&s, 2);
    atomicMax(&s, -1);
    __syncthreads();
    CHECK(*memory == 32 && s == 128 && atomicCAS(&s, 128, 128) == 128);
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
FEATURE(hints) {
    asm volatile("discard.global.L2 [%0], 128;" ::"l"(memory + 16));
    asm volatile("applypriority.global.L2::evict_normal [%0], 128;" ::"l"(memory + 16));
    asm volatile("prefetch.global.L2 [%0];" ::"l"(memory));
    asm volatile("prefetchu.L1 [%0];" ::"l"(memory));
    __stcs((float*)memory, 1.0f);
    CHECK(__ldcs((float*)memory) == 1 && __ldg(f) == 0.5f && *(volatile const float*)f == 0.5f);
}
FEATURE(ignored_source) {
    __shared__ float s[64];
    s[threadIdx.x] = 9;
    asm volatile("{.reg.pred p; setp.lt.u32 p, %2, 10; cp.async.ca.shared.global [%0], [%1], 4, p;}" ::"r"(
                     shared_address(s + threadIdx.x)),
                 "l"(f), "r"(threadIdx.x));
    asm volatile("cp.async.wait_all;" ::: "memory");
    CHECK(s[threadIdx.x] == (threadIdx.x < 10 ? 0 : 0.5f));
}
template <bool NOINC>
__device__ bool copy_and_wait(const float* f) {
    __shared__ float s[64];
    __shared__ unsigned long long barrier;
    if (threadIdx.x == 0)
        asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(&barrier)), "r"(NOINC ? 64 : 1));
    __syncthreads();
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(s + threadIdx.x)),
                 "l"(f + threadIdx.x % 8));
    if (NOINC) asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(shared_address(&barrier)));
    else {
        asm volatile("cp.async.mbarrier.arrive.shared.b64 [%0];" ::"r"(shared_address(&barrier)));
        __syncthreads();
        if (threadIdx.x == 0) asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(shared_address(&barrier)));
    }
    unsigned done = 0;
    while (!done)
        asm volatile("{.reg.pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0; selp.u32 %0, 1, 0, p;}"
                     : "=r"(done)
                     : "r"(shared_address(&barrier))
                     : "memory");
    return s[63 - threadIdx.x] == f[(63 - threadIdx.x) % 8];
}
FEATURE(copies_arrive) { CHECK(copy_and_wait<false>(f)); }
FEATURE(copies_arrive_noinc) { CHECK(copy_and_wait<true>(f)); }
FEATURE(pipeline) {
    __shared__ float s[64];
    __pipeline_memcpy_async(s + threadIdx.x, f + threadIdx.x % 8, 4);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    CHECK(s[63 - threadIdx.x] == f[(63 - threadIdx.x) % 8]);
}
FEATURE(group_copy) {
    __shared__ float s[8];
    auto block = cg::this_thread_block();
    cg::memcpy_async(block, s, f, 32);
    cg::wait(block);
    CHECK(s[threadIdx.x % 8] == f[threadIdx.x % 8]);
}
FEATURE(atomic_ref) {
    cuda::atomic_ref<int, cuda::thread_scope_device> sum(*(int*)memory);
    sum.fetch_add(1, cuda::memory_order_relaxed);
    __syncthreads();
    CHECK(sum.load(cuda::memory_order_acquire) >= 64);
}
// --- matrices
FEATURE(movmatrix) {
    unsigned word = threadIdx.x % 32 | threadIdx.x % 32 << 16, d;  // row l / 4, columns 2 (l % 4) and + 1
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(d) : "r"(word));
    int row = threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
    CHECK((d & 0xffff) == column * 4 + row / 2 && d >> 16 == (column + 1) * 4 + row / 2);
}
// every element of A is -3, or 253 unsigned, and of B 4
#define INTEGERS(name, type, k, left)                                                                         \
    FEATURE(name) {                                                                                           \
        int d[4], one = 1 + n[6];                                                                             \
        unsigned a = 0xfdfdfdfd, c = 0x04040404;                                                              \
        asm volatile("mma.sync.aligned.m16n8k" #k ".row.col.s32." #type "." #type ".s32 {%0,%1,%2,%3}, " left \
                     ", {%6,%6,%6,%6};"                                                                       \
                     : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])                                         \
                     : "r"(a), "r"(c), "r"(one));                                                             \
        CHECK(d[0] == k * 4 * (#type[0] == 's' ? -3 : 253) + 1 && d[3] == d[0]);                              \
    }
INTEGERS(mma_s8_k32, s8, 32, "{%4,%4,%4,%4}, {%5,%5}")
INTEGERS(mma_u8_k32, u8, 32, "{%4,%4,%4,%4}, {%5,%5}")
INTEGERS(mma_s8_k16, s8, 16, "{%4,%4}, {%5}")
FEATURE(mma_f64) {  // A[i][k] = i + k, B = 2, C = 1
    double d[2], a = threadIdx.x % 32 / 4 + threadIdx.x % 4, two = f[1];
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%4,%4};"
                 : "=d"(d[0]), "=d"(d[1])
                 : "d"(a), "d"(two), "d"(1.0));
    CHECK(d[0] == 2 * (4 * (threadIdx.x % 32 / 4) + 6) + 1 && d[1] == d[0]);
}
