// What Hopper's rungs share: a slice of A and B in shared memory as the TMA unit writes it and wgmma reads it, in any math
// mode and with B either way round. A row of it has 128 bytes, of which 16-byte chunk i of row r lies at i ^ r % 8.
#pragma once
#include "element.cuh"
#include "tma.cuh"
#include "wgmma.cuh"

constexpr int WARPGROUP = 128;  // threads
constexpr int SWIZZLE_ALIGNMENT = ATOM_BYTES;
constexpr bool B_MN_MAJOR = config::B_LAYOUT == config::Layout::kn;
static_assert(config::BLOCK_K_BYTES == SWIZZLE_ROW_BYTES, "a slice is as deep as a row of the swizzle");
static_assert(!B_MN_MAJOR || sizeof(Operand) == 2, "only 16-bit operands can be MN-major");

// Which warpgroup of the block this is, from lane 0, so that the compiler knows it for the same in all lanes of a warp.
__device__ __forceinline__ int warpgroup_of_thread() { return __shfl_sync(~0u, threadIdx.x / WARPGROUP, 0); }

__device__ __forceinline__ char* aligned_to_swizzle(char* smem) {
    return smem + (SWIZZLE_ALIGNMENT - shared_address(smem) % SWIZZLE_ALIGNMENT) % SWIZZLE_ALIGNMENT;
}

// A as (m, k), 128 bytes of k a row. B as (n, k) likewise; or as (k, n), in panels of 64 columns, 128 bytes a row.
template <int BLOCK_M, int BLOCK_N>
struct TensorSlice {
    static constexpr int DEPTH = SWIZZLE_ROW_BYTES / sizeof(Operand);         // of k
    static constexpr int PANEL = B_MN_MAJOR ? DEPTH : BLOCK_N;                // columns of B in one box
    static constexpr int PANEL_BYTES = PANEL * DEPTH * sizeof(Operand);
    char a[BLOCK_M * SWIZZLE_ROW_BYTES];
    char b[BLOCK_N * SWIZZLE_ROW_BYTES];
};

template <typename Slice>
__device__ __forceinline__ void load_a(Slice& slice, const CUtensorMap& A, int row, int step, Mbarrier& full) {
    tma_load(slice.a, A, step * Slice::DEPTH, row, full);
}

template <int BLOCK_M, int BLOCK_N>
__device__ __forceinline__ void load_b(TensorSlice<BLOCK_M, BLOCK_N>& slice, const CUtensorMap& B, int col, int step,
                                       Mbarrier& full) {
    using Slice = TensorSlice<BLOCK_M, BLOCK_N>;
    const int k = step * Slice::DEPTH;
#pragma unroll
    for (int n = 0; n < BLOCK_N; n += Slice::PANEL) {
        char* const to = slice.b + n / Slice::PANEL * Slice::PANEL_BYTES;
        if (B_MN_MAJOR) tma_load(to, B, col + n, k, full);
        else tma_load(to, B, k, col + n, full);
    }
}

// The same with the boxes shared out among the CLUSTER blocks of a cluster: each loads its share for all of them.
template <int CLUSTER, int BLOCK_M, int BLOCK_N>
__device__ __forceinline__ void load_b_share(TensorSlice<BLOCK_M, BLOCK_N>& slice, const CUtensorMap& B, int col, int step,
                                             Mbarrier& full, int rank) {
    using Slice = TensorSlice<BLOCK_M, BLOCK_N>;
    constexpr int SHARE = BLOCK_N / CLUSTER, PANEL = B_MN_MAJOR ? Slice::PANEL : SHARE;
    static_assert(SHARE % PANEL == 0, "a share is made of whole boxes");
    constexpr unsigned short EVERYONE = (1 << CLUSTER) - 1;
    const int k = step * Slice::DEPTH;
#pragma unroll
    for (int i = 0; i < SHARE; i += PANEL) {
        const int n = rank * SHARE + i;
        char* const to = slice.b + n * SWIZZLE_ROW_BYTES;
        const int column = B_MN_MAJOR ? col + n : k, row = B_MN_MAJOR ? k : col + n;
        if (CLUSTER == 1) tma_load(to, B, column, row, full);
        else tma_load_multicast(to, B, column, row, full, EVERYONE);
    }
}

// acc += the 64 rows of a warpgroup of A @ B, or = where it does not accumulate; a group of its own, still to be waited for.
template <int BLOCK_M, int BLOCK_N>
__device__ __forceinline__ void multiply_slice(float (&acc)[WGMMA_ACCUMULATORS], const TensorSlice<BLOCK_M, BLOCK_N>& slice,
                                               int warpgroup, bool accumulate) {
    static_assert(BLOCK_N == WGMMA_N, "a warpgroup multiplies all columns of the slice");
    using Slice = TensorSlice<BLOCK_M, BLOCK_N>;
    constexpr int A_STEP = WGMMA_K_BYTES / 16, B_STEP = B_MN_MAJOR ? 2 * ATOM_BYTES / 16 : A_STEP;
    const auto a = wgmma_descriptor(slice.a + warpgroup * WGMMA_M * SWIZZLE_ROW_BYTES);
    const auto b = wgmma_descriptor(slice.b, B_MN_MAJOR ? Slice::PANEL_BYTES : 16);
    wgmma_fence_accumulators(acc);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < SWIZZLE_ROW_BYTES / WGMMA_K_BYTES; ++i) {
        using config::Math;
        const bool add = accumulate || i > 0;
        if constexpr (config::MATH == Math::bf16) {
            wgmma_m64n256k16_f32_bf16_bf16<B_MN_MAJOR>(acc, a + i * A_STEP, b + i * B_STEP, add);
        } else if constexpr (config::MATH == Math::fp16) {
            wgmma_m64n256k16_f32_f16_f16<B_MN_MAJOR>(acc, a + i * A_STEP, b + i * B_STEP, add);
        } else if constexpr (config::MATH == Math::tf32) {
            wgmma_m64n256k8_f32_tf32_tf32(acc, a + i * A_STEP, b + i * B_STEP, add);
        } else {
            wgmma_m64n256k32_f32_e4m3_e4m3(acc, a + i * A_STEP, b + i * B_STEP, add);
        }
    }
    wgmma_commit_group();
    wgmma_fence_accumulators(acc);
}

__device__ __forceinline__ float product_of_scales(const float* scale_a, const float* scale_b) {
    return (scale_a ? *scale_a : 1.0f) * (scale_b ? *scale_b : 1.0f);
}
