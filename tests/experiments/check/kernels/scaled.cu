// C = alpha * A @ B + beta * C, an element per thread.
__global__ void gemm(const float* A, const float* B, float* C, int M, int N, int K, float alpha, float beta) {
    int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
    if (row >= M || col >= N) return;
    float acc = 0.0f;
    for (int k = 0; k < K; ++k) acc = fmaf(A[(size_t)row * K + k], B[(size_t)k * N + col], acc);
    float old = beta == 0.0f ? 0.0f : beta * C[(size_t)row * N + col];
    C[(size_t)row * N + col] = alpha * acc + old;
}
