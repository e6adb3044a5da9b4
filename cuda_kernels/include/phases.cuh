// An A whose rows the TMA unit cannot find, beside a B by rows. The unit wants rows, and the first column of a box, at
// multiples of 16 bytes. But a row of A and the one that is PHASES rows further begin equally far behind such a multiple. So
// each phase, every so-manyth row, is a matrix for the unit: its columns begin at the multiple before, up to 7 elements
// (tf32: 3) that belong to the row before. B is read as many rows higher, where rows before its first are zeros: so the same
// k meet. The elements before are set to zero too, since they may be NaN. A tile has rows of one phase.
#pragma once
#include "tensor_tile.cuh"

template <int PHASES>
struct TensorMaps {
    CUtensorMap of[PHASES];

    // The first PHASES of `maps`, which then begin behind them.
    static TensorMaps taken_from(const CUtensorMap*& maps) {
        TensorMaps taken;
        for (CUtensorMap& map : taken.of) map = *maps++;
        return taken;
    }
    __device__ __forceinline__ const CUtensorMap& of_phase(int phase) const { return of[phase]; }
    __device__ __forceinline__ void prefetch() const {
#pragma unroll
        for (int phase = 0; phase < PHASES; ++phase) prefetch_tensor_map(of[phase]);
    }
};

// So many rows of A as if each phase had whole tiles of so many.
template <int PHASES>
__device__ __forceinline__ int in_whole_tiles(int rows, int of_tile) {
    if (PHASES == 1) return rows;
    return ((rows + PHASES - 1) / PHASES + of_tile - 1) / of_tile * of_tile * PHASES;
}

// Rows of a phase, of so many.
template <int PHASES>
__device__ __forceinline__ int rows_of_phase(int rows, int phase) {
    return PHASES == 1 ? rows : (rows - phase + PHASES - 1) / PHASES;
}

constexpr int IN_16_BYTES = 16 / sizeof(Element);
// Elements before the rows of a phase, each of `columns`; and the most of any phase.
__device__ __forceinline__ int elements_before(int phase, int columns) {
    return static_cast<unsigned>(phase) * static_cast<unsigned>(columns) % IN_16_BYTES;
}
template <int PHASES>
constexpr int MOST_BEFORE = IN_16_BYTES - IN_16_BYTES / PHASES;

// Sets them to zero in the first slice of ROWS rows that are stored along k; `thread` is one of THREADS, which then meet at
// a barrier.
template <int ROWS, int THREADS>
__device__ __forceinline__ void clear_before(char* rows, int count, int thread, int barrier) {
    for (int row = thread; row < ROWS; row += THREADS) {
        auto* const halves = reinterpret_cast<unsigned short*>(rows + swizzled_128(row, 0));
        for (int i = 0; i < count * static_cast<int>(sizeof(Element)) / 2; ++i) halves[i] = 0;
    }
    fence_proxy_async();
    bar_sync(barrier, THREADS);
}
