// Copies one or two matrices in one launch, from rows of any alignment or from columns, to rows that are a multiple of
// 16 bytes apart.
//
// A vector of 16 bytes with any alignment is extracted from the two aligned vectors that contain it. If the matrix is
// stored by columns, a block transposes a tile of it in shared memory; a line of the tile is padded by one word, so
// that the lanes of a warp read from different banks.
#include <cuda_runtime.h>
#include <stdint.h>

constexpr int THREADS = 256, VECTOR = 16;  // bytes that a thread moves at once
constexpr int TILE = 64, LINE = 128;       // lines of a tile that is transposed, and bytes of each

// Mirrors _Copy of copy_layout.py. A line is a row of the copy or, where it is transposed, a column.
struct Copy {
    const char* from;
    char* to;                      // at a multiple of 16 bytes
    long long from_step, to_step;  // bytes between lines, and between rows of the copy
    unsigned lines, elements;      // number of lines, and of elements per line
    unsigned blocks, transposed;
};

// Returns the vector at `from`, whose first `bytes` are read and whose others are 0; the matrix is [first, end).
__device__ __forceinline__ uint4 read_shifted(const char* from, int bytes, const char* first, const char* end) {
    uint32_t words[8] = {};
    const int shift = reinterpret_cast<size_t>(from) % VECTOR;
    const char* const aligned = from - shift;
    const bool two = shift + bytes > VECTOR;
    if (aligned >= first && aligned + (two ? 2 * VECTOR : VECTOR) <= end) {
        const uint4 low = __ldg(reinterpret_cast<const uint4*>(aligned));
        words[0] = low.x, words[1] = low.y, words[2] = low.z, words[3] = low.w;
        if (two) {
            const uint4 high = __ldg(reinterpret_cast<const uint4*>(aligned) + 1);
            words[4] = high.x, words[5] = high.y, words[6] = high.z, words[7] = high.w;
        }
#pragma unroll
        for (int step = 1; step <= 2; ++step) {  // by words, and then by bytes
            if (shift & 4 * step) {
#pragma unroll
                for (int i = 0; i + step < 8; ++i) words[i] = words[i + step];
            }
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) words[i] = __funnelshift_r(words[i], words[i + 1], shift % 4 * 8);
    } else {  // at an end of the matrix
#pragma unroll
        for (int i = 0; i < VECTOR; ++i) {
            if (i < bytes) words[i / 4] |= static_cast<uint32_t>(static_cast<uint8_t>(from[i])) << i % 4 * 8;
        }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        if (bytes < 4 * i + 4) words[i] &= bytes <= 4 * i ? 0u : (1u << bytes % 4 * 8) - 1;
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
}

template <typename T>
__device__ __forceinline__ void copy_rows(const Copy& copy, unsigned block, const char* end) {
    const int bytes = copy.elements * sizeof(T);
    const unsigned vectors = (bytes + VECTOR - 1) / VECTOR;
    const unsigned next = block * THREADS + threadIdx.x, row = next / vectors;
    if (row >= copy.lines) return;
    const int first = next % vectors * VECTOR;
    const char* const from = copy.from + row * copy.from_step + first;
    *reinterpret_cast<uint4*>(copy.to + row * copy.to_step + first) =
        read_shifted(from, min(bytes - first, VECTOR), copy.from, end);
}

template <typename T>
__device__ __forceinline__ void transpose_tile(const Copy& copy, unsigned block, const char* end) {
    constexpr int ELEMENTS = VECTOR / sizeof(T), ACROSS = LINE / sizeof(T);
    __shared__ uint32_t tile[TILE][LINE / 4 + 1];
    const unsigned tiles = (copy.elements + ACROSS - 1) / ACROSS;
    const unsigned line = block / tiles * TILE, element = block % tiles * ACROSS;
#pragma unroll
    for (int next = threadIdx.x; next < TILE * LINE / VECTOR; next += THREADS) {
        const int l = next / (LINE / VECTOR), first = next % (LINE / VECTOR) * VECTOR;
        const int bytes = min((int)((copy.elements - element) * sizeof(T)) - first, VECTOR);
        uint4 x = make_uint4(0, 0, 0, 0);
        if (line + l < copy.lines && bytes > 0) {
            const char* const from = copy.from + (line + l) * copy.from_step + element * (long long)sizeof(T) + first;
            x = read_shifted(from, bytes, copy.from, end);
        }
        uint32_t* const to = &tile[l][first / 4];
        to[0] = x.x, to[1] = x.y, to[2] = x.z, to[3] = x.w;
    }
    __syncthreads();  // the tile is written
    const auto at = [&](int l, int e) { return reinterpret_cast<const T*>(tile[l])[e]; };
    const auto place = [&](int l, int e) {  // in the copy
        return reinterpret_cast<T*>(copy.to + (element + e) * copy.to_step) + line + l;
    };
    if (copy.to_step % VECTOR == 0) {
        constexpr int ALONG = sizeof(T) == 4 ? 8 : 4;  // vectors of a row of the copy that neighbouring lanes write
#pragma unroll
        for (int next = threadIdx.x; next < TILE * LINE / VECTOR; next += THREADS) {
            const int e = next / ALONG % ACROSS, l = (next / (ALONG * ACROSS) * ALONG + next % ALONG) * ELEMENTS;
            alignas(VECTOR) T elements[ELEMENTS];
#pragma unroll
            for (int i = 0; i < ELEMENTS; ++i) elements[i] = at(l + i, e);
            if (element + e < copy.elements && line + l < copy.lines)
                *reinterpret_cast<uint4*>(place(l, e)) = *reinterpret_cast<uint4*>(elements);
        }
    } else {
        for (int next = threadIdx.x; next < TILE * ACROSS; next += THREADS) {
            const int l = next % TILE, e = next / TILE;
            if (element + e < copy.elements && line + l < copy.lines) *place(l, e) = at(l, e);
        }
    }
}

// The first blocks make the first copy, the others the second. The members of both are separate parameters, because the
// reference GPU has no parameters of struct type.
//
// A product that is launched early starts only when this kernel has ended: if it was released before
// (`griddepcontrol.launch_dependents`), s14 took 100 us instead of 65 at 1023 cubed (H200).
template <typename T>
__global__ void __launch_bounds__(THREADS)
lay_out(const char* from_a, char* to_a, long long from_step_a, long long to_step_a, unsigned lines_a,
        unsigned elements_a, unsigned blocks_a, unsigned transposed_a, const char* from_b, char* to_b,
        long long from_step_b, long long to_step_b, unsigned lines_b, unsigned elements_b, unsigned blocks_b,
        unsigned transposed_b) {
    const Copy first{from_a, to_a, from_step_a, to_step_a, lines_a, elements_a, blocks_a, transposed_a};
    const Copy second{from_b, to_b, from_step_b, to_step_b, lines_b, elements_b, blocks_b, transposed_b};
    const bool is_first = blockIdx.x < blocks_a;
    const Copy copy = is_first ? first : second;
    const unsigned block = is_first ? blockIdx.x : blockIdx.x - blocks_a;
    const char* const end = copy.from + (copy.lines - 1) * copy.from_step + copy.elements * (long long)sizeof(T);
    if (copy.transposed) transpose_tile<T>(copy, block, end);
    else copy_rows<T>(copy, block, end);
}

extern "C" cudaError_t launch(const Copy* a, const Copy* b, int itemsize, cudaStream_t stream) {
    const auto kernel = itemsize == 1 ? lay_out<uint8_t> : itemsize == 2 ? lay_out<uint16_t> : lay_out<uint32_t>;
    kernel<<<a->blocks + b->blocks, THREADS, 0, stream>>>(
        a->from, a->to, a->from_step, a->to_step, a->lines, a->elements, a->blocks, a->transposed,  //
        b->from, b->to, b->from_step, b->to_step, b->lines, b->elements, b->blocks, b->transposed);
    return cudaGetLastError();
}

extern "C" const char* describe_error(cudaError_t error) { return cudaGetErrorString(error); }
