// Idea:         Each of the two register banks delivers one operand per clock: products are ordered column by column,
//               down and up, and sums may be in any register, so that hardly an FFMA waits for its operands.
// Changed:      Unlike in s13, blocks first compute whole tiles, then equal shares of the K of the remaining tiles.
//               Tile and shares depend on the shape (gemm_ref/choice), and the products have another order.
// Tile/threads: Tiles range from 8 x 64 to 128 x 128, per thread from 4 x 4 to 8 x 16 (gemm_ref/tiles.py). Block b of G
//               computes tiles b, b + G, ...; s14_add_shares has one thread per 4 columns of a shared tile.
// Cost:         It is as in s12; each share of a shared tile is written and read once more, 4 BLOCK_M BLOCK_N bytes.
//               Shares are added in order, so every run with one grid returns the same bits.
// Requires:     The kernel takes any M, N and K; A, B and C are row-major. If rows of B are no whole vectors, B is
//               first copied to rows that are, or its slices are copied by floats; such rows of C are stored by floats.
#include <type_traits>
#include "async_copy.cuh"
#include "early_start.cuh"
#include "launch.cuh"
#include "strip.cuh"
#include "tile_order.cuh"
#include "vector.cuh"

// Schedule of the tiles: block b computes whole tiles b, b + blocks, ... The K slices of the remaining tiles form one
// sequence, of which each block has an equal share: less than a tile, and so parts of at most two tiles.
template <int BLOCK_M, int BLOCK_N, int BLOCK_K>
struct TileSchedule {
    int tiles_m, tiles_n, slices;  // of C; of K per tile
    int unshared;                  // tiles that one block computes alone
    int share, shared;             // slices of K per block, and in total

    __device__ TileSchedule(int M, int N, int K, int blocks)
        : tiles_m((M + BLOCK_M - 1) / BLOCK_M),
          tiles_n((N + BLOCK_N - 1) / BLOCK_N),
          slices(max((K + BLOCK_K - 1) / BLOCK_K, 1)),
          unshared(tiles_m * tiles_n / blocks * blocks) {
        shared = (tiles_m * tiles_n - unshared) * slices;
        share = (shared + blocks - 1) / blocks;
    }
};

// A[M, K] @ B[K, N] = C[M, N]. A block stores its parts of shared tiles to `partials`, (block, 2, m, n), instead.
template <int BLOCK_M, int BLOCK_N, int BLOCK_K, int WARP_M, int WARP_N, int THREAD_M, int THREAD_N, int COPY_N,
          int GROUP_M, int NUM_STAGES, bool ALIGN_B>
