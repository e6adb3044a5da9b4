// Idea:         A block owns a tile of C and walks K in slices of BLOCK_K, and still reads only global memory.
// Changed:      The loop over k in s02 is cut into slices; which thread reads what does not change.
// Tile/threads: A block computes BLOCK_M x BLOCK_N of C with one thread per element; a slice is BLOCK_M x BLOCK_K of A
//               and BLOCK_K x BLOCK_N of B.
// Cost:         It still does 0.25 FLOP per requested byte, without shared memory. In one slice a block uses each
//               element of A BLOCK_N times and of B BLOCK_M times: 1/32 of the bytes would do if it kept them (s04).
// Requires:     The kernel takes any M, N and K; A, B and C are row-major.
#include "launch.cuh"

// A[M, K] @ B[K, N] = C[M, N]
template <int BLOCK_M, int BLOCK_N, int BLOCK_K>
__global__ void __launch_bounds__((BLOCK_M * BLOCK_N))
s03_block_tile(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N, int K) {
    // Who am I
    const int row = blockIdx.y * BLOCK_M + threadIdx.y;
    const int col = blockIdx.x * BLOCK_N + threadIdx.x;
    if (row >= M || col >= N) return;

    float acc = 0.0f;
    for (int k_start = 0; k_start < K; k_start += BLOCK_K) {
        // Multiply the slice
        const int depth = min(BLOCK_K, K - k_start);  // the last slice may be short
        for (int k = 0; k < depth; ++k) {
            acc += A[(size_t)row * K + k_start + k] * B[(size_t)(k_start + k) * N + col];
        }
    }

    // Store
    C[(size_t)row * N + col] = acc;
}

namespace config = registry::s03_block_tile;
extern "C" cudaError_t launch(const float* A, const float* B, float* C, int M, int N, int K, const LaunchShape& shape,
                              cudaStream_t stream) {
    using namespace config;
    const auto kernel = s03_block_tile<BLOCK_M, BLOCK_N, BLOCK_K>;
    return launch_kernel(kernel, shape, stream, A, B, C, M, N, K);
}
