// Pitfalls of kernels in which a thread computes one element of C from global memory, as s01 to s03 do.
// Each kernel is right but for the one mistake that its comment names.
#include <cuda_runtime.h>

// Pitfall: the strides of a square. A row of A has K elements and a row of C has N, not M.
extern "C" __global__ void
strides_of_a_square(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N,
                    int K) {
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    const int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= M || col >= N) return;

    float acc = 0.0f;
    for (int k = 0; k < K; ++k) acc += A[(size_t)row * M + k] * B[(size_t)k * N + col];
    C[(size_t)row * M + col] = acc;
}

// Pitfall: offsets of 32 bits. row * N is an int and passes 2^31 in a C that fits into a GPU's memory.
extern "C" __global__ void
offsets_of_32_bits(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N,
                   int K) {
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    const int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= M || col >= N) return;

    float acc = 0.0f;
    for (int k = 0; k < K; ++k) acc += A[row * K + k] * B[k * N + col];
    C[row * N + col] = acc;
}

// Pitfall: a variable in its own initialiser. Its value is undefined, and the compiler may do as it likes.
extern "C" __global__ void
own_initialiser(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N, int K) {
    const int row = blockIdx.y * blockDim.y + row;
    const int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= M || col >= N) return;

    float acc = 0.0f;
    for (int k = 0; k < K; ++k) acc += A[(size_t)row * K + k] * B[(size_t)k * N + col];
    C[(size_t)row * N + col] = acc;
}
