// Idea:         mma.sync and ldmatrix drive the tensor core directly; the layout of fragments in registers is known.
// Changed:      Where s15 pads rows, an XOR swizzles chunks. Two sets of fragments let a warp read one while it
//               multiplies the other, and tiles are ordered so that blocks that run together share slices in L2.
// Tile/threads: A block computes BLOCK_M x BLOCK_N of C, a warp WARP_M x WARP_N in mma tiles of 16 x 8: tile128x256 has
//               8 warps of 64 x 64. BLOCK_K counts 16-bit elements; in tf32 half as many take the same bytes.
// Cost:         The slices take 2 NUM_STAGES BLOCK_K (BLOCK_M + BLOCK_N) bytes: 96 KiB for 4 stages of tile128x256. Per
//               32 bytes of k a warp reads 64 rows and 64 columns, 4 KiB in 32 wavefronts without a conflict, for 32
//               instructions of 2048 products (tf32: 1024). It does 85 FLOP per requested byte (tf32: 43). Sums take
//               128 registers, fragments 2 x 32.
// Requires:     The kernel takes any M, N and K from sm_80 on; A, B and C are row-major. Rows that are no multiple of
//               16 bytes are copied by elements. In tf32, the instruction truncates operands to 10 bits of fraction.
#include "launch.cuh"
namespace config = registry::s16_mma_sync;
#include "chunk.cuh"
#include "element.cuh"
#include "mma.cuh"
#include "tile_order.cuh"

constexpr int STEP = 32 / sizeof(Element);         // elements of k per instruction: 32 bytes
constexpr bool TRANSPOSES = sizeof(Element) == 2;  // ldmatrix transposes elements of 16 bits, and no others

// Returns the position of chunk `chunk` in row `row` of CHUNKS chunks. A warp reads one chunk of each of 8 rows at a
// time, and the swizzle puts them in different banks. The 32 banks hold 8 chunks, of one row or of several.
template <int CHUNKS>
__device__ __forceinline__ int swizzled(int row, int chunk) {
    constexpr int ROWS = CHUNKS < 8 ? 8 / CHUNKS : 1, SPAN = CHUNKS < 8 ? CHUNKS : 8;
    return chunk ^ row / ROWS % SPAN;
}
// Swizzles B likewise. But in tf32 each lane reads single elements, a warp 8 columns (2 chunks) of 4 rows; a shift of
// two chunks per row puts them in 4 x 8 different banks.
__device__ __forceinline__ int swizzled_b(int row, int chunk) {
    return TRANSPOSES ? swizzled<8>(row, chunk) : chunk ^ row % 4 * 2;
}

__device__ __forceinline__ void mma(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    if constexpr (config::MATH == Math::fp16) mma_m16n8k16_f32_f16_f16_f32(d, a, b);
    else if constexpr (config::MATH == Math::bf16) mma_m16n8k16_f32_bf16_bf16_f32(d, a, b);
    else mma_m16n8k8_f32_tf32_tf32_f32(d, a, b);
}