__device__ __forceinline__ void multiply_tiles(const float* __restrict__ A, const float* __restrict__ B,
                                               float* __restrict__ C, float* __restrict__ partials, int M, int N,
                                               int K) {
    constexpr int LANES_M = WARP_M / THREAD_M, LANES_N = WARP_N / THREAD_N;
    static_assert(BLOCK_M % WARP_M == 0 && BLOCK_N % WARP_N == 0, "WARP_M, WARP_N: whole warps cover the tile");
    static_assert(LANES_M * LANES_N == 32 && LANES_M % 2 == 0 && LANES_N % 2 == 0, "WARP_M, WARP_N: whole warps");
    static_assert(NUM_STAGES >= 2, "NUM_STAGES: one slice is copied while another is read");
    static_assert(THREAD_M % VECTOR == 0 && THREAD_N % VECTOR == 0, "THREAD_M, THREAD_N: whole vectors");
    constexpr int THREADS = BLOCK_M / THREAD_M * (BLOCK_N / THREAD_N);
    // A is transposed, and neighbouring rows start 4 banks apart, as in s12. A stage is identified by its address.
    constexpr int PITCH = BLOCK_M + VECTOR, A_FLOATS = BLOCK_K * PITCH, STAGE = A_FLOATS + BLOCK_K * BLOCK_N;
    constexpr int LAST_STAGE = (NUM_STAGES - 1) * STAGE;
    // Places in shared memory are 32-bit addresses, as instructions take them, and not 64-bit pointers.
    extern __shared__ __align__(16) float smem[];  // (stage, A (k, m) and B (k, n))
    constexpr int FLOAT = sizeof(float);
    const unsigned first_stage = shared_address(smem), last_stage = first_stage + LAST_STAGE * FLOAT;

    // Who am I: as in s12
    constexpr int STEP_M = LANES_M * VECTOR, STEP_N = LANES_N * VECTOR;
    const int thread = threadIdx.x;
    const int warp = thread / 32, lane = thread % 32;
    const int lane_m = lane / 2 % 2 + lane / (2 * LANES_N) * 2;
    const int lane_n = lane % 2 + lane / 4 % (LANES_N / 2) * 2;
    const int warp_m = warp / (BLOCK_N / WARP_N) * WARP_M, warp_n = warp % (BLOCK_N / WARP_N) * WARP_N;
    const int thread_m = warp_m + lane_m * VECTOR;
    const int thread_n = warp_n + lane_n * VECTOR;

    // I copy floats of A, BLOCK_K threads per row, and vectors of B, or floats where its rows are no whole vectors.
    constexpr int A_STEP = THREADS / BLOCK_K, A_COPIES = BLOCK_M / A_STEP;         // rows between two copies
    constexpr int B_ROW = BLOCK_N / COPY_N, B_COPIES = BLOCK_K * B_ROW / THREADS;  // copies per row, and per thread
    static_assert(A_STEP * BLOCK_K == THREADS && A_COPIES * A_STEP == BLOCK_M, "BLOCK_M, BLOCK_K: whole copies");
    static_assert(B_COPIES * THREADS == BLOCK_K * B_ROW && (B_ROW % THREADS == 0 || THREADS % B_ROW == 0),
                  "BLOCK_K, BLOCK_N: as many copies per thread, in whole rows");
    // A slice needs 32 or 64 bytes of each 128-byte line of A. With few columns most reads are of A, and a hint lets L2
    // fetch the whole line.
    constexpr bool LINE = BLOCK_M >= 64 && BLOCK_N <= 32;
    // Copies follow the reads for the first products, as in s12; with many copies and few registers they precede them
    constexpr int COPY_AT = COPY_N == 1 && THREAD_M * THREAD_N > 64 ? 0 : 1;
    constexpr int LINE_FLOATS = 32;                                                      // per line of the L2 cache
    const int b_step = ALIGN_B ? (N + LINE_FLOATS - 1) / LINE_FLOATS * LINE_FLOATS : N;  // floats between rows of B
    const int a_m = thread / BLOCK_K, a_k = thread % BLOCK_K;
    const int b_k = thread / B_ROW, b_n = thread % B_ROW * COPY_N;
    const unsigned a_to = (a_k * PITCH + a_m) * FLOAT, b_to = (A_FLOATS + b_k * BLOCK_N + b_n) * FLOAT;  // in a stage
    const unsigned a_at = thread_m * FLOAT, b_at = (A_FLOATS + thread_n) * FLOAT;                        // read from

    const TileSchedule<BLOCK_M, BLOCK_N, BLOCK_K> schedule(M, N, K, gridDim.x);
    int shared = blockIdx.x * schedule.share, place = 0;  // the next slice of my share, and the index of its part
    const int shared_end = min(shared + schedule.share, schedule.shared);
    for (int next = blockIdx.x; next < schedule.unshared || shared < shared_end; next += gridDim.x) {
        // Select a whole tile or a part of a shared one
        const bool is_unshared = next < schedule.unshared;
        const int tile = is_unshared ? next : schedule.unshared + shared / schedule.slices;
        const int first = is_unshared ? 0 : shared % schedule.slices;
        const int slices = is_unshared ? schedule.slices : min(schedule.slices - first, shared_end - shared);
        const TilePlace at = tile_place<GROUP_M>(tile, schedule.tiles_m, schedule.tiles_n);
        const int row = at.m * BLOCK_M, col = at.n * BLOCK_N;

        // Start to copy the next slice. Elements past K and N become 0; a row past M repeats the last one, in sums that
        // are never stored.
        int k_next = first * BLOCK_K;
        const float *a_from[A_COPIES], *b_from = &B[(size_t)(k_next + b_k) * b_step + col + b_n];
#pragma unroll
        for (int c = 0; c < A_COPIES; ++c)
            a_from[c] = &A[(size_t)min(row + a_m + c * A_STEP, M - 1) * K + k_next + a_k];
        const auto copy_slice = [&](unsigned stage) {
#pragma unroll
            for (int c = 0; c < A_COPIES; ++c) {
                copy_float_async_at<LINE>(stage + a_to + c * A_STEP * FLOAT, a_from[c], k_next + a_k < K);
                a_from[c] += BLOCK_K;
            }
#pragma unroll
            for (int c = 0; c < B_COPIES; ++c) {
                const int k = c * THREADS / B_ROW, n = c * THREADS % B_ROW * COPY_N;  // relative to the first copy
                const unsigned to = stage + b_to + (k * BLOCK_N + n) * FLOAT;
                const bool inside = col + b_n + n < N && k_next + b_k + k < K;
                if constexpr (COPY_N == 1) copy_float_async_at<LINE>(to, b_from + n, inside);
                else copy_vector_async_at(to, b_from + n, inside);
                if ((c + 1) * THREADS % B_ROW == 0) b_from += (size_t)max(THREADS / B_ROW, 1) * b_step;  // the next row
            }
            commit_copies();
            k_next += BLOCK_K;
        };

        // Read the thread's fragments of one k into one of two sets of registers
        alignas(16) float a_frag[2][THREAD_M], b_frag[2][THREAD_N];
        const auto read_fragments = [&](int to, unsigned stage, int k) {
#pragma unroll
            for (int m = 0; m < THREAD_M; m += VECTOR) {
                read_vector(a_frag[to][m], stage + a_at + (k * PITCH + m / VECTOR * STEP_M) * FLOAT);
            }
#pragma unroll
            for (int n = 0; n < THREAD_N; n += VECTOR) {
                read_vector(b_frag[to][n], stage + b_at + (k * BLOCK_N + n / VECTOR * STEP_N) * FLOAT);
            }
        };

        alignas(16) float acc[THREAD_M][THREAD_N] = {};
        __syncthreads();  // everyone has read the slices of the previous part
#pragma unroll
        for (int stage = 0; stage < LAST_STAGE; stage += STAGE) copy_slice(first_stage + stage * FLOAT);
        wait_for_copies<NUM_STAGES - 2>();
        __syncthreads();  // the first slice has landed
        read_fragments(0, first_stage, 0);
        unsigned stage = first_stage, free_stage = last_stage;
#pragma unroll 1
        for (int slice = 0; slice < slices; ++slice) {
            // Multiply the slice while the next fragments are read from shared memory
#pragma unroll
            for (int k = 0; k < BLOCK_K; ++k) {
                if (k == BLOCK_K - 1) {
                    wait_for_copies<NUM_STAGES - 2>();
                    __syncthreads();  // the next slice has landed, and everyone has read this one
                    stage = stage == last_stage ? first_stage : stage + STAGE * FLOAT;
                }
                read_fragments((k + 1) % 2, stage, (k + 1) % BLOCK_K);
                if (k == COPY_AT) {
                    copy_slice(free_stage);
                    free_stage = stage;
                }
#pragma unroll
                for (int n = 0; n < THREAD_N; ++n) {
#pragma unroll
                    for (int i = 0; i < THREAD_M; ++i) {
                        const int m = n % 2 ? THREAD_M - 1 - i : i;  // down a column, and back up the next
                        acc[m][n] += a_frag[k % 2][m] * b_frag[k % 2][n];
                    }
                }
            }
        }
        wait_for_copies<0>();  // copies of slices past the part, which no thread reads

        // A vector store needs four neighbouring registers, and ptxas would allocate the sums there from the first
        // product on. The stored products with `one` are new values, so the sums may be in any register.
        const float one = K >= 0 ? 1.0f : 0.0f;  // always 1, but the compiler cannot infer it
#pragma unroll
        for (int m = 0; m < THREAD_M; ++m) {
#pragma unroll
            for (int n = 0; n < THREAD_N; ++n) acc[m][n] *= one;
        }

        // Store
        const auto store_tile = [&](auto store, float* to, int pitch, int columns) {
#pragma unroll
            for (int m = 0; m < THREAD_M; ++m) {
#pragma unroll
                for (int n = 0; n < THREAD_N; n += VECTOR) {
                    const int c_row = thread_m + m / VECTOR * STEP_M + m % VECTOR,
                              c_col = thread_n + n / VECTOR * STEP_N;
                    store(&to[(size_t)c_row * pitch + c_col], as_vector(acc[m][n]),
                          row + c_row < M ? columns - c_col : 0);
                }
            }
        };
        if (!is_unshared) {
            store_tile(store_vector, &partials[((size_t)blockIdx.x * 2 + place) * BLOCK_M * BLOCK_N], BLOCK_N, BLOCK_N);
            place += 1, shared += slices;
        } else if (has_vector_rows(C, N)) {
            store_tile(store_vector, &C[(size_t)row * N + col], N, N - col);
        } else if constexpr (!ALIGN_B) {
            store_tile(store_floats, &C[(size_t)row * N + col], N, N - col);
        } else {
            // The floats of neighbouring lanes are 16 bytes apart, and would take four stores to each sector of C. So
            // the warp exchanges them through shared memory, and neighbouring lanes store neighbouring floats.
            __shared__ __align__(16) float staging[THREADS / 32][2][32 * VECTOR];
#pragma unroll
            for (int m = 0; m < THREAD_M; ++m) {
#pragma unroll
                for (int n = 0; n < THREAD_N; n += VECTOR) {
                    float* const buffer =
                        staging[warp][(m * THREAD_N + n) / VECTOR % 2];  // lanes may still read the other
                    as_vector(buffer[lane_m * STEP_N + lane_n * VECTOR]) = as_vector(acc[m][n]);
                    __syncwarp();  // it is written
#pragma unroll
                    for (int i = lane; i < 32 * VECTOR; i += 32) {
                        const int c_row = row + warp_m + m / VECTOR * STEP_M + i / STEP_N * VECTOR + m % VECTOR,
                                  c_col = col + warp_n + n / VECTOR * STEP_N + i % STEP_N;
                        if (c_row < M && c_col < N) C[(size_t)c_row * N + c_col] = buffer[i];
                    }
                }
            }
        }
    }
}

