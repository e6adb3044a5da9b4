// Common code of Hopper's rungs: a slice of both operands in shared memory, written by the TMA unit and read by wgmma,
// in any math mode and with B in either layout. A row of it has 128 bytes; 16-byte chunk i of row r is at i ^ r % 8.
//
// wgmma computes D[64, BLOCK_N] = left[64, k] @ right[k, BLOCK_N]. Left is A and right is B, unless the product is
// transposed: C^T = B^T @ A^T with B^T left and A^T right, where rows and columns are those of C^T. That is done in
// tiles for few rows of C, and in tf32 with B as (k, n): its right operand must be stored along k, but its left one may
// come from registers, in any order.
#pragma once
#include <cstddef>
#include <type_traits>
#include "element.cuh"
#include "tma.cuh"
#include "wgmma.cuh"

constexpr int WARPGROUP = 128;  // threads
constexpr int min_of(int a, int b) { return a < b ? a : b; }
constexpr int SWIZZLE_ALIGNMENT = ATOM_BYTES;
constexpr int DEPTH = SWIZZLE_ROW_BYTES / sizeof(Element);  // elements of k per slice
constexpr int PANEL_BYTES = DEPTH * SWIZZLE_ROW_BYTES;
constexpr bool B_BY_ROWS = config::B_LAYOUT == BLayout::kn;
constexpr bool THROUGH_REGISTERS = B_BY_ROWS && config::MATH == Math::tf32;  // the left operand is read so
constexpr bool TRANSPOSE_C = config::TRANSPOSE_C || THROUGH_REGISTERS;
constexpr bool LEFT_MN_MAJOR = B_BY_ROWS && TRANSPOSE_C, RIGHT_MN_MAJOR = B_BY_ROWS && !TRANSPOSE_C;
constexpr int ACCUMULATORS = config::BLOCK_N / 2;                         // per thread
inline constexpr int SLICES = config::BLOCK_K_BYTES / SWIZZLE_ROW_BYTES;  // per stage, consecutive along k
static_assert(config::BLOCK_K_BYTES % SWIZZLE_ROW_BYTES == 0, "a slice is as deep as a row of the swizzle");
static_assert(!B_BY_ROWS || THROUGH_REGISTERS || sizeof(Element) == 2,
              "in shared memory only 16-bit operands can be MN-major");

// Lets the compiler infer that a number is the same in all lanes of a warp. It computes values that depend only on such
// numbers in uniform registers, where wgmma needs its descriptors, if the lanes also converge: after a barrier of all
// lanes, in branches and loops on such numbers. All of s19's step does; otherwise descriptors are computed per lane and
// moved, which narrow tiles cannot hide. 1024 x 896 x 4864 in bf16, H100, interleaved: 22.1 -> 18.3 us.
template <typename Number>
__device__ __forceinline__ Number uniform(Number x) {
    return __shfl_sync(~0u, x, 0);
}
__device__ __forceinline__ int warp_of_thread() { return uniform(threadIdx.x / 32); }
__device__ __forceinline__ int warpgroup_of_thread() { return uniform(threadIdx.x / WARPGROUP); }

__device__ __forceinline__ std::byte* aligned_to_swizzle(std::byte* smem) {
    return smem + (SWIZZLE_ALIGNMENT - shared_address(smem) % SWIZZLE_ALIGNMENT) % SWIZZLE_ALIGNMENT;
}

// K-major: one row of 128 bytes per row of the left or column of the right operand. MN-major: panels of DEPTH rows, one
// per k, each with as many rows of the left or columns of the right operand as 128 bytes hold.
template <int BLOCK_LEFT, int BLOCK_RIGHT>
struct TensorSlice {
    std::byte left[BLOCK_LEFT * SWIZZLE_ROW_BYTES];
    static constexpr int PANELS = RIGHT_MN_MAJOR ? (BLOCK_RIGHT + DEPTH - 1) / DEPTH * DEPTH : BLOCK_RIGHT;
    std::byte right[PANELS * SWIZZLE_ROW_BYTES];
};

// Starts the copy of the box at (column, row) to the same address in each of the cluster's SHARERS blocks.
template <int SHARERS>
__device__ __forceinline__ void load_box(std::byte* to, const CUtensorMap& map, int column, int row, Mbarrier& full) {
    constexpr unsigned short EVERYONE = (1 << SHARERS) - 1;
    if (SHARERS == 1) tma_load(to, map, column, row, full);
    else tma_load_multicast(to, map, column, row, full, EVERYONE);
}

