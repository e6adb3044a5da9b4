// What the kernels beside this file need beyond cuda_kernels/include/: other forms of the same instructions.
#pragma once
#include <cuda.h>
#include "mbarrier.cuh"
#include "tma.cuh"
#include "wgmma.cuh"

// mbarrier_wait that asks again and again, as one does where the thread has something else to do meanwhile.
__device__ __forceinline__ void mbarrier_poll(Mbarrier& barrier, int parity) {
    unsigned done = 0;
    while (!done) {
        asm volatile(
            "{\n.reg .pred done;\nmbarrier.test_wait.parity.shared::cta.b64 done, [%1], %2;\n"
            "selp.u32 %0, 1, 0, done;\n}"
            : "=r"(done)
            : "r"(shared_address(&barrier)), "r"(parity)
            : "memory");
    }
}

// Waits for every thread of the cluster, and orders what they wrote before.
__device__ __forceinline__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

#define D8(I)                                                                                                   \
    "+f"(d[I]), "+f"(d[I + 1]), "+f"(d[I + 2]), "+f"(d[I + 3]), "+f"(d[I + 4]), "+f"(d[I + 5]), "+f"(d[I + 6]), \
        "+f"(d[I + 7])
#define WGMMA_M64N64(NAME, INSTRUCTION, TAIL)                                                                      \
    __device__ __forceinline__ void NAME(float (&d)[32], unsigned long long a, unsigned long long b, int keep) {   \
        asm volatile("{\n.reg .pred keep;\nsetp.ne.b32 keep, %34, 0;\n" INSTRUCTION                                \
                     " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19," \
                     " %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, keep, " TAIL ";\n}"  \
                     : D8(0), D8(8), D8(16), D8(24)                                                                \
                     : "l"(a), "l"(b), "r"(keep));                                                                 \
    }

WGMMA_M64N64(wgmma_bf16, "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16", "1, 1, 0, 0")
WGMMA_M64N64(wgmma_bf16_b_rows, "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16", "1, 1, 0, 1")
