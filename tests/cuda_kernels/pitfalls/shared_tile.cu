// Pitfalls of kernels that stage slices of A and B in shared memory, as s04 does: one thread an element of C.
// Each kernel is right but for the one mistake that its comment names.
#include <cuda_runtime.h>

constexpr int BLOCK = 32;  // BLOCK_M = BLOCK_N, and BLOCK_K where nothing else is said

// Pitfall: the sum of each slice is added into C, so C must hold zeros beforehand.
extern "C" __global__ void
adds_into_c(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N, int K) {
    __shared__ float a_smem[BLOCK][BLOCK];  // (m, k)
    __shared__ float b_smem[BLOCK][BLOCK];  // (k, n)
    const int row = blockIdx.y * BLOCK + threadIdx.y;
    const int col = blockIdx.x * BLOCK + threadIdx.x;

    for (int k_start = 0; k_start < K; k_start += BLOCK) {
        const int k_a = k_start + threadIdx.x, k_b = k_start + threadIdx.y;
        a_smem[threadIdx.y][threadIdx.x] = row < M && k_a < K ? A[(size_t)row * K + k_a] : 0.0f;
        b_smem[threadIdx.y][threadIdx.x] = k_b < K && col < N ? B[(size_t)k_b * N + col] : 0.0f;
        __syncthreads();
        float acc = 0.0f;
        for (int k = 0; k < BLOCK; ++k) acc += a_smem[threadIdx.y][k] * b_smem[k][threadIdx.x];
        if (row < M && col < N) C[(size_t)row * N + col] += acc;
        __syncthreads();
    }
}

// Pitfall: the axes are mixed in the test of who loads. The two slices are BLOCK x BLOCK_K and BLOCK_K x BLOCK, but one
// test, of x against BLOCK_K and of y against BLOCK, serves both; it is no test of A's slice unless BLOCK_K is BLOCK.
template <int BLOCK_K>
__device__ __forceinline__ void mixed_axes(const float* A, const float* B, float* C, int M, int N, int K) {
    __shared__ float a_smem[BLOCK][BLOCK_K];  // (m, k)
    __shared__ float b_smem[BLOCK_K][BLOCK];  // (k, n)
    const int row = blockIdx.x * BLOCK + threadIdx.x;
    const int col = blockIdx.y * BLOCK + threadIdx.y;

    float acc = 0.0f;
    for (int k_start = 0; k_start < K; k_start += BLOCK_K) {
        if (threadIdx.x < BLOCK_K && threadIdx.y < BLOCK) {
            const int k_a = k_start + threadIdx.y, k_b = k_start + threadIdx.x;
            a_smem[threadIdx.x][threadIdx.y] = row < M && k_a < K ? A[(size_t)row * K + k_a] : 0.0f;
            b_smem[threadIdx.x][threadIdx.y] = k_b < K && col < N ? B[(size_t)k_b * N + col] : 0.0f;
        }
        __syncthreads();
        for (int k = 0; k < BLOCK_K; ++k) acc += a_smem[threadIdx.x][k] * b_smem[k][threadIdx.y];
        __syncthreads();
    }
    if (row < M && col < N) C[(size_t)row * N + col] = acc;
}
extern "C" __global__ void
mixed_axes_32(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N, int K) {
    mixed_axes<32>(A, B, C, M, N, K);
}
extern "C" __global__ void
mixed_axes_16(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N, int K) {
    mixed_axes<16>(A, B, C, M, N, K);
}

// Pitfall: K / BLOCK slices. The division rounds down, so the last K % BLOCK products of each sum are left out.
extern "C" __global__ void
drops_the_k_tail(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N, int K) {
    __shared__ float a_smem[BLOCK][BLOCK];  // (m, k)
    __shared__ float b_smem[BLOCK][BLOCK];  // (k, n)
    const int row = blockIdx.y * BLOCK + threadIdx.y;
    const int col = blockIdx.x * BLOCK + threadIdx.x;

    float acc = 0.0f;
    for (int slice = 0; slice < K / BLOCK; ++slice) {
        const int k_a = slice * BLOCK + threadIdx.x, k_b = slice * BLOCK + threadIdx.y;
        a_smem[threadIdx.y][threadIdx.x] = row < M ? A[(size_t)row * K + k_a] : 0.0f;
        b_smem[threadIdx.y][threadIdx.x] = col < N ? B[(size_t)k_b * N + col] : 0.0f;
        __syncthreads();
        for (int k = 0; k < BLOCK; ++k) acc += a_smem[threadIdx.y][k] * b_smem[k][threadIdx.x];
        __syncthreads();
    }
    if (row < M && col < N) C[(size_t)row * N + col] = acc;
}

