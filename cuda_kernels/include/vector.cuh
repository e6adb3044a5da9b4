// Rows are accessed four floats (a vector) at a time where their alignment allows that, and by single floats elsewhere.
#pragma once

constexpr int VECTOR = 4;  // floats per 16 bytes, a thread's widest load or store

// Returns the 4 floats from `first` (at a multiple of 16 bytes) as one value.
__device__ __forceinline__ float4& as_vector(float& first) { return reinterpret_cast<float4&>(first); }
__device__ __forceinline__ const float4& as_vector(const float& first) {
    return reinterpret_cast<const float4&>(first);
}

// Returns the 32-bit address in shared memory that instructions take.
__device__ __forceinline__ unsigned shared_address(const void* x) {
    return static_cast<unsigned>(__cvta_generic_to_shared(x));
}

// Reads the 4 floats at such an address, a multiple of 16 bytes.
__device__ __forceinline__ void read_vector(float& to, unsigned from) {
    float4& x = as_vector(to);
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w) : "r"(from));
}

// Reads floats at `from` in global memory that are not read again, so caches evict them first. The volatile asm keeps
// the read after an earlier wait.
__device__ __forceinline__ void read_once(float (&to)[VECTOR], const float* from) {
    asm volatile("ld.global.cs.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3])
                 : "l"(from));
}
__device__ __forceinline__ void read_once(float (&to)[1], const float* from) {
    asm volatile("ld.global.cs.f32 %0, [%1];" : "=f"(to[0]) : "l"(from));
}

// Returns whether every row consists of whole vectors: the matrix and each of its rows start at a multiple of 16 bytes.
// A vector is then inside its row or outside, never across its end.
__device__ __forceinline__ bool has_vector_rows(const float* matrix, int columns) {
    return reinterpret_cast<size_t>(matrix) % sizeof(float4) == 0 && columns % VECTOR == 0;
}

// Returns the 4 floats at `from`, of which the first `inside` are in the matrix (none if it is 0 or less), and 0 for
// the others. load_vector needs a matrix with vector rows, load_floats takes any.
__device__ __forceinline__ float4 load_vector(const float* from, int inside) {
    return inside > 0 ? as_vector(*from) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
}
__device__ __forceinline__ float4 load_floats(const float* from, int inside) {
    return make_float4(inside > 0 ? from[0] : 0.0f, inside > 1 ? from[1] : 0.0f,  //
                       inside > 2 ? from[2] : 0.0f, inside > 3 ? from[3] : 0.0f);
}

// Stores those floats of `from` that are in the matrix, the first `inside`, to `to`.
__device__ __forceinline__ void store_vector(float* to, float4 from, int inside) {
    if (inside > 0) as_vector(*to) = from;
}
__device__ __forceinline__ void store_floats(float* to, float4 from, int inside) {
    if (inside > 0) to[0] = from.x;
    if (inside > 1) to[1] = from.y;
    if (inside > 2) to[2] = from.z;
    if (inside > 3) to[3] = from.w;
}
