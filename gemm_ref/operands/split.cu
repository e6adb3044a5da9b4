// Splits an fp32 matrix into parts in one launch: each line, a row or a column, is multiplied by a power of two, and
// each element becomes PARTS numbers of 16 bits whose sum it is. split.py defines them and the constants.
//
// A block computes a row or STRIP columns; if there are few and long ones, a cluster does, with an equal share of their
// length per block. The matrix is read twice: first for the largest elements, and again, from L2 if it fits, to split
// them. Elements that the parts cannot represent are counted meanwhile.
#include <cuda_runtime.h>

constexpr int WARPS = THREADS / 32, VECTOR = 4;  // floats that a thread reads at once
constexpr unsigned INFINITE = 0x7F800000;        // bits of an infinity; those of NaN are above

__device__ __forceinline__ unsigned bits_of_magnitude(float x) { return __float_as_uint(x) & 0x7FFFFFFF; }
__device__ __forceinline__ float power_of_two(int exponent) { return __int_as_float((exponent + 127) << 23); }
__device__ __forceinline__ float as_float(__half x) { return __half2float(x); }
__device__ __forceinline__ float as_float(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ __forceinline__ void round_to(__half& to, float x) { to = __float2half_rn(x); }
__device__ __forceinline__ void round_to(__nv_bfloat16& to, float x) { to = __float2bfloat16_rn(x); }

__device__ __forceinline__ void cluster_sync() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

// What block `rank` of the cluster has where x is in this block's shared memory.
__device__ __forceinline__ unsigned read_cluster(const unsigned& x, int rank) {
    unsigned there = x;
#if __CUDA_ARCH__ >= 900
    asm volatile("{\n.reg .b32 at;\nmapa.shared::cluster.u32 at, %1, %2;\nld.shared::cluster.u32 %0, [at];\n}"
                 : "=r"(there)
                 : "r"(static_cast<unsigned>(__cvta_generic_to_shared(&x))), "r"(rank)
                 : "memory");
#endif
    return there;
}

// `sharers` blocks, a cluster if there are several, have the same lines.
template <bool BY_ROWS>
__global__ void __launch_bounds__(THREADS) split(const float* __restrict__ x, Part* __restrict__ parts,
                                                 int* __restrict__ exponents, int rows, int columns, int parts_step,
                                                 int sharers) {
    constexpr int ACROSS = BY_ROWS ? THREADS : STRIP / VECTOR;  // threads along a row
    constexpr int LINES = BY_ROWS ? 1 : VECTOR;                 // per thread
    __shared__ unsigned warp_values[WARPS][BY_ROWS ? 1 : STRIP], block_values[BY_ROWS ? 1 : STRIP];
    const int block = blockIdx.x / sharers, rank = blockIdx.x % sharers;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, across = threadIdx.x % ACROSS;
    const bool vectors = columns % VECTOR == 0 && reinterpret_cast<size_t>(x) % 16 == 0;

    const auto for_each_vector = [&](auto&& use) {  // use(row, column, vector), 0 past the end of a row
        const int thread = rank * THREADS + threadIdx.x, threads = sharers * THREADS;
        const int down = BY_ROWS ? 0 : threads / ACROSS, right = BY_ROWS ? threads * VECTOR : 0;
        const int end = BY_ROWS ? block + 1 : rows;
        int row = BY_ROWS ? block : thread / ACROSS;
        int column = (BY_ROWS ? thread : block * ACROSS + across) * VECTOR;
#pragma unroll 4
        for (; row < end && column < columns; row += down, column += right) {
            const float* const from = x + static_cast<size_t>(row) * columns + column;
            float vector[VECTOR] = {};
            if (vectors) {
                const float4 read = *reinterpret_cast<const float4*>(from);
                vector[0] = read.x, vector[1] = read.y, vector[2] = read.z, vector[3] = read.w;
            } else {
#pragma unroll
                for (int i = 0; i < VECTOR; ++i) {
                    if (column + i < columns) vector[i] = from[i];
                }
            }
            use(row, column, vector);
        }
    };
    const auto reduce_lines = [&](auto& values, auto&& combine) {  // combines the values of all threads per line
#pragma unroll
        for (int line = 0; line < LINES; ++line) {
#pragma unroll
            for (int step = 16; step >= (BY_ROWS ? 1 : ACROSS); step /= 2) {
                values[line] = combine(values[line], __shfl_xor_sync(~0u, values[line], step));
            }
            if (lane < (BY_ROWS ? 1 : ACROSS)) warp_values[warp][BY_ROWS ? 0 : across * VECTOR + line] = values[line];
        }
        __syncthreads();  // all warps have written theirs
#pragma unroll
        for (int line = 0; line < LINES; ++line) {
            values[line] = 0;
            for (int other = 0; other < WARPS; ++other) {
                values[line] = combine(values[line], warp_values[other][BY_ROWS ? 0 : across * VECTOR + line]);
            }
        }
        __syncthreads();  // and read all
        if (sharers == 1) return;
#pragma unroll
        for (int line = 0; line < LINES; ++line) {
            if (threadIdx.x < (BY_ROWS ? 1 : ACROSS)) block_values[BY_ROWS ? 0 : across * VECTOR + line] = values[line];
        }
        cluster_sync();  // all blocks have written theirs
#pragma unroll
        for (int line = 0; line < LINES; ++line) {
            values[line] = 0;
            for (int other = 0; other < sharers; ++other) {
                values[line] =
                    combine(values[line], read_cluster(block_values[BY_ROWS ? 0 : across * VECTOR + line], other));
            }
        }
        cluster_sync();  // and read all
    };

    unsigned top[LINES] = {}, small[LINES] = {};  // bits of the largest magnitude, and small elements
    for_each_vector([&](int, int, const float (&vector)[VECTOR]) {
#pragma unroll
        for (int i = 0; i < VECTOR; ++i) top[i % LINES] = max(top[i % LINES], bits_of_magnitude(vector[i]));
    });
    reduce_lines(top, [](unsigned a, unsigned b) { return max(a, b); });
    bool held[LINES];
    int exponent[LINES];
#pragma unroll
    for (int line = 0; line < LINES; ++line) {
        held[line] = top[line] == 0 || (top[line] >= unsigned{LEAST_LINE + 127} << 23 && top[line] < INFINITE);
        exponent[line] = held[line] && top[line] != 0 ? TOP + 127 - static_cast<int>(top[line] >> 23) : 0;
    }
    for_each_vector([&](int row, int column, const float (&vector)[VECTOR]) {
        alignas(8) Part part[PARTS][VECTOR];
#pragma unroll
        for (int i = 0; i < VECTOR; ++i) {
            const int line = i % LINES;
            float left = held[line] ? __fmul_rn(vector[i], power_of_two(exponent[line])) : 0.0f;
            small[line] += vector[i] != 0.0f && fabsf(left) < power_of_two(LEAST);
#pragma unroll
            for (int p = 0; p < PARTS; ++p) {
                round_to(part[p][i], left);
                left = (left - as_float(part[p][i])) * (p == 0 ? power_of_two(PART_SHIFT) : 1.0f);
            }
        }
#pragma unroll
        for (int p = 0; p < PARTS; ++p) {
            Part* const to = parts + (static_cast<size_t>(p) * rows + row) * parts_step + column;
            *reinterpret_cast<uint2*>(to) = *reinterpret_cast<const uint2*>(part[p]);
        }
    });
    reduce_lines(small, [](unsigned a, unsigned b) { return a + b; });
    if (rank == 0 && threadIdx.x < (BY_ROWS ? 1 : ACROSS)) {
#pragma unroll
        for (int line = 0; line < LINES; ++line) {
            const int at = BY_ROWS ? block : block * STRIP + across * VECTOR + line;
            const bool fits = held[line] && small[line] <= SPARE;
            if (BY_ROWS || at < columns) exponents[at] = fits ? exponent[line] : WIDE;
        }
    }
}

extern "C" cudaError_t launch(const float* x, Part* parts, int* exponents, int rows, int columns, int parts_step,
                              int by_rows, int blocks, int sharers, cudaStream_t stream) {
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = sharers, cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = blocks, config.blockDim = THREADS, config.stream = stream;
    config.attrs = &cluster, config.numAttrs = sharers > 1;
    const auto kernel = by_rows ? split<true> : split<false>;
    return cudaLaunchKernelEx(&config, kernel, x, parts, exponents, rows, columns, parts_step, sharers);
}

extern "C" const char* describe_error(cudaError_t error) { return cudaGetErrorString(error); }
