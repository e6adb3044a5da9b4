// Idea:         cp.async copies NUM_STAGES slices ahead, straight to shared memory, while older ones are multiplied.
// Changed:      Unlike in s11, no slice passes through registers, and more than one can be in flight.
// Tile/threads: They are s11's; but all variants have 2 FRAGMENT_SETS, and one_set is wide with 1.
// Cost:         The slices take 4 NUM_STAGES BLOCK_K (BLOCK_M + 4 + BLOCK_N) bytes: 48.75 KiB for 3 stages of tile128,
//               36.4 KiB of wide. The copy transposes A and so moves single floats; B is copied by vectors. The rest is
//               as in s11. A copy of A takes 4 wavefronts, one per row that it reads (docs/memory.md).
// Requires:     The kernel takes any M, N and K; A, B and C are row-major. Rows of B and C that are no multiple of 16
//               bytes are copied float by float. Below sm_80, which has no cp.async, copies are synchronous.
#include "async_copy.cuh"
#include "launch.cuh"
#include "vector.cuh"

// A[M, K] @ B[K, N] = C[M, N]
template <int BLOCK_M, int BLOCK_N, int BLOCK_K, int WARP_M, int WARP_N, int THREAD_M, int THREAD_N, int NUM_STAGES,
          int FRAGMENT_SETS, int BLOCKS_PER_SM>
