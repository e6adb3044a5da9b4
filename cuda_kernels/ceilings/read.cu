// Measures how many bytes per second the multiprocessors read from device memory, the L2 cache or the L1 cache. The
// size of the buffer and LOAD select which.
//
// In each of `iterations` steps a block reads one tile of LOADS vectors per thread and advances by `stride` tiles,
// modulo the buffer: so every block reads every part of it. Loads are volatile, so that none is dropped or moved out of
// the loop, and the sum of their words is stored, so that each is needed.
//
// -D sets THREADS, the size of a block, and LOAD: load_nc (through L1, as the rungs read A and B) or load_cg (past
// L1).
#include <cuda_runtime.h>

constexpr int LOADS = 4;
constexpr int TILE = THREADS * LOADS;  // vectors of 16 bytes

#define DEFINE_LOAD(NAME, INSTRUCTION)                                \
    __device__ __forceinline__ uint4 NAME(const uint4* from) {        \
        uint4 to;                                                     \
        asm volatile(INSTRUCTION " {%0, %1, %2, %3}, [%4];"           \
                     : "=r"(to.x), "=r"(to.y), "=r"(to.z), "=r"(to.w) \
                     : "l"(from));                                    \
        return to;                                                    \
    }
DEFINE_LOAD(load_nc, "ld.global.nc.v4.u32")
DEFINE_LOAD(load_cg, "ld.global.cg.v4.u32")

// `in` is `tiles` tiles, of which a grid in lockstep reads consecutive ones. `out` is (blocks, THREADS) words: the sum of
// the words that a thread has read, modulo 2^32.
extern "C" __global__ void __launch_bounds__(THREADS) read_kernel(const uint4* in, unsigned* out, unsigned tiles,
                                                                  unsigned stride, int iterations) {
    unsigned tile = blockIdx.x % tiles, sum = 0;
#pragma unroll 2
    for (int i = 0; i < iterations; ++i) {
        const uint4* const first = in + static_cast<size_t>(tile) * TILE + threadIdx.x;
        uint4 vector[LOADS];
#pragma unroll
        for (int load = 0; load < LOADS; ++load) vector[load] = LOAD(first + load * THREADS);
#pragma unroll
        for (int load = 0; load < LOADS; ++load) {
            sum += vector[load].x + vector[load].y;
            sum += vector[load].z + vector[load].w;
        }
        tile = tile + stride < tiles ? tile + stride : tile + stride - tiles;
    }
    out[blockIdx.x * THREADS + threadIdx.x] = sum;
}
