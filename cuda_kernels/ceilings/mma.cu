// Measures how many multiply-adds per second the tensor cores compute through mma.sync, with fp32 accumulators, from
// registers alone.
//
// A warp multiplies each of TILES_M tiles of A with each of TILES_N tiles of B, as a GEMM's inner loop does:
// consecutive instructions have different operands, and the 16 accumulators are independent chains.
//
// -D sets THREADS, the size of a block, and MMA, the instruction: a function of mma.cuh.
#include <cuda_runtime.h>
#include "mma.cuh"

constexpr int TILES_M = 4, TILES_N = 4;
constexpr int STEPS = 4;      // per iteration: 64 instructions
constexpr int ROW_WORDS = 8;  // a row of A, or a column of B, has 32 bytes of k

// `in` is A (16 TILES_M, 32 bytes), followed by B transposed (8 TILES_N, 32 bytes). `out` is (blocks, THREADS, 4)
// floats: the sum of a warp's 16 tiles of D in the layout of mma.cuh, each iterations * STEPS times A @ B.
extern "C" __global__ void __launch_bounds__(THREADS) mma_kernel(const unsigned* __restrict__ in,
                                                                 float4* __restrict__ out, int iterations) {
    const int row = threadIdx.x % 32 / 4, word = threadIdx.x % 4;
    unsigned a[TILES_M][4], b[TILES_N][2];
#pragma unroll
    for (int m = 0; m < TILES_M; ++m) {
#pragma unroll
        for (int i = 0; i < 4; ++i) a[m][i] = in[(16 * m + row + i % 2 * 8) * ROW_WORDS + word + i / 2 * 4];
    }
#pragma unroll
    for (int n = 0; n < TILES_N; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) b[n][i] = in[(16 * TILES_M + 8 * n + row) * ROW_WORDS + word + i * 4];
    }
    float d[TILES_M][TILES_N][4] = {};
#pragma unroll 1
    for (int i = 0; i < iterations; ++i) {
#pragma unroll
        for (int step = 0; step < STEPS; ++step) {
#pragma unroll
            for (int m = 0; m < TILES_M; ++m) {
#pragma unroll
                for (int n = 0; n < TILES_N; ++n) MMA(d[m][n], a[m], b[n]);
            }
        }
    }
    float4 sum = {};
#pragma unroll
    for (int m = 0; m < TILES_M; ++m) {
#pragma unroll
        for (int n = 0; n < TILES_N; ++n) {
            sum.x += d[m][n][0], sum.y += d[m][n][1], sum.z += d[m][n][2], sum.w += d[m][n][3];
        }
    }
    out[blockIdx.x * THREADS + threadIdx.x] = sum;
}
