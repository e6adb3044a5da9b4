// Idea:         Tensor cores compute fp32: operands are split into 16-bit parts, whose products go to three sums.
// Changed:      Unlike in s19, a slice holds PARTS parts of both operands. The products of the first parts, the
//               largest, leave the tensor core every PROMOTE k and are added in fp32 while it multiplies the others.
//               Those have their own sums over all of K, too small for the tensor core's truncation to matter.
// Tile/threads: A block computes 64 or 128 by 64 or 128 of C, or by 16 to 96 of C^T: 64 rows per warpgroup, and one
//               more loads; a thread holds BLOCK_N / 2 of each sum, at most 192 registers (gemm_ref/tiles.py).
// Cost:         It computes 3 products in fp16x3 and 6 in bf16x6; a slice of 64 k takes 32 KiB per part at 128 x 128.
//               The split takes a launch per operand (gemm_ref/operands/split.cu), which reads 8 bytes per element, 4
//               of them twice, and writes 4 or 6. Shares are added before the powers of two are undone.
// Requires:     It is as in s19. Lines that the parts cannot represent are computed in fp32, without tensor cores.
// Sources:      Ootomo and Yokota, IJHPCA 36 (2022); CUTLASS, example 54, for sums that leave the tensor core.
#include "launch.cuh"
namespace config = registry::s20_emulated;
#include "destination.cuh"
#include "early_start.cuh"
#include "parts.cuh"
#include "shares.cuh"
#include "tensor_tile.cuh"
#include "tile_order.cuh"

// Registers per thread: three warpgroups share 504; two have as many as they can use.
constexpr int PRODUCER_REGISTERS = 40, CONSUMER_REGISTERS = 232;
constexpr int CONSUMERS = config::BLOCK_M / WGMMA_M;
constexpr bool MOVES_REGISTERS = CONSUMERS == 2;

