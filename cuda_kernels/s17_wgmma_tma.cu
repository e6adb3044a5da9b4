// Idea:         One thread has Hopper's TMA unit copy whole boxes of A and B, warpgroups multiply them straight from
//               shared memory (wgmma), and the TMA unit stores C in boxes too.
// Changed:      Unlike in s16, no thread computes the address of what it copies, and no operand passes through
//               registers: one instruction copies a box, one mbarrier signals its arrival, and a wgmma of 64 x 256
//               reads both operands from shared memory.
// Tile/threads: A block of 256 threads computes 128 x 256 of C in slices of 128 bytes of k. Each of its two warpgroups
//               computes 64 rows, and each thread holds 128 sums.
// Cost:         A stage takes 48 KiB of shared memory; there are 4 stages, and 32 KiB for pieces of C. A block begins
//               with a load and ends with a store during which nothing is multiplied, and the thread that starts
//               copies multiplies too.
// Requires:     The kernel takes any M, N and K on sm_90a. Rows that are no multiple of 16 bytes are copied first
//               (gemm_ref/operands). In 16-bit types B may be stored by rows; tf32 and fp8 need it by columns, and it
//               is copied so. The TMA unit rounds to tf32 (cuda_kernels/tensor_map.py).
// Sources:      PTX ISA 8.0, wgmma, cp.async.bulk.tensor, mbarrier; NVIDIA Hopper Tuning Guide.
#include "launch.cuh"
namespace config = registry::s17_wgmma_tma;
#include "element.cuh"
#include "epilogue.cuh"
#include "tensor_tile.cuh"
#include "tile_order.cuh"

// block: 128 x 256, a TMA box of A and of B per slice     warpgroup: 4 warps, a wgmma of 64 x 256 per 32 bytes of k
//
//        n -> BLOCK_N                                          n -> 256
//   m +------------------+                                m +----------------------+
//   | |   warpgroup 0    | WGMMA_M = 64 rows              | | warp 0: rows  0..15  |  lane: 2 neighbours of every
//   v +------------------+                                v | warp 1: rows 16..31  |  8 columns, in the rows
//     |   warpgroup 1    |                                  | warp 2: rows 32..47  |  lane / 4 and lane / 4 + 8
//     +------------------+                                  | warp 3: rows 48..63  |
//                                                           +----------------------+
template <int BLOCK_M, int BLOCK_N, int NUM_STAGES, int GROUP_M>
__global__ void __launch_bounds__(BLOCK_M / WGMMA_M * WARPGROUP, 1)
s17_wgmma_tma(const __grid_constant__ CUtensorMap A, const __grid_constant__ CUtensorMap B,
              const __grid_constant__ CUtensorMap C, int M, int N, int K, const float* scale_a, const float* scale_b) {
    constexpr int WARPGROUPS = BLOCK_M / WGMMA_M;
    using Slice = TensorSlice<BLOCK_M, BLOCK_N>;
    extern __shared__ std::byte smem[];
    auto* const slices = reinterpret_cast<Slice*>(aligned_to_swizzle(smem));
    auto* const pieces = reinterpret_cast<Piece*>(slices + NUM_STAGES);
    __shared__ Mbarrier full[NUM_STAGES], empty[NUM_STAGES];

    const int tiles_n = (N + BLOCK_N - 1) / BLOCK_N, tiles_m = (M + BLOCK_M - 1) / BLOCK_M;
    const TilePlace tile = tile_place<GROUP_M>(blockIdx.x, tiles_m, tiles_n);
    const int row = tile.m * BLOCK_M, col = tile.n * BLOCK_N;
    const int warpgroup = warpgroup_of_thread(), warp = warp_of_thread();
    const int steps = (K + DEPTH - 1) / DEPTH;

    // Have the slice of one step copied
    const auto load_slice = [&](int step) {
        const int stage = step % NUM_STAGES;
        mbarrier_arrive_expect_tx(full[stage], sizeof(Slice));
        load_operand<BLOCK_M, LEFT_MN_MAJOR>(slices[stage].left, A, row, step * DEPTH, full[stage]);
        load_operand<BLOCK_N, RIGHT_MN_MAJOR>(slices[stage].right, B, col, step * DEPTH, full[stage]);
    };
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < NUM_STAGES; ++stage) {
            mbarrier_init(full[stage], 1), mbarrier_init(empty[stage], WARPGROUPS);
        }
        fence_mbarrier_init();
        for (int step = 0; step < min(NUM_STAGES, steps); ++step) load_slice(step);
        prefetch_tensor_map(C);
    }
    __syncthreads();  // the barriers are initialised

    const Descriptors descriptors(slices[0], warpgroup);
    float acc[ACCUMULATORS];
    for (int step = 0; step < steps; ++step) {
        const int stage = step % NUM_STAGES, round = step / NUM_STAGES;
        mbarrier_wait(full[stage], round % 2);
        multiply_stage(acc, slices, descriptors, stage, warpgroup, step > 0);
        if (step == 0) continue;
        // The step before is done, and its slice free once every warpgroup has said so
        const int before = (step - 1) % NUM_STAGES;
        if (threadIdx.x % WARPGROUP == 0) mbarrier_arrive(empty[before]);
        if (step - 1 + NUM_STAGES < steps && warp == 0 && elect_one()) {
            mbarrier_wait(empty[before], (step - 1) / NUM_STAGES % 2);
            load_slice(step - 1 + NUM_STAGES);
        }
    }
    wgmma_wait_group<0>();
    wgmma_fence_accumulators(acc);

    const float scale = product_of_scales(scale_a, scale_b);
    store_tile(C, acc, scale, pieces + warpgroup * PIECES, row + warpgroup * WGMMA_M, col, 1 + warpgroup);
    if (threadIdx.x % WARPGROUP == 0) tma_store_wait_read<0>();  // shared memory lives as long as its block
}

extern "C" cudaError_t launch(const void*, const void*, void*, int M, int N, int K, const LaunchShape& shape,
                              cudaStream_t stream) {
    using namespace config;
    const auto kernel = s17_wgmma_tma<BLOCK_M, BLOCK_N, NUM_STAGES, GROUP_M>;
    const CUtensorMap* maps = shape.tensor_maps;
    return launch_kernel(kernel, shape, stream, maps[0], maps[1], maps[2], M, N, K, shape.scales[0], shape.scales[1]);
}
