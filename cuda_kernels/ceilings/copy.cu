// Measures how many bytes per second device memory moves when a buffer far larger than the L2 cache is copied.
//
// A thread copies one vector and ends: the hardware starts the next block when one ends, in the order of memory. This
// order moved most on an H200 (4.26 TB/s, as much as the driver's copy); persistent blocks that step through memory
// together, with more loads per thread in flight, reached 1.9 to 4.0 TB/s.
//
// -D sets THREADS, the size of a block.
#include <cuda_runtime.h>

// Copies (blocks, THREADS) vectors of 16 bytes.
extern "C" __global__ void __launch_bounds__(THREADS) copy_kernel(const uint4* __restrict__ in,
                                                                  uint4* __restrict__ out) {
    const size_t vector = static_cast<size_t>(blockIdx.x) * THREADS + threadIdx.x;
    out[vector] = in[vector];
}