// Starts the copy of COUNT rows of the left or columns of the right operand, from `first` on, at depth k. Each of the
// cluster's SHARERS blocks loads an equal share for all of them: a part of the rows of an operand that is stored along
// k, else a part of every panel.
template <int COUNT, bool MN_MAJOR, int SHARERS = 1>
__device__ __forceinline__ void
load_operand(std::byte* to, const CUtensorMap& map, int first, int k, Mbarrier& full, int rank = 0) {
    constexpr int BOXES = MN_MAJOR ? (COUNT + DEPTH - 1) / DEPTH : 1, SHARE = (MN_MAJOR ? DEPTH : COUNT) / SHARERS;
#pragma unroll
    for (int box = 0; box < BOXES; ++box) {
        const int column = MN_MAJOR ? first + box * DEPTH : k, row = (MN_MAJOR ? k : first) + rank * SHARE;
        std::byte* const at = to + box * PANEL_BYTES + rank * SHARE * SWIZZLE_ROW_BYTES;
        load_box<SHARERS>(at, map, column, row, full);
    }
}

// Returns the chunk of a panel of B as (k, n) that holds the two rows of B^T that a lane multiplies, at k = lane % 4.
// Rows lane / 4 and lane / 4 + 8 of wgmma are assigned to neighbouring columns of B, and a warp's 16 columns are chunks
// 0, 4, 1, 5 of a row, or 2, 6, 3, 7: so the 16 lanes of half a warp read 8 bytes each from different banks.
__device__ __forceinline__ int transposed_chunk() {
    const int warp = threadIdx.x / 32 % 4, row = threadIdx.x % 32 / 4;
    return row / 2 % 2 * 4 + row / 4 + warp % 2 * 2;
}
__device__ __forceinline__ int transposed_panel() { return threadIdx.x / 64 % 2; }

// A lane's elements of a slice of B as (k, n), in the register layout of wgmma's left operand.
struct TransposedFragments {
    static constexpr int STEPS = SWIZZLE_ROW_BYTES / WGMMA_K_BYTES;
    unsigned words[STEPS][4];

    __device__ __forceinline__ explicit TransposedFragments(const std::byte* left) {
        const int lane = threadIdx.x % 32, k = lane % 4;
        const std::byte* const panel = left + transposed_panel() * PANEL_BYTES + lane / 4 % 2 * 8;
        const std::byte* const upper = panel + swizzled_128(k, transposed_chunk());
        const std::byte* const lower = panel + swizzled_128(k + 4, transposed_chunk());
#pragma unroll
        for (int i = 0; i < STEPS; ++i) {
            const uint2 first = *reinterpret_cast<const uint2*>(upper + i * ATOM_BYTES);
            const uint2 second = *reinterpret_cast<const uint2*>(lower + i * ATOM_BYTES);
            words[i][0] = first.x, words[i][1] = first.y, words[i][2] = second.x, words[i][3] = second.y;
        }
    }
};

// How many steps a warpgroup may have in flight. The left operand's registers are written between two steps, and if
// they were written while a wgmma is in flight, ptxas would serialise all wgmmas (C7513). With one step in flight, the
// other warpgroup keeps the tensor cores busy.
inline constexpr int STEPS_IN_FLIGHT = THROUGH_REGISTERS ? 1 : 2;

// Warps of a warpgroup that arrive when a slice is free. A wgmma completes for the whole warpgroup at once, so one warp
// suffices; if warps also read the slice themselves, each must arrive.
inline constexpr int ARRIVING_WARPS = THROUGH_REGISTERS ? 4 : 1;

// Returns wgmma's descriptor of a warpgroup's 64 rows of a slice's left operand, or of its right operand.
template <int BLOCK_LEFT, int BLOCK_RIGHT>
__device__ __forceinline__ unsigned long long
left_descriptor(const TensorSlice<BLOCK_LEFT, BLOCK_RIGHT>& slice, int warpgroup) {
    return wgmma_descriptor(slice.left + warpgroup * WGMMA_M * SWIZZLE_ROW_BYTES, LEFT_MN_MAJOR ? PANEL_BYTES : 16);
}
template <int BLOCK_LEFT, int BLOCK_RIGHT>
__device__ __forceinline__ unsigned long long right_descriptor(const TensorSlice<BLOCK_LEFT, BLOCK_RIGHT>& slice) {
    return wgmma_descriptor(slice.right, RIGHT_MN_MAJOR ? PANEL_BYTES : 16);
}

// Descriptors of consecutive slices in shared memory, computed in uniform registers by offsets from the first slice.
template <int BLOCK_LEFT, int BLOCK_RIGHT>
class Descriptors {
    static constexpr int NEXT = sizeof(TensorSlice<BLOCK_LEFT, BLOCK_RIGHT>) / 16;
    const unsigned long long left_base, right_base;

