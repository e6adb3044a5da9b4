// Destinations of the pieces of epilogue.cuh: a tensor map of C for the TMA unit, or, if the unit cannot address its
// rows, a pointer for the threads.
#pragma once
#include "epilogue.cuh"
#include "phases.cuh"

// Consecutive rows of C, or those of one phase.
template <int PHASES>
struct Rows {
    Result* first;
    int rows, columns;

    __device__ __forceinline__ Rows of_phase(int phase) const {
        return {first + static_cast<size_t>(phase) * columns, rows_of_phase<PHASES>(rows, phase), columns};
    }
    __device__ __forceinline__ void prefetch() const {}
};
template <bool BY_THREADS, int PHASES = 1>
using Destination = std::conditional_t<BY_THREADS, Rows<PHASES>, TensorMaps<PHASES>>;
// Builds the destination from the numbers of rows and columns of D.
template <bool BY_THREADS, int PHASES = 1>
Destination<BY_THREADS, PHASES> destination(void* C, const CUtensorMap* maps, int rows, int columns) {
    if constexpr (BY_THREADS)
        return {static_cast<Result*>(C), TRANSPOSE_C ? columns : rows, TRANSPOSE_C ? rows : columns};
    else return TensorMaps<PHASES>::from_maps(maps);
}

// Stores a piece at (row `down`, column `across`) with all threads; neighbouring threads store neighbouring elements.
template <int PHASES>
__device__ __forceinline__ void store_piece(const Rows<PHASES>& C, const Piece& piece, int down, int across) {
    constexpr int ELEMENTS = sizeof(Piece) / sizeof(Result), ROWS = PIECE_PANEL_BYTES / LINE_BYTES;
#pragma unroll 8
    for (int i = threadIdx.x % WARPGROUP; i < ELEMENTS; i += WARPGROUP) {
        const int column = i % LINE, row = i / LINE % ROWS, panel = i / LINE / ROWS;
        const int byte = column * sizeof(Result), to_row = down + row, to = across + panel * LINE + column;
        if (to_row >= C.rows || to >= C.columns) continue;
        const auto* const from = piece.bytes + panel * PIECE_PANEL_BYTES + swizzled_line(row, byte / 16) + byte % 16;
        C.first[static_cast<size_t>(to_row) * PHASES * C.columns + to] = *reinterpret_cast<const Result*>(from);
    }
}
