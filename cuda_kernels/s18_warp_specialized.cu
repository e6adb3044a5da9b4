// Idea:         One warpgroup loads and two multiply, tile after tile; two blocks share their loads of one operand.
// Changed:      Unlike in s17, a producer runs ahead across tiles, with few registers, so that consumers get more
//               (setmaxnreg). TMA stores C while the next tile is multiplied. The two blocks of a cluster, whose tiles
//               adjoin along M, each load half of the right operand for both (multicast).
// Tile/threads: They are s17's plus a warpgroup that loads: 384 threads. The grid has at most one block per SM, in
//               pairs. Variants leave out one of PERSISTENT, OVERLAP and CLUSTER_M (gemm_ref/rung.py).
// Cost:         It is as in s17, but a pair reads 64 KiB of L2 per slice, where two blocks of s17 read 96. SMs idle
//               during the last tiles.
// Requires:     It is as in s17, but tf32 reads a B by rows through registers, without a copy (tensor_tile.cuh).
// Sources:      CUTLASS 3, 'Efficient GEMM in CUDA': warp specialisation; PTX ISA 8.0, setmaxnreg, multicast::cluster.
#include "launch.cuh"
namespace config = registry::s18_warp_specialized;
#include "epilogue.cuh"
#include "tensor_tile.cuh"
#include "tile_order.cuh"

constexpr int PRODUCER_REGISTERS = 40, CONSUMER_REGISTERS = 232;  // per thread; three warpgroups share 504

template <int BLOCK_M, int BLOCK_N, int NUM_STAGES, int CLUSTER_M, int GROUP_M, bool OVERLAP>
__global__ void __launch_bounds__((BLOCK_M / WGMMA_M + 1) * WARPGROUP, 1)
s18_warp_specialized(const __grid_constant__ CUtensorMap left, const __grid_constant__ CUtensorMap right,
                     const __grid_constant__ CUtensorMap C, int M, int N, int K, const float* scale_a,
                     const float* scale_b) {  // M and N are those of left @ right
    constexpr int CONSUMERS = BLOCK_M / WGMMA_M;
    using Slice = TensorSlice<BLOCK_M, BLOCK_N>;
    extern __shared__ std::byte smem[];
    auto* const slices = reinterpret_cast<Slice*>(aligned_to_swizzle(smem));
    auto* const pieces = reinterpret_cast<Piece*>(slices + NUM_STAGES);
    __shared__ Mbarrier full[NUM_STAGES], empty[NUM_STAGES];

    const int rank = cluster_rank();
    const int tiles_n = (N + BLOCK_N - 1) / BLOCK_N;
    const int tiles_m = (M + BLOCK_M * CLUSTER_M - 1) / (BLOCK_M * CLUSTER_M);  // from here on, a cluster's tiles
    const int steps = (K + DEPTH - 1) / DEPTH;
    const auto place = [&](int tile, int& row, int& col) {
        const TilePlace at = tile_place<GROUP_M>(tile, tiles_m, tiles_n);
        row = (at.m * CLUSTER_M + rank) * BLOCK_M, col = at.n * BLOCK_N;
    };

    if (threadIdx.x == 0) {
        prefetch_tensor_map(left), prefetch_tensor_map(right), prefetch_tensor_map(C);
        for (int stage = 0; stage < NUM_STAGES; ++stage) {
            mbarrier_init(full[stage], 1), mbarrier_init(empty[stage], CONSUMERS * ARRIVING_WARPS * CLUSTER_M);
        }
        fence_mbarrier_init();
    }
    if (CLUSTER_M > 1) cluster_sync_relaxed();  // the barriers of every block are initialised
    else __syncthreads();

    const int warpgroup = warpgroup_of_thread(), warp = warp_of_thread();
    int row, col, stage = 0, parity = 0;
    const auto next_stage = [&] {
        if (++stage == NUM_STAGES) stage = 0, parity ^= 1;
    };
    if (warpgroup == CONSUMERS) {
        setmaxnreg_dec<PRODUCER_REGISTERS>();
        if (warp == CONSUMERS * 4 && elect_one()) {
            for (int tile = blockIdx.x / CLUSTER_M; tile < tiles_m * tiles_n; tile += gridDim.x / CLUSTER_M) {
                place(tile, row, col);
                for (int step = 0; step < steps; ++step) {
                    mbarrier_wait_cluster(empty[stage], parity ^ 1);  // the first pass over the stages never waits
                    mbarrier_arrive_expect_tx(full[stage], sizeof(Slice));
                    Slice& slice = slices[stage];
                    load_operand<BLOCK_M, LEFT_MN_MAJOR>(slice.left, left, row, step * DEPTH, full[stage]);
                    load_operand<BLOCK_N, RIGHT_MN_MAJOR, CLUSTER_M>(slice.right, right, col, step * DEPTH, full[stage],
                                                                     rank);
                    next_stage();
                }
            }
        }
    } else {
        setmaxnreg_inc<CONSUMER_REGISTERS>();
        const float scale = product_of_scales(scale_a, scale_b);
        const int lane = threadIdx.x % 32;
        const auto free_slice = [&](int of) {  // arrives in every block that writes to the slice
            if (warp % 4 < ARRIVING_WARPS && lane < CLUSTER_M) mbarrier_arrive_cluster(empty[of], lane);
        };
        const Descriptors descriptors(slices[0], warpgroup);
        float acc[ACCUMULATORS];
        for (int tile = blockIdx.x / CLUSTER_M; tile < tiles_m * tiles_n; tile += gridDim.x / CLUSTER_M) {
            place(tile, row, col);
            int before = stage;
            for (int step = 0; step < steps; ++step) {
                mbarrier_wait(full[stage], parity);
                multiply_stage(acc, slices, descriptors, stage, warpgroup, step > 0);
                if (STEPS_IN_FLIGHT == 1) free_slice(stage);
                else if (step > 0) free_slice(before);
                before = stage;
                next_stage();
            }
            wgmma_wait_group<0>();
            wgmma_fence_accumulators(acc);
            if (STEPS_IN_FLIGHT > 1) free_slice(before);
            store_tile(C, acc, scale, pieces + warpgroup * PIECES, row + warpgroup * WGMMA_M, col, 1 + warpgroup);
            if constexpr (!OVERLAP) {
                if (threadIdx.x % WARPGROUP == 0) tma_store_wait<0>();
                bar_sync(1 + CONSUMERS, CONSUMERS * WARPGROUP);  // the whole tile is stored before the next one begins
            }
        }
        if (threadIdx.x % WARPGROUP == 0) tma_store_wait_read<0>();  // shared memory lives as long as its block
    }
    if (CLUSTER_M > 1) cluster_sync_relaxed();  // no block ends while another may still free its slices
}

extern "C" cudaError_t launch(const void*, const void*, void*, int M, int N, int K, const LaunchShape& shape,
                              cudaStream_t stream) {
    using namespace config;
    const auto kernel = s18_warp_specialized<BLOCK_M, BLOCK_N, NUM_STAGES, CLUSTER_M, GROUP_M, OVERLAP>;
    const CUtensorMap* maps = shape.tensor_maps;
    return launch_kernel(kernel, shape, stream, maps[0], maps[1], maps[2], M, N, K, shape.scales[0], shape.scales[1]);
}
