// Idea:         Tensor cores are used through the WMMA API: a warp multiplies 16 x 16 x 16 elements with one call.
// Changed:      The warp tile of s12 becomes fragments that the warp holds together, so it has no layout of threads. A
//               is stored as in global memory; C passes through shared memory, where it is rounded.
// Tile/threads: A block computes 128 x 128 of C with 4 warps of 64 x 64; two blocks run per SM. BLOCK_K counts 16-bit
//               elements; in tf32 half as many take the same bytes.
// Cost:         The slices take 2 NUM_STAGES (BLOCK_M (BLOCK_K + 8) + BLOCK_K (BLOCK_N + 8)) bytes: 105 KiB for 3
//               stages of 64. Per 32 bytes of k a warp reads 64 rows and 64 columns, 4 KiB, for 16 calls of 4096
//               products (tf32: 2048). It waits for each read, since fragments are read when they are needed. 128
//               registers hold sums.
// Requires:     The kernel takes any M, N and K; A, B and C are row-major. Rows that are no multiple of 16 bytes are
//               copied by elements. bf16 and tf32 need sm_80; sm_75 has too little shared memory. In tf32, operands are
//               rounded to 10 bits of fraction.
#include "launch.cuh"
namespace config = registry::s15_wmma;
#include "chunk.cuh"
#include "element.cuh"
#include "vector.cuh"
#include <mma.h>

// nvcc's <mma.h> (13.0) passes generic addresses to the loads of bf16 and tf32, even where the pointer is known to be
// in shared memory, unlike for fp16. ptxas then emits an LD per 8 x 8 block, and a MOVM to transpose it, in place of
// one LDSM or LDS. So these loads are defined here with shared addresses: wmma.load, PTX ISA, 'Warp-level Matrix Load
// Instruction'.
namespace wmma = nvcuda::wmma;

template <typename Use>
__device__ __forceinline__ void load_matrix_shared(wmma::fragment<Use, 16, 16, 16, __half, wmma::row_major>& fragment,
                                                   const __half* from, unsigned pitch) {
    wmma::load_matrix_sync(fragment, from, pitch);
}

template <Math>
struct FragmentElement {  // the API's name of the element type
    using type = Element;
};

// Rounds floats to tf32, as the API requires before it multiplies them; other types need no rounding.
template <typename Fragment>
__device__ __forceinline__ void round_elements(Fragment&) {}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800  // older GPUs have only fp16
template <>
struct FragmentElement<Math::tf32> {
    using type = wmma::precision::tf32;
};

template <typename Use>
__device__ __forceinline__ void
round_elements(wmma::fragment<Use, 16, 16, 8, wmma::precision::tf32, wmma::row_major>& fragment) {
#pragma unroll
    for (int i = 0; i < fragment.num_elements; ++i) fragment.x[i] = wmma::__float_to_tf32(fragment.x[i]);
}

#define DEFINE_LOAD(OPERAND, LETTER, SHAPE, K, TYPE, NAME)                                                             \
    __device__ __forceinline__ void load_matrix_shared(                                                                \
        wmma::fragment<wmma::OPERAND, 16, 16, K, TYPE, wmma::row_major>& fragment, const void* from, unsigned pitch) { \
        const unsigned shared = static_cast<unsigned>(__cvta_generic_to_shared(from));                                 \
        static_assert(sizeof(fragment.x) == 4 * sizeof(unsigned), "4 registers");                                      \
        unsigned* to = reinterpret_cast<unsigned*>(fragment.x);                                                        \
        asm volatile("wmma.load." LETTER ".sync.aligned.row." SHAPE ".shared." NAME " {%0, %1, %2, %3}, [%4], %5;"     \
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])                                              \
                     : "r"(shared), "r"(pitch)                                                                         \
                     : "memory");                                                                                      \
    }

DEFINE_LOAD(matrix_a, "a", "m16n16k16", 16, __nv_bfloat16, "bf16")
DEFINE_LOAD(matrix_b, "b", "m16n16k16", 16, __nv_bfloat16, "bf16")
DEFINE_LOAD(matrix_a, "a", "m16n16k8", 8, wmma::precision::tf32, "tf32")
DEFINE_LOAD(matrix_b, "b", "m16n16k8", 8, wmma::precision::tf32, "tf32")

#undef DEFINE_LOAD
#endif

constexpr int TILE = 16;                    // rows and columns of a fragment of C
constexpr int STEP = 32 / sizeof(Element);  // elements of k per call: 32 bytes