// A[M, K] @ B[K, N] = C[M, N]
template <int BLOCK_M, int BLOCK_N, int BLOCK_K, int WARP_M, int WARP_N, int NUM_STAGES, int GROUP_M, int BLOCKS_PER_SM>
__global__ void __launch_bounds__(BLOCK_M / WARP_M * (BLOCK_N / WARP_N) * 32, BLOCKS_PER_SM)
s16_mma_sync(const Element* __restrict__ A, const Element* __restrict__ B, Element* __restrict__ C, int M, int N,
             int K) {
    static_assert(BLOCK_M % WARP_M == 0 && BLOCK_N % WARP_N == 0, "WARP_M, WARP_N: whole warps cover the tile");
    static_assert(WARP_M % 16 == 0 && WARP_N % 32 == 0, "WARP_M, WARP_N: whole mma tiles, four by four along N");
    static_assert(BLOCK_N % (8 * CHUNK) == 0, "BLOCK_N: rows of B in which the swizzle stays");
    static_assert(BLOCK_K % (2 * STEP) == 0, "BLOCK_K: an even number of steps, for two sets of fragments");
    static_assert(NUM_STAGES >= 2, "NUM_STAGES: one slice is copied while another is read");
    constexpr int THREADS = BLOCK_M / WARP_M * (BLOCK_N / WARP_N) * 32;
    constexpr int A_CHUNKS = BLOCK_K / CHUNK, B_CHUNKS = BLOCK_N / CHUNK;  // per row of a slice
    constexpr int A_SLICE = BLOCK_M * BLOCK_K, B_SLICE = BLOCK_K * BLOCK_N;
    extern __shared__ __align__(128) unsigned char smem[];
    Element* const a_smem = reinterpret_cast<Element*>(smem);  // (stage, m, k), chunks swizzled
    Element* const b_smem = a_smem + NUM_STAGES * A_SLICE;     // (stage, k, n), chunks swizzled

    // Who am I. The block's tile starts at C[row, col], my warp's at (warp_m, warp_n) in it.
    const TilePlace tile = tile_place<GROUP_M>(blockIdx.y * gridDim.x + blockIdx.x, gridDim.y, gridDim.x);
    const int row = tile.m * BLOCK_M, col = tile.n * BLOCK_N;
    const int thread = threadIdx.x;
    const int warp = thread / 32, lane = thread % 32;
    const int warp_m = warp / (BLOCK_N / WARP_N) * WARP_M, warp_n = warp % (BLOCK_N / WARP_N) * WARP_N;

    // I copy a chunk of every A_PASS-th row of A and of every B_PASS-th row of B. Elements past M, N and K become 0.
    constexpr int A_PASS = THREADS / A_CHUNKS, B_PASS = THREADS / B_CHUNKS;
    static_assert(A_PASS * A_CHUNKS == THREADS && BLOCK_M % A_PASS == 0, "BLOCK_M, BLOCK_K: equal chunks per thread");
    static_assert(B_PASS * B_CHUNKS == THREADS && BLOCK_K % B_PASS == 0, "BLOCK_K, BLOCK_N: equal chunks per thread");
    const int a_m = thread / A_CHUNKS, a_chunk = thread % A_CHUNKS;
    const int b_k = thread / B_CHUNKS, b_chunk = thread % B_CHUNKS;
    const Element* a_from = &A[(size_t)(row + a_m) * K + a_chunk * CHUNK];
    const Element* b_from = &B[(size_t)b_k * N + col + b_chunk * CHUNK];
    const auto copy_slice = [&](int stage, int k_start, auto copy) {
#pragma unroll
        for (int m = 0; m < BLOCK_M; m += A_PASS) {
            Element* to = a_smem + stage * A_SLICE + (a_m + m) * BLOCK_K + swizzled<A_CHUNKS>(a_m + m, a_chunk) * CHUNK;
            copy(to, a_from + (size_t)m * K, row + a_m + m < M ? K - k_start - a_chunk * CHUNK : 0);
        }
#pragma unroll
        for (int k = 0; k < BLOCK_K; k += B_PASS) {
            Element* to = b_smem + stage * B_SLICE + (b_k + k) * BLOCK_N + swizzled_b(b_k + k, b_chunk) * CHUNK;
            copy(to, b_from + (size_t)k * N, k_start + b_k + k < K ? N - col - b_chunk * CHUNK : 0);
        }
        commit_copies();
        a_from += BLOCK_K;
        b_from += (size_t)BLOCK_K * N;
    };

    // Read the fragments of one step into one of two sets of registers (mma.cuh has their layout). Lanes 0-15 give
    // the addresses of 16 rows, lanes 16-31 those of the next chunk of A, or of the next tile's chunk of B. Only the
    // addresses of the first tile along M and of the first four reads along N are kept, since the swizzle repeats after
    // 16 rows and 8 chunks.
    constexpr int TILES_M = WARP_M / 16, TILES_N = WARP_N / 8, STEPS = BLOCK_K / STEP;
    unsigned a_frag[2][TILES_M][4], b_frag[2][TILES_N][2];
    unsigned a_first[STEPS], b_first[4];  // shared addresses in bytes, in the first stage
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
        const int a_row = warp_m + lane % 16, chunk = swizzled<A_CHUNKS>(a_row, step * 2 + lane / 16);
        a_first[step] = static_cast<unsigned>(__cvta_generic_to_shared(a_smem + a_row * BLOCK_K + chunk * CHUNK));
    }
