// Schedule of the tiles of C (Osama et al., 'Stream-K', PPoPP 2023): blocks compute whole tiles in turn. The K slices
// of the last, shared tiles form one sequence, of which each block has an equal share, or one slice more: less than a
// tile, so parts of at most two tiles, and of one if the number of blocks is a multiple of that of shared tiles.
//
// The block with its first slice owns a shared tile. The others store their sums to memory and set a flag; the owner,
// which computes its part of the tile last, adds them to its own in the order of K. It waits only for blocks of lower
// numbers, which the GPU starts first: the last block has the first share.
#pragma once
#include "tensor_tile.cuh"

template <int BLOCK_M, int BLOCK_N>
struct TileSchedule {
    int tiles_m, tiles_n, slices;  // of C; of K per tile
    int unshared;                  // tiles that one block computes alone
    int shared;                    // K slices of all shared tiles
    int block, blocks;             // index and number of blocks
    int sharers;                   // blocks, the last ones, with a slice of shared tiles

    // depth is the number of elements of K per slice.
    __device__ TileSchedule(int M, int N, int K, int depth, int shared_tiles, int block, int blocks)
        : tiles_m((M + BLOCK_M - 1) / BLOCK_M),
          tiles_n((N + BLOCK_N - 1) / BLOCK_N),
          slices((K + depth - 1) / depth),
          unshared(tiles_m * tiles_n - shared_tiles),
          shared(shared_tiles * slices),
          block(block),
          blocks(blocks),
          sharers(max(min(blocks, shared), 1)) {}

    // Returns the index of this block's share.
    __device__ int my_share() const { return blocks - 1 - block; }

    // Returns the first slice of a share.
    __device__ int begin_of(int share) const { return static_cast<long long>(min(share, sharers)) * shared / sharers; }

    // Returns how many shares of a tile follow this block's, up to the one with the tile's last slice.
    __device__ int shares_behind(int tile) const {
        const long long end = static_cast<long long>(tile - unshared + 1) * slices;
        return static_cast<int>((end * sharers - 1) / shared) - my_share();
    }

    // Returns the number of shares of each tile if all have equally many.
    __device__ int shares_of_each_tile() const { return sharers / (tiles_m * tiles_n); }

    // Calls act(tile, first slice, slices) for each part of this block in order. Whole warps call it.
    template <typename Act>
    __device__ __forceinline__ void for_each_part(Act act) const {
        int next_shared = 0, end = 0;
        if (shared > 0) {  // a division is computed per lane, and is slow in a short kernel
            next_shared = uniform(begin_of(my_share()));
            end = uniform(begin_of(my_share() + 1));
        }
#pragma unroll 1
        for (int next = block; next < unshared || next_shared < end; next += blocks) {
            int tile = next, first = 0, count = slices;
            if (next >= unshared) {
                tile = unshared + next_shared / slices, first = next_shared % slices;
                count = min(slices - first, end - next_shared);
                next_shared += count;
            }
            act(tile, first, count);
        }
    }
};

// Flags are in device memory, 0 before and after a launch. A wait makes the stores before raise_flag visible.
__device__ __forceinline__ void raise_flag(int* flag) {
    asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(flag), "r"(1) : "memory");
}
__device__ __forceinline__ void wait_for_flag(int* flag) {
    while (true) {
        int raised;
        asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(raised) : "l"(flag) : "memory");
        if (raised) break;
        __nanosleep(32);
    }
    *flag = 0;  // for the next launch
}

// A warpgroup's partial sums for the warpgroup that adds them, in device memory or in the shared memory of a cluster.
// They are vectors of 4 accumulators per thread, and neighbouring threads access neighbouring vectors. They are added
// in the order of K.
using Sums = float4[ACCUMULATORS / 4][WARPGROUP];  // one warpgroup's

__device__ __forceinline__ void zero_sums(float (&acc)[ACCUMULATORS]) {
#pragma unroll
    for (int i = 0; i < ACCUMULATORS; ++i) acc[i] = 0.0f;
}
__device__ __forceinline__ void add_sums(float (&acc)[ACCUMULATORS], const Sums& sums, int thread) {
#pragma unroll
    for (int i = 0; i < ACCUMULATORS; i += 4) {
        const float4 part = sums[i / 4][thread];
        acc[i] += part.x, acc[i + 1] += part.y, acc[i + 2] += part.z, acc[i + 3] += part.w;
    }
}

// Stores a warpgroup's sums to device memory. `barrier` is the warpgroup's own.
__device__ __forceinline__ void store_sums(Sums& sums, const float (&acc)[ACCUMULATORS], int barrier) {
    const int thread = threadIdx.x % WARPGROUP;
#pragma unroll
    for (int i = 0; i < ACCUMULATORS; i += 4) {
        sums[i / 4][thread] = make_float4(acc[i], acc[i + 1], acc[i + 2], acc[i + 3]);
    }
    bar_sync(barrier, WARPGROUP);  // the whole warpgroup has stored them
}
__device__ __forceinline__ void store_sums(Sums& sums, int* flag, const float (&acc)[ACCUMULATORS], int barrier) {
    store_sums(sums, acc, barrier);
    if (threadIdx.x % WARPGROUP == 0) raise_flag(flag);
}

// Waits for the sums of `shares` shares, which like their flags are `step` elements apart, and adds them.
__device__ __forceinline__ void add_stored_sums(float (&acc)[ACCUMULATORS], const Sums* sums, int* flags, int step,
                                                int shares, int barrier) {
    const int thread = threadIdx.x % WARPGROUP;
    for (int i = thread; i < shares; i += WARPGROUP) wait_for_flag(&flags[i * step]);
    bar_sync(barrier, WARPGROUP);                                       // every flag has been seen
    constexpr int AT_ONCE = ACCUMULATORS < 64 ? 64 / ACCUMULATORS : 1;  // shares whose reads are in flight together
#pragma unroll AT_ONCE
    for (int i = 0; i < shares; ++i) add_sums(acc, sums[i * (size_t)step], thread);
}

// Adds the sums of the CLUSTER_K blocks of a cluster in block 0, and returns whether this is block 0. `sums` holds
// those of one warpgroup of blocks 1, 2, ..., `step` elements apart, and `there` counts the arrivals of their warps.
// Every thread has arrived at the cluster's barrier, and waits there first, so that the mbarriers are initialised.
template <int CLUSTER_K>
__device__ __forceinline__ bool
add_in_cluster(float (&acc)[ACCUMULATORS], Sums* sums, int step, Mbarrier& arrived, int rank) {
    const int thread = threadIdx.x % WARPGROUP;
    cluster_wait();
    if (rank > 0) {
#pragma unroll
        for (int i = 0; i < ACCUMULATORS; i += 4) {
            store_cluster(&sums[(rank - 1) * step][i / 4][thread], 0,
                          make_float4(acc[i], acc[i + 1], acc[i + 2], acc[i + 3]));
        }
        __syncwarp();
        if (thread % 32 == 0) mbarrier_arrive_cluster_release(arrived, 0);
        return false;
    }
    mbarrier_wait_cluster_acquire(arrived, 0);
#pragma unroll
    for (int block = 1; block < CLUSTER_K; ++block) add_sums(acc, sums[(block - 1) * step], thread);
    return true;
}
