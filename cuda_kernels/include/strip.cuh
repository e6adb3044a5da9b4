// Computes C one row or one column at a time. Memory bounds it: no element is used twice, so operands go from global
// memory to registers. Threads share the K of a sum, and add their partial sums at the end in a fixed order.
#pragma once
#include <type_traits>
#include "vector.cuh"

// Computes BLOCK_N columns of row `row` of C from column `col` on. A thread has COLUMNS of them and every DEPTH-th k.
template <int BLOCK_N, int THREADS, int COLUMNS, int AT_ONCE>
__device__ __forceinline__ void multiply_row(const float* A, const float* B, float* C, int row, int col, int N, int K) {
    constexpr int LANES = BLOCK_N / COLUMNS, DEPTH = THREADS / LANES;  // threads along n and along k
    __shared__ __align__(16) float sums[DEPTH][BLOCK_N];
    const int n = threadIdx.x % LANES * COLUMNS, first = threadIdx.x / LANES;
    const float *a = A + (size_t)row * K,
                *b = B + (size_t)first * N + min(col + n, N - COLUMNS);  // sums past N are not stored
    float sum[COLUMNS] = {};
    int next = first;
    const auto add = [&](auto at_once) {
        constexpr int COUNT = decltype(at_once)::value;
        alignas(16) float b_reg[COUNT][COLUMNS];
#pragma unroll
        for (int i = 0; i < COUNT; ++i) read_once(b_reg[i], b + (size_t)(i * DEPTH) * N);
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            const float a_reg = a[next + i * DEPTH];
#pragma unroll
            for (int c = 0; c < COLUMNS; ++c) sum[c] += a_reg * b_reg[i][c];
        }
        next += COUNT * DEPTH, b += (size_t)(COUNT * DEPTH) * N;
    };
#pragma unroll 1
    while (next + (AT_ONCE - 1) * DEPTH < K) add(std::integral_constant<int, AT_ONCE>());
#pragma unroll 1
    while (next < K) add(std::integral_constant<int, 1>());
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c) sums[first][n + c] = sum[c];
#pragma unroll
    for (int half = DEPTH / 2; half > 0; half /= 2) {
        __syncthreads();  // the sums of both halves are written
        if (first < half) {
#pragma unroll
            for (int c = 0; c < COLUMNS; ++c) sums[first][n + c] += sums[first + half][n + c];
        }
    }
    if (first == 0 && col + n < N) {
        float& to = C[(size_t)row * N + col + n];
        if constexpr (COLUMNS == VECTOR) store_floats(&to, as_vector(sums[0][n]), VECTOR);
        else to = sums[0][n];
    }
}

// Computes BLOCK_M elements of column `col` of C from row `row` on. SHARERS threads share the K of each; a thread has
// STEP neighbouring k of every SHARERS-th step.
template <int BLOCK_M, int THREADS, int STEP, int AT_ONCE>
__device__ __forceinline__ void
multiply_column(const float* A, const float* B, float* C, int row, int col, int M, int N, int K) {
    constexpr int SHARERS = THREADS / BLOCK_M;  // threads per element of C
    __shared__ float sums[THREADS / 32];
    const int m = row + threadIdx.x / SHARERS;
    const float* const a = A + (size_t)min(m, M - 1) * K;
    float sum = 0.0f;
    int next = threadIdx.x % SHARERS * STEP;
    const auto add = [&](auto at_once) {
        constexpr int COUNT = decltype(at_once)::value;
        alignas(16) float a_reg[COUNT][STEP], b_reg[COUNT][STEP];
#pragma unroll
        for (int i = 0; i < COUNT; ++i) read_once(a_reg[i], a + next + i * SHARERS * STEP);
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            const float* const from = B + (size_t)(next + i * SHARERS * STEP) * N + col;
            if constexpr (STEP == VECTOR) as_vector(b_reg[i][0]) = as_vector(*from);  // B has one column
            else b_reg[i][0] = *from;
        }
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
#pragma unroll
            for (int j = 0; j < STEP; ++j) sum += a_reg[i][j] * b_reg[i][j];
        }
        next += COUNT * SHARERS * STEP;
    };
#pragma unroll 1
    while (next + (AT_ONCE - 1) * SHARERS * STEP < K) add(std::integral_constant<int, AT_ONCE>());
#pragma unroll 1
    while (next < K) add(std::integral_constant<int, 1>());
#pragma unroll
    for (int other = 16; other > 0; other /= 2) sum += __shfl_xor_sync(~0u, sum, other);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();  // the sum of every warp is written
    if (threadIdx.x % SHARERS == 0 && m < M) {
        for (int warp = 1; warp < SHARERS / 32; ++warp) sum += sums[threadIdx.x / 32 + warp];
        C[(size_t)m * N + col] = sum;
    }
}

// Computes this block's strip of C: one row of BLOCK_N columns, or one column of BLOCK_M rows.
template <int BLOCK_M, int BLOCK_N, int WARPS, int AT_ONCE>
__device__ __forceinline__ void multiply_strip(const float* A, const float* B, float* C, int M, int N, int K) {
    constexpr int THREADS = 32 * WARPS;
    const int across = (N + BLOCK_N - 1) / BLOCK_N;
    const int row = blockIdx.x / across * BLOCK_M, col = blockIdx.x % across * BLOCK_N;
    if constexpr (BLOCK_N > 1) {
        static_assert(BLOCK_M == 1, "BLOCK_M: a strip is one row, or one column");
        if (has_vector_rows(B, N)) multiply_row<BLOCK_N, THREADS, VECTOR, AT_ONCE>(A, B, C, row, col, N, K);
        else multiply_row<BLOCK_N, THREADS, 1, AT_ONCE>(A, B, C, row, col, N, K);
    } else if (N == 1 && has_vector_rows(A, K) && has_vector_rows(B, K)) {
        multiply_column<BLOCK_M, THREADS, VECTOR, AT_ONCE>(A, B, C, row, col, M, N, K);
    } else {
        multiply_column<BLOCK_M, THREADS, 1, AT_ONCE>(A, B, C, row, col, M, N, K);
    }
}
