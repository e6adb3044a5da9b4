// Computes C from the sums of products of parts (gemm_ref/operands/split.py): it undoes the powers of two, and computes
// lines that the parts cannot represent from the operands themselves, in fp32.
#pragma once
#include "tensor_tile.cuh"

// The operands, A by rows and B in config::B_LAYOUT, and the sizes and the exponents of the lines of left @ right.
struct Operands {
    const float *A, *B;
    const int *row_exponents, *column_exponents;
    int M, N, K;

    __device__ __forceinline__ float a(int m, int k) const { return A[static_cast<size_t>(m) * K + k]; }
    __device__ __forceinline__ float b(int k, int n) const {
        return B[B_BY_ROWS ? static_cast<size_t>(k) * (TRANSPOSE_C ? M : N) + n : static_cast<size_t>(n) * K + k];
    }
    __device__ __forceinline__ float left(int m, int k) const {
        return m >= M ? 0.0f : TRANSPOSE_C ? b(k, m) : a(m, k);
    }
    __device__ __forceinline__ float right(int k, int n) const {
        return n >= N ? 0.0f : TRANSPOSE_C ? a(n, k) : b(k, n);
    }
    __device__ __forceinline__ int row_exponent(int m) const { return m < M ? row_exponents[m] : 0; }
    __device__ __forceinline__ int column_exponent(int n) const { return n < N ? column_exponents[n] : 0; }
};

__device__ __forceinline__ float power_of_two(int exponent) { return __int_as_float((exponent + 127) << 23); }

// Returns x * 2^exponent, rounded once: both halves of the power are normal numbers.
__device__ __forceinline__ float times_power_of_two(float x, int exponent) {
    const int half = exponent >> 1;
    return x * power_of_two(half) * power_of_two(exponent - half);
}

// Adds `small`, whose products are scaled by 2^PART_SHIFT, to `acc`.
__device__ __forceinline__ void join_sums(float (&acc)[ACCUMULATORS], const float (&small)[ACCUMULATORS]) {
#pragma unroll
    for (int i = 0; i < ACCUMULATORS; ++i) acc[i] = fmaf(small[i], power_of_two(-config::PART_SHIFT), acc[i]);
}

// Undoes the powers of two in `acc`, a warpgroup's 64 rows of left @ right from (row, col) on.
__device__ __forceinline__ void finish_sums(float (&acc)[ACCUMULATORS], const Operands& operands, int row, int col) {
    constexpr int READS = (config::BLOCK_N + 31) / 32;
    const int lane = threadIdx.x % 32, m = row + threadIdx.x / 32 % 4 * 16 + lane / 4, n = col + lane % 4 * 2;
    const int row_exponents[2] = {operands.row_exponent(m), operands.row_exponent(m + 8)};
    int column_exponents[READS];  // column l + 32 i in lane l
    bool wide = row_exponents[0] == config::WIDE || row_exponents[1] == config::WIDE;
#pragma unroll
    for (int i = 0; i < READS; ++i) {
        column_exponents[i] = operands.column_exponent(col + i * 32 + lane);
        wide |= column_exponents[i] == config::WIDE;
    }
    const auto column_exponent = [&](int i) {  // exponent of the column of sum i
        return __shfl_sync(~0u, column_exponents[i / 16], i / 4 % 4 * 8 + lane % 4 * 2 + i % 2);
    };
#pragma unroll
    for (int i = 0; i < ACCUMULATORS; ++i) {
        acc[i] = times_power_of_two(acc[i], -(row_exponents[i / 2 % 2] + column_exponent(i)));
    }
    if (!__any_sync(~0u, wide)) return;
#pragma unroll
    for (int i = 0; i < ACCUMULATORS; i += 4) {  // two columns at a time: slow, and few registers
        const int at = n + i / 4 * 8;
        if (at - lane % 4 * 2 >= operands.N) break;
        float sums[2][2] = {};
#pragma unroll 1
        for (int k = 0; k < operands.K; ++k) {
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                sums[j / 2][j % 2] =
                    fmaf(operands.left(m + j / 2 * 8, k), operands.right(k, at + j % 2), sums[j / 2][j % 2]);
            }
        }
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const int exponent = column_exponent(i + j);
            if (row_exponents[j / 2] == config::WIDE || exponent == config::WIDE) acc[i + j] = sums[j / 2][j % 2];
        }
    }
}
