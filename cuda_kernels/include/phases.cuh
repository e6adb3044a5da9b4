// Phases let the TMA unit read an A whose rows it cannot address, if B is stored by rows. The unit requires rows, and
// the first column of a box, at multiples of 16 bytes. Rows of A that are PHASES rows apart have the same offset from
// such a multiple, so each phase (every PHASES-th row) is a matrix of the unit, whose columns begin at the multiple
// before: up to 7 elements early (tf32: 3). B is read as many rows early, where the unit reads zeros, so that equal k
// are multiplied. The early elements of A are zeroed too, since they may be NaN. A tile has rows of one phase.
#pragma once
#include "tensor_tile.cuh"

template <int PHASES>
struct TensorMaps {
    CUtensorMap of[PHASES];

    // Takes the first PHASES of `maps`, and moves `maps` past them.
    static TensorMaps from_maps(const CUtensorMap*& maps) {
        TensorMaps result;
        for (CUtensorMap& map : result.of) map = *maps++;
        return result;
    }
    __device__ __forceinline__ const CUtensorMap& of_phase(int phase) const { return of[phase]; }
    __device__ __forceinline__ void prefetch() const {
#pragma unroll
        for (int phase = 0; phase < PHASES; ++phase) prefetch_tensor_map(of[phase]);
    }
};

// Returns the rows of A if every phase is rounded up to whole tiles of `of_tile` rows.
template <int PHASES>
__device__ __forceinline__ int padded_rows(int rows, int of_tile) {
    if (PHASES == 1) return rows;
    return ((rows + PHASES - 1) / PHASES + of_tile - 1) / of_tile * of_tile * PHASES;
}

// Returns how many of `rows` rows belong to a phase.
template <int PHASES>
__device__ __forceinline__ int rows_of_phase(int rows, int phase) {
    return PHASES == 1 ? rows : (rows - phase + PHASES - 1) / PHASES;
}

constexpr int IN_16_BYTES = 16 / sizeof(Element);
// Returns how many elements early the columns of a phase begin; MAX_ELEMENTS_BEFORE is the maximum over the phases.
__device__ __forceinline__ int elements_before(int phase, int columns) {
    return static_cast<unsigned>(phase) * static_cast<unsigned>(columns) % IN_16_BYTES;
}
template <int PHASES>
constexpr int MAX_ELEMENTS_BEFORE = IN_16_BYTES - IN_16_BYTES / PHASES;

// Zeroes these elements in the first slice of ROWS rows, which are stored along k; `thread` is one of THREADS, which
// then wait at a barrier.
template <int ROWS, int THREADS>
__device__ __forceinline__ void clear_before(std::byte* rows, int count, int thread, int barrier) {
    for (int row = thread; row < ROWS; row += THREADS) {
        auto* const halves = reinterpret_cast<unsigned short*>(rows + swizzled_128(row, 0));
        for (int i = 0; i < count * static_cast<int>(sizeof(Element)) / 2; ++i) halves[i] = 0;
    }
    fence_proxy_async();
    bar_sync(barrier, THREADS);
}
