// Measures how many fp32 multiply-adds per second the device computes from registers alone.
//
// A thread rotates PAIRS points (u, v) by the same small angle, step by step. The recurrence
//     u += c v;  v -= c u
// is Minsky's circle: with |c| < 1 a point stays on an ellipse around the origin. So no value overflows, decays or
// repeats, nothing can be computed ahead, and the operands toggle as those of a real kernel do. The steps of a pair
// depend on one another; 8 pairs per thread and 8 warps per scheduler are far more chains than the latency of 4 cycles
// needs. u and v are in registers of both banks, and c is reused: no operand has to wait.
//
// -D sets THREADS, the size of a block.
#include <cuda_runtime.h>

constexpr int PAIRS = 8;
constexpr int STEPS = 32;  // per iteration: 512 FFMA, and the 3 or 4 instructions of the loop

// `in` is (2 PAIRS + 1, THREADS) floats: each thread's u and v, pair by pair, and its c. `out` is (blocks, THREADS)
// floats: the sum of a thread's coordinates after iterations * STEPS steps of 2 FMA per pair.
extern "C" __global__ void __launch_bounds__(THREADS) fma_kernel(const float* __restrict__ in, float* __restrict__ out,
                                                                 int iterations) {
    float u[PAIRS], v[PAIRS];
#pragma unroll
    for (int pair = 0; pair < PAIRS; ++pair) {
        u[pair] = in[2 * pair * THREADS + threadIdx.x];
        v[pair] = in[(2 * pair + 1) * THREADS + threadIdx.x];
    }
    const float c = in[2 * PAIRS * THREADS + threadIdx.x];
#pragma unroll 1
    for (int i = 0; i < iterations; ++i) {
#pragma unroll
        for (int step = 0; step < STEPS; ++step) {
#pragma unroll
            for (int pair = 0; pair < PAIRS; ++pair) u[pair] = __fmaf_rn(c, v[pair], u[pair]);
#pragma unroll
            for (int pair = 0; pair < PAIRS; ++pair) v[pair] = __fmaf_rn(-c, u[pair], v[pair]);
        }
    }
    float sum = 0.0f;
#pragma unroll
    for (int pair = 0; pair < PAIRS; ++pair) sum += u[pair] + v[pair];
    out[blockIdx.x * THREADS + threadIdx.x] = sum;
}
