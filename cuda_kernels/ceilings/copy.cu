// How many bytes a second device memory moves when a buffer far larger than the L2 cache is copied.
//
// A block copies a tile of LOADS vectors a thread at a time, all of its loads before its first store, and goes on
// gridDim.x tiles further: the whole grid walks through memory side by side, and a multiprocessor full of threads has
// 128 KiB on their way.
//
// -D gives THREADS, the size of a block.
#include <cuda_runtime.h>

constexpr int LOADS = 4;
constexpr int TILE = THREADS * LOADS;  // vectors of 16 bytes

// in, out: `bytes`, whole tiles. The copy is made `iterations` times.
__global__ void __launch_bounds__(THREADS)
copy_tiles(const uint4* __restrict__ in, uint4* __restrict__ out, size_t tiles, int iterations) {
#pragma unroll 1
    for (int i = 0; i < iterations; ++i) {
#pragma unroll 1
        for (size_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
            const size_t first = tile * TILE + threadIdx.x;
            uint4 vector[LOADS];
#pragma unroll
            for (int load = 0; load < LOADS; ++load) vector[load] = in[first + load * THREADS];
#pragma unroll
            for (int load = 0; load < LOADS; ++load) out[first + load * THREADS] = vector[load];
        }
    }
}

extern "C" cudaError_t launch(const uint4* in, uint4* out, size_t bytes, int iterations, int blocks,
                              cudaStream_t stream) {
    copy_tiles<<<blocks, THREADS, 0, stream>>>(in, out, bytes / (TILE * sizeof(uint4)), iterations);
    return cudaGetLastError();
}

extern "C" const char* describe_error(cudaError_t error) { return cudaGetErrorString(error); }