    static __device__ __forceinline__ unsigned long long in_uniform_registers(unsigned long long descriptor) {
        return descriptor >> 32 << 32 | uniform(static_cast<unsigned>(descriptor));
    }

   public:
    __device__ __forceinline__ Descriptors(const TensorSlice<BLOCK_LEFT, BLOCK_RIGHT>& first, int warpgroup)
        : left_base(in_uniform_registers(left_descriptor(first, warpgroup))),
          right_base(in_uniform_registers(right_descriptor(first))) {}
    __device__ __forceinline__ unsigned long long left(int slice) const { return left_base + slice * NEXT; }
    __device__ __forceinline__ unsigned long long right(int slice) const { return right_base + slice * NEXT; }
};

// Starts acc += left @ right (= if not `accumulate`) for one slice of both. The caller places the fences and closes the
// group.
__device__ __forceinline__ void start_product(float (&acc)[ACCUMULATORS], unsigned long long left,
                                              unsigned long long right, bool accumulate) {
    constexpr int K_MAJOR_STEP = WGMMA_K_BYTES / 16, MN_MAJOR_STEP = 2 * ATOM_BYTES / 16;
#pragma unroll
    for (int i = 0; i < SWIZZLE_ROW_BYTES / WGMMA_K_BYTES; ++i) {
        const auto left_at = left + i * (LEFT_MN_MAJOR ? MN_MAJOR_STEP : K_MAJOR_STEP);
        const auto right_at = right + i * (RIGHT_MN_MAJOR ? MN_MAJOR_STEP : K_MAJOR_STEP);
        const bool add = accumulate || i > 0;
        if constexpr (std::is_same_v<Element, float>) wgmma_k8_f32_tf32_tf32(acc, left_at, right_at, add);
        else if constexpr (std::is_same_v<Element, __nv_bfloat16>)
            wgmma_k16_f32_bf16_bf16<LEFT_MN_MAJOR, RIGHT_MN_MAJOR>(acc, left_at, right_at, add);
        else if constexpr (std::is_same_v<Element, __half>)
            wgmma_k16_f32_f16_f16<LEFT_MN_MAJOR, RIGHT_MN_MAJOR>(acc, left_at, right_at, add);
        else wgmma_k32_f32_e4m3_e4m3(acc, left_at, right_at, add);
    }
}

// Computes acc += left @ right (= if not `accumulate`) for a warpgroup's 64 rows over all slices of a stage, in one
// group, or one per slice if the left operand's registers are written in between. Returns when at most STEPS_IN_FLIGHT
// - 1 groups are in flight. `of` has the descriptors of the slices of all stages.
template <int BLOCK_LEFT, int BLOCK_RIGHT>
__device__ __forceinline__ void
multiply_stage(float (&acc)[ACCUMULATORS], const TensorSlice<BLOCK_LEFT, BLOCK_RIGHT>* slices,
               const Descriptors<BLOCK_LEFT, BLOCK_RIGHT>& descriptors, int stage, int warpgroup, bool accumulate) {
    const int first = stage * SLICES;
    static_assert(BLOCK_RIGHT == config::BLOCK_N, "a warpgroup multiplies all columns of the slice");
    const auto multiply = [&](auto&& start) {
        wgmma_fence_accumulators(acc);
        wgmma_fence();
        start();
        wgmma_commit_group();
        wgmma_fence_accumulators(acc);
        wgmma_wait_group<STEPS_IN_FLIGHT - 1>();
    };
    if constexpr (THROUGH_REGISTERS) {
#pragma unroll
        for (int slice = 0; slice < SLICES; ++slice) {
            const TransposedFragments fragments(slices[first + slice].left + warpgroup * WGMMA_M * SWIZZLE_ROW_BYTES);
            multiply([&] {
#pragma unroll
                for (int i = 0; i < TransposedFragments::STEPS; ++i) {
                    wgmma_k8_f32_tf32_tf32(acc, fragments.words[i],
                                           descriptors.right(first + slice) + i * (WGMMA_K_BYTES / 16),
                                           accumulate || slice > 0 || i > 0);
                }
            });
        }
    } else {
        multiply([&] {
#pragma unroll
            for (int slice = 0; slice < SLICES; ++slice) {
                start_product(acc, descriptors.left(first + slice), descriptors.right(first + slice),
                              accumulate || slice > 0);
            }
        });
    }
}

__device__ __forceinline__ float product_of_scales(const float* scale_a, const float* scale_b) {
    return (scale_a ? *scale_a : 1.0f) * (scale_b ? *scale_b : 1.0f);
}
