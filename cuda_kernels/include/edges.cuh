// The edges of the operands. What a box has outside of its matrix the TMA unit fills with zeros, and that takes it longer than
// to read as much: 129 x 8448 x 4096 in bf16 took 50 us for the 31 of 256 rows (H100, 128 x 128). So no box is outside that
// can be inside; each operand has a second map, for its edge (`View` in tensor_map.py).
//
// Stored along k: the last tile's rows have a box of their own size, in eights, after which the swizzle repeats. Else the
// last panel's columns go on behind the end of a row, in the next one, for elements of C that are not stored; but in the last
// rows, behind which there is nothing. Panels that are outside altogether are not loaded.
#pragma once
#include "phases.cuh"

// Of each phase a map, and one for its edge.
template <int PHASES>
struct EdgedMaps {
    TensorMaps<PHASES> whole, edge;

    static EdgedMaps taken_from(const CUtensorMap*& maps) {
        EdgedMaps taken;
        taken.whole = TensorMaps<PHASES>::taken_from(maps), taken.edge = TensorMaps<PHASES>::taken_from(maps);
        return taken;
    }
    __device__ __forceinline__ void prefetch() const { whole.prefetch(), edge.prefetch(); }
};

// What of COUNT rows of the left or columns of the right operand a block loads for a tile, or its share of them.
template <int COUNT, bool MN_MAJOR, int PHASES, int SHARERS = 1>
struct Edge {
    static constexpr int BOXES = (COUNT + DEPTH - 1) / DEPTH, EIGHTS = 8;
    int rest;  // that the matrix, of the tile's phase, has from its first on; none, or less, where the tile is outside

    // Rows of 128 bytes of the slice that are loaded, by all sharers.
    __device__ __forceinline__ int rows() const {
        if (MN_MAJOR) return min((max(rest, 0) + DEPTH - 1) / DEPTH, BOXES) * DEPTH;
        return share() * SHARERS;
    }
    // ... and by each, of an operand that is stored along k.
    __device__ __forceinline__ int share() const {
        if (rest >= COUNT) return COUNT / SHARERS;
        return (max(rest, 0) + SHARERS * EIGHTS - 1) / (SHARERS * EIGHTS) * EIGHTS;
    }

    __device__ __forceinline__ bool is_whole() const { return rest >= COUNT; }

    // Has them copied from `first` on at depth k of K; WHOLE: whether the tile is.
    template <bool WHOLE>
    __device__ __forceinline__ void
    load(char* to, const EdgedMaps<PHASES>& maps, int phase, int first, int k, int K, Mbarrier& full, int rank) const {
        if constexpr (WHOLE) {
            load_operand<COUNT, MN_MAJOR, SHARERS>(to, maps.whole.of[phase], first, k, full, rank);
        } else if constexpr (MN_MAJOR) {
            constexpr int SHARE = DEPTH / SHARERS;
            const CUtensorMap& map = k + DEPTH + EIGHTS <= K ? maps.edge.of[phase] : maps.whole.of[phase];
            char* at = to + rank * SHARE * SWIZZLE_ROW_BYTES;
#pragma unroll 1
            for (int column = first; column < first + min(rest, COUNT); column += DEPTH, at += PANEL_BYTES) {
                load_box<SHARERS>(at, map, column, k + rank * SHARE, full);
            }
        } else if (rest > 0) {
            const int mine = rank * share();
            load_box<SHARERS>(to + mine * SWIZZLE_ROW_BYTES, maps.edge.of[phase], k, first + mine, full);
        }
    }
};

// Zeroes the rows of 128 bytes from `first` on of ROWS; THREADS threads call it, the first ones.
template <int ROWS, int THREADS>
__device__ __forceinline__ void clear_rows(char* rows, int first) {
    constexpr int VECTORS = SWIZZLE_ROW_BYTES / sizeof(uint4);  // of a row
#pragma unroll 1
    for (int i = first * VECTORS + threadIdx.x; i < ROWS * VECTORS; i += THREADS) {
        reinterpret_cast<uint4*>(rows)[i] = make_uint4(0, 0, 0, 0);
    }
}

// Zeroes what of `count` slices is not loaded, since it is multiplied too; so many rows are. The first THREADS threads call
// it, and meet at a barrier if there is any.
template <int BLOCK_M, int BLOCK_N, int THREADS>
__device__ __forceinline__ void
clear_outside(TensorSlice<BLOCK_M, BLOCK_N>* slices, int count, int left_rows, int right_rows, int barrier) {
    if (left_rows >= BLOCK_M && right_rows >= BLOCK_N) return;
#pragma unroll 1
    for (int i = 0; i < count; ++i) {
        clear_rows<BLOCK_M, THREADS>(slices[i].left, left_rows);
        clear_rows<BLOCK_N, THREADS>(slices[i].right, right_rows);
    }
    fence_proxy_async();
    bar_sync(barrier, THREADS);
}
