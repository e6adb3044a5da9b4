// Tensor cores: a warp has 16 x 16 of C, two warps side by side share the slice of A in shared memory.
#include <cuda_fp16.h>
#include <mma.h>
using namespace nvcuda;
__global__ void gemm(const half* A, const half* B, half* C, int M, int N, int K) {
    __shared__ half a_smem[16][16], b_smem[16][32];
    __shared__ float c_smem[2][16][16];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int row0 = blockIdx.y * 16, col0 = blockIdx.x * 32;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> acc;
    wmma::fill_fragment(acc, 0.0f);
    for (int k0 = 0; k0 < K; k0 += 16) {
        for (int i = threadIdx.x; i < 256; i += 64) {
            int m = i / 16, k = i % 16;
            a_smem[m][k] = row0 + m < M && k0 + k < K ? A[(size_t)(row0 + m) * K + k0 + k] : __float2half(0.0f);
        }
        for (int i = threadIdx.x; i < 512; i += 64) {
            int k = i / 32, n = i % 32;
            b_smem[k][n] = k0 + k < K && col0 + n < N ? B[(size_t)(k0 + k) * N + col0 + n] : __float2half(0.0f);
        }
        __syncthreads();  // the slice is there
        wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a;
        wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> b;
        wmma::load_matrix_sync(a, &a_smem[0][0], 16);
        wmma::load_matrix_sync(b, &b_smem[0][16 * warp], 32);
        wmma::mma_sync(acc, a, b, acc);
        __syncthreads();  // it is read
    }
    wmma::store_matrix_sync(&c_smem[warp][0][0], acc, 16, wmma::mem_row_major);
    __syncwarp();
    for (int i = lane; i < 256; i += 32) {
        int row = row0 + i / 16, col = col0 + 16 * warp + i % 16;
        if (row < M && col < N) C[(size_t)row * N + col] = __float2half(c_smem[warp][i / 16][i % 16]);
    }
}
