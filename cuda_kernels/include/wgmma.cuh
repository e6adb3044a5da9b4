// wgmma, one instruction per function, named as PTX names it (PTX ISA, 'Asynchronous Warpgroup Level Matrix
// Multiply-Accumulate'): the four warps of a warpgroup compute D[64, n] = A[64, k] @ B[k, n] + D with A and B in shared
// memory and fp32 accumulators in registers. Only sm_90a.
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

// Makes this thread's writes to shared memory visible to the asynchronous units; a barrier of the threads must follow.
__device__ __forceinline__ void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

constexpr int SWIZZLE_ROW_BYTES = 128;  // bytes of k per row of A or column of B in the 128-byte swizzle
constexpr int SWIZZLE_ATOM_ROWS = 8;    // rows after which the pattern repeats
constexpr int WGMMA_K_BYTES = 32;       // bytes of k per instruction, whatever the type

// Returns the offset in bytes of 16-byte chunk `chunk` of row `row` in a tile with the 128-byte swizzle, which starts
// at a multiple of 1024.
__device__ __forceinline__ int swizzled_128(int row, int chunk) {
    return row * SWIZZLE_ROW_BYTES + (chunk ^ row % SWIZZLE_ATOM_ROWS) * 16;
}

// Returns the descriptor of a tile with the 128-byte swizzle that starts at `tile` (PTX ISA, 'Matrix Descriptor
// Format'): the address and two strides in units of 16 bytes, and the kind of swizzle. A tile consists of atoms of 8
// rows of 128 bytes.
//
// K-major, rows are along k: one stride is that between atoms along m or n, which are consecutive here; the other one
// is ignored. To advance WGMMA_K_BYTES along k, add WGMMA_K_BYTES / 16.
//
// MN-major, rows are along m or n, 64 elements of 16 bits: `next_columns` is the stride in bytes between atoms of 64
// columns; atoms along k are consecutive. 16 elements along k are two atoms: to advance by them, add 2 * ATOM_BYTES /
// 16.
constexpr int ATOM_BYTES = SWIZZLE_ATOM_ROWS * SWIZZLE_ROW_BYTES;
__device__ __forceinline__ unsigned long long wgmma_descriptor(const void* tile, int next_columns = 16) {
    const auto address = static_cast<unsigned>(__cvta_generic_to_shared(tile));
    constexpr unsigned long long NEXT_ATOM = ATOM_BYTES / 16, SWIZZLE_128 = 1;
    return (address & 0x3FFFF) / 16 | static_cast<unsigned long long>(next_columns / 16) << 16 | NEXT_ATOM << 32 |
           SWIZZLE_128 << 62;
}

// The accumulators of a lane, n / 2 of them, d[4 j + 0 .. 3]: rows 16 warp + lane / 4 (0, 1) and + 8 (2, 3), columns
// 8 j + 2 (lane % 4) (0, 2) and + 1 (1, 3). The number of accumulators selects the instruction's n.
constexpr int WGMMA_M = 64;