// If SPLIT_WARPS > 0, a block of so many warps computes a strip of one row or column of C; else it computes tiles.
template <int BLOCK_M, int BLOCK_N, int BLOCK_K, int WARP_M, int WARP_N, int THREAD_M, int THREAD_N, int COPY_N,
          int GROUP_M, int NUM_STAGES, int BLOCKS_PER_SM, bool ALIGN_B, int SPLIT_WARPS>
__global__ void __launch_bounds__(SPLIT_WARPS ? 32 * SPLIT_WARPS : BLOCK_M / THREAD_M * (BLOCK_N / THREAD_N),
                                  BLOCKS_PER_SM)
s14_register_banks(const float* A, const float* B, float* C, float* partials, int M, int N, int K) {
    trigger_next_kernel();       // starts the kernel that adds shares, up to its wait
    wait_for_previous_kernel();  // it may copy an operand; pointers with `__restrict__` could be read before this
    if constexpr (SPLIT_WARPS > 0) multiply_strip<BLOCK_M, BLOCK_N, SPLIT_WARPS, NUM_STAGES>(A, B, C, M, N, K);
    else
        multiply_tiles<BLOCK_M, BLOCK_N, BLOCK_K, WARP_M, WARP_N, THREAD_M, THREAD_N, COPY_N, GROUP_M, NUM_STAGES,
                       ALIGN_B>(A, B, C, partials, M, N, K);
}

