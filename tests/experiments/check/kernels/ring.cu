// A ring of five slices that cp.async fills, four of them ahead of the sums; two by two elements per thread.
#include <cuda_pipeline.h>
#define TILE 32
#define BK 16
#define STAGES 5
__global__ void gemm(const float* A, const float* B, float* C, int M, int N, int K) {
    __shared__ float a_smem[STAGES][TILE][BK], b_smem[STAGES][BK][TILE];
    int x = threadIdx.x, y = threadIdx.y, tid = y * 16 + x;
    int row0 = blockIdx.y * TILE, col0 = blockIdx.x * TILE;
    auto fetch = [&](int slice) {
        int stage = slice % STAGES, k0 = slice * BK;
        for (int i = tid; i < TILE * BK; i += 256) {
            int m = i / BK, k = i % BK;
            bool there = row0 + m < M && k0 + k < K;
            __pipeline_memcpy_async(&a_smem[stage][m][k], A + (there ? (size_t)(row0 + m) * K + k0 + k : 0), 4, there ? 0 : 4);
        }
        for (int i = tid; i < TILE * BK; i += 256) {
            int k = i / TILE, n = i % TILE;
            bool there = k0 + k < K && col0 + n < N;
            __pipeline_memcpy_async(&b_smem[stage][k][n], B + (there ? (size_t)(k0 + k) * N + col0 + n : 0), 4, there ? 0 : 4);
        }
    };
    int slices = (K + BK - 1) / BK;
    for (int s = 0; s < STAGES - 1; ++s) {
        if (s < slices) fetch(s);
        __pipeline_commit();
    }
    float acc[2][2] = {};
    for (int s = 0; s < slices; ++s) {
        __pipeline_wait_prior(STAGES - 2);
        __syncthreads();  // slice s is there for all, and the one before it is read
        if (s + STAGES - 1 < slices) fetch(s + STAGES - 1);
        __pipeline_commit();
        int stage = s % STAGES;
        for (int k = 0; k < BK; ++k)
            for (int m = 0; m < 2; ++m)
                for (int n = 0; n < 2; ++n)
                    acc[m][n] += a_smem[stage][y + 16 * m][k] * b_smem[stage][k][x + 16 * n];
    }
    for (int m = 0; m < 2; ++m)
        for (int n = 0; n < 2; ++n) {
            int row = row0 + y + 16 * m, col = col0 + x + 16 * n;
            if (row < M && col < N) C[(size_t)row * N + col] = acc[m][n];
        }
}
