// Idea:         fp32 from tensor cores: operands in parts of 16 bits, whose products are added in three sums.
// Changed:      from s18, the slices are of PARTS parts of both operands. The largest products, of the first parts, leave the
//               tensor core every PROMOTE k, and are added in fp32 while it has the small ones. Those have sums of their own
//               for all of K, which are too small for what the tensor core cuts off to matter.
// Tile/threads: 128 x 128 of C, 64 rows per warpgroup, and one more that loads; 192 registers of sums in a thread.
//               Variant `alone` has no pairs of blocks.
// Cost:         3 products in fp16x3 and 6 in bf16x6; of each slice of 64 k 32 KiB per part. And the split, a launch per
//               operand (gemm_ref/operands/split.cu): it reads 8 bytes of an element, 4 of them twice, and writes 4 or 6.
// Requires:     as s18. Lines that parts do not hold are computed in fp32, without tensor cores.
// Sources:      Ootomo and Yokota, IJHPCA 36 (2022); CUTLASS, example 54, for sums that leave the tensor core.
#include "launch.cuh"
namespace config = registry::s20_emulated;
#include "early_start.cuh"
#include "epilogue.cuh"
#include "parts.cuh"
#include "tensor_tile.cuh"
#include "tile_order.cuh"

constexpr int PRODUCER_REGISTERS = 40, CONSUMER_REGISTERS = 232;  // of the 504 that three warpgroups share

