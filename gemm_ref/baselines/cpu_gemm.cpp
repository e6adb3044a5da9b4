// The GEMM that the ladder starts from: three loops, one thread, no tiling and no intrinsics.
//
// C[M, N] = A[M, K] @ B[K, N], all row-major. The innermost loop is the inner product of a row of A, read in order,
// with a column of B, read N elements apart: what every rung of the ladder improves, in one place.

#include <cstdint>

extern "C" void cpu_gemm(const float* A, const float* B, float* C, int64_t M, int64_t N, int64_t K) {
    for (int64_t m = 0; m < M; ++m) {
        for (int64_t n = 0; n < N; ++n) {
            float sum = 0.0f;
            for (int64_t k = 0; k < K; ++k) {
                sum += A[m * K + k] * B[k * N + n];
            }
            C[m * N + n] = sum;
        }
    }
}
