// cp.async copies from global to shared memory without registers (PTX ISA, 'Data Movement: Asynchronous copy'). Below
// sm_80, which has no such instruction, the functions copy synchronously through registers, and waits do nothing.
#pragma once
#include "vector.cuh"

// Copies one float to an address in shared memory, or writes 0 without a read if it is not inside the matrix.
// LINE hints that the L2 cache should fetch the float's line of 128 bytes, of which more is needed soon.
template <bool LINE = false>
__device__ __forceinline__ void copy_float_async_at(unsigned to, const float* from, bool inside) {
#if __CUDA_ARCH__ >= 800
    const int bytes = inside ? 4 : 0;
    if constexpr (LINE)
        asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(bytes)
                     : "memory");
    else asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
#else
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(to), "f"(inside ? *from : 0.0f) : "memory");
#endif
}
__device__ __forceinline__ void copy_float_async(float& to, const float* from, bool inside) {
    copy_float_async_at(shared_address(&to), from, inside);
}

// Copies 4 floats, of which the first `inside` are in the matrix (none if it is 0 or less), and writes 0 for the
// others. The first version needs a matrix with vector rows (cp.async.cg, which bypasses L1); the last one takes any.
__device__ __forceinline__ void copy_vector_async_at(unsigned to, const float* from, int inside) {
#if __CUDA_ARCH__ >= 800
    const int bytes = inside > 0 ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
#else
    const float4 x = load_vector(from, inside);
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to), "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w)
                 : "memory");
#endif
}
__device__ __forceinline__ void copy_vector_async(float& to, const float* from, int inside) {
    copy_vector_async_at(shared_address(&to), from, inside);
}
__device__ __forceinline__ void copy_floats_async(float& to, const float* from, int inside) {
#pragma unroll
    for (int i = 0; i < VECTOR; ++i) copy_float_async((&to)[i], from + i, i < inside);
}

// Closes the group of the copies that this thread has started since the last one.
__device__ __forceinline__ void commit_copies() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits until at most GROUPS of this thread's groups are still in flight.
template <int GROUPS>
__device__ __forceinline__ void wait_for_copies() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(GROUPS) : "memory");
#endif
}
