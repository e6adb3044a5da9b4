// Idea:         Shared memory has no bank conflicts: A is transposed there, and a thread's tile is cut into quadrants.
// Changed:      The slice of A and the thread's tile are laid out differently than in s08; the work is the same.
// Tile/threads: A block computes 128 x 128 (BLOCK_M x BLOCK_N) with 256 threads of 8 x 8 (THREAD_M x THREAD_N) each.
// Cost:         The slices take 4 (BLOCK_K (BLOCK_M + 4) + BLOCK_K BLOCK_N) bytes of shared memory, 16.25 KiB. At each
//               k a thread reads 2 vectors of A and 2 of B; a warp needs 2 wavefronts for each of A (two addresses,
//               broadcast) and 4 for each of B (16 vectors, each wavefront uses all 32 banks).
// Requires:     The kernel takes any M, N, K, row-major; rows that are no whole vectors are accessed float by float.
#include "launch.cuh"
#include "vector.cuh"

// A[M, K] @ B[K, N] = C[M, N]
template <int BLOCK_M, int BLOCK_N, int BLOCK_K, int THREAD_M, int THREAD_N, int BLOCKS_PER_SM>
__global__ void __launch_bounds__(BLOCK_M / THREAD_M * (BLOCK_N / THREAD_N), BLOCKS_PER_SM)
s09_conflict_free(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N,
                  int K) {
    static_assert(BLOCK_M % THREAD_M == 0 && BLOCK_N % THREAD_N == 0, "THREAD_M, THREAD_N: threads cover the tile");
    static_assert(BLOCK_K % (2 * VECTOR) == 0, "BLOCK_K: two neighbouring threads load 8 floats of a row of A");
    static_assert(THREAD_M % VECTOR == 0 && THREAD_N % VECTOR == 0, "THREAD_M, THREAD_N: whole vectors");
    constexpr int THREADS = BLOCK_M / THREAD_M * (BLOCK_N / THREAD_N);
    // A is transposed here, so that the THREAD_M floats of one k are vectors too. Neighbouring rows are 4 banks apart:
    // a warp stores 16 m at one k and 16 m at k + 4, which are 16 banks apart, one float in each bank.
    constexpr int PITCH = BLOCK_M + VECTOR;
    __shared__ alignas(16) float a_smem[BLOCK_K][PITCH];    // (k, m)
    __shared__ alignas(16) float b_smem[BLOCK_K][BLOCK_N];  // (k, n)

    // Who am I. The block's tile starts at C[row, col]. Mine is cut into quadrants of VECTOR x VECTOR, the first at
    // (thread_m, thread_n) and the next STEP_M and STEP_N further: the lanes of a warp read neighbouring vectors.
    constexpr int STEP_M = BLOCK_M / THREAD_M * VECTOR, STEP_N = BLOCK_N / THREAD_N * VECTOR;
    const int row = blockIdx.y * BLOCK_M;
    const int col = blockIdx.x * BLOCK_N;
    const int thread = threadIdx.y * (BLOCK_N / THREAD_N) + threadIdx.x;
    const int thread_m = threadIdx.y * VECTOR;
    const int thread_n = threadIdx.x * VECTOR;

    // Load a slice: neighbouring threads load neighbours in the rows of A and B. Past K and N it is 0; a row past
    // M repeats the last one, in sums that are never stored.
    const auto load_slice = [&](int k_start, auto load) {
#pragma unroll
        for (int first = 0; first < BLOCK_M * BLOCK_K / VECTOR; first += THREADS) {
            const int i = first + thread;
            const int m = i / 2 % BLOCK_M, k = (i % 2 + i / (2 * BLOCK_M) * 2) * VECTOR;  // two threads per row of A
            const float* from = &A[(size_t)min(row + m, M - 1) * K + k_start + k];
            const float4 vector = load(from, K - k_start - k);
            a_smem[k + 0][m] = vector.x;
            a_smem[k + 1][m] = vector.y;
            a_smem[k + 2][m] = vector.z;
            a_smem[k + 3][m] = vector.w;
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
            for (int m = 0; m < THREAD_M; m += VECTOR) {
                as_vector(a_frag[m]) = as_vector(a_smem[k][thread_m + m / VECTOR * STEP_M]);
            }
#pragma unroll
            for (int n = 0; n < THREAD_N; n += VECTOR) {
                as_vector(b_frag[n]) = as_vector(b_smem[k][thread_n + n / VECTOR * STEP_N]);
            }
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
                const int c_row = row + thread_m + m / VECTOR * STEP_M + m % VECTOR;
                const int c_col = col + thread_n + n / VECTOR * STEP_N;
                store(&C[(size_t)c_row * N + c_col], as_vector(acc[m][n]), c_row < M ? N - c_col : 0);
            }
        }
    };
    if (has_vector_rows(C, N)) store_tile(store_vector);
    else store_tile(store_floats);
}

namespace config = registry::s09_conflict_free;
extern "C" cudaError_t launch(const float* A, const float* B, float* C, int M, int N, int K, const LaunchShape& shape,
                              cudaStream_t stream) {
    using namespace config;
    const auto kernel = s09_conflict_free<BLOCK_M, BLOCK_N, BLOCK_K, THREAD_M, THREAD_N, BLOCKS_PER_SM>;
    return launch_kernel(kernel, shape, stream, A, B, C, M, N, K);
}