template <int BLOCK_M, int BLOCK_N, int PARTS, int STAGES, int PROMOTE, int CLUSTER_M, int GROUP_M, int BLOCKS_PER_SM>
__global__ void __launch_bounds__((CONSUMERS + 1) * WARPGROUP, BLOCKS_PER_SM)
s20_emulated(const __grid_constant__ CUtensorMap left, const __grid_constant__ CUtensorMap right,
             const __grid_constant__ Destination<config::C_BY_THREADS> C, Sums* __restrict__ partials,
             int* __restrict__ flags, int M, int N, int K, int shared_tiles, const float* __restrict__ A,
             const float* __restrict__ B, const int* __restrict__ a_exponents,
             const int* __restrict__ b_exponents) {  // M and N are those of left @ right
    constexpr int STEPS_TOGETHER = PROMOTE / DEPTH;
    static_assert(PROMOTE % DEPTH == 0, "PROMOTE is whole slices");
    using Slice = TensorSlice<BLOCK_M, BLOCK_N>[PARTS];
    extern __shared__ std::byte smem[];
    auto* const slices = reinterpret_cast<Slice*>(aligned_to_swizzle(smem));
    auto* const pieces = reinterpret_cast<Piece*>(slices + STAGES);
    __shared__ Mbarrier full[STAGES][PARTS], empty[STAGES];

    // A cluster computes CLUSTER_M tiles that adjoin along M, at the same k
    const int rank = CLUSTER_M > 1 ? cluster_rank() : 0;
    const TileSchedule<BLOCK_M * CLUSTER_M, BLOCK_N> schedule(M, N, K, DEPTH, shared_tiles, blockIdx.x / CLUSTER_M,
                                                              gridDim.x / CLUSTER_M);
    const auto place = [&](int tile, int& row, int& col) {
        const TilePlace at = tile_place<GROUP_M>(tile, schedule.tiles_m, schedule.tiles_n);
        row = (at.m * CLUSTER_M + rank) * BLOCK_M, col = at.n * BLOCK_N;
    };

    if (threadIdx.x == 0) {
        prefetch_tensor_map(left), prefetch_tensor_map(right), C.prefetch();
        for (int stage = 0; stage < STAGES; ++stage) {
            for (int part = 0; part < PARTS; ++part) mbarrier_init(full[stage][part], 1);
            mbarrier_init(empty[stage], CONSUMERS * CLUSTER_M);
        }
        fence_mbarrier_init();
    }
    if (CLUSTER_M > 1) cluster_sync_relaxed();  // the barriers of every block are initialised
    else __syncthreads();
    wait_for_previous_kernel();  // it splits an operand

    const int warpgroup = warpgroup_of_thread();
    int stage = 0, parity = 0;
    const auto next_stage = [&] {
        if (++stage == STAGES) stage = 0, parity ^= 1;
    };
    if (warpgroup == CONSUMERS) {
        if constexpr (MOVES_REGISTERS) setmaxnreg_dec<PRODUCER_REGISTERS>();
        if (warp_of_thread() == CONSUMERS * 4) {
            schedule.for_each_part([&](int tile, int first, int steps) {
                int row, col;
                place(tile, row, col);
                if (!elect_one()) return;
#pragma unroll 1
                for (int step = first; step < first + steps; ++step) {
                    mbarrier_wait_cluster(empty[stage], parity ^ 1);  // the first pass over the stages never waits
                    // The parts are consecutive in memory. A box past the end of a part reads rows of the next: those
                    // products are not stored, or have a factor of zero
#pragma unroll 1
                    for (int part = 0; part < PARTS; ++part) {
                        auto& slice = slices[stage][part];
                        auto& arrival = full[stage][part];
                        const int k = step * DEPTH;
                        mbarrier_arrive_expect_tx(arrival, sizeof slice);
                        load_operand<BLOCK_M, LEFT_MN_MAJOR>(slice.left, left, LEFT_MN_MAJOR ? row : part * M + row,
                                                             LEFT_MN_MAJOR ? part * K + k : k, arrival);
                        load_operand<BLOCK_N, RIGHT_MN_MAJOR, CLUSTER_M>(
                            slice.right, right, RIGHT_MN_MAJOR ? col : part * N + col,
                            RIGHT_MN_MAJOR ? part * K + k : k, arrival, rank);
                    }
                    next_stage();
                }
            });
        }
    } else {
        if constexpr (MOVES_REGISTERS) setmaxnreg_inc<CONSUMER_REGISTERS>();
        const Operands operands = {
            A, B, TRANSPOSE_C ? b_exponents : a_exponents, TRANSPOSE_C ? a_exponents : b_exponents, M, N, K};
        const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
        const auto free_slice = [&](int of) {  // arrives in every block that writes to the slice
            if (warp == 0 && lane < CLUSTER_M) mbarrier_arrive_cluster(empty[of], lane);
        };
        schedule.for_each_part([&](int tile, int first_slice, int steps) {
            float acc[ACCUMULATORS], first[ACCUMULATORS], small[ACCUMULATORS];
            zero_sums(acc);
            int before = stage;
#pragma unroll 1
            for (int step = 0; step < steps; ++step) {
                const auto start = [&](auto& sums, int i, int j, bool accumulate) {
                    const auto& slice = slices[stage];
                    start_product(sums, left_descriptor(slice[i], warpgroup), right_descriptor(slice[j]), accumulate);
                };
                wgmma_fence_accumulators(first);
                wgmma_fence_accumulators(small);
                mbarrier_wait(full[stage][0], parity);
                wgmma_fence();
                start(first, 0, 0, step % STEPS_TOGETHER > 0);
                wgmma_commit_group();
#pragma unroll
                for (int order = 1; order < PARTS; ++order) {
                    // Wait for a part while the earlier ones are multiplied
                    mbarrier_wait(full[stage][order], parity);
                    wgmma_fence();
#pragma unroll
                    for (int i = 0; i <= order; ++i) {  // A's largest part first, whichever operand is left
                        const int left_part = TRANSPOSE_C ? order - i : i;
                        start(small, left_part, order - left_part, step > 0 || order > 1 || i > 0);
                    }
                    wgmma_commit_group();
                }
                wgmma_fence_accumulators(first);
                wgmma_fence_accumulators(small);
                // The products of the first parts are complete, and the previous slice is free
                wgmma_wait_group<PARTS - 1>();
                wgmma_fence_accumulators(first);
                if (step > 0) free_slice(before);
                if (step % STEPS_TOGETHER == STEPS_TOGETHER - 1 || step == steps - 1) {
#pragma unroll
                    for (int i = 0; i < ACCUMULATORS; ++i) acc[i] += first[i];
                }
                before = stage;
                next_stage();
            }
            wgmma_wait_group<0>();
            wgmma_fence_accumulators(small);
            free_slice(before);
            join_sums(acc, small);
            if (steps < schedule.slices) {  // a share of a tile: each warpgroup passes its own rows on
                constexpr int STEP = CLUSTER_M * CONSUMERS;
                const int slot = schedule.my_share() * STEP + rank * CONSUMERS + warpgroup;
                if (first_slice > 0) return store_sums(partials[slot], &flags[slot], acc, 1 + warpgroup);
                add_stored_sums(acc, partials + slot + STEP, flags + slot + STEP, STEP, schedule.shares_behind(tile),
                                1 + warpgroup);
            }
            int row, col;
            place(tile, row, col);
            row += warpgroup * WGMMA_M;
            finish_sums(acc, operands, row, col);
            store_tile(C.of_phase(0), acc, 1.0f, pieces + warpgroup * PIECES, row, col, 1 + warpgroup);
        });
        if (threadIdx.x % WARPGROUP == 0) tma_store_wait_read<0>();  // shared memory lives as long as its block
    }
    if (CLUSTER_M > 1) cluster_sync_relaxed();  // no block ends while another may still free its slices
}

extern "C" cudaError_t launch(const void* A, const void* B, void* C, int M, int N, int K, const LaunchShape& shape,
                              cudaStream_t stream) {
    using namespace config;
    const auto kernel =
        s20_emulated<BLOCK_M, BLOCK_N, PARTS, NUM_STAGES / PARTS, PROMOTE, CLUSTER_M, GROUP_M, BLOCKS_PER_SM>;
    const CUtensorMap* maps = shape.tensor_maps;
    return launch_kernel(kernel, shape, stream, maps[0], maps[1], destination<C_BY_THREADS>(C, maps + 2, M, N),
                         reinterpret_cast<Sums*>(shape.partials), shape.flags, M, N, K, shape.shared_tiles,
                         static_cast<const float*>(A), static_cast<const float*>(B), shape.exponents[0],
                         shape.exponents[1]);
}
