// Idea:         A thread computes THREAD_M elements of one column of C, so that it reads an element of B from shared
//               memory once for THREAD_M products.
// Changed:      Unlike in s04, a block's tile has more elements than threads: each thread loads several elements of a
//               slice and keeps a column of sums in registers.
// Tile/threads: A block computes BLOCK_M x BLOCK_N of C, a thread THREAD_M x 1; 64 x 64 and 8 x 1 make 512 threads.
// Cost:         The slices take 4 (BLOCK_M BLOCK_K + BLOCK_K BLOCK_N) bytes of shared memory, 8 KiB. The block does 16
//               FLOP per byte of global memory, twice s04's, since its tile is twice as wide. A thread reads 9 words of
//               shared memory for 8 products instead of 16, and a whole warp shares those of A.
// Requires:     The kernel takes any M, N and K; A, B and C are row-major.
#include "launch.cuh"

// A[M, K] @ B[K, N] = C[M, N]
template <int BLOCK_M, int BLOCK_N, int BLOCK_K, int THREAD_M, int BLOCKS_PER_SM>
__global__ void __launch_bounds__(BLOCK_M / THREAD_M * BLOCK_N, BLOCKS_PER_SM)
s06_thread_coarsen(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N,
                   int K) {
    static_assert(BLOCK_M % THREAD_M == 0, "THREAD_M: a whole number of threads covers a column of the tile");
    constexpr int THREADS = BLOCK_M / THREAD_M * BLOCK_N;
    __shared__ float a_smem[BLOCK_M][BLOCK_K];  // (m, k)
    __shared__ float b_smem[BLOCK_K][BLOCK_N];  // (k, n)

    // Who am I. The tile starts at C[row, col]; mine is a column of it, THREAD_M high.
    const int row = blockIdx.y * BLOCK_M;
    const int col = blockIdx.x * BLOCK_N;
    const int thread = threadIdx.y * BLOCK_N + threadIdx.x;
    const int thread_m = threadIdx.y * THREAD_M;
    const int thread_n = threadIdx.x;

    float acc[THREAD_M] = {};
    for (int k_start = 0; k_start < K; k_start += BLOCK_K) {
        // Load the slice: neighbouring threads load neighbours in the rows of A and B. Past the edges it is 0.
#pragma unroll
        for (int first = 0; first < BLOCK_M * BLOCK_K; first += THREADS) {
            const int i = first + thread;
            const int m = i / BLOCK_K, k = i % BLOCK_K;
            a_smem[m][k] = row + m < M && k_start + k < K ? A[(size_t)(row + m) * K + k_start + k] : 0.0f;
        }
#pragma unroll
        for (int first = 0; first < BLOCK_K * BLOCK_N; first += THREADS) {
            const int i = first + thread;
            const int k = i / BLOCK_N, n = i % BLOCK_N;
            b_smem[k][n] = k_start + k < K && col + n < N ? B[(size_t)(k_start + k) * N + col + n] : 0.0f;
        }
        __syncthreads();  // the whole slice is written before anyone reads it

        // Multiply the slice
#pragma unroll
        for (int k = 0; k < BLOCK_K; ++k) {
            const float b_frag = b_smem[k][thread_n];  // read once, used THREAD_M times
#pragma unroll
            for (int m = 0; m < THREAD_M; ++m) acc[m] += a_smem[thread_m + m][k] * b_frag;
        }
        __syncthreads();  // everyone has read the slice before the next one overwrites it
    }

    // Store
#pragma unroll
    for (int m = 0; m < THREAD_M; ++m) {
        if (row + thread_m + m < M && col + thread_n < N) {
            C[(size_t)(row + thread_m + m) * N + col + thread_n] = acc[m];
        }
    }
}

namespace config = registry::s06_thread_coarsen;
extern "C" cudaError_t launch(const float* A, const float* B, float* C, int M, int N, int K, const LaunchShape& shape,
                              cudaStream_t stream) {
    using namespace config;
    const auto kernel = s06_thread_coarsen<BLOCK_M, BLOCK_N, BLOCK_K, THREAD_M, BLOCKS_PER_SM>;
    return launch_kernel(kernel, shape, stream, A, B, C, M, N, K);
}
