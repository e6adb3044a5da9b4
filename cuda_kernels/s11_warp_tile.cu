// Idea:         A warp computes a compact sub-tile of C, whose lanes share more of what they read from shared memory.
// Changed:      Warps have tiles, unlike in s10. The next slice is loaded at k = LOAD_AT. With 2 FRAGMENT_SETS a thread
//               reads the fragments of the next k, even across the barrier, while it multiplies this k's.
// Tile/threads: A block, a warp (of 8) and a thread compute 128 x 128, 32 x 64 and 8 x 8 in tile128, 128 x 256, 64 x 64
//               and 8 x 16 in wide, with BLOCK_K 8. late is wide with LOAD_AT 1, two_sets is late with 2 FRAGMENT_SETS;
//               the others have 0 and 1.
// Cost:         Bytes, FLOP and shared memory of tile128 are s10's. At each k a warp reads 32 floats of A and 64 of B
//               (s10: 16 and 128) with 4 reads of 2 wavefronts: 8 instead of 12 for 2048 products. wide needs 12 for
//               4096, 24.3 KiB of shared memory and 128 registers for sums. A set of fragments takes THREAD_M +
//               THREAD_N registers: 16, or 24 in wide.
// Requires:     The kernel takes any M, N, K, row-major; rows that are no whole vectors are accessed float by float.
#include "launch.cuh"
#include "vector.cuh"

// block: BLOCK_M x BLOCK_N in warp tiles     warp: WARP_M x WARP_N in quadrants     thread: THREAD_M x THREAD_N
//        (tile128: 128 x 128)                     (tile128: 32 x 64)                   (tile128: 8 x 8)
//     n ->  WARP_N                              n -> 4 per lane    + WARP_N / 2          4      at n + 32
//  m +-------+-------+                       m +--+--+- -+--+ +--+- -                   +----+  +----+
//  | | warp0 | warp1 |                       | |l |l |   |l | |l |                      |4x4 |  |4x4 |
//  v +-------+-------+ WARP_M                v +--+--+- -+--+ +--+- -                   +----+  +----+
//    | warp2 | warp3 |                         LANES_M x LANES_N lanes,                 +----+  +----+
//    +-------+-------+                         then the same lanes again                |4x4 |  |4x4 | at m + 16
//    .       .       .                                                                  +----+  +----+

// A[M, K] @ B[K, N] = C[M, N]
template <int BLOCK_M, int BLOCK_N, int BLOCK_K, int WARP_M, int WARP_N, int THREAD_M, int THREAD_N, int FRAGMENT_SETS,
          int LOAD_AT, int BLOCKS_PER_SM>