__global__ void __launch_bounds__(BLOCK_M / THREAD_M * (BLOCK_N / THREAD_N), BLOCKS_PER_SM)
s12_async_copy(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N, int K) {
    constexpr int LANES_M = WARP_M / THREAD_M, LANES_N = WARP_N / THREAD_N;
    static_assert(BLOCK_M % WARP_M == 0 && BLOCK_N % WARP_N == 0, "WARP_M, WARP_N: whole warps cover the tile");
    static_assert(LANES_M * LANES_N == 32 && LANES_M % 2 == 0 && LANES_N % 2 == 0, "WARP_M, WARP_N: 4 x 8 or 8 x 4");
    static_assert(BLOCK_K % 8 == 0, "BLOCK_K: eight neighbouring threads copy 8 floats of a row of A");
    static_assert(NUM_STAGES >= 2, "NUM_STAGES: one slice is copied while another is read");
    static_assert(THREAD_M % VECTOR == 0 && THREAD_N % VECTOR == 0, "THREAD_M, THREAD_N: whole vectors");
    static_assert(FRAGMENT_SETS == 1 || FRAGMENT_SETS == 2, "FRAGMENT_SETS: one, or one more for the next k");
    constexpr int THREADS = BLOCK_M / THREAD_M * (BLOCK_N / THREAD_N);
    // A is transposed, as before. Neighbouring rows start 4 banks apart, so a warp's copies of 4 m of 8 k go to
    // different banks.
    constexpr int PITCH = BLOCK_M + VECTOR;
    extern __shared__ __align__(16) float smem[];
    const auto a_smem = reinterpret_cast<float (*)[BLOCK_K][PITCH]>(smem);  // (stage, k, m)
    const auto b_smem =                                                     // (stage, k, n)
        reinterpret_cast<float (*)[BLOCK_K][BLOCK_N]>(smem + NUM_STAGES * BLOCK_K * PITCH);

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

    // I copy single floats of A and vectors of B: a_place and b_place compute their place in a slice, a_from and
    // b_from point to them in the first slice. A row past M repeats the last one, in sums that are never stored.
    constexpr int A_COPIES = BLOCK_M * BLOCK_K / THREADS, B_COPIES = BLOCK_K * BLOCK_N / VECTOR / THREADS;
    static_assert(A_COPIES * THREADS == BLOCK_M * BLOCK_K, "BLOCK_M, BLOCK_K: as many copies per thread");
    static_assert(B_COPIES * VECTOR * THREADS == BLOCK_K * BLOCK_N, "BLOCK_K, BLOCK_N: as many copies per thread");
    const auto a_place = [&](int copy, int& m, int& k) {
        const int i = copy * THREADS + thread;
        m = i / 8 % BLOCK_M, k = i % 8 + i / (8 * BLOCK_M) * 8;  // eight threads per row of A
    };
    const auto b_place = [&](int copy, int& k, int& n) {
        const int i = copy * THREADS + thread;
        k = i / (BLOCK_N / VECTOR), n = i % (BLOCK_N / VECTOR) * VECTOR;
    };
    const float *a_from[A_COPIES], *b_from[B_COPIES];
    int m, k, n;
#pragma unroll
    for (int c = 0; c < A_COPIES; ++c) a_place(c, m, k), a_from[c] = &A[(size_t)min(row + m, M - 1) * K + k];
#pragma unroll
    for (int c = 0; c < B_COPIES; ++c) b_place(c, k, n), b_from[c] = &B[(size_t)k * N + col + n];

    // Start to copy a slice; elements past K and N become 0.
    const auto copy_slice = [&](int stage, int k_start, auto copy) {
#pragma unroll
        for (int c = 0; c < A_COPIES; ++c) {
            a_place(c, m, k);
            copy_float_async(a_smem[stage][k][m], a_from[c] + k_start, k_start + k < K);
        }
#pragma unroll
        for (int c = 0; c < B_COPIES; ++c) {
            b_place(c, k, n);
            copy(b_smem[stage][k][n], b_from[c] + (size_t)k_start * N, k_start + k < K ? N - col - n : 0);
        }
        commit_copies();
    };
    const bool vectors = has_vector_rows(B, N);

    alignas(16) float acc[THREAD_M][THREAD_N] = {};

    // Read the thread's fragments of one k into one of the sets of registers
    alignas(16) float a_frag[FRAGMENT_SETS][THREAD_M], b_frag[FRAGMENT_SETS][THREAD_N];
    const auto read_fragments = [&](int to, int stage, int k) {
#pragma unroll
        for (int m = 0; m < THREAD_M; m += VECTOR) {
            as_vector(a_frag[to][m]) = as_vector(a_smem[stage][k][thread_m + m / VECTOR * STEP_M]);
        }
#pragma unroll
        for (int n = 0; n < THREAD_N; n += VECTOR) {
            as_vector(b_frag[to][n]) = as_vector(b_smem[stage][k][thread_n + n / VECTOR * STEP_N]);
        }
    };

#pragma unroll
    for (int stage = 0; stage < NUM_STAGES - 1; ++stage) {
        if (vectors) copy_slice(stage, stage * BLOCK_K, copy_vector_async);
        else copy_slice(stage, stage * BLOCK_K, copy_floats_async);
    }
    wait_for_copies<NUM_STAGES - 2>();
    __syncthreads();  // the first slice has landed
    if (FRAGMENT_SETS == 2) read_fragments(0, 0, 0);
    int stage = 0, free_stage = NUM_STAGES - 1;
    for (int k_start = 0; k_start < K; k_start += BLOCK_K) {
        // Go on to the next slice once it has landed
        const auto next_slice = [&] {
            wait_for_copies<NUM_STAGES - 2>();
            __syncthreads();  // everyone sees it, and has read this one
            stage = stage + 1 < NUM_STAGES ? stage + 1 : 0;
        };

        // Multiply the slice; with two sets, the next fragments are read from shared memory meanwhile
#pragma unroll
        for (int k = 0; k < BLOCK_K; ++k) {
            const int set = k % FRAGMENT_SETS, k_read = k + FRAGMENT_SETS - 1;
            if (k_read == BLOCK_K) next_slice();
            read_fragments(k_read % FRAGMENT_SETS, stage, k_read % BLOCK_K);
            if (k == 1) {
                // Load the slice NUM_STAGES - 1 ahead to the buffer of the one multiplied last. The copies are issued
                // after the reads for the first products, which is faster than before them (docs/ladder.md)
                const int k_next = k_start + (NUM_STAGES - 1) * BLOCK_K;
                if (vectors) copy_slice(free_stage, k_next, copy_vector_async);
                else copy_slice(free_stage, k_next, copy_floats_async);
                free_stage = stage;
            }
#pragma unroll
            for (int m = 0; m < THREAD_M; ++m) {
#pragma unroll
                for (int n = 0; n < THREAD_N; ++n) acc[m][n] += a_frag[set][m] * b_frag[set][n];
            }
        }
        if (FRAGMENT_SETS == 1) next_slice();
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

namespace config = registry::s12_async_copy;
extern "C" cudaError_t launch(const float* A, const float* B, float* C, int M, int N, int K, const LaunchShape& shape,
                              cudaStream_t stream) {
    using namespace config;
    const auto kernel = s12_async_copy<BLOCK_M, BLOCK_N, BLOCK_K, WARP_M, WARP_N, THREAD_M, THREAD_N, NUM_STAGES,
                                       FRAGMENT_SETS, BLOCKS_PER_SM>;
    return launch_kernel(kernel, shape, stream, A, B, C, M, N, K);
}
