// Pitfalls of kernels in which a thread computes a tile of C from shared memory, as s07 to s09 do.
// The device functions are right; each kernel is right but for the one mistake that its comment names.
#include <cuda_runtime.h>

constexpr int BLOCK_M = 128, BLOCK_N = 128, BLOCK_K = 8, THREAD_M = 8, THREAD_N = 8, VECTOR = 4;  // 16 x 16 threads

__device__ __forceinline__ float4& as_vector(float& first) { return reinterpret_cast<float4&>(first); }
__device__ __forceinline__ const float4& as_vector(const float& first) {
    return reinterpret_cast<const float4&>(first);
}

// Loads a slice of A as (k, m) and of B as (k, n), 0 past the edges.
__device__ __forceinline__ void load_slice(float (&a_smem)[BLOCK_K][BLOCK_M], float (&b_smem)[BLOCK_K][BLOCK_N],
                                           const float* A, const float* B, int M, int N, int K, int k_start) {
    const int row = blockIdx.y * BLOCK_M, col = blockIdx.x * BLOCK_N;
    for (int i = threadIdx.y * 16 + threadIdx.x; i < BLOCK_M * BLOCK_K; i += 256) {
        const int m = i / BLOCK_K, k_a = i % BLOCK_K, k_b = i / BLOCK_N, n = i % BLOCK_N;
        a_smem[k_a][m] = row + m < M && k_start + k_a < K ? A[(size_t)(row + m) * K + k_start + k_a] : 0.0f;
        b_smem[k_b][n] = col + n < N && k_start + k_b < K ? B[(size_t)(k_start + k_b) * N + col + n] : 0.0f;
    }
}

// Multiplies a slice. A thread's rows are two vectors, the second STEP_M after the first; its columns likewise.
template <int STEP_M = VECTOR, int STEP_N = VECTOR>
__device__ __forceinline__ void multiply_slice(float (&acc)[THREAD_M][THREAD_N],
                                               const float (&a_smem)[BLOCK_K][BLOCK_M],
                                               const float (&b_smem)[BLOCK_K][BLOCK_N], int thread_m, int thread_n) {
    for (int k = 0; k < BLOCK_K; ++k) {
        alignas(16) float a_frag[THREAD_M], b_frag[THREAD_N];
        for (int half = 0; half < 2; ++half) {
            as_vector(a_frag[half * VECTOR]) = as_vector(a_smem[k][thread_m + half * STEP_M]);
            as_vector(b_frag[half * VECTOR]) = as_vector(b_smem[k][thread_n + half * STEP_N]);
        }
        for (int m = 0; m < THREAD_M; ++m) {
            for (int n = 0; n < THREAD_N; ++n) acc[m][n] += a_frag[m] * b_frag[n];
        }
    }
}

// Stores a thread's tile, whose first element is (thread_m, thread_n) of the block's; steps as in multiply_slice.
template <int STEP_M = VECTOR, int STEP_N = VECTOR>
__device__ __forceinline__ void store_tile(const float (&acc)[THREAD_M][THREAD_N], float* C, int M, int N, int thread_m,
                                           int thread_n) {
    for (int m = 0; m < THREAD_M; ++m) {
        for (int n = 0; n < THREAD_N; ++n) {
            const int row = blockIdx.y * BLOCK_M + thread_m + m / VECTOR * STEP_M + m % VECTOR;
            const int col = blockIdx.x * BLOCK_N + thread_n + n / VECTOR * STEP_N + n % VECTOR;
            if (row < M && col < N) C[(size_t)row * N + col] = acc[m][n];
        }
    }
}

// Pitfall: whole tiles are taken for granted. Nothing is compared with M, N or K.
extern "C" __global__ void __launch_bounds__(256)
whole_tiles_only(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N, int K) {
    __shared__ alignas(16) float a_smem[BLOCK_K][BLOCK_M], b_smem[BLOCK_K][BLOCK_N];
    const int row = blockIdx.y * BLOCK_M, col = blockIdx.x * BLOCK_N;
    const int thread = threadIdx.y * 16 + threadIdx.x;
    const int m_a = thread / 2, k_a = thread % 2 * VECTOR, k_b = thread / 32, n_b = thread % 32 * VECTOR;

    alignas(16) float acc[THREAD_M][THREAD_N] = {};
    for (int k_start = 0; k_start < K; k_start += BLOCK_K) {
        const float4 a = as_vector(A[(size_t)(row + m_a) * K + k_start + k_a]);
        a_smem[k_a + 0][m_a] = a.x;
        a_smem[k_a + 1][m_a] = a.y;
        a_smem[k_a + 2][m_a] = a.z;
        a_smem[k_a + 3][m_a] = a.w;
        as_vector(b_smem[k_b][n_b]) = as_vector(B[(size_t)(k_start + k_b) * N + col + n_b]);
        __syncthreads();
        multiply_slice(acc, a_smem, b_smem, threadIdx.y * THREAD_M, threadIdx.x * THREAD_N);
        __syncthreads();
    }
    for (int m = 0; m < THREAD_M; ++m) {
        for (int n = 0; n < THREAD_N; n += VECTOR) {
            const int c_row = row + threadIdx.y * THREAD_M + m, c_col = col + threadIdx.x * THREAD_N + n;
            as_vector(C[(size_t)c_row * N + c_col]) = as_vector(acc[m][n]);
        }
    }
}