__global__ void __launch_bounds__(BLOCK_M / THREAD_M * (BLOCK_N / THREAD_N), BLOCKS_PER_SM)
s11_warp_tile(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N, int K) {
    constexpr int LANES_M = WARP_M / THREAD_M, LANES_N = WARP_N / THREAD_N;
    static_assert(BLOCK_M % WARP_M == 0 && BLOCK_N % WARP_N == 0, "WARP_M, WARP_N: whole warps cover the tile");
    static_assert(LANES_M * LANES_N == 32 && LANES_M % 2 == 0 && LANES_N % 2 == 0, "WARP_M, WARP_N: 4 x 8 or 8 x 4");
    static_assert(BLOCK_K % (2 * VECTOR) == 0, "BLOCK_K: two neighbouring threads load 8 floats of a row of A");
    static_assert(THREAD_M % VECTOR == 0 && THREAD_N % VECTOR == 0, "THREAD_M, THREAD_N: whole vectors");
    static_assert(FRAGMENT_SETS == 1 || FRAGMENT_SETS == 2, "FRAGMENT_SETS: one, or one more for the next k");
    constexpr int THREADS = BLOCK_M / THREAD_M * (BLOCK_N / THREAD_N);
    // A is transposed here, so that the THREAD_M floats of one k are vectors too. Neighbouring rows are 4 banks apart:
    // a warp stores 16 m at one k and 16 m at k + 4, which are 16 banks apart, one float in each bank.
    constexpr int PITCH = BLOCK_M + VECTOR;
    __shared__ alignas(16) float a_smem[2][BLOCK_K][PITCH];    // (buffer, k, m)
    __shared__ alignas(16) float b_smem[2][BLOCK_K][BLOCK_N];  // (buffer, k, n)

    // Who am I. The block's tile starts at C[row, col], my warp's at (warp_m, warp_n) in it. Mine is cut into quadrants
    // of VECTOR x VECTOR, the first at (thread_m, thread_n), the next STEP_M and STEP_N further. Lanes are numbered in
    // pairs: lanes i and i ^ 1 share their rows of A, i and i ^ 2 their columns of B, and then one wavefront serves the
    // 16-byte reads of half a warp (measured), not of a quarter.
    constexpr int STEP_M = LANES_M * VECTOR, STEP_N = LANES_N * VECTOR;
    const int row = blockIdx.y * BLOCK_M;
    const int col = blockIdx.x * BLOCK_N;
    const int thread = threadIdx.x;
    const int warp = thread / 32, lane = thread % 32;
    const int lane_m = lane / 2 % 2 + lane / (2 * LANES_N) * 2;
    const int lane_n = lane % 2 + lane / 4 % (LANES_N / 2) * 2;
    const int warp_m = warp / (BLOCK_N / WARP_N) * WARP_M, warp_n = warp % (BLOCK_N / WARP_N) * WARP_N;
    const int thread_m = warp_m + lane_m * VECTOR;
    const int thread_n = warp_n + lane_n * VECTOR;

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

    // Read the thread's fragments of one k into one of the sets of registers
    alignas(16) float a_frag[FRAGMENT_SETS][THREAD_M], b_frag[FRAGMENT_SETS][THREAD_N];
    const auto read_fragments = [&](int to, int buffer, int k) {
#pragma unroll
        for (int m = 0; m < THREAD_M; m += VECTOR) {
            as_vector(a_frag[to][m]) = as_vector(a_smem[buffer][k][thread_m + m / VECTOR * STEP_M]);
        }
#pragma unroll
        for (int n = 0; n < THREAD_N; n += VECTOR) {
            as_vector(b_frag[to][n]) = as_vector(b_smem[buffer][k][thread_n + n / VECTOR * STEP_N]);
        }
    };

    if (vectors) load_slice(0, load_vector);
    else load_slice(0, load_floats);
    store_slice(0);
    __syncthreads();  // the first slice is written before anyone reads it
    if (FRAGMENT_SETS == 2) read_fragments(0, 0, 0);
    int buffer = 0;
    for (int k_start = 0; k_start < K; k_start += BLOCK_K) {
        // Load the next slice into registers; nothing waits for it yet
        const int k_next = k_start + BLOCK_K;
        const bool has_next = k_next < K;
        if (LOAD_AT == 0) {
            if (has_next && vectors) load_slice(k_next, load_vector);
            else if (has_next) load_slice(k_next, load_floats);
        }

        // Store the next slice to the buffer that no thread reads
        const auto store_next_slice = [&] {
            if (has_next) store_slice(buffer ^ 1);
            __syncthreads();  // it is written, and everyone has read the buffer that is overwritten next
            buffer ^= FRAGMENT_SETS == 1 || has_next;  // past the last slice, the read-ahead repeats it
        };

        // Multiply the slice; with two sets, the next fragments are read from shared memory meanwhile
#pragma unroll
        for (int k = 0; k < BLOCK_K; ++k) {
            const int set = k % FRAGMENT_SETS, k_read = k + FRAGMENT_SETS - 1;
            if (k_read == BLOCK_K) store_next_slice();
            read_fragments(k_read % FRAGMENT_SETS, buffer, k_read % BLOCK_K);
            if (LOAD_AT > 0 && k == LOAD_AT) {
                if (has_next && vectors) load_slice(k_next, load_vector);
                else if (has_next) load_slice(k_next, load_floats);
            }
#pragma unroll
            for (int m = 0; m < THREAD_M; ++m) {
#pragma unroll
                for (int n = 0; n < THREAD_N; ++n) acc[m][n] += a_frag[set][m] * b_frag[set][n];
            }
        }
        if (FRAGMENT_SETS == 1) store_next_slice();
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

namespace config = registry::s11_warp_tile;
extern "C" cudaError_t launch(const float* A, const float* B, float* C, int M, int N, int K, const LaunchShape& shape,
                              cudaStream_t stream) {
    using namespace config;
    const auto kernel = s11_warp_tile<BLOCK_M, BLOCK_N, BLOCK_K, WARP_M, WARP_N, THREAD_M, THREAD_N, FRAGMENT_SETS,
                                      LOAD_AT, BLOCKS_PER_SM>;
    return launch_kernel(kernel, shape, stream, A, B, C, M, N, K);
}
