// Measures how many multiply-adds per second the tensor cores compute through wgmma, with fp32 accumulators in
// registers and both operands in shared memory: mma.sync does not reach the peak of Hopper's tensor cores.
//
// A block of two warpgroups occupies a multiprocessor alone. Each warpgroup multiplies 64 rows of A with the 256
// columns of B that both share. A group is four instructions along the 128 bytes of k, and is committed before the
// previous group has completed: so the tensor cores never wait for instructions, and consecutive instructions read
// different operands.
//
// -D sets THREADS, the size of a block, and WGMMA, the instruction: a function of wgmma.cuh.
#include <cuda_runtime.h>
#include "wgmma.cuh"

constexpr int WARPGROUP = 128;
constexpr int A_ROWS = THREADS / WARPGROUP * 64, B_ROWS = 256;  // rows of 128 bytes along k; B is transposed
constexpr int ACCUMULATORS = B_ROWS / 2;                        // per thread; their number selects the columns
constexpr int CHUNKS = SWIZZLE_ROW_BYTES / 16;

// `in` is A (A_ROWS, 128 bytes), followed by B transposed (B_ROWS, 128 bytes). `out` is (blocks, THREADS, 4) floats:
// the sum of the 32 tiles of 8 columns of a warp's D, iterations times A @ B, in the layout of mma.cuh.
extern "C" __global__ void __launch_bounds__(THREADS, 1) wgmma_kernel(const uint4* __restrict__ in,
                                                                      float4* __restrict__ out, int iterations) {
    extern __shared__ char smem[];
    const unsigned start = static_cast<unsigned>(__cvta_generic_to_shared(smem));
    char* const a_smem = smem + (1024 - start % 1024) % 1024;
    char* const b_smem = a_smem + A_ROWS * SWIZZLE_ROW_BYTES;
    for (int i = threadIdx.x; i < (A_ROWS + B_ROWS) * CHUNKS; i += THREADS) {
        // A_ROWS is a multiple of 8, so the swizzle pattern continues from A's rows to B's
        *reinterpret_cast<uint4*>(a_smem + swizzled_128(i / CHUNKS, i % CHUNKS)) = in[i];
    }
    fence_proxy_async();
    __syncthreads();  // the tiles are written, and visible to the tensor cores

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
