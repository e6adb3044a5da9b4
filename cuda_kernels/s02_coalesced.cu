// Idea:         threadIdx.x runs along the columns, so that a warp accesses neighbouring addresses.
// Changed:      Only the roles differ from s01: threadIdx.x selects the column of C, threadIdx.y the row.
// Tile/threads: A block computes BLOCK_M x BLOCK_N of C with one thread per element.
// Cost:         It still does 0.25 FLOP per requested byte, without shared memory. But a warp's 32 floats of B fill 4
//               sectors of 32 bytes, and all its lanes read one address of A.
// Requires:     The kernel takes any M, N and K; A, B and C are row-major.
#include "launch.cuh"

// A[M, K] @ B[K, N] = C[M, N]
template <int BLOCK_M, int BLOCK_N>
__global__ void __launch_bounds__((BLOCK_M * BLOCK_N))
s02_coalesced(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N, int K) {
    // Who am I. The lanes of a warp differ in col: they read 128 bytes in a row of B and write 128 bytes in a row of C,
    // and all request the same element of A, which is fetched once and broadcast.
    const int row = blockIdx.y * BLOCK_M + threadIdx.y;
    const int col = blockIdx.x * BLOCK_N + threadIdx.x;
    if (row >= M || col >= N) return;

    // Multiply
    float acc = 0.0f;
    for (int k = 0; k < K; ++k) {
        acc += A[(size_t)row * K + k] * B[(size_t)k * N + col];
    }

    // Store
    C[(size_t)row * N + col] = acc;
}

namespace config = registry::s02_coalesced;
extern "C" cudaError_t launch(const float* A, const float* B, float* C, int M, int N, int K, const LaunchShape& shape,
                              cudaStream_t stream) {
    using namespace config;
    const auto kernel = s02_coalesced<BLOCK_M, BLOCK_N>;
    return launch_kernel(kernel, shape, stream, A, B, C, M, N, K);
}
