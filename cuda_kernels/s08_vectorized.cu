// Idea:         A thread loads and stores 16 bytes at a time, in global and in shared memory, as a float4.
// Changed:      Where s07 loads and stores single floats, the unit becomes a vector of 4 neighbours in a row.
// Tile/threads: A block computes 128 x 128 (BLOCK_M x BLOCK_N) with 256 threads of 8 x 8 (THREAD_M x THREAD_N) each.
// Cost:         Shared memory, bytes and FLOP are s07's; it needs a quarter of the load, store and index instructions.
// Requires:     The kernel takes any M, N and K; A, B and C are row-major. A matrix is accessed float by float if its
//               rows (K for A, N for B and C) or its address are no multiple of 16 bytes.
#include "launch.cuh"
#include "vector.cuh"

// A[M, K] @ B[K, N] = C[M, N]
template <int BLOCK_M, int BLOCK_N, int BLOCK_K, int THREAD_M, int THREAD_N, int BLOCKS_PER_SM>
__global__ void __launch_bounds__(BLOCK_M / THREAD_M * (BLOCK_N / THREAD_N), BLOCKS_PER_SM)
s08_vectorized(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N, int K) {
    static_assert(BLOCK_M % THREAD_M == 0 && BLOCK_N % THREAD_N == 0, "THREAD_M, THREAD_N: threads cover the tile");
    static_assert(BLOCK_K % VECTOR == 0 && THREAD_N % VECTOR == 0, "BLOCK_K, THREAD_N: whole vectors");
    constexpr int THREADS = BLOCK_M / THREAD_M * (BLOCK_N / THREAD_N);
    __shared__ alignas(16) float a_smem[BLOCK_M][BLOCK_K];  // (m, k)
    __shared__ alignas(16) float b_smem[BLOCK_K][BLOCK_N];  // (k, n)

    // Who am I. The block's tile starts at C[row, col]; mine starts at (thread_m, thread_n) in it.
    const int row = blockIdx.y * BLOCK_M;
    const int col = blockIdx.x * BLOCK_N;
    const int thread = threadIdx.y * (BLOCK_N / THREAD_N) + threadIdx.x;
    const int thread_m = threadIdx.y * THREAD_M;
    const int thread_n = threadIdx.x * THREAD_N;

    // Load a slice: neighbouring threads load neighbours in the rows of A and B. Past K and N it is 0; a row past
    // M repeats the last one, in sums that are never stored.
    const auto load_slice = [&](int k_start, auto load) {
#pragma unroll
        for (int first = 0; first < BLOCK_M * BLOCK_K / VECTOR; first += THREADS) {
            const int i = first + thread;
            const int m = i / (BLOCK_K / VECTOR), k = i % (BLOCK_K / VECTOR) * VECTOR;
            const float* from = &A[(size_t)min(row + m, M - 1) * K + k_start + k];
            as_vector(a_smem[m][k]) = load(from, K - k_start - k);
        }
#pragma unroll
        for (int first = 0; first < BLOCK_K * BLOCK_N / VECTOR; first += THREADS) {
            const int i = first + thread;
            const int k = i / (BLOCK_N / VECTOR), n = i % (BLOCK_N / VECTOR) * VECTOR;
            const float* from = &B[(size_t)(k_start + k) * N + col + n];
            as_vector(b_smem[k][n]) = load(from, k_start + k < K ? N - col - n : 0);
        }
    };
    const bool vectors = has_vector_rows(A, K) && has_vector_rows(B, N);

    alignas(16) float acc[THREAD_M][THREAD_N] = {};
    for (int k_start = 0; k_start < K; k_start += BLOCK_K) {
        if (vectors) load_slice(k_start, load_vector);
        else load_slice(k_start, load_floats);
        __syncthreads();  // the whole slice is written before anyone reads it

        // Multiply the slice
#pragma unroll
        for (int k = 0; k < BLOCK_K; ++k) {
            alignas(16) float a_frag[THREAD_M], b_frag[THREAD_N];
#pragma unroll
            for (int m = 0; m < THREAD_M; ++m) a_frag[m] = a_smem[thread_m + m][k];
#pragma unroll
            for (int n = 0; n < THREAD_N; n += VECTOR) as_vector(b_frag[n]) = as_vector(b_smem[k][thread_n + n]);
#pragma unroll
            for (int m = 0; m < THREAD_M; ++m) {
#pragma unroll
                for (int n = 0; n < THREAD_N; ++n) acc[m][n] += a_frag[m] * b_frag[n];
            }
        }
        __syncthreads();  // everyone has read the slice before the next one overwrites it
    }

    // Store
    const auto store_tile = [&](auto store) {
#pragma unroll
        for (int m = 0; m < THREAD_M; ++m) {
#pragma unroll
            for (int n = 0; n < THREAD_N; n += VECTOR) {
                const int c_row = row + thread_m + m, c_col = col + thread_n + n;
                store(&C[(size_t)c_row * N + c_col], as_vector(acc[m][n]), c_row < M ? N - c_col : 0);
            }
        }
    };
    if (has_vector_rows(C, N)) store_tile(store_vector);
    else store_tile(store_floats);
}

namespace config = registry::s08_vectorized;
extern "C" cudaError_t launch(const float* A, const float* B, float* C, int M, int N, int K, const LaunchShape& shape,
                              cudaStream_t stream) {
    using namespace config;
    const auto kernel = s08_vectorized<BLOCK_M, BLOCK_N, BLOCK_K, THREAD_M, THREAD_N, BLOCKS_PER_SM>;
    return launch_kernel(kernel, shape, stream, A, B, C, M, N, K);
}