// Pitfall: no row is compared with M and no column with N.
extern "C" __global__ void
untested_edges(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N, int K) {
    __shared__ float a_smem[BLOCK][BLOCK];  // (m, k)
    __shared__ float b_smem[BLOCK][BLOCK];  // (k, n)
    const int row = blockIdx.y * BLOCK + threadIdx.y;
    const int col = blockIdx.x * BLOCK + threadIdx.x;

    float acc = 0.0f;
    for (int k_start = 0; k_start < K; k_start += BLOCK) {
        const int k_a = k_start + threadIdx.x, k_b = k_start + threadIdx.y;
        a_smem[threadIdx.y][threadIdx.x] = k_a < K ? A[(size_t)row * K + k_a] : 0.0f;
        b_smem[threadIdx.y][threadIdx.x] = k_b < K ? B[(size_t)k_b * N + col] : 0.0f;
        __syncthreads();
        for (int k = 0; k < BLOCK; ++k) acc += a_smem[threadIdx.y][k] * b_smem[k][threadIdx.x];
        __syncthreads();
    }
    C[(size_t)row * N + col] = acc;
}

// Pitfall: the loads are tested and the store is not: an element past the end of a row of C is the next row's first.
extern "C" __global__ void
untested_store(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N, int K) {
    __shared__ float a_smem[BLOCK][BLOCK];  // (m, k)
    __shared__ float b_smem[BLOCK][BLOCK];  // (k, n)
    const int row = blockIdx.y * BLOCK + threadIdx.y;
    const int col = blockIdx.x * BLOCK + threadIdx.x;

    float acc = 0.0f;
    for (int k_start = 0; k_start < K; k_start += BLOCK) {
        const int k_a = k_start + threadIdx.x, k_b = k_start + threadIdx.y;
        a_smem[threadIdx.y][threadIdx.x] = row < M && k_a < K ? A[(size_t)row * K + k_a] : 0.0f;
        b_smem[threadIdx.y][threadIdx.x] = k_b < K && col < N ? B[(size_t)k_b * N + col] : 0.0f;
        __syncthreads();
        for (int k = 0; k < BLOCK; ++k) acc += a_smem[threadIdx.y][k] * b_smem[k][threadIdx.x];
        __syncthreads();
    }
    if ((size_t)row * N + col < (size_t)M * N) C[(size_t)row * N + col] = acc;  // inside C, but in whose row?
}

// Pitfall: threads without an element of C leave before the barrier, and with them what they should have loaded.
extern "C" __global__ void
leaves_before_the_barrier(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N,
                          int K) {
    __shared__ float a_smem[BLOCK][BLOCK];  // (m, k)
    __shared__ float b_smem[BLOCK][BLOCK];  // (k, n)
    const int row = blockIdx.y * BLOCK + threadIdx.y;
    const int col = blockIdx.x * BLOCK + threadIdx.x;
    if (row >= M || col >= N) return;

    float acc = 0.0f;
    for (int k_start = 0; k_start < K; k_start += BLOCK) {
        const int k_a = k_start + threadIdx.x, k_b = k_start + threadIdx.y;
        a_smem[threadIdx.y][threadIdx.x] = k_a < K ? A[(size_t)row * K + k_a] : 0.0f;
        b_smem[threadIdx.y][threadIdx.x] = k_b < K ? B[(size_t)k_b * N + col] : 0.0f;
        __syncthreads();
        for (int k = 0; k < BLOCK; ++k) acc += a_smem[threadIdx.y][k] * b_smem[k][threadIdx.x];
        __syncthreads();
    }
    C[(size_t)row * N + col] = acc;
}

// Pitfall: the thread's own offset along K is left out of both loads: all of a row of A's slice is one element
// of A, and all of a column of B's slice one element of B.
extern "C" __global__ void
no_thread_offset(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N, int K) {
    __shared__ float a_smem[BLOCK][BLOCK];  // (m, k)
    __shared__ float b_smem[BLOCK][BLOCK];  // (k, n)
    const int row = blockIdx.y * BLOCK + threadIdx.y;
    const int col = blockIdx.x * BLOCK + threadIdx.x;

    float acc = 0.0f;
    for (int k_start = 0; k_start < K; k_start += BLOCK) {
        const bool inside_a = row < M && k_start + (int)threadIdx.x < K;
        const bool inside_b = col < N && k_start + (int)threadIdx.y < K;
        a_smem[threadIdx.y][threadIdx.x] = inside_a ? A[(size_t)row * K + k_start] : 0.0f;
        b_smem[threadIdx.y][threadIdx.x] = inside_b ? B[(size_t)k_start * N + col] : 0.0f;
        __syncthreads();
        for (int k = 0; k < BLOCK; ++k) acc += a_smem[threadIdx.y][k] * b_smem[k][threadIdx.x];
        __syncthreads();
    }
    if (row < M && col < N) C[(size_t)row * N + col] = acc;
}

