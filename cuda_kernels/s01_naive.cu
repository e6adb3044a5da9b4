// Idea:         One thread computes one element of C, and threadIdx.x runs along the rows.
// Changed:      This first rung is the CPU's triple loop, with its two outer loops distributed over the threads.
// Tile/threads: A block computes BLOCK_M x BLOCK_N of C with one thread per element.
// Cost:         It uses no shared memory; 2 FLOP for 8 bytes of A and B make 0.25 FLOP per requested byte.
// Requires:     The kernel takes any M, N and K; A, B and C are row-major.
#include "launch.cuh"

// A[M, K] @ B[K, N] = C[M, N]
template <int BLOCK_M, int BLOCK_N>
__global__ void __launch_bounds__((BLOCK_M * BLOCK_N))
s01_naive(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N, int K) {
    // Who am I. The lanes of a warp differ in threadIdx.x first, so here they differ in row: at one k they read A at
    // addresses 4 K bytes apart and later write C at addresses 4 N bytes apart, a sector of 32 bytes for 4 useful ones.
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