template <typename Use>
using Fragment = wmma::fragment<Use, TILE, TILE, STEP, typename FragmentElement<config::MATH>::type, wmma::row_major>;

// A[M, K] @ B[K, N] = C[M, N]
template <int BLOCK_M, int BLOCK_N, int BLOCK_K, int WARP_M, int WARP_N, int NUM_STAGES, int BLOCKS_PER_SM>
__global__ void __launch_bounds__(BLOCK_M / WARP_M * (BLOCK_N / WARP_N) * 32, BLOCKS_PER_SM)
s15_wmma(const Element* __restrict__ A, const Element* __restrict__ B, Element* __restrict__ C, int M, int N, int K) {
    static_assert(BLOCK_M % WARP_M == 0 && BLOCK_N % WARP_N == 0, "WARP_M, WARP_N: whole warps cover the tile");
    static_assert(WARP_M % TILE == 0 && WARP_N % TILE == 0, "WARP_M, WARP_N: whole fragments");
    static_assert(BLOCK_K % STEP == 0, "BLOCK_K: whole steps");
    static_assert(NUM_STAGES >= 2, "NUM_STAGES: one slice is copied while another is read");
    constexpr int THREADS = BLOCK_M / WARP_M * (BLOCK_N / WARP_N) * 32;
    // A warp reads 16 bytes of each of 8 rows at a time: the pitches put them 4 banks apart, or 20, so that no two
    // share a bank. In tf32 it reads 8 elements of each of 4 rows of B, which are 8 banks apart.
    constexpr int A_PITCH = BLOCK_K + CHUNK, B_PITCH = BLOCK_N + 8;
    extern __shared__ __align__(128) unsigned char smem[];
    const auto a_smem = reinterpret_cast<Element(*)[BLOCK_M][A_PITCH]>(smem);  // (stage, m, k)
    const auto b_smem =                                                        // (stage, k, n)
        reinterpret_cast<Element(*)[BLOCK_K][B_PITCH]>(smem + NUM_STAGES * sizeof(a_smem[0]));

    // Who am I. The block's tile starts at C[row, col], my warp's at (warp_m, warp_n) in it.
    const int row = blockIdx.y * BLOCK_M;
    const int col = blockIdx.x * BLOCK_N;
    const int thread = threadIdx.x;
    const int warp = thread / 32, lane = thread % 32;
    const int warp_m = warp / (BLOCK_N / WARP_N) * WARP_M, warp_n = warp % (BLOCK_N / WARP_N) * WARP_N;

    // I copy a chunk of every A_PASS-th row of A and of every B_PASS-th row of B. Elements past M, N and K become 0.
    constexpr int A_CHUNKS = BLOCK_K / CHUNK, B_CHUNKS = BLOCK_N / CHUNK;  // per row of a slice
    constexpr int A_PASS = THREADS / A_CHUNKS, B_PASS = THREADS / B_CHUNKS;
    static_assert(A_PASS * A_CHUNKS == THREADS && BLOCK_M % A_PASS == 0, "BLOCK_M, BLOCK_K: equal chunks per thread");
    static_assert(B_PASS * B_CHUNKS == THREADS && BLOCK_K % B_PASS == 0, "BLOCK_K, BLOCK_N: equal chunks per thread");
    const int a_m = thread / A_CHUNKS, a_k = thread % A_CHUNKS * CHUNK;
    const int b_k = thread / B_CHUNKS, b_n = thread % B_CHUNKS * CHUNK;
    const Element* a_from = &A[(size_t)(row + a_m) * K + a_k];
    const Element* b_from = &B[(size_t)b_k * N + col + b_n];
    const auto copy_slice = [&](int stage, int k_start, auto copy) {
#pragma unroll
        for (int m = 0; m < BLOCK_M; m += A_PASS) {
            copy(&a_smem[stage][a_m + m][a_k], a_from + (size_t)m * K, row + a_m + m < M ? K - k_start - a_k : 0);
        }
#pragma unroll
        for (int k = 0; k < BLOCK_K; k += B_PASS) {
            copy(&b_smem[stage][b_k + k][b_n], b_from + (size_t)k * N, k_start + b_k + k < K ? N - col - b_n : 0);
        }
        commit_copies();
        a_from += BLOCK_K;
        b_from += (size_t)BLOCK_K * N;
    };

    constexpr int TILES_M = WARP_M / TILE, TILES_N = WARP_N / TILE;
    wmma::fragment<wmma::accumulator, TILE, TILE, STEP, float> acc[TILES_M][TILES_N];
#pragma unroll
    for (int m = 0; m < TILES_M; ++m) {
#pragma unroll
        for (int n = 0; n < TILES_N; ++n) wmma::fill_fragment(acc[m][n], 0.0f);
    }
    const auto multiply = [&](auto copy) {
#pragma unroll
        for (int stage = 0; stage < NUM_STAGES - 1; ++stage) copy_slice(stage, stage * BLOCK_K, copy);
        int stage = 0, free_stage = NUM_STAGES - 1;
        for (int k_start = 0; k_start < K; k_start += BLOCK_K) {
            wait_for_copies<NUM_STAGES - 2>();
            __syncthreads();  // this slice has landed, and everyone has read the one before it
            // Load the slice NUM_STAGES - 1 ahead to the buffer of the one multiplied last
            copy_slice(free_stage, k_start + (NUM_STAGES - 1) * BLOCK_K, copy);
            free_stage = stage;

            // Multiply the slice
#pragma unroll
            for (int k = 0; k < BLOCK_K; k += STEP) {
                Fragment<wmma::matrix_a> a_frag[TILES_M];
                Fragment<wmma::matrix_b> b_frag[TILES_N];
#pragma unroll
                for (int m = 0; m < TILES_M; ++m) {
                    load_matrix_shared(a_frag[m], &a_smem[stage][warp_m + m * TILE][k], A_PITCH);
                    round_elements(a_frag[m]);
                }
#pragma unroll
                for (int n = 0; n < TILES_N; ++n) {
                    load_matrix_shared(b_frag[n], &b_smem[stage][k][warp_n + n * TILE], B_PITCH);
                    round_elements(b_frag[n]);
                }
#pragma unroll
                for (int m = 0; m < TILES_M; ++m) {
#pragma unroll
                    for (int n = 0; n < TILES_N; ++n) wmma::mma_sync(acc[m][n], a_frag[m], b_frag[n], acc[m][n]);
                }
            }
            stage = stage + 1 < NUM_STAGES ? stage + 1 : 0;
        }
        wait_for_copies<0>();
        __syncthreads();  // no slice is read or written any more: C takes their place
    };
    if (has_chunk_rows(A, K) && has_chunk_rows(B, N)) multiply(CopyChunk{});
    else multiply(CopyElements{});

    // Store C one row of fragments at a time: shared memory collects the elements of a chunk for one lane
    constexpr int PITCH = WARP_N + 8, C_CHUNKS = WARP_N / CHUNK;
    static_assert(THREADS / 32 * TILE * PITCH * sizeof(float) <= NUM_STAGES * (sizeof(a_smem[0]) + sizeof(b_smem[0])),
                  "NUM_STAGES: C fits in their place");
    const auto c_smem = reinterpret_cast<float (*)[PITCH]>(smem) + warp * TILE;  // (m, n) of this warp
    const auto store_tile = [&](auto store) {
#pragma unroll
        for (int m = 0; m < TILES_M; ++m) {
#pragma unroll
            for (int n = 0; n < TILES_N; ++n) {
                wmma::store_matrix_sync(&c_smem[0][n * TILE], acc[m][n], PITCH, wmma::mem_row_major);
            }
            __syncwarp();  // the 16 rows are written before any is read
#pragma unroll
            for (int i = lane; i < TILE * C_CHUNKS; i += 32) {
                const int c_row = row + warp_m + m * TILE + i / C_CHUNKS;
                const int c_col = col + warp_n + i % C_CHUNKS * CHUNK;
                alignas(16) Element chunk[CHUNK];
#pragma unroll
                for (int j = 0; j < CHUNK; j += VECTOR) {
                    const float4 sums = as_vector(c_smem[i / C_CHUNKS][i % C_CHUNKS * CHUNK + j]);
                    store_pair(&chunk[j], sums.x, sums.y);
                    store_pair(&chunk[j + 2], sums.z, sums.w);
                }
                store(&C[(size_t)c_row * N + c_col], chunk, c_row < M ? N - c_col : 0);
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
    const auto kernel = s15_wmma<BLOCK_M, BLOCK_N, SLICE_K, WARP_M, WARP_N, NUM_STAGES, BLOCKS_PER_SM>;
    return launch_kernel(kernel, shape, stream, A, B, C, M, N, K);
}
