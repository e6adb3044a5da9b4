// Idea:         one thread computes one element of C; threadIdx.x walks the rows.
// Changed:      the first rung. It is the CPU's triple loop with the two outer loops spread over threads.
// Tile/threads: BLOCK_M x BLOCK_N of C per block, one thread per element.
// Cost:         no shared memory; 2 FLOP for the 8 bytes of A[row, k] and B[k, col]: 0.25 FLOP per byte asked for.
// Requires:     any M, N, K; row-major A, B, C.
#include "launch.cuh"

// A[M, K] @ B[K, N] = C[M, N]
template <int BLOCK_M, int BLOCK_N>
__global__ void __launch_bounds__((BLOCK_M * BLOCK_N))
s01_naive(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N, int K) {
    // Who am I. The lanes of a warp differ in threadIdx.x first, so here they differ in row: at one k they read A at
    // addresses 4 K bytes apart and later write C at addresses 4 N bytes apart, a sector of 32 bytes for 4 of use.
    const int row = blockIdx.x * BLOCK_M + threadIdx.x;
    const int col = blockIdx.y * BLOCK_N + threadIdx.y;
    if (row >= M || col >= N) return;

    // Multiply
    float acc = 0.0f;
    for (int k = 0; k < K; ++k) {
        acc += A[(size_t)row * K + k] * B[(size_t)k * N + col];
    }

    // Store
    C[(size_t)row * N + col] = acc;
}

namespace config = registry::s01_naive;
extern "C" cudaError_t launch(const float* A, const float* B, float* C, int M, int N, int K, const LaunchShape& shape,
                              cudaStream_t stream) {
    using namespace config;
    const auto kernel = s01_naive<BLOCK_M, BLOCK_N>;
    return launch_kernel(kernel, shape, stream, A, B, C, M, N, K);
}
