// nvcuda::wmma for elements of config::MATH, with loads that know that they read shared memory.
//
// nvcc's <mma.h> (13.0) gives the loads of bf16 and tf32 a generic address, also where it knows that the pointer is one
// of shared memory, as it does for fp16. ptxas then makes an LD of each 8 x 8 block, and a MOVM where it has to be
// transposed, in place of one LDSM or of LDS. So these loads are written out here: wmma.load, PTX ISA, 'Warp-level
// Matrix Load Instruction'.
#pragma once
#include <mma.h>
#include "element.cuh"

namespace wmma = nvcuda::wmma;

template <typename Use>
__device__ __forceinline__ void load_matrix_shared(wmma::fragment<Use, 16, 16, 16, __half, wmma::row_major>& fragment,
                                                   const __half* from, unsigned pitch) {
    wmma::load_matrix_sync(fragment, from, pitch);
}

template <Math>
struct FragmentElement {  // what the API calls it
    using type = Element;
};

// Rounds what the API wants rounded before it is multiplied: floats, to tf32.
template <typename Fragment>
__device__ __forceinline__ void round_elements(Fragment&) {}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800  // older ones have only fp16
template <>
struct FragmentElement<Math::tf32> {
    using type = wmma::precision::tf32;
};

template <typename Use>
__device__ __forceinline__ void
round_elements(wmma::fragment<Use, 16, 16, 8, wmma::precision::tf32, wmma::row_major>& fragment) {
#pragma unroll
    for (int i = 0; i < fragment.num_elements; ++i) fragment.x[i] = wmma::__float_to_tf32(fragment.x[i]);
}

#define DEFINE_LOAD(OPERAND, LETTER, SHAPE, K, TYPE, NAME)                                                             \
    __device__ __forceinline__ void load_matrix_shared(                                                                \
        wmma::fragment<wmma::OPERAND, 16, 16, K, TYPE, wmma::row_major>& fragment, const void* from, unsigned pitch) { \
        const unsigned shared = static_cast<unsigned>(__cvta_generic_to_shared(from));                                 \
        static_assert(sizeof(fragment.x) == 4 * sizeof(unsigned), "4 registers");                                      \
        unsigned* to = reinterpret_cast<unsigned*>(fragment.x);                                                        \
        asm volatile("wmma.load." LETTER ".sync.aligned.row." SHAPE ".shared." NAME " {%0, %1, %2, %3}, [%4], %5;"     \
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])                                              \
                     : "r"(shared), "r"(pitch)                                                                         \
                     : "memory");                                                                                      \
    }

DEFINE_LOAD(matrix_a, "a", "m16n16k16", 16, __nv_bfloat16, "bf16")
DEFINE_LOAD(matrix_b, "b", "m16n16k16", 16, __nv_bfloat16, "bf16")
DEFINE_LOAD(matrix_a, "a", "m16n16k8", 8, wmma::precision::tf32, "tf32")
DEFINE_LOAD(matrix_b, "b", "m16n16k8", 8, wmma::precision::tf32, "tf32")

#undef DEFINE_LOAD
#endif