template <int BLOCK_M, int BLOCK_N, int PARTS, int STAGES, int PROMOTE, int CLUSTER_M, int GROUP_M>
__global__ void __cluster_dims__(CLUSTER_M, 1, 1) __launch_bounds__((BLOCK_M / WGMMA_M + 1) * WARPGROUP, 1)
s20_emulated(const __grid_constant__ CUtensorMap left, const __grid_constant__ CUtensorMap right,
             const __grid_constant__ CUtensorMap C, int M, int N, int K, const float* __restrict__ A,
             const float* __restrict__ B, const int* __restrict__ of_rows, const int* __restrict__ of_columns) {
    constexpr int CONSUMERS = BLOCK_M / WGMMA_M, STEPS_TOGETHER = PROMOTE / DEPTH;
    static_assert(PROMOTE % DEPTH == 0, "PROMOTE is whole slices");
    using Slice = TensorSlice<BLOCK_M, BLOCK_N>[PARTS];
    extern __shared__ char smem[];
    auto* const slices = reinterpret_cast<Slice*>(aligned_to_swizzle(smem));
    auto* const pieces = reinterpret_cast<Piece*>(slices + STAGES);
    __shared__ Mbarrier full[STAGES], empty[STAGES];

    const int tiles_n = (N + BLOCK_N - 1) / BLOCK_N;
    const int tiles_m = (M + BLOCK_M * CLUSTER_M - 1) / (BLOCK_M * CLUSTER_M);  // of a cluster, as tiles from here on
    const int steps = (K + DEPTH - 1) / DEPTH;
    const auto place = [&](int tile, int& row, int& col) {
        const TilePlace at = tile_place<GROUP_M>(tile, tiles_m, tiles_n);
        row = (at.m * CLUSTER_M + cluster_rank()) * BLOCK_M, col = at.n * BLOCK_N;
    };

    if (threadIdx.x == 0) {
        prefetch_tensor_map(left), prefetch_tensor_map(right), prefetch_tensor_map(C);
        for (int stage = 0; stage < STAGES; ++stage) {
            mbarrier_init(full[stage], 1), mbarrier_init(empty[stage], CONSUMERS * CLUSTER_M);
        }
        fence_mbarrier_init();
    }
    if (CLUSTER_M > 1) cluster_sync_relaxed();  // the barriers of every block are initialised
    else __syncthreads();
    wait_for_kernel_before();  // which splits an operand

    const int warpgroup = warpgroup_of_thread();
    int row, col, stage = 0, parity = 0;
    const auto next_stage = [&] {
        if (++stage == STAGES) stage = 0, parity ^= 1;
    };
    if (warpgroup == CONSUMERS) {
        setmaxnreg_dec<PRODUCER_REGISTERS>();
        if (threadIdx.x == CONSUMERS * WARPGROUP) {
            const int rank = cluster_rank();
            for (int tile = blockIdx.x / CLUSTER_M; tile < tiles_m * tiles_n; tile += gridDim.x / CLUSTER_M) {
                place(tile, row, col);
                for (int step = 0; step < steps; ++step) {
                    mbarrier_wait_cluster(empty[stage], parity ^ 1);  // at first nobody has anything to free
                    mbarrier_arrive_expect_tx(full[stage], sizeof(Slice));
                    // Part after part in memory: past its end are rows of the next, for elements of C that are not stored,
                    // or that are multiplied by zeros
#pragma unroll 1
                    for (int part = 0; part < PARTS; ++part) {
                        auto& slice = slices[stage][part];
                        const int k = step * DEPTH;
                        load_operand<BLOCK_M, false>(slice.left, left, part * M + row, k, full[stage]);
                        load_operand<BLOCK_N, RIGHT_MN_MAJOR, CLUSTER_M>(
                            slice.right, right, RIGHT_MN_MAJOR ? col : part * N + col,
                            RIGHT_MN_MAJOR ? part * K + k : k, full[stage], rank);
                    }
                    next_stage();
                }
            }
        }
    } else {
        setmaxnreg_inc<CONSUMER_REGISTERS>();
        const Whole whole = {A, B, of_rows, of_columns, M, N, K};
        const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
        const auto free_slice = [&](int of) {  // in every block that writes to it
            if (warp == 0 && lane < CLUSTER_M) mbarrier_arrive_cluster(empty[of], lane);
        };
        float acc[ACCUMULATORS], first[ACCUMULATORS], small[ACCUMULATORS];
        for (int tile = blockIdx.x / CLUSTER_M; tile < tiles_m * tiles_n; tile += gridDim.x / CLUSTER_M) {
            place(tile, row, col);
            int before = stage;
#pragma unroll
            for (int i = 0; i < ACCUMULATORS; ++i) acc[i] = 0.0f;
#pragma unroll 1
            for (int step = 0; step < steps; ++step) {
                mbarrier_wait(full[stage], parity);
                const auto start = [&](auto& sums, int i, int j, bool accumulate) {
                    const char* const my_left = slices[stage][i].left + warpgroup * WGMMA_M * SWIZZLE_ROW_BYTES;
                    start_product(sums, my_left, slices[stage][j].right, accumulate);
                };
                wgmma_fence_accumulators(first);
                wgmma_fence_accumulators(small);
                wgmma_fence();
                start(first, 0, 0, step % STEPS_TOGETHER > 0);
                wgmma_commit_group();
#pragma unroll
                for (int order = PARTS - 1; order > 0; --order) {  // the smallest products first
#pragma unroll
                    for (int i = 0; i <= order; ++i) {
                        start(small, i, order - i, step > 0 || order < PARTS - 1 || i > 0);
                    }
                }
                wgmma_commit_group();
                wgmma_fence_accumulators(first);
                wgmma_fence_accumulators(small);
                wgmma_wait_group<1>();  // the first parts' products are there, and the slice before is done with
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
            finish_sums(acc, small, whole, row + warpgroup * WGMMA_M, col);
            store_tile(C, acc, 1.0f, pieces + warpgroup * PIECES, row + warpgroup * WGMMA_M, col, 1 + warpgroup);
        }
        if (threadIdx.x % WARPGROUP == 0) tma_store_wait_read<0>();  // shared memory lives as long as its block
    }
    if (CLUSTER_M > 1) cluster_sync_relaxed();  // no block ends while another may still free its slices
}

extern "C" cudaError_t launch(const void* A, const void* B, void*, int M, int N, int K, const LaunchShape& shape,
                              cudaStream_t stream) {
    using namespace config;
    const auto kernel = s20_emulated<BLOCK_M, BLOCK_N, PARTS, NUM_STAGES / PARTS, PROMOTE, CLUSTER_M, GROUP_M>;
    const CUtensorMap* maps = shape.tensor_maps;
    return launch_kernel(kernel, shape, stream, maps[0], maps[1], maps[2], M, N, K, static_cast<const float*>(A),
                         static_cast<const float*>(B), shape.exponents[0], shape.exponents[1]);
}
