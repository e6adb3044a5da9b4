// Idea:         K is split over blocks, so that a small C occupies the whole GPU; a second kernel adds the partial
//               sums.
// Changed:      Unlike in s12, a block multiplies a part of K, and stores its sums to the matrix of its split.
// Tile/threads: They are those of s12's tile128; the grid's z is the split. s13_add_partials has a thread per element.
// Cost:         A second launch reads the 4 splits M N bytes that the first writes: 8.4 MB for 128 splits of 128 x 128.
//               Sums are added in order, so GPUs with equally many SMs return equal bits; atomics would not.
// Requires:     The kernel takes any M, N, K, row-major; rows of B and C that are no whole vectors go float by float.
#include "async_copy.cuh"
#include "launch.cuh"
#include "vector.cuh"

// A[M, K] @ B[K, N] = C[M, N]; the block stores the partial sum of split z = blockIdx.z of K to partials[z].
template <int BLOCK_M, int BLOCK_N, int BLOCK_K, int WARP_M, int WARP_N, int THREAD_M, int THREAD_N, int NUM_STAGES,
          int BLOCKS_PER_SM>
__global__ void __launch_bounds__(BLOCK_M / THREAD_M * (BLOCK_N / THREAD_N), BLOCKS_PER_SM)
s13_split_k(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C,
            float* __restrict__ partials, int M, int N, int K) {
    constexpr int LANES_M = WARP_M / THREAD_M, LANES_N = WARP_N / THREAD_N;
    static_assert(BLOCK_M % WARP_M == 0 && BLOCK_N % WARP_N == 0, "WARP_M, WARP_N: whole warps cover the tile");
    static_assert(LANES_M * LANES_N == 32 && LANES_M % 2 == 0 && LANES_N % 2 == 0, "WARP_M, WARP_N: 4 x 8 or 8 x 4");
    static_assert(BLOCK_K % 8 == 0, "BLOCK_K: eight neighbouring threads copy 8 floats of a row of A");
    static_assert(NUM_STAGES >= 2, "NUM_STAGES: one slice is copied while another is read");
    static_assert(THREAD_M % VECTOR == 0 && THREAD_N % VECTOR == 0, "THREAD_M, THREAD_N: whole vectors");
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
    const int slices = (K + BLOCK_K - 1) / BLOCK_K, slices_each = (slices + gridDim.z - 1) / gridDim.z;
    const int k_begin = blockIdx.z * slices_each * BLOCK_K, k_end = min(K - k_begin, slices_each * BLOCK_K) + k_begin;
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
            copy_float_async(a_smem[stage][k][m], a_from[c] + k_start, k_start + k < k_end);
        }
#pragma unroll
        for (int c = 0; c < B_COPIES; ++c) {
            b_place(c, k, n);
            copy(b_smem[stage][k][n], b_from[c] + (size_t)k_start * N, k_start + k < k_end ? N - col - n : 0);
        }
        commit_copies();
    };
    const bool vectors = has_vector_rows(B, N);

    // Read the thread's fragments of one k into one of two sets of registers
    alignas(16) float a_frag[2][THREAD_M], b_frag[2][THREAD_N];
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

    alignas(16) float acc[THREAD_M][THREAD_N] = {};
#pragma unroll
    for (int stage = 0; stage < NUM_STAGES - 1; ++stage) {
        if (vectors) copy_slice(stage, k_begin + stage * BLOCK_K, copy_vector_async);
        else copy_slice(stage, k_begin + stage * BLOCK_K, copy_floats_async);
    }
    wait_for_copies<NUM_STAGES - 2>();
    __syncthreads();  // the first slice has landed
    read_fragments(0, 0, 0);
    int stage = 0, free_stage = NUM_STAGES - 1;
    for (int k_start = k_begin; k_start < k_end; k_start += BLOCK_K) {
        // Multiply the slice while the next fragments are read from shared memory
#pragma unroll
        for (int k = 0; k < BLOCK_K; ++k) {
            if (k == BLOCK_K - 1) {
                wait_for_copies<NUM_STAGES - 2>();
                __syncthreads();  // the next slice has landed, and everyone has read this one
                stage = stage + 1 < NUM_STAGES ? stage + 1 : 0;
            }
            read_fragments((k + 1) % 2, stage, (k + 1) % BLOCK_K);
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
                for (int n = 0; n < THREAD_N; ++n) acc[m][n] += a_frag[k % 2][m] * b_frag[k % 2][n];
            }
        }
    }

    // Store
    if (gridDim.z > 1) C = partials + (size_t)blockIdx.z * M * N;
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

// Adds the splits' matrices, (splits, M, N), in their order, so that every run returns the same bits.
__global__ void s13_add_partials(const float* __restrict__ partials, float* __restrict__ C, int M, int N, int K,
                                 int splits) {
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x, elements = (size_t)M * N;
    if (i >= elements) return;
    float sum = 0.0f;
#pragma unroll 8
    for (int split = 0; split < splits; ++split) sum += partials[split * elements + i];
    C[i] = sum;
}

namespace config = registry::s13_split_k;
extern "C" cudaError_t launch(const float* A, const float* B, float* C, int M, int N, int K, const LaunchShape& shape,
                              cudaStream_t stream) {
    using namespace config;
    const auto kernel =
        s13_split_k<BLOCK_M, BLOCK_N, BLOCK_K, WARP_M, WARP_N, THREAD_M, THREAD_N, NUM_STAGES, BLOCKS_PER_SM>;
    const cudaError_t error = launch_kernel(kernel, shape, stream, A, B, C, shape.partials, M, N, K);
    if (error != cudaSuccess || shape.then == nullptr) return error;
    const int splits = shape.grid[2];
    return launch_kernel(s13_add_partials, *shape.then, stream, shape.partials, C, M, N, K, splits);
}
