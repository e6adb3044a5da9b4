// What every rung's launcher needs: the rung's compile-time values, the launch that Python computed, and one way to
// start a kernel and report on it, early if it is asked to.
#pragma once
#include <cuda.h>
#include <cuda_runtime.h>
#include "registry.cuh"

// Mirrors gemm_ref.Launch; the one place where grid, block and shared memory are decided is gemm_ref/config/.
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
    const void* bias;                // added to each row of C, or to each column; null where there is none
    const void* addend;              // beta of it is added to C; null where there is none
    int addend_step;                 // elements of a row of it, to the next
    float alpha, beta;
    const int* exponents[2];  // of the rows of A and the columns of B, where those are multiplied in parts; else null
    unsigned early;           // 1 where its blocks may start before the kernel in front of it has ended
    unsigned cluster;         // blocks side by side that are a cluster; 0 and 1: no clusters
};

// Start `kernel` on `stream`; returns cudaSuccess or the error of the launch itself.
template <typename... Params, typename... Args>
cudaError_t launch_kernel(void (*kernel)(Params...), const LaunchShape& shape, cudaStream_t stream, Args... args) {
    if (shape.asks && shape.shared_bytes > 48 * 1024) {  // more than this has to be asked for
        cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                 static_cast<int>(shape.shared_bytes));
        if (error != cudaSuccess) return error;
    }
    cudaLaunchAttribute attributes[2];
    cudaLaunchConfig_t how = {};
    how.attrs = attributes;
    if (shape.early) {
        cudaLaunchAttribute& early = attributes[how.numAttrs++];
        early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        early.val.programmaticStreamSerializationAllowed = 1;
    }
    // Said here, and not by __cluster_dims__, so that clusters of one are none: with them s19's tiles took 1.01 times as long on
    // an H100, and 1.04 where tiles are more than twice as many as SMs (medians; 1.19 and 1.41 in 5% of the cases).
    if (shape.cluster > 1) {
        cudaLaunchAttribute& clusters = attributes[how.numAttrs++];
        clusters.id = cudaLaunchAttributeClusterDimension;
        clusters.val.clusterDim.x = shape.cluster, clusters.val.clusterDim.y = clusters.val.clusterDim.z = 1;
    }
    how.gridDim = dim3(shape.grid[0], shape.grid[1], shape.grid[2]);
    how.blockDim = dim3(shape.block[0], shape.block[1], shape.block[2]);
    how.dynamicSmemBytes = shape.shared_bytes, how.stream = stream;
    return cudaLaunchKernelEx(&how, kernel, static_cast<Params>(args)...);
}

extern "C" const char* describe_error(cudaError_t error) { return cudaGetErrorString(error); }