// Keeps the compiler from moving a use of the accumulators across this line: it does not know that the results of a
// wgmma are valid only after the wait.
template <int COUNT>
__device__ __forceinline__ void wgmma_fence_accumulators(float (&d)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// clang-format off
#define D8(I) "+f"(d[I]), "+f"(d[I + 1]), "+f"(d[I + 2]), "+f"(d[I + 3]), "+f"(d[I + 4]), "+f"(d[I + 5]), "+f"(d[I + 6]), "+f"(d[I + 7])
#define R8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define R16 R8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define D16(I) D8(I), D8(I + 8)
#define R32 R16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define D32(I) D16(I), D8(I + 16), D8(I + 24)
#define R48 R32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define D48(I) D32(I), D8(I + 32), D8(I + 40)
#define R64 R48 ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define D64(I) D48(I), D8(I + 48), D8(I + 56)
#define R80 R64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define D80(I) D64(I), D8(I + 64), D8(I + 72)
#define R96 R80 ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define D96(I) D80(I), D8(I + 80), D8(I + 88)
#define R112 R96 ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111"
#define D112(I) D96(I), D8(I + 96), D8(I + 104)
#define R128 R112 ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define D128(I) D112(I), D8(I + 112), D8(I + 120)
// clang-format on

// `accumulate` is PTX's scale-d: without it D is overwritten. SIGNS are the operands after it: A and B without
// negation, and for 16-bit types their layouts; in shared memory other types are K-major only.
#define WGMMA_ASM(NAME, COUNT, A, ACCUMULATE, SIGNS, ...)                                                    \
    asm volatile("{\n.reg .pred accumulate;\nsetp.ne.b32 accumulate, " ACCUMULATE                            \
                 ", 0;\n"                                                                                    \
                 "wgmma.mma_async.sync.aligned.m64" NAME " {" R##COUNT "}, " A ", accumulate, " SIGNS ";\n}" \
                 : D##COUNT(0)                                                                               \
                 : __VA_ARGS__)
#define WGMMA_PARAMETERS(COUNT) float (&d)[COUNT], unsigned long long a, unsigned long long b, bool accumulate
#define DESCRIPTORS "l"(a), "l"(b), "r"(static_cast<int>(accumulate))

// Defines the instructions of N columns; their N / 2 accumulators are the operands before P0 ... P5. A_MN_MAJOR is 1 if
// A is stored as (k, m) and 0 if as (m, k); B_MN_MAJOR is 1 if B is stored as (k, n) and 0 if as (n, k). The last
// function takes A in registers, in the layout of mma.cuh for each warp's 16 rows.
#define WGMMA_OF(N, COUNT, P0, P1, P2, P3, P4, P5)                                                                    \
    template <int A_MN_MAJOR = 0, int B_MN_MAJOR = 0>                                                                 \
    __device__ __forceinline__ void wgmma_k16_f32_f16_f16(WGMMA_PARAMETERS(COUNT)) {                                  \
        WGMMA_ASM("n" #N "k16.f32.f16.f16", COUNT, P0 ", " P1, P2, "1, 1, " P3 ", " P4, DESCRIPTORS, "n"(A_MN_MAJOR), \
                  "n"(B_MN_MAJOR));                                                                                   \
    }                                                                                                                 \
    template <int A_MN_MAJOR = 0, int B_MN_MAJOR = 0>                                                                 \
    __device__ __forceinline__ void wgmma_k16_f32_bf16_bf16(WGMMA_PARAMETERS(COUNT)) {                                \
        WGMMA_ASM("n" #N "k16.f32.bf16.bf16", COUNT, P0 ", " P1, P2, "1, 1, " P3 ", " P4, DESCRIPTORS,                \
                  "n"(A_MN_MAJOR), "n"(B_MN_MAJOR));                                                                  \
    }                                                                                                                 \
    __device__ __forceinline__ void wgmma_k8_f32_tf32_tf32(WGMMA_PARAMETERS(COUNT)) {                                 \
        WGMMA_ASM("n" #N "k8.f32.tf32.tf32", COUNT, P0 ", " P1, P2, "1, 1", DESCRIPTORS);                             \
    }                                                                                                                 \
    __device__ __forceinline__ void wgmma_k32_f32_e4m3_e4m3(WGMMA_PARAMETERS(COUNT)) {                                \
        WGMMA_ASM("n" #N "k32.f32.e4m3.e4m3", COUNT, P0 ", " P1, P2, "1, 1", DESCRIPTORS);                            \
    }                                                                                                                 \
    __device__ __forceinline__ void wgmma_k8_f32_tf32_tf32(float (&d)[COUNT], const unsigned (&a)[4],                 \
                                                           unsigned long long b, bool accumulate) {                   \
        WGMMA_ASM("n" #N "k8.f32.tf32.tf32", COUNT, "{" P0 ", " P1 ", " P2 ", " P3 "}, " P4, P5, "1, 1", "r"(a[0]),   \
                  "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(accumulate)));                        \
    }

WGMMA_OF(16, 8, "%8", "%9", "%10", "%11", "%12", "%13")
WGMMA_OF(32, 16, "%16", "%17", "%18", "%19", "%20", "%21")
WGMMA_OF(64, 32, "%32", "%33", "%34", "%35", "%36", "%37")
WGMMA_OF(96, 48, "%48", "%49", "%50", "%51", "%52", "%53")
WGMMA_OF(128, 64, "%64", "%65", "%66", "%67", "%68", "%69")
WGMMA_OF(160, 80, "%80", "%81", "%82", "%83", "%84", "%85")
WGMMA_OF(192, 96, "%96", "%97", "%98", "%99", "%100", "%101")
WGMMA_OF(224, 112, "%112", "%113", "%114", "%115", "%116", "%117")
WGMMA_OF(256, 128, "%128", "%129", "%130", "%131", "%132", "%133")

#undef WGMMA_OF
#undef DESCRIPTORS
#undef WGMMA_PARAMETERS
#undef WGMMA_ASM
#undef R128
#undef D128
#undef R112
#undef D112
#undef R96
#undef D96
#undef R80
#undef D80
#undef R64
#undef D64
#undef R48
#undef D48
#undef R32
#undef D32
#undef R16
#undef D16
#undef R8
#undef D8
