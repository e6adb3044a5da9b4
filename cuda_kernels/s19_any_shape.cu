// Idea:         It extends s18 to any shape: small tiles, tiles of C^T where C has few rows, and equal shares for all
//               blocks of the K of those tiles that whole rounds leave over (stream-K).
// Changed:      Unlike in s18, the shape selects tile and number of blocks (gemm_ref/choice). The block with a tile's
//               first slices adds what the others store in memory, or they add a tile of many shares together
//               (together.cuh); or a cluster computes one tile and adds through its shared memory. One of two
//               warpgroups runs some steps ahead at the end of a tile. One warp loads each operand, at an edge only
//               what is inside (edges.cuh). Threads store a C whose rows the TMA unit cannot address; such an A is
//               read in phases (phases.cuh).
// Tile/threads: A block computes 64 to 192 by 32 to 256 of C, or by 16 to 256 of C^T (gemm_ref/tiles.py): 64 rows per
//               warpgroup, and one more loads. Cluster b of G computes tiles b, b + G, ... and then its share.
// Cost:         It is as in s18; each share of a shared tile, but for an owner's, is written and read once more, 4
//               BLOCK_M BLOCK_N bytes through L2. Shares are added in the order of K, so every run with one grid
//               returns the same bits. The epilogue (finish.cuh) is compiled in only where a call requests it.
// Requires:     It is as in s18, with B in either layout in 16-bit types and tf32. In fp8, B by rows is copied first.
// Sources:      Osama et al., 'Stream-K', PPoPP 2023; PTX ISA 8.0, wgmma, stmatrix.
#include "launch.cuh"
namespace config = registry::s19_any_shape;
#include "destination.cuh"
#include "early_start.cuh"
#include "edges.cuh"
#include "finish.cuh"
#include "shares.cuh"
#include "tensor_tile.cuh"
#include "tile_order.cuh"
#include "together.cuh"

// Registers per thread; an SM has 65536 for all its blocks. Where the sums need many, the warpgroup that loads releases
// those it does not need.
constexpr int CONSUMERS = config::BLOCK_M / WGMMA_M;
constexpr int REGISTERS = min_of(65536 / WARPGROUP / config::BLOCKS_PER_SM / (CONSUMERS + 1) / 8 * 8, 248);
constexpr int PRODUCER_REGISTERS = 40;
constexpr int CONSUMER_REGISTERS = min_of(((CONSUMERS + 1) * REGISTERS - PRODUCER_REGISTERS) / CONSUMERS / 8 * 8, 240);
constexpr bool MOVES_REGISTERS = ACCUMULATORS >= 64 && REGISTERS < CONSUMER_REGISTERS;

// Vectors of sums that a thread reads at once: as many as it has registers for.
constexpr int SUMS_IN_FLIGHT = CONSUMERS > 2 ? 8 : 16;

// Steps by which the first of two warpgroups finishes a tile ahead of the second: while one stores its part of C, the
// other uses the tensor cores alone.
constexpr int HEAD_START = CONSUMERS == 2 && config::BLOCK_N > 128 && !THROUGH_REGISTERS ? 3 : 0;

// Number of matrices as which the TMA unit reads A. The rows of C (in C^T the columns of D) have the same phases.
constexpr int PHASES = config::A_PHASES, LEFT_PHASES = TRANSPOSE_C ? 1 : PHASES,
              RIGHT_PHASES = TRANSPOSE_C ? PHASES : 1;

// Steps before the end of a tile at which the addend c is requested: they take longer than a read of device memory.
constexpr int READ_AHEAD = 6;