#pragma unroll
    for (int read = 0; read < 4; ++read) {
        const int b_row = TRANSPOSES ? lane % 16 : lane % 4;
        const int b_col = warp_n + (TRANSPOSES ? read * 16 + lane / 16 * CHUNK : read * 8 + lane / 4);
        const int chunk = swizzled_b(b_row, b_col / CHUNK);
        const Element* from = b_smem + b_row * BLOCK_N + chunk * CHUNK + b_col % CHUNK;
        b_first[read] = static_cast<unsigned>(__cvta_generic_to_shared(from));
    }
    const auto read_fragments = [&](int to, int stage, int step) {
        constexpr int A_BYTES = A_SLICE * sizeof(Element), B_BYTES = B_SLICE * sizeof(Element);
        constexpr int A_ROW = BLOCK_K * sizeof(Element), B_ROW = BLOCK_N * sizeof(Element);
#pragma unroll
        for (int m = 0; m < TILES_M; ++m) {
            unsigned (&a)[4] = a_frag[to][m];
            ldmatrix_x4(a[0], a[1], a[2], a[3], a_first[step] + stage * A_BYTES + m * 16 * A_ROW);
        }
#pragma unroll
        for (int n = 0; n < TILES_N; n += TRANSPOSES ? 2 : 1) {
            const int read = TRANSPOSES ? n / 2 : n;
            const unsigned at = b_first[read % 4] + stage * B_BYTES + read / 4 * 8 * 16 + step * STEP * B_ROW;
            unsigned (&b)[2] = b_frag[to][n];
            if constexpr (TRANSPOSES) {
                unsigned (&next)[2] = b_frag[to][n + 1];
                ldmatrix_x4_trans(b[0], b[1], next[0], next[1], at);
            } else {
                b[0] = ld_shared(at), b[1] = ld_shared(at + 4 * B_ROW);
            }
        }
    };

    float acc[TILES_M][TILES_N][4] = {};
    const auto multiply = [&](auto copy) {
#pragma unroll
        for (int stage = 0; stage < NUM_STAGES - 1; ++stage) copy_slice(stage, stage * BLOCK_K, copy);
        wait_for_copies<NUM_STAGES - 2>();
        __syncthreads();  // the first slice has landed
        read_fragments(0, 0, 0);
        int stage = 0, free_stage = NUM_STAGES - 1;
        for (int k_start = 0; k_start < K; k_start += BLOCK_K) {
#pragma unroll
            for (int step = 0; step < STEPS; ++step) {
                if (step == STEPS - 1) {
                    wait_for_copies<NUM_STAGES - 2>();
                    __syncthreads();  // the next slice has landed, and everyone has read this one
                    stage = stage + 1 < NUM_STAGES ? stage + 1 : 0;
                }
                read_fragments((step + 1) % 2, stage, (step + 1) % STEPS);
                if (step == 0) {
                    // Load the slice NUM_STAGES - 1 ahead to the buffer of the one multiplied last
                    copy_slice(free_stage, k_start + (NUM_STAGES - 1) * BLOCK_K, copy);
                    free_stage = stage;
                }
                // A serpentine order lets each product share a fragment with the one before. A fragment that is not
                // read again costs no power, which limits the speed at 8192 (docs/tensor_cores.md)
#pragma unroll
                for (int m = 0; m < TILES_M; ++m) {
#pragma unroll
                    for (int i = 0; i < TILES_N; ++i) {
                        const int n = m % 2 ? TILES_N - 1 - i : i;
                        mma(acc[m][n], a_frag[step % 2][m], b_frag[step % 2][n]);
                    }
                }
            }
        }
        wait_for_copies<0>();
        __syncthreads();  // no slice is read or written any more: C takes their place
    };
    if (has_chunk_rows(A, K) && has_chunk_rows(B, N)) multiply(CopyChunk{});
    else multiply(CopyElements{});

    // Store 16 rows of the warp's tile at a time through shared memory, from which each lane stores chunks.
    // Neighbouring rows start 4 banks apart (tf32: 8), and the lanes of a row write 4 banks (8).
    constexpr int PITCH = WARP_N + 8, C_CHUNKS = WARP_N / CHUNK;
    static_assert(THREADS / 32 * 16 * PITCH <= NUM_STAGES * (A_SLICE + B_SLICE), "NUM_STAGES: C fits in their place");
    Element* const c_smem = reinterpret_cast<Element*>(smem) + warp * 16 * PITCH;  // (m, n) of this warp
    const auto store_tile = [&](auto store) {
#pragma unroll
        for (int m = 0; m < TILES_M; ++m) {
#pragma unroll
            for (int n = 0; n < TILES_N; ++n) {
                Element* to = c_smem + lane / 4 * PITCH + n * 8 + lane % 4 * 2;
                store_pair(to, acc[m][n][0], acc[m][n][1]);
                store_pair(to + 8 * PITCH, acc[m][n][2], acc[m][n][3]);
            }
            __syncwarp();  // the 16 rows are written before any is read
#pragma unroll
            for (int i = lane; i < 16 * C_CHUNKS; i += 32) {
                const int c_row = row + warp_m + m * 16 + i / C_CHUNKS;
                const int c_col = col + warp_n + i % C_CHUNKS * CHUNK;
                const Element* from = c_smem + i / C_CHUNKS * PITCH + i % C_CHUNKS * CHUNK;
                store(&C[(size_t)c_row * N + c_col], from, c_row < M ? N - c_col : 0);
            }
            __syncwarp();  // they are read before the next are written
        }
    };
    if (has_chunk_rows(C, N)) store_tile(StoreChunk{});
    else store_tile(StoreElements{});
}

extern "C" cudaError_t launch(const Element* A, const Element* B, Element* C, int M, int N, int K,
                              const LaunchShape& shape, cudaStream_t stream) {
    using namespace config;
    constexpr int SLICE_K = BLOCK_K * 2 / sizeof(Element);
    const auto kernel = s16_mma_sync<BLOCK_M, BLOCK_N, SLICE_K, WARP_M, WARP_N, NUM_STAGES, GROUP_M, BLOCKS_PER_SM>;
    return launch_kernel(kernel, shape, stream, A, B, C, M, N, K);
}
