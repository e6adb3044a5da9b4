// Computes independent dot products with wgmma, to find its rounding to the last bit.
//
// A warpgroup has eight pairs of vectors a, b and a number c for each, and one instruction of 8 columns computes their
// a . b + c: vector i is row 9 i of A, one in each half of each warp's rows, and column i of B. All other rows are
// zeros.
//
// -D sets THREADS, a warpgroup's 128, and WGMMA, the instruction's name in PTX: m64n8, of any type, with fp32 sums.
#include <cuda_runtime.h>
#include "wgmma.cuh"

#define TEXT_OF(X) #X
#define TEXT(X) TEXT_OF(X)
constexpr int VECTORS = 8, CHUNKS = WGMMA_K_BYTES / 16;
constexpr char NAME[] = TEXT(WGMMA);
constexpr bool SIXTEEN_BITS = NAME[sizeof("wgmma.mma_async.sync.aligned.m64n8k") - 1] == '1';  // k16

// SIGNS: neither A nor B is negated; 16-bit types, which have two layouts, are stored along k.
#define WGMMA_ASM(SIGNS)                                                            \
    asm volatile("{\n.reg .pred accumulate;\nsetp.ne.b32 accumulate, 1, 0;\n" TEXT( \
                     WGMMA) " {%0, %1, %2, %3}, %4, %5, accumulate, " SIGNS ";\n}"  \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                   \
                 : "l"(a), "l"(b))

// `in` is a, (blocks, 8, 32 bytes), followed by b of the same shape and by c, (blocks, 8) floats. `out` is (blocks, 8)
// floats.
extern "C" __global__ void __launch_bounds__(THREADS) wgmma_dots_kernel(const uint4* __restrict__ in,
                                                                        float* __restrict__ out) {
    static_assert(THREADS == 128, "THREADS: a warpgroup");
    __shared__ __align__(1024) char a_smem[WGMMA_M * SWIZZLE_ROW_BYTES], b_smem[VECTORS * SWIZZLE_ROW_BYTES];
    const int thread = threadIdx.x, vectors = gridDim.x * VECTORS, first = blockIdx.x * VECTORS;
    const uint4 *a_in = in + (size_t)first * CHUNKS, *b_in = a_in + (size_t)vectors * CHUNKS;
    const float* c_in = reinterpret_cast<const float*>(in + 2 * (size_t)vectors * CHUNKS);

    // Only the first 32 bytes of each row are read.
    const int row = thread / CHUNKS, chunk = thread % CHUNKS;
    const bool holds_vector = row % (VECTORS + 1) == 0;
    const uint4 zeros = {};
    *reinterpret_cast<uint4*>(a_smem + swizzled_128(row, chunk)) =
        holds_vector ? a_in[row / (VECTORS + 1) * CHUNKS + chunk] : zeros;
    if (row < VECTORS) *reinterpret_cast<uint4*>(b_smem + swizzled_128(row, chunk)) = b_in[row * CHUNKS + chunk];
    fence_proxy_async();
    __syncthreads();  // the tiles are written, and visible to the tensor cores

    // d[0] and d[1] are columns 2 (lane % 4) and the next of row 16 warp + lane / 4; d[2] and d[3] are 8 rows below.
    const int lane = thread % 32, column = lane / 4, half = column % 2;
    const bool owns_sum = lane % 4 == column / 2 && thread / 32 == column / 2;  // row 9 column, of warp column / 2
    float d[4] = {};
    if (owns_sum) d[half ? 3 : 0] = c_in[first + column];
    const auto a = wgmma_descriptor(a_smem), b = wgmma_descriptor(b_smem);
    wgmma_fence_accumulators(d);
    wgmma_fence();
    if constexpr (SIXTEEN_BITS) WGMMA_ASM("1, 1, 0, 0");
    else WGMMA_ASM("1, 1");
    wgmma_commit_group();
    wgmma_wait_group<0>();
    wgmma_fence_accumulators(d);
    if (owns_sum) out[first + column] = half ? d[3] : d[0];
}
