// One warp multiplies one tile through nvcuda::wmma: every shape of <mma.h> that the reference GPU has, each in one of its
// layouts, with A and B in global memory and copied to shared memory.
#include <mma.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

using namespace nvcuda::wmma;

// The type of elements in memory, and what the API calls it.
template <typename T> struct Memory {
    using type = T;
};
template <> struct Memory<precision::tf32> {
    using type = float;
};

template <typename T, int M, int N, int K, typename LayoutA, typename LayoutB, typename Sum>
__device__ void
multiply(const typename Memory<T>::type* A, const typename Memory<T>::type* B, Sum* C, int lda, int ldb, int ldc) {
    fragment<matrix_a, M, N, K, T, LayoutA> a;
    fragment<matrix_b, M, N, K, T, LayoutB> b;
    fragment<accumulator, M, N, K, Sum> c;
    load_matrix_sync(a, A, lda);
    load_matrix_sync(b, B, ldb);
    load_matrix_sync(c, C, ldc, mem_row_major);
    mma_sync(c, a, b, c);
    store_matrix_sync(C, c, ldc, mem_row_major);
}

#define KERNELS(NAME, T, M, N, K, LAYOUT_A, LAYOUT_B, SUM)                                                        \
    extern "C" __global__ void NAME##_global(const Memory<T>::type* A, const Memory<T>::type* B, SUM* C, int lda, \
                                             int ldb, int ldc) {                                                  \
        multiply<T, M, N, K, LAYOUT_A, LAYOUT_B, SUM>(A, B, C, lda, ldb, ldc);                                    \
    }                                                                                                             \
    extern "C" __global__ void NAME##_shared(const Memory<T>::type* A, const Memory<T>::type* B, SUM* C, int lda, \
                                             int ldb, int ldc) {                                                  \
        __shared__ alignas(32) Memory<T>::type a_smem[32 * 48], b_smem[32 * 48];                                  \
        for (int i = threadIdx.x; i < 32 * 48; i += 32) a_smem[i] = A[i], b_smem[i] = B[i];                       \
        __syncwarp();                                                                                             \
        multiply<T, M, N, K, LAYOUT_A, LAYOUT_B, SUM>(a_smem, b_smem, C, lda, ldb, ldc);                          \
    }

KERNELS(f16_16_16_16_row_row_f32, __half, 16, 16, 16, row_major, row_major, float)
KERNELS(f16_16_16_16_col_col_f16, __half, 16, 16, 16, col_major, col_major, __half)
KERNELS(f16_32_8_16_row_col_f32, __half, 32, 8, 16, row_major, col_major, float)
KERNELS(f16_8_32_16_col_row_f16, __half, 8, 32, 16, col_major, row_major, __half)
KERNELS(bf16_16_16_16_row_col_f32, __nv_bfloat16, 16, 16, 16, row_major, col_major, float)
KERNELS(bf16_32_8_16_col_row_f32, __nv_bfloat16, 32, 8, 16, col_major, row_major, float)
KERNELS(bf16_8_32_16_row_row_f32, __nv_bfloat16, 8, 32, 16, row_major, row_major, float)
KERNELS(tf32_16_16_8_row_col_f32, precision::tf32, 16, 16, 8, row_major, col_major, float)
KERNELS(tf32_16_16_8_col_row_f32, precision::tf32, 16, 16, 8, col_major, row_major, float)
KERNELS(s8_16_16_16_row_col_s32, signed char, 16, 16, 16, row_major, col_major, int)
KERNELS(s8_32_8_16_col_row_s32, signed char, 32, 8, 16, col_major, row_major, int)
KERNELS(u8_8_32_16_row_row_s32, unsigned char, 8, 32, 16, row_major, row_major, int)
KERNELS(f64_8_8_4_row_col_f64, double, 8, 8, 4, row_major, col_major, double)
KERNELS(f64_8_8_4_col_row_f64, double, 8, 8, 4, col_major, row_major, double)
