// What every rung's launcher needs: the rung's compile-time values, the launch that Python computed, and one way to
// start a kernel and report on it.
#pragma once
#include <cuda.h>
#include <cuda_runtime.h>
#include "registry.cuh"

// Mirrors gemm_ref.Launch; the one place where grid, block and shared memory are decided is gemm_ref/grids.py.
struct LaunchShape {
    unsigned grid[3];
    unsigned block[3];
    unsigned shared_bytes;           // dynamic
    unsigned asks = 1;               // whether it asks for so many, where that is needed: once, a kernel keeps them
    float* partials;                 // room for sums of a part of K; null where there are none
    int* flags;                      // 0 before and after: of blocks that share tiles; null where there are none
    int shared_tiles;                // the last ones, of those that are dealt to the blocks
    const LaunchShape* then;         // the second kernel's launch; null where there is one
    const CUtensorMap* tensor_maps;  // of both operands and C, for a rung that uses the TMA unit; else null
    const float* scales[2];          // of A and B, in device memory; null is 1
};

// Start `kernel` on `stream`; returns cudaSuccess or the error of the launch itself.
template <typename... Params, typename... Args>
cudaError_t launch_kernel(void (*kernel)(Params...), const LaunchShape& shape, cudaStream_t stream, Args... args) {
    if (shape.asks && shape.shared_bytes > 48 * 1024) {  // more than this has to be asked for
        cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                 static_cast<int>(shape.shared_bytes));
        if (error != cudaSuccess) return error;
    }
    const dim3 grid(shape.grid[0], shape.grid[1], shape.grid[2]);
    const dim3 block(shape.block[0], shape.block[1], shape.block[2]);
    kernel<<<grid, block, shape.shared_bytes, stream>>>(args...);
    return cudaGetLastError();
}

extern "C" const char* describe_error(cudaError_t error) { return cudaGetErrorString(error); }
