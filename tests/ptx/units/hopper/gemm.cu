// C[M, N] = A[M, K] @ B on Hopper's asynchronous units, as simple as can be: bf16, B row-major (K, N) or given as
// (N, K), M, N and K of any size. FAULT 0 is right; each other has one mistake, in the line where its number stands.
#include "hopper.cuh"

#define MAP const __grid_constant__ CUtensorMap

constexpr int BLOCK_M = 64, BLOCK_N = 64, BLOCK_K = 64;
constexpr int TILE = 64 * 64 * 2;  // bytes of a slice of A or B: 64 rows of 128 bytes

__device__ __forceinline__ void multiply(float (&d)[32], const char* a, const char* b, bool b_rows, int keep) {
#pragma unroll
    for (int k = 0; k < BLOCK_K / 16; ++k) {
        if (b_rows) wgmma_bf16_b_rows(d, wgmma_descriptor(a + k * 32), wgmma_descriptor(b + k * 16 * 128), keep || k > 0);
        else wgmma_bf16(d, wgmma_descriptor(a + k * 32), wgmma_descriptor(b + k * 32), keep || k > 0);
    }
}

__device__ __forceinline__ void store(const float (&d)[32], float* c, int row, int col, int M, int N) {
    const int thread = threadIdx.x % 128;
#pragma unroll
    for (int i = 0; i < 32; ++i) {
        const int m = row + thread / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8;
        const int n = col + i / 4 * 8 + thread % 4 * 2 + i % 2;
        if (m < M && n < N) c[static_cast<long long>(m) * N + n] = d[i];
    }
}

// One warpgroup, one slice at a time.
template <int FAULT, bool B_ROWS>
__global__ void minimal(MAP a_map, MAP b_map, float* c,
                        int M, int N, int K) {
    extern __shared__ __align__(1024) char smem[];
    __shared__ Mbarrier full;
    char *const a = smem, *const b = a + TILE;
    const int row = blockIdx.y * BLOCK_M, col = blockIdx.x * BLOCK_N;
    if (threadIdx.x == 0 && FAULT != 6) mbarrier_init(full, 1);
    fence_mbarrier_init();
    __syncthreads();
    float d[32] = {};
    for (int slice = 0; slice * BLOCK_K < K; ++slice) {
        const int k = slice * BLOCK_K;
        if (threadIdx.x == 0) {
            mbarrier_arrive_expect_tx(full, FAULT == 2 ? 2 * TILE + 16 : FAULT == 3 ? TILE : 2 * TILE);
            tma_load(a, a_map, k, row, full);
            tma_load(b, b_map, B_ROWS ? col : k, B_ROWS ? k : col, full);
        }
        if (FAULT != 1) mbarrier_wait(full, slice % 2);
        wgmma_fence();
        multiply(d, a, b, B_ROWS, slice > 0);
        wgmma_commit_group();
        if (FAULT == 4) continue;
        if (FAULT == 5 && k + BLOCK_K < K) wgmma_wait_group<1>();
        else wgmma_wait_group<0>();
        __syncthreads();
    }
    store(d, c, row, col, M, N);
}

template __global__ void minimal<0, false>(MAP, MAP, float*, int, int, int);
template __global__ void minimal<0, true>(MAP, MAP, float*, int, int, int);
template __global__ void minimal<1, true>(MAP, MAP, float*, int, int, int);
template __global__ void minimal<2, true>(MAP, MAP, float*, int, int, int);
template __global__ void minimal<3, true>(MAP, MAP, float*, int, int, int);
template __global__ void minimal<4, true>(MAP, MAP, float*, int, int, int);
template __global__ void minimal<5, true>(MAP, MAP, float*, int, int, int);
template __global__ void minimal<6, true>(MAP, MAP, float*, int, int, int);

// Persistent, warp-specialised: warpgroup 0 loads, 1 and 2 multiply half of a tile's rows each and store it by bulk
// copies, over a ring of STAGES slices with full and empty barriers. POLL asks the full barriers again and again.
constexpr int STAGES = 3, WIDE_M = 128;

