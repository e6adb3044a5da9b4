// Idea:         A thread computes a THREAD_M x THREAD_N tile of C in registers: at each k it adds the outer product of
//               a column of A and a row of B.
// Changed:      The column of sums in s06 becomes a tile of sums, and the block's tile grows with it.
// Tile/threads: A block computes BLOCK_M x BLOCK_N of C, a thread THREAD_M x THREAD_N; 128 x 128 and 8 x 8 make 256
//               threads.
// Cost:         The slices take 4 (BLOCK_M BLOCK_K + BLOCK_K BLOCK_N) bytes of shared memory, 16 KiB. The block does
//               32 FLOP per byte that it requests. At each k a thread reads 16 words of shared memory for 64 products,
//               4 per word; 64 registers hold its sums.
// Requires:     The kernel takes any M, N and K; A, B and C are row-major.
#include "launch.cuh"

// block: BLOCK_M x BLOCK_N in thread tiles          thread: at each k an outer product, in registers
//
//       n ->  THREAD_N                                        b[0] b[1] .. b[THREAD_N - 1]   <- a row of b_smem
//   m +------+------+- - -                            a[0]   [ +=   +=  ..   += ]
//   | | t0   | t1   |       threadIdx.x               a[1]   [ +=   +=  ..   += ]   THREAD_M x THREAD_N sums
//   v +------+------+- - -                             ..    [ ..               ]
//     | t16  | t17  |       threadIdx.y                 ^
//     +------+------+- - -                              a column of a_smem
// A[M, K] @ B[K, N] = C[M, N]
template <int BLOCK_M, int BLOCK_N, int BLOCK_K, int THREAD_M, int THREAD_N, int BLOCKS_PER_SM>
__global__ void __launch_bounds__(BLOCK_M / THREAD_M * (BLOCK_N / THREAD_N), BLOCKS_PER_SM)
s07_thread_tile(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N, int K) {
    static_assert(BLOCK_M % THREAD_M == 0 && BLOCK_N % THREAD_N == 0, "THREAD_M, THREAD_N: threads cover the tile");
    constexpr int THREADS = BLOCK_M / THREAD_M * (BLOCK_N / THREAD_N);
    __shared__ float a_smem[BLOCK_M][BLOCK_K];  // (m, k)
    __shared__ float b_smem[BLOCK_K][BLOCK_N];  // (k, n)

    // Who am I. The block's tile starts at C[row, col]; mine starts at (thread_m, thread_n) in it.
    const int row = blockIdx.y * BLOCK_M;
    const int col = blockIdx.x * BLOCK_N;
    const int thread = threadIdx.y * (BLOCK_N / THREAD_N) + threadIdx.x;
    const int thread_m = threadIdx.y * THREAD_M;
    const int thread_n = threadIdx.x * THREAD_N;

    float acc[THREAD_M][THREAD_N] = {};
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
            float a_frag[THREAD_M], b_frag[THREAD_N];
#pragma unroll
            for (int m = 0; m < THREAD_M; ++m) a_frag[m] = a_smem[thread_m + m][k];
#pragma unroll
            for (int n = 0; n < THREAD_N; ++n) b_frag[n] = b_smem[k][thread_n + n];
#pragma unroll
            for (int m = 0; m < THREAD_M; ++m) {
#pragma unroll
                for (int n = 0; n < THREAD_N; ++n) acc[m][n] += a_frag[m] * b_frag[n];
            }
        }
        __syncthreads();  // everyone has read the slice before the next one overwrites it
    }

    // Store
#pragma unroll
    for (int m = 0; m < THREAD_M; ++m) {
#pragma unroll
        for (int n = 0; n < THREAD_N; ++n) {
            if (row + thread_m + m < M && col + thread_n + n < N) {
                C[(size_t)(row + thread_m + m) * N + col + thread_n + n] = acc[m][n];
            }
        }
    }
}

namespace config = registry::s07_thread_tile;
extern "C" cudaError_t launch(const float* A, const float* B, float* C, int M, int N, int K, const LaunchShape& shape,
                              cudaStream_t stream) {
    using namespace config;
    const auto kernel = s07_thread_tile<BLOCK_M, BLOCK_N, BLOCK_K, THREAD_M, THREAD_N, BLOCKS_PER_SM>;
    return launch_kernel(kernel, shape, stream, A, B, C, M, N, K);
}
