// Idea:         The next slice is loaded from global memory while the current one is multiplied.
// Changed:      Where s09 has one buffer in shared memory, there are two: a slice is loaded into registers before the
//               multiplication and stored after it to the buffer that is not read, so one barrier per slice suffices.
// Tile/threads: A block computes 128 x 128 (BLOCK_M x BLOCK_N) with 256 threads of 8 x 8 (THREAD_M x THREAD_N) each.
// Cost:         It takes twice s09's shared memory, 32.5 KiB, and 16 registers per thread for the slice in flight;
//               bytes, FLOP and wavefronts are s09's.
// Requires:     The kernel takes any M, N, K, row-major; rows that are no whole vectors are accessed float by float.
#include "launch.cuh"
#include "vector.cuh"

// A[M, K] @ B[K, N] = C[M, N]
template <int BLOCK_M, int BLOCK_N, int BLOCK_K, int THREAD_M, int THREAD_N, int BLOCKS_PER_SM>
__global__ void __launch_bounds__(BLOCK_M / THREAD_M * (BLOCK_N / THREAD_N), BLOCKS_PER_SM)
s10_double_buffer(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N,
                  int K) {
    static_assert(BLOCK_M % THREAD_M == 0 && BLOCK_N % THREAD_N == 0, "THREAD_M, THREAD_N: threads cover the tile");
    static_assert(BLOCK_K % (2 * VECTOR) == 0, "BLOCK_K: two neighbouring threads load 8 floats of a row of A");
    static_assert(THREAD_M % VECTOR == 0 && THREAD_N % VECTOR == 0, "THREAD_M, THREAD_N: whole vectors");
    constexpr int THREADS = BLOCK_M / THREAD_M * (BLOCK_N / THREAD_N);
    // A is transposed here, so that the THREAD_M floats of one k are vectors too. Neighbouring rows are 4 banks apart:
    // a warp stores 16 m at one k and 16 m at k + 4, which are 16 banks apart, one float in each bank.
    constexpr int PITCH = BLOCK_M + VECTOR;
    __shared__ alignas(16) float a_smem[2][BLOCK_K][PITCH];    // (buffer, k, m)
    __shared__ alignas(16) float b_smem[2][BLOCK_K][BLOCK_N];  // (buffer, k, n)

    // Who am I. The block's tile starts at C[row, col]. Mine is cut into quadrants of VECTOR x VECTOR, the first at
    // (thread_m, thread_n) and the next STEP_M and STEP_N further: the lanes of a warp read neighbouring vectors.
    constexpr int STEP_M = BLOCK_M / THREAD_M * VECTOR, STEP_N = BLOCK_N / THREAD_N * VECTOR;
    const int row = blockIdx.y * BLOCK_M;
    const int col = blockIdx.x * BLOCK_N;
    const int thread = threadIdx.y * (BLOCK_N / THREAD_N) + threadIdx.x;
    const int thread_m = threadIdx.y * VECTOR;
    const int thread_n = threadIdx.x * VECTOR;

    // Load a slice into registers: neighbouring threads load neighbours in the rows of A and B. Past K and N it
    // is 0; a row past M repeats the last one, in sums that are never stored.
    constexpr int A_VECTORS = BLOCK_M * BLOCK_K / VECTOR / THREADS, B_VECTORS = BLOCK_K * BLOCK_N / VECTOR / THREADS;
    static_assert(A_VECTORS * VECTOR * THREADS == BLOCK_M * BLOCK_K, "BLOCK_M, BLOCK_K: as many vectors per thread");
    static_assert(B_VECTORS * VECTOR * THREADS == BLOCK_K * BLOCK_N, "BLOCK_K, BLOCK_N: as many vectors per thread");
    float4 a_next[A_VECTORS], b_next[B_VECTORS];
    const auto load_slice = [&](int k_start, auto load) {
#pragma unroll
        for (int v = 0; v < A_VECTORS; ++v) {
            const int i = v * THREADS + thread;
            const int m = i / 2 % BLOCK_M, k = (i % 2 + i / (2 * BLOCK_M) * 2) * VECTOR;  // two threads per row of A
            const float* from = &A[(size_t)min(row + m, M - 1) * K + k_start + k];
            a_next[v] = load(from, K - k_start - k);
        }
#pragma unroll
        for (int v = 0; v < B_VECTORS; ++v) {
            const int i = v * THREADS + thread;
            const int k = i / (BLOCK_N / VECTOR), n = i % (BLOCK_N / VECTOR) * VECTOR;
            const float* from = &B[(size_t)(k_start + k) * N + col + n];
            b_next[v] = load(from, k_start + k < K ? N - col - n : 0);
        }
    };
    const bool vectors = has_vector_rows(A, K) && has_vector_rows(B, N);

    // Store the slice to a buffer
    const auto store_slice = [&](int buffer) {
#pragma unroll
        for (int v = 0; v < A_VECTORS; ++v) {
            const int i = v * THREADS + thread;
            const int m = i / 2 % BLOCK_M, k = (i % 2 + i / (2 * BLOCK_M) * 2) * VECTOR;
            a_smem[buffer][k + 0][m] = a_next[v].x;
            a_smem[buffer][k + 1][m] = a_next[v].y;
            a_smem[buffer][k + 2][m] = a_next[v].z;
            a_smem[buffer][k + 3][m] = a_next[v].w;
        }
#pragma unroll
        for (int v = 0; v < B_VECTORS; ++v) {
            const int i = v * THREADS + thread;
            const int k = i / (BLOCK_N / VECTOR), n = i % (BLOCK_N / VECTOR) * VECTOR;
            as_vector(b_smem[buffer][k][n]) = b_next[v];
        }
    };

    alignas(16) float acc[THREAD_M][THREAD_N] = {};
    if (vectors) load_slice(0, load_vector);
    else load_slice(0, load_floats);
    store_slice(0);
    __syncthreads();  // the first slice is written before anyone reads it
    int buffer = 0;
    for (int k_start = 0; k_start < K; k_start += BLOCK_K) {
        // Load the next slice into registers; nothing waits for it yet
        const int k_next = k_start + BLOCK_K;
        const bool has_next = k_next < K;
        if (has_next && vectors) load_slice(k_next, load_vector);
        else if (has_next) load_slice(k_next, load_floats);

        // Multiply the slice
#pragma unroll
        for (int k = 0; k < BLOCK_K; ++k) {
            alignas(16) float a_frag[THREAD_M], b_frag[THREAD_N];
#pragma unroll
            for (int m = 0; m < THREAD_M; m += VECTOR) {
                as_vector(a_frag[m]) = as_vector(a_smem[buffer][k][thread_m + m / VECTOR * STEP_M]);
            }
#pragma unroll
            for (int n = 0; n < THREAD_N; n += VECTOR) {
                as_vector(b_frag[n]) = as_vector(b_smem[buffer][k][thread_n + n / VECTOR * STEP_N]);
            }
#pragma unroll
            for (int m = 0; m < THREAD_M; ++m) {
#pragma unroll
                for (int n = 0; n < THREAD_N; ++n) acc[m][n] += a_frag[m] * b_frag[n];
            }
        }

        // Store the next slice to the buffer that no thread reads
        if (has_next) store_slice(buffer ^ 1);
        __syncthreads();  // it is written, and everyone has read the buffer that is overwritten next
        buffer ^= 1;
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

namespace config = registry::s10_double_buffer;
extern "C" cudaError_t launch(const float* A, const float* B, float* C, int M, int N, int K, const LaunchShape& shape,
                              cudaStream_t stream) {
    using namespace config;
    const auto kernel = s10_double_buffer<BLOCK_M, BLOCK_N, BLOCK_K, THREAD_M, THREAD_N, BLOCKS_PER_SM>;
    return launch_kernel(kernel, shape, stream, A, B, C, M, N, K);
}
