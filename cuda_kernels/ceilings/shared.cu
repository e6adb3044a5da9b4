// Measures how many bytes per second the multiprocessors read from their shared memory, 16 bytes per lane, without bank
// conflicts.
//
// Consecutive lanes read consecutive vectors: each quarter of a warp reads all 32 banks once. Each step starts one row
// below the previous one, modulo STARTS rows. Loads are volatile and their words are added up, as in read.cu.
//
// -D sets THREADS, the size of a block.
#include <cuda_runtime.h>

constexpr int LOADS = 8;  // per step, of consecutive rows
constexpr int STARTS = 4;
constexpr int ROWS = STARTS + LOADS - 1;  // of THREADS vectors

__device__ __forceinline__ uint4 load_shared(unsigned address) {
    uint4 to;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to.x), "=r"(to.y), "=r"(to.z), "=r"(to.w)
                 : "r"(address));
    return to;
}

// `in` is (ROWS, THREADS) vectors of 16 bytes. `out` is (blocks, THREADS) words: the sum of the words that a thread has
// read, modulo 2^32.
extern "C" __global__ void __launch_bounds__(THREADS) shared_kernel(const uint4* __restrict__ in,
                                                                    unsigned* __restrict__ out, int iterations) {
    __shared__ uint4 smem[ROWS][THREADS];
    for (int row = 0; row < ROWS; ++row) smem[row][threadIdx.x] = in[row * THREADS + threadIdx.x];
    __syncthreads();  // all of smem is written
    constexpr unsigned ROW_BYTES = THREADS * sizeof(uint4);
    const unsigned start = static_cast<unsigned>(__cvta_generic_to_shared(&smem[0][threadIdx.x]));
    unsigned sum = 0;
#pragma unroll 1
    for (int i = 0; i < iterations; ++i) {
        uint4 vector[LOADS];
#pragma unroll
        for (int load = 0; load < LOADS; ++load) {
            vector[load] = load_shared(start + i % STARTS * ROW_BYTES + load * ROW_BYTES);
        }
#pragma unroll
        for (int load = 0; load < LOADS; ++load) {
            sum += vector[load].x + vector[load].y;
            sum += vector[load].z + vector[load].w;
        }
    }
    out[blockIdx.x * THREADS + threadIdx.x] = sum;
}