// Pitfall: A's slice is stored (k, m) and read as if it were (m, k).
extern "C" __global__ void
slice_turned_round(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N,
                   int K) {
    __shared__ float a_smem[BLOCK][BLOCK];  // (k, m)
    __shared__ float b_smem[BLOCK][BLOCK];  // (k, n)
    const int row = blockIdx.y * BLOCK + threadIdx.y;
    const int col = blockIdx.x * BLOCK + threadIdx.x;

    float acc = 0.0f;
    for (int k_start = 0; k_start < K; k_start += BLOCK) {
        const int k_a = k_start + threadIdx.x, k_b = k_start + threadIdx.y;
        a_smem[threadIdx.x][threadIdx.y] = row < M && k_a < K ? A[(size_t)row * K + k_a] : 0.0f;
        b_smem[threadIdx.y][threadIdx.x] = k_b < K && col < N ? B[(size_t)k_b * N + col] : 0.0f;
        __syncthreads();
        for (int k = 0; k < BLOCK; ++k) acc += a_smem[threadIdx.y][k] * b_smem[k][threadIdx.x];
        __syncthreads();
    }
    if (row < M && col < N) C[(size_t)row * N + col] = acc;
}

// Pitfall: threadIdx.x is taken for the place along BLOCK_K of A's slice, where the loop's k belongs.
extern "C" __global__ void
x_along_block_k(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N, int K) {
    __shared__ float a_smem[BLOCK][BLOCK];  // (k, m)
    __shared__ float b_smem[BLOCK][BLOCK];  // (k, n)
    const int row = blockIdx.y * BLOCK + threadIdx.y;
    const int col = blockIdx.x * BLOCK + threadIdx.x;

    float acc = 0.0f;
    for (int k_start = 0; k_start < K; k_start += BLOCK) {
        const int k_a = k_start + threadIdx.x, k_b = k_start + threadIdx.y;
        a_smem[threadIdx.x][threadIdx.y] = row < M && k_a < K ? A[(size_t)row * K + k_a] : 0.0f;
        b_smem[threadIdx.y][threadIdx.x] = k_b < K && col < N ? B[(size_t)k_b * N + col] : 0.0f;
        __syncthreads();
        for (int k = 0; k < BLOCK; ++k) acc += a_smem[threadIdx.x][threadIdx.y] * b_smem[k][threadIdx.x];
        __syncthreads();
    }
    if (row < M && col < N) C[(size_t)row * N + col] = acc;
}

// Pitfall: threadIdx.x walks the rows. Right, but each request to global memory touches 32 rows, and each to a_smem 32
// words of one bank. Turning b_smem round changes neither.
template <bool TURN_B>
__device__ __forceinline__ void rows_on_x(const float* A, const float* B, float* C, int M, int N, int K) {
    __shared__ float a_smem[BLOCK][BLOCK];  // (m, k)
    __shared__ float b_smem[BLOCK][BLOCK];  // (k, n), turned (n, k)
    const int row = blockIdx.x * BLOCK + threadIdx.x;
    const int col = blockIdx.y * BLOCK + threadIdx.y;

    float acc = 0.0f;
    for (int k_start = 0; k_start < K; k_start += BLOCK) {
        const int k_a = k_start + threadIdx.y, k_b = k_start + threadIdx.x;
        float& b = TURN_B ? b_smem[threadIdx.y][threadIdx.x] : b_smem[threadIdx.x][threadIdx.y];
        a_smem[threadIdx.x][threadIdx.y] = row < M && k_a < K ? A[(size_t)row * K + k_a] : 0.0f;
        b = k_b < K && col < N ? B[(size_t)k_b * N + col] : 0.0f;
        __syncthreads();
        for (int k = 0; k < BLOCK; ++k) {
            acc += a_smem[threadIdx.x][k] * (TURN_B ? b_smem[threadIdx.y][k] : b_smem[k][threadIdx.y]);
        }
        __syncthreads();
    }
    if (row < M && col < N) C[(size_t)row * N + col] = acc;
}
extern "C" __global__ void
rows_on_x_staged(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N, int K) {
    rows_on_x<false>(A, B, C, M, N, K);
}
extern "C" __global__ void
rows_on_x_b_turned(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N,
                   int K) {
    rows_on_x<true>(A, B, C, M, N, K);
}
