// A warp per element of C: each lane a part of its sum, then a reduction; a block has four elements and adds up flags.
__global__ void gemm(const float* A, const float* B, float* C, int M, int N, int K) {
    __shared__ float sums[4];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    size_t element = (size_t)blockIdx.x * 4 + warp;
    size_t row = element / N, col = element % N;
    float sum = 0.0f;
    if (row < M)
        for (int k = lane; k < K; k += 32) sum += A[row * K + k] * B[(size_t)k * N + col];
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffff, sum, step);
    if (lane == 0) sums[warp] = sum;
    __syncthreads();
    size_t out = (size_t)blockIdx.x * 4 + threadIdx.x;
    if (threadIdx.x < 4 && out < (size_t)M * N) C[out] = sums[threadIdx.x];
}