template <int FAULT, bool POLL>
__global__ void __launch_bounds__(384)
specialized(MAP a_map, MAP b_map,
            MAP c_map, int M, int N, int K) {
    extern __shared__ __align__(1024) char smem[];
    __shared__ Mbarrier full[STAGES], empty[STAGES];
    char *const a = smem, *const b = a + STAGES * 2 * TILE, *const c = b + STAGES * TILE;
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) {
            mbarrier_init(full[s], 1);
            mbarrier_init(empty[s], 2);
        }
        fence_mbarrier_init();
    }
    __syncthreads();
    const int across = (N + BLOCK_N - 1) / BLOCK_N, tiles = across * ((M + WIDE_M - 1) / WIDE_M);
    const int group = threadIdx.x / 128;
    int stage = 0, phase = 0;
    if (group == 0) {
        setmaxnreg_dec<40>();
        if (threadIdx.x == 0) {
            for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
                const int row = tile / across * WIDE_M, col = tile % across * BLOCK_N;
                for (int k = 0; k < K; k += BLOCK_K) {
                    if (FAULT != 1) mbarrier_wait(empty[stage], phase ^ 1);
                    mbarrier_arrive_expect_tx(full[stage], 3 * TILE);
                    tma_load(a + stage * 2 * TILE, a_map, k, row, full[stage]);
                    tma_load(b + stage * TILE, b_map, col, k, full[stage]);
                    if (++stage == STAGES) stage = 0, phase ^= 1;
                }
            }
        }
    } else {
        setmaxnreg_inc<232>();
        char* const own = c + (group - 1) * 2 * TILE;  // 64 rows of 64 floats, in two halves of 128 bytes a row
        for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
            float d[32] = {};
            for (int k = 0; k < K; k += BLOCK_K) {
                if (POLL) mbarrier_poll(full[stage], phase);
                else mbarrier_wait(full[stage], phase);
                wgmma_fence();
                multiply(d, a + stage * 2 * TILE + (group - 1) * TILE, b + stage * TILE, true, k > 0);
                wgmma_commit_group();
                wgmma_wait_group<0>();
                if (FAULT != 2 && threadIdx.x % 128 == 0) mbarrier_arrive(empty[stage]);
                if (++stage == STAGES) stage = 0, phase ^= 1;
            }
            const int thread = threadIdx.x % 128;
            if (thread == 0 && FAULT != 3) tma_store_wait_read<0>();  // the tile before has been read
            asm volatile("bar.sync %0, 128;" ::"r"(group) : "memory");
#pragma unroll
            for (int i = 0; i < 32; ++i) {
                const int m = thread / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8;
                const int n = i / 4 * 8 + thread % 4 * 2 + i % 2;
                asm volatile("st.shared.f32 [%0], %1;" ::"r"(shared_address(own) + n / 32 * TILE + m * 128 + (n % 32 * 4 ^ m % 8 * 16)),
                             "f"(d[i])
                             : "memory");
            }
            fence_proxy_async();
            asm volatile("bar.sync %0, 128;" ::"r"(group) : "memory");
            if (thread == 0) {
                const int row = tile / across * WIDE_M + (group - 1) * 64, col = tile % across * BLOCK_N;
                tma_store(c_map, own, col, row);
                tma_store(c_map, own + TILE, col + 32, row);
                tma_store_commit();
            }
        }
        if (FAULT != 4) tma_store_wait_read<0>();
    }
}

template __global__ void specialized<0, false>(MAP, MAP, MAP, int, int, int);
template __global__ void specialized<0, true>(MAP, MAP, MAP, int, int, int);
template __global__ void specialized<1, false>(MAP, MAP, MAP, int, int, int);
template __global__ void specialized<2, false>(MAP, MAP, MAP, int, int, int);
template __global__ void specialized<3, false>(MAP, MAP, MAP, int, int, int);
template __global__ void specialized<4, false>(MAP, MAP, MAP, int, int, int);

// Two blocks of a cluster, one above the other, share B: each loads half of a slice for both. The first warp's thread
// 0 loads, all four warps multiply; a slice is free when both blocks say so.
template <int FAULT>
__global__ void __cluster_dims__(1, 2, 1)
clustered(MAP a_map, MAP b_map, float* c, int M, int N,
          int K) {
    extern __shared__ __align__(1024) char smem[];
    __shared__ Mbarrier full[STAGES], empty[STAGES];
    char *const a = smem, *const b = a + STAGES * TILE;
    const int rank = cluster_rank();
    const int row = blockIdx.y * BLOCK_M, col = blockIdx.x * BLOCK_N;
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) {
            mbarrier_init(full[s], 1);
            mbarrier_init(empty[s], 2);
        }
        fence_mbarrier_init();
    }
    cluster_sync();
    if (threadIdx.x >= 128) {
        if (threadIdx.x == 128) {
            for (int slice = 0; slice * BLOCK_K < K; ++slice) {
                const int stage = slice % STAGES, phase = slice / STAGES % 2, k = slice * BLOCK_K;
                mbarrier_wait(empty[stage], phase ^ 1);
                mbarrier_arrive_expect_tx(full[stage], 2 * TILE);
                tma_load(a + stage * TILE, a_map, k, row, full[stage]);
                tma_load_multicast(b + stage * TILE + rank * TILE / 2, b_map, col, k + rank * BLOCK_K / 2,
                                   full[stage], FAULT == 2 ? 1 << rank : 3);
            }
        }
    } else {
        float d[32] = {};
        for (int slice = 0; slice * BLOCK_K < K; ++slice) {
            const int stage = slice % STAGES, phase = slice / STAGES % 2;
            mbarrier_wait(full[stage], phase);
            wgmma_fence();
            multiply(d, a + stage * TILE, b + stage * TILE, true, slice > 0);
            wgmma_commit_group();
            wgmma_wait_group<0>();
            if (threadIdx.x < 2) mbarrier_arrive_cluster_release(empty[stage], FAULT == 1 ? rank ^ 1 : threadIdx.x);
        }
        store(d, c, row, col, M, N);
    }
    cluster_sync();  // the other block may still send to this one
}

template __global__ void clustered<0>(MAP, MAP, float*, int, int, int);
template __global__ void clustered<1>(MAP, MAP, float*, int, int, int);
template __global__ void clustered<2>(MAP, MAP, float*, int, int, int);
