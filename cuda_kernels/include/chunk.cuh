// 16 bytes of a row at a time, of elements of 2 or 4 bytes, where the row's alignment allows that, and one element at a
// time where it does not.
#pragma once
#include "async_copy.cuh"

// Whether every row is made of whole chunks: the matrix starts at a multiple of 16 bytes, and so does each row. A chunk
// is then inside its row or outside, never across its end.
template <typename T>
__device__ __forceinline__ bool has_chunk_rows(const T* matrix, int columns) {
    return reinterpret_cast<size_t>(matrix) % 16 == 0 && columns % (16 / sizeof(T)) == 0;
}

// Copies a chunk to shared memory, of which the first `inside` elements are in the matrix (none if it is 0 or less;
// then nothing is read), and 0 for the others: in a matrix with chunk rows by cp.async...
struct CopyChunk {
    template <typename T>
    __device__ __forceinline__ void operator()(T* to, const T* from, int inside) const {
#if __CUDA_ARCH__ >= 800
        const unsigned shared = static_cast<unsigned>(__cvta_generic_to_shared(to));
        const int bytes = inside > 0 ? 16 : 0;
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(from), "r"(bytes) : "memory");
#else
        *reinterpret_cast<uint4*>(to) = inside > 0 ? *reinterpret_cast<const uint4*>(from) : uint4{};
#endif
    }
};

// ... and in any other element by element: of 4 bytes by cp.async, which has no 2 bytes, so those go through registers
// at once.
struct CopyElements {
    __device__ __forceinline__ void operator()(float* to, const float* from, int inside) const {
#pragma unroll
        for (int i = 0; i < 4; ++i) copy_float_async(to[i], from + i, i < inside);
    }
    template <typename T>
    __device__ __forceinline__ void operator()(T* to, const T* from, int inside) const {
        static_assert(sizeof(T) == 2, "elements of 2 or 4 bytes");
        unsigned words[4] = {};
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            if (i < inside) {
                words[i / 2] |= unsigned(reinterpret_cast<const unsigned short*>(from)[i]) << (i % 2 * 16);
            }
        }
        *reinterpret_cast<uint4*>(to) = make_uint4(words[0], words[1], words[2], words[3]);
    }
};

// Stores a chunk to global memory, of which the first `inside` elements are in the matrix: to one with chunk rows, and
// to any other.
struct StoreChunk {
    template <typename T>
    __device__ __forceinline__ void operator()(T* to, const T* from, int inside) const {
        if (inside > 0) *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
    }
};
struct StoreElements {
    template <typename T>
    __device__ __forceinline__ void operator()(T* to, const T* from, int inside) const {
#pragma unroll
        for (int i = 0; i < int(16 / sizeof(T)); ++i) {
            if (i < inside) to[i] = from[i];
        }
    }
};
