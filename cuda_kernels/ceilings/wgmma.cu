// How many multiply-adds a second the tensor cores do through wgmma, with fp32 accumulators in registers and both
// operands in shared memory: what Hopper's tensor cores are built for (mma.sync does not reach their peak).
//
// A block of two warpgroups has a multiprocessor to itself. Each multiplies its own 64 rows of A with the 256 columns
// of B that they share, four instructions along the 128 bytes of k in a group, the next group in the queue before the
// one before it is done. So the tensor cores never wait for instructions, and each reads other operands than the one
// before.
//
// -D gives THREADS, the size of a block, and WGMMA, the instruction: a function of wgmma.cuh.
#include <cuda_runtime.h>
#include "wgmma.cuh"

constexpr int WARPGROUP = 128;
constexpr int A_ROWS = THREADS / WARPGROUP * 64, B_ROWS = 256;  // rows of 128 bytes along k; B is transposed
constexpr int ACCUMULATORS = B_ROWS / 2;                        // of a thread: so wgmma.cuh knows the columns
constexpr int CHUNKS = SWIZZLE_ROW_BYTES / 16;
constexpr int SHARED_BYTES = 1024 + (A_ROWS + B_ROWS) * SWIZZLE_ROW_BYTES;  // the swizzle starts at a multiple of 1024

// in: A (A_ROWS, 128 bytes), then B transposed (B_ROWS, 128 bytes).  out: (blocks, THREADS, 4) floats, the sum of the
// 32 tiles of 8 columns of a warp's D, iterations times A @ B, as mma.cuh lays out a tile.
__global__ void __launch_bounds__(THREADS, 1) wgmma_tiles(const uint4* __restrict__ in, float4* __restrict__ out,
                                                          int iterations) {
    extern __shared__ char smem[];
    const unsigned start = static_cast<unsigned>(__cvta_generic_to_shared(smem));
    char* const a_smem = smem + (1024 - start % 1024) % 1024;
    char* const b_smem = a_smem + A_ROWS * SWIZZLE_ROW_BYTES;
    for (int i = threadIdx.x; i < (A_ROWS + B_ROWS) * CHUNKS; i += THREADS) {
        // A_ROWS is a multiple of 8, so the pattern of B's rows goes on where that of A's ends
        *reinterpret_cast<uint4*>(a_smem + swizzled_128(i / CHUNKS, i % CHUNKS)) = in[i];
    }
    fence_proxy_async();
    __syncthreads();  // all of the tiles is written, and visible to the tensor cores

    const auto a = wgmma_descriptor(a_smem + threadIdx.x / WARPGROUP * 64 * SWIZZLE_ROW_BYTES);
    const auto b = wgmma_descriptor(b_smem);
    float d[ACCUMULATORS] = {};
#pragma unroll 1
    for (int i = 0; i < iterations; ++i) {
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < SWIZZLE_ROW_BYTES; k += WGMMA_K_BYTES) WGMMA(d, a + k / 16, b + k / 16, true);
        wgmma_commit_group();
        wgmma_wait_group<1>();
    }
    wgmma_wait_group<0>();
    wgmma_fence_accumulators(d);
    float4 sum = {};
#pragma unroll
    for (int i = 0; i < ACCUMULATORS; i += 4) {
        sum.x += d[i], sum.y += d[i + 1], sum.z += d[i + 2], sum.w += d[i + 3];
    }
    out[blockIdx.x * THREADS + threadIdx.x] = sum;
}

extern "C" cudaError_t launch(const uint4* in, float4* out, size_t, int iterations, int blocks, cudaStream_t stream) {
    cudaError_t error = cudaFuncSetAttribute(wgmma_tiles, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES);
    if (error != cudaSuccess) return error;
    wgmma_tiles<<<blocks, THREADS, SHARED_BYTES, stream>>>(in, out, iterations);
    return cudaGetLastError();
}

extern "C" const char* describe_error(cudaError_t error) { return cudaGetErrorString(error); }