// Pitfall: a vector is stored when its first element is inside C. The other three may not be, and where N is not a
// multiple of 4 the rows do not start at multiples of 16 bytes.
extern "C" __global__ void __launch_bounds__(256)
first_element_guard(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N,
                    int K) {
    __shared__ alignas(16) float a_smem[BLOCK_K][BLOCK_M], b_smem[BLOCK_K][BLOCK_N];
    const int thread_m = threadIdx.y * THREAD_M, thread_n = threadIdx.x * VECTOR;

    alignas(16) float acc[THREAD_M][THREAD_N] = {};
    for (int k_start = 0; k_start < K; k_start += BLOCK_K) {
        load_slice(a_smem, b_smem, A, B, M, N, K, k_start);
        __syncthreads();
        multiply_slice<VECTOR, BLOCK_N / 2>(acc, a_smem, b_smem, thread_m, thread_n);
        __syncthreads();
    }
    for (int m = 0; m < THREAD_M; ++m) {
        const int row = blockIdx.y * BLOCK_M + thread_m + m, col = blockIdx.x * BLOCK_N + thread_n;
        float* c = &C[(size_t)row * N + col];
        if (row < M && col < N) as_vector(c[0]) = as_vector(acc[m][0]);
        if (row < M && col + BLOCK_N / 2 < N) as_vector(c[BLOCK_N / 2]) = as_vector(acc[m][VECTOR]);
    }
}

// Pitfall: the axes change sides. x counts rows where the tile is multiplied, and columns where it is stored.
extern "C" __global__ void __launch_bounds__(256)
stores_the_tile_elsewhere(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N,
                          int K) {
    __shared__ alignas(16) float a_smem[BLOCK_K][BLOCK_M], b_smem[BLOCK_K][BLOCK_N];
    float acc[THREAD_M][THREAD_N] = {};
    for (int k_start = 0; k_start < K; k_start += BLOCK_K) {
        load_slice(a_smem, b_smem, A, B, M, N, K, k_start);
        __syncthreads();
        multiply_slice(acc, a_smem, b_smem, threadIdx.x * THREAD_M, threadIdx.y * THREAD_N);
        __syncthreads();
    }
    store_tile(acc, C, M, N, threadIdx.y * THREAD_M, threadIdx.x * THREAD_N);
}

// Pitfall: the threads are spread over a slice by the sizes of C's tile. 16 threads a row, THREAD_M apart, would suit
// rows of BLOCK_M elements; a row of A's slice has BLOCK_K.
extern "C" __global__ void __launch_bounds__(256)
loads_by_the_tile_of_c(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N,
                       int K) {
    __shared__ alignas(16) float a_smem[BLOCK_M][BLOCK_K], b_smem[BLOCK_K][BLOCK_N];
    const int row = blockIdx.y * BLOCK_M, col = blockIdx.x * BLOCK_N;
    const int thread = threadIdx.y * 16 + threadIdx.x;
    const int m_a = thread / (BLOCK_M / THREAD_M), k_a = thread % (BLOCK_M / THREAD_M) * THREAD_M;
    const int k_b = thread / (BLOCK_N / THREAD_N), n_b = thread % (BLOCK_N / THREAD_N) * THREAD_N;

    float acc[THREAD_M][THREAD_N] = {};
    for (int k_start = 0; k_start < K; k_start += BLOCK_K) {
        as_vector(a_smem[m_a][k_a]) = as_vector(A[(size_t)(row + m_a) * K + k_start + k_a]);
        as_vector(b_smem[k_b][n_b]) = as_vector(B[(size_t)(k_start + k_b) * N + col + n_b]);
        __syncthreads();
        for (int k = 0; k < BLOCK_K; ++k) {
            for (int m = 0; m < THREAD_M; ++m) {
                for (int n = 0; n < THREAD_N; ++n) {
                    acc[m][n] += a_smem[threadIdx.y * THREAD_M + m][k] * b_smem[k][threadIdx.x * THREAD_N + n];
                }
            }
        }
        __syncthreads();
    }
    store_tile(acc, C, M, N, threadIdx.y * THREAD_M, threadIdx.x * THREAD_N);
}

