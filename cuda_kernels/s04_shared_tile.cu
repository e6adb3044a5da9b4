// Idea:         The slices of A and B are staged in shared memory, and every thread of the block reads them there.
// Changed:      Where s03 loads each operand when it needs it, the block loads each slice once, between two barriers.
// Tile/threads: A block computes BLOCK_M x BLOCK_N of C with one thread per element. Each thread loads one element of
//               each slice, so the three block sizes are equal.
// Cost:         The slices take 4 (BLOCK_M BLOCK_K + BLOCK_K BLOCK_N) bytes of shared memory, 8 KiB at 32. They feed
//               2 * 32^3 FLOP: 8 FLOP per byte of global memory, 32 times as many as in s03.
// Requires:     The kernel takes any M, N and K; A, B and C are row-major.
#include "launch.cuh"

// grid: C in tiles                 block: one tile, K in slices            thread: one element
//
//      n ->                             k ->          n ->                    a_smem row   b_smem column
//  m +---+---+---+                   +--------+    +--------+ k                 k ->           k
//  | | 0 | 1 | 2 | blockIdx.x      m | a_smem |    | b_smem | |              m [ . . . ]   x  [.]
//  v +---+---+---+                 | +--------+    +--------+ v                               [.]  = 1 sum
//    | 3 | 4 | 5 |                 v BLOCK_M x BLOCK_K  BLOCK_K x BLOCK_N                     [.]
//    +---+---+---+
// A[M, K] @ B[K, N] = C[M, N]
template <int BLOCK_M, int BLOCK_N, int BLOCK_K>
__global__ void __launch_bounds__((BLOCK_M * BLOCK_N))
s04_shared_tile(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N, int K) {
    static_assert(BLOCK_K == BLOCK_M && BLOCK_K == BLOCK_N, "BLOCK_K: a thread loads one element of each slice");
    __shared__ float a_smem[BLOCK_M][BLOCK_K];  // (m, k)
    __shared__ float b_smem[BLOCK_K][BLOCK_N];  // (k, n)

    // Who am I. No thread leaves early: all are needed to load, and at the barriers.
    const int row = blockIdx.y * BLOCK_M + threadIdx.y;
    const int col = blockIdx.x * BLOCK_N + threadIdx.x;

    float acc = 0.0f;
    for (int k_start = 0; k_start < K; k_start += BLOCK_K) {
        // Load the slice. Past the edges it is 0, which adds nothing to the sums.
        const int k_a = k_start + threadIdx.x;  // the column of A that this thread loads
        const int k_b = k_start + threadIdx.y;  // the row of B
        a_smem[threadIdx.y][threadIdx.x] = row < M && k_a < K ? A[(size_t)row * K + k_a] : 0.0f;
        b_smem[threadIdx.y][threadIdx.x] = k_b < K && col < N ? B[(size_t)k_b * N + col] : 0.0f;
        __syncthreads();  // the whole slice is written before anyone reads it

        // Multiply the slice. A warp reads one address of a_smem (a broadcast) and 32 neighbours of b_smem, one in
        // each bank: both are free of conflicts.
#pragma unroll
        for (int k = 0; k < BLOCK_K; ++k) {
            acc += a_smem[threadIdx.y][k] * b_smem[k][threadIdx.x];
        }
        __syncthreads();  // everyone has read the slice before the next one overwrites it
    }

    // Store
    if (row < M && col < N) C[(size_t)row * N + col] = acc;
}

namespace config = registry::s04_shared_tile;
extern "C" cudaError_t launch(const float* A, const float* B, float* C, int M, int N, int K, const LaunchShape& shape,
                              cudaStream_t stream) {
    using namespace config;
    const auto kernel = s04_shared_tile<BLOCK_M, BLOCK_N, BLOCK_K>;
    return launch_kernel(kernel, shape, stream, A, B, C, M, N, K);
}
