// Rows of 2- or 4-byte elements are accessed 16 bytes (a chunk) at a time where their alignment allows that, and by
// single elements where it does not.
#pragma once
#include "async_copy.cuh"

// Returns whether every row consists of whole chunks: the matrix and each of its rows start at a multiple of 16 bytes.
// A chunk is then inside its row or outside, never across its end.
template <typename T>
__device__ __forceinline__ bool has_chunk_rows(const T* matrix, int columns) {
    return reinterpret_cast<size_t>(matrix) % 16 == 0 && columns % (16 / sizeof(T)) == 0;
}

// Copies a chunk to shared memory, of which the first `inside` elements are in the matrix (none if it is 0 or less,
// when nothing is read), and writes 0 for the others. A matrix with chunk rows is copied by cp.async...
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

// ... and any other by single elements: 4 bytes by cp.async, but 2 bytes, which it cannot copy, synchronously through
// registers.
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

// Stores a chunk to global memory, of which the first `inside` elements are in the matrix: StoreChunk to a matrix with
// chunk rows, StoreElements to any other.
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
