// A transposing copy of a matrix on the GPU: out (columns, rows) = in (rows, columns), both row-major.
//
// A block copies a tile through shared memory, so that both sides are accessed along rows of memory, 4 bytes a thread: one,
// two or four elements. Where rows or addresses are no multiples of 4 bytes it goes element by element. A row of the tile
// in shared memory has a word more than it needs, so that a column of it does not lie in one bank.
#include <cuda_runtime.h>
#include <stdint.h>

constexpr int THREADS_X = 32, THREADS_Y = 8;

template <typename T>
__global__ void __launch_bounds__(THREADS_X * THREADS_Y)
transpose(const T* __restrict__ in, T* __restrict__ out, int rows, int columns, bool words) {
    constexpr int WORD = 4 / sizeof(T), TILE = WORD == 4 ? 128 : 64;  // elements
    __shared__ T tile[TILE][TILE + WORD];
    const int tiles_x = (columns + TILE - 1) / TILE;
    const int row = blockIdx.x / tiles_x * TILE, column = blockIdx.x % tiles_x * TILE;
#pragma unroll
    for (int y = threadIdx.y; y < TILE; y += THREADS_Y) {
#pragma unroll
        for (int x = threadIdx.x * WORD; x < TILE; x += THREADS_X * WORD) {
            const int r = row + y, c = column + x;
            const T* const from = &in[(size_t)r * columns + c];
            if (words && r < rows && c < columns) {
                *reinterpret_cast<uint32_t*>(&tile[y][x]) = *reinterpret_cast<const uint32_t*>(from);
            } else {
                for (int i = 0; i < WORD; ++i) {
                    if (r < rows && c + i < columns) tile[y][x + i] = from[i];
                }
            }
        }
    }
    __syncthreads();  // the tile is written
#pragma unroll
    for (int y = threadIdx.y; y < TILE; y += THREADS_Y) {
#pragma unroll
        for (int x = threadIdx.x * WORD; x < TILE; x += THREADS_X * WORD) {
            const int r = column + y, c = row + x;  // of out
            T* const to = &out[(size_t)r * rows + c];
            if (words && r < columns && c < rows) {
                alignas(4) T elements[WORD];
#pragma unroll
                for (int i = 0; i < WORD; ++i) elements[i] = tile[x + i][y];
                *reinterpret_cast<uint32_t*>(to) = *reinterpret_cast<uint32_t*>(elements);
            } else {
                for (int i = 0; i < WORD; ++i) {
                    if (r < columns && c + i < rows) to[i] = tile[x + i][y];
                }
            }
        }
    }
}

template <typename T>
cudaError_t start(const void* in, void* out, int rows, int columns, cudaStream_t stream) {
    constexpr int WORD = 4 / sizeof(T);
    constexpr size_t TILE = WORD == 4 ? 128 : 64;
    const bool words = rows % WORD == 0 && columns % WORD == 0 && (size_t)in % 4 == 0 && (size_t)out % 4 == 0;
    const size_t tiles = (columns + TILE - 1) / TILE * ((rows + TILE - 1) / TILE);
    transpose<T><<<static_cast<unsigned>(tiles), dim3(THREADS_X, THREADS_Y), 0, stream>>>(
        static_cast<const T*>(in), static_cast<T*>(out), rows, columns, words);
    return cudaGetLastError();
}

extern "C" cudaError_t launch(const void* in, void* out, int rows, int columns, int itemsize, cudaStream_t stream) {
    if (itemsize == 1) return start<uint8_t>(in, out, rows, columns, stream);
    if (itemsize == 2) return start<uint16_t>(in, out, rows, columns, stream);
    return start<uint32_t>(in, out, rows, columns, stream);
}

extern "C" const char* describe_error(cudaError_t error) { return cudaGetErrorString(error); }
