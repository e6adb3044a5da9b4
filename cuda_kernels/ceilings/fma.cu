// How many fp32 multiply-adds a second the device does, from registers alone.
//
// A thread turns PAIRS points (u, v) by the same small angle, step by step:
//     u += c v;  v -= c u
// is Minsky's circle: with |c| < 1 a point stays on an ellipse around the origin for ever. So no value overflows,
// decays or repeats itself, nothing can be computed ahead, and the operands toggle as those of a real kernel do.
// A pair's steps wait for one another; 8 pairs per thread, and 8 warps per scheduler, are far more chains than the
// latency of 4 cycles needs. u and v are in registers of both banks, c is reused: no operand has to wait.
//
// -D gives THREADS, the size of a block.
#include <cuda_runtime.h>

constexpr int PAIRS = 8;
constexpr int STEPS = 32;  // in one trip: 512 FFMA beside the 3 or 4 instructions of the loop

// in: (2 PAIRS + 1, THREADS) floats: each thread's u and v, pair by pair, and its c.  out: (blocks, THREADS) floats,
// the sum of a thread's coordinates after iterations * STEPS steps, which are 2 FMA a pair.
__global__ void __launch_bounds__(THREADS) fma_chains(const float* __restrict__ in, float* __restrict__ out,
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

extern "C" cudaError_t launch(const float* in, float* out, size_t, int iterations, int blocks, cudaStream_t stream) {
    fma_chains<<<blocks, THREADS, 0, stream>>>(in, out, iterations);
    return cudaGetLastError();
}

extern "C" const char* describe_error(cudaError_t error) { return cudaGetErrorString(error); }