// Adds the shares of tile blockIdx.y in the order of K; a thread adds 4 columns.
template <int BLOCK_M, int BLOCK_N, int BLOCK_K, int GROUP_M>
__global__ void s14_add_shares(const float* partials, float* C, int M, int N, int K, int blocks) {
    const TileSchedule<BLOCK_M, BLOCK_N, BLOCK_K> schedule(M, N, K, blocks);
    const TilePlace at = tile_place<GROUP_M>(schedule.unshared + blockIdx.y, schedule.tiles_m, schedule.tiles_n);
    const int i = (blockIdx.x * blockDim.x + threadIdx.x) * VECTOR, m = i / BLOCK_N, n = i % BLOCK_N;
    const int row = at.m * BLOCK_M + m, col = at.n * BLOCK_N + n;
    if (m >= BLOCK_M || row >= M || col >= N) return;
    const int first = blockIdx.y * schedule.slices, last = first + schedule.slices - 1;  // slices of the tile
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    wait_for_previous_kernel();  // `partials` is not __restrict__, or it could be read before this
#pragma unroll 16                // 16 reads are in flight at a time
    for (int block = first / schedule.share; block <= last / schedule.share; ++block) {
        const int place = block * schedule.share < first;  // a block's part of its second tile is stored second
        const float4 part = as_vector(partials[((size_t)block * 2 + place) * BLOCK_M * BLOCK_N + i]);
        sum.x += part.x, sum.y += part.y, sum.z += part.z, sum.w += part.w;
    }
    if (has_vector_rows(C, N)) store_vector(&C[(size_t)row * N + col], sum, N - col);
    else store_floats(&C[(size_t)row * N + col], sum, N - col);
}

namespace config = registry::s14_register_banks;
extern "C" cudaError_t launch(const float* A, const float* B, float* C, int M, int N, int K, const LaunchShape& shape,
                              cudaStream_t stream) {
    using namespace config;
    const auto kernel = s14_register_banks<BLOCK_M, BLOCK_N, BLOCK_K, WARP_M, WARP_N, THREAD_M, THREAD_N, COPY_N,
                                           GROUP_M, NUM_STAGES, BLOCKS_PER_SM, ALIGN_B, SPLIT_WARPS>;
    const cudaError_t error = launch_kernel(kernel, shape, stream, A, B, C, shape.partials, M, N, K);
    if (error != cudaSuccess || shape.then == nullptr) return error;
    const auto add = s14_add_shares<BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M>;
    const int blocks = shape.grid[0];
    return launch_kernel(add, *shape.then, stream, shape.partials, C, M, N, K, blocks);
}