template <int BLOCK_M, int BLOCK_N, int NUM_STAGES, int CLUSTER_M, int CLUSTER_K, int GROUP_M, int BLOCKS_PER_SM>
__global__ void __launch_bounds__((CONSUMERS + 1) * WARPGROUP, BLOCKS_PER_SM)
s19_any_shape(const __grid_constant__ EdgedMaps<LEFT_PHASES> left,
              const __grid_constant__ EdgedMaps<RIGHT_PHASES> right,
              const __grid_constant__ Destination<config::C_BY_THREADS, PHASES> C, Sums* __restrict__ partials,
              int* __restrict__ flags, int M, int N, int K, int shared_tiles, const float* scale_a,
              const float* scale_b, const void* bias, const void* addend, int addend_step, float alpha,
              float beta) {  // M and N are those of left @ right
    constexpr int CLUSTER = CLUSTER_M * CLUSTER_K;
    static_assert(PHASES == 1 || B_BY_ROWS, "rows of B meet those of A wherever they begin");
    static_assert(CLUSTER_M == 1 || CLUSTER_K == 1, "a cluster shares the right operand, or the K of a tile");
    using Slice = TensorSlice<BLOCK_M, BLOCK_N>;
    using Stage = Slice[SLICES];
    extern __shared__ std::byte smem[];
    auto* const slices = reinterpret_cast<Stage*>(aligned_to_swizzle(smem));
    auto* const pieces = reinterpret_cast<Piece*>(slices + NUM_STAGES);
    auto* const sums = reinterpret_cast<Sums*>(pieces + CONSUMERS * PIECES);  // (block from 1 on, warpgroup)
    __shared__ Mbarrier full[NUM_STAGES], empty[NUM_STAGES], sums_arrived[CONSUMERS];

    // A cluster computes CLUSTER_M tiles that adjoin along M, in step along K; or one tile, with a part of K per block
    const int in_cluster = cluster_rank(), rank = CLUSTER_M > 1 ? in_cluster : 0;
    const TileSchedule<BLOCK_M * CLUSTER_M, BLOCK_N> schedule(
        padded_rows<LEFT_PHASES>(M, BLOCK_M * CLUSTER_M), padded_rows<RIGHT_PHASES>(N, BLOCK_N),
        K + MAX_ELEMENTS_BEFORE<PHASES>, SLICES * DEPTH, shared_tiles, blockIdx.x / CLUSTER, gridDim.x / CLUSTER);
    const auto place = [&](int tile, int& row, int& col, int& phase) {  // row and col count within a phase
        const TilePlace at = tile_place<GROUP_M>(tile, schedule.tiles_m, schedule.tiles_n);
        row = (at.m / LEFT_PHASES * CLUSTER_M + rank) * BLOCK_M, col = at.n / RIGHT_PHASES * BLOCK_N;
        phase = (TRANSPOSE_C ? at.n : at.m) % PHASES;
    };
    const auto select_part = [&](int& first, int& steps) {
        if constexpr (CLUSTER_K > 1) {
            const int steps_per_block = (steps + CLUSTER_K - 1) / CLUSTER_K,
                      skipped = min(steps_per_block * in_cluster, steps);
            first += skipped, steps = min(steps_per_block, steps - skipped);
        }
    };

    using LeftEdge = Edge<BLOCK_M, LEFT_MN_MAJOR, LEFT_PHASES>;
    using RightEdge = Edge<BLOCK_N, RIGHT_MN_MAJOR, RIGHT_PHASES, CLUSTER_M>;
    const auto left_edge_at = [&](int row, int phase) { return LeftEdge{rows_of_phase<LEFT_PHASES>(M, phase) - row}; };
    const auto right_edge_at = [&](int col, int phase) {
        return RightEdge{rows_of_phase<RIGHT_PHASES>(N, phase) - col};
    };

    const int warpgroup = warpgroup_of_thread(), warp = warp_of_thread();
    constexpr int MULTIPLIERS = CONSUMERS * WARPGROUP, LOADERS = 2, BEGIN = 1 + CONSUMERS;
    if (threadIdx.x == 0) {
        left.prefetch(), right.prefetch(), C.prefetch();
        for (int stage = 0; stage < NUM_STAGES; ++stage) {
            mbarrier_init(full[stage], 1), mbarrier_init(empty[stage], CONSUMERS * ARRIVING_WARPS * CLUSTER_M);
        }
        if (CLUSTER_K > 1) {
            for (int i = 0; i < CONSUMERS; ++i) mbarrier_init(sums_arrived[i], (CLUSTER_K - 1) * (WARPGROUP / 32));
        }
        fence_mbarrier_init();
    }
    if (CLUSTER_M > 1) cluster_sync_relaxed();    // the barriers of every block are initialised
    if (CLUSTER_K > 1) cluster_arrive_relaxed();  // other blocks' barriers are needed only at the end

    int stage = 0, parity = 0;
    const auto next_stage = [&] {
        if (++stage == NUM_STAGES) stage = 0, parity ^= 1;
    };
    if (warpgroup == CONSUMERS) {
        if constexpr (MOVES_REGISTERS) setmaxnreg_dec<PRODUCER_REGISTERS>();
        if (warp - MULTIPLIERS / 32 < LOADERS) {
            const bool loads_left = warp == MULTIPLIERS / 32;  // else the right operand
            bar_sync(BEGIN, MULTIPLIERS + LOADERS * 32);
            wait_for_previous_kernel();  // it may copy an operand
            schedule.for_each_part([&](int tile, int first, int steps) {
                int row, col, phase;
                place(tile, row, col, phase);
                select_part(first, steps);
                const int before = elements_before(phase, K);
                const int left_phase = TRANSPOSE_C ? 0 : phase, right_phase = TRANSPOSE_C ? phase : 0;
                const LeftEdge left_edge = left_edge_at(row, phase);
                const RightEdge right_edge = right_edge_at(col, phase);
                const int bytes = SLICES * (left_edge.rows() + right_edge.rows()) * SWIZZLE_ROW_BYTES;
                const auto walk = [&](auto load) {  // load(slice, k of the left operand, k of the right one)
#pragma unroll 1
                    for (int step = first; step < first + steps; ++step) {
                        mbarrier_wait_cluster(empty[stage], parity ^ 1);  // the first pass over the stages never waits
                        if (loads_left) mbarrier_arrive_expect_tx(full[stage], bytes);
#pragma unroll
                        for (int i = 0; i < SLICES; ++i) {
                            const int k_of_a = (step * SLICES + i) * DEPTH, k_of_b = k_of_a - before;
                            load(slices[stage][i], TRANSPOSE_C ? k_of_b : k_of_a, TRANSPOSE_C ? k_of_a : k_of_b);
                        }
                        next_stage();
                    }
                };
                const auto load_left = [&](auto interior) {
                    walk([&](Slice& slice, int k, int) {
                        left_edge.load<decltype(interior)::value>(slice.left, left, left_phase, row, k, K, full[stage],
                                                                  0);
                    });
                };
                const auto load_right = [&](auto interior) {
                    walk([&](Slice& slice, int, int k) {
                        right_edge.load<decltype(interior)::value>(slice.right, right, right_phase, col, k, K,
                                                                   full[stage], rank);
                    });
                };
                if (!elect_one()) return;
                if (loads_left && left_edge.is_interior()) load_left(std::true_type());
                else if (loads_left) load_left(std::false_type());
                else if (right_edge.is_interior()) load_right(std::true_type());
                else load_right(std::false_type());
            });
        }
        if (CLUSTER_K > 1) cluster_wait();
    } else {
        if constexpr (MOVES_REGISTERS) setmaxnreg_inc<CONSUMER_REGISTERS>();
        bar_sync(BEGIN, MULTIPLIERS + LOADERS * 32);  // barriers are initialised, and all lanes converge (`uniform`)
        const float scale = product_of_scales(scale_a, scale_b);
        const Extras extras = {bias, addend, addend_step, alpha * scale, beta, M, N};
        const int lane = threadIdx.x % 32;
        const auto free_slice = [&](int of) {  // arrives in every block that writes to the slice
            const int writer = CLUSTER_M > 1 ? lane : in_cluster;
            if (warp % 4 < ARRIVING_WARPS && lane < CLUSTER_M) mbarrier_arrive_cluster(empty[of], writer);
        };
        const auto clear = [&](int phase, Slice& slice) {  // zeroes the elements before the rows of A
            const int before = elements_before(phase, K);
            if constexpr (TRANSPOSE_C)
                clear_before<BLOCK_N, MULTIPLIERS>(slice.right, before, threadIdx.x, 3 + CONSUMERS);
            else {
                std::byte* const warpgroup_rows = slice.left + warpgroup * WGMMA_M * SWIZZLE_ROW_BYTES;
                clear_before<WGMMA_M, WARPGROUP>(warpgroup_rows, before, threadIdx.x % WARPGROUP, 1 + warpgroup);
            }
        };
        const Descriptors descriptors(slices[0][0], warpgroup);
        int used = 0;  // stages that earlier parts have used
        schedule.for_each_part([&](int tile, int first, int steps) {
            select_part(first, steps);
            int row, col, phase;
            place(tile, row, col, phase);
            if (const int unused_stages = min(steps, NUM_STAGES - used); unused_stages > 0) {
                clear_outside<BLOCK_M, BLOCK_N, MULTIPLIERS>(slices[used], SLICES * unused_stages,
                                                             left_edge_at(row, phase).rows(),
                                                             right_edge_at(col, phase).rows(), BEGIN);
                used += unused_stages;
            }
            row += warpgroup * WGMMA_M;
            auto epilogue = [&] {
                if constexpr (PLAIN) return NoEpilogue();
                else return FusedEpilogue(extras, row, col);
            }();
            float acc[ACCUMULATORS];
            if (CLUSTER_K > 1 && steps <= 0) zero_sums(acc);
            int before = stage;
#pragma unroll 1
            for (int step = 0; step < steps; ++step) {
                if (HEAD_START > 0 && warpgroup == 1 && step == steps - HEAD_START && steps > NUM_STAGES) {
                    bar_sync(2 + CONSUMERS, MULTIPLIERS);  // the other has started all its steps
                }
                if constexpr (config::ADDS_C) {
                    if (first == 0 && step == max(steps - READ_AHEAD, 0)) epilogue.begin();
                }
                mbarrier_wait(full[stage], parity);
                if constexpr (PHASES > 1) {
                    if (first + step == 0) clear(phase, slices[stage][0]);
                }
                multiply_stage(acc, slices[0], descriptors, stage, warpgroup, step > 0);
                if (STEPS_IN_FLIGHT == 1) free_slice(stage);
                else if (step > 0) free_slice(before);
                before = stage;
                next_stage();
            }
            if (HEAD_START > 0 && warpgroup == 0 && steps > NUM_STAGES) {
                bar_arrive(2 + CONSUMERS, MULTIPLIERS);
            }
            wgmma_wait_group<0>();
            wgmma_fence_accumulators(acc);
            if (STEPS_IN_FLIGHT > 1 && steps > 0) free_slice(before);
            if constexpr (config::ADDS_TOGETHER) {
                constexpr int STEP = CLUSTER_M * CONSUMERS;
                const int shares = schedule.shares_of_each_tile(), share = schedule.my_share() - tile * shares;
                const int of_tile = rank * CONSUMERS + warpgroup;
                const auto store = [&](auto& sums, int column, int columns) {
                    if constexpr (!PLAIN) apply_to_columns(sums, column, columns, epilogue);
                    store_columns(C.of_phase(phase), sums, PLAIN ? scale : 1.0f, column, columns, row, col);
                };
                auto& chunks = *reinterpret_cast<unsigned*>(pieces + warpgroup * PIECES);
                return add_together<SUMS_IN_FLIGHT>(acc, partials + tile * shares * STEP + of_tile, STEP,
                                                    reinterpret_cast<Meeting*>(flags) + tile * STEP + of_tile, share,
                                                    shares, chunks, 1 + warpgroup, store);
            } else if constexpr (CLUSTER_K > 1) {
                if (!add_in_cluster<CLUSTER_K>(acc, sums + warpgroup, CONSUMERS, sums_arrived[warpgroup], in_cluster))
                    return;
            } else if (steps < schedule.slices) {  // a share of a tile: each warpgroup passes its own rows on
                constexpr int STEP = CLUSTER_M * CONSUMERS;
                const int slot = schedule.my_share() * STEP + rank * CONSUMERS + warpgroup;
                if (first > 0) return store_sums(partials[slot], &flags[slot], acc, 1 + warpgroup);
                add_stored_sums(acc, partials + slot + STEP, flags + slot + STEP, STEP, schedule.shares_behind(tile),
                                1 + warpgroup);
            }
            store_tile(C.of_phase(phase), acc, PLAIN ? scale : 1.0f, pieces + warpgroup * PIECES, row, col,
                       1 + warpgroup, epilogue);
        });
        if (threadIdx.x % WARPGROUP == 0) tma_store_wait_read<0>();  // shared memory lives as long as its block
    }
    if (CLUSTER_M > 1) cluster_sync_relaxed();  // no block ends while another may still free its slices
}

extern "C" cudaError_t launch(const void*, const void*, void* C, int M, int N, int K, const LaunchShape& shape,
                              cudaStream_t stream) {
    using namespace config;
    const auto kernel = s19_any_shape<BLOCK_M, BLOCK_N, NUM_STAGES, CLUSTER_M, CLUSTER_K, GROUP_M, BLOCKS_PER_SM>;
    const CUtensorMap* maps = shape.tensor_maps;
    const auto left = EdgedMaps<LEFT_PHASES>::from_maps(maps);
    const auto right = EdgedMaps<RIGHT_PHASES>::from_maps(maps);
    return launch_kernel(kernel, shape, stream, left, right, destination<C_BY_THREADS, PHASES>(C, maps, M, N),
                         reinterpret_cast<Sums*>(shape.partials), shape.flags, M, N, K, shape.shared_tiles,
                         shape.scales[0], shape.scales[1], shape.bias, shape.addend, shape.addend_step, shape.alpha,
                         shape.beta);
}
