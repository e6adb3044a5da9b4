// Idea:         The same slices are stored four ways in shared memory, whose 32 banks each serve one word at a time.
// Changed:      Unlike in s04, a layout places the elements of each slice; the threads' work is the same.
// Tile/threads: A block computes BLOCK_M x BLOCK_N of C with one thread per element; the three block sizes are equal.
// Cost:         It takes 8 KiB of shared memory (padded: 128 bytes more) and does 8 FLOP per byte, as s04. The layouts
//               differ in how often an access is repeated because lanes need different words of one bank:
//                 conflicted  A (m, k), B (n, k): each store and each read of B takes 32 wavefronts;
//                 transposed  A (k, m), B (k, n): each store of A takes 32 wavefronts, and no read conflicts;
//                 padded      as transposed, but a pitch of 33 words spreads a column over all banks: no conflict;
//                 swizzled    as transposed, but with m ^ k in place of m: no conflict, and no word is unused.
// Requires:     The kernel takes any M, N and K; A, B and C are row-major.
#include "launch.cuh"

namespace config = registry::s05_bank_conflict;

// Returns the index of element (m, k) in the stored slice of A.
template <SliceLayout LAYOUT, int BLOCK>
__device__ __forceinline__ int a_index(int m, int k) {
    if (LAYOUT == SliceLayout::transposed) return k * BLOCK + m;
    if (LAYOUT == SliceLayout::padded) return k * (BLOCK + 1) + m;
    if (LAYOUT == SliceLayout::swizzled) return k * BLOCK + (m ^ k);
    return m * BLOCK + k;
}

// Returns the index of element (k, n) in the stored slice of B.
template <SliceLayout LAYOUT, int BLOCK>
__device__ __forceinline__ int b_index(int k, int n) {
    return LAYOUT == SliceLayout::conflicted ? n * BLOCK + k : k * BLOCK + n;
}

// A[M, K] @ B[K, N] = C[M, N]
template <int BLOCK_M, int BLOCK_N, int BLOCK_K, SliceLayout LAYOUT, int BLOCKS_PER_SM>
__global__ void __launch_bounds__((BLOCK_M * BLOCK_N), BLOCKS_PER_SM)
s05_bank_conflict(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N,
                  int K) {
    static_assert(BLOCK_K == BLOCK_M && BLOCK_K == BLOCK_N, "BLOCK_K: a thread loads one element of each slice");
    constexpr int BLOCK = BLOCK_K;
    __shared__ float a_smem[BLOCK * (BLOCK + (LAYOUT == SliceLayout::padded))];
    __shared__ float b_smem[BLOCK * BLOCK];

    // Who am I. A warp is 32 neighbours in threadIdx.x at one threadIdx.y.
    const int row = blockIdx.y * BLOCK_M + threadIdx.y;
    const int col = blockIdx.x * BLOCK_N + threadIdx.x;

    float acc = 0.0f;
    for (int k_start = 0; k_start < K; k_start += BLOCK_K) {
        // Load the slice. The lanes of a warp store 32 k of one m of A, and 32 n of one k of B.
        const int k_a = k_start + threadIdx.x;  // the column of A that this thread loads
        const int k_b = k_start + threadIdx.y;  // the row of B
        a_smem[a_index<LAYOUT, BLOCK>(threadIdx.y, threadIdx.x)] = row < M && k_a < K ? A[(size_t)row * K + k_a] : 0.0f;
        b_smem[b_index<LAYOUT, BLOCK>(threadIdx.y, threadIdx.x)] = k_b < K && col < N ? B[(size_t)k_b * N + col] : 0.0f;
        __syncthreads();  // the whole slice is written before anyone reads it

        // Multiply the slice. A warp reads one address of a_smem (a broadcast) and 32 n of one k of b_smem.
#pragma unroll
        for (int k = 0; k < BLOCK_K; ++k) {
            acc += a_smem[a_index<LAYOUT, BLOCK>(threadIdx.y, k)] * b_smem[b_index<LAYOUT, BLOCK>(k, threadIdx.x)];
        }
        __syncthreads();  // everyone has read the slice before the next one overwrites it
    }

    // Store
    if (row < M && col < N) C[(size_t)row * N + col] = acc;
}

extern "C" cudaError_t launch(const float* A, const float* B, float* C, int M, int N, int K, const LaunchShape& shape,
                              cudaStream_t stream) {
    using namespace config;
    const auto kernel = s05_bank_conflict<BLOCK_M, BLOCK_N, BLOCK_K, LAYOUT, BLOCKS_PER_SM>;
    return launch_kernel(kernel, shape, stream, A, B, C, M, N, K);
}
