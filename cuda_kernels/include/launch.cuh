// Common code of all launchers: the rung's compile-time values, the launch that Python computed, and a function that
// starts a kernel, on request before its predecessor ends, and returns its error.
#pragma once
#include <cuda.h>
#include <cuda_runtime.h>
#include "registry.cuh"

// Mirrors gemm_ref.Launch; only gemm_ref/config/ computes grid, block and shared memory.
struct LaunchShape {
    unsigned grid[3];
    unsigned block[3];
    unsigned shared_bytes;           // dynamic shared memory
    unsigned raises_limit = 1;       // 1 to set a limit above 48 KiB; a kernel keeps it
    float* partials;                 // buffer for sums of a part of K, or null
    int* flags;                      // of blocks that share tiles, 0 before and after a launch; or null
    int shared_tiles;                // number of tiles, the last ones, that blocks share
    const LaunchShape* then;         // the second kernel's launch; null if there is one kernel
    const CUtensorMap* tensor_maps;  // of both operands and C, for a rung that uses the TMA unit; else null
    const float* scales[2];          // of A and B, in device memory; null is 1
    const void* bias;                // added to each row or each column of C, or null
    const void* addend;              // added to C, times beta; or null
    int addend_step;                 // elements between its rows
    float alpha, beta;
    const int* exponents[2];  // of the rows of A and columns of B that are multiplied in parts; else null
    unsigned early;           // 1 if its blocks may start before the previous kernel has ended
    unsigned cluster;         // blocks per cluster; 0 and 1: no clusters
};

// Starts `kernel` on `stream`; returns cudaSuccess or the error of the launch itself.
template <typename... Params, typename... Args>
cudaError_t launch_kernel(void (*kernel)(Params...), const LaunchShape& shape, cudaStream_t stream, Args... args) {
    if (shape.raises_limit && shape.shared_bytes > 48 * 1024) {  // a kernel has to request more
        cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                 static_cast<int>(shape.shared_bytes));
        if (error != cudaSuccess) return error;
    }
    cudaLaunchAttribute attributes[2];
    cudaLaunchConfig_t launch_config = {};
    launch_config.attrs = attributes;
    if (shape.early) {
        cudaLaunchAttribute& early = attributes[launch_config.numAttrs++];
        early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        early.val.programmaticStreamSerializationAllowed = 1;
    }
    // An attribute, unlike __cluster_dims__, allows launches without clusters. With clusters of one, s19's tiles took
    // 1.01 times as long (H100), or 1.04 with more than two tiles per SM (medians; 1.19 and 1.41 in 5% of the cases).
    if (shape.cluster > 1) {
        cudaLaunchAttribute& clusters = attributes[launch_config.numAttrs++];
        clusters.id = cudaLaunchAttributeClusterDimension;
        clusters.val.clusterDim.x = shape.cluster, clusters.val.clusterDim.y = clusters.val.clusterDim.z = 1;
    }
    launch_config.gridDim = dim3(shape.grid[0], shape.grid[1], shape.grid[2]);
    launch_config.blockDim = dim3(shape.block[0], shape.block[1], shape.block[2]);
    launch_config.dynamicSmemBytes = shape.shared_bytes, launch_config.stream = stream;
    return cudaLaunchKernelEx(&launch_config, kernel, static_cast<Params>(args)...);
}

extern "C" const char* describe_error(cudaError_t error) { return cudaGetErrorString(error); }
