// nvcuda::wmma, with loads that know that they read shared memory.
//
// nvcc's <mma.h> gives the loads of bf16 and tf32 a generic address, also where the pointer is known to be one of shared
// memory, as that of fp16 stays (13.0). ptxas then makes LD of each 8 x 8 block, and MOVM where it has to be transposed,
// in place of one LDSM or LDS. So these loads are written out here: wmma.load, PTX ISA, 'Warp-level Matrix Load
// Instruction'.
#pragma once
#include <mma.h>
#include "element.cuh"

namespace wmma = nvcuda::wmma;

#if __CUDA_ARCH__ >= 800
#define DEFINE_LOAD(OPERAND, LETTER, SHAPE, M, N, K, TYPE, NAME)                                                   \
    __device__ __forceinline__ void load_matrix_shared(                                                           \
        wmma::fragment<wmma::OPERAND, M, N, K, TYPE, wmma::row_major>& fragment, const void* from, unsigned pitch) { \
        const unsigned shared = static_cast<unsigned>(__cvta_generic_to_shared(from));                              \
        static_assert(sizeof(fragment.x) == 4 * sizeof(unsigned), "4 registers");                                   \
        unsigned* to = reinterpret_cast<unsigned*>(fragment.x);                                                     \
        asm volatile("wmma.load." LETTER ".sync.aligned.row." SHAPE ".shared." NAME " {%0, %1, %2, %3}, [%4], %5;"  \
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])                                           \
                     : "r"(shared), "r"(pitch)                                                                      \
                     : "memory");                                                                                   \
    }

DEFINE_LOAD(matrix_a, "a", "m16n16k16", 16, 16, 16, __nv_bfloat16, "bf16")
DEFINE_LOAD(matrix_b, "b", "m16n16k16", 16, 16, 16, __nv_bfloat16, "bf16")
DEFINE_LOAD(matrix_a, "a", "m16n16k8", 16, 16, 8, wmma::precision::tf32, "tf32")
DEFINE_LOAD(matrix_b, "b", "m16n16k8", 16, 16, 8, wmma::precision::tf32, "tf32")

#undef DEFINE_LOAD
#endif

template <typename Use>
__device__ __forceinline__ void load_matrix_shared(wmma::fragment<Use, 16, 16, 16, __half, wmma::row_major>& fragment,
                                                   const __half* from, unsigned pitch) {
    wmma::load_matrix_sync(fragment, from, pitch);
}