// Pitfall: a float4 in an array of floats, which starts at a multiple of 4 bytes and not of 16 unless it is told to.
extern "C" __global__ void unaligned_vectors(const float* __restrict__ A, float* __restrict__ C, int which) {
    __shared__ float scale_smem[3];
    __shared__ float a_smem[32][VECTOR];
    if (threadIdx.x < 3) scale_smem[threadIdx.x] = A[threadIdx.x];
    as_vector(a_smem[threadIdx.x][0]) = as_vector(A[threadIdx.x * VECTOR]);
    __syncthreads();
    C[threadIdx.x] = a_smem[31 - threadIdx.x][0] * scale_smem[which];
}

// Pitfall: the cause of the bank conflicts is sought at the wrong side. All three are right. Cutting the rows of a
// thread's tile in two changes no request to shared memory; cutting its columns halves the wavefronts of b_smem's.
template <int FIRST_M, int STEP_M, int FIRST_N, int STEP_N>
__device__ __forceinline__ void cut_tile(const float* A, const float* B, float* C, int M, int N, int K) {
    __shared__ alignas(16) float a_smem[BLOCK_K][BLOCK_M], b_smem[BLOCK_K][BLOCK_N];
    float acc[THREAD_M][THREAD_N] = {};
    for (int k_start = 0; k_start < K; k_start += BLOCK_K) {
        load_slice(a_smem, b_smem, A, B, M, N, K, k_start);
        __syncthreads();
        multiply_slice<STEP_M, STEP_N>(acc, a_smem, b_smem, threadIdx.y * FIRST_M, threadIdx.x * FIRST_N);
        __syncthreads();
    }
    store_tile<STEP_M, STEP_N>(acc, C, M, N, threadIdx.y * FIRST_M, threadIdx.x * FIRST_N);
}
extern "C" __global__ void __launch_bounds__(256)
tile_whole(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N, int K) {
    cut_tile<THREAD_M, VECTOR, THREAD_N, VECTOR>(A, B, C, M, N, K);
}
extern "C" __global__ void __launch_bounds__(256)
tile_rows_cut(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N, int K) {
    cut_tile<VECTOR, BLOCK_M / 2, THREAD_N, VECTOR>(A, B, C, M, N, K);
}
extern "C" __global__ void __launch_bounds__(256)
tile_columns_cut(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N, int K) {
    cut_tile<THREAD_M, VECTOR, VECTOR, BLOCK_N / 2>(A, B, C, M, N, K);
}

// Pitfall: a block of 4 x 4 threads, which is half a warp; the other 16 lanes of each instruction have no thread.
extern "C" __global__ void __launch_bounds__(16)
half_a_warp(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int M, int N, int K) {
    constexpr int BLOCK = 32, THREAD = 8;
    __shared__ float a_smem[BLOCK][BLOCK + 1];  // (m, k), padded
    __shared__ float b_smem[BLOCK][BLOCK];      // (k, n)
    const int row = blockIdx.y * BLOCK, col = blockIdx.x * BLOCK;

    float acc[THREAD][THREAD] = {};
    for (int k_start = 0; k_start < K; k_start += BLOCK) {
        for (int i = threadIdx.y * 4 + threadIdx.x; i < BLOCK * BLOCK; i += 16) {
            const int y = i / BLOCK, x = i % BLOCK;
            a_smem[y][x] = row + y < M && k_start + x < K ? A[(size_t)(row + y) * K + k_start + x] : 0.0f;
            b_smem[y][x] = k_start + y < K && col + x < N ? B[(size_t)(k_start + y) * N + col + x] : 0.0f;
        }
        __syncthreads();
        for (int k = 0; k < BLOCK; ++k) {
            for (int m = 0; m < THREAD; ++m) {
                for (int n = 0; n < THREAD; ++n) {
                    acc[m][n] += a_smem[threadIdx.y * THREAD + m][k] * b_smem[k][threadIdx.x * THREAD + n];
                }
            }
        }
        __syncthreads();
    }
    for (int m = 0; m < THREAD; ++m) {
        for (int n = 0; n < THREAD; ++n) {
            const int c_row = row + threadIdx.y * THREAD + m, c_col = col + threadIdx.x * THREAD + n;
            if (c_row < M && c_col < N) C[(size_t)c_row * N + c_col] = acc[m][n];
        }
    }
}
