// A tile of 64 x 64 of C per block and 4 x 4 per thread, two slices of K in shared memory by turns.
#define BM 64
#define BN 64
#define BK 8
__global__ void __launch_bounds__(256) gemm(const float* A, const float* B, float* C, int M, int N, int K) {
    __shared__ float a_smem[2][BK][BM], b_smem[2][BK][BN];
    int tid = threadIdx.y * 16 + threadIdx.x;
    int row0 = blockIdx.y * BM, col0 = blockIdx.x * BN;
    auto load = [&](int stage, int k0) {
        for (int i = tid; i < BM * BK; i += 256) {
            int m = i / BK, k = i % BK;
            a_smem[stage][k][m] = row0 + m < M && k0 + k < K ? A[(size_t)(row0 + m) * K + k0 + k] : 0.0f;
        }
        for (int i = tid; i < BN * BK; i += 256) {
            int k = i / BN, n = i % BN;
            b_smem[stage][k][n] = k0 + k < K && col0 + n < N ? B[(size_t)(k0 + k) * N + col0 + n] : 0.0f;
        }
    };
    float acc[4][4] = {};
    load(0, 0);
    __syncthreads();  // the first slice is there
    for (int k0 = 0; k0 < K; k0 += BK) {
        int stage = k0 / BK % 2;
        if (k0 + BK < K) load(stage ^ 1, k0 + BK);
        for (int k = 0; k < BK; ++k)
            for (int m = 0; m < 4; ++m)
                for (int n = 0; n < 4; ++n)
                    acc[m][n] += a_smem[stage][k][threadIdx.y * 4 + m] * b_smem[stage][k][threadIdx.x * 4 + n];
        __syncthreads();  // the next slice is there, and nobody reads this one
    }
    for (int m = 0; m < 4; ++m)
        for (int n = 0; n < 4; ++n) {
            int row = row0 + threadIdx.y * 4 + m, col = col0 + threadIdx.x * 4 + n;
            if (row < M && col < N) C[(size_t)row * N + col] = acc[m][n];
        }
}
