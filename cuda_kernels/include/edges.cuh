// Edges of the operands. The TMA unit fills the part of a box outside its matrix with zeros, which takes it longer than
// to read as much: 129 x 8448 x 4096 in bf16 took 50 us, against 31 us for 256 rows (H100, 128 x 128). So boxes stay
// inside where possible; each operand has a second tensor map for its edge (`View` in tensor_map.py).
//
// If an operand is stored along k, the box of the last tile has as many rows as remain, rounded up to 8, the period of
// the swizzle. Otherwise the last panel continues into the next row of memory, for elements of C that are not stored,
// except in the last rows, after which the matrix ends. Panels that are completely outside are not loaded.
#pragma once
#include "phases.cuh"

// Tensor maps of each phase: one of the whole matrix, and one for its edge.
template <int PHASES>
struct EdgedMaps {
    TensorMaps<PHASES> matrix, edge;

    static EdgedMaps from_maps(const CUtensorMap*& maps) {
        EdgedMaps result;
        result.matrix = TensorMaps<PHASES>::from_maps(maps), result.edge = TensorMaps<PHASES>::from_maps(maps);
        return result;
    }
    __device__ __forceinline__ void prefetch() const { matrix.prefetch(), edge.prefetch(); }
};

// The part of COUNT rows of the left or columns of the right operand that a block loads for a tile, or its share of it.
template <int COUNT, bool MN_MAJOR, int PHASES, int SHARERS = 1>
struct Edge {
    static constexpr int BOXES = (COUNT + DEPTH - 1) / DEPTH, EIGHTS = 8;
    int rest;  // rows or columns of the tile's phase from its first one on; 0 or less if the tile is outside

    // Returns how many 128-byte rows of the slice all sharers load together.
    __device__ __forceinline__ int rows() const {
        if (MN_MAJOR) return min((max(rest, 0) + DEPTH - 1) / DEPTH, BOXES) * DEPTH;
        return share() * SHARERS;
    }
    // Returns how many of them each sharer loads, of an operand that is stored along k.
    __device__ __forceinline__ int share() const {
        if (rest >= COUNT) return COUNT / SHARERS;
        return (max(rest, 0) + SHARERS * EIGHTS - 1) / (SHARERS * EIGHTS) * EIGHTS;
    }

    __device__ __forceinline__ bool is_interior() const { return rest >= COUNT; }

    // Starts their copy from `first` on at depth k of K. WHOLE states that no row is outside.
    template <bool INTERIOR>
    __device__ __forceinline__ void load(std::byte* to, const EdgedMaps<PHASES>& maps, int phase, int first, int k,
                                         int K, Mbarrier& full, int rank) const {
        if constexpr (INTERIOR) {
            load_operand<COUNT, MN_MAJOR, SHARERS>(to, maps.matrix.of[phase], first, k, full, rank);
        } else if constexpr (MN_MAJOR) {
            constexpr int SHARE = DEPTH / SHARERS;
            const CUtensorMap& map = k + DEPTH + EIGHTS <= K ? maps.edge.of[phase] : maps.matrix.of[phase];
            std::byte* at = to + rank * SHARE * SWIZZLE_ROW_BYTES;
#pragma unroll 1
            for (int column = first; column < first + min(rest, COUNT); column += DEPTH, at += PANEL_BYTES) {
                load_box<SHARERS>(at, map, column, k + rank * SHARE, full);
            }
        } else if (rest > 0) {
            const int offset = rank * share();
            load_box<SHARERS>(to + offset * SWIZZLE_ROW_BYTES, maps.edge.of[phase], k, first + offset, full);
        }
    }
};

// Zeroes the 128-byte rows from `first` to ROWS. The block's first THREADS threads call it.
template <int ROWS, int THREADS>
__device__ __forceinline__ void clear_rows(std::byte* rows, int first) {
    constexpr int VECTORS = SWIZZLE_ROW_BYTES / sizeof(uint4);  // per row
#pragma unroll 1
    for (int i = first * VECTORS + threadIdx.x; i < ROWS * VECTORS; i += THREADS) {
        reinterpret_cast<uint4*>(rows)[i] = make_uint4(0, 0, 0, 0);
    }
}

// Zeroes the rows of `count` slices after the loaded ones (`left_rows`, `right_rows`), since they are multiplied too.
// The first THREADS threads call it, and wait at a barrier if there are any such rows.
template <int BLOCK_M, int BLOCK_N, int THREADS>
__device__ __forceinline__ void
clear_outside(TensorSlice<BLOCK_M, BLOCK_N>* slices, int count, int left_rows, int right_rows, int barrier) {
    if (left_rows >= BLOCK_M && right_rows >= BLOCK_N) return;
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
        clear_rows<BLOCK_M, THREADS>(slices[i].left, left_rows);
        clear_rows<TensorSlice<BLOCK_M, BLOCK_N>::PANELS, THREADS>(slices[i].right, right_rows);
    }
    fence_proxy_async();
    bar_sync(barrier, THREADS);
}
