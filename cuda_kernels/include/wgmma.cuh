// wgmma, one instruction per function, named as PTX names it (PTX ISA, 'Asynchronous Warpgroup Level Matrix
// Multiply-Accumulate'): D[64, n] = A[64, k] @ B[k, n] + D by the four warps of a warpgroup, A and B in shared memory,
// fp32 accumulators in registers. Only sm_90a.
#pragma once

// Orders this thread's writes to accumulators before the instructions that follow.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

// Closes the group of the instructions since the last one.
__device__ __forceinline__ void wgmma_commit_group() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Waits until at most GROUPS of this warpgroup's groups are still being computed.
template <int GROUPS>
__device__ __forceinline__ void wgmma_wait_group() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(GROUPS) : "memory");
}

// Makes this thread's writes to shared memory visible to the asynchronous units; a barrier between threads comes after.
__device__ __forceinline__ void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

constexpr int SWIZZLE_ROW_BYTES = 128;  // of k: a row of A, or a column of B, in the 128-byte swizzle
constexpr int SWIZZLE_ATOM_ROWS = 8;    // rows after which the pattern repeats
constexpr int WGMMA_K_BYTES = 32;       // of k in one instruction, of whatever type

// Where 16-byte chunk `chunk` of row `row` is in a tile with the 128-byte swizzle, in bytes from the tile's start,
// which is at a multiple of 1024.
__device__ __forceinline__ int swizzled_128(int row, int chunk) {
    return row * SWIZZLE_ROW_BYTES + (chunk ^ row % SWIZZLE_ATOM_ROWS) * 16;
}

// The descriptor of a tile with the 128-byte swizzle that starts at `tile` (PTX ISA, 'Matrix Descriptor Format'): the
// address and two distances in units of 16 bytes, and the kind of swizzle. A tile is made of atoms, 8 rows of 128
// bytes.
//
// K-major, rows are along k: the distance is that between atoms along m or n, here one behind the other; the other one
// plays no part. WGMMA_K_BYTES further along k: add WGMMA_K_BYTES / 16.
//
// MN-major, rows are along m or n, 64 elements of 16 bits: `next_columns` is the bytes from the atom of 64 columns to
// that of the next 64; atoms along k are one behind the other. 16 further along k are two atoms: add 2 * ATOM_BYTES /
// 16.
constexpr int ATOM_BYTES = SWIZZLE_ATOM_ROWS * SWIZZLE_ROW_BYTES;
__device__ __forceinline__ unsigned long long wgmma_descriptor(const void* tile, int next_columns = 16) {
    const auto address = static_cast<unsigned>(__cvta_generic_to_shared(tile));
    constexpr unsigned long long NEXT_ATOM = ATOM_BYTES / 16, SWIZZLE_128 = 1;
    return (address & 0x3FFFF) / 16 | static_cast<unsigned long long>(next_columns / 16) << 16 | NEXT_ATOM << 32 |
           SWIZZLE_128 << 62;
}

// The accumulators of a lane, d[4 j + 0 .. 3]: rows 16 warp + lane / 4 (0, 1) and 8 on (2, 3), columns
// 8 j + 2 (lane % 4) (0, 2) and + 1 (1, 3).
constexpr int WGMMA_M = 64, WGMMA_N = 256, WGMMA_ACCUMULATORS = 128;

// Keeps the compiler from moving a use of the accumulators over this line: it does not know that what a wgmma writes is
// there only after the wait.
__device__ __forceinline__ void wgmma_fence_accumulators(float (&d)[WGMMA_ACCUMULATORS]) {
#pragma unroll
    for (int i = 0; i < WGMMA_ACCUMULATORS; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

#define D8(I)                                                                                                   \
    "+f"(d[I]), "+f"(d[I + 1]), "+f"(d[I + 2]), "+f"(d[I + 3]), "+f"(d[I + 4]), "+f"(d[I + 5]), "+f"(d[I + 6]), \
        "+f"(d[I + 7])
#define D64(I) D8(I), D8(I + 8), D8(I + 16), D8(I + 24), D8(I + 32), D8(I + 40), D8(I + 48), D8(I + 56)
#define REGISTERS_OF_D                                                                                          \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, " \
    "%23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, " \
    "%44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, " \
    "%65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, " \
    "%86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, "      \
    "%105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, "    \
    "%122, %123, %124, %125, %126, %127"

// `accumulate` is PTX's scale-d: without it D is overwritten. SIGNS are the operands after it: A and B as they are, and
// for 16-bit types that A is K-major, and how B is stored; in shared memory other types are K-major only.
#define WGMMA_PARAMETERS float (&d)[WGMMA_ACCUMULATORS], unsigned long long a, unsigned long long b, bool accumulate
#define WGMMA_ASM(INSTRUCTION, SIGNS, ...)                                                                       \
    asm volatile("{\n.reg .pred accumulate;\nsetp.ne.b32 accumulate, %130, 0;\n" INSTRUCTION " {" REGISTERS_OF_D \
                 "}, %128, %129, accumulate, " SIGNS ";\n}"                                                      \
                 : D64(0), D64(64)                                                                               \
                 : "l"(a), "l"(b), "r"(static_cast<int>(accumulate))__VA_ARGS__)

// B_MN_MAJOR: 1 where B is stored as (k, n), 0 where as (n, k).
template <int B_MN_MAJOR = 0>
__device__ __forceinline__ void wgmma_m64n256k16_f32_f16_f16(WGMMA_PARAMETERS) {
    WGMMA_ASM("wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16", "1, 1, 0, %131", , "n"(B_MN_MAJOR));
}
template <int B_MN_MAJOR = 0>
__device__ __forceinline__ void wgmma_m64n256k16_f32_bf16_bf16(WGMMA_PARAMETERS) {
    WGMMA_ASM("wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16", "1, 1, 0, %131", , "n"(B_MN_MAJOR));
}
__device__ __forceinline__ void wgmma_m64n256k8_f32_tf32_tf32(WGMMA_PARAMETERS) {
    WGMMA_ASM("wgmma.mma_async.sync.aligned.m64n256k8.f32.tf32.tf32", "1, 1");
}
// The same with A in registers, as mma.cuh has it for each of a warp's 16 rows.
__device__ __forceinline__ void wgmma_m64n256k8_f32_tf32_tf32(float (&d)[WGMMA_ACCUMULATORS], const unsigned (&a)[4],
                                                              unsigned long long b, bool accumulate) {
    asm volatile(
        "{\n.reg .pred accumulate;\nsetp.ne.b32 accumulate, %133, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n256k8.f32.tf32.tf32 {" REGISTERS_OF_D
        "}, {%128, %129, %130, %131}, %132, accumulate, 1, 1;\n}"
        : D64(0), D64(64)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(accumulate)));
}
__device__ __forceinline__ void wgmma_m64n256k32_f32_e4m3_e4m3(WGMMA_PARAMETERS) {
    WGMMA_ASM("wgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e4m3", "1, 1");
}

#undef WGMMA_ASM
#undef WGMMA_PARAMETERS
#undef REGISTERS_OF_D
#undef D64
#undef D8
